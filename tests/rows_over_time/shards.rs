//! References, cascades and parts in a sharded store.

use std::collections::BTreeMap;

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// A copy in each shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "countries", reference)]
struct Country {
    #[primary_key]
    code: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant)]
#[index(country)]
#[index(tenant, advised_by)]
#[references(Self, fields = [tenant, advised_by], on_delete = "cascade")]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    #[references(Country, on_delete = "cascade")]
    country: String,
    /// The customer itself, or another customer of the same tenant.
    advised_by: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", shard_by = tenant, shard_map = "customers")]
#[index(tenant, customer)]
#[references(Customer, fields = [tenant, customer])]
struct Invoice {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u32,
    customer: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "photos", shard_by = tenant, shard_map = "customers", part_of = Customer)]
struct Photo {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
}

fn country(code: &str) -> Country {
    Country { code: code.to_owned() }
}

fn customer(tenant: u32, id: u32, code: &str) -> Customer {
    Customer { tenant, id, country: code.to_owned(), advised_by: id }
}

fn opened() -> Result<(Store, TempDir)> {
    let dir = tempfile::tempdir().expect("a directory");
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").shard("c", "c");
    let store = options.map("customers", map).open(dir.path().join("store"))?;
    Ok((store, dir))
}

struct Repositories {
    countries: CountryRepository,
    customers: CustomerRepository,
    invoices: InvoiceRepository,
    photos: PhotoRepository,
}

impl Repositories {
    fn open(store: &Store) -> Result<Self> {
        Ok(Self {
            invoices: InvoiceRepository::open(store)?,
            photos: PhotoRepository::open(store)?,
            customers: CustomerRepository::open(store)?,
            countries: CountryRepository::open(store)?,
        })
    }

    /// Opens the tables with two countries, and a customer of each of three tenants.
    fn filled(store: &Store) -> Result<Self> {
        let all = Self::open(store)?;
        store.transaction(|txn| {
            all.countries.insert(txn, &country("NO"))?;
            all.countries.insert(txn, &country("SE"))?;
            for tenant in [5, 15, 25] {
                all.customers.insert(txn, &customer(tenant, 1, "NO"))?;
            }
            Ok::<_, Error>(())
        })?;
        Ok(all)
    }
}

#[test]
fn rows_refer_to_rows_of_their_shard_and_to_reference_tables() -> Result<()> {
    let (store, _dir) = opened()?;
    let Repositories { countries, customers, invoices, photos } = Repositories::filled(&store)?;
    store
        .transaction(|txn| invoices.insert(txn, &Invoice { tenant: 15, number: 1, customer: 1 }))?;
    for (tenant, id) in [(15, 2), (16, 1), (25, 9)] {
        let row = Invoice { tenant, number: 2, customer: id };
        let missing = store.transaction(|txn| invoices.insert(txn, &row));
        assert!(matches!(missing, Err(Error::MissingReference { to: "customers", .. })));
        let missing = store.transaction(|txn| photos.insert(txn, &Photo { tenant, id }));
        assert!(matches!(missing, Err(Error::MissingReference { reference: "part_of", .. })));
    }
    let missing = store.transaction(|txn| customers.insert(txn, &customer(5, 2, "DK")));
    assert!(matches!(missing, Err(Error::MissingReference { to: "countries", .. })));

    let refused = store.transaction(|txn| customers.delete(txn, 15, 1));
    assert!(matches!(refused, Err(Error::Referenced { by: "invoices", .. })));
    let refused = store.transaction(|txn| countries.update(txn, "NO", |row| row.code.push('!')));
    assert!(matches!(refused, Err(Error::Referenced { by: "customers", .. })));
    assert!(store.transaction(|txn| countries.delete(txn, "SE"))?);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn a_cascade_from_a_reference_table_reaches_all_shards() -> Result<()> {
    let (store, _dir) = opened()?;
    let Repositories { countries, customers, invoices, photos } = Repositories::filled(&store)?;
    store.transaction(|txn| {
        photos.insert(txn, &Photo { tenant: 25, id: 1 })?;
        customers.insert(txn, &customer(25, 2, "SE"))?;
        invoices.insert(txn, &Invoice { tenant: 15, number: 1, customer: 1 })
    })?;
    let refused = store.transaction(|txn| countries.delete(txn, "NO"));
    assert!(matches!(refused, Err(Error::Referenced { table: "customers", .. })));
    assert_eq!(customers.all(&store.read()?).count()?, 4);
    store.transaction(|txn| invoices.delete(txn, 15, 1))?;
    assert!(store.transaction(|txn| countries.delete(txn, "NO"))?);
    let txn = store.read()?;
    assert_eq!(customers.all(&txn).keys().collect::<Result<Vec<_>>>()?, [(25, 2)]);
    assert_eq!(photos.all(&txn).count()?, 0);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn a_program_without_the_referring_struct_keeps_the_reference_in_each_shard() -> Result<()> {
    let (store, dir) = opened()?;
    let all = Repositories::filled(&store)?;
    store.transaction(|txn| {
        all.invoices.insert(txn, &Invoice { tenant: 15, number: 1, customer: 1 })
    })?;
    drop((all, store));
    let store = Store::open(dir.path().join("store"))?;
    let customers = CustomerRepository::open(&store)?;
    let refused = store.transaction(|txn| customers.delete(txn, 15, 1));
    assert!(matches!(refused, Err(Error::Referenced { by: "invoices", .. })));
    assert!(store.transaction(|txn| customers.delete(txn, 5, 1))?);
    Ok(())
}

#[test]
fn references_to_rows_that_can_be_in_another_shard_are_refused() -> Result<()> {
    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[index(tenant, customer)]
    #[references(Customer, fields = [tenant, customer])]
    struct Letter {
        #[primary_key]
        id: u32,
        tenant: u32,
        customer: u32,
    }
    /// Another map.
    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(shard_by = tenant, shard_map = "others")]
    #[index(tenant, customer)]
    #[references(Customer, fields = [tenant, customer])]
    struct Parcel {
        #[primary_key]
        tenant: u32,
        #[primary_key]
        id: u32,
        customer: u32,
    }
    /// A reference that does not begin with the shard key.
    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(shard_by = tenant, shard_map = "customers")]
    #[index(seller, customer)]
    #[references(Customer, fields = [seller, customer])]
    struct Resale {
        #[primary_key]
        tenant: u32,
        #[primary_key]
        id: u32,
        seller: u32,
        customer: u32,
    }
    /// Each shard has a copy, and no shard has all customers.
    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(reference)]
    #[index(tenant, customer)]
    #[references(Customer, fields = [tenant, customer])]
    struct Star {
        #[primary_key]
        id: u32,
        tenant: u32,
        customer: u32,
    }
    /// A table in another shard than that of its main rows, which no program has chosen.
    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "archives", part_of = Archived)]
    struct Archive {
        #[primary_key]
        id: u32,
    }
    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "archived")]
    struct Archived {
        #[primary_key]
        id: u32,
    }
    /// A table in the same shard.
    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "near", part_of = Archived)]
    struct Near {
        #[primary_key]
        id: u32,
    }
    let dir = tempfile::tempdir().expect("a directory");
    let map = || ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let options =
        Store::options().shard("a", "a").shard("b", "b").place("archived", "b").place("near", "b");
    let store = options.map("customers", map()).map("others", map()).open(dir.path())?;
    let errors = [
        LetterRepository::open(&store).err(),
        ParcelRepository::open(&store).err(),
        ResaleRepository::open(&store).err(),
        StarRepository::open(&store).err(),
    ];
    for error in errors {
        let error = error.expect("an error");
        assert!(matches!(error, Error::SchemaMismatch { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("can be in different shards"), "{text}");
    }
    let error = ArchiveRepository::open(&store).expect_err("an error").to_string();
    assert!(error.contains("a part and its main row in table `archived` can be in"), "{error}");
    assert!(error.contains("place both tables in the same shard"), "{error}");
    let near = NearRepository::open(&store)?;
    let archived = ArchivedRepository::open(&store)?;
    store.transaction(|txn| {
        archived.insert(txn, &Archived { id: 1 })?;
        near.insert(txn, &Near { id: 1 })
    })?;
    assert!(store.transaction(|txn| archived.delete(txn, 1))?);
    assert_eq!(near.all(&store.read()?).count()?, 0);
    Ok(())
}

#[test]
fn references_move_with_their_rows() -> Result<()> {
    let (store, dir) = opened()?;
    let all = Repositories::filled(&store)?;
    store.transaction(|txn| {
        all.invoices.insert(txn, &Invoice { tenant: 15, number: 1, customer: 1 })
    })?;
    store.add_shard("d", "d")?;
    store.move_range("customers", 10u32..20, "d").run()?;
    let check = |all: &Repositories, store: &Store| -> Result<()> {
        let refused = store.transaction(|txn| all.customers.delete(txn, 15, 1));
        assert!(matches!(refused, Err(Error::Referenced { by: "invoices", .. })));
        let row = Invoice { tenant: 16, number: 1, customer: 1 };
        let missing = store.transaction(|txn| all.invoices.insert(txn, &row));
        assert!(matches!(missing, Err(Error::MissingReference { .. })));
        store.transaction(|txn| all.photos.insert(txn, &Photo { tenant: 15, id: 1 }))?;
        assert!(store.transaction(|txn| all.photos.delete(txn, 15, 1))?);
        assert!(store.verify()?.is_clean());
        Ok(())
    };
    check(&all, &store)?;
    drop((all, store));
    let store = Store::open(dir.path().join("store"))?;
    let all = Repositories::open(&store)?;
    check(&all, &store)?;
    store.transaction(|txn| all.invoices.delete(txn, 15, 1).map(drop))?;
    assert!(store.transaction(|txn| all.countries.delete(txn, "NO"))?);
    assert_eq!(all.customers.all(&store.read()?).count()?, 0);
    Ok(())
}

#[derive(Debug, Clone, Default)]
struct Model {
    customers: BTreeMap<(u32, u32), Customer>,
    invoices: BTreeMap<(u32, u32), Invoice>,
    photos: BTreeMap<(u32, u32), Photo>,
}

impl Model {
    /// Deletes a customer with all rows of its cascade. Returns false if an invoice refers to one of them.
    fn delete(&mut self, (tenant, id): (u32, u32)) -> bool {
        if self.invoices.values().any(|row| (row.tenant, row.customer) == (tenant, id)) {
            return false;
        }
        self.customers.remove(&(tenant, id));
        self.photos.remove(&(tenant, id));
        loop {
            let advised = |row: &&Customer| (row.tenant, row.advised_by) == (tenant, id);
            let Some(next) = self.customers.values().find(advised) else { return true };
            let next = (next.tenant, next.id);
            if !self.delete(next) {
                return false;
            }
        }
    }
}

type Step = (u8, u32, u32, u32);

fn step(all: &Repositories, store: &Store, model: &mut Model, step: Step) -> Result<()> {
    let (kind, tenant, id, other) = step;
    let (tenant, key) = (tenant * 10, (tenant * 10, id));
    match kind {
        0 => {
            let row = Customer { advised_by: other, ..customer(tenant, id, "NO") };
            let exists = other == id || model.customers.contains_key(&(tenant, other));
            match store.transaction(|txn| all.customers.put(txn, &row)) {
                Err(Error::MissingReference { .. }) => assert!(!exists),
                outcome => {
                    outcome?;
                    assert!(exists);
                    model.customers.insert(key, row);
                }
            }
        }
        1 => {
            let row = Invoice { tenant, number: id, customer: other };
            match store.transaction(|txn| all.invoices.put(txn, &row)) {
                Err(Error::MissingReference { .. }) => {
                    assert!(!model.customers.contains_key(&(tenant, other)));
                }
                outcome => {
                    outcome?;
                    assert!(model.customers.contains_key(&(tenant, other)));
                    model.invoices.insert(key, row);
                }
            }
        }
        2 => {
            let row = Photo { tenant, id };
            match store.transaction(|txn| all.photos.put(txn, &row)) {
                Err(Error::MissingReference { .. }) => {
                    assert!(!model.customers.contains_key(&key));
                }
                outcome => {
                    outcome?;
                    assert!(model.customers.contains_key(&key));
                    model.photos.insert(key, row);
                }
            }
        }
        3 => {
            let mut left = model.clone();
            let exists = model.customers.contains_key(&key);
            match store.transaction(|txn| all.customers.delete(txn, tenant, id)) {
                Err(Error::Referenced { .. }) => assert!(exists && !left.delete(key)),
                deleted => {
                    assert_eq!(deleted?, exists);
                    assert!(!exists || left.delete(key));
                    *model = left;
                }
            }
        }
        4 => {
            let deleted = store.transaction(|txn| all.invoices.delete(txn, tenant, id))?;
            assert_eq!(deleted, model.invoices.remove(&key).is_some());
        }
        _ => {
            let to = ["a", "b", "c"][other as usize % 3];
            store.move_range("customers", tenant..tenant + 10, to).run()?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn random_changes_and_moves_agree_with_a_model(
        steps in prop::collection::vec((0..6u8, 0..3u32, 0..4u32, 0..4u32), 1..60)
    ) {
        let (store, _dir) = opened().expect("a store");
        let all = Repositories::open(&store).expect("repositories");
        store.transaction(|txn| all.countries.insert(txn, &country("NO"))).expect("a country");
        let mut model = Model::default();
        for one in steps {
            step(&all, &store, &mut model, one).expect("a step");
        }
        let txn = store.read().expect("a transaction");
        let rows: Result<Vec<_>> = all.customers.all(&txn).rows().collect();
        prop_assert_eq!(rows.expect("rows"), model.customers.into_values().collect::<Vec<_>>());
        let rows: Result<Vec<_>> = all.invoices.all(&txn).rows().collect();
        prop_assert_eq!(rows.expect("rows"), model.invoices.into_values().collect::<Vec<_>>());
        let rows: Result<Vec<_>> = all.photos.all(&txn).rows().collect();
        prop_assert_eq!(rows.expect("rows"), model.photos.into_values().collect::<Vec<_>>());
        drop(txn);
        prop_assert!(store.verify().expect("a report").is_clean());
    }
}
