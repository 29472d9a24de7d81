//! Errors of statements because another client has changed the SQL tables since the transaction has read the catalog.
//!
//! A transaction uses cached records of the catalog, which the server compares with its snapshot in the same round trip as the
//! statement. An index that has become unique, or is unique no longer, has other columns by then, and an index that was dropped has no
//! table. The server refuses such a statement before the records are compared. It does so as well if the table is changed between the
//! snapshot and the statement.

use super::{
    error::{self, Kind},
    patience,
    pool::elsewhere,
    session::Session,
};
use crate::model::error::Error;

impl Session<'_> {
    /// Returns the meaning of an error for this transaction, and the error for programs. If the catalog has changed since the transaction
    /// has read it, an error about a table or its columns is a conflict: the next attempt reads the catalog.
    #[cold]
    pub(super) fn meaning(&self, cause: tokio_postgres::Error) -> (Kind, Error) {
        if !self.has_one_attempt.get() {
            patience::note_failure(&cause);
        }
        let kind = error::kind(&cause);
        if kind != Kind::Refused || !error::is_of_table(&cause) || !self.is_outdated() {
            return (kind, error::of(self.pool.server(), cause));
        }
        match self.last_read.get() {
            Some(table) if !self.writes => (kind, Error::SnapshotTooOld { table }),
            _ => (Kind::Conflict, Error::RetriesExhausted { attempts: 1 }),
        }
    }

    /// Whether another client has changed the catalog since this transaction has read it.
    fn is_outdated(&self) -> bool {
        let assumed = self.assumed_at.get();
        let numbers = self.known_numbers().and_then(|numbers| numbers.changes);
        let Some(read) = numbers.or(assumed) else { return false };
        if assumed.is_some_and(|assumed| assumed != read) {
            return true;
        }
        let sql = format!("SELECT {}", self.catalog.changes());
        let now = elsewhere(self.pool, |connection| connection.simple(&sql));
        matches!(now, Ok(Some(now)) if now.parse() != Ok(read))
    }
}
