//! The number of reads of each query, and refused queries.

#[path = "support/stores.rs"]
mod stores;

use index_table::{Error, IndexTable, ReadTxn, Result, Stats, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const TOWNS: [&str; 4] = ["Chicago", "Portland", "Redmond", "Salem"];
const NAMES: [&str; 5] = ["Brown", "Jones", "Li", "Smith", "Young"];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "indexes may have fields in common")]
#[table(shard_by = hash(id))]
#[index(town, allow(redundant))]
#[index(last_name, include = [phone])]
#[index(town, last_name, name = "residents")]
#[index(age, strategy = "full")]
#[index(email, id, unique)]
#[index(each(tags))]
struct Customer {
    #[primary_key]
    id: u32,
    town: String,
    last_name: String,
    age: u8,
    phone: u32,
    email: String,
    tags: Vec<u8>,
}

/// Returns one of 4000 customers. The first 1000 live in Chicago, the next 1000 in the next town, and so on.
/// Every fifth customer is called Brown. Only number 77 and the last customer are 99 years old.
fn customer(id: u32) -> Customer {
    Customer {
        id,
        town: TOWNS[(id / 1000) as usize].to_owned(),
        last_name: NAMES[(id % 5) as usize].to_owned(),
        age: if id == 77 || id == 3999 { 99 } else { 20 },
        phone: id,
        email: format!("{id}@example.com"),
        tags: if id.is_multiple_of(2) { vec![0, 1] } else { Vec::new() },
    }
}

/// Returns the reads and the result of a query.
#[track_caller]
fn measure<T>(txn: &ReadTxn<'_>, query: impl FnOnce() -> Result<T>) -> ([u64; 3], T) {
    let before = txn.stats();
    let result = query().expect("the query succeeds");
    let Stats { seeks, entries, facts, .. } = txn.stats();
    ([seeks - before.seeks, entries - before.entries, facts - before.facts], result)
}

/// Compares the reads of a query with `[seeks, entries, facts]`, and its result with the expected result. A
/// sharded store may read more entries than one store, but no more facts.
macro_rules! assert_reads {
    ($txn:expr, $reads:expr, $query:expr, $result:expr) => {
        let (mut read, result) = measure($txn, || $query);
        let expected = $reads;
        if $txn.stats().shards > 0 {
            read[..2].copy_from_slice(&expected[..2]);
        }
        assert_eq!((read, result), (expected, $result), stringify!($query));
    };
}

fn collect<T>(rows: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    rows.collect()
}

/// Runs `check` on 4000 customers in a plain and a sharded store of each engine. The flag is true for LMDB,
/// which has blocks and counts the entries of its databases.
fn on_all_stores(check: impl Fn(&CustomerRepository, &ReadTxn<'_>, bool)) -> TestResult {
    for store in stores::stores("customer")? {
        let customers = CustomerRepository::open(&store)?;
        store.fill(0..4000, |txn, id| customers.insert(txn, &customer(*id)))?;
        check(&customers, &store.read()?, store.is_on_disk());
    }
    Ok(())
}

/// A row whose unique index has each value once.
#[derive(Serialize, Deserialize, IndexTable)]
#[index(email, unique)]
struct Mailbox {
    #[primary_key]
    id: u32,
    email: String,
}

#[test]
fn distinct_values_of_a_unique_index_take_one_seek() -> TestResult {
    for store in stores::plain_stores()? {
        let mailboxes = MailboxRepository::open(&store)?;
        let mailbox = |id: &u32| Mailbox { id: *id, email: format!("{id}@example.com") };
        store.fill(0..4000, |txn, id| mailboxes.insert(txn, &mailbox(id)))?;
        let txn = &store.read()?;
        assert_reads!(txn, [1, 4000, 0], Ok(mailboxes.distinct_email(txn).values().count()), 4000);
    }
    Ok(())
}

#[test]
fn a_scan_and_a_combination_are_iterated_by_rows() -> TestResult {
    on_all_stores(|customers, txn, _| {
        let mut ids = Vec::new();
        for row in customers.find_by_age(txn, 99) {
            let row: Customer = row.expect("a readable row");
            ids.push(row.id);
        }
        assert_eq!(ids, [77, 3999]);
        let (town, last_name) =
            (customers.find_by_town(txn, "Salem"), customers.find_by_age(txn, 99));
        let mut rows = 0;
        for row in town.and(last_name) {
            let row: Customer = row.expect("a readable row");
            assert_eq!(row.id, 3999);
            rows += 1;
        }
        assert_eq!(rows, 1);
    })
}

#[test]
fn exists_takes_one_seek() -> TestResult {
    on_all_stores(|customers, txn, lmdb| {
        assert_reads!(txn, [1, 1, 0], customers.find_by_town(txn, "Redmond").exists(), true);
        assert_reads!(txn, [1, 0, 0], customers.find_by_town(txn, "Oz").exists(), false);
        assert_reads!(txn, [1, 1, 0], customers.find_by_last_name(txn, "Li").exists(), true);
        assert_reads!(txn, [1, 1, 0], customers.find_by_id_range(txn, 7..).rev().exists(), true);
        assert_reads!(txn, [0, 0, 0], customers.all(txn).limit(0).exists(), false);
        // LMDB counts the entries of a whole table.
        let expected = if lmdb { [0, 0, 0] } else { [1, 1, 0] };
        assert_reads!(txn, expected, customers.all(txn).exists(), true);
    })
}

#[test]
fn count_uses_totals_and_block_sizes() -> TestResult {
    on_all_stores(|customers, txn, lmdb| {
        let by_entry = |entries, lmdb_reads| if lmdb { lmdb_reads } else { [1, entries, 0] };
        // Whole tables and indexes.
        assert_reads!(txn, by_entry(4000, [0, 0, 0]), customers.all(txn).count(), 4000);
        assert_reads!(txn, by_entry(4000, [0, 0, 0]), customers.by_age(txn).count(), 4000);
        let some = || customers.all(txn).rev().limit(3000).count();
        assert_reads!(txn, by_entry(3000, [0, 0, 0]), some(), 3000);
        // Blocks: 256 primary keys in each, which lack 2 of 4 bytes.
        let redmond = || customers.find_by_town(txn, "Redmond");
        assert_reads!(txn, by_entry(1000, [1, 4, 0]), redmond().count(), 1000);
        assert_reads!(txn, by_entry(300, [1, 2, 0]), redmond().limit(300).count(), 300);
        assert_reads!(txn, by_entry(1, [1, 1, 0]), redmond().limit(1).count(), 1);
        let page = redmond().page(100).unwrap();
        let after = || redmond().after(page.next.as_ref().unwrap());
        assert_reads!(txn, by_entry(900, [1, 4, 0]), after().count(), 900);
        // Single entries.
        let brown = || customers.find_by_last_name(txn, "Brown");
        assert_reads!(txn, [1, 800, 0], brown().count(), 800);
        assert_reads!(txn, [1, 5, 0], brown().limit(5).count(), 5);
    })
}

#[test]
fn get_many_keeps_the_order_of_the_keys() -> TestResult {
    on_all_stores(|customers, txn, _| {
        let expected = vec![Some(customer(7)), None, Some(customer(3)), Some(customer(7))];
        let query = || collect(customers.get_many(txn, [7, 9999, 3, 7]));
        assert_reads!(txn, [0, 0, 4], query(), expected);
        // Owned keys, borrowed keys, and keys from another query.
        let keys: Vec<u32> = collect(customers.find_by_age(txn, 99).keys()).unwrap();
        let borrowed = collect(customers.get_many(txn, &keys)).unwrap();
        assert_eq!(borrowed, [Some(customer(77)), Some(customer(3999))]);
        assert_eq!(collect(customers.get_many(txn, keys)).unwrap(), borrowed);
        assert_eq!(customers.get_many(txn, 0..4000).take(2).count(), 2);
    })
}

#[test]
fn distinct_seeks_from_value_to_value() -> TestResult {
    on_all_stores(|customers, txn, lmdb| {
        let towns = || customers.distinct_town(txn);
        assert_reads!(txn, [5, 4, 0], collect(towns().values()), TOWNS.to_vec());
        let mut backward = TOWNS.to_vec();
        backward.reverse();
        assert_reads!(txn, [5, 4, 0], collect(towns().rev().values()), backward);
        // A count takes another seek, and reads the blocks.
        let counts = TOWNS.map(|town| (town, 1000)).to_vec();
        let expected = if lmdb { [9, 4 + 4 * 4, 0] } else { [9, 4 + 4000, 0] };
        assert_reads!(txn, expected, collect(towns().counts()), counts);
        // Values are read lazily.
        assert_reads!(txn, [2, 2, 0], collect(towns().values().take(2)), TOWNS[..2].to_vec());
        assert_reads!(txn, [3, 2, 0], collect(customers.distinct_tags(txn).values()), vec![0, 1]);
    })
}

#[test]
fn the_smallest_and_the_greatest_value_take_one_seek() -> TestResult {
    on_all_stores(|customers, txn, _| {
        let towns = || customers.distinct_town(txn);
        assert_reads!(txn, [1, 1, 0], towns().first(), Some("Chicago"));
        assert_reads!(txn, [1, 1, 0], towns().rev().first(), Some("Salem"));
        let names = |town: &str| customers.distinct_residents_by_town(txn, town);
        assert_reads!(txn, [1, 1, 0], names("Redmond").first(), Some("Brown"));
        assert_reads!(txn, [1, 1, 0], names("Redmond").rev().first(), Some("Young"));
        assert_reads!(txn, [1, 0, 0], names("Oz").first(), None);
    })
}

#[test]
fn and_skips_entries_by_seeking() -> TestResult {
    on_all_stores(|customers, txn, _| {
        // Two rows of 4000 have the age. From the first to the second, the scan steps 16 times before it
        // seeks. The other entries between them are not read.
        let old_li = || customers.find_by_age(txn, 99).and(customers.find_by_last_name(txn, "Li"));
        assert_reads!(txn, [3, 2 + 1 + 16, 0], old_li().count(), 1);
        // In the other order, the larger scan seeks. It starts at its first entry.
        let li_old = || customers.find_by_last_name(txn, "Li").and(customers.find_by_age(txn, 99));
        let (read, rows) = measure(txn, || collect(li_old().rows()));
        assert_eq!(rows, [customer(77)]);
        // Each seek runs in each of three shards, and the distances between entries differ.
        let shards = txn.stats().shards.max(1);
        assert!(read[0] <= 4 * shards && read[1] < 50 && read[2] == 1, "{read:?}");
        // Between close entries, the scan steps instead of seeking.
        let redmond_li =
            || customers.find_by_town(txn, "Redmond").and(customers.find_by_last_name(txn, "Li"));
        let (read, count) = measure(txn, || redmond_li().count());
        assert_eq!(count, 200);
        assert!(read[0] <= 3 * shards && read[1] <= 1250 && read[2] == 0, "{read:?}");
        // A combination is as lazy as a scan.
        let (read, first) = measure(txn, || redmond_li().first());
        assert_eq!(first, Some(customer(2002)));
        assert!(read[0] <= 3 * shards && read[1] <= 20 && read[2] == 1, "{read:?}");
        // A part can be a range of the fact table.
        let some = redmond_li().and(customers.find_by_id_range(txn, 2500..2510));
        assert_eq!(collect(some.keys()).unwrap(), [2502, 2507]);
    })
}

#[test]
fn or_yields_each_row_once() -> TestResult {
    on_all_stores(|customers, txn, _| {
        let query = || {
            customers
                .find_by_age(txn, 99)
                .or(customers.find_by_email(txn, "77@example.com"))
                .or(customers.find_by_email(txn, "5@example.com"))
        };
        assert_reads!(txn, [3, 4, 0], collect(query().keys()), vec![5, 77, 3999]);
        assert_reads!(txn, [3, 4, 3], collect(query().rows()).map(|rows| rows.len()), 3);
        // A combination can be combined again, on either side.
        let redmond = || customers.find_by_town(txn, "Salem");
        assert_eq!(collect(redmond().and(query()).keys()).unwrap(), [3999]);
        assert_eq!(collect(query().and(redmond()).limit(1).keys()).unwrap(), [3999]);
    })
}

#[test]
fn a_part_with_a_direction_or_an_end_is_refused() -> TestResult {
    #[track_caller]
    fn assert_refused(outcome: Result<u64>, expected: &str) {
        let error = outcome.expect_err("a combination was accepted");
        assert!(matches!(error, Error::NotCombinable { .. }), "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
    on_all_stores(|customers, txn, _| {
        let li = || customers.find_by_last_name(txn, "Li");
        let limited = |scans: &str| {
            format!(
                "{scans} of table `customer` can't be combined: no part may have a `rev`, `limit`, \
                 `after` or `before`; the combination can have them instead"
            )
        };
        assert_refused(li().rev().and(li()).count(), &limited("the scan of index `last_name`"));
        assert_refused(li().or(li().limit(3)).count(), &limited("the scan of index `last_name`"));
        assert_refused(li().or(customers.all(txn).rev()).count(), &limited("these scans"));
        assert_refused(li().and(li()).limit(3).and(li()).count(), &limited("these scans"));
        // Every way to run the combination returns this error.
        let mut rows = li().and(customers.by_town(txn).rev()).rows();
        assert!(matches!(rows.next(), Some(Err(Error::NotCombinable { index: Some("town"), .. }))));
        assert_refused(
            li().rev().and(li()).page(3).map(|_| 0),
            &limited("the scan of index `last_name`"),
        );
        assert!(rows.next().is_none());
    })
}

#[test]
fn parts_from_different_transactions_are_refused() -> TestResult {
    let store = Store::in_memory();
    let customers = CustomerRepository::open(&store)?;
    let (one, other) = (store.read()?, store.read()?);
    let combined = customers.find_by_town(&one, "a").and(customers.find_by_town(&other, "a"));
    assert_eq!(
        combined.count().unwrap_err().to_string(),
        "these scans of table `customer` can't be combined: they are from different transactions"
    );
    Ok(())
}

/// A key of more fields than a tuple may have, and a type whose name the derive would use for a parameter.
mod wide {
    use super::{Deserialize, IndexTable, Serialize};

    pub(super) type Keys = u64;

    #[derive(Serialize, Deserialize, IndexTable)]
    #[index(a, b, c, d, e, f, g, h, i)]
    pub(super) struct Wide {
        #[primary_key]
        pub(super) id: Keys,
        pub(super) a: u8,
        pub(super) b: u8,
        pub(super) c: u8,
        pub(super) d: u8,
        pub(super) e: u8,
        pub(super) f: u8,
        pub(super) g: u8,
        pub(super) h: u8,
        pub(super) i: u8,
    }
}

#[test]
fn an_index_of_nine_fields_has_the_values_of_eight_and_of_the_ninth() -> TestResult {
    let store = Store::in_memory();
    let rows = wide::WideRepository::open(&store)?;
    store.transaction(|txn| {
        (0..4).try_for_each(|id| {
            let i = id as u8 / 2;
            rows.insert(txn, &wide::Wide { id, a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 1, i })
        })
    })?;
    let txn = store.read()?;
    assert_eq!(
        collect(rows.distinct_a_b_c_d_e_f_g_h(&txn).counts())?,
        [((1, 1, 1, 1, 1, 1, 1, 1), 4)]
    );
    let ninth = rows.distinct_i_by_a_b_c_d_e_f_g_h(&txn, 1, 1, 1, 1, 1, 1, 1, 1);
    assert_eq!(collect(ninth.counts())?, [(0, 2), (1, 2)]);
    assert_eq!(rows.get_many(&txn, [1, 9]).count(), 2);
    Ok(())
}
