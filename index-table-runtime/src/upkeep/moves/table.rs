//! Moves of all rows of a table without a shard key. With its first move, the table gets a [shard map](crate::model::shard) of its
//! own, in which one shard has all keys.

use super::{Move, What, refused, what_moves};
use crate::{
    model::{
        error::{Error, Result},
        schema::TableRecord,
        shard::{placed_map, placed_table},
    },
    placement::shards::{MoveRecord, TableRecord as Location},
    store::{Shards, Store},
};

impl Store {
    /// Moves all rows of a table without `shard_by` to the shard `to`, as [`move_range`](Store::move_range) does, while the store
    /// is in use: with their entries, totals, numbers of `insert_with`, and the consumers of their changes. If the table is in this shard already, nothing is done.
    ///
    /// The table stays in the shard, in all later openings of the store. It keeps no place that
    /// [`Options::place`](crate::Options::place) gave it before: give the new place, or none.
    ///
    /// A table with a reference to another table without `shard_by`, or from one, can't be moved, and neither can a table of parts
    /// (`part_of`) or a table with parts: a row and its referenced row would be in different shards. References to reference tables
    /// don't prevent a move.
    ///
    /// An error or a killed process leaves the move unfinished. See [`moves`](Store::moves) for how to continue or cancel it.
    /// See the [`run`](Move::run) of the result for the cost and the errors.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "invoices")]
    /// #[index(customer)]
    /// struct Invoice {
    ///     #[primary_key]
    ///     number: u64,
    ///     customer: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path().join("shop"))?;
    /// let invoices = InvoiceRepository::open(&store)?;
    /// store.transaction(|txn| invoices.insert(txn, &Invoice { number: 1, customer: 7 }))?;
    ///
    /// store.add_shard("billing", "billing")?;
    /// let moved = store.move_table("invoices", "billing").run()?;
    /// assert_eq!(moved.rows, 1);
    /// assert_eq!(store.shards()?[1].rows, 1);
    /// assert_eq!(invoices.find_by_customer(&store.read()?, 7).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn move_table(&self, table: &str, to: &str) -> Move<'_> {
        self.move_of(What::Table(table.to_owned()), to)
    }
}

/// Checks that all rows of a table are in one shard.
pub(super) fn check(engine: &Shards, table: &str) -> Result<()> {
    let what = what_moves(&placed_map(table));
    let reason = match engine.location_of(table) {
        Some(Location::Whole(_) | Location::Part { .. }) => return Ok(()),
        Some(Location::ByKey { map, .. }) => {
            let other = if map == table { String::new() } else { format!(" of shard map `{map}`") };
            format!("it has `shard_by`: use `move_range`{other}, `move_keys` or `move_slots`")
        }
        Some(Location::Reference) => {
            "it is a reference table, of which each shard has a copy".to_owned()
        }
        None => "the store has no such table, or it was never opened since the store has several shards: open its repository first"
            .to_owned(),
    };
    Err(refused(&what, &reason))
}

/// Returns the reason why the store has no shard map with this name.
pub(super) fn no_map(engine: &Shards, map: &str) -> Result<String> {
    match engine.location_of(map) {
        Some(Location::Whole(_) | Location::Part { .. }) => {
            Ok(format!("table `{map}` has no `shard_by`; `move_table` moves all of its rows"))
        }
        _ => engine.no_map(),
    }
}

/// Checks that no row of the table of a move would be in another shard than a row to which it refers, or that refers to it.
pub(super) fn refuse_references(engine: &Shards, record: &MoveRecord) -> Result<()> {
    let Some(table) = placed_table(&record.map).filter(|_| !record.is_switched) else {
        return Ok(());
    };
    let refuse = |reason: &str| Err(refused(&what_moves(&record.map), reason));
    if let Some(Location::Part { main, .. }) = engine.location_of(table) {
        return refuse(&format!("its rows are parts of the rows of table `{main}`"));
    }
    if let Some(part) = engine.tables_of_parts(table).first() {
        return refuse(&format!("its rows have parts in table `{part}`"));
    }
    for (name, bytes) in engine.shard(record.from)?.engine()?.catalog()? {
        // The names of the records of indexes and references have a dot.
        if name.contains('.') {
            continue;
        }
        let references = TableRecord::read(&bytes).map(|found| found.references());
        let references =
            references.map_err(|reason| Error::internal(format!("table `{name}`: {reason}")))?;
        for (reference, to) in references {
            if name == table && to != table {
                let what = format!("its reference `{reference}` refers to table `{to}`");
                match engine.location_of(&to) {
                    Some(Location::Reference) => {}
                    Some(_) => return refuse(&format!("{what}, which is in the same shard")),
                    None => return refuse(&format!("{what}: open its repository first")),
                }
            }
            if name != table && to == table {
                return refuse(&format!(
                    "the reference `{reference}` of table `{name}` refers to it"
                ));
            }
        }
    }
    Ok(())
}
