//! Building indexes by `open`.

use std::thread;

use index_table::{Durability, Error, IndexState, Store};

use crate::{
    TestResult, after, assert_clean, before, fill, item, on_each, plain, support::Threads,
    unreadable,
};

/// More rows than `open` builds in the transaction that declares an index.
const MANY: u32 = 4_200;

#[test]
fn opening_builds_a_large_table_in_batches() -> TestResult {
    on_each((0..MANY).map(|id| item(id, id)), |store| {
        let items = after::ItemRepository::open(store)?;
        assert_eq!(unreadable(store)?, []);
        let txn = store.read()?;
        assert_eq!(items.by_code(&txn).count()?, u64::from(MANY));
        assert_eq!(items.find_by_tags(&txn, "all").count()?, u64::from(MANY));
        Ok(())
    })
}

#[test]
fn duplicates_in_a_small_table_change_nothing() -> TestResult {
    on_each((0..100).map(|id| item(id, id / 2)), |store| {
        let result = after::ItemRepository::open(store).map(drop);
        assert!(matches!(result, Err(Error::UniqueViolation { index: "code", .. })), "{result:?}");
        assert_eq!(unreadable(store)?, []);
        assert_eq!(before::ItemRepository::open(store)?.all(&store.read()?).count()?, 100);
        Ok(())
    })
}

#[test]
fn duplicates_in_a_large_table_are_listed_in_the_catalog() -> TestResult {
    on_each((0..MANY).map(|id| item(id, id.max(1))), |store| {
        for _ in 0..2 {
            let result = after::ItemRepository::open(store).map(drop);
            let Err(Error::IndexNotReadable {
                index: "code", state: IndexState::Violated(_), ..
            }) = &result
            else {
                return Err(format!("{result:?}").into());
            };
            let text = result.unwrap_err().to_string();
            assert!(text.contains("`Store::catalog` lists them, `open_online` opens"), "{text}");
        }
        assert_eq!(unreadable(store)?.len(), 3, "of `code`, `coded` and `once`");
        {
            let items = after::ItemRepository::open_online(store)?;
            assert_eq!(items.by_town(&store.read()?).count()?, u64::from(MANY));
            store.transaction(|txn| items.delete(txn, 0))?;
        }
        let items = after::ItemRepository::open(store)?;
        assert_clean(&items, &store.read()?)?;
        Ok(())
    })
}

/// Both threads take part in the build. They block neither other tables nor writers.
#[test]
fn threads_that_open_a_large_table_share_the_build() -> TestResult {
    on_each((0..MANY).map(|id| item(id, id)), |store| {
        thread::scope(|scope| {
            let open = || {
                let items = after::ItemRepository::open(store)?;
                items.by_code(&store.read()?).count()?;
                store.transaction(|txn| items.insert_with_next(txn))?;
                assert_eq!(items.verify(&store.read()?).limit(500).run()?.counts.len(), 0);
                Ok::<_, Error>(())
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(open)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| panic!()))
        })?;
        Ok(())
    })
}

impl after::ItemRepository {
    /// Inserts a row after all others.
    fn insert_with_next(&self, txn: &mut index_table::WriteTxn<'_>) -> index_table::Result<()> {
        self.insert_with(txn, |id| item(id, id + 1_000_000)).map(drop)
    }
}

/// Writers maintain the entries of their own rows while another thread builds.
#[test]
fn writers_continue_during_a_build() -> TestResult {
    on_each((0..MANY).map(|id| item(id, id)), |store| {
        let items = after::ItemRepository::open_online(store)?;
        let (report, written) = thread::scope(|scope| {
            let build = scope.spawn(|| items.build(store).batch_bytes(20_000).run());
            let mut written = 0_u32;
            while !build.is_finished() {
                let row = item(MANY + written, MANY + written);
                store.transaction(|txn| {
                    items.insert(txn, &row)?;
                    items.delete(txn, written)?;
                    items.update(txn, MANY / 2 + written, |row| row.name.push('!')).map(drop)
                })?;
                written += 1;
            }
            Ok::<_, Error>((build.join().unwrap_or_else(|_| panic!())?, written))
        })?;
        assert!(report.is_readable(), "{report}");
        assert!(written > 1, "the writers waited for the end of the build");
        assert_clean(&items, &store.read()?)?;
        assert_eq!(items.by_code(&store.read()?).count()?, u64::from(MANY));
        Ok(())
    })
}

/// A thread that writes can open a table that is open already, even while another thread opens a table.
#[test]
fn a_build_does_not_wait_for_its_own_thread() -> TestResult {
    let store = Store::in_memory();
    fill(&store, (0..3).map(|id| item(id, id)))?;
    let items = before::ItemRepository::open(&store)?;
    let (txn, waiting) = (store.write()?, Threads::default());
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            waiting.enter();
            other::OtherRepository::open(&store).map(drop)
        });
        waiting.await_blocked(1);
        before::ItemRepository::open(&store)?;
        assert!(matches!(other::OtherRepository::open(&store), Err(Error::WriteInProgress)));
        drop(txn);
        other.join().unwrap_or_else(|_| panic!())
    })?;
    assert_eq!(items.all(&store.read()?).count()?, 3);
    Ok(())
}

mod other {
    #[derive(serde::Serialize, serde::Deserialize, index_table::IndexTable)]
    pub(crate) struct Other {
        #[primary_key]
        id: u32,
    }
}

/// The map becomes full in the middle of a step.
#[test]
fn a_build_enlarges_the_map() -> TestResult {
    let dir = tempfile::tempdir()?;
    let size = 1 << 20;
    let store = Store::options().map_size(size).durability(Durability::None).open(dir.path())?;
    let items = before::ItemRepository::open(&store)?;
    for ids in (0..MANY).collect::<Vec<_>>().chunks(500) {
        store.transaction(|txn| {
            ids.iter().try_for_each(|id| items.put(txn, &plain(item(*id, *id))))
        })?;
    }
    let length = || std::fs::metadata(dir.path().join("data.mdb")).map(|file| file.len());
    assert!(length()? < size as u64, "the rows alone are too large");
    drop(items);
    let items = after::ItemRepository::open_online(&store)?;
    items.build(&store).run()?;
    assert!(length()? > size as u64, "the map has not grown");
    assert_clean(&items, &store.read()?)?;
    Ok(())
}
