//! What a window may give that gives results again, each replacing the one before: one with late policy
//! `update`, and one that fires early.

use crate::judge::Fate;
use crate::query::{Event, Line, Query};
use crate::shape::Span;
use crate::value::Value;
use std::collections::BTreeMap;

/// A result with its mark, in the order in which results of one key came.
#[derive(Clone, Debug)]
pub struct Emission {
    /// What came.
    pub line: Line,
    /// `__arkflow_window_update`.
    pub update: bool,
}

/// What may come besides the one complete result.
#[derive(Clone, Copy, Debug)]
pub struct Again {
    /// Results of open windows, before it.
    pub early: bool,
    /// Results with late rows, after it.
    pub revised: bool,
}

/// What is wrong with the emissions of a query, if anything. Of each window and key the last one must be
/// the answer over all rows within the lateness, and one at most is unmarked: where results are revised,
/// there is one if the key has a row that came before the window's end; it is the first unless results
/// come early, and the last unless they are revised.
pub fn fault(query: &Query, events: &[Event], emissions: &[Emission], again: Again) -> Option<String> {
    let answer = query.answer(events);
    let mut came: BTreeMap<(Span, Vec<Value>), Vec<&Emission>> = BTreeMap::new();
    for emission in emissions {
        came.entry((emission.line.span, emission.line.keys.clone())).or_default().push(emission);
    }
    // Keys of a window with a row that was there before it fired, whatever came first of other splits.
    let mut punctual: BTreeMap<(Span, Vec<Value>), bool> = BTreeMap::new();
    for (event, fate) in events.iter().zip(&answer.fates) {
        if let Fate::Counts { windows, stamp, .. } = fate {
            for window in windows {
                *punctual.entry((*window, query.group(event))).or_default() |= *stamp < window.end;
            }
        }
    }
    for line in &answer.lines {
        let key = (line.span, line.keys.clone());
        let Some(results) = came.remove(&key) else { return Some(format!("{line:?} never came")) };
        let last = results.last()?;
        if !same(&last.line, line) {
            return Some(format!("the last of {} results is {:?}, not {line:?}", results.len(), last.line));
        }
        let unmarked: Vec<usize> = (0..results.len()).filter(|at| !results[*at].update).collect();
        let needed = !again.revised || punctual.get(&key) == Some(&true);
        let placed = unmarked.iter().all(|at| (again.early || *at == 0) && (again.revised || at + 1 == results.len()));
        if unmarked.len() > 1 || (needed && unmarked.is_empty()) || !placed {
            return Some(format!("marks of the results of {line:?} are wrong: without mark came {unmarked:?} of {}", results.len()));
        }
        let first: Vec<Option<&Value>> = results.iter().map(|result| result.line.values.first()).collect();
        if query.calls.first().is_some_and(|call| call.column.is_none() && call.filter.is_none()) && !first.is_sorted() {
            return Some(format!("a result of {line:?} took rows away: {first:?}"));
        }
    }
    came.into_iter().next().map(|(key, results)| format!("{key:?} has no rows, but {results:?} came"))
}

/// Whether two lines are the same but for the noise of float sums.
pub fn same(a: &Line, b: &Line) -> bool {
    a.span == b.span && a.keys == b.keys && a.values.len() == b.values.len() && a.values.iter().zip(&b.values).all(|(x, y)| x.is_near(y))
}
