//! Tests of the text rules.
