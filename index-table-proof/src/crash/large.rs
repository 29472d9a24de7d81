//! Transactions that are too large for the journal, between others.

use std::path::Path;

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{Failure, Known, say};

/// The number of rows. Each transaction changes all of them.
const ROWS: u32 = 4;

/// A row with the number of the transaction that has written it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "large")]
#[index(transaction)]
struct Large {
    #[primary_key]
    id: u32,
    transaction: u64,
    text: String,
}

/// Returns a row of a transaction. Half of the transactions have more than 1 MiB of changes.
fn row(transaction: u64, id: u32) -> Large {
    let length = if transaction.is_multiple_of(2) { 400 << 10 } else { 40 << id };
    let letter = char::from(b'a' + (transaction % 26) as u8);
    Large { id, transaction, text: String::from(letter).repeat(length) }
}

fn open(path: &Path) -> Result<(Store, LargeRepository)> {
    let store = crate::journal().open(path.join("store"))?;
    let rows = LargeRepository::open(&store)?;
    Ok((store, rows))
}

pub(super) fn write(path: &Path) -> Result<()> {
    let (store, rows) = open(path)?;
    say("open");
    let first = rows.get(&store.read()?, 0)?.map_or(0, |row| row.transaction);
    for transaction in first + 1.. {
        store
            .transaction(|txn| (0..ROWS).try_for_each(|id| rows.put(txn, &row(transaction, id))))?;
        say("done");
    }
    Ok(())
}

/// Checks that each transaction is complete or has changed nothing.
pub(super) fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let looked = || -> Result<_> {
        let (store, rows) = open(path)?;
        store.check()?;
        let txn = store.read()?;
        let report = rows.verify(&txn).run()?;
        let last = rows.get(&txn, 0)?.map_or(0, |row| row.transaction);
        let expected = (0..if last == 0 { 0 } else { ROWS }).map(|id| row(last, id));
        let is_right = rows.all(&txn).rows().map_while(Result::ok).eq(expected);
        Ok((is_right && report.is_clean(), last))
    };
    let (is_right, last) = looked().map_err(|error| error.to_string())?;
    if !is_right {
        return Err(format!("{last} transactions, and other rows or entries than expected"));
    }
    known.find(last, 1)
}
