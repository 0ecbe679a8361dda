//! Whole graphs, stepped in one thread, against a naive recomputation.

mod held;
mod plans;
mod recovery;
mod times;
mod windows;
mod world;
