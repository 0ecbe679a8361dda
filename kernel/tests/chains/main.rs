//! Whole graphs, stepped in one thread, against a naive recomputation.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod aggregates;
mod empties;
mod held;
mod lanes;
mod pace;
mod plans;
mod recovery;
mod sessions;
mod shapes;
mod sides;
mod stages;
mod times;
mod updates;
mod tops;
mod windows;
mod world;
