//! Types of the parameters of a prepared query, as far as the query tells.

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, Placeholder, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use std::collections::HashMap;
use std::sync::Arc;

/// The type of each `$n` where the query tells: what DataFusion infers from comparisons and
/// columns, and as in Postgres the type of a cast right around it, and BIGINT in LIMIT and OFFSET.
pub(super) fn wanted(plan: &LogicalPlan) -> Result<HashMap<String, Option<DataType>>> {
    let mut wanted = plan.get_parameter_types()?;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            for bound in limit.skip.iter().chain(&limit.fetch) {
                bound.apply(|expr| {
                    note(&mut wanted, expr, &DataType::Int64);
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
        }
        node.apply_expressions(|root| {
            root.apply(|expr| {
                if let Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field }) = expr {
                    note(&mut wanted, inner, field.data_type());
                }
                // `x = ANY ($1)`: a list of what x is.
                if let Expr::ScalarFunction(call) = expr
                    && let ("array_has", [list, element]) = (call.name(), call.args.as_slice())
                    && let Some(ty) = node.inputs().iter().find_map(|input| element.get_type(input.schema()).ok())
                {
                    note(&mut wanted, list, &DataType::List(Arc::new(Field::new_list_field(ty, true))));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(wanted)
}

/// Notes the type of a parameter of which nothing is known.
fn note(wanted: &mut HashMap<String, Option<DataType>>, expr: &Expr, ty: &DataType) {
    if let Expr::Placeholder(Placeholder { id, .. }) = expr {
        let known = wanted.entry(id.clone()).or_insert(None);
        if known.is_none() {
            *known = Some(ty.clone());
        }
    }
}
