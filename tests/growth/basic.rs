//! A store grows while its handles, repositories and transactions are in use.

use index_table::{Durability, Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant)]
#[index(tenant, town)]
#[index(town, include = [last_name])]
#[index(email, unique, scope = "global")]
pub(crate) struct Customer {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) id: u64,
    pub(crate) town: String,
    pub(crate) last_name: String,
    pub(crate) email: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant, shard_map = "customers")]
pub(crate) struct Order {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) number: u64,
    pub(crate) total: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(id))]
pub(crate) struct Event {
    #[primary_key]
    pub(crate) id: u64,
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "postal_codes", reference)]
pub(crate) struct PostalCode {
    #[primary_key]
    pub(crate) code: String,
    pub(crate) town: String,
}

pub(crate) fn customer(tenant: u32, id: u64) -> Customer {
    Customer {
        tenant,
        id,
        town: format!("town {}", id % 3),
        last_name: format!("name {id}"),
        email: format!("{tenant}.{id}@example.com"),
    }
}

/// The repositories of all tables.
pub(crate) struct All {
    pub(crate) customers: CustomerRepository,
    pub(crate) orders: OrderRepository,
    pub(crate) events: EventRepository,
    pub(crate) codes: PostalCodeRepository,
}

impl All {
    pub(crate) fn open(store: &Store) -> Result<Self> {
        Ok(Self {
            customers: CustomerRepository::open(store)?,
            orders: OrderRepository::open(store)?,
            events: EventRepository::open(store)?,
            codes: PostalCodeRepository::open(store)?,
        })
    }

    pub(crate) fn fill(&self, store: &Store) -> Result<()> {
        store.transaction(|txn| {
            for tenant in 0..100 {
                for id in 0..3 {
                    self.customers.insert(txn, &customer(tenant, id))?;
                }
                self.orders.insert(txn, &Order { tenant, number: 1, total: 7 })?;
            }
            for id in 0..100 {
                self.events.insert(txn, &Event { id, text: format!("event {id}") })?;
            }
            self.codes.insert(txn, &PostalCode { code: "98052".into(), town: "Redmond".into() })
        })
    }

    /// Compares all rows and entries with those of [`fill`](Self::fill).
    pub(crate) fn check(&self, store: &Store) -> Result<()> {
        let txn = store.read()?;
        assert_eq!(self.customers.all(&txn).count()?, 300);
        assert_eq!(self.customers.find_by_town(&txn, "town 1").rows().count(), 100);
        assert_eq!(self.orders.all(&txn).count()?, 100);
        assert_eq!(self.events.all(&txn).count()?, 100);
        for tenant in [0, 49, 50, 99] {
            assert_eq!(self.customers.find_by_tenant(&txn, tenant).count()?, 3);
            for id in 0..3 {
                let own = customer(tenant, id);
                assert_eq!(self.customers.get_by_email(&txn, &own.email)?, Some(own));
            }
        }
        assert_eq!(self.codes.get(&txn, "98052")?.map(|code| code.town), Some("Redmond".into()));
        assert!(store.verify()?.is_clean());
        drop(txn);
        let taken = store.transaction(|txn| {
            let mut other = customer(200, 1);
            other.email = customer(70, 1).email;
            self.customers.insert(txn, &other)
        });
        assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
        Ok(())
    }
}

#[test]
fn a_store_grows_while_it_is_used() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop");
    let store = Store::open(&path)?;
    let all = All::open(&store)?;
    all.fill(&store)?;
    let before = store.read()?;
    let number = before.commit_number();

    store.add_shard("east", "east")?;
    all.check(&store)?;
    assert_eq!(store.durability(), Durability::Journal);
    let names: Vec<_> = store.shard_ids().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["main", "east"]);

    store.move_range("customers", 50u32..100, "east").run()?;
    all.check(&store)?;
    assert_eq!(all.orders.shard_of(&store, 70)?.name(), "east");
    store.move_slots("events", ..2048, "east").run()?;
    store.move_slots("customers.email", 2048.., "east").run()?;
    all.check(&store)?;
    assert!(number < store.read()?.commit_number());
    // The snapshot of before has all rows.
    assert_eq!(all.customers.all(&before).count()?, 300);
    assert_eq!(all.customers.find_by_tenant(&before, 70).count()?, 3);
    assert!(all.customers.get_by_email(&before, &customer(70, 1).email)?.is_some());
    drop(before);
    drop((all, store));

    let store = Store::open(&path)?;
    let all = All::open(&store)?;
    all.check(&store)?;
    store.move_range("customers", 0u32.., "main").run()?;
    store.move_slots("events", .., "main").run()?;
    store.remove_shard("east")?;
    all.check(&store)?;
    drop((all, store));
    let store = Store::open(&path)?;
    All::open(&store)?.check(&store)?;
    assert_eq!(store.shard_ids().len(), 1);
    Ok(())
}

#[test]
fn a_table_that_was_not_open_is_in_the_first_data_file() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path())?;
    let all = All::open(&store)?;
    all.fill(&store)?;
    drop(all);
    store.add_shard("east", "east")?;
    let reason = || match store.move_range("customers", 50u32..100, "east").run() {
        Err(Error::ShardRefused { reason, .. }) => reason,
        moved => panic!("{moved:?}"),
    };
    let all = "`customers`, `events`, `orders`, `postal_codes`";
    assert_eq!(
        reason(),
        format!(
            "the store has no such map; open the repositories of its tables first: since the store has grown, {all} were not opened"
        )
    );
    let opened = (CustomerRepository::open(&store)?, EventRepository::open(&store)?);
    let others = "shard `main` has tables `orders`, `postal_codes`, and the store has no record of the distribution of their rows";
    assert!(reason().starts_with(others), "{}", reason());
    drop((opened, store));

    let store = Store::open(dir.path())?;
    let all = All::open(&store)?;
    all.check(&store)?;
    store.move_range("customers", 50u32..100, "east").run()?;
    all.check(&store)?;
    Ok(())
}

#[test]
fn a_store_with_full_durability_does_not_grow() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::options().durability(Durability::Full).open(dir.path())?;
    let refused = store.add_shard("east", "east");
    assert!(
        matches!(&refused, Err(Error::NotOffered { what }) if what.contains("Durability::Journal")),
        "{refused:?}"
    );
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["data.mdb", "lock.mdb"]);
    Ok(())
}

#[test]
fn options_add_shards_to_a_store_with_one_data_file() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path())?;
    let all = All::open(&store)?;
    all.fill(&store)?;
    drop((all, store));
    let options = || Store::options().add_shard("east", "east").add_shard("west", "west");
    for _ in 0..2 {
        let store = options().open(dir.path())?;
        let all = All::open(&store)?;
        all.check(&store)?;
        assert_eq!(store.shard_ids().len(), 3);
    }
    // All rows of the table are in the first data file, so another map can't be declared now.
    let other = tempfile::tempdir().unwrap();
    let store = Store::open(other.path())?;
    All::open(&store)?.fill(&store)?;
    drop(store);
    let map = ShardMap::ranges().to("main", ..50u32).to("east", 50u32..);
    let store =
        Store::options().add_shard("east", "east").map("customers", map).open(other.path())?;
    let refused = CustomerRepository::open(&store).map(drop);
    assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{refused:?}");
    Ok(())
}

#[test]
fn the_first_data_file_stays_in_the_store() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path())?;
    let all = All::open(&store)?;
    all.fill(&store)?;
    let taken = store.add_shard("main", "other");
    assert!(matches!(taken, Err(Error::ShardRefused { .. })), "{taken:?}");
    assert!(!dir.path().join("shards.manager").exists());
    store.add_shard("east", "east")?;
    store.move_range("customers", 0u32.., "east").run()?;
    for refused in [store.remove_shard("main"), store.detach_shard("main")] {
        let Err(Error::ShardRefused { reason, .. }) = &refused else { panic!("{refused:?}") };
        assert!(reason.contains("first data file"), "{reason}");
    }
    store.detach_shard("east")?;
    store.attach_shard("east", "east")?;
    all.check(&store)
}

#[test]
fn a_lost_manager_of_a_grown_store_is_rebuilt() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path())?;
    let all = All::open(&store)?;
    all.fill(&store)?;
    store.add_shard("east", "east")?;
    store.move_range("customers", 50u32.., "east").run()?;
    drop((all, store));
    std::fs::remove_dir_all(dir.path().join("shards.manager")).unwrap();
    let lost = Store::open(dir.path()).map(drop);
    assert!(lost.is_err(), "{lost:?}");
    let store = Store::options().shard("main", ".").shard("east", "east").rebuild(dir.path())?;
    let all = All::open(&store)?;
    all.check(&store)?;
    assert_eq!(all.orders.shard_of(&store, 70)?.name(), "east");
    Ok(())
}

#[test]
fn a_copy_of_a_grown_store_is_a_store_with_shards() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("shop"), dir.path().join("copy"));
    let store = Store::open(&path)?;
    let all = All::open(&store)?;
    all.fill(&store)?;
    store.add_shard("east", "east")?;
    store.move_range("customers", 50u32.., "east").run()?;
    store.backup_to(&copy)?;
    let copied = Store::open(&copy)?;
    All::open(&copied)?.check(&copied)?;
    Ok(())
}

#[test]
fn a_copy_of_the_only_shard_is_a_store_with_one_data_file() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("shop"), dir.path().join("copy"));
    let store = Store::open(&path)?;
    let all = All::open(&store)?;
    all.fill(&store)?;
    store.add_shard("east", "east")?;
    store.move_range("customers", 50u32.., "east").run()?;
    store.move_slots("customers.email", .., "east").run()?;
    store.move_range("customers", 0u32.., "main").run()?;
    store.remove_shard("east")?;
    store.backup_shard(&store.shard("main")?, &copy)?;
    drop((all, store));

    let store = Store::open(&copy)?;
    assert!(!copy.join("shards.manager").exists());
    All::open(&store)?.check(&store)?;
    drop(store);
    // It can grow again.
    let store = Store::open(&copy)?;
    let all = All::open(&store)?;
    store.add_shard("west", "west")?;
    store.move_range("customers", 50u32.., "west").run()?;
    all.check(&store)
}
