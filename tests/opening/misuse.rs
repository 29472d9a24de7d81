//! Misuse of stores, transactions and repositories.

use index_table::{Error, Store};

use super::{TestResult, other, plain};

#[test]
fn misuse_is_an_error() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let file = dir.path().join("file");
    std::fs::write(&file, "no directory")?;
    assert!(matches!(Store::open(&file), Err(Error::Io { .. })));

    let people = plain::PersonRepository::open(&store)?;
    let txn = store.write()?;
    assert!(matches!(store.write(), Err(Error::WriteInProgress)));
    assert!(plain::PersonRepository::open(&store).is_ok(), "the table can't be opened twice");
    assert!(matches!(other::OtherRepository::open(&store), Err(Error::WriteInProgress)));
    assert!(std::thread::scope(|scope| scope
        .spawn(|| store.read().is_ok())
        .join()
        .unwrap_or(false)));
    drop(txn);

    for other in [Store::open(dir.path().join("other"))?, Store::in_memory()] {
        let mut txn = other.write()?;
        let wrong = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::WrongStore { table: "people" })), "{result:?}");
        };
        wrong(people.insert(&mut txn, &plain::person(1)));
        wrong(people.get(&txn, 1).map(drop));
        wrong(people.all(&txn).count().map(drop));
        wrong(people.all(&txn).rows().collect::<Result<Vec<_>, _>>().map(drop));
    }
    Ok(())
}

#[test]
fn handles_can_be_sent_and_shared() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send>() {}
    shared::<Store>();
    shared::<plain::PersonRepository>();
    sent::<index_table::ReadTxn<'_>>();
    sent::<Error>();
    sent::<index_table::Cursor>();
}

#[test]
fn one_thread_writes_at_a_time() -> TestResult {
    let dir = tempfile::tempdir()?;
    for store in [Store::open(dir.path())?, Store::in_memory()] {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let txn = store.write();
                        assert!(matches!(store.write(), Err(Error::WriteInProgress)));
                        drop(txn);
                    }
                });
            }
        });
    }
    Ok(())
}
