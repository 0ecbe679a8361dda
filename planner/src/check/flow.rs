//! Columns along the graph: what reaches each operator, by edges and by side edges.

use super::columns::united;
use super::graph::Graph;
use super::side::SideRows;
use crate::schema::{Schema, error_rows, late_rows};

/// What operators take and give as far as it is known, filled in the order of the graph.
#[derive(Clone, Debug)]
pub struct Flow {
    taken: Vec<Option<Schema>>,
    given: Vec<Option<Schema>>,
}

/// One input of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Position of the operator that it comes from.
    pub from: usize,
    /// What the side edge carries; `None` for an edge of the spec.
    pub rows: Option<SideRows>,
    /// Its columns.
    pub schema: Schema,
}

impl Flow {
    /// Nothing known of `count` operators.
    pub fn new(count: usize) -> Self {
        Flow { taken: vec![None; count], given: vec![None; count] }
    }

    /// What reaches `operator`: edges in the spec's order, then side edges. `None` while one of them
    /// is not known. Rows of a source without a time have no columns of their own where windows
    /// judge the others, so they are no input here.
    pub fn inputs(&self, graph: &Graph, operator: usize) -> Option<Vec<Input>> {
        let known = |schemas: &[Option<Schema>], from: usize| schemas.get(from).cloned().flatten();
        let main = graph.producers(operator).map(|from| Some(Input { from, rows: None, schema: known(&self.given, from)? }));
        let sides = graph.sides_into(operator).filter(|side| side.rows != SideRows::Timeless).map(|side| {
            let schema = match side.rows {
                SideRows::Error => error_rows(),
                // A source takes nothing: it judges what it gives.
                SideRows::Late | SideRows::Timeless if graph.inputs[side.from].is_empty() => late_rows(&known(&self.given, side.from)?),
                SideRows::Late | SideRows::Timeless => late_rows(&known(&self.taken, side.from)?),
            };
            Some(Input { from: side.from, rows: Some(side.rows), schema })
        });
        main.chain(sides).collect()
    }

    /// The one schema of all that reaches `operator`; `None` where it is not known or inputs differ.
    pub fn input(&self, graph: &Graph, operator: usize) -> Option<Schema> {
        let inputs = self.inputs(graph, operator)?;
        united(&inputs.iter().map(|input| &input.schema).collect::<Vec<_>>()).ok()
    }

    /// Takes note of what an operator takes and gives.
    pub fn put(&mut self, operator: usize, taken: Schema, given: Option<Schema>) {
        if let (Some(take), Some(give)) = (self.taken.get_mut(operator), self.given.get_mut(operator)) {
            *take = Some(taken);
            *give = given;
        }
    }

    /// What an operator takes.
    pub fn taken(&self, operator: usize) -> Option<&Schema> {
        self.taken.get(operator)?.as_ref()
    }

    /// What an operator gives.
    pub fn given(&self, operator: usize) -> Option<&Schema> {
        self.given.get(operator)?.as_ref()
    }
}
