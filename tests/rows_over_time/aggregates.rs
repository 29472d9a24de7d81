//! `#[aggregate(…)]`: counts and sums of groups, which change with their rows.

use std::collections::BTreeMap;

use index_table::{
    Error, FindingKind, IndexTable, OnDuplicate, ReadTxn, Result, RowVersion, ShardMap, Store,
    WriteTxn,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::stores::{plain_stores, stores};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", shard_by = hash(number))]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(customer, amount)]
#[index(amount, name = "amounts")]
#[aggregate(customer, sum = [amount, items], min = [amount], max = [amount])]
#[aggregate(region, customer)]
#[aggregate(sum = [amount], max = [amount])]
struct Invoice {
    #[primary_key]
    number: u8,
    customer: u8,
    region: String,
    amount: i64,
    items: Option<u32>,
}

fn invoice(number: u8, customer: u8, amount: i64) -> Invoice {
    let region = if customer.is_multiple_of(2) { "north" } else { "south" }.to_owned();
    Invoice { number, customer, region, amount, items: number.checked_sub(3).map(u32::from) }
}

type Model = BTreeMap<u8, Invoice>;

/// Compares all aggregates with the rows of the model.
fn compare(invoices: &InvoiceRepository, txn: &ReadTxn<'_>, model: &Model) -> Result<()> {
    let mut customers: BTreeMap<u8, Vec<&Invoice>> = BTreeMap::new();
    let mut regions: BTreeMap<(&str, u8), u64> = BTreeMap::new();
    for row in model.values() {
        customers.entry(row.customer).or_default().push(row);
        *regions.entry((&row.region, row.customer)).or_default() += 1;
    }
    let expected = |customer: u8, rows: &[&Invoice]| InvoiceAggregateByCustomer {
        customer,
        count: rows.len() as u64,
        sum_amount: rows.iter().map(|row| i128::from(row.amount)).sum(),
        sum_items: rows.iter().filter_map(|row| row.items).map(i128::from).sum(),
        min_amount: rows.iter().map(|row| row.amount).min(),
        max_amount: rows.iter().map(|row| row.amount).max(),
    };
    let all: Vec<_> = invoices.aggregates_by_customer(txn).collect::<Result<_>>()?;
    assert_eq!(all, customers.iter().map(|(key, rows)| expected(*key, rows)).collect::<Vec<_>>());
    for customer in 0..8 {
        let rows = customers.get(&customer).map_or(&[][..], Vec::as_slice);
        assert_eq!(invoices.aggregate_by_customer(txn, customer)?, expected(customer, rows));
        let of_customer = || invoices.find_by_customer(txn, customer);
        assert_eq!(of_customer().count()?, rows.len() as u64);
        assert_eq!(of_customer().limit(2).count()?, rows.len().min(2) as u64);
        assert_eq!(of_customer().exists()?, !rows.is_empty());
    }
    let all: Vec<_> = invoices
        .aggregates_by_region_customer(txn)
        .map(|totals| totals.map(|it| (it.region, it.customer, it.count)))
        .collect::<Result<_>>()?;
    let expected: Vec<_> = regions
        .iter()
        .map(|((region, customer), n)| ((*region).to_owned(), *customer, *n))
        .collect();
    assert_eq!(all, expected);
    let whole = invoices.aggregate(txn)?;
    assert_eq!(whole.count, model.len() as u64);
    assert_eq!(whole.sum_amount, model.values().map(|row| i128::from(row.amount)).sum());
    assert_eq!(whole.max_amount, model.values().map(|row| row.amount).max());
    Ok(())
}

fn verify(invoices: &InvoiceRepository, txn: &ReadTxn<'_>) -> Result<()> {
    let report = invoices.verify(txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn totals_follow_their_rows() -> Result<()> {
    for tried in stores("invoices")? {
        let invoices = InvoiceRepository::open(&tried)?;
        let mut txn = tried.write()?;
        assert_eq!(invoices.aggregate(&txn)?.count, 0);
        invoices.insert(&mut txn, &invoice(1, 7, 50))?;
        invoices.insert(&mut txn, &invoice(2, 7, -8))?;
        invoices.insert(&mut txn, &invoice(9, 4, 1))?;
        let totals = invoices.aggregate_by_customer(&txn, 7)?;
        assert_eq!((totals.customer, totals.count, totals.sum_amount), (7, 2, 42));
        assert_eq!((totals.min_amount, totals.max_amount), (Some(-8), Some(50)));
        assert_eq!(invoices.aggregate_by_region_customer(&txn, "south", 7)?.count, 2);
        assert_eq!(invoices.aggregate(&txn)?.sum_amount, 43);

        // A row moves to another group, and to another primary key.
        invoices.update(&mut txn, 2, |row| row.customer = 4)?;
        invoices.update(&mut txn, 9, |row| row.number = 200)?;
        assert_eq!(invoices.aggregate_by_customer(&txn, 7)?.count, 1);
        let totals = invoices.aggregate_by_customer(&txn, 4)?;
        assert_eq!((totals.count, totals.sum_amount, totals.sum_items), (2, -7, 6));

        // The last row of a group takes the group with it.
        assert!(invoices.delete(&mut txn, 1)?);
        let customers: Vec<u8> = invoices
            .aggregates_by_customer(&txn)
            .map(|totals| totals.map(|it| it.customer))
            .collect::<Result<_>>()?;
        assert_eq!(customers, [4]);
        txn.commit()?;
        verify(&invoices, &tried.read()?)?;
    }
    Ok(())
}

#[test]
fn a_refused_or_undone_write_changes_no_totals() -> Result<()> {
    for tried in stores("invoices")? {
        let invoices = InvoiceRepository::open(&tried)?;
        let model = Model::from([(1, invoice(1, 7, 50)), (2, invoice(2, 6, 5))]);
        let mut txn = tried.write()?;
        model.values().try_for_each(|row| invoices.insert(&mut txn, row))?;
        assert!(invoices.insert(&mut txn, &invoice(1, 3, 3)).is_err());
        assert!(invoices.update(&mut txn, 1, |row| row.number = 2).is_err());
        compare(&invoices, &txn, &model)?;
        let undone = txn.nested(|txn| {
            invoices.put(txn, &invoice(1, 3, 3))?;
            invoices.delete(txn, 2)?;
            Err::<(), _>(Error::InvalidCursor { reason: "undone" })
        });
        assert!(undone.is_err());
        compare(&invoices, &txn, &model)?;
        txn.commit()?;
        let mut txn = tried.write()?;
        invoices.delete(&mut txn, 2)?;
        drop(txn);
        compare(&invoices, &tried.read()?, &model)?;
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "loads")]
#[aggregate(place, sum = [weight])]
struct Load {
    #[primary_key]
    id: u8,
    place: String,
    weight: i128,
}

#[test]
fn a_sum_out_of_range_is_refused_and_nothing_has_changed() -> Result<()> {
    for tried in plain_stores()? {
        let loads = LoadRepository::open(&tried)?;
        let load = |id, weight| Load { id, place: "Oslo".to_owned(), weight };
        let mut txn = tried.write()?;
        loads.insert(&mut txn, &load(1, i128::MAX))?;
        let refused = loads.insert(&mut txn, &load(2, 1));
        match refused {
            Err(Error::AggregateOverflow {
                table: "loads",
                aggregate: "aggregate_by_place",
                key,
            }) => assert_eq!(key, "\"Oslo\""),
            other => panic!("{other:?}"),
        }
        assert_eq!(loads.get(&txn, 2)?, None);
        // The error about the primary key is clearer.
        let refused = loads.insert(&mut txn, &load(1, 1));
        assert!(matches!(refused, Err(Error::DuplicateKey { .. })), "{refused:?}");
        loads.insert(&mut txn, &load(2, -1))?;
        let refused = loads.update(&mut txn, 2, |row| row.weight = 1);
        assert!(matches!(refused, Err(Error::AggregateOverflow { .. })), "{refused:?}");
        let refused = loads.delete(&mut txn, 2).map(drop).and(loads.put(&mut txn, &load(3, 1)));
        assert!(matches!(refused, Err(Error::AggregateOverflow { .. })), "{refused:?}");
        assert_eq!(loads.aggregate_by_place(&txn, "Oslo")?.sum_weight, i128::MAX);
        let loading = loads.bulk_load_in(&mut txn, [load(4, 1)]).run();
        assert!(matches!(loading, Err(Error::AggregateOverflow { .. })), "{loading:?}");
        assert!(txn.commit().is_err());
        assert_eq!(loads.all(&tried.read()?).count()?, 0);
    }
    Ok(())
}

#[test]
fn a_group_that_is_too_long_is_refused() -> Result<()> {
    let store = Store::in_memory();
    let loads = LoadRepository::open(&store)?;
    let refused = store
        .transaction(|txn| loads.insert(txn, &Load { id: 1, place: "x".repeat(600), weight: 1 }));
    let is_refused =
        matches!(refused, Err(Error::KeyTooLong { index: Some("aggregate_by_place"), .. }));
    assert!(is_refused, "{refused:?}");
    Ok(())
}

#[test]
fn a_scan_that_deletes_its_rows_changes_their_totals() -> Result<()> {
    for tried in stores("invoices")? {
        let invoices = InvoiceRepository::open(&tried)?;
        let mut model: Model = (0..60).map(|n| (n, invoice(n, n % 5, n.into()))).collect();
        tried.transaction(|txn| {
            model.values().try_for_each(|row| invoices.insert(txn, row))?;
            let query = invoices.find_by_customer(txn, 3).query();
            assert_eq!(query.delete(txn)?, 12);
            Ok(())
        })?;
        model.retain(|_, row| row.customer != 3);
        compare(&invoices, &tried.read()?, &model)?;
    }
    Ok(())
}

#[test]
fn a_bulk_load_adds_its_rows_to_the_totals() -> Result<()> {
    for tried in stores("invoices")? {
        let invoices = InvoiceRepository::open(&tried)?;
        let mut model: Model = (0..40).map(|n| (n, invoice(n, n % 7, n.into()))).collect();
        invoices.bulk_load(&tried, model.values()).run()?;
        compare(&invoices, &tried.read()?, &model)?;

        let others: Vec<Invoice> = (30..50).map(|n| invoice(n, n % 3, 1000)).collect();
        let load = invoices.bulk_load(&tried, &others).on_duplicate(OnDuplicate::Skip);
        assert_eq!(load.run()?.skipped, 10);
        for row in &others {
            model.entry(row.number).or_insert_with(|| row.clone());
        }
        compare(&invoices, &tried.read()?, &model)?;

        let others: Vec<Invoice> = (20..60).map(|n| invoice(n, n % 4, -5)).collect();
        tried.transaction(|txn| {
            invoices.bulk_load_in(txn, &others).on_duplicate(OnDuplicate::Replace).run()
        })?;
        model.extend(others.into_iter().map(|row| (row.number, row)));
        compare(&invoices, &tried.read()?, &model)?;
        verify(&invoices, &tried.read()?)?;
    }
    Ok(())
}

/// The table before it had aggregates.
mod before {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "loads")]
    pub(super) struct Load {
        #[primary_key]
        pub(super) id: u8,
        pub(super) place: String,
        pub(super) weight: i128,
    }
}

#[test]
fn an_aggregate_of_a_table_with_rows_counts_them() -> Result<()> {
    for tried in plain_stores()? {
        let place = |id: u8| ["Oslo", "Rome", "Bath"].get(usize::from(id % 3)).copied();
        let load = |id| before::Load {
            id,
            place: place(id).unwrap_or_default().to_owned(),
            weight: id.into(),
        };
        let add = |ids: std::ops::Range<u8>| {
            let loads = before::LoadRepository::open(&tried)?;
            tried.transaction(|txn| ids.clone().try_for_each(|id| loads.insert(txn, &load(id))))
        };
        let totals = || {
            let loads = LoadRepository::open(&tried)?;
            let txn = tried.read()?;
            let report = loads.verify(&txn).run()?;
            assert!(report.is_clean(), "{report}");
            let totals = loads.aggregates_by_place(&txn);
            let totals = totals.map(|it| it.map(|it| (it.place, it.count, it.sum_weight)));
            totals.collect::<Result<Vec<_>>>()
        };
        let owned = |expected: [(&str, u64, i128); 3]| {
            expected.map(|(place, count, sum)| (place.to_owned(), count, sum))
        };
        add(0..9)?;
        assert_eq!(totals()?, owned([("Bath", 3, 15), ("Oslo", 3, 9), ("Rome", 3, 12)]));
        // A program without the aggregate does not maintain it, so it is counted again.
        add(9..12)?;
        assert_eq!(totals()?, owned([("Bath", 4, 26), ("Oslo", 4, 18), ("Rome", 4, 22)]));
        // Without the aggregate, its database can be dropped.
        add(12..12)?;
        assert_eq!(tried.drop_retired()?, ["loads.aggregate_by_place"]);
        assert_eq!(totals()?, owned([("Bath", 4, 26), ("Oslo", 4, 18), ("Rome", 4, 22)]));
    }
    Ok(())
}

#[test]
fn the_catalog_shows_aggregates() -> Result<()> {
    let store = Store::in_memory();
    let _loads = LoadRepository::open(&store)?;
    let catalog = store.catalog()?;
    let shown = catalog.tables.iter().flat_map(|table| &table.indexes);
    let shown: Vec<_> = shown.map(|it| (it.name.as_str(), it.strategy, &it.include)).collect();
    assert_eq!(shown, [("aggregate_by_place", "aggregate", &vec!["weight".to_owned()])]);
    Ok(())
}

#[test]
fn a_read_only_store_needs_the_declared_aggregates() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let load = before::Load { id: 1, place: "Oslo".to_owned(), weight: 5 };
    let store = Store::open(directory.path())?;
    let loads = before::LoadRepository::open(&store)?;
    store.transaction(|txn| loads.insert(txn, &load))?;
    drop((loads, store));
    let read_only = || Store::options().read_only(true).open(directory.path());
    let refused = LoadRepository::open(&read_only()?);
    match refused {
        Err(Error::SchemaMismatch { difference, .. }) => {
            assert!(difference.contains("no aggregate `aggregate_by_place`"), "{difference}");
        }
        other => panic!("{other:?}"),
    }
    drop(LoadRepository::open(&Store::open(directory.path())?)?);
    let store = read_only()?;
    let recorded = store.open_recorded()?;
    assert!(recorded.skipped.is_empty(), "{:?}", recorded.skipped);
    drop((recorded, store));
    let store = read_only()?;
    let loads = LoadRepository::open(&store)?;
    assert_eq!(loads.aggregate_by_place(&store.read()?, "Oslo")?.sum_weight, 5);
    Ok(())
}

#[test]
fn a_snapshot_before_the_aggregate_is_too_old() -> Result<()> {
    for tried in plain_stores()? {
        let loads = before::LoadRepository::open(&tried)?;
        let load = before::Load { id: 1, place: "Oslo".to_owned(), weight: 5 };
        tried.transaction(|txn| loads.insert(txn, &load))?;
        drop(loads);
        let old = tried.read()?;
        let loads = LoadRepository::open(&tried)?;
        let refused = loads.aggregate_by_place(&old, "Oslo");
        assert!(matches!(refused, Err(Error::SnapshotTooOld { table: "loads" })), "{refused:?}");
        assert!(loads.aggregates_by_place(&old).next().is_some_and(|it| it.is_err()));
        assert_eq!(loads.aggregate_by_place(&tried.read()?, "Oslo")?.count, 1);
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, RowVersion)]
struct OldItem {
    id: u8,
    kind: u8,
    price: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "items")]
#[aggregate(kind, sum = [price])]
struct FirstItem {
    #[primary_key]
    id: u8,
    kind: u8,
    price: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "items", version = 2, previous = OldItem, changed = [price])]
#[aggregate(kind, sum = [price])]
struct Item {
    #[primary_key]
    id: u8,
    kind: u8,
    price: u64,
}

impl From<OldItem> for Item {
    fn from(OldItem { id, kind, price }: OldItem) -> Self {
        Self { id, kind, price: u64::from(price) * 100 }
    }
}

#[test]
fn a_new_version_of_the_rows_counts_converted_rows() -> Result<()> {
    for tried in plain_stores()? {
        let first = FirstItemRepository::open(&tried)?;
        tried.transaction(|txn| {
            (0..10).try_for_each(|id| first.insert(txn, &FirstItem { id, kind: id % 2, price: 3 }))
        })?;
        assert_eq!(first.aggregate_by_kind(&tried.read()?, 1)?.sum_price, 15);
        drop(first);
        let items = ItemRepository::open(&tried)?;
        assert_eq!(items.aggregate_by_kind(&tried.read()?, 1)?.sum_price, 1500);
        tried.transaction(|txn| items.update(txn, 1, |item| item.price = 7).map(drop))?;
        assert_eq!(items.upgrade(&tried).run()?.upgraded, 9);
        let totals = items.aggregate_by_kind(&tried.read()?, 1)?;
        assert_eq!((totals.count, totals.sum_price), (5, 1207));
        assert!(items.verify(&tried.read()?).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_group_writer_changes_totals() -> Result<()> {
    let store = Store::in_memory();
    let loads = LoadRepository::open(&store)?;
    let writer = store.writer()?;
    for id in 0..5 {
        let loads = loads.clone();
        let load = Load { id, place: "Oslo".to_owned(), weight: 2 };
        writer.submit(move |txn| loads.insert(txn, &load)).wait()?;
    }
    assert_eq!(loads.aggregate_by_place(&store.read()?, "Oslo")?.sum_weight, 10);
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "sessions", shard_by = hash(id), expires = ends)]
#[aggregate(user)]
struct Session {
    #[primary_key]
    id: u32,
    user: u8,
    ends: std::time::SystemTime,
}

#[test]
fn expired_rows_leave_their_totals() -> Result<()> {
    let at = |seconds| std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    for tried in stores("sessions")? {
        let sessions = SessionRepository::open(&tried)?;
        tried.transaction(|txn| {
            (0..20).try_for_each(|id| {
                sessions.insert(txn, &Session { id, user: (id % 2) as u8, ends: at(id.into()) })
            })
        })?;
        assert_eq!(sessions.expire(&tried, at(9), 100)?, 10);
        let txn = tried.read()?;
        let counts = sessions.aggregates_by_user(&txn);
        let counts = counts.map(|it| it.map(|it| it.count)).collect::<Result<Vec<_>>>()?;
        assert_eq!(counts, [5, 5]);
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(tenant, total)]
#[aggregate(tenant, sum = [total], min = [total])]
#[aggregate(sum = [total])]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    total: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "codes", reference)]
#[aggregate(town)]
struct Code {
    #[primary_key]
    code: u8,
    town: String,
}

#[test]
fn a_group_with_the_shard_key_is_read_in_one_shard() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
        .open(directory.path())?;
    let (orders, codes) = (OrderRepository::open(&store)?, CodeRepository::open(&store)?);
    store.transaction(|txn| {
        for tenant in [7, 200] {
            for number in 1..=3 {
                orders.insert(txn, &Order { tenant, number, total: i64::from(tenant) })?;
            }
        }
        for (code, town) in ["Oslo", "Bath", "Oslo"].into_iter().enumerate() {
            codes.insert(txn, &Code { code: code as u8, town: town.to_owned() })?;
        }
        Ok(())
    })?;
    let txn = store.read()?;
    let totals = orders.aggregate_by_tenant(&txn, 7)?;
    assert_eq!((totals.count, totals.sum_total, totals.min_total), (3, 21, Some(7)));
    assert_eq!(txn.stats().shards, 1);
    let all = orders.aggregate(&txn)?;
    assert_eq!((all.count, all.sum_total), (6, 621));
    assert_eq!(txn.stats().shards, 2);
    let tenants = orders.aggregates_by_tenant(&txn);
    let tenants = tenants.map(|it| it.map(|it| it.tenant)).collect::<Result<Vec<_>>>()?;
    assert_eq!(tenants, [7, 200]);
    // Each shard has a copy of the row, and it is counted once.
    assert_eq!(codes.aggregate_by_town(&txn, "Oslo")?.count, 2);
    assert_eq!(codes.aggregates_by_town(&txn).count(), 2);
    assert!(codes.verify(&txn).run()?.is_clean());
    drop(txn);
    let shard = orders.shard_of(&store, 200)?;
    store.transaction_on(&shard, |txn| orders.delete(txn, 200, 1).map(drop))?;
    assert_eq!(orders.aggregate_by_tenant(&store.read()?, 200)?.sum_total, 400);
    assert!(matches!(
        orders.aggregate_by_tenant(&store.read_on(&shard)?, 7),
        Err(Error::OtherShard { .. })
    ));
    Ok(())
}

#[test]
fn repair_corrects_totals_that_differ_from_the_rows() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path())?;
    let loads = LoadRepository::open(&store)?;
    store.transaction(|txn| {
        ["Oslo", "Bath", "Rome", "Kiel"].into_iter().zip(0..).try_for_each(|(place, id)| {
            loads.insert(txn, &Load { id, place: place.to_owned(), weight: 5 })
        })
    })?;
    drop((loads, store));
    damage(directory.path(), |put, key| {
        put(key("Oslo"), Some([&9_u64.to_be_bytes()[..], &1_i128.to_be_bytes()].concat()));
        put(key("Bath"), None);
        put(key("Rome"), Some(b"short".to_vec()));
        put(key("Nome"), Some([&1_u64.to_be_bytes()[..], &1_i128.to_be_bytes()].concat()));
    });
    let store = Store::open(directory.path())?;
    let loads = LoadRepository::open(&store)?;
    let report = loads.verify(&store.read()?).run()?;
    assert_eq!(report.count(FindingKind::WrongTotals), 4, "{report}");
    let shown: Vec<_> = report.findings.iter().map(|it| (it.index, it.key.as_deref())).collect();
    let expected = ["\"Bath\"", "\"Oslo\"", "\"Rome\"", "\"Nome\""];
    assert_eq!(shown, expected.map(|key| (Some("aggregate_by_place"), Some(key))));
    let text = report.to_string();
    assert!(text.contains("aggregate `aggregate_by_place`, key \"Oslo\": the aggregate has 9 rows, sum 1, and the table has 1 rows, sum 5; `repair`"), "{text}");

    // A write of a group with a wrong count is refused, and the error names the way out.
    let mut txn = store.write()?;
    let refused = loads.delete(&mut txn, 1).map_err(|error| error.to_string());
    assert!(refused.is_err_and(|error| error.contains("`repair` corrects them")));
    let refused = loads.aggregate_by_place(&txn, "Rome");
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");

    let report = loads.repair(&mut txn).run()?;
    assert_eq!((report.count(FindingKind::WrongTotals), report.left), (4, 0));
    txn.commit()?;
    let report = loads.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    assert_eq!(loads.aggregate_by_place(&store.read()?, "Rome")?.sum_weight, 5);
    Ok(())
}

/// Changes the records of `loads.aggregate_by_place` while the store is closed.
fn damage(
    path: &std::path::Path,
    work: impl FnOnce(&mut dyn FnMut(Vec<u8>, Option<Vec<u8>>), &dyn Fn(&str) -> Vec<u8>),
) {
    // A text ends with a zero byte.
    let key = |place: &str| [place.as_bytes(), &[0]].concat();
    damage_of(path, "loads.aggregate_by_place", |put| work(put, &key));
}

/// Changes the records of an aggregate while the store is closed.
pub(crate) fn damage_of(
    path: &std::path::Path,
    name: &str,
    work: impl FnOnce(&mut dyn FnMut(Vec<u8>, Option<Vec<u8>>)),
) {
    use heed::{CommitOrAbort, Database, EnvFlags, EnvOpenOptions, types::Bytes};
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe {
        EnvOpenOptions::new().max_dbs(20).map_size(1 << 24).flags(EnvFlags::NO_SYNC).open(path)
    };
    let env = env.expect("a file of LMDB");
    let txn = env.write_txn().expect("a transaction");
    let done = env.create_databases_and_commit(txn, |opener, txn| {
        let database = opener.open_database(txn, Some(name))?;
        let database: Database<'_, Bytes, Bytes> = database.expect("a database");
        let mut put = |key: Vec<u8>, record: Option<Vec<u8>>| match record {
            Some(record) => database.put(txn, &key, &record).expect("heed can write"),
            None => assert!(database.delete(txn, &key).expect("heed can write")),
        };
        work(&mut put);
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    });
    done.expect("heed can write");
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(Invoice),
    Put(Invoice),
    Update(u8, Invoice),
    Delete(u8),
    DeleteCustomer(u8),
    Load(Vec<Invoice>),
    Undone(Vec<Invoice>),
}

fn row() -> impl Strategy<Value = Invoice> {
    (0..9_u8, 0..4_u8, any::<i64>(), prop::option::of(any::<u32>()), "[ab]{0,1}").prop_map(
        |(number, customer, amount, items, region)| Invoice {
            number,
            customer,
            region,
            amount,
            items,
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => row().prop_map(Operation::Insert),
        4 => row().prop_map(Operation::Put),
        4 => (0..9_u8, row()).prop_map(|(number, row)| Operation::Update(number, row)),
        2 => (0..9_u8).prop_map(Operation::Delete),
        1 => (0..4_u8).prop_map(Operation::DeleteCustomer),
        1 => prop::collection::vec(row(), 0..6).prop_map(Operation::Load),
        1 => prop::collection::vec(row(), 0..4).prop_map(Operation::Undone),
    ]
}

fn apply(
    invoices: &InvoiceRepository,
    txn: &mut WriteTxn<'_>,
    model: &mut Model,
    operation: &Operation,
) -> Result<()> {
    match operation {
        Operation::Insert(row) => {
            let outcome = invoices.insert(txn, row);
            assert_eq!(outcome.is_ok(), !model.contains_key(&row.number), "{outcome:?}");
            model.entry(row.number).or_insert_with(|| row.clone());
        }
        Operation::Put(row) => {
            invoices.put(txn, row)?;
            model.insert(row.number, row.clone());
        }
        Operation::Update(number, row) => {
            let is_refused = model.contains_key(number)
                && row.number != *number
                && model.contains_key(&row.number);
            let outcome = invoices.update(txn, *number, |stored| *stored = row.clone());
            assert_eq!(outcome.is_err(), is_refused, "{outcome:?}");
            if !is_refused && model.remove(number).is_some() {
                model.insert(row.number, row.clone());
            }
        }
        Operation::Delete(number) => {
            assert_eq!(invoices.delete(txn, *number)?, model.remove(number).is_some());
        }
        Operation::DeleteCustomer(customer) => {
            let query = invoices.find_by_customer(txn, *customer).query();
            query.delete(txn)?;
            model.retain(|_, row| row.customer != *customer);
        }
        Operation::Load(rows) => {
            invoices.bulk_load_in(txn, rows).on_duplicate(OnDuplicate::Replace).run()?;
            model.extend(rows.iter().map(|row| (row.number, row.clone())));
        }
        Operation::Undone(rows) => {
            let undone: Result<()> = txn.nested(|txn| {
                rows.iter().try_for_each(|row| invoices.put(txn, row))?;
                Err(Error::InvalidCursor { reason: "undone" })
            });
            assert!(undone.is_err());
        }
    }
    Ok(())
}

#[test]
fn a_count_of_a_group_reads_the_aggregate() -> Result<()> {
    for tried in stores("invoices")? {
        let invoices = InvoiceRepository::open(&tried)?;
        let rows = (0..200).map(|number| invoice(number, number % 2, i64::from(number)));
        tried.fill(rows, |txn, row| invoices.insert(txn, row))?;
        let cost = |count: &dyn Fn(&ReadTxn<'_>) -> Result<u64>| {
            let txn = tried.read()?;
            let found = count(&txn)?;
            Ok::<_, Error>((found, txn.stats().entries))
        };
        // A sharded store reads the group in each shard.
        assert_eq!(cost(&|txn| invoices.find_by_customer(txn, 1).count())?, (100, 1));
        // These select a part of the group.
        let (found, entries) = cost(&|txn| invoices.find_by_customer(txn, 1).limit(50).count())?;
        assert!(found == 50 && entries > 1);
        let amounts = 0..100;
        let (found, entries) =
            cost(&|txn| invoices.find_by_customer_amount_range(txn, 1, amounts.clone()).count())?;
        assert!(found == 50 && entries > 1);
        let (found, entries) =
            cost(&|txn| invoices.find_by_customer(txn, 1).filter(|row| row.amount < 100).count())?;
        assert!(found == 50 && entries > 1);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn random_writes_keep_the_totals_of_the_model(
        operations in prop::collection::vec(operation(), 1..30),
    ) {
        for tried in stores("invoices").expect("stores") {
            let invoices = InvoiceRepository::open(&tried).expect("a repository");
            let mut model = Model::new();
            let mut txn = tried.write().expect("a transaction");
            for operation in &operations {
                apply(&invoices, &mut txn, &mut model, operation).expect("an operation");
                compare(&invoices, &txn, &model).expect("totals");
            }
            txn.commit().expect("committed");
            let txn = tried.read().expect("a transaction");
            compare(&invoices, &txn, &model).expect("totals");
            verify(&invoices, &txn).expect("a report");
        }
    }
}
