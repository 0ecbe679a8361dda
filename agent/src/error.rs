//! What can go wrong on an agent: the kernel's error, since most of it happens in a chain. It
//! becomes a `protocol::Failure` when the hub hears of it.

pub use weir_kernel::error::Error;
