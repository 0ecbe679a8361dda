//! Which windows a row belongs to, and whether it comes too late for them (EV-4).

use crate::envelope::Data;
use crate::error::Error;
use crate::operator::Context;
use crate::operator::judged::Judged;
use crate::operator::window::partials::Partials;
use crate::operator::window::places::Places;
use crate::state::layout::Marks;
use arrow::array::BooleanArray;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::WindowWork;
use weir_planner::spec::LatePolicy;
use weir_planner::window::{Aligned, OutOfRange, Pane, Windows};

/// The windows of a plan that do not depend on what rows there are.
///
/// Errors: sessions, which another operator has; windows without a length.
pub(crate) fn aligned(id: &OperatorId, work: &WindowWork) -> Result<Aligned, Error> {
    let Windows::Aligned(aligned) = &work.windows else {
        return Err(Error::new(Class::Bug, format!("operator '{id}': sessions are not cut out of time")));
    };
    let fits = match aligned {
        Aligned::Tumbling { size_ms, .. } => *size_ms > 0,
        Aligned::Sliding { size_ms, slide_ms, .. } => *size_ms > 0 && *slide_ms > 0,
        Aligned::Cumulate { max_size_ms, step_ms, .. } => *step_ms > 0 && *max_size_ms > 0 && max_size_ms % step_ms == 0,
        Aligned::Calendar { days, .. } => *days > 0,
    };
    if fits { Ok(aligned.clone()) } else { Err(Error::new(Class::Bug, format!("operator '{id}' has windows without a length"))) }
}

/// Judges rows of one window operator, in whichever stage has them first.
pub(crate) struct Judge {
    id: OperatorId,
    windows: Aligned,
    /// Each window keeps its own rows: a row lies in several panes.
    own: bool,
    /// There may be rows between windows.
    gaps: bool,
    lateness_ms: i64,
    late: LatePolicy,
}

/// What becomes of a row.
enum Verdict {
    /// It counts for all of its windows.
    Whole,
    /// It is too late for some of its windows.
    Partly,
    /// It counts for some; the others were evicted.
    PartlyEvicted,
    /// Too late for all of its windows, by so much.
    Late(i64),
    /// All of its windows have been retired where they are kept, so far back.
    Retired(i64),
    /// All of its windows are gone, the last of them evicted.
    Evicted,
}

fn verdict(first_end: i64, last_end: i64, late_through: i64, marks: Marks) -> Verdict {
    if last_end <= late_through {
        Verdict::Late(late_through.saturating_sub(last_end))
    } else if last_end <= marks.retired_ms {
        Verdict::Retired(marks.retired_ms.saturating_sub(last_end))
    } else if last_end <= marks.evicted_ms {
        Verdict::Evicted
    } else if first_end <= late_through.max(marks.retired_ms) {
        Verdict::Partly
    } else if first_end <= marks.evicted_ms {
        Verdict::PartlyEvicted
    } else {
        Verdict::Whole
    }
}

impl Judge {
    /// A judge for planned windows.
    ///
    /// Errors: windows without a length.
    pub(crate) fn new(id: &OperatorId, work: &WindowWork) -> Result<Self, Error> {
        let windows = aligned(id, work)?;
        Ok(Judge {
            id: id.clone(),
            own: windows.keeps_own(),
            gaps: matches!(windows, Aligned::Sliding { size_ms, slide_ms, .. } if slide_ms > size_ms),
            windows,
            lateness_ms: work.allowed_lateness_ms,
            late: work.late,
        })
    }

    /// Windows keep their own rows.
    pub(crate) fn own(&self) -> bool {
        self.own
    }

    /// Windows that end at or before this are past their lateness by a stamp.
    pub(crate) fn late_through(&self, stamp: i64) -> i64 {
        stamp.saturating_sub(self.lateness_ms)
    }

    /// The pane of a time; none between windows.
    ///
    /// Errors: a window out of range.
    pub(crate) fn pane(&self, time: i64) -> Result<Option<Pane>, Error> {
        self.windows.pane(time).map_err(|e| self.out_of_range(e))
    }

    /// The next pane of the same time, where windows keep their own rows.
    pub(crate) fn next_pane(&self, time: i64, pane: &Pane) -> Result<Option<Pane>, Error> {
        self.windows.next_pane(time, pane).map_err(|e| self.out_of_range(e))
    }

    /// The pane that a row of the first stage names.
    pub(crate) fn named(&self, start: i64, from: i64) -> Result<Pane, Error> {
        let unknown = || Error::new(Class::Bug, format!("operator '{}': a partial row names a pane that its windows do not have", self.id));
        self.windows.pane_named(start, from).ok_or_else(unknown)
    }

    fn out_of_range(&self, error: OutOfRange) -> Error {
        Error::new(Class::User, format!("operator '{}': {error}", self.id))
    }

    /// End of the last window of a time; none between windows.
    ///
    /// Errors: a window whose end, or end of lateness, is out of range.
    fn last_end(&self, time: i64) -> Result<Option<i64>, Error> {
        let Some(end) = self.windows.last_end(time).map_err(|e| self.out_of_range(e))? else { return Ok(None) };
        if end.checked_add(self.lateness_ms).is_none() {
            return Err(self.out_of_range(OutOfRange(time)));
        }
        Ok(Some(end))
    }

    /// Which of the rows came before their last window was over, by their stamps: they are there when it
    /// fires, whatever came first of other splits. `None`: all of them.
    ///
    /// Errors: a window out of range.
    pub(crate) fn punctual(&self, data: &Data) -> Result<Option<BooleanArray>, Error> {
        let Some(stamps) = &data.stamps else { return Ok(None) };
        let one = |(time, stamp): (&i64, &i64)| Ok(self.last_end(*time)?.is_some_and(|end| *stamp < end));
        let punctual = data.times.values().iter().zip(stamps.values()).map(one).collect::<Result<Vec<bool>, Error>>()?;
        Ok(Some(punctual.into()))
    }

    /// Whether all rows count for all of their windows, seen without a look at each.
    ///
    /// Errors: a window out of range.
    fn all_whole(&self, places: &Places<'_>, gone_ms: i64) -> Result<bool, Error> {
        match places {
            Places::Times { times, stamps } => {
                let (Some(least), Some(greatest)) = (times.iter().min(), times.iter().max()) else { return Ok(true) };
                // What lies between is in range too.
                self.pane(*least)?;
                self.last_end(*greatest)?;
                let first = self.windows.end_after(*least).ok_or_else(|| self.out_of_range(OutOfRange(*least)))?;
                Ok(stamps.is_none() && !self.gaps && first > gone_ms)
            }
            Places::Panes { froms, .. } => Ok(froms.iter().min().is_none_or(|from| *from > gone_ms)),
        }
    }

    /// The rows that count for a window that is not gone by `marks`. `partials`: they come from a
    /// first stage, which has judged them by their stamps.
    ///
    /// Rows between windows belong to none and are passed over. The others that are left out are
    /// counted: late by their stamp, or because their windows had been retired (which can only be
    /// after a split was idle or was found late, and is counted apart as well), or evicted (WIN-5).
    /// Late ones of either kind are routed where the plan says so, each once, with by how much: how
    /// far its stamp lies past the end of its last window's lateness or, where that had been
    /// retired, how far past its end windows had been retired.
    pub(crate) fn on_time(&self, data: Data, partials: Option<&Partials>, marks: Marks, context: &mut Context<'_>) -> Result<Data, Error> {
        let places = Places::of(&data, partials);
        if self.all_whole(&places, marks.gone_ms())? {
            return Ok(data);
        }
        let behind = partials.map(|partials| partials.behind(&data));
        let weight = |row: usize| behind.as_ref().map_or(1, |behind| behind.value(row).unsigned_abs());
        let mut judged = Judged::new(data.len());
        let mut last: Option<(Pane, i64)> = None;
        for row in 0..data.len() {
            let (found, late_through) = match &places {
                Places::Times { times, stamps } => {
                    let time = times[row];
                    let known = last.filter(|(pane, _)| !self.own && pane.start_ms <= time && time < pane.end_ms);
                    let found = match known {
                        Some(known) => Some(known),
                        None => self.pane(time)?.zip(self.last_end(time)?),
                    };
                    (found, stamps.map_or(i64::MIN, |stamps| self.late_through(stamps[row])))
                }
                Places::Panes { starts, froms } => {
                    let known = last.filter(|(pane, _)| pane.start_ms == starts[row] && pane.first_end_ms == froms[row]);
                    let found = match known {
                        Some(known) => known,
                        None => {
                            let pane = self.named(starts[row], froms[row])?;
                            (pane, pane.last_end_ms)
                        }
                    };
                    (Some(found), i64::MIN)
                }
            };
            let Some((pane, last_end)) = found else {
                judged.row(false, None, 1);
                continue;
            };
            last = found;
            let (kept, by_ms) = match verdict(pane.first_end_ms, last_end, late_through, marks) {
                Verdict::Whole => (true, None),
                Verdict::Partly => {
                    judged.partly += weight(row);
                    (true, None)
                }
                Verdict::PartlyEvicted => {
                    judged.evicted += weight(row);
                    (true, None)
                }
                Verdict::Late(by_ms) => (false, Some(by_ms)),
                Verdict::Retired(by_ms) => {
                    judged.retired += weight(row);
                    (false, Some(by_ms))
                }
                Verdict::Evicted => {
                    judged.evicted += weight(row);
                    (false, None)
                }
            };
            judged.row(kept, by_ms, weight(row));
        }
        judged.sort_out(data, self.late, context)
    }

    /// The only pane that all of these rows lie in, whole; `None` when it takes a look at each to
    /// tell. They are on time for some window each.
    pub(crate) fn one_pane(&self, places: &Places<'_>, gone_ms: i64) -> Result<Option<Pane>, Error> {
        let (pane, bound) = match places {
            Places::Times { .. } if self.own => return Ok(None),
            Places::Times { times, stamps } => {
                let (Some(least), Some(greatest)) = (times.iter().min(), times.iter().max()) else { return Ok(None) };
                let Some(pane) = self.pane(*least)?.filter(|pane| *greatest < pane.end_ms) else { return Ok(None) };
                let stamp = stamps.and_then(|stamps| stamps.iter().max()).map_or(i64::MIN, |stamp| self.late_through(*stamp));
                (pane, stamp.max(gone_ms))
            }
            Places::Panes { starts, froms } => {
                let (Some(start), Some(from)) = (starts.first(), froms.first()) else { return Ok(None) };
                if starts.iter().any(|other| other != start) || froms.iter().any(|other| other != from) {
                    return Ok(None);
                }
                (self.named(*start, *from)?, gone_ms)
            }
        };
        // Where there is only one window they have been found on time for it.
        Ok((pane.first_end_ms > bound || pane.first_end_ms == pane.last_end_ms).then_some(pane))
    }
}
