//! Approximate aggregates, by DataFusion's accumulators: sketches of a size that rows do not change.
//!
//! One accumulator of theirs a group, made with the group's first value. Its state comes as scalars,
//! which are the image's columns. Those taken here keep their state when they are asked for it or for
//! their result, which the trait does not promise and a test holds them to. They do not come to the
//! same result in every order: `approx_distinct` does, percentiles within their accuracy.

use crate::accumulate::distinct::list_type;
use crate::accumulate::{Accumulator, cast_to, image_column};
use crate::envelope::broken;
use crate::error::Error;
use crate::route::key::Encoded;
use arrow::array::{Array, ArrayRef, BinaryArray, Float64Array, Int64Array, UInt32Array, new_null_array};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::error::DataFusionError;
use datafusion::functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion::functions_aggregate::approx_percentile_cont::approx_percentile_cont_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator as Theirs, AggregateUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::scalar::ScalarValue;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::{Aggregate, AggregateFunction, Expr, Literal};
use weir_planner::schema::ColumnType;

/// Most columns of a state.
const PARTS: [&str; 8] = ["state_0", "state_1", "state_2", "state_3", "state_4", "state_5", "state_6", "state_7"];

/// An accumulator for a planned sketch; `None` for an argument that it does not take.
///
/// Errors: a second argument that is no constant, a state that no image holds.
pub(crate) fn new(aggregate: &Aggregate) -> Result<Option<Box<dyn Accumulator>>, Error> {
    let constant = aggregate.arguments.get(1).map(|argument| &argument.expr);
    let share = match (aggregate.function, constant) {
        (AggregateFunction::ApproxDistinct, None) => None,
        (AggregateFunction::ApproxMedian, None) => Some(0.5),
        (AggregateFunction::ApproxPercentileCont, Some(Expr::Literal(Literal::Double(share)))) => Some(*share),
        (function, _) => return Err(Error::new(Class::User, format!("{} takes a constant beside its value", function.name()))),
    };
    let ty = aggregate.arguments.first().map(|argument| argument.ty);
    if share.is_some() && ty != Some(ColumnType::Double) {
        return Ok(None);
    }
    let plan = Plan::new(share).map_err(|error| failed(aggregate.function, &error))?;
    if plan.state.len() > PARTS.len() {
        return Err(Error::new(Class::Bug, format!("the state of {} has more parts than an image", aggregate.function.name())));
    }
    Ok(Some(Box::new(Sketches { plan, function: aggregate.function, groups: Vec::new(), sizes: Vec::new(), bytes: 0 })))
}

fn failed(function: AggregateFunction, error: &DataFusionError) -> Error {
    Error::new(Class::User, format!("{} cannot be computed: {}", function.name(), error.find_root().strip_backtrace()))
}

/// How their accumulators are made.
struct Plan {
    udaf: Arc<AggregateUDF>,
    schema: Schema,
    fields: Vec<FieldRef>,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    output: FieldRef,
    /// Types of the state.
    state: Vec<DataType>,
}

impl Plan {
    /// Of percentiles at `share`, or of the number of different values.
    fn new(share: Option<f64>) -> Result<Self, DataFusionError> {
        let (udaf, input, result) = match share {
            None => (approx_distinct_udaf(), DataType::Binary, DataType::UInt64),
            Some(_) => (approx_percentile_cont_udaf(), DataType::Float64, DataType::Float64),
        };
        let mut exprs: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(Column::new("value", 0))];
        let mut fields: Vec<FieldRef> = vec![Arc::new(Field::new("value", input, true))];
        if let Some(share) = share {
            exprs.push(lit(share));
            fields.push(Arc::new(Field::new("share", DataType::Float64, false)));
        }
        let output: FieldRef = Arc::new(Field::new("result", result, true));
        let args = StateFieldsArgs {
            name: "state",
            input_fields: &fields,
            return_field: output.clone(),
            ordering_fields: &[],
            is_distinct: false,
        };
        let normal = |field: &FieldRef| match field.data_type() {
            DataType::List(item) => list_type(item.data_type().clone()),
            other => other.clone(),
        };
        let state = udaf.state_fields(args)?.iter().map(normal).collect();
        Ok(Plan { udaf, schema: Schema::new(vec![fields[0].clone()]), fields, exprs, output, state })
    }

    fn make(&self) -> Result<Box<dyn Theirs>, DataFusionError> {
        self.udaf.accumulator(AccumulatorArgs {
            return_field: self.output.clone(),
            schema: &self.schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: "result",
            is_distinct: false,
            exprs: &self.exprs,
            expr_fields: &self.fields,
        })
    }
}

/// One of theirs, behind a cell since asking it for its state is a change to them.
type Slot = RefCell<Option<Box<dyn Theirs>>>;

struct Sketches {
    plan: Plan,
    function: AggregateFunction,
    groups: Vec<Slot>,
    sizes: Vec<usize>,
    /// Sum of the sizes.
    bytes: usize,
}

impl Sketches {
    /// Runs their code: a panic of it is an error of the value.
    fn run<T>(&self, run: impl FnOnce() -> Result<T, DataFusionError>) -> Result<T, Error> {
        match std::panic::catch_unwind(AssertUnwindSafe(run)) {
            Ok(done) => done.map_err(|error| failed(self.function, &error)),
            Err(_) => Err(Error::new(Class::User, format!("{} does not take a value that it got", self.function.name()))),
        }
    }

    /// Columns as theirs take them: values by the key law to count them, so that -0 is 0; NaN is no
    /// place on a scale and is left out.
    fn prepared(&self, values: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let value = values.first().ok_or_else(|| Error::new(Class::Bug, "an aggregate lacks its argument"))?;
        if self.function != AggregateFunction::ApproxDistinct {
            let doubles = cast_to(value, &DataType::Float64)?;
            let doubles = arrow::array::AsArray::as_primitive::<arrow::datatypes::Float64Type>(&doubles);
            let known = |value: Option<f64>| value.filter(|value| !value.is_nan());
            return Ok(Arc::new(doubles.iter().map(known).collect::<Float64Array>()));
        }
        let mut encoded = Encoded::default();
        encoded.encode(std::slice::from_ref(value), value.len())?;
        let nulls = value.logical_nulls();
        let one = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)).then(|| encoded.key(row));
        Ok(Arc::new((0..value.len()).map(one).collect::<BinaryArray>()))
    }

    /// Gives each group its rows of `columns`, to merge as states or to add as values.
    fn feed(&mut self, groups: &[u32], columns: &[ArrayRef], states: bool) -> Result<(), Error> {
        let mut order: Vec<u32> = (0..groups.len() as u32).collect();
        order.sort_by_key(|row| groups[*row as usize]);
        let picked = UInt32Array::from(order.clone());
        let columns = columns.iter().map(|column| take(column, &picked, None).map_err(broken)).collect::<Result<Vec<_>, _>>()?;
        let mut first = 0;
        for part in order.chunk_by(|a, b| groups[*a as usize] == groups[*b as usize]) {
            let group = groups[part[0] as usize] as usize;
            let rows: Vec<ArrayRef> = columns.iter().map(|column| column.slice(first, part.len())).collect();
            first += part.len();
            // A group without a value stays as it is.
            if rows[0].null_count() == part.len() {
                continue;
            }
            let mut slot = self.groups[group].borrow_mut();
            let size = self.run(|| {
                let theirs = match &mut *slot {
                    Some(theirs) => theirs,
                    empty => empty.insert(self.plan.make()?),
                };
                if states {
                    theirs.merge_batch(&rows)?;
                } else {
                    theirs.update_batch(&rows)?;
                }
                Ok(theirs.size())
            })?;
            drop(slot);
            self.bytes = self.bytes + size - std::mem::replace(&mut self.sizes[group], size);
        }
        Ok(())
    }
}

impl Accumulator for Sketches {
    fn grow(&mut self, groups: usize) {
        let groups = groups.max(self.groups.len());
        self.groups.resize_with(groups, RefCell::default);
        self.sizes.resize(groups, 0);
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let prepared = self.prepared(values)?;
        let share = (self.plan.exprs.len() > 1).then(|| new_null_array(&DataType::Float64, prepared.len()));
        let columns: Vec<ArrayRef> = [prepared].into_iter().chain(share).collect();
        self.feed(groups, &columns, false)
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let one = |group: &u32| match &mut *self.groups[*group as usize].borrow_mut() {
            Some(theirs) => self.run(|| theirs.evaluate()),
            None => Ok(ScalarValue::Null),
        };
        let results = groups.iter().map(one);
        if self.function == AggregateFunction::ApproxDistinct {
            let count = |scalar: ScalarValue| match scalar {
                ScalarValue::UInt64(Some(count)) => i64::try_from(count).unwrap_or(i64::MAX),
                _ => 0,
            };
            return Ok(Arc::new(results.map(|scalar| scalar.map(count)).collect::<Result<Vec<_>, _>>().map(Int64Array::from)?));
        }
        let double = |scalar: ScalarValue| if let ScalarValue::Float64(value) = scalar { value } else { None };
        Ok(Arc::new(results.map(|scalar| scalar.map(double)).collect::<Result<Float64Array, _>>()?))
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        PARTS.into_iter().zip(self.plan.state.iter().cloned()).collect()
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::with_capacity(groups.len()); self.plan.state.len()];
        for group in groups {
            let state = match &mut *self.groups[*group as usize].borrow_mut() {
                Some(theirs) => Some(self.run(|| theirs.state()?.iter().map(|scalar| scalar.to_array()).collect::<Result<Vec<_>, _>>())?),
                None => None,
            };
            for (at, (column, ty)) in columns.iter_mut().zip(&self.plan.state).enumerate() {
                column.push(match &state {
                    Some(state) => cast_to(image_column(state, at)?, ty)?,
                    None => new_null_array(ty, 1),
                });
            }
        }
        let whole = |(column, ty): (&Vec<ArrayRef>, &DataType)| {
            let parts: Vec<&dyn Array> = column.iter().map(AsRef::as_ref).collect();
            if parts.is_empty() { Ok(new_null_array(ty, 0)) } else { concat(&parts).map_err(broken) }
        };
        columns.iter().zip(&self.plan.state).map(whole).collect()
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        for group in groups {
            *self.groups[*group as usize].borrow_mut() = None;
            self.bytes -= std::mem::take(&mut self.sizes[*group as usize]);
        }
        self.merge(groups, columns)
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        image_column(columns, 0)?;
        // Groups without a value have states that are NULL, which theirs do not take.
        let there: Vec<u32> = (0..groups.len() as u32).filter(|row| columns[0].is_valid(*row as usize)).collect();
        let picked = UInt32Array::from(there.clone());
        let columns = columns.iter().map(|column| take(column, &picked, None).map_err(broken)).collect::<Result<Vec<_>, _>>()?;
        let groups: Vec<u32> = there.iter().map(|row| groups[*row as usize]).collect();
        self.feed(&groups, &columns, true)
    }

    fn clear(&mut self) {
        self.groups.clear();
        self.sizes.clear();
        self.bytes = 0;
    }

    fn bytes(&self) -> usize {
        self.bytes + self.groups.capacity() * size_of::<Slot>() + self.sizes.capacity() * 8
    }
}
