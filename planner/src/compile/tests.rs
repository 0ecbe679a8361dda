//! Whole plans of small jobs, and properties of all plans.
