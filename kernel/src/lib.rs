//! Runs one node's share of a plan over Arrow batches: operators, event time, state, barriers.
//! Synchronous step machines; no tokio, sockets, files, wall clock or connectors in here.

pub mod io;
pub mod envelope;
pub mod origin;
pub mod edge;
pub mod route;
pub mod progress;
pub mod align;
pub mod side;
pub mod operator;
pub mod accumulate;
pub mod eval;
pub mod state;
pub mod chain;
pub mod graph;
pub mod view;
pub mod metric;
pub mod error;
