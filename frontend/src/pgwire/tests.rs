//! The wire against real clients: tokio-postgres, psql and bytes by hand, over a real hub.

mod client;
mod double;
mod garbage;
mod protocol;
mod psql;
mod values;
