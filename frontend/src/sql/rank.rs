//! `row_number()` as DataFusion's planner sees it: BIGINT as in Postgres. DataFusion never runs it.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{LimitEffect, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};
use datafusion::physical_plan::PhysicalExpr;
use std::sync::{Arc, LazyLock};

/// The only function over rows that a job has.
pub(crate) const ROW_NUMBER: &str = "row_number";

static PLANNED: LazyLock<Arc<WindowUDF>> =
    LazyLock::new(|| Arc::new(WindowUDF::from(RowNumber { signature: Signature::nullary(Volatility::Immutable) })));

/// The function of this name.
pub(crate) fn named(name: &str) -> Option<Arc<WindowUDF>> {
    (name == ROW_NUMBER).then(|| Arc::clone(&PLANNED))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RowNumber {
    signature: Signature,
}

impl WindowUDFImpl for RowNumber {
    fn name(&self) -> &str {
        ROW_NUMBER
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, _: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        not_impl_err!("row_number is run by a job")
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Int64, false)))
    }

    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::None
    }
}
