//! Single values by what their field takes, and how messages show and guess at texts.

use super::duration;
use super::shape::Kind;
use serde_json::Value as Json;
use weir_planner::id::OperatorId;
use weir_planner::nearest::nearest;
use weir_planner::schema::ColumnType;

/// Most characters of the user's text that a message repeats.
const SHOWN_MAX: usize = 60;

/// Code, message, hint.
type Wrong = (&'static str, String, String);

/// A single value as JSON, by what its field takes.
///
/// Errors: code, message and hint of what is wrong with it.
pub(super) fn scalar(name: &str, text: &str, kind: Kind) -> Result<Json, Wrong> {
    let shown = shown(text);
    let wrong = |what: &str, hint: &str| Err(("bad_value", format!("{name} is '{shown}', it must be {what}"), hint.to_owned()));
    match kind {
        Kind::Text => Ok(Json::from(text)),
        Kind::Id => OperatorId::new(text)
            .map(|id| Json::from(id.as_str()))
            .map_err(|fault| ("bad_name", format!("{name} '{shown}' is not a legal name"), fault.hint)),
        Kind::Bool => match text.to_ascii_lowercase().as_str() {
            "true" => Ok(Json::Bool(true)),
            "false" => Ok(Json::Bool(false)),
            _ => wrong("true or false", "write true or false"),
        },
        Kind::Count => text.trim().parse::<u64>().map(Json::from).or_else(|_| wrong("a whole number from 0", "such as 10")),
        Kind::Small => text.trim().parse::<u32>().map(Json::from).or_else(|_| wrong("a whole number from 0 to 4294967295", "such as 10")),
        Kind::Number => text.trim().parse::<i64>().map(Json::from).or_else(|_| wrong("a whole number", "such as 10")),
        Kind::Millis | Kind::SignedMillis => match duration::parse(text) {
            Ok(ms) if ms >= 0 || matches!(kind, Kind::SignedMillis) => Ok(Json::from(ms)),
            Ok(_) => wrong("a duration that is not negative", "such as 10s"),
            Err(message) => Err(("bad_duration", format!("{name}: {message}"), "such as 10s, or a number of milliseconds".to_owned())),
        },
        Kind::Word(words) => match words.iter().find(|word| **word == text) {
            Some(word) => Ok(Json::from(*word)),
            None => {
                let near = nearest(text, words.iter().copied()).map(|near| format!("did you mean '{near}'?"));
                let near = near.unwrap_or_else(|| format!("such as {}", words.first().unwrap_or(&"")));
                wrong(&format!("one of {}", words.join(", ")), &near)
            }
        },
        Kind::Type => match text.parse::<ColumnType>() {
            Ok(ty) => Ok(Json::from(ty.to_string())),
            Err(message) => Err(("bad_type", message, "use types such as BIGINT, TEXT, DOUBLE PRECISION or TIMESTAMP(3)".to_owned())),
        },
        Kind::Char => {
            let mut chars = text.chars();
            match (chars.next(), chars.next()) {
                (Some(one), None) => Ok(Json::from(one.to_string())),
                _ if text == "\\t" => Ok(Json::from("\t")),
                _ => wrong("one character", "such as \";\""),
            }
        }
        Kind::Commas
        | Kind::OneOrMany
        | Kind::TextMap
        | Kind::JsonText
        | Kind::Any
        | Kind::List(_)
        | Kind::Object(_)
        | Kind::OneOf(_)
        | Kind::Operator
        | Kind::Source
        | Kind::Sink
        | Kind::Codec => wrong("something else", ""),
    }
}

/// A text for a message: escaped, and cut where it is long.
pub fn shown(text: &str) -> String {
    let mut chars = text.char_indices();
    match chars.nth(SHOWN_MAX) {
        None => printable(text),
        Some((end, _)) => format!("{}…", printable(text.get(..end).unwrap_or_default())),
    }
}

fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_debug()) } else { out.push(c) }
    }
    out
}
