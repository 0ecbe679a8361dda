//! What sums and averages have in common: a running total for each group.

use arrow::array::{ArrayRef, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType};

/// Totals of groups. An image is two columns: the totals, and what they alone do not hold.
pub trait Totals: Default + Send + 'static {
    /// What is added up.
    type Number: ArrowPrimitiveType;

    /// Name endings and types of the image columns.
    fn image_fields() -> [(&'static str, DataType); 2];

    /// Makes room for `groups` groups; new ones are 0. Never shrinks.
    fn grow(&mut self, groups: usize);

    /// Adds `value` to `group`.
    fn add(&mut self, group: u32, value: <Self::Number as ArrowPrimitiveType>::Native);

    /// Image columns of `groups`.
    fn image(&self, groups: &[u32]) -> [ArrayRef; 2];

    /// Back from image columns: row i replaces the total of `groups[i]`.
    fn restore(&mut self, groups: &[u32], totals: &ArrayRef, rest: &ArrayRef);

    /// Adds what image columns hold: row i to `groups[i]`.
    fn merge(&mut self, groups: &[u32], totals: &ArrayRef, rest: &ArrayRef);

    /// Image columns of totals of one value each; a NULL is 0.
    fn lift(values: &PrimitiveArray<Self::Number>) -> [ArrayRef; 2];

    /// The totals as they are now. Copies next to nothing.
    fn snapshot(&mut self) -> Self;

    /// Forgets every group and keeps the room.
    fn clear(&mut self);

    /// Bytes held.
    fn bytes(&self) -> usize;
}
