//! What processors and buffers of streams are called and take, for `weir components` (STR-4).

use super::shape::{BUFFER_KINDS, Family, PROCESSOR_KINDS};
use crate::options::shape::{Field, Kind};
use weir_planner::connector::ConnectorCard;

/// One card for each processor and buffer, as those of connectors.
pub fn cards() -> Vec<ConnectorCard> {
    let of = |family: &'static Family| {
        family.table.iter().map(|(name, object)| ConnectorCard {
            name,
            role: family.what,
            options: object.fields.iter().map(option).collect(),
        })
    };
    of(&PROCESSOR_KINDS).chain(of(&BUFFER_KINDS)).collect()
}

fn option(field: &Field) -> (&'static str, &'static str, &'static str) {
    let ty = match field.kind {
        Kind::Text | Kind::JsonText => "text",
        Kind::Id => "name",
        Kind::Bool => "boolean",
        Kind::Count | Kind::Small | Kind::Number => "integer",
        Kind::Millis | Kind::SignedMillis => "duration",
        Kind::Word(_) => "word",
        Kind::Type => "column type",
        Kind::Char => "one character",
        Kind::Commas | Kind::OneOrMany => "list of texts",
        Kind::List(Kind::Text) => "list of texts",
        Kind::List(_) => "list",
        Kind::TextMap | Kind::Object(_) | Kind::OneOf(_) => "object",
        Kind::Operator | Kind::Source | Kind::Sink | Kind::Codec | Kind::Any => "anything",
    };
    (field.name, ty, if field.required { "" } else { "none" })
}

#[cfg(test)]
mod tests {
    use super::cards;

    /// STR-4: every processor and buffer is listed once, with what it must have.
    #[test]
    fn processors_and_buffers_are_listed() {
        let cards = cards();
        let names: Vec<String> = cards.iter().map(|card| format!("{} {}", card.role, card.name)).collect();
        assert_eq!(
            names,
            [
                "processor sql", "processor json_to_arrow", "processor arrow_to_json", "processor batch", "buffer memory",
                "buffer tumbling_window", "buffer session_window"
            ]
        );
        assert_eq!(cards[0].options, [("query", "text", ""), ("table_name", "text", "none")]);
        assert_eq!(cards[5].options, [("interval_ms", "duration", "")]);
    }
}
