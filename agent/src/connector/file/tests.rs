//! Tests of the file source and sink.
