//! Rows that lack a field of a complete index, with a default that is another value each time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use index_table::{Durability, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::raw;

fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "coins", repository = OldCoins)]
struct OldCoin {
    #[primary_key]
    id: u16,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "coins", repository = Coins)]
#[index(token, unique)]
#[index(id, strategy = "full", name = "whole", allow(redundant))]
#[aggregate(sum = [token])]
struct Coin {
    #[primary_key]
    id: u16,
    #[serde(default = "next_token")]
    token: u64,
}

fn open(dir: &tempfile::TempDir) -> Result<Store> {
    Store::options().map_size(1 << 24).durability(Durability::None).open(dir.path())
}

#[test]
fn a_repair_writes_rows_before_their_entries() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = open(&dir)?;
        let coins = OldCoins::open(&store)?;
        store.transaction(|txn| (1..=9).try_for_each(|id| coins.insert(txn, &OldCoin { id })))?;
    }
    let old = raw::on(dir.path(), "coins", |raw| raw.entries());
    drop(Coins::open(&open(&dir)?)?);
    // As if the indexes had been built from the old rows.
    raw::on(dir.path(), "coins", |raw| {
        old.iter().take(5).for_each(|(key, row)| raw.put(key, row));
    });
    let store = open(&dir)?;
    let coins = Coins::open(&store)?;
    assert!(!coins.verify(&store.read()?).run()?.is_clean());
    let repaired = store.transaction(|txn| coins.repair(txn).run())?;
    assert_eq!(repaired.left, 0, "{repaired}");
    let txn = store.read()?;
    let report = coins.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    let all = coins.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    for row in &all {
        assert_eq!(coins.get_by_token(&txn, row.token)?.as_ref(), Some(row));
    }
    assert_eq!(coins.by_whole(&txn).rows().collect::<Result<Vec<_>>>()?, all);
    let sum: i128 = all.iter().map(|row| i128::from(row.token)).sum();
    assert_eq!(coins.aggregate(&txn)?.sum_token, sum);
    Ok(())
}
