//! The wire against real clients: tokio-postgres and psql, over a real hub.

mod double;
