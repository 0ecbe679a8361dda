//! Tests of the generators. The Nexmark rows were written down from the generator of the benchmark
//! data, an independent program in another language.

use super::super::probe::{Given, SMALL, drain, open, probe, refused, stops_anywhere, work};
use super::*;
use arrow::array::AsArray;
use arrow::datatypes::TimestampMillisecondType;
use weir_planner::connector::{NexmarkTable, SourceOptions};
use weir_planner::spec::ErrorPolicy;

const NONE: Generate = Generate {
    kind: GenerateKind::Template,
    context: None,
    interval_ms: 0,
    batch_size: 1,
    rows: None,
    table: None,
    events_per_second: 0,
    start_ms: None,
    seed: 1,
};
const BID: [(&str, &str); 7] = [
    ("auction", "BIGINT"),
    ("bidder", "BIGINT"),
    ("price", "BIGINT"),
    ("channel", "TEXT"),
    ("url", "TEXT"),
    ("date_time", "TIMESTAMP(3)"),
    ("extra", "TEXT"),
];

fn nexmark(table: NexmarkTable, rows: u64) -> Generate {
    Generate { kind: GenerateKind::Nexmark, table: Some(table), rows: Some(rows), ..NONE }
}

fn source(options: Generate, columns: &[(&str, &str)]) -> SourceWork {
    work(SourceOptions::Generate(options), None, columns, ErrorPolicy::Fail)
}

#[test]
fn bids_are_those_of_the_benchmark_data() {
    let dir = tempfile::tempdir().unwrap();
    let given = stops_anywhere(&source(nexmark(NexmarkTable::Bid, 108), &BID), dir.path()).all();
    assert_eq!(given.len(), 108);
    assert_eq!(
        given[0],
        r#"{"auction":1000,"bidder":1001,"price":83500000,"channel":"channel-1452","url":"https://auction.example.com/gurgf/item.htm?query=1&channel_id=1452","date_time":"2026-01-01T00:00:00.000","extra":"rmhqgj2tjajg0sesybcv"}"#
    );
    assert_eq!(
        given[45],
        r#"{"auction":1000,"bidder":1000,"price":313,"channel":"Apple","url":"https://auction.example.com/1gioz/item.htm?query=1&channel_id=3","date_time":"2026-01-01T00:00:00.004","extra":"wba3bcvjgaemix21dcsc"}"#
    );
    assert_eq!(
        given[107],
        r#"{"auction":1000,"bidder":1001,"price":2630000,"channel":"Google","url":"https://auction.example.com/ehxym/item.htm?query=1&channel_id=0","date_time":"2026-01-01T00:00:00.011","extra":"cij34e4jzmk00creljls"}"#
    );
}

/// Far into the stream and with another seed: rows are a function of seed and number alone.
#[test]
fn a_bid_far_in_is_made_without_those_before() {
    let columns: Vec<_> = BID.iter().map(|(name, ty)| super::super::probe::column(name, ty)).collect();
    let used: Vec<String> = BID.iter().map(|(name, _)| (*name).to_owned()).collect();
    let nexmark = Nexmark::new(NexmarkTable::Bid, 7, 10_000, BASE_MS, &columns, &used).unwrap();
    let schema = weir_planner::schema::Schema(columns.iter().map(|c| c.column.clone()).collect());
    let line = |row| {
        let mut out = Vec::new();
        crate::format::json::JsonEncoder::new(&schema).unwrap().write_lines(&nexmark.rows(row, 1).unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    // Events 6,172,817 and 9,999,949.
    let (first, second) = (123_456 * 46 + 13, 199_998 * 46 + 45);
    assert_eq!((nexmark.event(first), nexmark.event(second)), (6_172_817, 9_999_949));
    assert_eq!(
        line(first),
        concat!(
            r#"{"auction":371278,"bidder":124401,"price":531,"channel":"channel-4458","url":"https://auction.example.com/sqxm3/item.htm?query=1&channel_id=4458","date_time":"2026-01-01T00:10:17.281","extra":"nor2uklb4o5opcdfwnqs"}"#,
            "\n"
        )
    );
    assert_eq!(
        line(second),
        concat!(
            r#"{"auction":600900,"bidder":200901,"price":4420,"channel":"Baidu","url":"https://auction.example.com/5k01b/item.htm?query=1&channel_id=2","date_time":"2026-01-01T00:16:39.994","extra":"eebcovd2lh0rklq5j04o"}"#,
            "\n"
        )
    );
    for row in [0, 1, 45, 46, 47, first] {
        assert_eq!(nexmark.rows_before(nexmark.event(row)), row);
        assert_eq!(nexmark.rows_before(nexmark.event(row) + 1), row + 1);
    }
}

#[test]
fn people_and_auctions_are_those_of_the_benchmark_data() {
    let dir = tempfile::tempdir().unwrap();
    let person = [
        ("id", "BIGINT"),
        ("name", "TEXT"),
        ("email_address", "TEXT"),
        ("credit_card", "TEXT"),
        ("city", "TEXT"),
        ("state", "TEXT"),
        ("dateTime", "TIMESTAMP(3)"),
        ("extra", "TEXT"),
    ];
    let given = stops_anywhere(&source(nexmark(NexmarkTable::Person, 3), &person), dir.path()).all();
    assert_eq!(
        given[2],
        r#"{"id":1002,"name":"mh2gsl dswbd4vt","email_address":"ijc4nyga@en4zk.com","credit_card":"4588 9292 7227 2843","city":"Phoenix","state":"OR","dateTime":"2026-01-01T00:00:00.010","extra":"nonuf055sjiyv20wttk0t0xz42ncjlycuz11ijsi"}"#
    );
    let auction = [
        ("id", "BIGINT"),
        ("item_name", "TEXT"),
        ("initial_bid", "BIGINT"),
        ("reserve", "BIGINT"),
        ("date_time", "TIMESTAMP(6)"),
        ("expires", "TIMESTAMPTZ(3)"),
        ("seller", "BIGINT"),
        ("category", "BIGINT"),
    ];
    let given = stops_anywhere(&source(nexmark(NexmarkTable::Auction, 9), &auction), dir.path()).all();
    assert_eq!(
        given[3],
        r#"{"id":1003,"item_name":"qx3ekibxvgbb","initial_bid":2400000,"reserve":2466700,"date_time":"2026-01-01T00:00:00.005000","expires":"2026-01-01T00:00:00.317Z","seller":1000,"category":13}"#
    );
}

/// By the wall clock a row comes in the millisecond of its event time, and after a pause all that are due.
#[test]
fn rows_of_the_clock_come_at_their_event_time() {
    let dir = tempfile::tempdir().unwrap();
    let probe = probe(0, 1, dir.path());
    let start_ms = probe.clock.wall_ms() + 100;
    let options = Generate { events_per_second: 1_000, start_ms: Some(start_ms), rows: None, ..nexmark(NexmarkTable::Bid, 0) };
    let clocked = source(options.clone(), &BID[5..6]);
    let mut generator = open(&clocked, &[], &probe);
    let budget = Budget { rows: 1000, bytes: 1 << 20 };
    let mut latest = None;
    let mut rows_at = |ms| {
        probe.clock.advance_ms(ms);
        let mut rows = 0;
        while let Polled::Batch(batch) = generator.poll(budget).unwrap() {
            rows += batch.rows.num_rows();
            let times = batch.rows.column(0).as_primitive::<TimestampMillisecondType>();
            latest = Some(times.value(times.len() - 1) - start_ms);
        }
        rows
    };
    // Event n is due n ms after the start, and events 4 to 49 of 50 are bids.
    assert_eq!((rows_at(0), rows_at(103), rows_at(1), rows_at(0), rows_at(2)), (0, 0, 1, 0, 2));
    assert_eq!(rows_at(993), 20 * 46 - 3, "events to 999");
    assert_eq!(latest, Some(999));
    let unpaced = Generate { events_per_second: 0, ..options };
    assert!(check(&unpaced, &source(unpaced.clone(), &BID[5..6])).unwrap_err().message.contains("events_per_second"));
}

/// 1,000 events a second are 10 in 10 ms; of the first 10 events 6 are bids.
#[test]
fn a_paced_generator_keeps_its_pace() {
    let dir = tempfile::tempdir().unwrap();
    let paced = source(Generate { events_per_second: 1000, rows: None, ..nexmark(NexmarkTable::Bid, 0) }, &BID[..1]);
    let probe = probe(0, 1, dir.path());
    let mut generator = open(&paced, &[], &probe);
    let budget = Budget { rows: 1000, bytes: 1 << 20 };
    let mut rows_at = |ms| {
        probe.clock.advance_ms(ms);
        let mut rows = 0;
        while let Polled::Batch(batch) = generator.poll(budget).unwrap() {
            rows += batch.rows.num_rows();
        }
        assert!(generator.at_end(0));
        rows
    };
    // From the first bid, event 4: events 4 to 13, then 14 to 23, then none in half a turn.
    assert_eq!((rows_at(0), rows_at(10), rows_at(10), rows_at(5)), (0, 10, 10, 0));
    // Events below 1,004 are 20 rounds of 46 bids and four that are none; 20 bids were given.
    assert_eq!(rows_at(975), 20 * 46 - 20);
}

#[test]
fn templates_count_and_pause() {
    let dir = tempfile::tempdir().unwrap();
    let context = Some(r#"{"n": "{{counter}}", "m": {{counter}}, "text": "row {{counter}}"}"#.to_owned());
    let columns = [("n", "BIGINT"), ("m", "BIGINT"), ("text", "TEXT")];
    let options = Generate { context, interval_ms: 1000, batch_size: 4, rows: Some(10), ..NONE };
    let given = stops_anywhere(&source(options.clone(), &columns), dir.path()).all();
    assert_eq!(given.len(), 10);
    assert_eq!(given[0], r#"{"n":0,"m":0,"text":"row 0"}"#);
    assert_eq!(given[9], r#"{"n":9,"m":9,"text":"row 9"}"#);
    let probe = probe(0, 1, dir.path());
    let paced = source(options, &columns);
    let mut generator = open(&paced, &[], &probe);
    let mut given = Given::default();
    // Budget 3: a batch of 4 comes in two pieces, then a second of silence.
    assert!(!drain(generator.as_mut(), &paced, &probe, SMALL, 2, &mut given));
    assert_eq!(given.all().len(), 4);
    assert!(matches!(generator.poll(SMALL), Ok(Polled::Pending { until_ns: Some(1_000_000_000) })));
    probe.clock.advance_ms(1000);
    assert!(matches!(generator.poll(SMALL), Ok(Polled::Batch(batch)) if batch.rows.num_rows() == 3));
}

#[test]
fn wrong_options_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let message = |options: Generate, columns: &[(&str, &str)]| refused(&source(options, columns), &[], dir.path()).message;
    assert!(message(NONE, &[("a", "TEXT")]).contains("needs 'context'"));
    assert!(message(Generate { context: Some("[1]".to_owned()), ..NONE }, &[("a", "TEXT")]).contains("not a JSON object"));
    assert!(message(Generate { kind: GenerateKind::Nexmark, ..NONE }, &[("a", "TEXT")]).contains("table = 'person', 'auction' or 'bid'"));
    let bid = || nexmark(NexmarkTable::Bid, 1);
    assert!(message(bid(), &[("prize", "BIGINT")]).contains("no column 'prize'; it has auction, bidder, price"));
    assert_eq!(message(bid(), &[("price", "INTEGER")]), "generate: nexmark column 'price' is BIGINT, not INTEGER");
}
