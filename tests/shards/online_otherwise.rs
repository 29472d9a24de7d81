//! Online builds of indexes with duplicates, of other kinds of tables, after errors and after kills.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use index_table::{Error, IndexState, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::{
    online::{ROWS, Random, before, fill, row},
    tables::{Kind, TENANTS, by_value, global, options, with_maps_of_indexes},
};

/// Orders whose codes are not unique over tenants.
mod duplicates {
    use super::*;
    use global::{Order, OrderRepository};

    fn order(tenant: u8, number: u16, code: u16) -> Order {
        let (town, note) = ("a".to_owned(), format!("note {}", code % 3));
        Order { tenant, number, town, size: 0, code, note, tags: Vec::new() }
    }

    /// Returns the code of a row: a code that rows of other tenants have too, or a code of its own.
    fn code(tenant: u8, number: u16, is_shared: bool) -> u16 {
        if is_shared { number } else { 1000 + u16::from(tenant) * 100 + number }
    }

    /// Makes a random change, and returns its outcome.
    fn change(store: &Store, orders: &OrderRepository, random: &mut Random) -> String {
        let (tenant, number) = (random.below(6) as u8 * 6, random.below(6));
        let (to, is_shared) = (random.below(6) as u8 * 6, random.below(3) > 0);
        let kind = random.below(5);
        let outcome = store.transaction(|txn| {
            let moved = order(to, number, code(to, number, is_shared));
            match kind {
                0 => orders.delete(txn, tenant, number).map(drop),
                1 => orders.update(txn, tenant, number, |row| *row = moved.clone()).map(drop),
                2 => orders.insert(txn, &moved),
                _ => orders.put(txn, &moved),
            }
        });
        outcome.map_or_else(|error| error.to_string(), |()| "done".to_owned())
    }

    fn assert_equal(
        one: (&Store, &OrderRepository),
        many: (&Store, &OrderRepository),
    ) -> Result<()> {
        let results = |(store, orders): (&Store, &OrderRepository)| {
            let txn = store.read()?;
            let report = orders.verify(&txn).run()?;
            assert!(report.is_clean(), "{report}");
            let is_refused = |outcome: Result<Option<Order>>| {
                matches!(outcome, Err(Error::IndexNotReadable { .. }))
            };
            let spots = orders.by_spot(&txn).rows().collect::<Result<Vec<_>>>().ok();
            let reversed = orders.by_spot(&txn).rev().keys().collect::<Result<Vec<_>>>().ok();
            let noted = orders.by_noted(&txn).entries().map(|entry| Ok(format!("{:?}", entry?)));
            let noted = noted.collect::<Result<Vec<_>>>().ok();
            let spot = orders.find_by_spot(&txn, 3).rows().collect::<Result<Vec<_>>>().ok();
            let is_refused = is_refused(orders.get_by_spot(&txn, 3));
            let rows = orders.all(&txn).rows().collect::<Result<Vec<_>>>()?;
            Ok::<_, Error>((spots, reversed, noted, spot, is_refused, rows))
        };
        assert_eq!(results(one)?, results(many)?);
        Ok(())
    }

    #[test]
    fn a_violated_global_index_has_the_results_of_one_store() -> Result<()> {
        for (shards, seed) in [(1, 0), (2, 1), (5, 2), (5, 3), (2, 4), (5, 5)] {
            let (one, many) = (Store::in_memory(), options(Kind::List, shards).in_memory()?);
            for store in [&one, &many] {
                let before = before::OrderRepository::open(store)?;
                store.transaction(|txn| {
                    for (tenant, number) in (0..36).step_by(6).zip([0, 1, 1, 2, 3, 3]) {
                        let Order { tenant, number, town, size, code, note, tags } =
                            order(tenant, number, number);
                        let row = before::Order { tenant, number, town, size, code, note, tags };
                        before.insert(txn, &row)?;
                    }
                    Ok(())
                })?;
            }
            let (of_one, of_many) =
                (OrderRepository::open_online(&one)?, OrderRepository::open_online(&many)?);
            let mut random = Random::new(seed);
            let mut last: Option<index_table::report::BuildReport> = None;
            for step in 0..200 {
                let mut again = random.clone();
                let expected = change(&one, &of_one, &mut random);
                assert_eq!(change(&many, &of_many, &mut again), expected);
                // Batches of few rows; both builds are at the same row.
                if step % 5 == 0 && last.as_ref().is_none_or(|last| !last.is_done()) {
                    of_one.build(&one).batch_bytes(30).limit(1).run()?;
                    last = Some(of_many.build(&many).batch_bytes(30).limit(1).run()?);
                }
                if step % 10 == 0 {
                    assert_equal((&one, &of_one), (&many, &of_many))?;
                }
            }
            let violated = last.iter().flat_map(|last| &last.indexes);
            let violated = violated.filter(|it| matches!(it.state, IndexState::Violated(_)));
            assert_eq!(violated.count(), 2, "{last:?}");
            for (store, orders) in [(&one, &of_one), (&many, &of_many)] {
                let rows = orders.all(&store.read()?).rows().collect::<Result<Vec<_>>>()?;
                for Order { tenant, number, .. } in rows {
                    let row = order(tenant, number, code(tenant, number, false));
                    store.transaction(|txn| orders.put(txn, &row))?;
                }
                assert!(orders.build(store).run()?.is_readable());
            }
            assert_equal((&one, &of_one), (&many, &of_many))?;
            let txn = many.read()?;
            assert_eq!(of_many.get_by_spot(&txn, 3)?, None);
        }
        Ok(())
    }

    #[test]
    fn a_local_index_is_violated_in_the_shards_with_duplicates() -> Result<()> {
        let store = options(Kind::Ranges, 2).in_memory()?;
        let before = before::OrderRepository::open(&store)?;
        store.transaction(|txn| {
            [(0, 1), (0, 2), (31, 1)].into_iter().try_for_each(|(tenant, number)| {
                before.insert(txn, &before::Order { code: 7, ..row(tenant, number, 0) })
            })?;
            // The build of the second shard needs more batches.
            (20..30).try_for_each(|number| before.insert(txn, &row(31, number, 0)))
        })?;
        drop(before);
        let orders = by_value::OrderRepository::open_online(&store)?;
        let report = orders.build(&store).batch_bytes(60).limit(2).run()?;
        assert!(!report.is_done(), "{report}");
        {
            // The index is violated in the first shard, and under construction in the second shard.
            let txn = store.read()?;
            let refused = orders.by_tenant_code(&txn).count();
            assert!(matches!(refused, Err(Error::IndexNotReadable { .. })), "{refused:?}");
            let txn = store.read_on(&store.shard("s0")?)?;
            assert_eq!(orders.find_by_tenant_code(&txn, 0, 7).count()?, 2);
        }
        let report = orders.build(&store).run()?;
        assert!(report.is_done() && !report.is_readable(), "{report}");
        let row =
            |tenant, number, code| by_value::Order { code, ..crate::tables::order(tenant, number) };
        let refused = store.transaction(|txn| orders.insert(txn, &row(31, 9, 7)));
        assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{refused:?}");
        // Each row of a transaction is maintained as in its shard.
        store.transaction(|txn| {
            orders.insert(txn, &row(31, 10, 1))?;
            orders.insert(txn, &row(0, 9, 7))?;
            let refused = orders.insert(txn, &row(31, 9, 7));
            assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{refused:?}");
            orders.update(txn, 0, 2, |order| order.size = 1)?;
            let refused = orders.update(txn, 31, 10, |order| order.code = 7);
            assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{refused:?}");
            Ok(())
        })?;
        {
            let txn = store.read()?;
            assert_eq!(orders.find_by_tenant_code(&txn, 0, 7).keys().count(), 3);
            assert_eq!(orders.by_tenant_code(&txn).rows().count(), 15);
            for tenant in [0, 31] {
                let refused = orders.get_by_tenant_code(&txn, tenant, 7);
                assert!(matches!(refused, Err(Error::IndexNotReadable { .. })), "{refused:?}");
            }
            assert!(orders.verify(&txn).run()?.is_clean());
        }
        store.transaction(|txn| {
            [2, 9].into_iter().try_for_each(|number| orders.delete(txn, 0, number).map(drop))
        })?;
        assert!(orders.build(&store).run()?.is_readable());
        let txn = store.read()?;
        assert!(orders.get_by_tenant_code(&txn, 0, 7)?.is_some());
        drop(txn);
        let refused = store.transaction(|txn| orders.insert(txn, &row(0, 9, 7)));
        assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{refused:?}");
        Ok(())
    }
}

mod other_tables {
    use super::*;

    mod older {
        use super::*;

        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "towns", reference)]
        pub(crate) struct Town {
            #[primary_key]
            pub(crate) code: u16,
            pub(crate) name: String,
        }

        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "bills")]
        pub(crate) struct Bill {
            #[primary_key]
            pub(crate) number: u16,
            pub(crate) amount: u16,
        }
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "towns", reference)]
    #[index(name)]
    struct Town {
        #[primary_key]
        code: u16,
        name: String,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "bills")]
    #[index(amount)]
    struct Bill {
        #[primary_key]
        number: u16,
        amount: u16,
    }

    fn fill(store: &Store) -> Result<()> {
        let (towns, bills) =
            (older::TownRepository::open(store)?, older::BillRepository::open(store)?);
        store.transaction(|txn| {
            (0..50).try_for_each(|code| {
                towns.insert(txn, &older::Town { code, name: format!("town {}", code % 7) })?;
                bills.insert(txn, &older::Bill { number: code, amount: code % 7 })
            })
        })
    }

    fn assert_copies(store: &Store, towns: &TownRepository, rows: usize) -> Result<()> {
        for shard in store.shard_ids() {
            let txn = store.read_on(&shard)?;
            assert_eq!(towns.by_name(&txn).rows().count(), rows);
            assert!(towns.verify(&txn).run()?.is_clean());
        }
        Ok(())
    }

    #[test]
    fn all_copies_of_a_reference_table_are_built_together() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let mut store = options(Kind::Ranges, 3).open(dir.path())?;
        fill(&store)?;
        for round in 0..4 {
            let towns = TownRepository::open_online(&store)?;
            towns.build(&store).batch_bytes(100).limit(1).run()?;
            for shard in store.shard_ids() {
                let refused = towns.by_name(&store.read_on(&shard)?).count();
                assert!(matches!(refused, Err(Error::IndexNotReadable { .. })), "{refused:?}");
            }
            let town = Town { code: 100 + round, name: "new".to_owned() };
            store.transaction(|txn| towns.insert(txn, &town))?;
            store.transaction(|txn| towns.update(txn, round, |town| town.name.push('x')))?;
            drop((store, towns));
            store = Store::open(dir.path())?;
        }
        let towns = TownRepository::open_online(&store)?;
        let report = towns.build(&store).run()?;
        assert!(report.is_readable() && report.rows < 50, "{report}");
        assert_copies(&store, &towns, 54)?;
        assert_eq!(towns.find_by_name(&store.read()?, "new").count()?, 4);
        Ok(())
    }

    #[test]
    fn copies_with_different_states_are_built_from_the_first_row() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let store = options(Kind::Ranges, 3).open(dir.path())?;
        fill(&store)?;
        let towns = TownRepository::open_online(&store)?;
        towns.build(&store).batch_bytes(100).limit(1).run()?;
        drop((towns, store));
        // One copy is finished by itself.
        crate::verify::alone(&dir.path().join("s1"), |store| {
            TownRepository::open(store).map(drop)
        })?;
        let store = Store::open(dir.path())?;
        let towns = TownRepository::open_online(&store)?;
        for shard in store.shard_ids() {
            assert!(towns.by_name(&store.read_on(&shard)?).count().is_err());
        }
        let report = towns.build(&store).batch_bytes(100).run()?;
        assert!(report.is_readable() && report.rows == 50, "{report}");
        assert_copies(&store, &towns, 50)
    }

    #[test]
    fn a_table_in_one_shard_is_built_there() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let store = options(Kind::Ranges, 3).place("bills", "s1").open(dir.path())?;
        fill(&store)?;
        let bills = BillRepository::open_online(&store)?;
        assert!(bills.by_amount(&store.read()?).count().is_err());
        let report = bills.build(&store).batch_bytes(20).limit(2).run()?;
        assert!(!report.is_done());
        store.transaction(|txn| bills.delete(txn, 49))?;
        drop((bills, store));
        // A read-only store finds the unfinished index.
        let store = Store::options().read_only(true).open(dir.path())?;
        assert!(matches!(BillRepository::open(&store), Err(Error::IndexNotReadable { .. })));
        let bills = BillRepository::open_online(&store)?;
        assert!(bills.by_amount(&store.read()?).count().is_err());
        assert_eq!(bills.all(&store.read()?).count()?, 49);
        drop((bills, store));
        let store = Store::open(dir.path())?;
        let bills = BillRepository::open_online(&store)?;
        assert!(bills.build(&store).run()?.is_readable());
        assert_eq!(bills.find_by_amount(&store.read()?, 0).count()?, 7);
        Ok(())
    }
}

/// The variable with the number of remaining rows at which a child process waits until it is killed.
const END: &str = "INDEX_TABLE_END_OF_BUILD";

/// The name of the test, for its child processes.
const NAME: &str = "online_otherwise::a_build_continues_after_its_process_was_killed";

/// Builds in small batches in the child process, and prints the progress.
fn build_in_child(path: &Path) -> Result<()> {
    let end: u64 = std::env::var(END).ok().and_then(|end| end.parse().ok()).expect("a number");
    let store = Store::open(path)?;
    let orders = global::OrderRepository::open_online(&store)?;
    let progress = |at: index_table::Progress| {
        let remaining = at.total.map_or(0, |total| total - at.done);
        println!("remaining {remaining} ");
        if remaining <= end {
            loop {
                thread::park();
            }
        }
    };
    orders.build(&store).batch_bytes(100).progress(progress).run().map(drop)
}

#[test]
fn a_build_continues_after_its_process_was_killed() -> Result<()> {
    if let Some(path) = std::env::var_os("INDEX_TABLE_OTHER_PROCESS") {
        return build_in_child(Path::new(&path));
    }
    let dir = tempfile::tempdir().expect("a directory");
    fill(&with_maps_of_indexes(Kind::List, 3).open(dir.path())?)?;
    // Each row counts once for the local indexes, and once for the global indexes, which are built later.
    for remaining in [2 * ROWS - 60, ROWS - 20, ROWS - 120, ROWS - 200] {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", NAME, "--nocapture"])
            .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
            .env(END, (remaining - 50).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("an output")).lines();
        let mut reported = lines.map_while(std::io::Result::ok).filter_map(|line| {
            let (_, rows) = line.split_once("remaining ")?;
            rows.split(' ').next()?.parse::<u64>().ok()
        });
        assert!(reported.any(|reported| reported <= remaining));
        child.kill().expect("killed");
        child.wait().expect("it ends");
        let store = Store::open(dir.path())?;
        let orders = global::OrderRepository::open_online(&store)?;
        assert!(orders.by_town(&store.read()?).count().is_err());
        let rename = |tenant: u8| {
            store.transaction(|txn| {
                orders.update(txn, tenant, 2, |order| order.town.push('x'))?;
                orders.update(txn, TENANTS - 1 - tenant, 4, |order| order.town.push('y'))
            })
        };
        (0..4).try_for_each(|tenant| rename(tenant).map(drop))?;
        assert!(orders.verify(&store.read()?).run()?.is_clean());
    }
    let store = Store::open(dir.path())?;
    let orders = global::OrderRepository::open_online(&store)?;
    let report = orders.build(&store).run()?;
    assert!(report.is_readable() && report.rows < ROWS, "{report}");
    assert_eq!(orders.by_town(&store.read()?).count()?, ROWS);
    assert_eq!(
        orders.find_by_town_starting_with(&store.read()?, "").entries().count() as u64,
        ROWS
    );
    assert!(orders.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[test]
fn a_build_continues_after_an_error() -> Result<()> {
    let store = options(Kind::Ranges, 2).in_memory()?;
    fill(&store)?;
    let before = before::OrderRepository::open(&store)?;
    let set = |town: &str| {
        store.transaction(|txn| before.update(txn, 20, 2, |order| order.town = town.to_owned()))
    };
    set(&"x".repeat(600))?;
    drop(before);
    let orders = by_value::OrderRepository::open_online(&store)?;
    let failed = orders.build(&store).batch_bytes(500).run();
    assert!(matches!(failed, Err(Error::KeyTooLong { index: Some("town"), .. })), "{failed:?}");
    // The other shard is complete.
    let count = |tenant, shard: &str| {
        let shard = store.shard(shard)?;
        orders.find_by_tenant_town(&store.read_on(&shard)?, tenant, "").count()
    };
    assert_eq!(count(3, "s0")?, 5);
    assert!(matches!(count(20, "s1"), Err(Error::IndexNotReadable { .. })));
    assert!(orders.by_town(&store.read()?).count().is_err());
    store.transaction(|txn| orders.update(txn, 20, 2, |order| order.town = "b".to_owned()))?;
    let report = orders.build(&store).run()?;
    assert!(report.is_readable() && report.rows < ROWS / 2, "{report}");
    assert_eq!(orders.by_town(&store.read()?).count()?, ROWS);
    assert!(orders.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[test]
fn the_scope_of_an_index_changes_online() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options(Kind::Ranges, 4).open(dir.path())?;
    fill(&store)?;
    for _ in 0..2 {
        let orders = by_value::OrderRepository::open_online(&store)?;
        assert!(orders.by_town(&store.read()?).count().is_err());
        store.transaction(|txn| orders.update(txn, 3, 2, |order| order.town.push('x')))?;
        assert!(orders.build(&store).batch_bytes(1000).run()?.is_readable());
        assert!(orders.verify(&store.read()?).run()?.is_clean());
        assert_eq!(orders.by_town(&store.read()?).count()?, ROWS);
        drop(orders);
        let orders = global::OrderRepository::open_online(&store)?;
        assert!(orders.by_town(&store.read()?).count().is_err());
        store.transaction(|txn| orders.update(txn, 3, 2, |order| order.town.push('y')))?;
        assert!(orders.build(&store).batch_bytes(1000).run()?.is_readable());
        assert!(orders.verify(&store.read()?).run()?.is_clean());
        let txn = store.read()?;
        assert_eq!(orders.find_by_town(&txn, "").count()?, ROWS / 2);
        assert_eq!(txn.stats().shards, 1);
    }
    Ok(())
}

#[test]
fn the_indexes_of_a_grown_store_are_built_online() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = Store::open(dir.path())?;
        fill(&store)?;
        let _orders = before::OrderRepository::open(&store)?;
        store.add_shard("s1", "s1")?;
        store.move_range("tenants", TENANTS / 2.., "s1").run()?;
    }
    let store = Store::open(dir.path())?;
    let orders = global::OrderRepository::open_online(&store)?;
    let refused = orders.by_town(&store.read()?).count();
    assert!(matches!(refused, Err(Error::IndexNotReadable { .. })), "{refused:?}");
    let before::Order { number, town, size, code, note, tags, .. } = row(TENANTS, 1, 99);
    let new = global::Order { tenant: TENANTS, number, town, size, code, note, tags };
    store.transaction(|txn| orders.insert(txn, &new))?;
    let report = orders.build(&store).batch_bytes(1000).run()?;
    // Each row is read for the local index in its shard, and then for the global indexes.
    assert!(report.is_readable() && report.rows == 2 * (ROWS + 1), "{report}");
    assert_eq!(orders.by_town(&store.read()?).count()?, ROWS + 1);
    assert_eq!(orders.get_by_spot(&store.read()?, code)?, Some(new));
    assert!(orders.verify(&store.read()?).run()?.is_clean());
    Ok(())
}
