//! Columns from files and from librdkafka's own mock of a cluster.

use super::*;
use crate::secret::no_environment;
use arrow_ipc::reader::StreamReader;
use futures::StreamExt;
use rdkafka::config::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use std::path::Path;

fn source(config: serde_json::Value, codec: serde_json::Value) -> Source {
    let input_type = config["type"].clone();
    serde_json::from_value(serde_json::json!({"operator_id": "it", "input_type": input_type, "config": config, "codec": codec})).unwrap()
}

fn file(path: &Path, codec: serde_json::Value) -> Source {
    source(serde_json::json!({"type": "file", "path": path.to_str().unwrap()}), codec)
}

fn secrets() -> Arc<Secrets> {
    Arc::new(Secrets::new(no_environment))
}

fn json() -> serde_json::Value {
    serde_json::json!({"type": "json"})
}

fn found(source: &Source) -> Result<Vec<String>, (Class, String)> {
    let columns = columns(&secrets(), &JobId::new("j").unwrap(), source).map_err(|error| (error.class, error.to_failure().message))?;
    assert!(columns.iter().all(|column| column.nullable));
    Ok(columns.into_iter().map(|column| format!("{} {}", column.name, column.ty)).collect())
}

/// JOB-6: the answer is an Arrow IPC stream without rows whose schema holds the columns.
#[tokio::test]
async fn an_answer_is_a_stream_without_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ndjson");
    std::fs::write(&path, "{\"b\": 1, \"a\": \"x\"}\n").unwrap();
    let answer = answer(Secrets::new(no_environment), JobId::new("j").unwrap(), file(&path, json())).await.unwrap();
    let bytes = answer.map(Result::unwrap).collect::<Vec<_>>().await.concat();
    let reader = StreamReader::try_new(bytes.as_slice(), None).unwrap();
    let schema = reader.schema();
    assert_eq!(schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(reader.count(), 0);
}

/// JOB-6: the first records of all files; an empty file has no row yet.
#[test]
fn files_of_json_lines() {
    let dir = tempfile::tempdir().unwrap();
    let all = dir.path().join("*.ndjson");
    std::fs::write(dir.path().join("1.ndjson"), "").unwrap();
    let (class, message) = found(&file(&all, json())).unwrap_err();
    assert_eq!(class, Class::Retry, "{message}");
    assert!(message.contains("source 'it'") && message.contains("no row to sample yet"), "{message}");
    std::fs::write(dir.path().join("2.ndjson"), "{\"n\": 1}\nnot json\n\n{\"n\": 2.5, \"t\": \"2026-01-01\"}").unwrap();
    assert_eq!(found(&file(&all, json())).unwrap(), ["n DOUBLE PRECISION", "t TEXT"]);
    // The 1,001st record is not looked at.
    let many = "{\"n\": 1}\n".repeat(1_000) + "{\"late\": true}\n";
    std::fs::write(dir.path().join("1.ndjson"), many).unwrap();
    assert_eq!(found(&file(&all, json())).unwrap(), ["n BIGINT"]);
    // Nor what follows a mebibyte.
    let wide = format!("{{\"n\": \"{}\"}}\n", "x".repeat(600_000)).repeat(2) + "{\"late\": true}\n";
    std::fs::write(dir.path().join("1.ndjson"), wide).unwrap();
    assert_eq!(found(&file(&all, json())).unwrap(), ["n TEXT"]);
}

#[test]
fn what_gives_no_columns_is_refused_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ndjson");
    for (content, reason) in [("not json\n[1]\n", "not a JSON object"), ("{\"__x\": 1}\n", "reserved"), ("{}\n", "no fields")] {
        std::fs::write(&path, content).unwrap();
        let (class, message) = found(&file(&path, json())).unwrap_err();
        assert_eq!(class, Class::User, "{message}");
        assert!(message.contains(reason) && message.contains("declare the columns"), "{message}");
    }
    let (class, message) = found(&file(&dir.path().join("none-*"), json())).unwrap_err();
    assert!(class == Class::User && message.contains("no file matches"), "{message}");
    let (class, message) = found(&file(Path::new("/dev/null"), json())).unwrap_err();
    assert!(class == Class::User && message.contains("no regular file"), "{message}");
    let http = source(serde_json::json!({"type": "http", "address": "127.0.0.1:1"}), json());
    let (class, message) = found(&http).unwrap_err();
    assert!(class == Class::User && message.contains("http") && message.contains("declare them"), "{message}");
}

#[test]
fn delimited_files_with_and_without_a_header() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "id;\"the; name\";zip\n1;\"a\nb\";007\n2;;08\n").unwrap();
    let named = file(&path, serde_json::json!({"type": "csv", "header": true, "delimiter": ";"}));
    assert_eq!(found(&named).unwrap(), ["id BIGINT", "the; name TEXT", "zip TEXT"]);
    std::fs::write(&path, "1,true,x\n2,false\n3,true,y\n").unwrap();
    let nameless = file(&path, serde_json::json!({"type": "csv"}));
    assert_eq!(found(&nameless).unwrap(), ["column_1 BIGINT", "column_2 BOOLEAN", "column_3 TEXT"]);
    std::fs::write(&path, "id,name\n").unwrap();
    let empty = file(&path, serde_json::json!({"type": "csv", "header": true}));
    assert_eq!(found(&empty).unwrap_err().0, Class::Retry);
}

/// JOB-6: a Parquet file brings its own columns, even without a row.
#[test]
fn parquet_files_bring_their_own() {
    use arrow::datatypes::{DataType as D, Field, Schema, TimeUnit};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let write = |fields: Vec<Field>| {
        let to = std::fs::File::create(&path).unwrap();
        parquet::arrow::ArrowWriter::try_new(to, std::sync::Arc::new(Schema::new(fields)), None).unwrap().close().unwrap();
    };
    write(vec![
        Field::new("id", D::Int32, false),
        Field::new("at", D::Timestamp(TimeUnit::Microsecond, Some("+02:00".into())), true),
        Field::new("price", D::Decimal128(12, 2), true),
        Field::new("n", D::UInt64, true),
    ]);
    let parquet = file(&path, serde_json::json!({"type": "parquet"}));
    assert_eq!(found(&parquet).unwrap(), ["id INTEGER", "at TIMESTAMPTZ(6)", "price DECIMAL(12,2)", "n DECIMAL(20,0)"]);
    write(vec![Field::new("id", D::Int32, false), Field::new("tags", D::List(Field::new("item", D::Utf8, true).into()), true)]);
    let (class, message) = found(&parquet).unwrap_err();
    assert!(class == Class::User && message.contains("'tags'") && !message.contains("'id'"), "{message}");
}

fn produce(cluster: &MockCluster<'static, DefaultProducerContext>, partition: i32, records: &[&str]) {
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", cluster.bootstrap_servers()).create().unwrap();
    for record in records {
        producer.send(BaseRecord::<(), str>::to("bids").payload(record).partition(partition)).map_err(|(e, _)| e).unwrap();
    }
    producer.flush(Duration::from_secs(10)).unwrap();
}

/// JOB-6: records from the start of all partitions; none yet is no error for good, a topic that is not there is.
#[test]
fn topics_of_kafka() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("bids", 2, 1).unwrap();
    let kafka = |start: &str| {
        source(
            serde_json::json!({"type": "kafka", "brokers": [cluster.bootstrap_servers()], "topics": ["bids"], "scan.start": start}),
            json(),
        )
    };
    let (class, message) = found(&kafka("earliest")).unwrap_err();
    assert!(class == Class::Retry && message.contains("no row to sample yet"), "{message}");
    produce(&cluster, 0, &["{\"first\": 1}", "no record", "{\"first\": 2, \"more\": true}"]);
    produce(&cluster, 1, &["{\"other\": \"x\"}"]);
    let mut columns = found(&kafka("earliest")).unwrap();
    columns.sort();
    assert_eq!(columns, ["first BIGINT", "more BOOLEAN", "other TEXT"]);
    // What would be read is still to come: the last records stand for it.
    let old: Vec<String> = (0..200).map(|n| if n < 100 { "{\"old\": 1}".to_owned() } else { format!("{{\"new\": {n}}}") }).collect();
    produce(&cluster, 0, &old.iter().map(String::as_str).collect::<Vec<_>>());
    let mut columns = found(&kafka("latest")).unwrap();
    columns.sort();
    assert_eq!(columns, ["new BIGINT", "other TEXT"]);
}

#[test]
fn a_broker_that_is_away_is_asked_again() {
    let away = source(serde_json::json!({"type": "kafka", "brokers": ["127.0.0.1:1"], "topics": ["bids"]}), json());
    let (class, message) = found(&away).unwrap_err();
    assert!(class == Class::Retry && message.contains("127.0.0.1:1") && message.contains("source 'it'"), "{message}");
}
