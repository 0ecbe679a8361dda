//! Stored rows of a job: its result table and the state of its operators. Columns come from the plan, rows from the agent that holds
//! the job.

use super::Reads;
use crate::sql::literal;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow_ipc::reader::StreamDecoder;
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use weir_hub::hub::JobInfo;
use weir_planner::expr::Literal;
use weir_planner::id::{JobId, OperatorId};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{ReadRequest, ReadTarget, StateRead};
use weir_planner::schema::{ColumnType, Schema};
use weir_planner::state::StateTable;

/// A job's result table (SQL-8), or the state of one of its operators (ST-1), at the last decided epoch.
#[derive(Clone)]
pub(super) struct StoredTable {
    job: JobId,
    schema: Schema,
    columns: SchemaRef,
    reads: Arc<dyn Reads>,
    limit: Option<u64>,
    replaces_by: Vec<String>,
    /// What is read, where it is not the result: how many columns are its key, and its columns by which it is asked.
    state: Option<(StateRead, usize)>,
}

impl StoredTable {
    pub fn new(job: JobId, schema: Schema, reads: Arc<dyn Reads>) -> Self {
        let columns = Arc::new(schema.to_arrow());
        StoredTable { job, schema, columns, reads, limit: None, replaces_by: Vec::new(), state: None }
    }

    /// The state of an operator.
    pub fn state(job: &JobInfo, plan: &JobPlan, operator: &OperatorId, table: StateTable, reads: Arc<dyn Reads>) -> Self {
        let asked = StateRead { operator: operator.clone(), keys: Vec::new(), checkpoint: None, manifest: None, plan: Some(plan.clone()) };
        StoredTable { state: Some((asked, table.keys)), ..StoredTable::new(job.id.clone(), table.schema, reads) }
    }

    /// The key column and the value that a filter asks for, where it is one that the agent can look for.
    fn key(&self, filter: &Expr) -> Option<(String, Literal)> {
        let (_, keys) = self.state.as_ref()?;
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = filter else { return None };
        let (column, value) = match (left.as_ref(), right.as_ref()) {
            (Expr::Column(column), Expr::Literal(value, _)) | (Expr::Literal(value, _), Expr::Column(column)) => (column, value),
            _ => return None,
        };
        let found = self.schema.0.iter().take(*keys).find(|known| known.name == column.name)?;
        // Types whose equal values have equal bytes, and no NULL, which equals nothing.
        let plain = match found.ty {
            ColumnType::Boolean | ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => true,
            ColumnType::Text | ColumnType::Date => true,
            ColumnType::Real | ColumnType::Double | ColumnType::Decimal { .. } | ColumnType::Bytea => false,
            ColumnType::Timestamp { .. } | ColumnType::Interval => false,
        };
        let fits = plain && !value.is_null() && value.data_type() == found.ty.to_arrow();
        Some((found.name.clone(), fits.then(|| literal(value).ok()).flatten()?))
    }

    /// Only the newest row for each combination of these columns (WIN-4); all rows for none.
    pub fn replacing(self, by: &[String]) -> Self {
        StoredTable { replaces_by: by.to_vec(), ..self }
    }
}

impl fmt::Debug for StoredTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredTable({})", self.job)
    }
}

#[async_trait]
impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Equality with a key saves the agent work; DataFusion looks at the rows again.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let one = |filter: &&Expr| match self.key(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(one).collect())
    }

    /// `limit` comes only when no filter stands above: filters are not taken over whole, so DataFusion
    /// keeps the limit on its side of them.
    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut part = self.clone();
        let keys = filters.iter().filter_map(|filter| self.key(filter)).collect::<Vec<_>>();
        if let Some((asked, _)) = &mut part.state {
            asked.keys = keys;
        }
        part.limit = limit.map(|rows| rows as u64);
        let part: Arc<dyn PartitionStream> = Arc::new(part);
        Ok(Arc::new(StreamingTableExec::try_new(Arc::clone(&self.columns), vec![part], projection, None, false, limit)?))
    }
}

impl PartitionStream for StoredTable {
    fn schema(&self) -> &SchemaRef {
        &self.columns
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let table = self.clone();
        let request = ReadRequest {
            id: 0,
            job: self.job.clone(),
            target: self.state.as_ref().map_or(ReadTarget::Results, |(asked, _)| ReadTarget::State(Box::new(asked.clone()))),
            schema: self.schema.clone(),
            limit: self.limit,
            store_id: None,
            replaces_by: self.replaces_by.clone(),
        };
        let columns = Arc::clone(&self.columns);
        let batches = futures::stream::once(async move {
            let job = table.job.clone();
            let answer = table.reads.read(request).await.map_err(|text| unreadable(&job, &text))?;
            Ok::<_, DataFusionError>(decode(job, answer, table.columns))
        })
        .try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(columns, batches))
    }
}

fn unreadable(job: &JobId, text: &str) -> DataFusionError {
    let error =
        crate::error::Error::new(crate::error::sqlstate::OBJECT_NOT_IN_STATE, format!("the rows of job '{job}' cannot be read now"));
    DataFusionError::External(Box::new(
        error.with_detail(text).with_hint("SELECT id, state, last_error FROM weir.jobs says how the job stands"),
    ))
}

struct Decoding {
    job: JobId,
    answer: BoxStream<'static, std::result::Result<Bytes, String>>,
    decoder: StreamDecoder,
    waiting: VecDeque<Buffer>,
    columns: SchemaRef,
}

/// Turns the bytes of an Arrow IPC stream into batches as they come; one message is held at a time.
fn decode(
    job: JobId,
    answer: BoxStream<'static, std::result::Result<Bytes, String>>,
    columns: SchemaRef,
) -> BoxStream<'static, Result<arrow::record_batch::RecordBatch>> {
    let start = Decoding { job, answer, decoder: StreamDecoder::new(), waiting: VecDeque::new(), columns };
    futures::stream::try_unfold(start, |mut at| async move {
        loop {
            while let Some(mut buffer) = at.waiting.pop_front() {
                let batch = at.decoder.decode(&mut buffer)?;
                if !buffer.is_empty() {
                    at.waiting.push_front(buffer);
                }
                if let Some(batch) = batch {
                    let told: Vec<_> = at.columns.fields().iter().map(|field| field.data_type().clone()).collect();
                    let got: Vec<_> = batch.columns().iter().map(|column| column.data_type().clone()).collect();
                    if told != got {
                        return exec_err!("rows of job '{}' have columns {got:?} where its plan has {told:?}", at.job);
                    }
                    let batch = arrow::record_batch::RecordBatch::try_new(Arc::clone(&at.columns), batch.columns().to_vec())?;
                    return Ok(Some((batch, at)));
                }
            }
            match at.answer.next().await {
                Some(Ok(bytes)) => at.waiting.push_back(Buffer::from(bytes)),
                Some(Err(text)) => return Err(unreadable(&at.job, &text)),
                None => {
                    // A stream that was cut in the middle must not look like a short table.
                    at.decoder.finish()?;
                    return Ok(None);
                }
            }
        }
    })
    .boxed()
}
