//! Decides and remembers: catalog, intent in redb, placement, reconciliation, the agents' door.

pub mod hub;
pub mod error;

pub use crate::hub::Hub;
