//! A random case: a windowed query, its rows by split, and the job's document.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use weir_oracle::aggregate::{Call, Function};
use weir_oracle::query::{Event, Query};
use weir_oracle::shape::Shape;
use weir_oracle::top::By;
use weir_oracle::value::{Compare, Condition, Value};

/// Names of the columns: two keys, a condition's, two of values, the event time.
pub const COLUMNS: [&str; 6] = ["k", "j", "f", "x", "y", "ts"];

/// Zones with a change of their clocks near which rows lie, ms since 1970.
const ZONES: [(&str, i64); 6] = [
    ("Europe/Berlin", 1_774_746_000_000),
    ("Europe/Berlin", 1_792_890_000_000),
    ("America/New_York", 1_741_503_600_000),
    ("Asia/Beirut", 1_616_882_400_000),
    ("Australia/Lord_Howe", 1_759_590_000_000),
    ("Asia/Kolkata", -86_400_000),
];

/// Kinds of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    SmallInt,
    Integer,
    BigInt,
    Real,
    Double,
    Decimal,
    Text,
    Boolean,
    Timestamp,
}

const KINDS: [Kind; 9] =
    [Kind::SmallInt, Kind::Integer, Kind::BigInt, Kind::Real, Kind::Double, Kind::Decimal, Kind::Text, Kind::Boolean, Kind::Timestamp];

impl Kind {
    /// As it is declared.
    pub fn declared(self) -> &'static str {
        match self {
            Kind::SmallInt => "SMALLINT",
            Kind::Integer => "INTEGER",
            Kind::BigInt => "BIGINT",
            Kind::Real => "REAL",
            Kind::Double => "DOUBLE",
            Kind::Decimal => "DECIMAL(12,2)",
            Kind::Text => "TEXT",
            Kind::Boolean => "BOOLEAN",
            Kind::Timestamp => "TIMESTAMP(3)",
        }
    }

    /// Has sums and averages.
    fn is_number(self) -> bool {
        !matches!(self, Kind::Text | Kind::Boolean | Kind::Timestamp)
    }

    fn value(self, random: &mut StdRng) -> Value {
        if random.random_range(0..10) == 0 {
            return Value::Null;
        }
        let small = random.random_range(-4..5_i64);
        let wide = random.random_range(0..6) == 0;
        match self {
            Kind::SmallInt => Value::Int(if wide { *[32_767, -32_768].choose(random).unwrap() } else { small }),
            Kind::Integer => Value::Int(if wide { *[i64::from(i32::MAX), i64::from(i32::MIN)].choose(random).unwrap() } else { small }),
            Kind::BigInt => Value::Int(if wide { small * 1_000_000_000_000_007 } else { small }),
            Kind::Real if wide => Value::Real(*[f32::NAN, -0.0, 0.0].choose(random).unwrap()),
            Kind::Real => Value::Real(small as f32 * 0.25),
            Kind::Double if wide => Value::Double(*[f64::NAN, -f64::NAN, -0.0, 0.0, f64::INFINITY].choose(random).unwrap()),
            Kind::Double => Value::Double(small as f64 * 0.1),
            Kind::Decimal => Value::Decimal(if wide { i128::from(small) * 99_999_999_999 / 4 } else { i128::from(small) * 7 }, 2),
            Kind::Text => Value::Text(["", "a", "A", "ä", "b b", "'", "\"", "ß", "zz"][(small + 4) as usize].to_owned()),
            Kind::Boolean => Value::Boolean(small > 0),
            Kind::Timestamp => Value::Time(small * 1_000_003),
        }
    }
}

/// How the event time is given.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// An integer rather than a timestamp.
    pub integer: bool,
    /// `s`, `ms`, `us`, `ns`.
    pub name: &'static str,
    /// Precision of the timestamp.
    pub precision: u8,
    /// Units in a second.
    per_second: i64,
}

impl Unit {
    /// Nanoseconds of one.
    pub fn nanos(self) -> i128 {
        1_000_000_000 / i128::from(self.per_second)
    }
}

const UNITS: [(&str, u8, i64); 4] = [("s", 0, 1), ("ms", 3, 1_000), ("us", 6, 1_000_000), ("ns", 9, 1_000_000_000)];

/// What becomes of late rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Drop,
    Route,
    Update,
}

/// What takes the window's rows.
#[derive(Clone, Debug)]
pub enum Second {
    Nothing,
    Top {
        keys: Vec<usize>,
        order: Vec<By>,
        limit: usize,
    },
    /// Its time is `window_start` rather than the last ms of the window.
    Window {
        query: Query,
        by_start: bool,
    },
}

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub query: Query,
    pub second: Second,
    pub policy: Policy,
    /// Open windows give what they have every so many ms of the clock.
    pub early_ms: Option<u64>,
    pub unit: Unit,
    pub kinds: [Kind; 5],
    pub parallelism: u32,
    pub batch_rows: usize,
    /// Live entries that a task may have; 0 is no bound.
    pub entries_max: u64,
    /// Splits in turn, each in its order.
    pub events: Vec<Event>,
}

fn pick<T: Copy>(random: &mut StdRng, of: &[T]) -> T {
    *of.choose(random).unwrap()
}

fn shape(random: &mut StdRng) -> (Shape, i64) {
    let offset = pick(random, &[0, 0, 0, 300, -1_100, 7_003, 100_000]);
    match random.random_range(0..20) {
        0..5 => (Shape::Tumbling { size: pick(random, &[1, 7, 250, 700, 1_000, 2_500, 60_000]), offset }, 1),
        5..11 => {
            let (size, slide) = match random.random_range(0..12) {
                0 => (2_003, 40 + random.random_range(0..4)),
                1 => (2_003, 2_002),
                2 => (700, 1_500),
                3 => (1_500, 1),
                4 => (1_000, 1_000),
                _ => {
                    let slide = random.random_range(1..400);
                    (slide * random.random_range(1..8) + random.random_range(0..slide), slide)
                }
            };
            (Shape::Sliding { size, slide, offset }, 1)
        }
        11..14 => {
            let step = pick(random, &[1, 10, 250, 1_000]);
            (Shape::Cumulate { size: step * random.random_range(1..9), step, offset }, 1)
        }
        14..16 => {
            let (zone, _) = pick(random, &ZONES);
            let shape = Shape::Days {
                days: pick(random, &[1, 1, 2, 7]),
                offset: pick(random, &[0, 0, 21_600_000, -5_400_000]),
                zone: zone.to_owned(),
            };
            (shape, 60_000)
        }
        _ => (Shape::Session { gap: pick(random, &[1, 40, 400, 1_000, 3_000]) }, 1),
    }
}

fn condition(random: &mut StdRng, column: usize) -> Condition {
    let compare = pick(random, &[Compare::Less, Compare::Greater, Compare::Equal]);
    Condition { column, compare, constant: Value::Int(random.random_range(-2..3)) }
}

fn calls(random: &mut StdRng, kinds: &[Kind; 5]) -> Vec<Call> {
    let mut calls = vec![Call { function: Function::Count, column: None, distinct: false, filter: None }];
    for _ in 0..random.random_range(1..5) {
        let column = random.random_range(3..5);
        let of_numbers = [Function::Sum, Function::Avg, Function::Count, Function::Min, Function::Max];
        let function = pick(random, if kinds[column].is_number() { &of_numbers } else { &of_numbers[2..] });
        let distinct = function == Function::Count && random.random_bool(0.5);
        let filter = random.random_bool(0.3).then(|| condition(random, 2));
        calls.push(Call { function, column: Some(column), distinct, filter });
    }
    calls
}

/// Whether rows for all empty windows between the rows would not be too many.
fn few_windows(shape: &Shape, scale: i64) -> bool {
    match shape {
        Shape::Tumbling { size, .. } => size / scale >= 250,
        Shape::Sliding { size, slide, .. } => slide / scale >= 100 && slide <= size,
        Shape::Cumulate { step, .. } => step / scale >= 250,
        Shape::Days { .. } => true,
        Shape::Session { .. } => false,
    }
}

/// Rows of all splits.
fn events(random: &mut StdRng, shape: &Shape, scale: i64, unit: Unit, kinds: &[Kind; 5]) -> Vec<Event> {
    let base = match shape {
        Shape::Days { zone, .. } => ZONES.iter().find(|(name, _)| name == zone).unwrap().1 - 30 * scale * 60,
        _ => pick(random, &[-4_000, -4_000, 0, -100_000, 1_700_000_000_000]),
    };
    let mut events = Vec::new();
    for split in 0..random.random_range(1..5) {
        let step = pick(random, &[1, 10, 30, 100]) * scale;
        let disorder = pick(random, &[1, 1, 100, 2_500]) * scale;
        let mut time = base + random.random_range(0..1_000) * scale;
        for _ in 0..random.random_range(0..70) {
            time += match random.random_range(0..12) {
                0..4 => 0,
                4..11 => random.random_range(0..=step),
                _ => random.random_range(0..=30 * step),
            };
            let exact = time - random.random_range(0..disorder);
            let raw = exact.div_euclid(1_000) * unit.per_second + exact.rem_euclid(1_000) * unit.per_second / 1_000;
            let raw = raw + if unit.per_second > 1_000 { random.random_range(0..unit.per_second / 1_000) } else { 0 };
            let time_ms = i128::from(raw) * 1_000;
            let time_ms = time_ms.div_euclid(i128::from(unit.per_second)) as i64;
            let timed = random.random_range(0..30) > 0;
            let mut values: Vec<Value> = kinds.iter().map(|kind| kind.value(random)).collect();
            values.push(if timed { Value::Int(raw) } else { Value::Null });
            events.push(Event { split, time_ms: timed.then_some(time_ms), values });
        }
    }
    events
}

impl Case {
    /// The case of a seed.
    pub fn new(seed: u64) -> Case {
        let mut random = StdRng::seed_from_u64(seed);
        let random = &mut random;
        let (shape, mut scale) = shape(random);
        let (name, precision, per_second) = pick(random, &UNITS);
        let unit = Unit { integer: random.random_bool(0.3), name, precision, per_second };
        if per_second == 1 {
            scale *= 20;
        }
        let kinds = [pick(random, &KINDS), pick(random, &KINDS), Kind::BigInt, pick(random, &KINDS), pick(random, &KINDS)];
        let session = matches!(shape, Shape::Session { .. });
        let policy = match random.random_range(0..10) {
            0..5 => Policy::Drop,
            5..8 => Policy::Route,
            _ if session => Policy::Drop,
            _ => Policy::Update,
        };
        let early_ms = (!session && random.random_range(0..10) == 0).then_some(10);
        // Results that come again.
        let updates = policy == Policy::Update || early_ms.is_some();
        let keys = match random.random_range(0..10) {
            0 => vec![],
            1..7 => vec![0],
            _ => vec![0, 1],
        };
        let calls = calls(random, &kinds);
        let having = (!updates && random.random_bool(0.2)).then(|| Condition {
            column: 0,
            compare: Compare::Greater,
            constant: Value::Int(random.random_range(0..4)),
        });
        let mut events = events(random, &shape, scale, unit, &kinds);
        if let Shape::Sliding { size: 1_500, slide: 1, .. } = shape {
            events.truncate(15);
        }
        let (bound_ms, lateness_ms) = (pick(random, &[0, 100, 1_000, 3_000]) * scale, pick(random, &[0, 0, 150, 1_000, 4_999]) * scale);
        let empty_within_ms =
            (!updates && keys.len() < 2 && few_windows(&shape, scale) && random.random_range(0..6) == 0).then_some(100_000 * scale);
        let query = Query { shape, keys, calls, having, bound_ms, lateness_ms, empty_within_ms };
        let second = if updates { Second::Nothing } else { second(random, &query) };
        Case {
            seed,
            second,
            policy,
            early_ms,
            unit,
            kinds,
            parallelism: pick(random, &[1, 2, 3, 8]),
            batch_rows: pick(random, &[1, 2, 3, 10, 50, 300, 4_096]),
            entries_max: 0,
            events,
            query,
        }
    }

    /// Raw rows of the source by split.
    pub fn splits(&self) -> BTreeMap<u32, Vec<Vec<Value>>> {
        let mut splits: BTreeMap<u32, Vec<Vec<Value>>> = BTreeMap::new();
        for event in &self.events {
            splits.entry(event.split).or_default().push(event.values.clone());
        }
        splits
    }

    /// The document of the job at a parallelism.
    pub fn document(&self, parallelism: u32) -> String {
        let ids = ["source", "window", "second", "sink"];
        let mut operators =
            vec![json!({"id": "source", "kind": "source"}), self.window(&self.query, "window", &COLUMNS.map(str::to_owned), "a")];
        let names = output_names(&self.query, &COLUMNS.map(str::to_owned), "a");
        match &self.second {
            Second::Nothing => {}
            Second::Top { keys, order, limit } => {
                let order: Vec<Json> = order
                    .iter()
                    .map(|by| json!({"column": names[by.column], "descending": by.descending, "nulls_first": by.nulls_first}))
                    .collect();
                let keys: Vec<&String> = keys.iter().map(|key| &names[*key]).collect();
                let config = json!({"keys": keys, "order_by": order, "limit": limit, "as": "place"});
                operators.push(json!({"id": "second", "kind": "top", "config": config}));
            }
            Second::Window { query, by_start } => {
                let mut window = self.window(query, "second", &names, "b");
                if *by_start {
                    window["config"]["timestamp_field"] = json!("window_start");
                }
                operators.push(window);
            }
        }
        let chain: Vec<&str> = ids.into_iter().filter(|id| *id != "second" || !matches!(self.second, Second::Nothing)).collect();
        let edges: Vec<Json> =
            chain.windows(2).enumerate().map(|(at, pair)| json!({"id": format!("e{at}"), "from": pair[0], "to": pair[1]})).collect();
        let mut sinks = vec![json!({"operator_id": "sink", "output_type": "result"})];
        operators.push(json!({"id": "sink", "kind": "sink"}));
        let policy = match self.policy {
            Policy::Drop => "drop",
            Policy::Route => "route",
            Policy::Update => "update",
        };
        let mut time = json!({
            "mode": "event_time", "timestamp_field": "ts", "allowed_lateness_ms": self.query.lateness_ms,
            "late_event_policy": policy, "watermark": {"out_of_orderness_ms": self.query.bound_ms},
        });
        if self.policy == Policy::Route {
            time["late_event_route"] = json!("late");
            operators.push(json!({"id": "late", "kind": "sink"}));
            sinks.push(json!({"operator_id": "late", "output_type": "file", "config": {"path": "late"}, "codec": {"type": "json"}}));
        }
        let mut schema: Vec<Json> =
            COLUMNS.iter().zip(&self.kinds).map(|(name, kind)| json!({"name": name, "type": kind.declared()})).collect();
        schema.push(if self.unit.integer {
            json!({"name": "ts", "type": "BIGINT", "timestamp_unit": self.unit.name})
        } else {
            json!({"name": "ts", "type": format!("TIMESTAMP({})", self.unit.precision)})
        });
        let source = json!({
            "operator_id": "source", "input_type": "file", "config": {"path": "in.ndjson"}, "codec": {"type": "json"},
            "schema": schema, "batch": {"rows": self.batch_rows}, "time": time,
        });
        json!({"id": "job", "parallelism": parallelism, "operators": operators, "edges": edges, "sources": [source], "sinks": sinks})
            .to_string()
    }

    fn window(&self, query: &Query, id: &str, names: &[String], prefix: &str) -> Json {
        let shape = match &query.shape {
            Shape::Tumbling { size, offset } => json!({"tumbling": {"size_ms": size, "offset_ms": offset}}),
            Shape::Sliding { size, slide, offset } => json!({"sliding": {"size_ms": size, "slide_ms": slide, "offset_ms": offset}}),
            Shape::Cumulate { size, step, offset } => json!({"cumulate": {"max_size_ms": size, "step_ms": step, "offset_ms": offset}}),
            Shape::Days { days, offset, zone } => {
                json!({"tumbling": {"size_ms": days * 86_400_000, "offset_ms": offset, "timezone": zone}})
            }
            Shape::Session { gap } => json!({"session": {"gap_ms": gap}}),
        };
        let aggregate = |(at, call): (usize, &Call)| {
            let mut one = json!({"expr": call_text(call, names), "as": format!("{prefix}{at}")});
            if let Some(filter) = &call.filter {
                one["filter"] = json!(condition_text(filter, &names[filter.column]));
            }
            one
        };
        let aggregates: Vec<Json> = query.calls.iter().enumerate().map(aggregate).collect();
        let keys: Vec<&String> = query.keys.iter().map(|key| &names[*key]).collect();
        let mut config = json!({"window": shape, "keys": keys, "aggregates": aggregates, "max_buffered_keys": self.entries_max});
        if let Some(having) = &query.having {
            config["having"] = json!(condition_text(having, &format!("{prefix}{}", having.column)));
        }
        if let Some(horizon) = query.empty_within_ms {
            config["emit_empty"] = json!({"horizon_ms": horizon});
        }
        if let (Some(early), "window") = (self.early_ms, id) {
            config["trigger"] = json!("processing_time");
            config["trigger_interval_ms"] = json!(early);
        }
        json!({"id": id, "kind": "window", "config": config})
    }
}

/// Columns of a window's rows.
fn output_names(query: &Query, names: &[String], prefix: &str) -> Vec<String> {
    let keys = query.keys.iter().map(|key| names[*key].clone());
    let bounds = ["window_start", "window_end"].map(str::to_owned);
    keys.chain(bounds).chain((0..query.calls.len()).map(|at| format!("{prefix}{at}"))).collect()
}

/// What takes the rows of a window.
fn second(random: &mut StdRng, query: &Query) -> Second {
    let counted = query.keys.len() + 2;
    match random.random_range(0..10) {
        0 => {
            let first = By { column: counted, descending: random.random(), nulls_first: random.random() };
            let other = By { column: random.random_range(0..counted), descending: random.random(), nulls_first: random.random() };
            let order = if random.random() { vec![first] } else { vec![first, other] };
            let keys = if query.keys.is_empty() || random.random() { vec![] } else { vec![0] };
            Second::Top { keys, order, limit: random.random_range(1..4) }
        }
        1 => {
            let call = |function, column| Call { function, column, distinct: false, filter: None };
            let calls = vec![
                call(Function::Count, None),
                call(Function::Sum, Some(counted)),
                call(Function::Max, Some(counted - 1)),
                call(Function::Min, Some(counted - 2)),
            ];
            let offset = pick(random, &[0, 0, 13]);
            let shape = match random.random_range(0..6) {
                0 => Shape::Session { gap: pick(random, &[10, 1_001, 3_000]) },
                1 => Shape::Sliding { size: 5_000, slide: 2_000, offset },
                _ => Shape::Tumbling { size: pick(random, &[1, 1_000, 2_500, 60_000]), offset },
            };
            let keys = if query.keys.is_empty() || random.random() { vec![] } else { vec![0] };
            let by_start = !matches!(query.shape, Shape::Session { .. }) && random.random_range(0..3) == 0;
            let query = Query { shape, keys, calls, having: None, bound_ms: 0, lateness_ms: 0, empty_within_ms: None };
            Second::Window { query, by_start }
        }
        _ => Second::Nothing,
    }
}

/// In SQL.
pub fn call_text(call: &Call, names: &[String]) -> String {
    let function = match call.function {
        Function::Count => "count",
        Function::Sum => "sum",
        Function::Avg => "avg",
        Function::Min => "min",
        Function::Max => "max",
    };
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    call.column.map_or_else(|| format!("{function}(*)"), |column| format!("{function}({distinct}{})", names[column]))
}

/// In SQL.
pub fn condition_text(condition: &Condition, name: &str) -> String {
    let compare = match condition.compare {
        Compare::Equal => "=",
        Compare::Less => "<",
        Compare::Greater => ">",
    };
    let Value::Int(constant) = condition.constant else { panic!("conditions here compare integers") };
    format!("{name} {compare} {constant}")
}
