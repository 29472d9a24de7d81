//! Reference tables while the first shard is detached, and attached again.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, Result, Store};

use crate::reference::{Town, TownRepository};

fn name_of(towns: &TownRepository, txn: &index_table::ReadTxn<'_>) -> Result<String> {
    Ok(towns.get(txn, 5)?.expect("the town").name)
}

#[test]
fn a_shard_that_is_being_attached_is_not_read() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options().shard("old", "old").shard("new", "new");
    let store = store.open(dir.path().join("shop"))?;
    let towns = TownRepository::open(&store)?;
    let put = |name: &str| {
        store.transaction(|txn| towns.put(txn, &Town { code: 5, name: name.to_owned() }))
    };
    put("before")?;
    let (old, new) = (store.shard("old")?, store.shard("new")?);
    store.detach_shard("old")?;
    put("after")?;
    let (attached, is_attached) = mpsc::channel();
    thread::scope(|scope| -> Result<()> {
        // Attaching waits for the lock of this shard.
        let lock = store.write_on(&new)?;
        let attaching = scope.spawn(|| {
            let outcome = store.attach_shard("old", "old");
            let _ = attached.send(());
            outcome
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            assert_eq!(name_of(&towns, &store.read()?)?, "after");
            match store.read_on(&old) {
                Err(Error::ShardUnavailable { .. }) => {}
                Ok(txn) => panic!("read: {}", name_of(&towns, &txn)?),
                Err(error) => return Err(error),
            }
            assert_eq!(store.shard_ids().len(), 1);
        }
        assert!(is_attached.try_recv().is_err(), "it does not wait");
        drop(lock);
        attaching.join().expect("no panic").map(drop)
    })?;
    assert_eq!(name_of(&towns, &store.read_on(&old)?)?, "after");
    assert!(store.verify()?.is_clean());
    Ok(())
}
