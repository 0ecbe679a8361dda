//! The one format of REST errors (API-2, API-4).

use crate::error::{Error as SqlError, sqlstate};
use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use weir_hub::error::Error as HubError;
use weir_planner::error::{Class, Fault, Place};

/// Carries the id that also stands in the body and in the log.
const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");

/// An error as a client sees it.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    code: String,
    message: String,
    path: String,
    place: Option<Place>,
    hint: String,
    errors: Vec<Fault>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Problem {
        let (code, message) = (code.to_owned(), message.into());
        Problem { status, code, message, path: String::new(), place: None, hint: String::new(), errors: Vec::new() }
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = hint.into();
        self
    }

    /// A body that is no document: 413 for one that is too large, else 400.
    pub(super) fn unreadable(faults: Vec<Fault>) -> Problem {
        let status =
            if faults.iter().any(|fault| fault.code == "too_large") { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
        Problem::faults(status, faults)
    }

    /// Faults of a job: 422 with all of them under `errors`.
    pub(super) fn invalid(faults: Vec<Fault>) -> Problem {
        Problem::faults(StatusCode::UNPROCESSABLE_ENTITY, faults)
    }

    fn faults(status: StatusCode, faults: Vec<Fault>) -> Problem {
        let Some(first) = faults.first() else { return Problem::new(status, "invalid", "the job is not valid") };
        let mut problem = Problem::new(status, &first.code, first.message.clone());
        problem.path.clone_from(&first.path);
        problem.hint.clone_from(&first.hint);
        problem.place = first.place;
        problem.errors = faults;
        problem
    }
}

fn fault(fault: &Fault) -> Value {
    json!({
        "code": fault.code,
        "message": fault.message,
        "path": fault.path,
        "line": fault.place.map(|place| place.line),
        "column": fault.place.map(|place| place.column),
        "hint": fault.hint,
    })
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let id = uuid::Uuid::new_v4().to_string();
        if self.status.is_server_error() {
            tracing::warn!(correlation_id = id, status = self.status.as_u16(), code = self.code, message = self.message, "request failed");
        } else {
            tracing::debug!(
                correlation_id = id,
                status = self.status.as_u16(),
                code = self.code,
                message = self.message,
                "request refused"
            );
        }
        let mut body = json!({
            "code": self.code,
            "message": self.message,
            "path": self.path,
            "line": self.place.map(|place| place.line),
            "column": self.place.map(|place| place.column),
            "hint": self.hint,
            "correlation_id": id,
        });
        if let (Value::Object(fields), false) = (&mut body, self.errors.is_empty()) {
            fields.insert("errors".to_owned(), self.errors.iter().map(fault).collect());
        }
        let mut response = (self.status, Json(body)).into_response();
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(CORRELATION, id);
        }
        response
    }
}

impl From<HubError> for Problem {
    fn from(error: HubError) -> Problem {
        let message = error.to_string();
        match error {
            HubError::Invalid(faults) => Problem::invalid(faults.0),
            HubError::NotFound { .. } => Problem::new(StatusCode::NOT_FOUND, "not_found", message),
            HubError::Exists { .. } => {
                Problem::new(StatusCode::CONFLICT, "exists", message).with_hint("choose another name, or drop it first")
            }
            HubError::Conflict(_) => Problem::new(StatusCode::CONFLICT, "conflict", message),
            HubError::InUse { .. } => Problem::new(StatusCode::CONFLICT, "in_use", message),
            HubError::JobFailed { .. } => Problem::new(StatusCode::CONFLICT, "job_failed", message),
            HubError::Timeout(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message),
            HubError::Refused(failure) => match failure.class {
                Class::User => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "refused", message),
                Class::Retry | Class::Fenced => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message),
                Class::Corrupt | Class::Bug => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", message),
            },
            HubError::Unavailable(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message),
            HubError::Store { class, .. } => match class {
                Class::Retry => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", message),
                Class::Fenced => Problem::new(StatusCode::CONFLICT, "fenced", message),
                Class::User | Class::Corrupt | Class::Bug => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "store_failed", message),
            },
        }
    }
}

impl Problem {
    /// An error of a statement in `text`.
    pub(super) fn of_statement(error: SqlError, text: &str) -> Problem {
        let status = match error.sqlstate {
            sqlstate::DUPLICATE_OBJECT | sqlstate::DEPENDENT_OBJECTS | sqlstate::OBJECT_NOT_IN_STATE => StatusCode::CONFLICT,
            sqlstate::CANNOT_CONNECT_NOW | sqlstate::DISK_FULL | sqlstate::QUERY_CANCELED => StatusCode::SERVICE_UNAVAILABLE,
            sqlstate::DATA_CORRUPTED | sqlstate::INTERNAL_ERROR => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let message = match error.detail {
            Some(detail) => format!("{} ({detail})", error.message),
            None => error.message,
        };
        let mut problem = Problem::new(status, error.sqlstate, message).with_hint(error.hint.unwrap_or_default());
        problem.place = error.position.map(|position| place(text, position));
        problem
    }
}

/// Line and column of a character offset from 1.
fn place(text: &str, position: usize) -> Place {
    let mut place = Place { line: 1, column: 1 };
    for c in text.chars().take(position.saturating_sub(1)) {
        if c == '\n' {
            place = Place { line: place.line + 1, column: 1 };
        } else {
            place.column += 1;
        }
    }
    place
}
