//! Tests of the Kafka source and sink.
