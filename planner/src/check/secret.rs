//! Rules on the texts of connector options: references are well formed, and no mask is taken for
//! the secret that it stands for.

use crate::error::Fault;
use crate::secret::{MASK, is_url, parse, shown, sink_options, source_options, visit_texts};
use crate::spec::JobSpec;
use serde_json::Value as Json;
use std::convert::Infallible;

pub(super) fn check(spec: &JobSpec, faults: &mut Vec<Fault>) {
    for (i, source) in spec.sources.iter().enumerate() {
        let who = format!("source '{}'", source.operator_id);
        texts(source_options(&source.config), &who, &format!("sources[{i}].config"), faults);
    }
    for (i, sink) in spec.sinks.iter().enumerate() {
        let who = format!("sink '{}'", sink.operator_id);
        texts(sink_options(&sink.config), &who, &format!("sinks[{i}].config"), faults);
    }
}

fn texts(options: Option<Json>, who: &str, path: &str, faults: &mut Vec<Fault>) {
    let Some(mut options) = options else { return };
    let _: Result<(), Infallible> = visit_texts(&mut options, &mut |name, text| {
        let path = format!("{path}.{name}");
        if let Err(malformed) = parse(text) {
            // The text may be a secret: only the place in it is told.
            let message = format!("'{name}' of {who} has a '${{' at character {} that {}", malformed.at, malformed.reason);
            faults
                .push(Fault::new("bad_reference", path, message).with_hint(
                    "write ${env:NAME} or ${file:PATH}, which the agent reads when it opens the connector; a literal ${ is $${",
                ));
        } else if text == MASK || (is_url(name) && text.contains(MASK) && shown(name, text) == *text) {
            let message = format!("'{name}' of {who} is a mask, not the secret that it stands for");
            faults.push(
                Fault::new("masked_secret", path, message).with_hint("put the secret in its place, or a reference such as ${env:NAME}"),
            );
        }
        Ok(())
    });
}
