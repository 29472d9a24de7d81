//! Cursors are untrusted: they never return rows outside their query.

#[path = "support/stores.rs"]
mod stores;

use index_table::{Cursor, Error, IndexEntry, IndexTable, Page, Result, Scan, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use stores::Tried;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[table(shard_by = hash(id))]
#[index(tenant, at, include = [secret])]
#[index(tenant)]
#[index(secret, id, unique)]
struct Event {
    #[primary_key]
    id: u32,
    tenant: String,
    at: u8,
    secret: String,
}

fn event(n: u8) -> Event {
    let tenant = ["a", "b", "c"][usize::from(n) % 3].to_owned();
    Event { id: n.into(), tenant, at: n, secret: format!("{n:02}") }
}

/// Returns a plain and a sharded store in memory, with events.
fn filled_stores() -> Result<Vec<(Tried, EventRepository)>> {
    let filled = stores::stores_in_memory().into_iter().map(|store| {
        let events = EventRepository::open(&store)?;
        store.fill(0..60, |txn, n| events.insert(txn, &event(*n)))?;
        Ok((store, events))
    });
    filled.collect()
}

fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::InvalidCursor { .. })
}

fn page_after<'txn, E: IndexEntry<'txn, Row = Event>>(
    scan: Scan<'txn, E>,
    cursor: &Cursor,
) -> Result<Page<Event>> {
    scan.after(cursor).page(100)
}

#[test]
fn a_cursor_is_refused_by_another_query() -> Result<()> {
    for (store, events) in filled_stores()? {
        let txn = store.read()?;
        let cursor = |page: Result<Page<Event>>| page.map(|page| page.next.expect("no next page"));
        let cursor = cursor(events.find_by_tenant_at_range(&txn, "b", 10..50).page(2))?;
        assert_eq!(
            page_after(events.find_by_tenant_at_range(&txn, "b", 10..50), &cursor)?.items.len(),
            12
        );

        let results = [
            page_after(events.find_by_tenant_at_range(&txn, "b", 10..50).rev(), &cursor),
            page_after(events.find_by_tenant_at_range(&txn, "b", 10..51), &cursor),
            page_after(events.find_by_tenant_at_range(&txn, "b", 9..50), &cursor),
            page_after(events.find_by_tenant_at_range(&txn, "c", 10..50), &cursor),
            page_after(events.find_by_tenant(&txn, "b"), &cursor),
            page_after(events.by_tenant_at(&txn), &cursor),
            page_after(events.by_secret_id(&txn), &cursor),
            page_after(events.all(&txn), &cursor),
        ];
        for page in results {
            assert!(matches!(page, Err(Error::InvalidCursor { .. })), "{page:?}");
        }
    }
    let text = "page 2".parse::<Cursor>().map_err(|error| error.to_string());
    let message = "the cursor can't be used here: the text is not a cursor; start without one";
    assert_eq!(text, Err(message.to_owned()));
    Ok(())
}

/// Returns the bytes of a position in the text of a cursor.
fn position(tenant: u8, at: u8, id: u32) -> Vec<u8> {
    [&[0, 3, tenant, 0, at][..], &id.to_be_bytes()].concat()
}

/// Replaces the position in a cursor of a tenant's events, and returns the rows after the changed cursor, or
/// `None` if it is refused.
///
/// Checks that a sharded store returns the same.
fn read_from(position: &[u8], reverse: bool) -> Result<Option<Vec<Event>>> {
    let stores = filled_stores()?;
    let read = stores.iter().map(|(store, events)| read_from_in(store, events, position, reverse));
    let [one, sharded] = &read.collect::<Result<Vec<_>>>()?[..] else { panic!("two stores") };
    assert_eq!(one, sharded, "{position:?} {reverse}");
    Ok(one.clone())
}

fn read_from_in(
    store: &Tried,
    events: &EventRepository,
    position: &[u8],
    reverse: bool,
) -> Result<Option<Vec<Event>>> {
    let txn = store.read()?;
    let scan = || {
        let scan = events.find_by_tenant_at_range(&txn, "b", 10..50);
        if reverse { scan.rev() } else { scan }
    };
    let cursor = scan().page(1)?.next.expect("no next page");
    let mut text = cursor.to_string()[..18].to_owned();
    text.extend(position.iter().map(|byte| format!("{byte:02x}")));
    let pages = |cursor: Cursor| {
        let before = scan().before(&cursor).page(100)?.items;
        assert!(before.iter().all(is_inside), "{before:?}");
        page_after(scan(), &cursor)
    };
    match text.parse().and_then(pages) {
        Ok(page) => Ok(Some(page.items)),
        Err(error) if is_refusal(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_inside(event: &Event) -> bool {
    event.tenant == "b" && (10..50).contains(&event.at)
}

#[test]
fn a_cursor_with_another_position_stays_inside_its_query() -> Result<()> {
    let mut led = 0;
    for tenant in *b"abcz" {
        for at in [0, 9, 10, 30, 31, 49, 50, 255] {
            for (id, reverse) in [(0, false), (31, false), (u32::MAX, false), (31, true)] {
                let Some(read) = read_from(&position(tenant, at, id), reverse)? else { continue };
                assert!(read.iter().all(is_inside), "{tenant} {at} {id} {reverse}: {read:?}");
                led += 1;
            }
        }
    }
    assert!(led > 0, "all changed cursors were refused");
    let ids = |read: Option<Vec<Event>>| read.map(|read| read.iter().map(|it| it.id).collect());
    assert_eq!(ids(read_from(&position(b'b', 31, 31), false)?), Some(vec![34, 37, 40, 43, 46, 49]));
    assert_eq!(ids(read_from(&position(b'b', 19, 19), true)?), Some(vec![16, 13, 10]));
    Ok(())
}

proptest! {
    /// A cursor with any bytes after its first bytes is refused, or returns rows of its tenant only.
    #[test]
    fn a_changed_cursor_stays_inside_its_query(
        position in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            (prop::sample::select(vec![b'a', b'b', b'c', b'z']), any::<u8>(), any::<u32>())
                .prop_map(|(tenant, at, id)| position(tenant, at, id)),
        ],
        reverse in any::<bool>(),
    ) {
        let read = read_from(&position, reverse);
        let read = read.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(read.into_iter().flatten().all(|event| is_inside(&event)));
    }

    /// Text that is not a cursor is an error, and a cursor is formatted as the same text.
    #[test]
    fn text_that_is_not_a_cursor_is_an_error(text in "(01)?[0-9a-f]{0,40}|\\PC*") {
        match text.parse::<Cursor>() {
            Ok(cursor) => prop_assert_eq!(cursor.to_string(), text),
            Err(error) => prop_assert!(is_refusal(&error), "{error}"),
        }
    }
}

#[test]
fn serde_stores_a_cursor_as_text() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let stores = filled_stores()?;
    let (store, events) = &stores[0];
    let txn = store.read()?;
    let cursor = events.all(&txn).page(3)?.next.ok_or("no next page")?;
    let json = serde_json::to_string(&cursor)?;
    assert_eq!(json, format!("\"{cursor}\""));
    assert_eq!(serde_json::from_str::<Cursor>(&json)?, cursor);
    assert!(serde_json::from_str::<Cursor>("\"zz\"").is_err());
    Ok(())
}

/// A cursor is a position in the order of the index, which is the same in both stores.
#[test]
fn a_cursor_of_a_plain_store_is_valid_in_a_sharded_store() -> Result<()> {
    let stores = filled_stores()?;
    let next = |(store, events): &(Tried, EventRepository), cursor: Option<&Cursor>| {
        let txn = store.read()?;
        let scan = || events.find_by_tenant_at_range(&txn, "b", 10..50);
        cursor.map_or_else(scan, |cursor| scan().after(cursor)).page(3)
    };
    let mut cursor = None;
    for page in 0..5 {
        // The pages are read from the two stores in turn.
        let (one, other) = (&stores[page % 2], &stores[(page + 1) % 2]);
        let found = next(one, cursor.as_ref())?;
        assert_eq!(found, next(other, cursor.as_ref())?);
        cursor = found.next;
    }
    assert_eq!(cursor, None);
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(code, unique)]
struct Coded {
    #[primary_key]
    id: u32,
    code: u32,
}

/// In a unique index, a cursor is a position after a key, whichever row has the key.
#[test]
fn a_row_that_moves_between_pages_is_not_repeated()
-> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    for store in [Store::open(dir.path())?, Store::in_memory()] {
        let coded = CodedRepository::open(&store)?;
        let mut txn = store.write()?;
        (1..=5).try_for_each(|id| coded.insert(&mut txn, &Coded { id, code: id }))?;
        let forward = coded.by_code(&txn).page(2)?.next.ok_or("no next page")?;
        let backward = coded.by_code(&txn).rev().page(2)?.next.ok_or("no next page")?;
        coded.update(&mut txn, 2, |row| row.id = 90)?;
        coded.update(&mut txn, 4, |row| row.id = 0)?;
        let read = |scan: Scan<'_, CodedByCode>| {
            scan.rows().map(|row| row.map(|row| row.code)).collect::<Result<Vec<_>>>()
        };
        assert_eq!(read(coded.by_code(&txn).after(&forward))?, [3, 4, 5]);
        assert_eq!(read(coded.by_code(&txn).rev().after(&backward))?, [3, 2, 1]);
    }
    Ok(())
}

mod redeclared {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "coded")]
    #[index(desc(code), unique)]
    pub(super) struct Turned {
        #[primary_key]
        pub(super) id: u32,
        pub(super) code: u32,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "coded")]
    #[index(other, unique, name = "code")]
    pub(super) struct Moved {
        #[primary_key]
        pub(super) id: u32,
        pub(super) other: u32,
    }
}

/// An index with another declaration under the same name is a different index.
#[test]
fn an_index_with_a_new_declaration_refuses_older_cursors()
-> std::result::Result<(), Box<dyn std::error::Error>> {
    let store = Store::in_memory();
    let coded = CodedRepository::open(&store)?;
    store
        .transaction(|txn| (1..=5).try_for_each(|id| coded.insert(txn, &Coded { id, code: id })))?;
    let cursor = coded.by_code(&store.read()?).page(2)?.next.ok_or("no next page")?;

    let store = Store::in_memory();
    let turned = redeclared::TurnedRepository::open(&store)?;
    store.transaction(|txn| turned.insert(txn, &redeclared::Turned { id: 1, code: 1 }))?;
    let outcome = turned.by_code(&store.read()?).after(&cursor).page(2);
    assert!(outcome.as_ref().is_err_and(is_refusal), "{outcome:?}");

    let store = Store::in_memory();
    let moved = redeclared::MovedRepository::open(&store)?;
    store.transaction(|txn| moved.insert(txn, &redeclared::Moved { id: 1, other: 1 }))?;
    let outcome = moved.by_code(&store.read()?).after(&cursor).page(2);
    assert!(outcome.as_ref().is_err_and(is_refusal), "{outcome:?}");
    Ok(())
}
