//! The lists of the rows of a table, which are recorded in a transaction of their own.
//!
//! If each transaction recorded the lists of its rows, those that write the first rows at the same time would conflict. So a
//! store records lists on another connection, before it writes a row of them. If the transaction of the row fails, the lists
//! stay without a row.
//!
//! This does not increment the catalog's counter. A transaction that has changed the catalog, such as the opening of a table,
//! holds that row until its end, and may need other lists itself: it would wait for itself. So a cached record of lists may be
//! older than the snapshot. A row of later lists makes the store read the record again.

use tokio_postgres::types::ToSql;

use super::{
    Engine,
    connection::{Response, column},
    pool::elsewhere,
    tables::prefix_of,
};
use crate::model::error::Result;

/// The maximum waiting time for a transaction that changes the same record.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 1000";

impl Engine {
    /// Reads a record of a table in the catalog, as it is now.
    pub(crate) fn record_now(&self, table: &str, part: &str) -> Result<Option<Vec<u8>>> {
        let (key, sql) = self.place_of(table, part);
        let sql = format!("SELECT v FROM {sql} WHERE k = $1");
        elsewhere(&self.pool, |connection| {
            let rows = connection.query(&sql, &[&key])?;
            let record = |row| column::<&[u8]>(row, 0).map(<[u8]>::to_vec);
            Ok(rows.first().map(record).transpose())
        })?
    }

    /// Replaces a record of a table in the catalog, if it is still `before`. Returns whether it was.
    pub(crate) fn exchange_record(
        &self,
        (table, part): (&str, &str),
        before: Option<&[u8]>,
        after: &[u8],
    ) -> Result<bool> {
        let (key, sql) = self.place_of(table, part);
        let replace = format!(
            "INSERT INTO {sql} AS s (k, v) VALUES ($1, $2) \
             ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v WHERE s.v = $3"
        );
        elsewhere(&self.pool, |connection| {
            let replace = connection.prepared(&replace)?;
            let parameters: [&(dyn ToSql + Sync); 3] = [&key, &after, &before];
            let begun = connection.send_simple(BEGIN);
            let replaced = connection.send_execute(&replace, &parameters);
            // Undoes the transaction after an error.
            let committed = connection.send_simple("COMMIT");
            begun.wait()?;
            let replaced = replaced.wait();
            let committed = committed.wait();
            let is_replaced = matches!(replaced?, Response::Count(1));
            committed?;
            Ok(is_replaced)
        })
    }

    /// Returns the key of a record, and the SQL table that has it.
    fn place_of(&self, table: &str, part: &str) -> (Vec<u8>, &str) {
        ([&prefix_of(table), part.as_bytes()].concat(), &self.catalog.relation.sql)
    }
}
