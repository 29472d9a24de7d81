//! A table with all features of rows over time: bulk loads, online builds and new versions.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use index_table::{Error, IndexTable, Result, RowVersion, Store};
use serde::{Deserialize, Serialize};

use crate::stores::{Tried, stores};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "tenants", shard_by = hash(tenant), shard_map = "invoices")]
struct Tenant {
    #[primary_key]
    tenant: u8,
}

/// Declares the invoices with a version and further indexes.
macro_rules! invoices {
    ($module:ident, $amount:ty, [$($table:tt)*], [$($index:tt)*]) => {
        mod $module {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(
                name = "invoices", shard_by = hash(tenant), expires = expires_at $($table)*
            )]
            #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
            #[references(Tenant, fields = [tenant], on_delete = "cascade")]
            #[aggregate(tenant, sum = [amount])]
            #[aggregate(customer, sum = [amount])]
            $($index)*
            pub(super) struct Invoice {
                #[primary_key]
                pub(super) tenant: u8,
                #[primary_key]
                pub(super) number: u32,
                #[revision]
                pub(super) revision: u32,
                pub(super) customer: u8,
                pub(super) amount: $amount,
                pub(super) expires_at: Option<SystemTime>,
            }

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "scans", part_of = Invoice, shard_by = hash(tenant), shard_map = "invoices")]
            pub(super) struct Scan {
                #[primary_key]
                pub(super) tenant: u8,
                #[primary_key]
                pub(super) number: u32,
                pub(super) pdf: Vec<u8>,
            }
        }
    };
}

invoices!(first, u32, [], []);
invoices!(indexed, u32, [], [#[index(customer, amount)]]);
invoices!(second, i64, [, version = 2, previous = OldInvoice, changed = [amount]], [#[index(customer, amount)]]);

#[derive(Serialize, Deserialize, RowVersion)]
struct OldInvoice {
    #[primary_key]
    tenant: u8,
    #[primary_key]
    number: u32,
    revision: u32,
    customer: u8,
    amount: u32,
    expires_at: Option<SystemTime>,
}

impl From<OldInvoice> for second::Invoice {
    fn from(old: OldInvoice) -> Self {
        let OldInvoice { tenant, number, revision, customer, amount, expires_at } = old;
        // Amounts were in whole units.
        Self { tenant, number, revision, customer, amount: i64::from(amount) * 100, expires_at }
    }
}

const TENANTS: u8 = 4;
const ROWS: u32 = 400;

/// The rows with these remainders expire.
const EXPIRING: u32 = 5;

fn after(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn invoice(number: u32) -> first::Invoice {
    first::Invoice {
        tenant: (number % u32::from(TENANTS)) as u8,
        number,
        revision: 0,
        customer: (number % 7) as u8,
        amount: number,
        expires_at: number.is_multiple_of(EXPIRING).then(|| after(u64::from(number))),
    }
}

/// Loads the tenants, the invoices and their scans.
fn load(store: &Store) -> Result<()> {
    let tenants = TenantRepository::open(store)?;
    let invoices = first::InvoiceRepository::open(store)?;
    let scans = first::ScanRepository::open(store)?;
    tenants.bulk_load(store, (0..TENANTS).map(|tenant| Tenant { tenant })).run()?;
    invoices.bulk_load(store, (0..ROWS).map(invoice)).run()?;
    let scan = |number| {
        let first::Invoice { tenant, number, .. } = invoice(number);
        first::Scan { tenant, number, pdf: vec![7; 10] }
    };
    scans.bulk_load(store, (0..ROWS).map(scan)).run()?;
    let orphan = first::Scan { tenant: 0, number: ROWS + 4, pdf: Vec::new() };
    let refused = scans.bulk_load(store, [orphan]).run();
    assert!(refused.is_err(), "{refused:?}");
    Ok(())
}

fn verify(store: &Store) -> Result<()> {
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// Calls a test with an empty store of each kind.
fn each(test: impl Fn(&Tried) -> Result<()>) -> Result<()> {
    stores("invoices")?.iter().try_for_each(test)
}

#[test]
fn bulk_loaded_rows_keep_revisions_references_and_aggregates() -> Result<()> {
    each(|store| {
        load(store)?;
        let tenants = TenantRepository::open(store)?;
        let invoices = first::InvoiceRepository::open(store)?;
        let scans = first::ScanRepository::open(store)?;
        verify(store)?;
        let txn = store.read()?;
        assert_eq!(invoices.get(&txn, 1, 1)?.map(|row| row.revision), Some(1));
        let sum: i128 = (0..ROWS).filter(|it| it % 4 == 3).map(i128::from).sum();
        assert_eq!(invoices.aggregate_by_tenant(&txn, 3)?.sum_amount, sum);
        drop(txn);
        let expired = invoices.expire(store, after(99), 1000)?;
        assert_eq!(expired, 20);
        store.transaction(|txn| tenants.delete(txn, 3).map(drop))?;
        let txn = store.read()?;
        let left = (0..ROWS).filter(|it| it % 4 != 3 && (it % EXPIRING != 0 || *it > 99)).count();
        assert_eq!(invoices.all(&txn).count()?, left as u64);
        assert_eq!(scans.all(&txn).count()?, left as u64);
        assert_eq!(invoices.aggregate_by_tenant(&txn, 3)?.count, 0);
        verify(store)
    })
}

#[test]
fn an_online_build_has_the_rows_that_change_meanwhile() -> Result<()> {
    each(|store| {
        load(store)?;
        let tenants = TenantRepository::open(store)?;
        let invoices = indexed::InvoiceRepository::open_online(store)?;
        let _scans = indexed::ScanRepository::open(store)?;
        assert!(!invoices.build(store).batch_bytes(400).limit(2).run()?.is_done());
        store.transaction(|txn| {
            invoices.update(txn, 1, 1, |row| row.amount = 1_000)?;
            invoices.update(txn, 1, 397, |row| row.customer = 6)?;
            invoices.delete(txn, 2, 2).map(drop)
        })?;
        let stale = indexed::Invoice {
            tenant: 1,
            number: 1,
            revision: 1,
            customer: 1,
            amount: 1,
            expires_at: None,
        };
        let refused = store.transaction(|txn| invoices.put(txn, &stale));
        assert!(matches!(refused, Err(Error::Conflict { found: Some(2), .. })), "{refused:?}");
        assert_eq!(invoices.expire(store, after(50), 1000)?, 11);
        store.transaction(|txn| tenants.delete(txn, 0).map(drop))?;
        assert!(invoices.build(store).run()?.is_readable());
        let txn = store.read()?;
        let of_customer = |customer: u8| -> Result<(u64, i128)> {
            let mut rows = invoices.find_by_customer(&txn, customer).rows();
            rows.try_fold((0, 0), |(n, sum), row| {
                row.map(|it| (n + 1, sum + i128::from(it.amount)))
            })
        };
        for customer in 0..7 {
            let totals = invoices.aggregate_by_customer(&txn, customer)?;
            assert_eq!((totals.count, totals.sum_amount), of_customer(customer)?);
        }
        verify(store)
    })
}

#[test]
fn rows_of_an_older_version_keep_revisions_references_and_aggregates() -> Result<()> {
    each(|store| {
        load(store)?;
        let tenants = TenantRepository::open(store)?;
        let invoices = second::InvoiceRepository::open(store)?;
        let scans = second::ScanRepository::open(store)?;
        let sum: i128 = (0..ROWS).filter(|it| it % 4 == 1).map(|it| i128::from(it) * 100).sum();
        assert_eq!(invoices.aggregate_by_tenant(&store.read()?, 1)?.sum_amount, sum);
        // A row of the older version is edited, another row expires, and other rows are deleted by a cascade.
        let Some(mut row) = invoices.get(&store.read()?, 1, 1)? else { panic!("no row") };
        assert_eq!((row.revision, row.amount), (1, 100));
        row.amount = 7;
        store.transaction(|txn| invoices.put(txn, &row))?;
        assert_eq!(invoices.expire(store, after(4), 1000)?, 1);
        store.transaction(|txn| tenants.delete(txn, 2).map(drop))?;
        verify(store)?;
        // The revisions stay.
        let upgraded = invoices.upgrade(store).run()?.upgraded;
        assert_eq!(upgraded, u64::from(ROWS) * 3 / 4 - 2);
        let revision = |number| -> Result<_> {
            Ok(invoices.get(&store.read()?, 1, number)?.map(|row| row.revision))
        };
        assert_eq!((revision(1)?, revision(5)?), (Some(2), Some(1)));
        assert_eq!(invoices.aggregate_by_tenant(&store.read()?, 1)?.sum_amount, sum - 93);
        assert_eq!(scans.all(&store.read()?).count()?, u64::from(ROWS) * 3 / 4 - 1);
        verify(store)
    })
}
