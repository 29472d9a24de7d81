//! A journal, its archive, and a follower of the archive.

use index_table::{Durability, Error, Follower, Store};

use super::{CustomerRepository, TestResult, customer};

#[test]
fn documented_calls_restore_an_archive_and_promote_a_follower() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let alice = customer(7, "Alice", "Smith", "Redmond");
    {
        let store = Store::options()
            .durability(Durability::Journal)
            .archive(path("backup/shop"))
            .open(path("data/shop"))?;
        let customers = CustomerRepository::open(&store)?;
        store.transaction(|txn| customers.insert(txn, &alice))?;
    } // closing the store completes the archive

    Store::restore_archive(path("backup/shop")).run(path("data/restored"))?;
    let restored = Store::open(path("data/restored"))?;
    let customers = CustomerRepository::open(&restored)?;
    assert_eq!(customers.get(&restored.read()?, 7)?.as_ref(), Some(&alice));

    let follower = Follower::open(path("data/standby"), path("backup/shop"))?;
    let customers = CustomerRepository::open(follower.store())?;
    assert_eq!(customers.get(&follower.store().read()?, 7)?, Some(alice));
    let refused = follower.store().transaction(|txn| customers.delete(txn, 7));
    assert!(matches!(refused, Err(Error::ReadOnly { .. })));
    let behind = follower.lag()?;
    assert_eq!(behind.commits, 0);
    let store: Store = follower.promote()?;
    assert!(store.transaction(|txn| customers.delete(txn, 7))?);
    assert_eq!(customers.get(&store.read()?, 7)?, None);
    Ok(())
}
