//! The groups of an aggregate with given leading fields.

use std::{collections::BTreeMap, fs};

use index_table::{Error, IndexTable, ReadTxn, Result, ShardMap, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{plain_engines, stores::stores};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parcels", shard_by = hash(tenant))]
#[allow(clippy::duplicated_attributes, reason = "two aggregates may have a field in common")]
#[index(tenant, status, day, weight)]
#[aggregate(tenant, status, day, sum = [weight], max = [weight])]
#[aggregate(tenant, day)]
#[aggregate(status, tenant)]
#[aggregate(day)]
#[aggregate(day, status, consistency = "eventual")]
struct Parcel {
    #[primary_key]
    tenant: u8,
    #[primary_key]
    number: u16,
    status: String,
    day: i8,
    weight: i64,
}

/// Strings that begin with each other, and that are escaped.
const STATUSES: [&str; 6] = ["", "\0", "\0\u{1}", "new", "new\0", "news"];

fn parcel() -> impl Strategy<Value = Parcel> {
    (0..5_u8, 0..40_u16, 0..STATUSES.len(), -2..3_i8, -9..10_i64).prop_map(
        |(tenant, number, status, day, weight)| Parcel {
            tenant: if tenant == 4 { u8::MAX } else { tenant },
            number,
            status: STATUSES[status].to_owned(),
            day,
            weight,
        },
    )
}

/// Returns the groups of rows by a key, each with its number of rows, in the order of the keys.
fn groups<K: Ord>(rows: &[&Parcel], key: impl Fn(&Parcel) -> K) -> Vec<(K, u64)> {
    let mut groups = BTreeMap::new();
    for row in rows {
        *groups.entry(key(row)).or_default() += 1;
    }
    groups.into_iter().collect()
}

/// Compares the groups of each prefix with the rows.
fn compare(parcels: &ParcelRepository, txn: &ReadTxn<'_>, rows: &[Parcel]) -> Result<()> {
    for tenant in [0, 1, 2, 3, 77, u8::MAX] {
        let own: Vec<&Parcel> = rows.iter().filter(|row| row.tenant == tenant).collect();
        let found = parcels.aggregates_by_tenant(txn, tenant).map(|totals| {
            totals.map(|it| ((it.status, it.day), (it.count, it.sum_weight, it.max_weight)))
        });
        let totals = |((status, day), count)| {
            let group = || own.iter().filter(|row| row.status == status && row.day == day);
            let sum = group().map(|row| i128::from(row.weight)).sum();
            let max = group().map(|row| row.weight).max();
            ((status, day), (count, sum, max))
        };
        let expected = groups(&own, |row| (row.status.clone(), row.day));
        let expected: Vec<_> = expected.into_iter().map(totals).collect();
        assert_eq!(found.collect::<Result<Vec<_>>>()?, expected, "tenant {tenant}");

        // The first aggregate that begins with `tenant` has the short name.
        let found = parcels.aggregates_by_tenant_day_of_tenant(txn, tenant);
        let found = found.map(|totals| totals.map(|it| (it.day, it.count)));
        let expected = groups(&own, |row| row.day);
        assert_eq!(found.collect::<Result<Vec<_>>>()?, expected);

        for status in STATUSES.into_iter().chain(["ne", "newsy"]) {
            let own = own.iter().copied().filter(|row| row.status == status).collect::<Vec<_>>();
            let found = parcels.aggregates_by_tenant_status(txn, tenant, status);
            let found = found.map(|totals| totals.map(|it| (it.tenant, it.day, it.count)));
            let expected = groups(&own, |row| (row.tenant, row.day));
            let expected = expected.into_iter().map(|((tenant, day), n)| (tenant, day, n));
            assert_eq!(found.collect::<Result<Vec<_>>>()?, expected.collect::<Vec<_>>());
        }
    }
    for status in STATUSES {
        let own: Vec<&Parcel> = rows.iter().filter(|row| row.status == status).collect();
        let found = parcels.aggregates_by_status(txn, status);
        let found = found.map(|totals| totals.map(|it| (it.tenant, it.count)));
        assert_eq!(found.collect::<Result<Vec<_>>>()?, groups(&own, |row| row.tenant));
    }
    for day in -3..3 {
        let own: Vec<&Parcel> = rows.iter().filter(|row| row.day == day).collect();
        let found = parcels.aggregates_by_day_status_of_day(txn, day);
        let found = found.map(|totals| totals.map(|it| (it.status, it.count)));
        let expected = groups(&own, |row| row.status.clone());
        assert_eq!(found.collect::<Result<Vec<_>>>()?, expected, "day {day}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn leading_fields_select_the_groups_of_the_model(
        written in prop::collection::vec(parcel(), 0..60),
        deleted in prop::collection::vec(parcel(), 0..10),
    ) {
        let mut tried = plain_engines().expect("stores");
        for store in stores("parcels").expect("stores") {
            tried.push(Box::new(store));
        }
        for store in &tried {
            let parcels = ParcelRepository::open(store).expect("a repository");
            let mut model = BTreeMap::new();
            let mut txn = store.write().expect("a transaction");
            for row in &written {
                parcels.put(&mut txn, row).expect("a row");
                model.insert((row.tenant, row.number), row.clone());
            }
            for Parcel { tenant, number, .. } in &deleted {
                parcels.delete(&mut txn, *tenant, *number).expect("a deletion");
                model.remove(&(*tenant, *number));
            }
            txn.commit().expect("committed");
            parcels.drain(store, u64::MAX).expect("no more messages");
            let rows: Vec<Parcel> = model.into_values().collect();
            compare(&parcels, &store.read().expect("a transaction"), &rows).expect("groups");
        }
    }
}

#[test]
fn leading_fields_with_the_shard_key_read_one_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Store::options().shard("a", "a").shard("b", "b");
    let store = options.map("parcels", ShardMap::hashed(["a", "b"])).open(dir.path())?;
    let parcels = ParcelRepository::open(&store)?;
    let row = |tenant: u8, number: u16| {
        let status = STATUSES[usize::from(number)].to_owned();
        Parcel { tenant, number, status, day: 1, weight: 1 }
    };
    let rows = (0..20).flat_map(|tenant| [row(tenant, 3), row(tenant, 5)]);
    store.transaction(|txn| rows.clone().try_for_each(|row| parcels.insert(txn, &row)))?;
    drop((parcels, store));
    fs::remove_dir_all(dir.path().join("b")).expect("removed");

    let store = Store::open(dir.path())?;
    let parcels = ParcelRepository::open(&store)?;
    let txn = store.read()?;
    let mut available = 0;
    for tenant in 0..20 {
        let is_lost = parcels.get(&txn, tenant, 3).is_err();
        let found: Result<Vec<_>> = parcels.aggregates_by_tenant(&txn, tenant).collect();
        match found {
            Ok(groups) => assert_eq!((groups.len(), is_lost), (2, false)),
            Err(Error::ShardUnavailable { .. }) => assert!(is_lost, "tenant {tenant}"),
            Err(error) => panic!("{error:?}"),
        }
        available += u32::from(!is_lost);
    }
    assert!((1..20).contains(&available), "{available}");
    let found = parcels.aggregates_by_status(&txn, "new").next();
    assert!(matches!(found, Some(Err(Error::ShardUnavailable { .. }))), "{found:?}");
    Ok(())
}

#[test]
fn leading_fields_that_are_too_long_for_a_key_have_no_groups() -> Result<()> {
    let mut tried = plain_engines()?;
    for store in stores("parcels")? {
        tried.push(Box::new(store));
    }
    for store in &tried {
        let store: &Store = store;
        let parcels = ParcelRepository::open(store)?;
        let (status, day) = ("x".repeat(100), 1_i8);
        let row = Parcel { tenant: 1, number: 1, status, day, weight: 1 };
        store.transaction(|txn| parcels.insert(txn, &row))?;
        let txn = store.read()?;
        let too_long = "x".repeat(5_000);
        let ended = parcels.aggregates_by_status(&txn, &too_long).next();
        assert!(ended.is_none(), "{ended:?}");
        let ended = parcels.aggregates_by_tenant_status(&txn, 1, &too_long).next();
        assert!(ended.is_none(), "{ended:?}");
    }
    Ok(())
}
