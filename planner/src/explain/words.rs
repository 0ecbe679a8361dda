//! Operators, columns and routings in words.

use crate::connector::{GenerateKind, SinkOptions, SourceOptions};
use crate::expr::Aggregate;
use crate::plan::{BatchWork, MapWork, Routing, SinkWork, SortOrder, SourceWork, TopWork, WindowWork, Work};
use crate::schema::Schema;
use crate::spec::{Buffer, ErrorPolicy, LatePolicy};
use crate::window::{Aligned, Windows};

/// Columns as SQL declares them.
pub(super) fn columns(schema: &Schema) -> String {
    let one = |column: &crate::schema::Column| format!("{} {}{}", column.name, column.ty, if column.nullable { "" } else { " NOT NULL" });
    schema.0.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What an operator does.
pub(super) fn work(work: &Work) -> String {
    match work {
        Work::Source(source) => of_source(source),
        Work::Map(map) => of_map(map),
        Work::Window(window) => of_window(window),
        Work::Partial(window) => format!("partial aggregate of {}", of_window(window)),
        Work::Batch(batch) => of_batch(batch),
        Work::Top(top) => of_top(top),
        Work::Buffer(buffer) => of_buffer(buffer),
        Work::Union => "union".to_owned(),
        Work::Sink(sink) => of_sink(sink),
    }
}

fn of_source(source: &SourceWork) -> String {
    let what = match &source.options {
        SourceOptions::Generate(generate) => match (generate.kind, generate.table) {
            (GenerateKind::Nexmark, Some(table)) => format!("nexmark {table:?}").to_lowercase(),
            (GenerateKind::Nexmark, None) | (GenerateKind::Template, _) => "template".to_owned(),
        },
        SourceOptions::Values(values) => format!("{} rows", values.rows.len()),
        SourceOptions::File(file) => file.path.clone(),
        SourceOptions::Kafka(kafka) => kafka.topics.join(", "),
        SourceOptions::Memory(memory) => format!("{} messages", memory.messages.len()),
        SourceOptions::Http(http) => format!("{}{}", http.address, http.path),
    };
    let format = source.format.as_ref().map(|format| format!(" as {}", format.name())).unwrap_or_default();
    let time = match &source.time {
        None => ", processing time".to_owned(),
        Some(time) => format!(", event time {} less {} ms", time.column, time.bound_ms),
    };
    let bounded = if source.bounded { ", bounded" } else { "" };
    let late = source.time.as_ref().map_or("", |time| late(time.late));
    format!("source {} ({what}){format}{time}{late}{}{bounded}", source.options.name(), errors(source.on_error))
}

fn late(policy: LatePolicy) -> &'static str {
    match policy {
        LatePolicy::Drop => "",
        LatePolicy::Route => ", late rows routed",
        LatePolicy::Update => ", late rows update",
    }
}

fn errors(policy: ErrorPolicy) -> &'static str {
    match policy {
        ErrorPolicy::Fail => "",
        ErrorPolicy::Skip => ", errors skipped",
        ErrorPolicy::Route => ", errors routed",
    }
}

fn of_map(map: &MapWork) -> String {
    let filter = map.filter.as_ref().map(|_| "filter".to_owned());
    let project = map.project.as_ref().map(|project| format!("project {}", project.len()));
    let parts: Vec<String> = filter.into_iter().chain(project).collect();
    // A map without expressions has nothing that could fail.
    if parts.is_empty() { "map".to_owned() } else { format!("map ({}){}", parts.join(", "), errors(map.on_error)) }
}

fn of_window(window: &WindowWork) -> String {
    let mut text = format!("window {}", windows(&window.windows));
    if let Some(time) = &window.time {
        text.push_str(&format!(" on {} less {} ms", time.column, time.trail_ms));
    }
    if !window.keys.is_empty() {
        text.push_str(&format!(" by {}", window.keys.join(", ")));
    }
    text.push_str(&gives(&window.aggregates));
    if window.having.is_some() {
        text.push_str(", having");
    }
    // Also where it is nothing: a row that is waited for delays each result (C14).
    text.push_str(&format!(", lateness {} ms", window.allowed_lateness_ms));
    text.push_str(late(window.late));
    if let Some(early_ms) = window.early_ms {
        text.push_str(&format!(", early every {early_ms} ms"));
    }
    if let Some(within_ms) = window.empty_within_ms {
        text.push_str(&format!(", empty windows for {within_ms} ms"));
    }
    text
}

fn windows(windows: &Windows) -> String {
    let (text, offset_ms) = match windows {
        Windows::Session { gap_ms } => (format!("session gap {gap_ms} ms"), 0),
        Windows::Aligned(Aligned::Tumbling { size_ms, offset_ms }) => (format!("tumbling {size_ms} ms"), *offset_ms),
        Windows::Aligned(Aligned::Sliding { size_ms, slide_ms, offset_ms }) => {
            (format!("sliding {size_ms} ms every {slide_ms} ms"), *offset_ms)
        }
        Windows::Aligned(Aligned::Cumulate { max_size_ms, step_ms, offset_ms }) => {
            (format!("cumulate to {max_size_ms} ms by {step_ms} ms"), *offset_ms)
        }
        Windows::Aligned(Aligned::Calendar { days, offset_ms, zone }) => {
            (format!("tumbling {days} {} of {}", if *days == 1 { "day" } else { "days" }, zone.name()), *offset_ms)
        }
    };
    if offset_ms == 0 { text } else { format!("{text} offset {offset_ms} ms") }
}

fn of_top(top: &TopWork) -> String {
    let keys = if top.keys.is_empty() { String::new() } else { format!(" by {}", top.keys.join(", ")) };
    let one = |(column, order): &(String, SortOrder)| {
        let direction = if order.descending { " descending" } else { "" };
        let nulls = if order.nulls_first == order.descending {
            ""
        } else if order.nulls_first {
            " nulls first"
        } else {
            " nulls last"
        };
        format!("{column}{direction}{nulls}")
    };
    let order = top.order_by.iter().map(one).collect::<Vec<_>>().join(", ");
    let place = top.place.as_ref().map(|name| format!(", place as {name}")).unwrap_or_default();
    format!("top {}{keys}, ordered by {order}{place}", top.limit)
}

fn of_batch(batch: &BatchWork) -> String {
    let keys = if batch.keys.is_empty() { String::new() } else { format!(" by {}", batch.keys.join(", ")) };
    let having = if batch.having.is_some() { ", having" } else { "" };
    format!("batch{keys}{}{having}", gives(&batch.aggregates))
}

fn gives(aggregates: &[(String, Aggregate)]) -> String {
    let names: Vec<String> =
        aggregates.iter().map(|(name, aggregate)| format!("{name} = {:?}", aggregate.function).to_lowercase()).collect();
    if names.is_empty() { String::new() } else { format!(" gives {}", names.join(", ")) }
}

fn of_buffer(buffer: &Buffer) -> String {
    match buffer {
        Buffer::Memory(memory) => format!("buffer of {} rows or {} ms", memory.capacity, memory.timeout_ms),
        Buffer::Tumbling(tumbling) => format!("buffer of {} ms", tumbling.interval_ms),
        Buffer::Session(session) => format!("buffer until {} ms of silence", session.gap_ms),
    }
}

fn of_sink(sink: &SinkWork) -> String {
    let what = match &sink.options {
        SinkOptions::Stdout(_) | SinkOptions::Drop(_) | SinkOptions::Result(_) => String::new(),
        SinkOptions::File(file) => format!(" ({})", file.path),
        SinkOptions::Kafka(kafka) => format!(" ({})", kafka.topic),
        SinkOptions::Http(http) => format!(" ({})", crate::secret::shown("url", &http.url)),
    };
    let format = sink.format.as_ref().map(|format| format!(" as {}", format.name())).unwrap_or_default();
    let replaces = if sink.replaces_by.is_empty() { String::new() } else { format!(", replaces by {}", sink.replaces_by.join(", ")) };
    format!("sink {}{what}{format}{replaces}", sink.options.name())
}

/// How rows find their subtask.
pub(super) fn routing(routing: &Routing) -> String {
    match routing {
        Routing::Forward => "forward".to_owned(),
        Routing::Partitioned(keys) => format!("partitioned by {}", keys.join(", ")),
        Routing::RoundRobin => "round-robin".to_owned(),
        Routing::Broadcast => "broadcast".to_owned(),
        Routing::Deal => "dealt in turn".to_owned(),
        Routing::Collect => "collected in turn".to_owned(),
    }
}
