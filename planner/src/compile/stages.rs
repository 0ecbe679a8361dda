//! Two stages for window aggregates whose input is shuffled (PLAN-6, WIN-7): the first one, without
//! state, becomes the last operator of each chain that produces for the window.

use crate::id::{NAME_BYTES_MAX, OperatorId};
use crate::plan::partial::{obstacle, partial_rows};
use crate::plan::{JobPlan, PlanOperator, Work};
use std::collections::BTreeSet;

/// Puts first stages wherever nothing stands against them.
pub(super) fn insert(plan: &mut JobPlan) {
    let mut taken: BTreeSet<String> = plan.operators().map(|operator| operator.id.as_str().to_owned()).collect();
    for at in 0..plan.chains.len() {
        let id = plan.chains[at].id;
        if obstacle(plan, id).is_some() {
            continue;
        }
        let input = plan.input(id);
        let producers: Vec<usize> = plan.edges.iter().filter(|edge| edge.to == id).map(|edge| edge.from.get() as usize).collect();
        let Some(PlanOperator { id: window, work: Work::Window(work), .. }) = plan.chains[at].operators.first_mut() else { continue };
        let Some(output) = partial_rows(work, &input) else { continue };
        work.partials = true;
        let mut first = work.clone();
        (first.partials, first.having) = (false, None);
        let names: Vec<OperatorId> = producers.iter().map_while(|_| name(window, &mut taken)).collect();
        for (producer, id) in producers.into_iter().zip(names) {
            let stage = PlanOperator { id, output: output.clone(), work: Work::Partial(first.clone()) };
            plan.chains[producer].operators.push(stage);
        }
    }
}

/// The window's id with `-partial` after it, and a number where that is taken.
fn name(window: &OperatorId, taken: &mut BTreeSet<String>) -> Option<OperatorId> {
    let named = |number: usize| {
        let ending = if number == 1 { "-partial".to_owned() } else { format!("-partial{number}") };
        let head: String = window.as_str().chars().take(NAME_BYTES_MAX - ending.len()).collect();
        format!("{head}{ending}")
    };
    let free = (1..).map(named).find(|name| !taken.contains(name))?;
    taken.insert(free.clone());
    OperatorId::new(free).ok()
}
