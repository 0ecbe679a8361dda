//! Tests of the JSON decoder and encoder.
