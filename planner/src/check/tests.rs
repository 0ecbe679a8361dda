//! One row a rule: a legal job, one change, the fault that it must give.
