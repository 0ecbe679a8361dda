//! The REST door.

use super::{PATIENCE, block_on};
use reqwest::{Client, Method};
use serde_json::Value;

/// A client of one server.
pub struct Rest {
    client: Client,
    base: String,
}

/// Status and body; a body that is not JSON is a JSON string.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: String,
    /// Body.
    pub body: Value,
}

impl Answer {
    /// The answer, when it has the status; panics with the body otherwise.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", serde_json::to_string_pretty(&self.body).unwrap());
        self.body
    }
}

impl Rest {
    /// A client of `http://host:port`.
    pub fn new(base: &str) -> Rest {
        Rest { client: Client::builder().timeout(PATIENCE).no_proxy().build().unwrap(), base: base.to_owned() }
    }

    /// GET.
    pub fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None)
    }

    /// POST of JSON.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, Some(("application/json", body.to_string())))
    }

    /// PUT of JSON.
    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, Some(("application/json", body.to_string())))
    }

    /// POST of YAML.
    pub fn post_yaml(&self, path: &str, body: &str) -> Answer {
        self.send(Method::POST, path, Some(("application/yaml", body.to_owned())))
    }

    /// Any request.
    pub fn send(&self, method: Method, path: &str, body: Option<(&str, String)>) -> Answer {
        let url = format!("{}{path}", self.base);
        let mut request = self.client.request(method, &url);
        if let Some((content_type, body)) = body {
            request = request.header("content-type", content_type).body(body);
        }
        let answered = async {
            let response = request.send().await?;
            let status = response.status().as_u16();
            let content_type = response.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
            Ok::<_, reqwest::Error>((status, content_type, response.text().await?))
        };
        let (status, content_type, text) = block_on(answered).unwrap_or_else(|e| panic!("{url}: {e:?}"));
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answer { status, content_type, body }
    }
}
