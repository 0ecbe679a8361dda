//! Columns of sources that declare none (JOB-6): an agent's answer to columns, and a spec bound to them.

use super::bind::bind_spec;
use arrow::ipc::reader::StreamReader;
use bytes::Bytes;
use weir_hub::hub::Binder;
use weir_planner::check::columns::declared;
use weir_planner::error::Fault;
use weir_planner::id::OperatorId;
use weir_planner::schema::{Column, ColumnType};
use weir_planner::spec::{JobSpec, SourceColumn};

/// Binds specs whose sources have been sampled.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleBinder;

impl Binder for SampleBinder {
    fn bind(&self, spec: &JobSpec, columns: &[(OperatorId, Bytes)]) -> Result<JobSpec, Vec<Fault>> {
        let mut spec = spec.clone();
        for (id, answer) in columns {
            let schema = columns_of(answer).map_err(|reason| {
                vec![Fault::new("bad_sample", "", format!("the columns of source '{id}' did not come as they should: {reason}"))]
            })?;
            if let Some(source) = spec.sources.iter_mut().find(|source| source.operator_id == *id) {
                source.schema = schema;
            }
        }
        bind_spec(&mut spec)?;
        Ok(spec)
    }
}

/// The columns that an agent's answer holds.
///
/// Errors: bytes that are no Arrow IPC stream, or a type that no column has.
pub fn columns_of(answer: &[u8]) -> Result<Vec<SourceColumn>, String> {
    // The reader makes room for as many bytes as the answer claims to have.
    let claimed = match answer {
        [0xff, 0xff, 0xff, 0xff, a, b, c, d, ..] => usize::try_from(i32::from_le_bytes([*a, *b, *c, *d])).ok(),
        _ => None,
    };
    if claimed.is_none_or(|claimed| claimed > answer.len()) {
        return Err("it is no Arrow IPC stream".to_owned());
    }
    let reader = StreamReader::try_new(answer, None).map_err(|error| error.to_string())?;
    let column = |field: &arrow::datatypes::FieldRef| {
        let ty = ColumnType::from_arrow(field.data_type()).ok_or_else(|| format!("column '{}' is {}", field.name(), field.data_type()))?;
        Ok(declared(Column { name: field.name().clone(), ty, nullable: field.is_nullable() }))
    };
    let columns: Vec<SourceColumn> = reader.schema().fields().iter().map(column).collect::<Result<_, String>>()?;
    if columns.is_empty() { Err("it has no columns".to_owned()) } else { Ok(columns) }
}

/// The columns as people read them.
pub(crate) fn told(columns: &[SourceColumn]) -> String {
    columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, Schema};
    use arrow::ipc::writer::StreamWriter;

    fn answer(fields: Vec<Field>) -> Bytes {
        let mut writer = StreamWriter::try_new(Vec::new(), &Schema::new(fields)).unwrap();
        writer.finish().unwrap();
        writer.into_inner().unwrap().into()
    }

    fn pending(filter: &str) -> JobSpec {
        serde_json::from_value(serde_json::json!({
            "id": "j",
            "operators": [
                {"id": "source", "kind": "source"},
                {"id": "big", "kind": "map", "config": {"filter": filter}},
                {"id": "sink", "kind": "sink"},
            ],
            "edges": [{"id": "a", "from": "source", "to": "big"}, {"id": "b", "from": "big", "to": "sink"}],
            "sources": [{
                "operator_id": "source", "input_type": "file", "codec": {"type": "json"}, "config": {"type": "file", "path": "x.ndjson"},
            }],
            "sinks": [{"operator_id": "sink", "output_type": "drop", "config": {"type": "drop"}}],
        }))
        .unwrap()
    }

    fn id() -> OperatorId {
        OperatorId::new("source").unwrap()
    }

    /// JOB-6: what reads unknown columns is left alone until they are known; then it is bound, and only then.
    #[test]
    fn a_pending_spec_is_bound_when_its_columns_come() {
        let mut spec = pending("n > 3");
        bind_spec(&mut spec).unwrap();
        assert_eq!(weir_planner::check::check(&spec, weir_planner::spec::Horizon::Local), []);
        let bound = SampleBinder.bind(&spec, &[(id(), answer(vec![Field::new("n", DataType::Int64, true)]))]).unwrap();
        assert_eq!(told(&bound.sources[0].schema), "n BIGINT");
        weir_planner::compile::compile(&bound, weir_planner::spec::Horizon::Local).unwrap();
        let faults = SampleBinder.bind(&spec, &[(id(), answer(vec![Field::new("m", DataType::Int64, true)]))]).unwrap_err();
        assert_eq!((faults.len(), faults[0].path.as_str()), (1, "operators[1].config.filter"));
    }

    /// JOB-8: syntax and function names are checked without columns.
    #[test]
    fn what_can_be_checked_without_columns_is() {
        for wrong in ["n >", "nosuch(n) > 1", "n > (SELECT 1)"] {
            let faults = bind_spec(&mut pending(wrong)).unwrap_err();
            assert_eq!((faults.len(), faults[0].path.as_str()), (1, "operators[1].config.filter"), "{wrong}: {faults:?}");
        }
    }

    #[test]
    fn an_answer_that_holds_no_columns_is_refused() {
        let odd = answer(vec![Field::new("d", DataType::Duration(arrow::datatypes::TimeUnit::Second), true)]);
        for wrong in [Bytes::from_static(b"no stream"), Bytes::new(), answer(Vec::new()), odd] {
            assert!(columns_of(&wrong).is_err());
            assert_eq!(SampleBinder.bind(&pending("n > 3"), &[(id(), wrong)]).unwrap_err()[0].code, "bad_sample");
        }
    }
}
