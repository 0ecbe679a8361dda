//! One worker: drives the kernel on data shards, opens connectors, keeps segments and decisions,
//! answers reads, obeys the hub.

pub mod connector;
pub mod error;
pub mod format;
pub mod link;
pub mod clock;
pub mod segment;
pub mod decision;
pub mod shard;
