//! Requests in, answers out, in process.
