//! What a map passes on as it is.

use super::Map;
use crate::expr::Expr;

impl Map {
    /// Under which name it passes this column of its input on as it is; `None` where it does not, or
    /// is not bound. Of several names the first.
    pub fn passes(&self, column: &str) -> Option<String> {
        if self.project.is_empty() {
            return Some(column.to_owned());
        }
        let mut bound = self.project.iter().filter_map(|projection| projection.bound.as_deref());
        bound.find(|bound| matches!(&bound.value.expr, Expr::Column(name) if name == column)).map(|bound| bound.name.clone())
    }
}
