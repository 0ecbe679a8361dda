//! HTTP, in and out: a server that takes records, and requests that carry rows.

mod answer;
mod body;
mod send;
mod serve;
pub mod sink;
pub mod source;

#[cfg(test)]
mod tests;
