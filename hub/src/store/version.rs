//! Table `version`: (job id, version) → spec with its bound forms, plan and statement, as JSON.
//! Never changed once written (JOB-1), but that sampled columns and the plan come to it once (JOB-6).

use super::{Fault, decode, encode, job_id};
use crate::world::Version;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_planner::error::Place;
use weir_planner::id::{JobId, JobVersion};
use weir_planner::plan::JobPlan;
use weir_planner::spec::JobSpec;

const TABLE: TableDefinition<(&str, u64), &[u8]> = TableDefinition::new("version");

/// The stored form.
#[derive(Serialize, Deserialize)]
struct Row<'a> {
    spec: Cow<'a, JobSpec>,
    #[serde(default)]
    submitted: Option<Cow<'a, JobSpec>>,
    plan: Option<Cow<'a, JobPlan>>,
    #[serde(default)]
    places: Cow<'a, BTreeMap<String, Place>>,
    sql: Option<Cow<'a, str>>,
    uses: Cow<'a, [String]>,
    /// Records from before streams were kept do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stream: Option<Cow<'a, str>>,
}

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Fault> {
    transaction.open_table(TABLE)?;
    Ok(())
}

pub(super) fn all(transaction: &ReadTransaction) -> Result<BTreeMap<(JobId, JobVersion), Version>, Fault> {
    let mut records = BTreeMap::new();
    for row in transaction.open_table(TABLE)?.iter()? {
        let (key, value) = row?;
        let (job, number) = key.value();
        let name = format!("({job}, {number})");
        let row: Row<'static> = decode("version", &name, value.value())?;
        let record = Version {
            spec: Arc::new(row.spec.into_owned()),
            submitted: row.submitted.map(|spec| Arc::new(spec.into_owned())),
            plan: row.plan.map(|plan| Arc::new(plan.into_owned())),
            places: row.places.into_owned(),
            sql: row.sql.map(Cow::into_owned),
            uses: row.uses.into_owned(),
            stream: row.stream.map(Cow::into_owned),
        };
        records.insert((job_id("version", job)?, JobVersion::new(number)), record);
    }
    Ok(records)
}

pub(super) fn put(transaction: &WriteTransaction, job: &JobId, number: JobVersion, record: &Version) -> Result<(), Fault> {
    let row = Row {
        spec: Cow::Borrowed(record.spec.as_ref()),
        submitted: record.submitted.as_deref().map(Cow::Borrowed),
        plan: record.plan.as_deref().map(Cow::Borrowed),
        places: Cow::Borrowed(&record.places),
        sql: record.sql.as_deref().map(Cow::Borrowed),
        uses: Cow::Borrowed(&record.uses),
        stream: record.stream.as_deref().map(Cow::Borrowed),
    };
    transaction.open_table(TABLE)?.insert((job.as_str(), number.get()), encode(&row)?.as_slice())?;
    Ok(())
}

pub(super) fn remove_all(transaction: &WriteTransaction, job: &JobId) -> Result<(), Fault> {
    let mut table = transaction.open_table(TABLE)?;
    table.retain_in((job.as_str(), 0)..=(job.as_str(), u64::MAX), |_, _| false)?;
    Ok(())
}
