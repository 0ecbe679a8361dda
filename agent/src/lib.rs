//! One worker: drives the kernel on data shards, opens connectors, keeps segments and decisions,
//! answers reads, obeys the hub.

pub mod agent;
pub mod session;
pub mod link;
pub mod reconcile;
pub mod runner;
pub mod rehearsal;
pub mod shard;
pub mod region;
pub mod read;
pub mod sample;
pub mod connector;
pub mod format;
pub mod secret;
pub mod segment;
pub mod decision;
pub mod wal;
pub mod checkpoint;
pub mod gauge;
pub mod clock;
pub mod error;
#[cfg(test)]
mod power;
