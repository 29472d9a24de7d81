//! Parts that are placed in another shard than their main rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use index_table::{Error, FindingKind, IndexTable, Options, Result, ShardMap, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "products", shard_by = tenant, expires = ends)]
#[index(tenant, kit)]
#[references(Self, fields = [tenant, kit], on_delete = "cascade")]
struct Product {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    /// The product itself, or another product of the same tenant.
    kit: u32,
    #[revision]
    revision: u64,
    ends: Option<SystemTime>,
}

/// In a shard of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "pictures", part_of = Product)]
#[index(bytes)]
#[aggregate(sum = [size])]
struct Picture {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    bytes: Vec<u8>,
    size: u64,
}

fn product(tenant: u32, id: u32) -> Product {
    Product { tenant, id, kit: id, revision: 0, ends: None }
}

fn picture(tenant: u32, id: u32) -> Picture {
    Picture { tenant, id, bytes: vec![1, 2, 3], size: 3 }
}

/// Three shards of products, and a shard of pictures. With `pictures` as the first shard, transactions often run again.
fn options(pictures: &str) -> Options {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    let names =
        if pictures == "first" { ["pictures", "a", "b", "c"] } else { ["a", "b", "c", "pictures"] };
    let options = names.into_iter().fold(Store::options(), |it, name| it.shard(name, name));
    options.map("products", map).place("pictures", "pictures")
}

fn stores() -> Result<Vec<(TempDir, Store)>> {
    let mut stores = Vec::new();
    for place in ["first", "last"] {
        let dir = tempfile::tempdir().expect("a directory");
        stores.push((options(place).open(dir.path().join("store"))?, dir));
        let dir = tempfile::tempdir().expect("a directory");
        stores.push((options(place).in_memory()?, dir));
    }
    Ok(stores.into_iter().map(|(store, dir)| (dir, store)).collect())
}

struct Repositories {
    pictures: PictureRepository,
    products: ProductRepository,
}

impl Repositories {
    fn open(store: &Store) -> Result<Self> {
        let pictures = PictureRepository::open(store)?;
        Ok(Self { pictures, products: ProductRepository::open(store)? })
    }

    /// Opens the tables with a product of each of three tenants, all with pictures.
    fn filled(store: &Store) -> Result<Self> {
        let all = Self::open(store)?;
        store.transaction(|txn| {
            for tenant in [5, 15, 25] {
                all.products.insert(txn, &product(tenant, 1))?;
                all.pictures.insert(txn, &picture(tenant, 1))?;
            }
            Ok::<_, Error>(())
        })?;
        Ok(all)
    }

    /// The keys of the pictures, each of which has its product.
    fn pictures(&self, store: &Store) -> Result<Vec<(u32, u32)>> {
        let txn = store.read()?;
        let keys = self.pictures.all(&txn).keys().collect::<Result<Vec<_>>>()?;
        for (tenant, id) in &keys {
            assert!(self.products.get(&txn, *tenant, *id)?.is_some(), "{tenant} {id}");
        }
        assert_eq!(self.pictures.aggregate(&txn)?.count, keys.len() as u64);
        drop(txn);
        assert!(store.verify()?.is_clean());
        Ok(keys)
    }
}

#[test]
fn a_part_in_another_shard_needs_its_main_row() -> Result<()> {
    for (_dir, store) in stores()? {
        let all = Repositories::filled(&store)?;
        for (tenant, id) in [(5, 2), (16, 1), (29, 1)] {
            let row = picture(tenant, id);
            let missing = store.transaction(|txn| all.pictures.insert(txn, &row));
            let Err(Error::MissingReference { table, reference, to, .. }) = missing else {
                panic!("{missing:?}")
            };
            assert_eq!((table, reference, to), ("pictures", "part_of", "products"));
            let missing = store.transaction(|txn| all.pictures.put(txn, &row));
            assert!(matches!(missing, Err(Error::MissingReference { .. })));
            let moved = store.transaction(|txn| {
                all.pictures.update(txn, 5, 1, |it| (it.tenant, it.id) = (tenant, id))
            });
            assert!(matches!(moved, Err(Error::MissingReference { .. })));
            let loaded = all.pictures.bulk_load(&store, [row.clone()]).run();
            assert!(matches!(loaded, Err(Error::MissingReference { .. })), "{loaded:?}");
        }
        all.products.bulk_load(&store, (30..40).map(|tenant| product(tenant, 1))).run()?;
        all.pictures.bulk_load(&store, (30..40).map(|tenant| picture(tenant, 1))).run()?;
        let txn = store.read()?;
        let (row, part) =
            all.products.get_with_parts(&txn, (15, 1), &all.pictures)?.expect("a row");
        assert_eq!((row.tenant, part), (15, Some(picture(15, 1))));
        drop(txn);
        assert_eq!(all.pictures(&store)?.len(), 13);
    }
    Ok(())
}

#[test]
fn a_main_row_is_deleted_with_its_part_in_another_shard() -> Result<()> {
    for (_dir, store) in stores()? {
        let all = Repositories::filled(&store)?;
        store.transaction(|txn| {
            for id in 2..8 {
                // A chain of kits: each product is in the kit of the previous product.
                all.products.insert(txn, &Product { kit: id - 1, ..product(15, id) })?;
                all.pictures.insert(txn, &picture(15, id))?;
            }
            all.products.insert(txn, &product(25, 2))
        })?;
        assert!(store.transaction(|txn| all.products.delete(txn, 5, 1))?);
        assert_eq!(all.pictures(&store)?.len(), 8);
        // A row without a part.
        assert!(store.transaction(|txn| all.products.delete(txn, 25, 2))?);
        // `delete_if`, with the whole cascade.
        let first = all.products.get(&store.read()?, 15, 2)?.expect("a row");
        store.transaction(|txn| all.products.delete_if(txn, &first))?;
        assert_eq!(all.pictures(&store)?, [(15, 1), (25, 1)]);
        // A scan.
        let deleted = store
            .transaction(|txn| all.products.find_by_tenant_kit(txn, 15, 1).query().delete(txn))?;
        assert_eq!(deleted, 1);
        assert_eq!(all.pictures(&store)?, [(25, 1)]);
        // Expiry.
        let ends = SystemTime::now() - Duration::from_secs(1);
        store.transaction(|txn| all.products.update(txn, 25, 1, |it| it.ends = Some(ends)))?;
        assert_eq!(all.products.expire(&store, SystemTime::now(), 10)?, 1);
        assert_eq!(all.pictures(&store)?, []);
    }
    Ok(())
}

#[test]
fn a_main_row_with_a_part_in_another_shard_keeps_its_primary_key() -> Result<()> {
    for (_dir, store) in stores()? {
        let all = Repositories::filled(&store)?;
        let renamed =
            store.transaction(|txn| all.products.update(txn, 5, 1, |it| (it.id, it.kit) = (9, 9)));
        assert!(matches!(renamed, Err(Error::Referenced { by: "pictures", .. })), "{renamed:?}");
        store.transaction(|txn| all.pictures.delete(txn, 5, 1))?;
        store.transaction(|txn| {
            all.products.update(txn, 5, 1, |it| (it.id, it.kit) = (9, 9)).map(drop)
        })?;
        assert_eq!(all.pictures(&store)?, [(15, 1), (25, 1)]);
    }
    Ok(())
}

#[test]
fn a_rolled_back_deletion_leaves_the_part() -> Result<()> {
    for (_dir, store) in stores()? {
        let all = Repositories::filled(&store)?;
        let failed = store.transaction(|txn| {
            assert!(all.products.delete(txn, 5, 1)?);
            assert!(all.pictures.get(txn, 5, 1)?.is_none());
            Err::<(), _>(Error::NotOffered { what: "a commit" })
        });
        assert!(failed.is_err());
        store.transaction(|txn| {
            let failed = txn.nested(|txn| {
                all.products.delete(txn, 15, 1)?;
                Err::<(), _>(Error::NotOffered { what: "a commit" })
            });
            assert!(failed.is_err());
            txn.nested(|txn| all.products.delete(txn, 25, 1)).map(drop)
        })?;
        assert_eq!(all.pictures(&store)?, [(5, 1), (15, 1)]);
        let mut txn = store.write()?;
        assert!(all.products.delete(&mut txn, 5, 1)?);
        drop(txn);
        assert_eq!(all.pictures(&store)?, [(5, 1), (15, 1)]);
        let mut txn = store.write()?;
        assert!(all.products.delete(&mut txn, 5, 1)?);
        txn.commit()?;
        assert_eq!(all.pictures(&store)?, [(15, 1)]);
        // A transaction of one shard can't delete the part.
        let shard = all.products.shard_of(&store, 15)?;
        let refused = store.transaction_on(&shard, |txn| all.products.delete(txn, 15, 1));
        assert!(matches!(refused, Err(Error::OtherShard { table: "pictures", .. })), "{refused:?}");
        let shard = store.shard("pictures")?;
        let refused = store.transaction_on(&shard, |txn| all.pictures.insert(txn, &picture(25, 1)));
        assert!(matches!(refused, Err(Error::OtherShard { table: "products", .. })), "{refused:?}");
        assert_eq!(all.pictures(&store)?, [(15, 1)]);
    }
    Ok(())
}

#[test]
fn a_program_without_the_parts_cannot_delete_their_main_rows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let store = options("last").open(&path)?;
    drop(Repositories::filled(&store)?);
    drop(store);
    let store = Store::open(&path)?;
    let products = ProductRepository::open(&store)?;
    let refused = store.transaction(|txn| products.delete(txn, 5, 1));
    let Err(Error::RepositoryNeeded { by, repository, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((by, repository), ("pictures", "PictureRepository"));
    let pictures = PictureRepository::open(&store)?;
    assert!(store.transaction(|txn| products.delete(txn, 5, 1))?);
    drop(pictures);
    let refused = store.transaction(|txn| products.delete(txn, 15, 1));
    assert!(matches!(refused, Err(Error::RepositoryNeeded { .. })));
    drop((products, store));

    // Without the shard of the parts.
    fs::rename(path.join("pictures"), dir.path().join("lost")).expect("renamed");
    let store = Store::open(&path)?;
    let products = ProductRepository::open(&store)?;
    let refused = store.transaction(|txn| products.delete(txn, 15, 1));
    assert!(matches!(refused, Err(Error::ShardUnavailable { .. })), "{refused:?}");
    store.transaction(|txn| products.insert(txn, &product(15, 2)))?;
    drop((products, store));
    fs::rename(dir.path().join("lost"), path.join("pictures")).expect("renamed");

    // With the repository of the parts alone.
    let store = Store::open(&path)?;
    let pictures = PictureRepository::open(&store)?;
    store.transaction(|txn| pictures.insert(txn, &picture(15, 2)))?;
    let missing = store.transaction(|txn| pictures.insert(txn, &picture(15, 3)));
    assert!(matches!(missing, Err(Error::MissingReference { .. })));
    Ok(())
}

#[test]
fn a_rebuilt_manager_has_the_records_of_the_parts() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let store = options("last").open(&path)?;
    drop(Repositories::filled(&store)?);
    drop(store);
    fs::remove_file(path.join("data.mdb")).expect("removed");
    let options = ["a", "b", "c", "pictures"];
    let options = options.into_iter().fold(Store::options(), |it, name| it.shard(name, name));
    let store = options.rebuild(&path)?;
    let products = ProductRepository::open(&store)?;
    let refused = store.transaction(|txn| products.delete(txn, 5, 1));
    let Err(error @ Error::RepositoryNeeded { by: "pictures", .. }) = refused else {
        panic!("{refused:?}")
    };
    assert!(error.to_string().contains("open `the repository of pictures` on this store first"));
    let all = Repositories::open(&store)?;
    assert!(store.transaction(|txn| products.delete(txn, 5, 1))?);
    assert_eq!(all.pictures(&store)?, [(15, 1), (25, 1)]);
    Ok(())
}

#[test]
fn parts_stay_in_their_shard_while_their_main_rows_move() -> Result<()> {
    for place in ["first", "last"] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = options(place).open(dir.path().join("store"))?;
        let all = Repositories::filled(&store)?;
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut round = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let id = 2 + round % 5;
                    round += 1;
                    store.transaction(|txn| {
                        all.products.insert(txn, &product(15, id))?;
                        all.pictures.insert(txn, &picture(15, id))
                    })?;
                    let missing = store.transaction(|txn| all.pictures.put(txn, &picture(15, 9)));
                    assert!(matches!(missing, Err(Error::MissingReference { .. })));
                    assert!(store.transaction(|txn| all.products.delete(txn, 15, id))?);
                }
                Ok::<_, Error>(())
            });
            let moved = (|| {
                store.add_shard("d", "d")?;
                // To the shard of the parts, too.
                let moves = ["d", "pictures", "c", "b", "d"].into_iter().map(|to| {
                    store.move_range("products", 10u32..20, to).run()?;
                    Ok::<_, Error>(store.verify()?.is_clean())
                });
                moves.collect::<Result<Vec<_>>>()
            })();
            is_done.store(true, Ordering::Relaxed);
            writer.join().expect("a writer")?;
            assert_eq!(moved?, [true; 5]);
            Ok::<_, Error>(())
        })?;
        assert_eq!(all.pictures(&store)?, [(5, 1), (15, 1), (25, 1)]);
        drop((all, store));
        let store = Store::open(dir.path().join("store"))?;
        let all = Repositories::open(&store)?;
        assert!(store.transaction(|txn| all.products.delete(txn, 15, 1))?);
        assert_eq!(all.pictures(&store)?, [(5, 1), (25, 1)]);
        store.remove_shard("b")?;
        let refused = store.detach_shard("c");
        let Err(Error::ShardRefused { reason, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(
            reason,
            "it has rows of table `products`, with parts in other shards; move them"
        );
        let refused = store.detach_shard("pictures");
        assert!(matches!(refused, Err(Error::ShardRefused { .. })), "{refused:?}");
    }
    Ok(())
}

#[test]
fn no_part_is_inserted_beside_the_deletion_of_its_main_row() -> Result<()> {
    for (_dir, store) in stores()? {
        let all = Repositories::filled(&store)?;
        thread::scope(|scope| {
            let insert = scope.spawn(|| {
                (0..60).try_for_each(|_| {
                    match store.transaction(|txn| all.pictures.put(txn, &picture(15, 2))) {
                        Err(Error::MissingReference { .. }) => Ok(()),
                        outcome => outcome,
                    }
                })
            });
            for _ in 0..60 {
                store.transaction(|txn| all.products.insert(txn, &product(15, 2)))?;
                assert!(store.transaction(|txn| all.products.delete(txn, 15, 2))?);
            }
            insert.join().expect("a writer")
        })?;
        assert_eq!(all.pictures(&store)?, [(5, 1), (15, 1), (25, 1)]);
    }
    Ok(())
}

/// Copies the files of an open store, as a killed process leaves them.
fn killed(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            killed(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("copied");
        }
    }
}

#[test]
fn no_part_is_without_its_main_row_after_a_kill() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let store = options("last").open(&path)?;
    let all = Repositories::filled(&store)?;
    for step in 0..6 {
        store.transaction(|txn| {
            all.products.insert(txn, &product(15, 10 + step))?;
            all.pictures.insert(txn, &picture(15, 10 + step))
        })?;
        if step % 2 == 1 {
            store.transaction(|txn| all.products.delete(txn, 15, 10 + step))?;
        }
        let expected = all.pictures(&store)?;
        let left = dir.path().join(format!("{step}"));
        killed(&path, &left);
        // The data file of a shard may lack all commits since the checkpoint; recovery adds them.
        let left = Store::open(&left)?;
        assert_eq!(Repositories::open(&left)?.pictures(&left)?, expected);
    }
    Ok(())
}

#[test]
fn verify_lists_parts_without_their_main_row_in_other_shards() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let store = options("last").open(&path)?;
    drop(Repositories::filled(&store)?);
    drop(store);
    // A backup of a shard has fewer main rows.
    let (old, new) = (dir.path().join("old"), path.join("b"));
    Store::options().read_only(true).open(&new)?.backup_to(&old)?;
    let store = Store::open(&path)?;
    let all = Repositories::open(&store)?;
    store.transaction(|txn| {
        all.products.insert(txn, &product(15, 2))?;
        all.pictures.insert(txn, &picture(15, 2))
    })?;
    drop((all, store));
    fs::remove_dir_all(&new).expect("removed");
    let store = Store::open(&path)?;
    let all = Repositories::open(&store)?;
    let (lost, _) = store.unavailable_shards().remove(0);
    store.restore_shard(&lost, &old)?;
    let report = all.pictures.verify(&store.read()?).run()?;
    assert_eq!((report.findings.len(), report.count(FindingKind::Orphan)), (1, 1), "{report}");
    assert!(report.to_string().contains("(15, 2)"), "{report}");
    // A repair changes no rows, so it leaves the row to the program.
    let report = store.transaction(|txn| all.pictures.repair(txn).run())?;
    assert_eq!((report.count(FindingKind::Orphan), report.left), (1, 1), "{report}");
    assert!(store.transaction(|txn| all.pictures.delete(txn, 15, 2))?);
    assert_eq!(all.pictures(&store)?, [(5, 1), (15, 1), (25, 1)]);
    Ok(())
}

/// The same table, declared without and with its main rows.
mod before {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "pictures")]
    pub(super) struct Picture {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) bytes: Vec<u8>,
        pub(super) size: u64,
    }
}

#[test]
fn existing_rows_become_parts_if_all_have_main_rows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options("last").open(dir.path().join("store"))?;
    let pictures = before::PictureRepository::open(&store)?;
    let row = |id| before::Picture { tenant: 15, id, bytes: vec![1, 2, 3], size: 3 };
    store.transaction(|txn| {
        pictures.insert(txn, &row(1))?;
        pictures.insert(txn, &row(2))
    })?;
    drop(pictures);
    let products = ProductRepository::open(&store)?;
    store.transaction(|txn| products.insert(txn, &product(15, 1)))?;
    let missing = PictureRepository::open(&store).expect_err("an error");
    assert!(matches!(missing, Error::MissingReference { .. }), "{missing:?}");
    // Nothing refers to the products yet.
    assert!(store.transaction(|txn| products.delete(txn, 15, 1))?);
    store.transaction(|txn| {
        products.insert(txn, &product(15, 1))?;
        products.insert(txn, &product(15, 2))
    })?;
    let all = Repositories::open(&store)?;
    assert!(store.transaction(|txn| products.delete(txn, 15, 1))?);
    assert_eq!(all.pictures(&store)?, [(15, 2)]);
    drop((all, products));
    // Without `part_of`, the main rows are free again.
    let pictures = before::PictureRepository::open(&store)?;
    let products = ProductRepository::open(&store)?;
    assert!(store.transaction(|txn| products.delete(txn, 15, 2))?);
    assert_eq!(pictures.all(&store.read()?).count()?, 1);
    Ok(())
}

type Step = (u8, u32, u32, u32);

#[derive(Debug, Clone, Default)]
struct Model {
    /// The kit of each product.
    products: BTreeMap<(u32, u32), u32>,
    pictures: BTreeSet<(u32, u32)>,
}

impl Model {
    fn delete(&mut self, (tenant, id): (u32, u32)) -> bool {
        if self.products.remove(&(tenant, id)).is_none() {
            return false;
        }
        self.pictures.remove(&(tenant, id));
        let of_kit =
            |(key, kit): (&(u32, u32), &u32)| (key.0 == tenant && *kit == id).then_some(*key);
        while let Some(next) = self.products.iter().find_map(of_kit) {
            self.delete(next);
        }
        true
    }
}

fn step(all: &Repositories, store: &Store, model: &mut Model, step: Step) -> Result<()> {
    let (kind, tenant, id, other) = step;
    let (tenant, key) = (tenant * 10, (tenant * 10, id));
    match kind {
        0 => {
            let revision =
                all.products.get(&store.read()?, tenant, id)?.map_or(0, |row| row.revision);
            let row = Product { kit: other, revision, ..product(tenant, id) };
            let exists = other == id || model.products.contains_key(&(tenant, other));
            match store.transaction(|txn| all.products.put(txn, &row)) {
                Err(Error::MissingReference { .. }) => assert!(!exists),
                outcome => {
                    outcome?;
                    assert!(exists);
                    model.products.insert(key, other);
                }
            }
        }
        1 => match store.transaction(|txn| all.pictures.put(txn, &picture(tenant, id))) {
            Err(Error::MissingReference { .. }) => assert!(!model.products.contains_key(&key)),
            outcome => {
                outcome?;
                assert!(model.products.contains_key(&key));
                model.pictures.insert(key);
            }
        },
        2 | 3 => {
            // Some deletions are undone, by a savepoint or with the whole transaction.
            let mut left = model.clone();
            let exists = left.delete(key);
            let undone = store.transaction(|txn| {
                let outcome = txn.nested(|txn| {
                    assert_eq!(all.products.delete(txn, tenant, id)?, exists);
                    if other % 3 == 0 { Err(Error::NotOffered { what: "it" }) } else { Ok(()) }
                });
                match outcome {
                    Err(Error::NotOffered { .. }) => Ok(true),
                    outcome => outcome.map(|()| other % 3 == 1),
                }?;
                if other % 3 == 1 {
                    Err(Error::NotOffered { what: "it" })
                } else {
                    Ok(other % 3 == 0)
                }
            });
            match undone {
                Err(Error::NotOffered { .. }) => {}
                undone => {
                    if !undone? {
                        *model = left;
                    }
                }
            }
        }
        4 => {
            let deleted = store.transaction(|txn| all.pictures.delete(txn, tenant, id))?;
            assert_eq!(deleted, model.pictures.remove(&key));
        }
        _ => {
            let to = ["a", "b", "c", "pictures"][other as usize % 4];
            store.move_range("products", tenant..tenant + 10, to).run()?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn after_random_changes_and_moves_each_part_has_its_main_row(
        is_first in prop::bool::ANY,
        steps in prop::collection::vec((0..6u8, 0..3u32, 0..4u32, 0..4u32), 1..60)
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let options = options(if is_first { "first" } else { "last" });
        let store = options.open(dir.path().join("store")).expect("a store");
        let all = Repositories::open(&store).expect("repositories");
        let mut model = Model::default();
        for one in steps {
            step(&all, &store, &mut model, one).expect("a step");
        }
        let pictures = all.pictures(&store).expect("pictures");
        prop_assert_eq!(pictures, model.pictures.into_iter().collect::<Vec<_>>());
        let txn = store.read().expect("a transaction");
        let products: Result<Vec<_>> = all.products.all(&txn).keys().collect();
        prop_assert_eq!(products.expect("keys"), model.products.into_keys().collect::<Vec<_>>());
    }
}
