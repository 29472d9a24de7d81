//! The rows of a table that the commits of an archive have changed.

use std::path::Path;

use super::{
    format::nanoseconds_of,
    records::sections,
    restore::{Walked, failed},
};
use crate::{
    engine::{
        CommittedRow,
        lmdb::{
            catalog::find,
            journal::{
                changes::{Operation, Operations},
                replay::Failure,
                tail::Fault,
            },
            names::{CATALOG, Env},
            renamed::stored,
        },
    },
    model::error::Result,
};

/// The rows of a table that are changed by the commits since a time, in nanoseconds since 1970.
pub(crate) struct WatchedRows<'w> {
    pub(crate) table: &'w str,
    pub(crate) since: u64,
    pub(crate) each: &'w mut dyn FnMut(CommittedRow<'_>) -> Result<()>,
}

impl WatchedRows<'_> {
    /// Passes the rows of a record that is not applied yet. A row that it writes several times is passed each time, with the row before
    /// the record. So nothing is collected.
    pub(super) fn see(&mut self, archive: &Path, env: &Env, walked: &Walked<'_>) -> Result<()> {
        let Walked { path, file, head, record } = walked;
        if nanoseconds_of(record.time) < self.since {
            return Ok(());
        }
        let (mut outcome, commit) = (Ok(()), record.commit);
        let seen = (|| {
            let Some(catalog) = find(env, env.read_txn()?, CATALOG)? else { return Ok(()) };
            let txn = env.read_txn()?;
            // A renamed table has its former name in the file.
            let table = stored(&catalog, &txn, self.table)?;
            let rows = find(env, env.read_txn()?, &table)?;
            for offset in &record.frames {
                sections(*file, head, *offset, &mut |section| {
                    for operation in Operations::of(section.changes) {
                        let malformed = || {
                            Fault::Damaged(format!(
                                "segment {} is damaged at byte {offset}",
                                head.segment
                            ))
                        };
                        let (database, operation) = operation.map_err(|_| malformed())?;
                        let (primary_key, new) = match operation {
                            Operation::Put { key, value } => (key, Some(value)),
                            Operation::Delete { key } => (key, None),
                            Operation::Clear | Operation::Create | Operation::Drop => continue,
                        };
                        if database != table || outcome.is_err() {
                            continue;
                        }
                        let old = match &rows {
                            Some(rows) => rows.get(&txn, primary_key)?,
                            None => None,
                        };
                        outcome = (self.each)(CommittedRow { commit, primary_key, old, new });
                    }
                    Ok::<_, Failure>(())
                })?;
            }
            Ok(())
        })();
        seen.map_err(|failure| failed(archive, failure, path))?;
        outcome
    }
}
