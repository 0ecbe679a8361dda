//! Documents in, specs or faults out.
