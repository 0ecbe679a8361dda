//! Every door: SQL over Postgres wire, YAML, REST. Text in, JobSpec and hub calls out.

pub mod error;
pub mod options;
pub mod pgwire;
pub mod query;
pub mod rest;
pub mod sql;
pub mod streams;
pub mod yaml;
