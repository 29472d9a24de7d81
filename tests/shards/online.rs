//! Online builds: indexes are built in all shards while other threads write.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use index_table::{Error, IndexState, IndexTable, Result, Store, WriteTxn};
use serde::{Deserialize, Serialize};

use crate::{
    results::{QueryValues, assert_same, of_global, of_values},
    tables::{Kind, TENANTS, by_value, global, options, with_maps_of_indexes},
};

/// The table of the other modules without indexes.
pub(crate) mod before {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "orders", view, shard_by = tenant, shard_map = "tenants")]
    pub(crate) struct Order {
        #[primary_key]
        pub(crate) tenant: u8,
        #[primary_key]
        pub(crate) number: u16,
        pub(crate) town: String,
        pub(crate) size: i8,
        pub(crate) code: u16,
        pub(crate) note: String,
        pub(crate) tags: Vec<String>,
    }
}

/// Numbers are below this one.
const NUMBERS: u16 = 20;

/// Returns the row with this key. Rows with different keys or versions have different codes.
pub(crate) fn row(tenant: u8, number: u16, version: u16) -> before::Order {
    let town = ["", "a", "ab", "b"][usize::from((number + version) % 4)].to_owned();
    let code = u16::from(tenant) + u16::from(TENANTS) * (number + NUMBERS * (version % 100));
    let (size, tags) = ((code % 5) as i8 - 2, vec![town.clone(), format!("{}", version % 3)]);
    before::Order { tenant, number, note: format!("note {town}"), town, size, code, tags }
}

/// Inserts the rows with even numbers.
pub(crate) fn fill(store: &Store) -> Result<()> {
    let orders = before::OrderRepository::open(store)?;
    store.transaction(|txn| {
        for tenant in 0..TENANTS {
            for number in (0..NUMBERS).step_by(2) {
                orders.insert(txn, &row(tenant, number, 0))?;
            }
        }
        Ok(())
    })
}

/// The number of rows that `fill` inserts.
pub(crate) const ROWS: u64 = TENANTS as u64 * NUMBERS as u64 / 2;

/// One of a few random operations.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Put(u8, u16, u16),
    Delete(u8, u16),
    /// Gives a row another key and version.
    Move((u8, u16), (u8, u16), u16),
}

/// A sequence of random transactions on the rows of every third tenant.
#[derive(Clone)]
pub(crate) struct Random {
    state: u64,
    third: u8,
    version: u16,
}

impl Random {
    pub(crate) const fn new(third: u8) -> Self {
        Self { state: 1 + third as u64, third, version: 0 }
    }

    pub(crate) fn below(&mut self, end: u16) -> u16 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) as u16 % end
    }

    fn key(&mut self) -> (u8, u16) {
        let tenant = self.below(10) as u8 * 3 + self.third;
        (tenant, self.below(NUMBERS))
    }

    fn transaction(&mut self) -> Vec<Operation> {
        self.version += 1;
        let operation = |random: &mut Self| {
            let (key, version) = (random.key(), random.version);
            match random.below(4) {
                0 => Operation::Delete(key.0, key.1),
                1 => Operation::Move(key, random.key(), version),
                _ => Operation::Put(key.0, key.1, version),
            }
        };
        (0..=self.below(2)).map(|_| operation(self)).collect()
    }
}

/// Tests with the `OrderRepository` of one of the modules.
macro_rules! tests {
    ($name:ident, $module:ident, $results:ident, $options:ident, $passes:literal) => {
        mod $name {
            use super::*;
            use $module::{Order, OrderRepository};

            fn order(tenant: u8, number: u16, version: u16) -> Order {
                let before::Order { tenant, number, town, size, code, note, tags } =
                    row(tenant, number, version);
                Order { tenant, number, town, size, code, note, tags }
            }

            fn apply(
                orders: &OrderRepository,
                txn: &mut WriteTxn<'_>,
                transaction: &[Operation],
            ) -> Result<()> {
                for operation in transaction {
                    match *operation {
                        Operation::Put(tenant, number, version) => {
                            orders.put(txn, &order(tenant, number, version))?;
                        }
                        Operation::Delete(tenant, number) => {
                            orders.delete(txn, tenant, number)?;
                        }
                        Operation::Move(from, to, version) => {
                            let moved = txn.nested(|txn| {
                                orders.update(txn, from.0, from.1, |row| {
                                    *row = order(to.0, to.1, version);
                                })
                            });
                            match moved {
                                Ok(_) | Err(Error::DuplicateKey { .. }) => {}
                                Err(error) => return Err(error),
                            }
                        }
                    }
                }
                Ok(())
            }

            fn assert_equal(one: &Store, many: &Store, what: &str) -> Result<()> {
                let (of_one, of_many) = (OrderRepository::open(one)?, OrderRepository::open(many)?);
                let (one, many) = (one.read()?, many.read()?);
                for (tenant, town) in [(3, "a"), (31, "ab")] {
                    let values = QueryValues {
                        tenant,
                        other: 17,
                        town: town.to_owned(),
                        size: 0,
                        code: 102,
                        tag: "1".to_owned(),
                        limit: 3,
                    };
                    let expected = $results(&of_one, &one, &values);
                    assert_same(&expected, &$results(&of_many, &many, &values), what);
                }
                let report = of_many.verify(&many).run()?;
                assert!(report.is_clean(), "{what}: {report}");
                Ok(())
            }

            /// Applies transactions of a third of the tenants until the build is done. Returns their number.
            fn write(
                store: &Store,
                orders: &OrderRepository,
                third: u8,
                is_done: &AtomicBool,
            ) -> Result<usize> {
                let (mut random, mut count) = (Random::new(third), 0);
                while count < 20 || !is_done.load(Ordering::Relaxed) {
                    let transaction = random.transaction();
                    store.transaction(|txn| apply(orders, txn, &transaction))?;
                    count += 1;
                }
                Ok(count)
            }

            /// Counts by an index until the build is done. It is not readable, and then has the entries of all rows.
            fn count(store: &Store, orders: &OrderRepository, is_done: &AtomicBool) -> Result<()> {
                let mut was_readable = false;
                loop {
                    let is_last = is_done.load(Ordering::Relaxed);
                    let txn = store.read()?;
                    match orders.by_town(&txn).count() {
                        Ok(count) => {
                            was_readable = true;
                            assert_eq!(count, orders.all(&txn).count()?);
                        }
                        Err(Error::IndexNotReadable { .. }) => assert!(!was_readable),
                        Err(error) => return Err(error),
                    }
                    if is_last {
                        assert!(was_readable);
                        return Ok(());
                    }
                }
            }

            fn build_during_writes(kind: Kind, shards: u8, on_disk: bool) -> Result<()> {
                let what = format!("{kind:?} over {shards} shards");
                let dir = tempfile::tempdir().expect("a directory");
                let (one, options) = (Store::in_memory(), $options(kind, shards));
                let many = if on_disk { options.open(dir.path())? } else { options.in_memory()? };
                fill(&one)?;
                fill(&many)?;
                let orders = OrderRepository::open_online(&many)?;
                assert_unreadable(&orders, &many)?;
                let is_done = AtomicBool::new(false);
                let counts = thread::scope(|scope| {
                    let (many, orders, is_done) = (&many, &orders, &is_done);
                    let writers: Vec<_> = (0..3)
                        .map(|third| scope.spawn(move || write(many, orders, third, is_done)))
                        .collect();
                    let reader = scope.spawn(move || count(many, orders, is_done));
                    let mut last = 0;
                    let report = orders.build(many).batch_bytes(400).progress(|at| {
                        assert!(at.done >= last && at.unit == "rows");
                        last = at.done;
                    });
                    let report = report.run();
                    is_done.store(true, Ordering::Relaxed);
                    let report = report?;
                    assert!(report.is_readable() && report.steps > 6, "{what}: {report}");
                    assert_eq!(
                        report.indexes.len(),
                        OrderRepository::open(many)?.usage().indexes.len()
                    );
                    assert!(last > ROWS / 2);
                    reader.join().expect("no panic")?;
                    writers
                        .into_iter()
                        .map(|it| it.join().expect("no panic"))
                        .collect::<Result<Vec<_>>>()
                })?;
                let of_one = OrderRepository::open(&one)?;
                for (third, count) in (0..).zip(counts) {
                    let mut random = Random::new(third);
                    for _ in 0..count {
                        let transaction = random.transaction();
                        one.transaction(|txn| apply(&of_one, txn, &transaction))?;
                    }
                }
                assert_equal(&one, &many, &what)
            }

            fn assert_unreadable(orders: &OrderRepository, store: &Store) -> Result<()> {
                let is_refused = |outcome: Result<u64>| {
                    matches!(outcome, Err(Error::IndexNotReadable { table: "orders", .. }))
                };
                let txn = store.read()?;
                assert!(is_refused(orders.by_town(&txn).count()));
                assert!(is_refused(orders.find_by_town(&txn, "a").count()));
                assert!(is_refused(orders.find_by_tenant_town(&txn, 3, "a").count()));
                assert!(is_refused(orders.by_tenant_code(&txn).count()));
                drop(txn);
                let refused = store.transaction(|txn| orders.find_by_town(txn, "a").count());
                assert!(is_refused(refused));
                assert!(orders.all(&store.read()?).count()? > 0);
                assert!(orders.verify(&store.read()?).run()?.is_clean());
                Ok(())
            }

            #[test]
            fn a_build_during_writes_gives_the_results_of_one_store() -> Result<()> {
                build_during_writes(Kind::Ranges, 1, true)?;
                build_during_writes(Kind::List, 5, true)?;
                build_during_writes(Kind::List, 2, false)?;
                build_during_writes(Kind::Ranges, 5, false)
            }

            #[test]
            fn an_interrupted_build_continues_after_a_kill() -> Result<()> {
                for (kind, shards) in [(Kind::Ranges, 1), (Kind::List, 2), (Kind::Ranges, 5)] {
                    let what = format!("{kind:?} over {shards} shards");
                    let dir = tempfile::tempdir().expect("a directory");
                    let mut path = dir.path().join("0");
                    let one = Store::in_memory();
                    fill(&one)?;
                    let of_one = OrderRepository::open(&one)?;
                    let mut many = $options(kind, shards).open(&path)?;
                    fill(&many)?;
                    let mut orders = OrderRepository::open_online(&many)?;
                    let (mut read, mut rounds, mut is_readable) = (0, 0, false);
                    while !is_readable {
                        rounds += 1;
                        let report = orders.build(&many).batch_bytes(600).limit(1).run()?;
                        read += report.rows;
                        is_readable = report.is_readable();
                        assert!(is_readable || orders.by_town(&many.read()?).count().is_err());
                        for tenant in (0..TENANTS).step_by(7) {
                            // The rows keep their primary keys, so each pass of a build reads each row once.
                            let changed = order(tenant, rounds * 2 % NUMBERS, rounds);
                            many.transaction(|txn| orders.put(txn, &changed))?;
                            one.transaction(|txn| of_one.put(txn, &changed))?;
                        }
                        if rounds == 2 {
                            let rows = || (0..TENANTS).map(|tenant| order(tenant, NUMBERS, 1));
                            of_one.bulk_load(&one, rows()).run()?;
                            orders.bulk_load(&many, rows()).run()?;
                            assert!(orders.verify(&many.read()?).run()?.is_clean());
                            let repair = many.transaction(|txn| orders.repair(txn).run())?;
                            assert!(repair.is_clean(), "{what}: {repair}");
                        }
                        if rounds % 3 == 0 {
                            let next = dir.path().join(format!("{rounds}"));
                            crate::opening::copy(&path, &next);
                            path = next;
                        }
                        drop((orders, many));
                        many = Store::open(&path)?;
                        orders = OrderRepository::open_online(&many)?;
                    }
                    assert!(rounds > 2, "{what}: {rounds}");
                    // Loaded rows before the position of a build are not read again.
                    let most = (ROWS + u64::from(TENANTS)) * $passes;
                    assert!((ROWS * $passes..=most).contains(&read), "{what}: {read}");
                    assert_equal(&one, &many, &what)?;
                }
                Ok(())
            }

            #[test]
            fn opening_finishes_an_interrupted_build() -> Result<()> {
                for is_in_use in [true, false] {
                    let dir = tempfile::tempdir().expect("a directory");
                    let (one, many) =
                        (Store::in_memory(), $options(Kind::Ranges, 2).open(dir.path())?);
                    fill(&one)?;
                    fill(&many)?;
                    let online = OrderRepository::open_online(&many)?;
                    let build = online.build(&many).batch_bytes(1000).limit(2);
                    build.progress(|at| assert_eq!(at.total, Some(ROWS * $passes))).run()?;
                    let many = if is_in_use {
                        many
                    } else {
                        drop((online, many));
                        Store::open(dir.path())?
                    };
                    assert_equal(&one, &many, "after an interrupted build")?;
                }
                Ok(())
            }

            #[test]
            fn a_build_without_a_shard_continues_when_the_shard_is_back() -> Result<()> {
                let dir = tempfile::tempdir().expect("a directory");
                let (one, many) = (Store::in_memory(), $options(Kind::Ranges, 2).open(dir.path())?);
                fill(&one)?;
                fill(&many)?;
                drop(many);
                let many = Store::options().only(["s0"]).open(dir.path())?;
                let orders = OrderRepository::open_online(&many)?;
                let built = orders.build(&many).run();
                assert!(matches!(built, Err(Error::ShardUnavailable { .. })), "{built:?}");
                drop((orders, many));
                let many = Store::open(dir.path())?;
                let orders = OrderRepository::open_online(&many)?;
                assert_unreadable(&orders, &many)?;
                assert!(orders.build(&many).batch_bytes(1000).run()?.is_readable());
                assert_equal(&one, &many, "after a missing shard")
            }
        }
    };
}

tests!(local, by_value, of_values, options, 1);
tests!(over_shards, global, of_global, with_maps_of_indexes, 2);

#[test]
fn an_index_is_readable_when_all_shards_have_it() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options(Kind::Ranges, 2).open(dir.path())?;
    let before = before::OrderRepository::open(&store)?;
    store.transaction(|txn| {
        before.insert(txn, &row(0, 0, 0))?;
        (0..NUMBERS).try_for_each(|number| before.insert(txn, &row(31, number, 0)))
    })?;
    drop(before);
    let orders = by_value::OrderRepository::open_online(&store)?;
    let report = orders.build(&store).batch_bytes(100).limit(2).run()?;
    assert!(!report.is_done());
    let (done, unfinished) = (store.shard("s0")?, store.shard("s1")?);
    for _ in 0..2 {
        // A transaction of one shard reads the state in this shard.
        assert_eq!(orders.find_by_tenant_town(&store.read_on(&done)?, 0, "").count()?, 1);
        let by_writer = |txn: &mut WriteTxn<'_>| orders.find_by_tenant_town(txn, 0, "").count();
        assert_eq!(store.transaction_on(&done, by_writer)?, 1);
        let refused = orders.find_by_tenant_town(&store.read_on(&unfinished)?, 31, "").count();
        assert!(matches!(refused, Err(Error::IndexNotReadable { .. })), "{refused:?}");
        // Other transactions can read the index when all shards have it, even if the query needs only one of them.
        let txn = store.read()?;
        for refused in
            [orders.find_by_tenant_town(&txn, 0, "").count(), orders.by_town(&txn).count()]
        {
            let Err(Error::IndexNotReadable { state, .. }) = refused else { panic!("{refused:?}") };
            let IndexState::Building { rows, of, .. } = state else { panic!("{state:?}") };
            assert!(rows > 0 && rows < of && of == u64::from(NUMBERS), "{rows} {of}");
        }
    }
    let state = &store.catalog()?.tables[0].indexes[0].state;
    assert!(matches!(state, IndexState::Building { .. }), "{state:?}");
    assert!(orders.build(&store).run()?.is_readable());
    assert_eq!(orders.by_town(&store.read()?).count()?, u64::from(NUMBERS) + 1);
    assert_eq!(store.catalog()?.tables[0].indexes[0].state, IndexState::Readable);
    Ok(())
}
