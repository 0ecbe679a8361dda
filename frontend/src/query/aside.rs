//! Queries run beside the control threads, and stop when nobody waits for them.
//!
//! A query may compute for minutes inside one poll. On a control thread that would hold up every
//! door, the hub and the leases of agents, and its own cancel request.

use crate::error::{Error, sqlstate};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Batches that wait for a client that reads slowly.
const WAITING_MAX: usize = 2;

/// What the thread of a query says.
enum Said {
    Batch(Result<arrow::record_batch::RecordBatch>),
    /// There is no more. A channel that closes without it means that the thread broke off.
    End,
}

/// The same batches, made on a thread of the runtime's blocking pool. Must be called within a runtime.
///
/// Cancel: dropping the stream ends the query the next time that it yields.
pub(super) fn aside(mut stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema = stream.schema();
    let (says, hears) = mpsc::channel(WAITING_MAX);
    let runtime = Handle::current();
    let work = async move {
        loop {
            let next = tokio::select! {
                biased;
                () = says.closed() => return,
                next = stream.next() => next,
            };
            let ended = next.is_none();
            if says.send(next.map_or(Said::End, Said::Batch)).await.is_err() || ended {
                return;
            }
        }
    };
    // Detached: it ends with the stream below.
    drop(Handle::current().spawn_blocking(move || runtime.block_on(work)));
    let batches = futures::stream::unfold(Some(hears), |hears| async move {
        let mut hears = hears?;
        match hears.recv().await {
            Some(Said::Batch(batch)) => Some((batch, Some(hears))),
            Some(Said::End) => None,
            None => Some((Err(DataFusionError::Internal("the query broke off before its end".to_owned())), None)),
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// Plans on a thread of the runtime's blocking pool. Must be awaited within a runtime.
///
/// Errors: those of `work`; `XX000` when it panicked.
pub(super) async fn beside<T: Send + 'static>(
    work: impl Future<Output = std::result::Result<T, Error>> + Send + 'static,
) -> std::result::Result<T, Error> {
    let runtime = Handle::current();
    let planned = tokio::task::spawn_blocking(move || runtime.block_on(work)).await;
    planned.unwrap_or_else(|_| Err(Error::new(sqlstate::INTERNAL_ERROR, "planning broke off: this is a fault of Weir, please report it")))
}

/// Makes joins yield: they make many batches of one input batch, and only inputs yield by themselves.
#[derive(Debug)]
pub(super) struct YieldingJoins;

impl PhysicalOptimizerRule for YieldingJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let wrap = |node: Arc<dyn ExecutionPlan>| {
            let any: &dyn std::any::Any = node.as_ref();
            let joins =
                any.is::<CrossJoinExec>() || any.is::<NestedLoopJoinExec>() || any.is::<HashJoinExec>() || any.is::<SortMergeJoinExec>();
            Ok(if joins { Transformed::yes(Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>) } else { Transformed::no(node) })
        };
        Ok(plan.transform_up(wrap)?.data)
    }

    fn name(&self) -> &str {
        "yielding_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::aside;
    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::error::DataFusionError;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::StreamExt;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    fn batch(value: i64) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![value]))]).unwrap()
    }

    /// A poll that computes for long leaves the thread of its reader alone: this one ends only
    /// when its reader, which shares the only thread of the runtime with it otherwise, says so.
    #[tokio::test]
    async fn a_query_does_not_hold_the_thread_of_its_reader() {
        let (go, wait) = channel::<()>();
        let slow = futures::stream::iter([0, 1]).map(move |at| {
            if at == 1 {
                wait.recv_timeout(std::time::Duration::from_secs(20)).map_err(|e| DataFusionError::Execution(e.to_string()))?;
            }
            Ok(batch(at))
        });
        let mut stream = aside(Box::pin(RecordBatchStreamAdapter::new(batch(0).schema(), slow)));
        assert_eq!(stream.next().await.unwrap().unwrap(), batch(0));
        assert!(futures::poll!(stream.next()).is_pending());
        go.send(()).unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap(), batch(1));
        assert!(stream.next().await.is_none());
    }

    /// A thread that panics is an error, not a shorter answer.
    #[tokio::test]
    async fn a_query_that_breaks_off_is_an_error() {
        let broken = futures::stream::iter([0, 1]).map(|at| if at == 1 { panic!("on purpose") } else { Ok(batch(at)) });
        let mut stream = aside(Box::pin(RecordBatchStreamAdapter::new(batch(0).schema(), broken)));
        assert!(stream.next().await.unwrap().is_ok());
        assert!(stream.next().await.unwrap().unwrap_err().to_string().contains("broke off"));
        assert!(stream.next().await.is_none());
    }
}
