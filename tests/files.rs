//! Damaged files, and intact files that look damaged.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use index_table::{Durability, Error, IndexTable, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(group)]
#[index(code, unique)]
#[index(group, include = [bytes], name = "carried")]
struct Blob {
    #[primary_key]
    id: u32,
    group: u8,
    code: u32,
    bytes: Vec<u8>,
}

const PAGE: usize = 4096;

fn blob(id: u32, len: usize) -> Blob {
    Blob { id, group: id as u8, code: !id, bytes: vec![id as u8; len] }
}

fn open(path: &Path) -> index_table::Result<(Store, BlobRepository)> {
    let store = Store::options().map_size(1 << 26).durability(Durability::None).open(path)?;
    let blobs = BlobRepository::open(&store)?;
    Ok((store, blobs))
}

/// Opens a store in which nothing but the data file shows the last commit.
fn without_journal(path: &Path) -> index_table::Result<Store> {
    Store::options().durability(Durability::Full).open(path)
}

/// Rows that are inserted and deleted in one transaction are never written to the file, but LMDB counts their
/// pages.
#[test]
fn a_file_may_end_before_its_last_page() -> TestResult {
    let mut short = 0;
    for count in [1, 20, 40, 60, 400] {
        let dir = tempfile::tempdir()?;
        let (store, blobs) = open(dir.path())?;
        for id in 1000..1010 {
            store.transaction(|txn| blobs.put(txn, &blob(id, 700)))?;
        }
        store.transaction(|txn| {
            (0..count).try_for_each(|id| blobs.insert(txn, &blob(id, 700)))?;
            (0..count).try_for_each(|id| blobs.delete(txn, id).map(drop))
        })?;
        drop((store, blobs));
        let file = dir.path().join("data.mdb");
        let length = fs::metadata(&file)?.len();
        {
            let (store, blobs) = open(dir.path())?;
            store.check()?;
            assert_eq!(blobs.all(&store.read()?).count()?, 10);
            // The file is copied up to the last counted page.
            let backup = store.backup(dir.path().join("copy")).progress(|at| {
                short += u32::from(at.total > Some(length) && at.done > 0);
            });
            backup.run()?;
        }
        let (copy, blobs) = open(&dir.path().join("copy"))?;
        copy.check()?;
        assert!(blobs.verify(&copy.read()?).run()?.is_clean());
        drop((copy, blobs));

        // A missing page that is in use is damage.
        fs::OpenOptions::new().write(true).open(&file)?.set_len(4 * PAGE as u64)?;
        let result = open(dir.path()).map(drop);
        assert!(matches!(result, Err(Error::DamagedFile { .. })), "{result:?}");
    }
    assert!(short > 0, "no file was shorter than its counted pages");
    Ok(())
}

#[test]
fn a_check_of_a_store_in_use_finds_nothing() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, blobs) = open(dir.path())?;
    store.check()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let checker = scope.spawn(|| -> index_table::Result<u32> {
            let mut checks = 0;
            while !is_over.load(Ordering::Relaxed) {
                store.check()?;
                checks += 1;
            }
            Ok(checks)
        });
        let written = (0..150_u32).try_for_each(|round| {
            store.transaction(|txn| {
                for n in 0..20 {
                    let id = (round * 7919 + n * 104_729) % 700;
                    let len = [3, 90, 1500, 2100, 9000][(round + n) as usize % 5];
                    if (round + n).is_multiple_of(3) {
                        blobs.delete(txn, id)?;
                    } else {
                        blobs.put(txn, &blob(id, len.min(if n < 18 { 100 } else { 400_000 })))?;
                    }
                }
                Ok(())
            })
        });
        is_over.store(true, Ordering::Relaxed);
        written?;
        assert!(checker.join().map_err(|_| "the checks panicked")?? > 0);
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    store.check()?;
    store.transaction(|txn| (0..700).try_for_each(|id| blobs.delete(txn, id).map(drop)))?;
    store.check()?;
    let copy = dir.path().join("copy");
    store.compact_to(&copy)?;
    Ok(Store::open(&copy)?.check()?)
}

/// Damage of the first two pages is found before LMDB opens the file.
#[test]
fn a_damaged_head_is_refused() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, blobs) = open(dir.path())?;
    for id in 0..50 {
        store.transaction(|txn| blobs.insert(txn, &blob(id, 300)))?;
    }
    drop((store, blobs));
    let file = dir.path().join("data.mdb");
    let healthy = fs::read(&file)?;
    let outcome = |data: &[u8]| -> Result<Option<String>, Box<dyn std::error::Error>> {
        fs::write(&file, data)?;
        match open(dir.path()) {
            Err(Error::DamagedFile { reason, .. }) => Ok(Some(reason)),
            Err(other) => Err(other.into()),
            Ok(_) => Ok(None),
        }
    };
    let assert_refused = |data: &[u8]| {
        outcome(data)?
            .ok_or("the damaged file was opened")
            .map_err(Box::<dyn std::error::Error>::from)
    };
    let word = |at: usize| healthy[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    let newest = if word(144) > word(PAGE + 144) { 0 } else { PAGE };
    // The positions of numbers: kind, magic number, version and page size; size of the map, flags, the roots
    // of both databases and the last page.
    for (places, both) in [(&[10, 16, 20, 40][..], true), (&[39, 44, 84, 92, 132, 142], false)] {
        for (page, at) in places.iter().flat_map(|at| [(0, at), (PAGE, at)]) {
            let mut data = healthy.clone();
            data[page + at] ^= 0x40;
            // LMDB doesn't read these numbers of the older page.
            let found = outcome(&data)?;
            assert_eq!(found.is_some(), both || page == newest, "{page} {at} {found:?}");
        }
    }
    for page in [0, PAGE] {
        let mut data = healthy.clone();
        data[page..page + PAGE].fill(0);
        assert_refused(&data)?;
    }
    for length in [1, 100, PAGE, PAGE + 100, 2 * PAGE, 5 * PAGE] {
        assert_refused(&healthy[..length])?;
    }
    assert_refused(&vec![7; 3 * PAGE])?;
    fs::write(&file, &healthy)?;
    let (store, blobs) = open(dir.path())?;
    assert!(blobs.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

/// The transaction numbers of the first two pages decide which page is the last commit.
#[test]
fn a_check_finds_wrong_transaction_numbers() -> TestResult {
    const NUMBER: usize = 144;
    const LAST_PAGE: usize = 136;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("data.mdb");
    for id in 0..2 {
        let (store, blobs) = open(dir.path())?;
        store.transaction(|txn| blobs.insert(txn, &blob(id, 300)))?;
        store.check()?;
        drop((store, blobs));
        let healthy = fs::read(&file)?;
        let word =
            |at: usize| healthy[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        let number = |page: usize| word(page + NUMBER);
        let newest = if number(0) > number(PAGE) { 0 } else { PAGE };
        let has_grown = word(newest + LAST_PAGE) > word(PAGE - newest + LAST_PAGE);
        let found = |page: usize, number: u64| -> Result<_, Box<dyn std::error::Error>> {
            let mut data = healthy.clone();
            data[page + NUMBER..][..8].copy_from_slice(&number.to_ne_bytes());
            fs::write(&file, data)?;
            match without_journal(dir.path()) {
                Err(Error::DamagedFile { .. }) => Ok(Some("when it is opened")),
                Err(other) => Err(other.into()),
                Ok(store) => match store.check() {
                    Err(Error::DamagedFile { .. }) => Ok(Some("by a check")),
                    other => Ok(other.map(|()| None)?),
                },
            }
        };
        for page in [0, PAGE] {
            for other in (0..64).map(|bit| number(page) ^ 1 << bit) {
                // A number that is two less looks like an interrupted commit, if the last commit added no page.
                let is_interrupted = page == newest && other == number(page) - 2 && !has_grown;
                let found = found(page, other)?;
                assert_eq!(found.is_none(), is_interrupted, "{page} {other} {found:?}");
            }
            let other = number(page) + 2;
            assert!(found(page, other)?.is_some(), "{page} {other}");
            // The number of the next transaction would be 0.
            let last = u64::MAX - u64::from(page == 0);
            assert_eq!(found(page, last)?, Some("when it is opened"));
        }
        fs::write(&file, healthy)?;
    }
    Ok(())
}

/// A number that could belong to an earlier commit is found because the previous commit has fewer pages. In a
/// compact copy, the state before the only commit is empty.
#[test]
fn a_check_finds_a_last_commit_with_an_older_number() -> TestResult {
    const NUMBER: usize = 144;
    let dir = tempfile::tempdir()?;
    let (path, compact) = (dir.path().join("store"), dir.path().join("compact"));
    let (store, blobs) = open(&path)?;
    store.transaction(|txn| blobs.insert(txn, &blob(1, 300)))?;
    store.transaction(|txn| blobs.insert(txn, &blob(2, 30_000)))?;
    store.compact_to(&compact)?;
    drop((store, blobs));
    for path in [path, compact] {
        let file = path.join("data.mdb");
        let mut data = fs::read(&file)?;
        let number = |page: usize| {
            data[page + NUMBER..].first_chunk().map_or(0, |number| u64::from_ne_bytes(*number))
        };
        let newest = if number(0) > number(PAGE) { 0 } else { PAGE };
        let other = number(newest).saturating_sub(2);
        data[newest + NUMBER..][..8].copy_from_slice(&other.to_ne_bytes());
        fs::write(&file, data)?;
        let found = Store::open(&path)?.check();
        assert!(matches!(found, Err(Error::DamagedFile { .. })), "{other} {found:?}");
    }
    Ok(())
}

/// A full disk or a killed process can leave a file without its first pages.
#[test]
fn an_incompletely_created_file_is_created_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    drop(without_journal(dir.path())?);
    let file = dir.path().join("data.mdb");
    let made = fs::read(&file)?;
    for length in [0, 200, PAGE, 2 * PAGE - 1, 2 * PAGE] {
        fs::write(&file, &made[..length])?;
        let (store, blobs) = open(dir.path())?;
        store.transaction(|txn| blobs.insert(txn, &blob(1, 10)))?;
        store.check()?;
    }
    Ok(())
}

/// Each page is replaced by each other page in turn.
#[test]
fn a_check_finds_wrong_pages() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, blobs) = open(dir.path())?;
    store.transaction(|txn| (0..300).try_for_each(|id| blobs.insert(txn, &blob(id, 100))))?;
    store.transaction(|txn| blobs.insert(txn, &blob(300, 20_000)))?;
    store.compact_to(dir.path().join("compact"))?;
    drop((store, blobs));
    // Every page of a compact copy is in use.
    let dir = dir.path().join("compact");
    let file = dir.join("data.mdb");
    let healthy = fs::read(&file)?;
    let pages = healthy.len() / PAGE;
    assert!(pages > 20, "{pages} pages");
    let page = |page: usize| &healthy[page * PAGE..(page + 1) * PAGE];
    // The pages after the first page of a long value contain only its bytes.
    let is_bytes =
        |number: usize| page(number).windows(2000).any(|bytes| bytes == [300_u32 as u8; 2000]);
    for number in (2..pages).filter(|number| !is_bytes(*number)) {
        let other = if number == 2 { 3 } else { number - 1 };
        for damaged in [&[0; PAGE][..], &[0xFF; PAGE], page(other)] {
            let mut data = healthy.clone();
            data[number * PAGE..(number + 1) * PAGE].copy_from_slice(damaged);
            fs::write(&file, data)?;
            let found = Store::open(&dir).and_then(|store| store.check());
            assert!(matches!(found, Err(Error::DamagedFile { .. })), "{number}: {found:?}");
        }
    }
    fs::write(&file, &healthy)?;
    Ok(Store::open(&dir)?.check()?)
}
