//! Decides and remembers: catalog, intent in redb, placement, reconciliation, the agents' door.

pub mod hub;
pub mod catalog;
pub mod checkpoint;
pub mod verb;
pub mod intent;
pub mod place;
pub mod reconcile;
pub mod fleet;
pub mod outbox;
pub mod world;
pub mod view;
pub mod drive;
pub mod read;
pub mod agent_api;
pub mod store;
pub mod clock;
pub mod error;

#[cfg(test)]
mod tests;

pub use crate::hub::Hub;
