//! Allocations for each written entry and for each read entry.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let value = work();
    (ALLOCATIONS.get() - before, value)
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(group, strategy = "partial", include = [score])]
#[index(score, strategy = "full")]
#[index(code, unique)]
struct Covered {
    #[primary_key]
    id: u32,
    group: [u8; 4],
    score: i32,
    code: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(group)]
struct Referred {
    #[primary_key]
    id: u32,
    group: [u8; 4],
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view)]
#[index(town, include = [name])]
#[index(name, strategy = "full")]
struct Person {
    #[primary_key]
    id: u32,
    town: String,
    name: String,
    photo: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(hash(digest), include = [group])]
#[index(group, hash(digest), strategy = "full")]
struct Hashed {
    #[primary_key]
    id: u32,
    digest: [u8; 32],
    group: [u8; 4],
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(hash(text), include = [text])]
struct Copied {
    #[primary_key]
    id: u32,
    text: String,
}

#[test]
fn hashes_reuse_their_buffers() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let hashed = HashedRepository::open(&store)?;
    let copied = CopiedRepository::open(&store)?;
    let mut txn = store.write()?;
    let row = |id| Hashed { id, digest: [7; 32], group: *b"abcd" };
    let text = "long".repeat(100);
    for id in 0..100 {
        hashed.insert(&mut txn, &row(id))?;
        copied.insert(&mut txn, &Copied { id, text: text.clone() })?;
    }
    let (count, result) = allocations(|| hashed.insert(&mut txn, &row(100)));
    result?;
    assert_eq!(count, 0, "inserting a row with two hashed entries");

    let mut entries = copied.find_by_text(&txn, &text).entries();
    entries.next().ok_or("no entry")??;
    let (count, length) = allocations(|| {
        entries.try_fold(0, |length, entry| entry.map(|entry| length + entry.text.len()))
    });
    assert_eq!((count, length?), (0, 99 * text.len()), "comparing 99 entries");
    Ok(())
}

#[test]
fn writes_reuse_their_buffers() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let covered = CoveredRepository::open(&store)?;
    let referred = ReferredRepository::open(&store)?;
    let mut txn = store.write()?;
    let row = |id: u32| Covered {
        id,
        group: *b"abcd",
        score: (id % 7).cast_signed(),
        code: u64::from(id),
    };
    for id in 0..100 {
        covered.insert(&mut txn, &row(id))?;
        referred.insert(&mut txn, &Referred { id, group: *b"abcd" })?;
    }
    covered.update(&mut txn, 4, |row| row.score = 1)?;

    let (count, result) = allocations(|| covered.insert(&mut txn, &row(100)));
    result?;
    assert_eq!(count, 0, "inserting a row with three entries");
    let (count, result) = allocations(|| covered.update(&mut txn, 5, |row| row.score = -5));
    assert!(result?);
    assert_eq!(count, 0, "updating a row with one entry changed in place and one moved");
    let (count, result) = allocations(|| covered.delete(&mut txn, 6));
    assert!(result?);
    assert_eq!(count, 0, "deleting a row with three entries");

    // The block is found with a range query, and heed copies the bound of the range.
    let (count, result) =
        allocations(|| referred.insert(&mut txn, &Referred { id: 100, group: *b"abcd" }));
    result?;
    assert_eq!(count, 1, "inserting a row with one packed entry");
    Ok(())
}

#[test]
fn transactions_reuse_the_buffers_of_earlier_transactions() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    let insert = |id, photo| {
        let (town, name) = ("Redmond".to_owned(), format!("{id}"));
        let person = Person { id, town, name, photo: Some(photo) };
        let (count, result) = allocations(|| {
            let mut txn = store.write()?;
            people.insert(&mut txn, &person)?;
            txn.commit()
        });
        result.map(|()| count)
    };
    let first = insert(1, vec![0; 20])?;
    let second = insert(2, vec![0; 20])?;
    // Three of them are the town, the name and the photo, because the first rows of a process are read back.
    assert!(second <= 6 && first > second + 10, "{first} and then {second}");
    // The buffer of a large row is freed.
    insert(3, vec![0; 1 << 20])?;
    assert!(insert(4, vec![0; 20])? > second);
    assert_eq!(insert(5, vec![0; 20])?, second);
    Ok(())
}

#[test]
fn covered_scans_allocate_nothing_for_an_entry() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    store.transaction(|txn| {
        (0..500).try_for_each(|id| {
            let town = if id % 2 == 0 { "Redmond" } else { "Portland" };
            let (town, photo) = (town.to_owned(), Some(vec![0; 20]));
            people.insert(txn, &Person { id, town, name: format!("{id}"), photo })
        })
    })?;
    let txn = store.read()?;
    let mut entries = people.find_by_town(&txn, "Redmond").entries();
    entries.next().ok_or("no entry")??;
    let (count, length) = allocations(|| {
        entries.try_fold(0, |length, entry| entry.map(|entry| length + entry.name.len()))
    });
    assert!(length? > 249);
    assert_eq!(count, 0);
    assert_eq!((entries.stats().facts, entries.stats().entries), (0, 250));
    Ok(())
}

#[test]
fn views_allocate_nothing_for_a_row() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    store.transaction(|txn| {
        (0..500).try_for_each(|id| {
            let (name, photo) = (format!("{id}"), Some(vec![0; 20]));
            people.insert(txn, &Person { id, town: "Redmond".to_owned(), name, photo })
        })
    })?;
    let txn = store.read()?;
    macro_rules! check {
        ($($views:expr),* $(,)?) => {$({
            let mut views = $views;
            views.next().ok_or("no view")??;
            let (count, bytes) = allocations(|| {
                views.try_fold(0, |bytes, view| {
                    view.map(|view| bytes + view.photo.map_or(0, <[u8]>::len) + view.name.len())
                })
            });
            assert!(bytes? > 499 * 21);
            assert_eq!(count, 0, stringify!($views));
        })*};
    }
    check!(
        people.find_by_town(&txn, "Redmond").views(),
        people.by_name(&txn).rev().views(),
        people.all(&txn).views(),
    );
    let (count, view) = allocations(|| people.get_view(&txn, 7));
    assert_eq!((count, view?.map(|view| view.name)), (0, Some("7")));
    Ok(())
}
