//! Rules on the input log of a source (WAL-1, WAL-4).

use crate::connector::{Acknowledge, SourceOptions};
use crate::error::Fault;
use crate::spec::{DurabilityBackend, DurabilitySync, Horizon, JobSpec, Source};

/// How rows of a log may be packed.
const COMPRESSIONS: [&str; 3] = ["none", "lz4", "zstd"];

pub(super) fn check(source: &Source, path: &str, faults: &mut Vec<Fault>) {
    let Some(durability) = &source.durability else { return };
    let (id, path) = (&source.operator_id, format!("{path}.durability"));
    let mut refuse = |code: &'static str, field: &str, message: String, hint: &str| {
        let place = if field.is_empty() { path.clone() } else { format!("{path}.{field}") };
        faults.push(Fault::new(code, place, message).with_hint(hint));
    };
    if durability.sync == DurabilitySync::Periodic && !durability.allow_loss {
        let message = format!("durability.sync 'periodic' of source '{id}' may lose what it took last, and allow_loss is false");
        refuse("periodic_loss", "sync", message, "set durability.allow_loss to true, or sync to group_commit");
    }
    if let Some(compression) = durability.compression.as_deref().filter(|name| !COMPRESSIONS.contains(name)) {
        let message = format!("durability.compression of source '{id}' is '{}'", compression.escape_debug());
        refuse("unknown_compression", "compression", message, "use none, lz4 or zstd");
    }
    if let Some(given) = durability.path.as_deref().filter(|path| !is_below(path)) {
        let message = format!("durability.path of source '{id}' is '{}', which is not below the data directory", given.escape_debug());
        let hint =
            "give a relative path of letters, digits, '-', '_' and '.', such as logs/orders: it is below the job's own directory for logs";
        refuse("bad_path", "path", message, hint);
    }
    if !durability.enabled {
        return;
    }
    match &source.config {
        SourceOptions::Http(http) => match http.acknowledge {
            Acknowledge::Decided => {}
            Acknowledge::Received => {
                let message = format!("source '{id}' has an input log, but acknowledge 'received' answers before the records are in it");
                let hint = "leave acknowledge out: with an input log a request is answered as soon as its records are durable";
                refuse("received_before_log", "", message, hint);
            }
        },
        SourceOptions::Generate(_)
        | SourceOptions::Values(_)
        | SourceOptions::Memory(_)
        | SourceOptions::File(_)
        | SourceOptions::Kafka(_) => {
            let kind = source.config.name();
            let message = format!("source '{id}' has an input log, but a {kind} source is read again from its position after a crash");
            let hint = "leave durability out: nothing is lost without it; it is for sources that cannot be read again, such as http";
            refuse("log_not_needed", "", message, hint);
        }
    }
}

/// A legal relative path without a way up.
fn is_below(path: &str) -> bool {
    let legal = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    path.len() <= 200 && path.split('/').all(legal)
}

/// What a log on one machine cannot keep.
pub(super) fn notice(spec: &JobSpec, source: &Source) -> Option<String> {
    let durability = source.durability.as_ref().filter(|durability| durability.enabled)?;
    (spec.horizon == Some(Horizon::Sealed) && durability.backend == DurabilityBackend::Local).then(|| {
        format!(
            "the input log of source '{}' is on the agent's disk: if that is lost, so are the rows after the last checkpoint; \
             durability.backend 'object_store' keeps them with the checkpoints",
            source.operator_id
        )
    })
}
