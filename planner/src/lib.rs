//! The language of jobs: what was asked, what will run, the ids, the messages, and the pure
//! functions between them. No I/O, no clocks, no SQL, no engine.

pub mod id;
pub mod time;
pub mod window;
pub mod value;
pub mod nearest;
pub mod schema;
pub mod expr;
pub mod connector;
pub mod secret;
pub mod spec;
pub mod check;
pub mod plan;
pub mod compile;
pub mod state;
pub mod keygroup;
pub mod epoch;
pub mod manifest;
pub mod protocol;
pub mod explain;
pub mod error;
