//! Columns of a source that declares none, from some of its rows (JOB-6). Nothing is read for good:
//! no position is kept, and no offset is committed.

use crate::connector::{file, kafka};
use crate::error::Error;
use crate::link::ReadStream;
use crate::secret::Secrets;
use arrow_ipc::writer::StreamWriter;
use bytes::Bytes;
use futures::stream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_planner::connector::SourceOptions;
use weir_planner::error::Class;
use weir_planner::id::JobId;
use weir_planner::schema::{Column, Schema};
use weir_planner::spec::Source;

/// How long a sample may take.
const TIME: Duration = Duration::from_secs(10);
/// A connector that is still busy after this is given up; its thread ends by itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// The columns of a source as an Arrow IPC stream without rows.
///
/// Errors: `Retry` where there is no row yet or the endpoint is away, `User` where no columns can be
/// had at all; each names the source.
pub async fn answer(secrets: Secrets, job: JobId, source: Source) -> Result<ReadStream, Error> {
    let name = format!("source '{}'", source.operator_id);
    let secrets = Arc::new(secrets);
    let work = crate::region::blocking(move || {
        let sampled = columns(&secrets, &job, &source).and_then(|columns| ipc(&Schema(columns)));
        // As with every message of a connector.
        sampled.map_err(|error| {
            let failure = error.to_failure();
            Error::new(failure.class, secrets.scrub(failure.message))
        })
    });
    let late = || Error::new(Class::Retry, format!("{name}: no sample could be taken within {} s", PATIENCE.as_secs()));
    let bytes = tokio::time::timeout(PATIENCE, work).await.map_err(|_| late())??;
    Ok(Box::pin(stream::iter([Ok(bytes)])))
}

/// The columns of a source, from a sample of its rows. Blocks for some seconds at most.
///
/// Errors: as [`answer`].
fn columns(secrets: &Arc<Secrets>, job: &JobId, source: &Source) -> Result<Vec<Column>, Error> {
    let (who, deadline) = (format!("source '{}'", source.operator_id), Instant::now() + TIME);
    let format = source.codec.as_ref();
    match &secrets.source(&source.config)?.0 {
        SourceOptions::File(options) => file::sample::columns(options, format, &who, deadline),
        SourceOptions::Kafka(options) => {
            let group = options.consumer_group.clone().unwrap_or_else(|| format!("weir.{job}.{}", source.operator_id));
            kafka::sample::columns(options, format, &group, &who, secrets, deadline)
        }
        SourceOptions::Generate(_) | SourceOptions::Values(_) | SourceOptions::Memory(_) | SourceOptions::Http(_) => {
            let message =
                format!("{who}: the columns of a source of type {} cannot be taken from its rows; declare them", source.config.name());
            Err(Error::new(Class::User, message))
        }
    }
}

fn ipc(schema: &Schema) -> Result<Bytes, Error> {
    let what = |e| Error::because(Class::Bug, "columns cannot be written as Arrow IPC", e);
    let mut writer = StreamWriter::try_new(Vec::new(), &schema.to_arrow()).map_err(what)?;
    writer.finish().map_err(what)?;
    writer.into_inner().map(Bytes::from).map_err(what)
}

#[cfg(test)]
mod tests;
