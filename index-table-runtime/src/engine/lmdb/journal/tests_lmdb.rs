//! Tests of the behaviour of LMDB on which checkpoints depend. A version of LMDB that fails one of these tests cannot be
//! used with a journal.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
};

use heed::{CommitOrAbort, Database, EnvFlags, EnvOpenOptions, RwTxn, types::Bytes};

use super::{marker, replay, snapshot::Snapshot};
use crate::engine::lmdb::{
    names::{CATALOG, Env, FILE},
    pages::Meta,
};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const DATABASES: [&str; 2] = ["one", "two"];

fn open(directory: &Path, flags: EnvFlags) -> Env {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(1 << 26).max_dbs(4);
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: the directory belongs to this test, and nothing else has the file open.
    unsafe { Env::open(options.flags(flags), directory) }.expect("an environment")
}

fn file(directory: &Path) -> File {
    File::options().read(true).write(true).open(directory.join(FILE)).expect("a data file")
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    /// Returns a value. Some values fit into a node, and others need overflow pages.
    fn value(&mut self) -> Vec<u8> {
        let length = [20, 300, 3000, 20_000][self.below(4) as usize];
        vec![self.below(256) as u8; length]
    }
}

fn with(
    env: &Env,
    name: &str,
    change: impl FnOnce(&mut RwTxn<'_>, Database<Bytes, Bytes>) -> heed::Result<()>,
) {
    let txn = env.write_txn().expect("a transaction");
    env.create_databases_and_commit(txn, |opener, txn| {
        let database = opener.create_database::<Bytes, Bytes>(txn, Some(name))?;
        change(txn, database)?;
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })
    .map(drop)
    .expect("a commit");
}

/// Makes a commit with puts and deletes. One commit in twenty clears a database instead.
fn commit(env: &Env, random: &mut Random, models: &mut [Rows; 2]) {
    let at = random.below(2) as usize;
    let model = &mut models[at];
    with(env, DATABASES[at], |txn, database| {
        if random.below(20) == 0 {
            model.clear();
            return database.clear(txn);
        }
        for _ in 0..=random.below(30) {
            let key = (random.below(400) as u16).to_be_bytes().to_vec();
            if random.below(3) == 0 {
                database.delete(txn, &key)?;
                model.remove(&key);
            } else {
                let value = random.value();
                database.put(txn, &key, &value)?;
                model.insert(key, value);
            }
        }
        Ok(())
    });
}

fn rows(env: &Env) -> [Rows; 2] {
    DATABASES.map(|name| {
        let mut rows = Rows::new();
        with(env, name, |txn, database| {
            for entry in database.iter(txn)? {
                let (key, value) = entry?;
                rows.insert(key.to_vec(), value.to_vec());
            }
            Ok(())
        });
        rows
    })
}

fn numbers(directory: &Path) -> [u64; 2] {
    let bytes = fs::read(directory.join(FILE)).expect("a data file");
    let size = Meta::read(&bytes).expect("a meta page").page_size() as usize;
    [0, size].map(|at| Meta::read(&bytes[at..]).expect("a meta page").txn)
}

/// Copies the data file, with another length if one is given.
fn image(from: &Path, length: Option<u64>) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a directory");
    fs::copy(from.join(FILE), to.path().join(FILE)).expect("a copy");
    if let Some(length) = length {
        file(to.path()).set_len(length).expect("a length");
    }
    to
}

#[test]
fn lmdb_does_not_reuse_pages_of_a_pinned_state() {
    for seed in 1..4 {
        let dir = tempfile::tempdir().expect("a directory");
        let env = open(dir.path(), EnvFlags::NO_SYNC);
        let (mut random, mut models) = (Random(seed), [Rows::new(), Rows::new()]);
        for _ in 0..60 {
            commit(&env, &mut random, &mut models);
        }
        let data = file(dir.path());
        let pin = Snapshot::take(&env, &data).ok().expect("a pinned state");
        let saved = pin.saved(0, &data).expect("the contents of a checkpoint");
        let expected = models.clone();
        for _ in 0..200 {
            commit(&env, &mut random, &mut models);
        }
        assert!(saved.is_of(&data).expect("the roots"), "a root page has changed");
        let image = image(dir.path(), None);
        saved.restore(&file(image.path())).expect("restored");
        let other = open(image.path(), EnvFlags::empty());
        assert_eq!(other.read_txn().expect("a reader").id() as u64, pin.number);
        assert!(rows(&other) == expected, "a page of the pinned state has changed");

        // Without the pin, pages of the state are reused.
        drop(pin);
        for _ in 0..20 {
            commit(&env, &mut random, &mut models);
        }
        assert!(!saved.is_of(&data).expect("the roots"), "no page was reused");
    }
}

#[test]
fn lmdb_takes_the_meta_page_with_the_greater_number() {
    let dir = tempfile::tempdir().expect("a directory");
    let env = open(dir.path(), EnvFlags::NO_SYNC);
    let (mut random, mut models) = (Random(5), [Rows::new(), Rows::new()]);
    let data = file(dir.path());
    // The marker is not in the first 152 bytes of the meta page, which are all that LMDB writes.
    marker::put(&data, marker::Marker::Clean(marker::Journalled::own([9; 16], 1)))
        .expect("a marker");
    for _ in 0..9 {
        commit(&env, &mut random, &mut models);
        let number = env.read_txn().expect("a reader").id() as u64;
        let slots = numbers(dir.path());
        assert_eq!(slots[(number % 2) as usize], number, "slot {slots:?}");
        assert_eq!(slots.into_iter().max(), Some(number));
    }
    assert!(matches!(marker::find(&data), Ok(Some(marker::Marker::Clean(_)))));
    let pin = Snapshot::take(&env, &data).ok().expect("a pinned state");
    let saved = pin.saved(0, &data).expect("the contents of a checkpoint");
    let expected = models.clone();
    for _ in 0..3 {
        commit(&env, &mut random, &mut models);
    }
    let page = u64::from(saved.page_size);
    for restored in [0, 1, 2] {
        let image = image(dir.path(), None);
        let data = file(image.path());
        // One meta page alone is not enough: the other one may have a greater number.
        for slot in (0..2).filter(|slot| restored == 2 || restored == *slot) {
            super::files::write_at(&data, slot as u64 * page, &saved.metas[slot]).expect("a page");
        }
        let expected_number = numbers(image.path()).into_iter().max().unwrap_or_default();
        let other = open(image.path(), EnvFlags::empty());
        let number = other.read_txn().expect("a reader").id() as u64;
        assert_eq!(number, expected_number);
        if restored == 2 {
            assert_eq!(number, saved.number);
            assert!(rows(&other) == expected);
        } else {
            assert!(number > saved.number, "{number}");
        }
    }
}

#[test]
fn lmdb_opens_a_file_that_is_shorter_or_longer_than_its_state() {
    let dir = tempfile::tempdir().expect("a directory");
    let env = open(dir.path(), EnvFlags::NO_SYNC);
    let (mut random, mut models) = (Random(8), [Rows::new(), Rows::new()]);
    for _ in 0..30 {
        commit(&env, &mut random, &mut models);
    }
    let data = file(dir.path());
    let pin = Snapshot::take(&env, &data).ok().expect("a pinned state");
    let saved = pin.saved(0, &data).expect("the contents of a checkpoint");
    let synced = data.metadata().expect("the file").len();
    let expected = models.clone();
    for _ in 0..80 {
        commit(&env, &mut random, &mut models);
    }
    let longer = data.metadata().expect("the file").len();
    assert!(synced < longer, "the file has not grown");
    for length in [synced, u64::midpoint(synced, longer), longer, longer + 12_345] {
        let image = image(dir.path(), Some(length));
        let data = file(image.path());
        saved.restore(&data).expect("restored");
        let other = open(image.path(), EnvFlags::empty());
        assert!(rows(&other) == expected, "{length} bytes");
        let mut now = expected.clone();
        for _ in 0..20 {
            commit(&other, &mut random, &mut now);
        }
        assert!(rows(&other) == now, "{length} bytes");
    }
}

/// A record of a journal whose changes are left out has a number too.
#[test]
fn a_touched_catalog_takes_a_number_even_if_it_is_empty() {
    let directory = tempfile::tempdir().expect("a directory");
    let env = open(directory.path(), EnvFlags::empty());
    let number = || env.write_txn().expect("a transaction").id();
    for has_record in [false, true] {
        for _ in 0..2 {
            let before = number();
            let txn = env.write_txn().expect("a transaction");
            env.create_databases_and_commit(txn, |opener, txn| {
                replay::touch(opener, txn)?;
                Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
            })
            .expect("a commit");
            assert_eq!(number(), before + 1);
        }
        with(&env, CATALOG, |txn, catalog| {
            assert_eq!(catalog.len(txn)?, u64::from(has_record));
            catalog.put(txn, b"table", b"record")
        });
    }
}
