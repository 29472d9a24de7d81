//! Error responses.

use std::fmt::Display;

use axum::{
    Json,
    extract::rejection::{JsonRejection, PathRejection, QueryRejection},
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use index_table::{Error, MAX_KEY_LEN};
use serde::Serialize;

/// An error response: a status and `{"error": "…", "field": "email"}`, with the wrong field if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    #[serde(skip)]
    status: StatusCode,
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
}

impl Failure {
    /// Returns a response with this status and message.
    pub fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), field: None }
    }

    /// Returns 404: there is no such customer.
    #[must_use]
    pub fn no_such_customer() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such customer")
    }

    /// Returns 500. The reason is logged for the operator, and not sent to the client.
    pub fn internal(reason: impl Display) -> Self {
        eprintln!("error: {reason}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "something is wrong in the service")
    }

    /// Returns 503: the client may try again in a moment.
    #[must_use]
    pub fn unavailable(error: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// Returns the status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Adds the name of the wrong field.
    #[must_use]
    pub fn about(mut self, field: &'static str) -> Self {
        self.field = Some(field);
        self
    }
}

/// The only place where the store's errors become statuses.
/// Errors of the client have the service's own text. The store's messages name tables and indexes, and for a
/// unique index the other row, which must stay private.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::DuplicateKey { .. } => {
                Self::new(StatusCode::CONFLICT, "there is a customer with this id already")
                    .about("id")
            }
            // The index has the name of its field.
            Error::UniqueViolation { index, .. } => {
                Self::new(StatusCode::CONFLICT, format!("another customer has this {index}"))
                    .about(index)
            }
            Error::Conflict { .. } => Self::new(
                StatusCode::PRECONDITION_FAILED,
                "the customer has been changed since it was read",
            ),
            Error::KeyTooLong { len, .. } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!(
                    "a field that customers are found by is too long: its key takes {len} bytes of \
                     at most {MAX_KEY_LEN}"
                ),
            ),
            Error::InvalidCursor { reason } => Self::new(StatusCode::BAD_REQUEST, reason),
            Error::TooManyReaders { .. } => {
                Self::unavailable("too many customers are being looked up")
            }
            Error::RetriesExhausted { .. } => Self::unavailable("others change the same customers"),
            // A change may or may not be stored, so the client has to read before it tries again.
            Error::CommitUnknown { .. } => Self::internal(error),
            Error::Unreachable { .. } => {
                eprintln!("error: {error}");
                Self::unavailable("the database server can't be reached")
            }
            Error::CallsClosed => Self::unavailable("the service is being stopped"),
            Error::GrowthBlocked { .. } => {
                eprintln!("error: {error}");
                Self::unavailable("the directory has to grow, and is being read")
            }
            Error::MapFull { .. } | Error::DiskFull { .. } => {
                eprintln!("error: {error}");
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "the directory is full")
            }
            // `Error` is `non_exhaustive`: variants of later releases are unexpected until they are listed
            // above.
            error => Self::internal(error),
        }
    }
}

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for Failure {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let retry =
            (self.status == StatusCode::SERVICE_UNAVAILABLE).then_some([(RETRY_AFTER, "1")]);
        (self.status, retry, Json(self)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_details_are_not_in_the_response() {
        let reason = "unlikely words";
        for error in
            [Error::Internal { reason: reason.to_owned() }, Error::MapFull { map_size: 123_456 }]
        {
            let failure = Failure::from(error);
            assert!(failure.status.is_server_error());
            assert!(!failure.error.contains(reason) && !failure.error.contains("123"));
        }
        let (table, index) = ("customers", "email");
        let (key, holder) = ("\"a@example.com\"".to_owned(), "4711".to_owned());
        let failure = Failure::from(Error::UniqueViolation { table, index, key, holder });
        assert_eq!((failure.status, failure.field), (StatusCode::CONFLICT, Some("email")));
        assert!(!failure.error.contains("4711"), "{}", failure.error);
    }

    #[test]
    fn a_busy_response_has_retry_after() {
        let response =
            Failure::from(Error::TooManyReaders { max_readers: 1, oldest: None }).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(response.headers().contains_key(RETRY_AFTER));
    }
}
