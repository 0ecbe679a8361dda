//! What can be said of expressions whose columns are not known yet (JOB-6): that they are
//! expressions, of functions that there are.

use super::super::refuse;
use super::{parse, sqlstate};
use crate::error::Error;
use sqlparser::ast::{Expr, SelectItem};
use weir_planner::error::Fault;
use weir_planner::spec::OperatorKind;

/// Checks every expression of an operator as text.
pub(super) fn check(kind: &OperatorKind, path: &str, faults: &mut Vec<Fault>) {
    let mut told = |text: &str, path: String, outcome: Result<(), Error>| {
        if let Err(error) = outcome {
            faults.push(super::fault(text, path, error));
        }
    };
    match kind {
        OperatorKind::Source | OperatorKind::Top(_) | OperatorKind::Buffer(_) | OperatorKind::Union => {}
        OperatorKind::Sink | OperatorKind::Join(_) => {}
        OperatorKind::Map(map) => {
            if let Some(filter) = &map.filter {
                told(&filter.sql, format!("{path}.filter"), expression(&filter.sql));
            }
            for (at, project) in map.project.iter().enumerate() {
                told(&project.sql, format!("{path}.project[{at}]"), projection(&project.sql));
            }
        }
        OperatorKind::Window(window) => {
            for (at, aggregate) in window.aggregates.iter().enumerate() {
                told(&aggregate.expr.sql, format!("{path}.aggregates[{at}].expr"), expression(&aggregate.expr.sql));
                if let Some(filter) = &aggregate.filter {
                    told(filter, format!("{path}.aggregates[{at}].filter"), expression(filter));
                }
            }
            if let Some(having) = &window.having {
                told(&having.sql, format!("{path}.having"), expression(&having.sql));
            }
        }
    }
}

fn expression(text: &str) -> Result<(), Error> {
    let (places, expr) = parse(text, |parser| parser.parse_expr())?;
    refuse::check_expression(&expr, &places).map(|_| ())
}

fn projection(text: &str) -> Result<(), Error> {
    // All columns, whichever there will be.
    if text.trim() == "*" {
        return Ok(());
    }
    let (places, item) = parse(text, |parser| parser.parse_select_item())?;
    match item {
        SelectItem::ExprWithAlias { expr, .. } => refuse::check_expression(&expr, &places).map(|_| ()),
        SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
            refuse::check_expression(&expr, &places).map(|_| ())
        }
        SelectItem::UnnamedExpr(_) => Err(Error::new(sqlstate::SYNTAX_ERROR, "a projection that is not a column needs a name")
            .with_hint("write 'expr AS name'")
            .at(1)),
        _ => Err(Error::new(sqlstate::SYNTAX_ERROR, "a projection is 'expr AS name' or a column").at(1)),
    }
}
