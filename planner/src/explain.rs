//! A plan as stable text, JSON and DOT (JOB-9).
