//! Checkpoints in the state store: what is uploaded, sealed, fetched back and swept (CKP-2, CKP-3).

pub mod fetch;
pub mod inspect;
pub mod round;
pub mod store;
pub mod upload;
