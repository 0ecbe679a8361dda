//! What each connector is called and takes, for `SHOW CONNECTORS` and `weir components`.

use weir_planner::connector::ConnectorCard;

/// One card for each connector and role: option name, type, default (empty when required,
/// `none` when it may be left out).
pub fn cards() -> Vec<ConnectorCard> {
    let card = |name, role, options: &[(&'static str, &'static str, &'static str)]| ConnectorCard { name, role, options: options.to_vec() };
    let properties = ("properties.*", "librdkafka setting", "none");
    vec![
        card(
            "generate",
            "source",
            &[
                ("kind", "'template' | 'nexmark'", "template"),
                ("context", "JSON object, {{counter}} is the row number", "none"),
                ("interval_ms", "integer", "0"),
                ("batch_size", "integer", "1"),
                ("rows", "integer", "none"),
                ("table", "'person' | 'auction' | 'bid'", "none"),
                ("events_per_second", "integer, 0 is as fast as it goes", "0"),
                ("start_ms", "integer, ms since 1970: rows come when their event time has", "none"),
                ("seed", "integer", "1"),
            ],
        ),
        card("values", "source", &[("rows", "list of rows", "")]),
        card("memory", "source", &[("messages", "list of JSON objects", "none")]),
        card("file", "source", &[("path", "path or glob", "")]),
        card(
            "kafka",
            "source",
            &[
                ("brokers", "list of host:port", ""),
                ("topics", "list of topics", ""),
                ("consumer_group", "text", "weir.<job>.<source>"),
                ("scan.start", "'earliest' | 'latest' | 'group' | 'timestamp'", "earliest"),
                ("scan.timestamp_ms", "integer", "none"),
                ("bounded", "boolean", "false"),
                properties,
            ],
        ),
        card(
            "http",
            "source",
            &[
                ("address", "host:port to listen on", ""),
                ("path", "path that takes POSTs", "/"),
                ("acknowledge", "'decided' | 'received'", "decided"),
                ("token", "bearer token of requests", "none"),
                ("max_body_bytes", "integer", "4194304"),
            ],
        ),
        card("stdout", "sink", &[]),
        card("drop", "sink", &[]),
        card("file", "sink", &[("path", "directory", "")]),
        card(
            "kafka",
            "sink",
            &[("brokers", "list of host:port", ""), ("topic", "topic", ""), ("key", "list of columns", "none"), properties],
        ),
        card(
            "http",
            "sink",
            &[
                ("url", "http://…", ""),
                ("method", "'post' | 'put'", "post"),
                ("headers.*", "request header", "none"),
                ("batch_rows", "integer", "1000"),
                ("timeout", "duration", "10s"),
                ("tries", "integer", "5"),
            ],
        ),
        card("result", "sink", &[]),
    ]
}
