//! Keyed state in columns: one group index a window, values beside it, a bit for each group that
//! changed since the last barrier (STA-2), and the images that carry changes out and back (STA-3).

pub mod bits;
pub mod cells;
pub mod decode;
pub mod held;
pub mod index;
pub mod layout;
pub mod merge;
pub mod pages;
pub mod panes;
pub mod sessions;
pub mod tops;

pub use merge::merge_images;
