//! Parameters in the address of a request: none is passed over in silence.

use super::problem::Problem;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

/// A list that is always given whole, so that there is nothing to ask for in its address. A `limit`
/// that did nothing would make a client wait for pages that never come.
pub(super) struct Whole;

impl<S: Sync> FromRequestParts<S> for Whole {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Whole, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let Some(first) = query.split('&').find(|pair| !pair.is_empty()) else { return Ok(Whole) };
        let name: String = first.split('=').next().unwrap_or(first).chars().take(40).collect();
        let message = format!("this list takes no parameter '{}'", name.escape_debug());
        Err(Problem::new(StatusCode::BAD_REQUEST, "bad_query", message).with_hint("leave it out: lists are given whole"))
    }
}
