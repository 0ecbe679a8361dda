//! Runs one node's share of a plan over Arrow batches: operators, event time, state, barriers.
//! Synchronous step machines; no tokio, sockets, files, wall clock or connectors in here.

pub mod io;
pub mod chain;
pub mod graph;
pub mod metric;
pub mod error;
