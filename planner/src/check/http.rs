//! Rules on the options of http sources and sinks.

use super::out_of_range;
use crate::connector::{HttpSink, HttpSource, SinkOptions, SourceOptions};
use crate::error::Fault;
use crate::secret::{refers, shown, url_place};
use crate::spec::{JobSpec, Source};

/// Longest body that an http source may take.
const BODY_BYTES_MAX: u64 = 256 << 20;
/// Headers that Weir sets itself, or that belong to the connection.
const OWN_HEADERS: [&str; 8] =
    ["connection", "content-length", "content-type", "expect", "keep-alive", "te", "transfer-encoding", "upgrade"];

pub(super) fn check(spec: &JobSpec, faults: &mut Vec<Fault>) {
    for (i, entry) in spec.sources.iter().enumerate() {
        if let SourceOptions::Http(http) = &entry.config {
            source(spec, entry, http, &format!("sources[{i}].config"), faults);
        }
    }
    for (i, entry) in spec.sinks.iter().enumerate() {
        if let SinkOptions::Http(http) = &entry.config {
            sink(entry.operator_id.as_str(), http, &format!("sinks[{i}].config"), faults);
        }
    }
}

/// Rules on a source: where it listens, and that it is one task.
fn source(spec: &JobSpec, source: &Source, http: &HttpSource, path: &str, faults: &mut Vec<Fault>) {
    let who = format!("source '{}'", source.operator_id);
    if !refers(&http.address) && !is_host_port(&http.address) {
        let message = format!("the address '{}' of {who} is not host:port", http.address.escape_debug());
        faults.push(
            Fault::new("bad_address", format!("{path}.address"), message)
                .with_hint("such as 127.0.0.1:8081; port 0 takes a free one and tells it in an event"),
        );
    }
    let legal = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#');
    if !(refers(&http.path) || http.path.starts_with('/') && http.path.chars().all(legal)) {
        let message = format!("the path '{}' of {who} cannot be asked for", http.path.escape_debug());
        faults.push(
            Fault::new("bad_path", format!("{path}.path"), message)
                .with_hint("begin with '/', without spaces, '?' and '#', such as /events"),
        );
    }
    match http.token.as_deref() {
        Some("") => {
            let message = format!("the token of {who} is empty");
            faults.push(Fault::new("bad_token", format!("{path}.token"), message).with_hint("leave token out to ask for none"));
        }
        Some(token) if !refers(token) && !token.chars().all(|c| c.is_ascii_graphic()) => {
            let message = format!("the token of {who} has characters that no request header can carry");
            faults.push(Fault::new("bad_token", format!("{path}.token"), message).with_hint("use visible ASCII characters"));
        }
        Some(_) | None => {}
    }
    if !(1..=BODY_BYTES_MAX).contains(&http.max_body_bytes) {
        let range = format!("1 to {BODY_BYTES_MAX}");
        faults.push(out_of_range(format!("{path}.max_body_bytes"), "max_body_bytes", http.max_body_bytes, &range));
    }
    let at = spec.operators.iter().position(|operator| operator.id == source.operator_id);
    let asked = at.and_then(|at| spec.operators.get(at)).and_then(|operator| operator.parallelism).unwrap_or(spec.parallelism);
    if let Some(at) = at
        && asked != 1
    {
        let message = format!("{who} listens at one address and runs as one task, but its parallelism is {asked}");
        faults.push(
            Fault::new("http_parallelism", format!("operators[{at}].parallelism"), message)
                .with_hint(format!("set parallelism: 1 on operator '{}'; those after it may have more", source.operator_id)),
        );
    }
}

/// What a source asks for that is legal and seldom meant.
pub(super) fn notice(source: &Source, http: &HttpSource) -> Option<String> {
    let host = http.address.rsplit_once(':').map_or(http.address.as_str(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let local = host == "localhost" || host.parse::<core::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    (http.token.is_none() && !local && !refers(&http.address))
        .then(|| format!("source '{}' takes records from other machines without a token", source.operator_id))
}

/// Rules on a sink.
fn sink(id: &str, http: &HttpSink, path: &str, faults: &mut Vec<Fault>) {
    let who = format!("sink '{id}'");
    url(&who, &http.url, path, faults);
    for (name, value) in &http.headers {
        let path = format!("{path}.headers.{name}");
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) {
            let message = format!("'{}' of {who} is not the name of a header", name.escape_debug());
            faults.push(Fault::new("bad_header", path, message).with_hint("such as authorization or x-api-key"));
        } else if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            let message = format!("the header '{name}' of {who} is set by Weir itself");
            faults.push(Fault::new("bad_header", path, message).with_hint("leave it out"));
        } else if !refers(value) && !value.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
            // The value may be a secret.
            let message = format!("the header '{name}' of {who} has characters that no header can carry");
            faults.push(Fault::new("bad_header", path, message).with_hint("use visible ASCII characters"));
        }
    }
    for (field, value, most) in
        [("batch_rows", http.batch_rows, 1 << 20), ("timeout_ms", http.timeout_ms, 600_000), ("tries", u64::from(http.tries), 100)]
    {
        if !(1..=most).contains(&value) {
            faults.push(out_of_range(format!("{path}.{field}"), field, value, &format!("1 to {most}")));
        }
    }
}

fn url(who: &str, url: &str, path: &str, faults: &mut Vec<Fault>) {
    let open = refers(url);
    // Of a URL with references only the scheme is looked at, where it is written out.
    if open && url.find("${").is_some_and(|at| !url.get(..at).unwrap_or_default().contains("://")) {
        return;
    }
    let place = url_place(url);
    let shown = shown("url", url);
    let mut refuse = |what: &str, hint: &str| {
        let message = format!("the url '{}' of {who} {what}", shown.escape_debug());
        faults.push(Fault::new("bad_url", format!("{path}.url"), message).with_hint(hint));
    };
    if let Some(rest) = place.strip_prefix("http://") {
        if !open && (rest.is_empty() || rest.starts_with(['/', ':'])) {
            refuse("has no host", "such as http://localhost:8080/rows");
        } else if !open && url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            refuse("has spaces in it", "write a space as %20");
        }
    } else if place.starts_with("https://") {
        refuse("asks for TLS, which is not available yet", "use http://, such as to a proxy on this machine that speaks TLS onwards");
    } else {
        refuse("does not begin with http://", "such as http://localhost:8080/rows");
    }
}

/// `host:port`, the host of IPv6 in brackets.
fn is_host_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host_fits = match bare {
        Some(inside) => inside.parse::<core::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == ':' || c == '/'),
    };
    host_fits && !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok()
}
