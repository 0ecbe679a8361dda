//! Starts Weir: parse, run, exit code.
fn main() {}
