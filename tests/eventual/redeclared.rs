//! Tables that are declared in another way while messages are pending.

use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

use crate::{TestResult, on_each};

macro_rules! table {
    ($name:ident, $($index:tt)*) => {
        mod $name {
            use super::{Deserialize, IndexTable, Serialize};

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "rows")]
            $($index)*
            pub(crate) struct Row {
                #[primary_key]
                pub(crate) id: String,
                pub(crate) a: String,
                pub(crate) b: u32,
            }
        }
    };
}

table!(strong, #[index(a, include = [b], name = "it")]);
table!(eventual, #[index(a, include = [b], name = "it", consistency = "eventual")]);
table!(other, #[index(b, include = [a], name = "it", consistency = "eventual")]);
table!(none,);

/// Writes rows whose keys and primary keys are easily confused.
fn fill(store: &Store, round: u32) -> TestResult {
    let rows = eventual::RowRepository::open(store)?;
    store.transaction(|txn| {
        for (place, id) in ["a", "ab", "\0", "b", "ba"].into_iter().enumerate() {
            let a = ["ab", "a", "aba", "", "b"][(place + round as usize) % 5].to_owned();
            rows.put(txn, &eventual::Row { id: id.to_owned(), a, b: round + place as u32 })?;
        }
        rows.delete(txn, ["a", "b"][round as usize % 2]).map(drop)
    })?;
    Ok(())
}

macro_rules! assert_right {
    ($table:ident, $store:expr) => {{
        let rows = $table::RowRepository::open($store)?;
        let txn = $store.read()?;
        let report = rows.verify(&txn).run()?;
        assert!(report.is_clean(), "{report}");
        report.entries
    }};
}

#[test]
fn messages_of_another_declaration_are_dropped() -> TestResult {
    on_each(|store| {
        for round in 0..6 {
            fill(store, round)?;
            assert_right!(eventual, store);
            match round % 3 {
                0 => drop(other::RowRepository::open(store)?),
                1 => drop(strong::RowRepository::open(store)?),
                _ => drop(none::RowRepository::open(store)?),
            }
            if round % 3 == 0 {
                assert_eq!(assert_right!(other, store), 4);
                let rows = other::RowRepository::open(store)?;
                assert_eq!(rows.lag(&store.read()?)?.messages, 0);
                assert_eq!(assert_right!(other, store), 4);
            } else if round % 3 == 1 {
                assert_eq!(assert_right!(strong, store), 4);
            }
            let rows = eventual::RowRepository::open(store)?;
            // All entries exist, and the queued messages change nothing.
            assert_eq!(assert_right!(eventual, store), 4);
            let token = store.transaction(|txn| {
                rows.update(txn, "ab", |row| row.b += 1)?;
                Ok(txn.token())
            })?;
            rows.drain(store, u64::MAX)?;
            assert!(rows.wait_for(store, &token, std::time::Duration::ZERO)?);
            assert_eq!(assert_right!(eventual, store), 4);
        }
        Ok(())
    })
}

/// A strong index that becomes eventual is not rebuilt. An eventual index that becomes strong is rebuilt.
#[test]
fn an_index_changes_its_consistency() -> TestResult {
    on_each(|store| {
        let rows = strong::RowRepository::open(store)?;
        let row = strong::Row { id: "a".into(), a: "x".into(), b: 1 };
        store.transaction(|txn| rows.insert(txn, &row))?;
        drop(rows);
        let rows = eventual::RowRepository::open(store)?;
        assert_eq!(rows.by_it(&store.read()?).stale().count()?, 1);
        store.transaction(|txn| rows.update(txn, "a", |row| row.a = "y".into()).map(drop))?;
        drop(rows);
        let catalog = store.catalog()?;
        assert_eq!(catalog.tables[0].indexes[0].options, ["eventual"]);
        let rows = strong::RowRepository::open(store)?;
        assert_eq!(rows.find_by_it(&store.read()?, "y").count()?, 1);
        assert!(rows.verify(&store.read()?).run()?.is_clean());
        Ok(())
    })
}

/// A new index is built online while rows are written and messages applied.
#[test]
fn an_index_is_built_while_messages_arrive() -> TestResult {
    on_each(|store| {
        let rows = none::RowRepository::open(store)?;
        let row = |id: u32| none::Row { id: id.to_string(), a: format!("a{}", id % 7), b: id };
        store.transaction(|txn| (0..300).try_for_each(|id| rows.insert(txn, &row(id))))?;
        drop(rows);
        let rows = eventual::RowRepository::open_online(store)?;
        for step in 0..400_u32 {
            store.transaction(|txn| {
                let key = |id: u32| (id * 37 % 300).to_string();
                rows.update(txn, &key(step), |row| row.a.push('x'))?;
                rows.delete(txn, &key(step + 100))?;
                let none::Row { id, a, b } = row(step * 53 % 300);
                rows.put(txn, &eventual::Row { id, a, b })
            })?;
            if step % 3 == 0 {
                rows.drain(store, 4)?;
            }
            rows.build(store).batch_bytes(100).limit(1).run()?;
            assert_right!(eventual, store);
        }
        assert!(rows.build(store).run()?.is_readable());
        rows.drain(store, u64::MAX)?;
        let report = rows.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.entries, rows.all(&store.read()?).count()?);
        Ok(())
    })
}

/// An entry of a row in the old declaration has the bytes of another row's entry in the new declaration.
#[test]
fn a_key_of_another_declaration_is_not_applied() -> TestResult {
    on_each(|store| {
        let rows = eventual::RowRepository::open(store)?;
        let row = |id: &str, a: &str, b| eventual::Row { id: id.into(), a: a.into(), b };
        store.transaction(|txn| {
            rows.put(txn, &row("BC", "A", 1))?;
            rows.put(txn, &row("", "", u32::from_be_bytes(*b"A\0BC")))
        })?;
        store.transaction(|txn| rows.update(txn, "BC", |row| row.a = "Z".into()).map(drop))?;
        drop(rows);
        let rows = other::RowRepository::open(store)?;
        rows.drain(store, u64::MAX)?;
        assert_eq!(assert_right!(other, store), 2);
        Ok(())
    })
}
