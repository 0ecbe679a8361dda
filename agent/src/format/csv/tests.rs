//! Tests of the csv decoder.
