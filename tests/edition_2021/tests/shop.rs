//! `gen` is a keyword since the edition 2024, and a name before. This crate has it in each place of an attribute.

use std::time::{Duration, SystemTime};

use index_table::{IndexTable, Result, RowVersion, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "several indexes have a field")]
#[table(name = "dogs", view, shard_by = gen, keep_unknown)]
#[index(gen, allow(redundant))]
#[index(town, strategy = "partial", include = [name], name = "towns")]
#[index(desc(gen), town, name = "latest")]
#[index(name, strategy = "full", filter = gen, name = "kept")]
#[index(town, gen)]
#[aggregate(town, sum = [gen], min = [gen], max = [gen])]
#[aggregate(gen)]
struct Dog {
    #[primary_key]
    gen: u32,
    #[primary_key]
    id: u32,
    town: String,
    name: String,
}

impl Dog {
    fn gen(&self) -> bool {
        self.gen > 1
    }
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(expires = gen)]
#[index(each(tags), strategy = "partial", include = [gen])]
struct Session {
    #[primary_key]
    id: u32,
    gen: SystemTime,
    #[revision]
    revision: u64,
    tags: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(expires = computed(gen: SystemTime))]
#[index(each(gens))]
struct Lease {
    #[primary_key]
    id: u32,
    #[revision]
    gen: u64,
    gens: Vec<u32>,
}

impl Lease {
    fn gen(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.id.into())
    }
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[index(gen)]
struct Bowl {
    #[primary_key]
    id: u32,
    #[references(Session)]
    gen: u32,
}

#[derive(Deserialize, RowVersion)]
struct FirstBed {
    id: u32,
    gen: u32,
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(version = 2, previous = FirstBed, changed = [gen])]
#[index(each(gen))]
struct Bed {
    #[primary_key]
    id: u32,
    gen: Vec<u64>,
}

impl From<FirstBed> for Bed {
    fn from(FirstBed { id, gen }: FirstBed) -> Self {
        Self { id, gen: vec![gen.into()] }
    }
}

#[test]
fn a_field_can_be_called_gen() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path())?;
    let dogs = DogRepository::open(&store)?;
    let dog = |gen, id| Dog { gen, id, town: "Oslo".into(), name: "Rex".into() };
    store.transaction(|txn| (1..=3).try_for_each(|gen| dogs.insert(txn, &dog(gen, 7))))?;
    let txn = store.read()?;
    assert_eq!(dogs.get(&txn, 2, 7)?, Some(dog(2, 7)));
    assert_eq!(dogs.find_by_gen(&txn, 2).count()?, 1);
    assert_eq!(dogs.find_by_town_gen(&txn, "Oslo", 3).count()?, 1);
    assert_eq!(dogs.find_by_kept(&txn, "Rex").count()?, 2);
    let view = dogs.get_view(&txn, 1, 7)?.expect("a row");
    assert_eq!(view.gen, 1);
    let total = dogs.aggregate_by_town(&txn, "Oslo")?;
    assert_eq!((total.count, total.sum_gen), (3, 6));
    assert!(dogs.verify(&txn).run()?.is_clean());
    drop(txn);
    let (sessions, leases) = (SessionRepository::open(&store)?, LeaseRepository::open(&store)?);
    let (bowls, beds) = (BowlRepository::open(&store)?, BedRepository::open(&store)?);
    let now = SystemTime::now();
    store.transaction(|txn| {
        sessions.insert(txn, &Session { id: 1, gen: now, revision: 0, tags: vec![1] })?;
        leases.insert(txn, &Lease { id: 1, gen: 0, gens: vec![1] })?;
        bowls.insert(txn, &Bowl { id: 1, gen: 1 })?;
        beds.insert(txn, &Bed { id: 1, gen: vec![1, 2] })
    })?;
    let txn = store.read()?;
    let entry = sessions.find_by_tags(&txn, 1).entries().next().expect("an entry")?;
    assert_eq!(entry.clone(), entry);
    assert_eq!(entry.gen, now);
    drop((entry, txn));
    assert_eq!(leases.expire(&store, now, 10)?, 1);
    assert_eq!(sessions.expire(&store, now, 10)?, 0, "a bowl refers to it");
    Ok(())
}
