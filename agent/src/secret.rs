//! Values in the place of references, when a connector is opened; and out of every message again.

use crate::error::Error;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::fmt;
use std::io::Read;
use weir_planner::connector::{SinkOptions, SourceOptions};
use weir_planner::error::Class;
use weir_planner::secret::{
    MASK, Piece, Reference, is_secret, is_url, parse, shown, sink_options, source_options, url_basic, url_credentials, visit_texts,
};

/// Gives an environment variable; the environment itself is read in one place of the binary.
pub type Environment = fn(&str) -> Option<String>;

/// An environment without variables.
pub fn no_environment(_name: &str) -> Option<String> {
    None
}

/// Longest file that a reference may name.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Shorter values are left in messages: taking a letter out of every word would hide the message, not the value.
const SCRUB_BYTES_MIN: usize = 4;

/// The secrets that the connectors of one attempt have been opened with.
pub struct Secrets {
    environment: Environment,
    /// Value and what is written in its place, longest value first.
    known: Mutex<Vec<(String, String)>>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.known.lock().len())
    }
}

/// A value that no Debug output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Resolved<T>(pub T);

impl<T> fmt::Debug for Resolved<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Secrets {
    /// None are known yet.
    pub fn new(environment: Environment) -> Self {
        Secrets { environment, known: Mutex::default() }
    }

    /// The options of a source with values in the place of references. Reads files.
    ///
    /// Errors: `User`, naming option and reference, for one that leads to no value.
    pub fn source(&self, options: &SourceOptions) -> Result<Resolved<SourceOptions>, Error> {
        self.resolved(options, source_options(options))
    }

    /// The options of a sink, by the same rule.
    ///
    /// Errors: as [`Secrets::source`].
    pub fn sink(&self, options: &SinkOptions) -> Result<Resolved<SinkOptions>, Error> {
        self.resolved(options, sink_options(options))
    }

    fn resolved<T: Clone + Serialize + DeserializeOwned>(&self, options: &T, texts: Option<Json>) -> Result<Resolved<T>, Error> {
        let Some(mut texts) = texts else { return Ok(Resolved(options.clone())) };
        visit_texts(&mut texts, &mut |name, text| {
            let value = self.value(name, text)?;
            self.learn(name, text, &value);
            *text = value;
            Ok::<(), Error>(())
        })?;
        // The cause of an error here could hold a value, so it is not told.
        let options =
            serde_json::from_value(texts).map_err(|_| Error::new(Class::Bug, "options do not read back after references were replaced"));
        options.map(Resolved)
    }

    fn value(&self, name: &str, text: &str) -> Result<String, Error> {
        let pieces = parse(text).map_err(|malformed| {
            let message = format!("option '{name}' has a '${{' at character {} that {}", malformed.at, malformed.reason);
            Error::new(Class::User, message)
        })?;
        let mut value = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => value.push_str(&text),
                Piece::Reference(reference) => {
                    let found = match &reference {
                        Reference::Env(variable) => (self.environment)(variable).ok_or_else(|| {
                            "which is not set where the agent runs, or is not text; set it and start the job again".to_owned()
                        }),
                        Reference::File(path) => read(path),
                    };
                    let found =
                        found.map_err(|reason| Error::new(Class::User, format!("option '{name}' refers to {reference}, {reason}")))?;
                    self.add(&found, &reference.to_string());
                    value.push_str(&found);
                }
            }
        }
        Ok(value)
    }

    /// Remembers what of an option must not be told.
    fn learn(&self, name: &str, text: &str, value: &str) {
        if is_secret(name) && text == value {
            self.add(value, MASK);
        }
        if is_url(name) && shown(name, text) != text {
            url_credentials(value).iter().for_each(|credential| self.add(credential, MASK));
        }
        if is_url(name) {
            // A server may say back what it was sent, and it was sent user and password in this form.
            url_basic(value).iter().for_each(|sent| self.add(sent, MASK));
        }
    }

    fn add(&self, value: &str, instead: &str) {
        if value.len() < SCRUB_BYTES_MIN {
            return;
        }
        let mut known = self.known.lock();
        let quoted = value.escape_debug().to_string();
        for form in [value.to_owned(), quoted] {
            if known.iter().all(|(value, _)| *value != form) {
                known.push((form, instead.to_owned()));
            }
        }
        known.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
    }

    /// A message without the values: each is written as the reference that it came from, or as a mask.
    pub fn scrub(&self, message: String) -> String {
        let known = self.known.lock();
        known.iter().fold(
            message,
            |message, (value, instead)| if message.contains(value.as_str()) { message.replace(value.as_str(), instead) } else { message },
        )
    }
}

/// The text of a file but for one line end.
fn read(path: &str) -> Result<String, String> {
    let away = |error: std::io::Error| format!("which cannot be read on the agent's machine: {error}");
    // Opening a pipe or a device could wait for ever.
    if !std::fs::metadata(path).map_err(away)?.is_file() {
        return Err("which is not a file on the agent's machine".to_owned());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(away)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(away)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("which is longer than {FILE_BYTES_MAX} bytes"));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| "which is not UTF-8 text".to_owned())?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_planner::connector::{HttpSink, KafkaSource, Memory};

    fn environment(name: &str) -> Option<String> {
        match name {
            "TOKEN" => Some("hush-env".to_owned()),
            "QUOTED" => Some("hu\"sh\\x".to_owned()),
            "SHORT" => Some("a".to_owned()),
            _ => None,
        }
    }

    fn sink(json: serde_json::Value) -> HttpSink {
        serde_json::from_value(json).unwrap()
    }

    /// CON-3: values are put in, `$${` is a literal, one line end of a file is cut, and no message or
    /// Debug output holds a value.
    #[test]
    fn values_go_in_and_do_not_come_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pass");
        std::fs::write(&path, "hush-file\r\n").unwrap();
        let secrets = Secrets::new(environment);
        let file = format!("${{file:{}}}", path.display());
        let options = sink(serde_json::json!({
            "url": "http://u:hush-url@h/${env:SHORT}?token=hush-query",
            "headers": {"authorization": "Bearer ${env:TOKEN}", "x-key": file, "x-odd": "a$${b", "x-literal": "hush-literal", "x-q": "${env:QUOTED}"}
        }));
        let resolved = secrets.sink(&SinkOptions::Http(options)).unwrap();
        assert_eq!(format!("{resolved:?} {secrets:?}"), "*** 9 secrets");
        let SinkOptions::Http(http) = resolved.0 else { panic!() };
        assert_eq!(http.url, "http://u:hush-url@h/a?token=hush-query");
        assert_eq!(http.headers["authorization"], "Bearer hush-env");
        assert_eq!(http.headers["x-key"], "hush-file");
        assert_eq!(http.headers["x-odd"], "a${b");
        let said = format!(
            "hush-env, hush-file, {:?}, u:hush-url@, hush-url, hush-query, hush-literal, a, Basic dTpodXNoLXVybA==",
            http.headers["x-q"]
        );
        assert_eq!(secrets.scrub(said), format!("${{env:TOKEN}}, {file}, \"${{env:QUOTED}}\", ***@, ***, ***, ***, a, Basic ***"));
    }

    /// SQL-11: what cannot be found names option and reference, and is the user's to mend.
    #[test]
    fn a_reference_that_leads_nowhere_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets::new(environment);
        let long = dir.path().join("long");
        std::fs::write(&long, vec![b'x'; 65_537]).unwrap();
        let binary = dir.path().join("binary");
        std::fs::write(&binary, [0xff, 0xfe]).unwrap();
        let cases = [
            ("${env:ABSENT}".to_owned(), "which is not set where the agent runs"),
            (format!("${{file:{}}}", dir.path().join("absent").display()), "which cannot be read on the agent's machine"),
            (format!("${{file:{}}}", dir.path().display()), "which is not a file"),
            (format!("${{file:{}}}", long.display()), "which is longer than 65536 bytes"),
            (format!("${{file:{}}}", binary.display()), "which is not UTF-8 text"),
        ];
        for (reference, reason) in cases {
            let kafka: KafkaSource = serde_json::from_value(
                serde_json::json!({"brokers": ["b:1"], "topics": ["t"], "properties": {"sasl.password": format!("x{reference}")}}),
            )
            .unwrap();
            let error = secrets.source(&SourceOptions::Kafka(kafka)).unwrap_err();
            assert_eq!(error.class, Class::User);
            let expected = format!("option 'properties.sasl.password' refers to {reference}, {reason}");
            assert!(error.message.starts_with(&expected), "{}", error.message);
        }
        let memory = SourceOptions::Memory(Memory { messages: vec!["${env:ABSENT}".to_owned()] });
        assert_eq!(secrets.source(&memory).unwrap().0, memory, "rows are data");
    }
}
