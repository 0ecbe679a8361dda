//! Tests of the http source and sink over real sockets.
