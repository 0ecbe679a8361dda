//! Whether a row comes too late for the session that it would be alone (EV-4).

use crate::envelope::Data;
use crate::error::Error;
use crate::operator::Context;
use crate::operator::judged::Judged;
use crate::state::sessions::Marks;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::WindowWork;
use weir_planner::spec::LatePolicy;

/// Judges rows of one session operator.
pub(super) struct Judge {
    id: OperatorId,
    gap_ms: i64,
    lateness_ms: i64,
    late: LatePolicy,
}

impl Judge {
    /// A judge for planned sessions.
    pub(super) fn new(id: &OperatorId, gap_ms: i64, work: &WindowWork) -> Self {
        Judge { id: id.clone(), gap_ms, lateness_ms: work.allowed_lateness_ms, late: work.late }
    }

    /// Sessions ending at or before this are complete at a watermark, and no row that counts comes
    /// before it any more.
    pub(super) fn gone(&self, watermark: i64) -> i64 {
        match watermark {
            i64::MAX => i64::MAX,
            watermark => watermark.saturating_sub(self.gap_ms).saturating_sub(self.lateness_ms).saturating_add(1),
        }
    }

    /// The rows that are not late and whose sessions are not gone by `marks`; afterwards the gap can
    /// be added to each time.
    ///
    /// The others are counted, and late ones routed where the plan says so, as for other windows.
    /// `late_by_ms`: how far the stamp lies past the end of the lateness of the session that the row
    /// is alone or, where sessions had gone that it might have touched, how far before their end its time lies.
    ///
    /// Errors: a session whose end, or end of lateness, is out of range.
    pub(super) fn on_time(&self, data: Data, marks: Marks, context: &mut Context<'_>) -> Result<Data, Error> {
        let times = data.times.values();
        let (Some(least), Some(greatest)) = (times.iter().min(), times.iter().max()) else { return Ok(data) };
        // Its end may be asked for what follows it within a gap.
        let fits = |time: i64| time.checked_add(self.gap_ms)?.checked_add(self.gap_ms)?.checked_add(self.lateness_ms);
        if fits(*greatest).is_none() {
            let message = format!("operator '{}': the session of event time {greatest} ms is out of range", self.id);
            return Err(Error::new(Class::User, message));
        }
        if data.stamps.is_none() && *least >= marks.fired_ms && least + self.gap_ms > marks.evicted_ms {
            return Ok(data);
        }
        let mut judged = Judged::new(data.len());
        for (row, time) in times.iter().enumerate() {
            let end = time + self.gap_ms;
            let stamp = data.stamps.as_ref().map_or(i64::MIN, |stamps| stamps.value(row));
            let by_ms = if end + self.lateness_ms <= stamp {
                Some(stamp.saturating_sub(end + self.lateness_ms))
            } else if *time < marks.fired_ms {
                judged.retired += 1;
                Some(marks.fired_ms.saturating_sub(*time))
            } else {
                None
            };
            let kept = by_ms.is_none() && end > marks.evicted_ms;
            judged.evicted += u64::from(by_ms.is_none() && !kept);
            judged.row(kept, by_ms, 1);
        }
        // A session is given when nothing can touch it any more, so that there is nothing to update.
        judged.sort_out(data, self.late, context)
    }
}
