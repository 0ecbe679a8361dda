//! Options to a Decoder or Encoder: the one match on formats.
