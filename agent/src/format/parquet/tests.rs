//! Tests of the Parquet reader.
