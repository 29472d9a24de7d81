//! Rows with attributes of serde inside their types. A row that serde can write but not read back is refused when it is written.

#[path = "support/data_files.rs"]
mod data_files;

use std::net::IpAddr;

use data_files::{Kind, on_each_kind};
use index_table::{Error, IndexTable, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(u32),
    Text(String),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Skipping {
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u8>,
    kept: u8,
}

/// A key that is decoded in lower case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[serde(from = "Plain", into = "Plain")]
#[index(town)]
struct Small {
    #[primary_key]
    id: u32,
    town: String,
}

#[derive(Clone, Serialize, Deserialize)]
struct Plain(u32, String);

impl From<Plain> for Small {
    fn from(Plain(id, town): Plain) -> Self {
        Self { id, town: town.to_lowercase() }
    }
}

impl From<Small> for Plain {
    fn from(Small { id, town }: Small) -> Self {
        Self(id, town)
    }
}

/// serde buffers the content of the enum. The buffer has no 128-bit integers, and does not know that the format is binary, in
/// which an IP address is no text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Wide {
    Number(u128),
    Host(IpAddr),
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Number { number: u128 },
    Host { host: IpAddr },
    Text { text: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Renamed {
    #[serde(rename(serialize = "written"))]
    read: u8,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Odd {
    #[primary_key]
    id: u32,
    value: Option<Untagged>,
    skipping: Skipping,
    wide: Option<Wide>,
    tagged: Option<Tagged>,
    renamed: Option<Renamed>,
}

fn odd() -> Odd {
    let skipping = Skipping { left_out: Some(1), kept: 2 };
    Odd { id: 1, value: None, skipping, wide: None, tagged: None, renamed: None }
}

/// Returns a row for each value that serde writes and can't read back, with the name of its field.
fn unreadable() -> [(&'static str, Odd); 5] {
    let host = IpAddr::from([127, 0, 0, 1]);
    let tagged = |tagged| Odd { tagged: Some(tagged), ..odd() };
    let wide = |wide| Odd { wide: Some(wide), ..odd() };
    [
        ("wide", wide(Wide::Number(u128::MAX))),
        ("wide", wide(Wide::Host(host))),
        ("tagged", tagged(Tagged::Number { number: 7 })),
        ("tagged", tagged(Tagged::Host { host })),
        ("renamed", Odd { renamed: Some(Renamed { read: 7 }), ..odd() }),
    ]
}

#[test]
fn rows_that_can_not_be_read_back_are_refused() -> TestResult {
    let store = Store::in_memory();
    let table = OddRepository::open(&store)?;
    let mut txn = store.write()?;
    let wide = Some(Wide::Text("a".into()));
    let fine = Odd { wide, tagged: Some(Tagged::Text { text: "b".into() }), ..odd() };
    table.insert(&mut txn, &fine)?;
    for (field, bad) in unreadable() {
        let new = Odd { id: 2, ..bad.clone() };
        let outcomes = [
            (2, table.insert(&mut txn, &new)),
            (1, table.put(&mut txn, &bad)),
            (1, table.update(&mut txn, 1, |row| row.clone_from(&bad)).map(drop)),
        ];
        for (id, outcome) in outcomes {
            let Err(Error::Codec { table: "odd", reason }) = outcome else {
                return Err(format!("{field}: {outcome:?}").into());
            };
            let named = format!("the one with primary key {id} can't be read back");
            assert!(reason.starts_with(&named) && reason.contains(field), "{reason}");
        }
    }
    assert_eq!(table.all(&txn).rows().collect::<Result<Vec<_>, _>>()?, [fine]);
    Ok(())
}

/// A release build reads the first rows back, and also a row that nothing before it was like.
#[test]
fn a_row_of_a_new_list_is_read_back_after_many_rows() -> TestResult {
    let store = Store::in_memory();
    let table = OddRepository::open(&store)?;
    let mut txn = store.write()?;
    for id in 0..300 {
        table.insert(&mut txn, &Odd { id, ..odd() })?;
    }
    // The second time, the lists of the refused row are there.
    for (field, bad) in unreadable().into_iter().flat_map(|it| [it.clone(), it]) {
        let outcome = table.put(&mut txn, &bad);
        assert!(matches!(outcome, Err(Error::Codec { .. })), "{field}: {outcome:?}");
        table.put(&mut txn, &odd())?;
    }
    assert_eq!(table.all(&txn).count()?, 300);
    assert_eq!(table.get(&txn, 1)?, Some(odd()));
    Ok(())
}

/// The field types have `untagged`, `tag` and `skip_serializing_if`.
#[test]
fn rows_that_need_names_are_read_back() -> TestResult {
    let store = Store::in_memory();
    let table = OddRepository::open(&store)?;
    let mut txn = store.write()?;
    let values = [Some(Untagged::Number(7)), Some(Untagged::Text("seven".into())), None];
    let wides = [None, Some(Wide::Text("w".into()))];
    let rows: Vec<Odd> = values
        .iter()
        .flat_map(|value| wides.iter().map(move |wide| (value, wide)))
        .flat_map(|(value, wide)| [None, Some(4)].map(|left_out| (value, wide, left_out)))
        .map(|(value, wide, left_out)| Odd {
            value: value.clone(),
            skipping: Skipping { left_out, kept: 2 },
            wide: wide.clone(),
            tagged: left_out.map(|_| Tagged::Text { text: "t".into() }),
            ..odd()
        })
        .collect();
    for (id, row) in (10..).zip(&rows) {
        let row = Odd { id, ..row.clone() };
        table.insert(&mut txn, &row)?;
        assert_eq!(table.get(&txn, id)?, Some(row));
    }
    // Each row takes the value of each other one.
    for (id, _) in (10..).zip(&rows) {
        for other in &rows {
            let row = Odd { id, ..other.clone() };
            assert!(table.update(&mut txn, id, |old| old.clone_from(&row))?);
            assert_eq!(table.get(&txn, id)?, Some(row));
        }
    }
    assert!(table.verify(&txn).run()?.is_clean());
    Ok(())
}

#[test]
fn keys_are_decoded_unchanged() -> TestResult {
    let store = Store::in_memory();
    let small = SmallRepository::open(&store)?;
    let mut txn = store.write()?;
    small.insert(&mut txn, &Small { id: 1, town: "rome".into() })?;
    let result = small.insert(&mut txn, &Small { id: 2, town: "Rome".into() });
    assert!(matches!(result, Err(Error::Codec { table: "small", .. })), "{result:?}");
    assert_eq!(small.by_town(&txn).rows().count(), 1);
    Ok(())
}

on_each_kind!(a_repository_can_be_dropped_before_the_commit_of_its_first_rows);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(shard_by = id, shard_map = "ids")]
struct Spread {
    #[primary_key]
    id: u32,
    text: String,
}

/// The commit records the names of the fields of these rows.
fn a_repository_can_be_dropped_before_the_commit_of_its_first_rows(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    let rows = [5, 15, 25].map(|id| Spread { id, text: "text".into() });
    for store in [kind.store("ids").open(dir.path())?, Store::in_memory()] {
        let table = SpreadRepository::open(&store)?;
        let mut txn = store.write()?;
        rows.iter().try_for_each(|row| table.insert(&mut txn, row))?;
        drop(table);
        txn.commit()?;
    }
    let store = kind.store("ids").open(dir.path())?;
    let table = SpreadRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(table.all(&txn).rows().collect::<Result<Vec<_>, _>>()?, rows);
    Ok(())
}
