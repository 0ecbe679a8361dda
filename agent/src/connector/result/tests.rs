//! Tests of the result table sink.
