//! Statements against a real hub, without agents: what they answer, and how they refuse.

use super::{Engine, Outcome, parse};
use crate::error::{Error, sqlstate};
use crate::query::Reads;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use weir_hub::Hub;
use weir_hub::hub::{CatalogObject, DesiredState, HubOptions, NewJob};
use weir_planner::connector::SourceOptions;
use weir_planner::protocol::ReadRequest;

struct NoReads;

#[async_trait::async_trait]
impl Reads for NoReads {
    async fn read(&self, _: ReadRequest) -> Result<BoxStream<'static, Result<Bytes, String>>, String> {
        Err("no agent".to_owned())
    }
}

struct House {
    engine: Engine,
    _dir: tempfile::TempDir,
}

/// What a statement answered, in plain words.
#[derive(Debug, PartialEq)]
enum Answer {
    Done(String, Vec<String>),
    Rows(Vec<Vec<String>>),
}

impl House {
    async fn open() -> House {
        let dir = tempfile::tempdir().unwrap();
        let options = HubOptions { data_dir: dir.path().to_owned(), lease: Duration::from_secs(15), agent_token: None };
        let hub = Hub::open(options).await.unwrap();
        House { engine: Engine::new(hub, Arc::new(NoReads), Vec::new()).unwrap(), _dir: dir }
    }

    async fn run(&self, text: &str) -> Result<Answer, Error> {
        let statements = parse(text)?;
        let [statement] = statements.as_slice() else { panic!("one statement at a time") };
        let described = self.engine.describe(statement, &[]).await?;
        match self.engine.run(statement, &[]).await? {
            Outcome::Done { tag, notices } => {
                assert!(described.columns.is_none(), "{text} was said to give rows");
                Ok(Answer::Done(tag, notices))
            }
            Outcome::Rows { schema, mut stream, .. } => {
                assert_eq!(described.columns.as_ref(), Some(&schema), "{text} was described otherwise");
                let mut rows = Vec::new();
                while let Some(batch) = stream.next().await {
                    let batch = batch.unwrap();
                    let options = FormatOptions::default();
                    let columns: Vec<_> =
                        batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap()).collect();
                    rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| column.value(row).to_string()).collect()));
                }
                Ok(Answer::Rows(rows))
            }
        }
    }

    async fn ok(&self, text: &str) -> Answer {
        self.run(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    async fn refused(&self, text: &str) -> Error {
        match self.run(text).await {
            Ok(answer) => panic!("{text}: {answer:?}"),
            Err(error) => error,
        }
    }

    /// The rows of a one-column answer.
    async fn lines(&self, text: &str) -> Vec<String> {
        match self.ok(text).await {
            Answer::Rows(rows) => rows.into_iter().map(|row| row.join(" | ")).collect(),
            Answer::Done(tag, _) => panic!("{text} gave no rows but {tag}"),
        }
    }
}

const SOURCE: &str = "CREATE SOURCE bids (auction BIGINT NOT NULL, price DECIMAL(10,2), at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '4 seconds') \
    WITH (connector = 'kafka', brokers = 'b:9092', topic = 'bids', format = 'json', sasl.username = 'me', sasl.password = 'hush')";
const JOB: &str = "CREATE JOB per_minute WITH (start = false) AS SELECT auction, window_start, count(*) AS n \
    FROM tumble(bids, at, INTERVAL '1 minute') GROUP BY auction, window_start, window_end";

fn done(tag: &str) -> Answer {
    Answer::Done(tag.to_owned(), Vec::new())
}

/// SQL-15: one set of names, use is guarded, CASCADE says what it took.
#[tokio::test]
async fn objects_are_made_kept_replaced_and_dropped() {
    let house = House::open().await;
    assert_eq!(house.ok(SOURCE).await, done("CREATE SOURCE"));
    let again = house.refused(SOURCE).await;
    assert_eq!((again.sqlstate, again.position), (sqlstate::DUPLICATE_OBJECT, Some(15)));
    let kept = house.ok(&SOURCE.replace("CREATE SOURCE", "CREATE SOURCE IF NOT EXISTS")).await;
    assert_eq!(kept, Answer::Done("CREATE SOURCE".to_owned(), vec!["source 'bids' already exists, skipping".to_owned()]));
    assert_eq!(house.ok("CREATE OR REPLACE SINK out WITH (connector = 'drop')").await, done("CREATE SINK"));
    assert_eq!(house.refused("CREATE SINK bids WITH (connector = 'drop')").await.sqlstate, sqlstate::DUPLICATE_OBJECT);

    let made = house.ok(JOB).await;
    assert_eq!(
        made,
        Answer::Done(
            "CREATE JOB".to_owned(),
            vec!["job 'per_minute' is created, not started: ALTER JOB per_minute START starts it".to_owned()]
        )
    );
    let twice = house.refused(JOB).await;
    assert_eq!((twice.sqlstate, twice.position), (sqlstate::DUPLICATE_OBJECT, Some(12)));
    let kept = house.ok(&JOB.replace("CREATE JOB", "CREATE JOB IF NOT EXISTS")).await;
    assert_eq!(kept, Answer::Done("CREATE JOB".to_owned(), vec!["job 'per_minute' already exists, skipping".to_owned()]));

    let used = house.refused(&SOURCE.replace("CREATE SOURCE", "CREATE OR REPLACE SOURCE")).await;
    assert_eq!(used.sqlstate, sqlstate::DEPENDENT_OBJECTS, "{used:?}");
    let used = house.refused("DROP SOURCE bids").await;
    assert_eq!((used.sqlstate, used.position), (sqlstate::DEPENDENT_OBJECTS, Some(13)));
    assert!(used.message.contains("per_minute") && used.hint.is_some(), "{used:?}");
    assert_eq!(
        house.ok("DROP SOURCE bids CASCADE").await,
        Answer::Done("DROP SOURCE".to_owned(), vec!["drop cascades to job 'per_minute'".to_owned()])
    );

    let gone = house.refused("DROP JOB per_minute").await;
    assert_eq!((gone.sqlstate, gone.position), (sqlstate::UNDEFINED_OBJECT, Some(10)));
    assert_eq!(
        house.ok("DROP JOB IF EXISTS \"no such\"").await,
        Answer::Done("DROP JOB".to_owned(), vec!["job 'no such' does not exist, skipping".to_owned()])
    );
    assert_eq!(house.ok("DROP SINK out").await, done("DROP SINK"));
    assert_eq!(house.refused("ALTER JOB nope START").await.sqlstate, sqlstate::UNDEFINED_OBJECT);
    assert_eq!(house.refused("WAIT FOR JOB nope UNTIL RUNNING").await.position, Some(14));
}

/// SQL-11: what is shown names everything but secrets; the stored source keeps them.
#[tokio::test]
async fn shows_describe_what_there_is_without_secrets() {
    let house = House::open().await;
    house.ok(SOURCE).await;
    house
        .ok("CREATE SINK out WITH (connector = 'kafka', brokers = 'b:9092', topic = 'o', format = 'json', 'sasl.password' = 'hush')")
        .await;
    house.ok(&JOB.replace("per_minute", "per_minute INTO out")).await;
    assert_eq!(house.lines("SHOW SOURCES").await, ["bids | kafka | json | auction, price, at | at"]);
    assert_eq!(house.lines("SHOW SINKS").await, ["out | kafka | json | at_least_once"]);
    assert_eq!(
        house.lines("DESCRIBE bids").await,
        ["auction | BIGINT | no | ", "price | DECIMAL(10,2) | yes | ", "at | TIMESTAMP(3) | yes | event time"]
    );
    assert_eq!(
        house.lines("DESCRIBE per_minute").await,
        ["auction | BIGINT | no | ", "window_start | TIMESTAMP(3) | no | ", "n | BIGINT | no | "]
    );
    let created = house.lines("SHOW CREATE SOURCE bids").await.join("\n");
    assert_eq!(created, format!("bids | {}", SOURCE.replace("'hush'", "'***'")));
    assert!(house.lines("SHOW CREATE JOB per_minute").await[0].ends_with(&JOB.replace("per_minute", "per_minute INTO out")));
    for text in [
        "SHOW CREATE SINK out",
        "SHOW JOB SPEC per_minute",
        "DESCRIBE out",
        &format!("EXPLAIN {}", JOB.replace("per_minute", "other INTO out")),
    ] {
        let shown = house.lines(text).await.join("\n");
        assert!(!shown.contains("hush") && shown.contains("***"), "{text}: {shown}");
    }
    let entry = house.engine.hub.catalog().entries["bids"].clone();
    assert!(serde_json::to_string(&entry.object).unwrap().contains("hush"));
    let missing = house.refused("SHOW CREATE SINK bids").await;
    assert_eq!((missing.sqlstate, missing.position), (sqlstate::UNDEFINED_OBJECT, Some(18)));
    assert_eq!(house.refused("DESCRIBE nope").await.sqlstate, sqlstate::UNDEFINED_OBJECT);
    let jobs = house.lines("SHOW JOBS").await;
    assert!(jobs.len() == 1 && jobs[0].starts_with("per_minute | 1 | "), "{jobs:?}");
}

/// EXPLAIN builds everything and creates nothing.
#[tokio::test]
async fn explain_shows_each_form_and_creates_nothing() {
    let house = House::open().await;
    house.ok(SOURCE).await;
    let text = house.lines(&format!("EXPLAIN {JOB}")).await.join("\n");
    for part in [
        "Logical plan\n",
        "Tumble: time=bids.at, size=60000 ms, offset=0 ms",
        "\nJobSpec\nid: per_minute",
        "\nJobPlan\njob per_minute version 1",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let json = house.lines(&format!("EXPLAIN (FORMAT json) {JOB}")).await.join("\n");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["job"], "per_minute");
    assert!(house.lines(&format!("EXPLAIN (FORMAT dot) {JOB}")).await[0].starts_with("digraph"));
    assert_eq!(house.lines(&format!("EXPLAIN (FORMAT yaml) {JOB}")).await[0], "id: per_minute");
    assert!(house.engine.hub.jobs().is_empty());
}

/// JOB-1, JOB-3: what SHOW JOB SPEC prints is the stored spec, and binds to it again.
#[tokio::test]
async fn the_shown_spec_is_the_stored_one() {
    let house = House::open().await;
    house.ok("CREATE SOURCE v (k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts) AS VALUES (1, 0), (2, 1000)").await;
    house.ok("CREATE JOB j WITH (start = false) AS SELECT k * 2 AS twice, window_end, sum(k) FROM tumble(v, ts, INTERVAL '1 second') GROUP BY k * 2, window_end HAVING sum(k) > 1").await;
    let yaml = house.lines("SHOW JOB SPEC j").await.join("\n");
    let mut document = crate::yaml::parse(&yaml).unwrap();
    assert_eq!(document.bind(), []);
    let stored = house.engine.hub.catalog().jobs["j"].spec.clone();
    assert_eq!(document.jobs, [(*stored).clone()]);
}

#[tokio::test]
async fn clients_formalities_are_accepted_and_queries_run() {
    let house = House::open().await;
    for (text, tag) in
        [("BEGIN", "BEGIN"), ("COMMIT", "COMMIT"), ("ROLLBACK", "ROLLBACK"), ("SET a = 1", "SET"), ("DISCARD ALL", "DISCARD ALL")]
    {
        assert_eq!(house.ok(text).await, done(tag), "{text}");
    }
    assert_eq!(house.lines("SELECT 1 + 1 AS two").await, ["2"]);
    let error = house.refused("SELECT *\n FROM nowhere").await;
    assert_eq!((error.sqlstate, error.position), (sqlstate::UNDEFINED_TABLE, Some(16)));
    let job = parse(JOB).unwrap();
    let parameter = super::Parameter::Int64(Some(1));
    let with_parameter = house.engine.run(&job[0], &[parameter]).await;
    assert!(with_parameter.is_err_and(|error| error.sqlstate == sqlstate::FEATURE_NOT_SUPPORTED));
}

/// P4: a job that breaks a rule is refused at the option that is at fault, and nothing is made.
#[tokio::test]
async fn a_bad_job_option_is_refused_at_its_place() {
    let house = House::open().await;
    house.ok(SOURCE).await;
    for (option, column) in [("parallelism = 0", 27), ("parallelism = many", 41), ("checkpoint.epoch = '30s'", 27), ("start = maybe", 35)] {
        let text = format!("CREATE JOB per_minute WITH ({option}) AS SELECT auction FROM bids");
        let error = house.refused(&text).await;
        assert_eq!(error.sqlstate, sqlstate::INVALID_PARAMETER_VALUE, "{text}: {error:?}");
        assert!(error.position.is_some_and(|position| position > column), "{text}: {error:?}");
    }
    assert!(house.engine.hub.jobs().is_empty());
}

/// SQL-13: a word that is not known is refused at the word, with those that are.
#[tokio::test]
async fn an_unknown_word_is_refused_with_the_known_ones() {
    let house = House::open().await;
    for option in ["on_error", "on_error.policy"] {
        let text = format!("CREATE SOURCE s (v BIGINT) WITH (connector = 'file', path = 'x', format = 'json', {option} = 'ignore')");
        let error = house.refused(&text).await;
        assert_eq!(error.sqlstate, sqlstate::INVALID_PARAMETER_VALUE, "{error:?}");
        assert!(error.message.contains("fail, skip, route"), "{error:?}");
        assert_eq!(error.position, text.find("'ignore'").map(|at| at + 1), "{error:?}");
    }
}

/// SQL-13: what the WATERMARK clause says is not said by an option too, of which one would be lost.
#[tokio::test]
async fn an_option_beside_the_watermark_clause_is_refused() {
    let house = House::open().await;
    let create = |option: &str| {
        format!(
            "CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1 second') \
             WITH (connector = 'file', path = 'x', format = 'json', {option} = '9s')"
        )
    };
    for option in ["out_of_orderness", "out_of_orderness_ms", "watermark.out_of_orderness", "time.watermark.out_of_orderness_ms"] {
        let text = create(option);
        let error = house.refused(&text).await;
        assert_eq!(error.sqlstate, sqlstate::INVALID_PARAMETER_VALUE, "{error:?}");
        assert_eq!(error.message, format!("option '{option}' says over again what WATERMARK FOR ts says"));
        assert_eq!(error.position, text.find(option).map(|at| at + 1), "{error:?}");
    }
    house.ok(&create("watermark.idle_timeout")).await;
}

/// Postgres takes the numbers that are none as text; what is neither is refused as before.
#[tokio::test]
async fn rows_hold_numbers_that_are_not_finite() {
    let house = House::open().await;
    house.ok("CREATE SOURCE s (d DOUBLE PRECISION, r REAL) AS VALUES ('NaN', '-infinity'), ('Infinity', 'nan'), (1.5, NULL)").await;
    let catalog = house.engine.hub.catalog();
    let CatalogObject::Source(source) = &catalog.entries["s"].object else { panic!("a source") };
    let SourceOptions::Values(values) = &source.config else { panic!("inline rows") };
    let expected = [vec![json!("NaN"), json!("-Infinity")], vec![json!("Infinity"), json!("NaN")], vec![json!(1.5), json!(null)]];
    assert_eq!(values.rows, expected);
    let text = "CREATE SOURCE t (d DOUBLE PRECISION) AS VALUES ('nothing')";
    assert_eq!(house.refused(text).await.sqlstate, "22P02");
    let text = "CREATE SOURCE t (d BIGINT) AS VALUES ('NaN')";
    assert_eq!(house.refused(text).await.sqlstate, "22P02");
}

/// Postgres' code for a text that is no interval, at the text.
#[tokio::test]
async fn a_text_that_is_no_interval_is_refused_at_its_place() {
    let house = House::open().await;
    house.ok(SOURCE).await;
    let text = "CREATE JOB j AS SELECT '1 banana', date_time + INTERVAL  '1 banana' FROM bids";
    let error = house.refused(text).await;
    assert_eq!((error.sqlstate, error.message.as_str()), ("22007", "'1 banana' is not an interval"), "{error:?}");
    assert_eq!(error.position, text.rfind("'1 banana'").map(|at| at + 1));
}

/// JOB-6: a job that has yet to take its columns from rows has a result table, without columns so far.
#[tokio::test]
async fn a_result_table_without_columns_yet_says_so() {
    let house = House::open().await;
    let spec = serde_json::from_value(json!({
        "id": "pending",
        "operators": [{"id": "in", "kind": "source"}, {"id": "out", "kind": "sink"}],
        "edges": [{"id": "e1", "from": "in", "to": "out"}],
        "sources": [{
            "operator_id": "in", "input_type": "file", "codec": {"type": "json"}, "config": {"type": "file", "path": "nowhere.json"},
        }],
        "sinks": [{"operator_id": "out", "output_type": "result", "config": {"type": "result"}}],
    }));
    let spec = spec.unwrap();
    let job = NewJob { spec, sql: None, uses: Vec::new(), stream: None, desired: DesiredState::Stopped, places: Default::default() };
    assert_eq!(house.engine.hub.create_job(job).await.unwrap().plan, None);
    let error = house.refused("SELECT * FROM pending").await;
    assert_eq!(error.sqlstate, sqlstate::OBJECT_NOT_IN_STATE, "{error:?}");
    assert_eq!(error.message, "the columns of job 'pending' are not known until it starts");
}
