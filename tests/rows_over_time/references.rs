//! `#[references(…)]`: a row can't refer to a missing row, and a referenced row can't be deleted.

use std::collections::BTreeMap;

use index_table::{Durability, Error, FindingKind, IndexTable, Result, Store, WriteTxn};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::plain_engines;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
struct Customer {
    #[primary_key]
    id: u32,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "places")]
struct Place {
    #[primary_key]
    country: String,
    #[primary_key]
    number: u8,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices")]
#[index(customer, amount)]
#[index(payer, include = [amount])]
#[index(country, place)]
#[references(Place, fields = [country, place])]
struct Invoice {
    #[primary_key]
    number: u32,
    #[references(Customer, on_delete = "restrict")]
    customer: u32,
    #[references(Customer)]
    payer: Option<u32>,
    country: String,
    place: u8,
    amount: i64,
}

mod before {
    use super::*;

    /// The table before it had references.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "invoices")]
    #[index(customer, amount)]
    pub(super) struct Invoice {
        #[primary_key]
        pub(super) number: u32,
        pub(super) customer: u32,
        pub(super) payer: Option<u32>,
        pub(super) country: String,
        pub(super) place: u8,
        pub(super) amount: i64,
    }
}

fn customer(id: u32) -> Customer {
    Customer { id, name: format!("customer {id}") }
}

fn place(country: &str, number: u8) -> Place {
    Place { country: country.to_owned(), number }
}

fn invoice(number: u32, customer: u32) -> Invoice {
    Invoice { number, customer, payer: None, country: "NO".into(), place: 1, amount: 5 }
}

struct Repositories {
    customers: CustomerRepository,
    places: PlaceRepository,
    invoices: InvoiceRepository,
}

impl Repositories {
    fn open(store: &Store) -> Result<Self> {
        Ok(Self {
            customers: CustomerRepository::open(store)?,
            places: PlaceRepository::open(store)?,
            invoices: InvoiceRepository::open(store)?,
        })
    }

    /// Opens the tables, with two customers, two places and an invoice of the first of each.
    fn filled(store: &Store) -> Result<Self> {
        let all = Self::open(store)?;
        store.transaction(|txn| {
            all.customers.insert(txn, &customer(1))?;
            all.customers.insert(txn, &customer(2))?;
            all.places.insert(txn, &place("NO", 1))?;
            all.places.insert(txn, &place("NO", 2))?;
            all.invoices.insert(txn, &invoice(10, 1))
        })?;
        Ok(all)
    }
}

#[test]
fn a_row_must_refer_to_rows_that_exist() -> Result<()> {
    for store in plain_engines()? {
        let Repositories { customers, invoices, .. } = Repositories::filled(&store)?;
        let mut txn = store.write()?;
        let missing = invoices.insert(&mut txn, &invoice(11, 3));
        let error = missing.expect_err("there is no customer 3");
        assert!(matches!(
            &error,
            Error::MissingReference { table: "invoices", reference: "customer", to: "customers", key, referred }
                if key == "11" && referred == "3"
        ));
        assert!(error.to_string().contains("refers by `customer` to the row 3"), "{error}");
        let other = Invoice { payer: Some(3), ..invoice(11, 1) };
        let missing = invoices.put(&mut txn, &other);
        assert!(matches!(missing, Err(Error::MissingReference { reference: "payer", .. })));
        let other = Invoice { place: 3, ..invoice(11, 1) };
        let missing = invoices.insert(&mut txn, &other);
        assert!(matches!(
            missing,
            Err(Error::MissingReference { reference: "country_place", to: "places", .. })
        ));
        for change in [|row: &mut Invoice| row.customer = 3, |row: &mut Invoice| row.place = 9] {
            let missing = invoices.update(&mut txn, 10, change);
            assert!(matches!(missing, Err(Error::MissingReference { .. })));
        }
        assert_eq!(invoices.get(&txn, 10)?, Some(invoice(10, 1)));
        assert_eq!(invoices.get(&txn, 11)?, None);
        // A row with the same primary key is the clearer error.
        let duplicate = invoices.insert(&mut txn, &invoice(10, 3));
        assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })));

        customers.insert(&mut txn, &customer(3))?;
        invoices.insert(&mut txn, &Invoice { payer: Some(3), ..invoice(11, 3) })?;
        txn.commit()?;
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_referenced_row_cannot_be_deleted() -> Result<()> {
    for store in plain_engines()? {
        let Repositories { customers, places, invoices } = Repositories::filled(&store)?;
        let mut txn = store.write()?;
        let refused = customers.delete(&mut txn, 1);
        let error = refused.expect_err("an invoice refers to it");
        assert!(matches!(
            &error,
            Error::Referenced { table: "customers", by: "invoices", reference: "customer", key }
                if key == "1"
        ));
        assert!(error.to_string().contains("rows of table `invoices` refer to it by `customer`"));
        let refused = customers.update(&mut txn, 1, |row| row.id = 7);
        assert!(matches!(refused, Err(Error::Referenced { .. })));
        let refused = customers.all(&txn).query().delete(&mut txn);
        assert!(matches!(refused, Err(Error::Referenced { .. })));
        assert!(matches!(places.delete(&mut txn, "NO", 1), Err(Error::Referenced { .. })));
        assert!(places.delete(&mut txn, "NO", 2)?);
        assert_eq!(customers.get(&txn, 1)?, Some(customer(1)));
        // An update of another field, and a reference by an `Option`.
        assert!(customers.update(&mut txn, 1, |row| row.name.push('!'))?);
        customers.put(&mut txn, &customer(2))?;
        assert!(invoices.update(&mut txn, 10, |row| row.payer = Some(2))?);
        let refused = customers.delete(&mut txn, 2);
        assert!(matches!(refused, Err(Error::Referenced { reference: "payer", .. })));
        assert!(invoices.update(&mut txn, 10, |row| row.payer = None)?);
        assert!(customers.delete(&mut txn, 2)?);
        assert!(invoices.delete(&mut txn, 10)?);
        assert!(customers.delete(&mut txn, 1)?);
        txn.commit()?;
    }
    Ok(())
}

#[test]
fn a_program_without_the_referring_struct_keeps_the_reference() -> Result<()> {
    for store in plain_engines()? {
        drop(Repositories::filled(&store)?);
        let customers = CustomerRepository::open(&store)?;
        let mut txn = store.write()?;
        let refused = customers.delete(&mut txn, 1);
        assert!(matches!(refused, Err(Error::Referenced { by: "invoices", .. })));
        assert!(customers.delete(&mut txn, 2)?);
    }
    let dir = tempfile::tempdir().expect("a directory");
    drop(Repositories::filled(&Store::open(dir.path())?)?);
    let store = Store::open(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    let refused = store.transaction(|txn| customers.delete(txn, 1));
    assert!(matches!(refused, Err(Error::Referenced { by: "invoices", .. })));
    Ok(())
}

#[test]
fn references_that_are_declared_later_hold_for_all_rows() -> Result<()> {
    for store in plain_engines()? {
        drop(InvoiceRepository::open(&store)?);
        let customers = CustomerRepository::open(&store)?;
        let before = before::InvoiceRepository::open(&store)?;
        let places = PlaceRepository::open(&store)?;
        let row = before::Invoice {
            number: 10,
            customer: 1,
            payer: None,
            country: "NO".into(),
            place: 1,
            amount: 5,
        };
        store.transaction(|txn| {
            places.insert(txn, &place("NO", 1))?;
            customers.insert(txn, &customer(2))?;
            before.insert(txn, &row)
        })?;
        // Without references, a customer can be deleted.
        store.transaction(|txn| customers.delete(txn, 2).map(drop))?;
        drop(before);
        let orphan = InvoiceRepository::open(&store);
        assert!(matches!(orphan, Err(Error::MissingReference { reference: "customer", .. })));
        store.transaction(|txn| customers.insert(txn, &customer(1)))?;
        let invoices = InvoiceRepository::open(&store)?;
        // The repositories that were open before keep the reference, too.
        let refused = store.transaction(|txn| customers.delete(txn, 1));
        assert!(matches!(refused, Err(Error::Referenced { .. })));
        store.transaction(|txn| invoices.insert(txn, &invoice(11, 1)))?;
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_bulk_load_checks_its_rows_before_it_writes() -> Result<()> {
    for store in plain_engines()? {
        let Repositories { invoices, .. } = Repositories::filled(&store)?;
        let rows = [invoice(11, 1), invoice(12, 3)];
        let mut txn = store.write()?;
        let missing = invoices.bulk_load_in(&mut txn, &rows).run();
        assert!(matches!(missing, Err(Error::MissingReference { .. })));
        assert_eq!(invoices.all(&txn).count()?, 1);
        invoices.bulk_load_in(&mut txn, &rows[..1]).run()?;
        txn.commit()?;
        assert_eq!(invoices.all(&store.read()?).count()?, 2);
    }
    Ok(())
}

#[test]
fn a_retired_index_of_a_reference_is_kept() -> Result<()> {
    for store in plain_engines()? {
        drop(Repositories::filled(&store)?);
        let customers = CustomerRepository::open(&store)?;
        assert!(store.drop_retired()?.is_empty());
        assert!(store.transaction(|txn| customers.delete(txn, 1)).is_err());
    }
    Ok(())
}

/// Runs `change` on a database with heed, while the store is closed.
pub(crate) fn raw(
    path: &std::path::Path,
    name: &str,
    change: impl FnOnce(
        &heed::Database<'_, heed::types::Bytes, heed::types::Bytes>,
        &mut heed::RwTxn<'_>,
    ) -> heed::Result<()>,
) -> heed::Result<()> {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: the store is closed, and nothing else opens the temporary directory.
    let env = unsafe { heed::EnvOpenOptions::new().max_dbs(20).open(path)? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        let database = opener.create_database(txn, Some(name))?;
        change(&database, txn)?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<(), ()>::Commit(()))
    })?;
    env.prepare_for_closing().wait();
    Ok(())
}

#[test]
fn verify_lists_orphans() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options().durability(Durability::Full).open(dir.path())?;
    drop(Repositories::filled(&store)?);
    drop(store);
    raw(dir.path(), "customers", |customers, txn| {
        customers.delete(txn, &1_u32.to_be_bytes()).map(|deleted| assert!(deleted))
    })
    .expect("a change");
    let store = Store::options().durability(Durability::Full).open(dir.path())?;
    let _all = Repositories::open(&store)?;
    let report = store.verify()?;
    let findings = report.tables.iter().flat_map(|table| &table.findings);
    let kinds: Vec<_> = findings.map(|found| (found.table, found.kind)).collect();
    assert_eq!(kinds, [("invoices", FindingKind::Orphan)]);
    Ok(())
}

#[test]
fn a_cascade_is_recorded_as_the_format_says() -> Result<()> {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "lines", part_of = Customer, repository = Lines)]
    struct Line {
        #[primary_key]
        id: u32,
    }
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options().durability(Durability::Full).open(dir.path())?;
    drop(Lines::open(&store)?);
    drop(store);
    let expected = b"\x7f\0\0\x07cascade\x05Lines";
    raw(dir.path(), ".catalog", |catalog, txn| {
        assert_eq!(catalog.get(txn, b"customers.@lines.part_of")?, Some(expected.as_slice()));
        Ok(())
    })
    .expect("a record");
    Ok(())
}

#[test]
fn a_reference_is_recorded_as_the_format_says() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options().durability(Durability::Full).open(dir.path())?;
    drop(Repositories::filled(&store)?);
    drop(store);
    let expected = b"\x7f\x0fcustomer_amount\0\x08restrict";
    raw(dir.path(), ".catalog", |catalog, txn| {
        let key = b"customers.@invoices.customer";
        assert_eq!(catalog.get(txn, key)?, Some(expected.as_slice()));
        // A reference of a later release.
        catalog.put(txn, key, b"\x7f\x0fcustomer_amount\0\x08set null")
    })
    .expect("a change");
    let store = Store::options().durability(Durability::Full).open(dir.path())?;
    let refused = CustomerRepository::open(&store).map(drop);
    assert!(
        matches!(refused, Err(Error::SchemaMismatch { table: "customers", .. })),
        "{refused:?}"
    );
    Ok(())
}

type Model = (BTreeMap<u32, Customer>, BTreeMap<u32, Invoice>);

/// One change, on the store and on the model.
fn change(
    all: &Repositories,
    txn: &mut WriteTxn<'_>,
    (customers, invoices): &mut Model,
    (kind, number, id, payer): (u8, u32, u32, Option<u32>),
) -> Result<()> {
    let row = Invoice { payer, ..invoice(number, id) };
    let is_missing =
        !customers.contains_key(&id) || payer.is_some_and(|payer| !customers.contains_key(&payer));
    let is_referenced =
        invoices.values().any(|invoice| invoice.customer == id || invoice.payer == Some(id));
    match kind {
        0 => {
            all.customers.put(txn, &customer(id))?;
            customers.insert(id, customer(id));
        }
        1 => match all.customers.delete(txn, id) {
            Err(Error::Referenced { .. }) => assert!(is_referenced),
            deleted => {
                assert!(!is_referenced);
                assert_eq!(deleted?, customers.remove(&id).is_some());
            }
        },
        2 => {
            let deleted = all.invoices.delete(txn, number)?;
            assert_eq!(deleted, invoices.remove(&number).is_some());
        }
        _ => match all.invoices.put(txn, &row) {
            Err(Error::MissingReference { .. }) => assert!(is_missing),
            outcome => {
                outcome?;
                // The referenced rows of an unchanged row still exist.
                assert!(!is_missing);
                invoices.insert(number, row);
            }
        },
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_changes_agree_with_a_model(
        changes in prop::collection::vec(
            (0..5u8, 0..6u32, 0..5u32, prop::option::of(0..5u32)),
            1..60,
        )
    ) {
        for store in plain_engines().expect("stores") {
            let all = Repositories::open(&store).expect("repositories");
            let mut model = Model::default();
            let mut txn = store.write().expect("a transaction");
            all.places.insert(&mut txn, &place("NO", 1)).expect("a place");
            for one in &changes {
                change(&all, &mut txn, &mut model, *one).expect("a change");
            }
            txn.commit().expect("a commit");
            let txn = store.read().expect("a transaction");
            let rows: Result<Vec<_>> = all.invoices.all(&txn).rows().collect();
            prop_assert_eq!(rows.expect("rows"), model.1.into_values().collect::<Vec<_>>());
            let rows: Result<Vec<_>> = all.customers.all(&txn).rows().collect();
            prop_assert_eq!(rows.expect("rows"), model.0.into_values().collect::<Vec<_>>());
            prop_assert!(store.verify().expect("a report").is_clean());
        }
    }
}
