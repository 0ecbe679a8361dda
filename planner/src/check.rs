//! Every rule that a spec must meet, all faults at once (JOB-4).
