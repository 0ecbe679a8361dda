//! The link over HTTP: `POST {hub}/agent/v1/call` and `POST {hub}/agent/v1/reads/{id}?session=…`.

use super::{Link, LinkError, ReadStream};
use futures::StreamExt;
use reqwest::{Body, Client, Response, Url};
use std::time::Duration;
use weir_planner::protocol::{AgentRequest, Failure, HubResponse};

/// Says why there is no answer to a read.
const ERROR_HEADER: &str = "x-weir-error";
/// Says whether asking again can help.
const CLASS_HEADER: &str = "x-weir-class";
/// A hub that takes longer to accept a connection is away.
const CONNECT: Duration = Duration::from_secs(3);
/// Longest text of a refusal that is kept.
const TEXT_MAX: usize = 512;

/// A hub at an address.
pub struct HttpLink {
    hub: Url,
    client: Client,
}

impl HttpLink {
    /// A link to the hub at `hub`, such as `http://127.0.0.1:8089`.
    ///
    /// Errors: text that is not an `http` URL.
    pub fn new(hub: &str) -> Result<Self, LinkError> {
        let wrong = |message: String| LinkError { hub: hub.to_owned(), message };
        let url = Url::parse(hub).map_err(|e| wrong(format!("is not a URL: {e}; give one like http://127.0.0.1:8089")))?;
        if url.scheme() != "http" || url.host_str().is_none() {
            return Err(wrong("needs the form http://host:port".to_owned()));
        }
        // The hub is named by the operator: no proxy of the environment stands between.
        let client = Client::builder().no_proxy().connect_timeout(CONNECT).build().map_err(|e| wrong(e.to_string()))?;
        Ok(HttpLink { hub: url, client })
    }

    fn away(&self, error: &reqwest::Error) -> LinkError {
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            message = format!("{message}: {inner}");
            cause = inner.source();
        }
        LinkError { hub: self.hub.to_string(), message }
    }

    fn url(&self, path: &str) -> Result<Url, LinkError> {
        self.hub.join(path).map_err(|e| LinkError { hub: self.hub.to_string(), message: e.to_string() })
    }

    async fn checked(&self, response: Response) -> Result<Response, LinkError> {
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text: String = response.text().await.unwrap_or_default().chars().take(TEXT_MAX).collect();
        Err(LinkError { hub: self.hub.to_string(), message: format!("answered {status}: {text}") })
    }
}

/// Header values are one line of visible characters.
fn one_line(reason: &str) -> String {
    reason.chars().map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { ' ' }).collect()
}

#[async_trait::async_trait]
impl Link for HttpLink {
    async fn call(&self, request: AgentRequest) -> Result<HubResponse, LinkError> {
        let sent = self.client.post(self.url("/agent/v1/call")?).json(&request).send().await;
        let response = self.checked(sent.map_err(|e| self.away(&e))?).await?;
        response.json().await.map_err(|e| self.away(&e))
    }

    async fn answer(&self, session: &str, read: u64, body: Result<ReadStream, Failure>) -> Result<(), LinkError> {
        let request = self.client.post(self.url(&format!("/agent/v1/reads/{read}"))?).query(&[("session", session)]);
        let request = match body {
            // An `Err` breaks the request off, and the hub sees an incomplete body.
            Ok(stream) => request.body(Body::wrap_stream(stream.map(|chunk| chunk.map_err(std::io::Error::other)))),
            Err(failure) => {
                let class = serde_json::to_value(failure.class).ok().and_then(|class| class.as_str().map(str::to_owned));
                request.header(ERROR_HEADER, one_line(&failure.message)).header(CLASS_HEADER, class.unwrap_or_default())
            }
        };
        let response = request.send().await.map_err(|e| self.away(&e))?;
        self.checked(response).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::{HttpLink, one_line};

    #[test]
    fn only_http_urls_are_hubs() {
        assert!(HttpLink::new("http://127.0.0.1:8089").is_ok());
        for wrong in ["127.0.0.1:8089", "ftp://x", ""] {
            let Err(error) = HttpLink::new(wrong) else { panic!("{wrong} was taken") };
            assert!(error.message.contains("http://"), "{error}");
        }
    }

    #[test]
    fn reasons_fit_into_a_header() {
        assert_eq!(one_line("line one\r\nx: y \u{e9}"), "line one  x: y  ");
    }
}
