//! Secrets of connectors: which options hold one, how a document refers to one that is kept
//! elsewhere, and what of an option may be shown.
//!
//! `${env:NAME}` and `${file:PATH}` stay as text in specs, plans and everything that shows them;
//! only the agent that opens a connector puts values in their place. `$${` is a literal `${`.

use crate::connector::{SinkOptions, SourceOptions};
use serde_json::Value as Json;
use std::fmt;

/// What stands for a secret (SQL-11). A document that holds it is refused by the checks.
pub const MASK: &str = "***";

/// Names a value that is kept outside of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// An environment variable of the agent.
    Env(String),
    /// A file on the agent's machine.
    File(String),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Env(name) => write!(f, "${{env:{name}}}"),
            Reference::File(path) => write!(f, "${{file:{path}}}"),
        }
    }
}

/// A part of an option's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text as it is, with `$${` already made `${`.
    Text(String),
    /// To be replaced by a value.
    Reference(Reference),
}

/// Why a `${` is no reference. Holds nothing of the text, which may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Character that the `${` begins at, starting at 1.
    pub at: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// The pieces of an option's text.
///
/// Errors: the first `${` that is no reference.
pub fn parse(text: &str) -> Result<Vec<Piece>, Malformed> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(found) = rest.find("${") {
        let (before, from) = rest.split_at(found);
        if let Some(before) = before.strip_suffix('$') {
            literal.push_str(before);
            literal.push_str("${");
            rest = from.strip_prefix("${").unwrap_or_default();
            continue;
        }
        literal.push_str(before);
        let consumed = text.len().saturating_sub(from.len());
        let at = text.get(..consumed).unwrap_or_default().chars().count() + 1;
        let wrong = |reason| Malformed { at, reason };
        let inside = from.strip_prefix("${").unwrap_or_default();
        let (body, after) = inside.split_once('}').ok_or_else(|| wrong("is not closed by a '}'"))?;
        let reference = match body.split_once(':') {
            Some(("env", name)) if is_variable(name) => Reference::Env(name.to_owned()),
            Some(("env", _)) => return Err(wrong("does not name an environment variable (letters, digits and '_')")),
            Some(("file", path)) if !path.trim().is_empty() && !path.contains('\0') => Reference::File(path.to_owned()),
            Some(("file", _)) => return Err(wrong("does not name a file")),
            Some(_) | None => return Err(wrong("is neither an 'env:' nor a 'file:' reference")),
        };
        if !literal.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Reference(reference));
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(word)
}

/// Whether the text holds a reference, so that its value is not known before the agent opens the connector.
pub fn refers(text: &str) -> bool {
    parse(text).is_ok_and(|pieces| pieces.iter().any(|piece| matches!(piece, Piece::Reference(_))))
}

/// Whether an option of this name holds a secret; the one list for every place that shows options.
/// A name is dotted where the option lies within another: `headers.authorization`.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if name.starts_with("headers.") || name.contains(".headers.") {
        return true;
    }
    let public = name.ends_with("mechanism") || name.ends_with("location") || name.ends_with(".algorithm");
    !public
        && [
            "password", "secret", "token", "credential", "jaas", "key.pem", "keystore", "oauthbearer.config", "private_key", "access_key",
            "api_key",
        ]
        .iter()
        .any(|word| name.contains(word))
}

/// What may be shown of an option: of a secret the mask, unless all of it is kept elsewhere; of a
/// URL what is not a credential; of any other option all.
pub fn shown(name: &str, value: &str) -> String {
    if is_secret(name) {
        return if value.is_empty() || is_kept_elsewhere(value) { value.to_owned() } else { MASK.to_owned() };
    }
    if is_url(name) { shown_url(value) } else { value.to_owned() }
}

/// Whether an option of this name is a URL, which may hold credentials.
pub fn is_url(name: &str) -> bool {
    name.eq_ignore_ascii_case("url") || name.to_ascii_lowercase().ends_with(".url")
}

/// Only references, and the word before them that says how an `authorization` header is meant.
fn is_kept_elsewhere(value: &str) -> bool {
    const SCHEMES: [&str; 6] = ["", "basic", "bearer", "token", "apikey", "key"];
    let Ok(pieces) = parse(value) else { return false };
    let plain = |piece: &Piece| match piece {
        Piece::Text(text) => SCHEMES.contains(&text.trim().to_ascii_lowercase().as_str()),
        Piece::Reference(_) => true,
    };
    pieces.iter().any(|piece| matches!(piece, Piece::Reference(_))) && pieces.iter().all(plain)
}

/// Stands for a reference while a URL is taken apart: what a reference names may hold `/`, `:` and `@`.
const PLACE: char = '\u{E000}';

/// A URL without the credentials that are written into it.
fn shown_url(url: &str) -> String {
    let Ok(pieces) = parse(url) else { return MASK.to_owned() };
    let (mut flat, mut references) = (String::new(), Vec::new());
    for piece in &pieces {
        match piece {
            Piece::Text(text) if text.contains(PLACE) => return MASK.to_owned(),
            Piece::Text(text) => flat.push_str(&text.replace("${", "$${")),
            Piece::Reference(reference) => {
                flat.push(PLACE);
                references.push(reference.to_string());
            }
        }
    }
    let kept = |text: &str| !text.is_empty() && text.chars().all(|c| c == PLACE);
    let Parts { scheme, userinfo, host, path, query } = parts(&flat);
    // Masking takes places away with what surrounds them, so each is put back as its part is written.
    let mut references = references.into_iter();
    let mut text = String::new();
    let mut write = |part: &str, masked: bool| {
        for c in part.chars() {
            match c {
                PLACE => {
                    let reference = references.next().unwrap_or_default();
                    if !masked {
                        text.push_str(&reference);
                    }
                }
                other if !masked => text.push(other),
                _ => {}
            }
        }
        if masked {
            text.push_str(MASK);
        }
    };
    write(scheme, false);
    if let Some(userinfo) = userinfo {
        let password = userinfo.split_once(':').map_or(userinfo, |(_, password)| password);
        write(userinfo, !kept(password));
        write("@", false);
    }
    write(host, false);
    write(path, false);
    for (at, pair) in query.iter().flat_map(|query| query.split('&')).enumerate() {
        write(if at == 0 { "?" } else { "&" }, false);
        match pair.split_once('=') {
            Some((name, value)) if is_secret_parameter(name) && !value.is_empty() && !kept(value) => {
                write(name, false);
                write("=", false);
                write(value, true);
            }
            Some(_) | None => write(pair, false),
        }
    }
    text
}

fn is_secret_parameter(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    is_secret(&name) || ["key", "sig", "auth", "pass", "code"].iter().any(|word| name.contains(word))
}

/// A URL in its parts, separators within: put together again they give the URL, but for the `@` and `?`.
struct Parts<'a> {
    scheme: &'a str,
    userinfo: Option<&'a str>,
    host: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

fn parts(url: &str) -> Parts<'_> {
    let (before, query) = match url.split_once('?') {
        Some((before, query)) => (before, Some(query)),
        None => (url, None),
    };
    let begin = before.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = before.split_at(begin);
    let end = rest.find(['/', '#']).unwrap_or(rest.len());
    let (mut authority, mut path) = rest.split_at(end);
    // A password with an unescaped '/' ends the authority too early: then what looks like a port is none.
    let odd = authority.rsplit_once(':').is_some_and(|(_, port)| !port.chars().all(|c| c.is_ascii_digit() || c == ']' || c == PLACE));
    if !authority.contains('@')
        && odd
        && let Some(at) = rest.rfind('@')
    {
        (authority, path) = rest.split_at(rest.get(at..).and_then(|tail| tail.find('/')).map_or(rest.len(), |slash| at + slash));
    }
    match authority.rsplit_once('@') {
        Some((userinfo, host)) => Parts { scheme, userinfo: Some(userinfo), host, path, query },
        None => Parts { scheme, userinfo: None, host: authority, path, query },
    }
}

/// The credentials written into a URL: user and password together, and the password alone.
pub fn url_credentials(url: &str) -> Vec<String> {
    let parts = parts(url);
    let userinfo = parts.userinfo.unwrap_or_default();
    let password = userinfo.split_once(':').map_or("", |(_, password)| password);
    let pairs = parts.query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let values = pairs.filter(|(name, _)| is_secret_parameter(name)).map(|(_, value)| value);
    [userinfo, password].into_iter().chain(values).filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// User and password of a URL as HTTP sends them: `user:password` without percent escapes, in base 64.
pub fn url_basic(url: &str) -> Option<String> {
    let userinfo = parts(url).userinfo?;
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    let mut bytes = unescaped(user);
    bytes.push(b':');
    bytes.extend(unescaped(password));
    Some(base64(&bytes))
}

fn unescaped(text: &str) -> Vec<u8> {
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        match (byte, digit(ahead.next()), digit(ahead.next())) {
            (b'%', Some(high), Some(low)) => {
                plain.push((high << 4) | low);
                bytes = ahead;
            }
            _ => plain.push(byte),
        }
    }
    plain
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, at| (bits << 8) | chunk.get(at).map_or(0, |byte| usize::from(*byte)));
        for at in 0..4 {
            let digit = DIGITS.get((bits >> (18 - 6 * at)) & 63).copied().unwrap_or(b'=');
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// A URL as messages name it: without user, password, query and fragment.
pub fn url_place(url: &str) -> String {
    let Parts { scheme, host, path, .. } = parts(url);
    let path = path.split('#').next().unwrap_or_default();
    format!("{scheme}{host}{path}")
}

/// Text options of a source by dotted name, where they may hold references. What generate, values
/// and memory hold is data, and stays as it is.
pub fn source_options(options: &SourceOptions) -> Option<Json> {
    match options {
        SourceOptions::File(_) | SourceOptions::Kafka(_) | SourceOptions::Http(_) => serde_json::to_value(options).ok(),
        SourceOptions::Generate(_) | SourceOptions::Values(_) | SourceOptions::Memory(_) => None,
    }
}

/// Text options of a sink, by the same rule.
pub fn sink_options(options: &SinkOptions) -> Option<Json> {
    match options {
        SinkOptions::File(_) | SinkOptions::Kafka(_) | SinkOptions::Http(_) => serde_json::to_value(options).ok(),
        SinkOptions::Stdout(_) | SinkOptions::Drop(_) | SinkOptions::Result(_) => None,
    }
}

/// Calls `visit` with the dotted name and text of every text within options, but for the tag.
///
/// Errors: the first that `visit` gives.
pub fn visit_texts<E>(options: &mut Json, visit: &mut impl FnMut(&str, &mut String) -> Result<(), E>) -> Result<(), E> {
    fn walk<E>(name: &str, value: &mut Json, visit: &mut impl FnMut(&str, &mut String) -> Result<(), E>) -> Result<(), E> {
        match value {
            Json::String(text) => visit(name, text),
            Json::Array(items) => items.iter_mut().enumerate().try_for_each(|(at, item)| walk(&format!("{name}[{at}]"), item, visit)),
            Json::Object(fields) => fields.iter_mut().try_for_each(|(field, value)| {
                let inner = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                walk(&inner, value, visit)
            }),
            Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
        }
    }
    let Json::Object(fields) = options else { return Ok(()) };
    fields.iter_mut().filter(|(name, _)| *name != "type").try_for_each(|(name, value)| walk(name, value, visit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SQL-11: what a text refers to, and what it only looks like.
    #[test]
    fn references_are_found_and_literals_stay() {
        let env = |name: &str| Piece::Reference(Reference::Env(name.to_owned()));
        let text = |text: &str| Piece::Text(text.to_owned());
        let cases: [(&str, Vec<Piece>); 8] = [
            ("", vec![]),
            ("plain $ {x} $$", vec![text("plain $ {x} $$")]),
            ("${env:A_1}", vec![env("A_1")]),
            ("Bearer ${env:T}!", vec![text("Bearer "), env("T"), text("!")]),
            ("${env:A}${file:/run/a:b}", vec![env("A"), Piece::Reference(Reference::File("/run/a:b".to_owned()))]),
            ("$${env:A}", vec![text("${env:A}")]),
            ("a$$${b", vec![text("a$${b")]),
            ("é$${${env:A}", vec![text("é${"), env("A")]),
        ];
        for (from, expected) in cases {
            assert_eq!(parse(from), Ok(expected), "{from}");
        }
        for (wrong, at) in [
            ("é${env:A", 2),
            ("${env:}", 1),
            ("${env:1A}", 1),
            ("${env:A B}", 1),
            ("${file: }", 1),
            ("x${vault:a}", 2),
            ("${A}", 1),
            ("${}", 1),
        ] {
            assert_eq!(parse(wrong).map_err(|malformed| malformed.at), Err(at), "{wrong}");
        }
        assert!(refers("a${env:B}") && !refers("a$${env:B}") && !refers("${"));
    }

    /// M4, SQL-11: literals are masked, references shown, in every kind of option.
    #[test]
    fn only_what_is_no_secret_is_shown() {
        for (name, value, expected) in [
            ("token", "hush", "***"),
            ("token", "${env:T}", "${env:T}"),
            ("token", "hush${env:T}", "***"),
            ("headers.authorization", "Bearer ${env:T}", "Bearer ${env:T}"),
            ("headers.x-any", "hush", "***"),
            ("properties.sasl.password", "hush", "***"),
            ("properties.sasl.mechanism", "PLAIN", "PLAIN"),
            ("path", "/in", "/in"),
            ("url", "http://h:1/p?a=b&c", "http://h:1/p?a=b&c"),
            ("url", "http://u:hush@h/p", "http://***@h/p"),
            ("url", "http://hush@h", "http://***@h"),
            ("url", "http://u:${file:/run/a@b}@h/${env:P}", "http://u:${file:/run/a@b}@h/${env:P}"),
            ("url", "http://${env:U}:hush@${env:H}/p", "http://***@${env:H}/p"),
            ("url", "http://u:hu/sh@h/p", "http://***@h/p"),
            ("url", "http://h/@me?api_key=hush&sig=${env:S}&q=1", "http://h/@me?api_key=***&sig=${env:S}&q=1"),
            ("url", "http://h/$${x}", "http://h/$${x}"),
            ("url", "http://h/${x}", "***"),
            ("url", "http://[::1]:80/p", "http://[::1]:80/p"),
        ] {
            assert_eq!(shown(name, value), expected, "{name} = {value}");
        }
        assert_eq!(url_credentials("http://u:hush@h/p?token=t&a=b"), ["u:hush", "hush", "t"]);
        // By RFC 7617 and the alphabet of RFC 4648, with one, two and no letters to fill up.
        assert_eq!(url_basic("http://u:hush@h/p").as_deref(), Some("dTpodXNo"));
        assert_eq!(url_basic("http://u:h%75sh!@h").as_deref(), Some("dTpodXNoIQ=="));
        assert_eq!(url_basic("http://hush%@h").as_deref(), Some("aHVzaCU6"));
        assert_eq!(url_basic("http://h/p"), None);
        assert_eq!(url_place("http://u:hush@h:1/p?token=t#x"), "http://h:1/p");
    }
}
