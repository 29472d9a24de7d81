//! Arbitrary text is refused as a cursor, or is a position in the query: the scan returns the end of its
//! result.
#![no_main]

use std::{fmt::Write as _, sync::LazyLock};

use index_table::{Cursor, Error, IndexTable, Store};
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
#[index(town, name, include = [id2])]
#[index(name, unique)]
struct Person {
    #[primary_key]
    id: u16,
    id2: u8,
    town: String,
    name: String,
}

static PEOPLE: LazyLock<(Store, PersonRepository)> = LazyLock::new(|| {
    let store = Store::in_memory();
    let people = PersonRepository::open(&store).expect("a table");
    let towns = ["", "a", "a\0", "ab", "b"];
    let person = |id: u16| {
        let town = towns[usize::from(id) % 5].to_owned();
        Person { id: id * 7, id2: id as u8, town, name: format!("{}\u{1}{id}", id % 3) }
    };
    store
        .transaction(|txn| (0..60).try_for_each(|id| people.insert(txn, &person(id))))
        .expect("people");
    (store, people)
});

macro_rules! check {
    ($text:expr, $scan:expr) => {{
        let all = $scan.keys().collect::<Result<Vec<_>, _>>().expect("keys");
        let page = $scan.page(1).expect("a page");
        // The first bytes of a cursor identify its query. An attacker can copy them.
        let prefix = page.next.map(|next| next.to_string()[..18].to_owned());
        for text in [$text.clone(), prefix.unwrap_or_default() + &$text] {
            let Ok(cursor) = text.parse::<Cursor>() else { continue };
            assert_eq!(cursor.to_string(), text);
            match $scan.after(&cursor).keys().collect::<Result<Vec<_>, _>>() {
                Ok(rest) => {
                    assert!(all.ends_with(&rest), "{text} {rest:?} {all:?}");
                    let before = $scan.before(&cursor).keys().collect::<Result<Vec<_>, _>>();
                    let before = before.expect("the cursor is valid");
                    assert_eq!([before, rest].concat(), all, "{text}");
                }
                Err(Error::InvalidCursor { .. }) => {}
                Err(error) => panic!("{text}: {error}"),
            }
        }
    }};
}

fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    let mut text = String::new();
    if which & 8 == 0 {
        data.iter().for_each(|byte| write!(text, "{byte:02x}").expect("a string"));
    } else {
        text = String::from_utf8_lossy(data).into_owned();
    }
    let (store, people) = &*PEOPLE;
    let txn = store.read().expect("a transaction");
    match which % 8 {
        0 => check!(text, people.all(&txn)),
        1 => check!(text, people.all(&txn).rev()),
        2 => check!(text, people.by_town(&txn)),
        3 => check!(text, people.find_by_town(&txn, "a\0").rev()),
        4 => check!(text, people.find_by_town_name(&txn, "a", "1\u{1}31")),
        5 => check!(text, people.by_town_name(&txn).rev()),
        6 => check!(text, people.by_name(&txn)),
        _ => check!(text, people.find_by_town_range(&txn, "a".."b")),
    }
});
