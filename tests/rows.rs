//! Rows that serde can write but not read back, which are refused when they are written.

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

/// serde buffers the content of the enum, and the buffer has no 128-bit integers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Wide {
    Number(u128),
    Text(String),
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
    renamed: Option<Renamed>,
}

#[test]
fn rows_that_can_not_be_read_back_are_refused() -> TestResult {
    let store = Store::in_memory();
    let odd = OddRepository::open(&store)?;
    let mut txn = store.write()?;
    let skipping = Skipping { left_out: Some(1), kept: 2 };
    let fine = Odd { id: 1, value: None, skipping, wide: Some(Wide::Text("a".into())), renamed: None };
    odd.insert(&mut txn, &fine)?;
    for (field, bad) in [
        ("wide", Odd { wide: Some(Wide::Number(u128::MAX)), ..fine.clone() }),
        ("renamed", Odd { renamed: Some(Renamed { read: 7 }), ..fine.clone() }),
    ] {
        let new = Odd { id: 2, ..bad.clone() };
        let outcomes = [
            (2, odd.insert(&mut txn, &new)),
            (1, odd.put(&mut txn, &bad)),
            (1, odd.update(&mut txn, 1, |row| row.clone_from(&bad)).map(drop)),
        ];
        for (id, outcome) in outcomes {
            let Err(Error::Codec { table: "odd", reason }) = outcome else {
                return Err(format!("{outcome:?}").into());
            };
            let named = format!("the one with primary key {id} can't be read back");
            assert!(reason.starts_with(&named) && reason.contains(field), "{reason}");
        }
    }
    assert_eq!(odd.all(&txn).rows().collect::<Result<Vec<_>, _>>()?, [fine]);
    Ok(())
}

#[test]
fn rows_that_need_names_are_read_back() -> TestResult {
    let store = Store::in_memory();
    let odd = OddRepository::open(&store)?;
    let mut txn = store.write()?;
    let number = Odd {
        id: 1,
        value: Some(Untagged::Number(7)),
        skipping: Skipping::default(),
        wide: None,
        renamed: None,
    };
    let text = Odd { value: Some(Untagged::Text("seven".into())), ..number.clone() };
    odd.insert(&mut txn, &number)?;
    assert_eq!(odd.get(&txn, 1)?.as_ref(), Some(&number));
    odd.update(&mut txn, 1, |row| row.clone_from(&text))?;
    assert_eq!(odd.get(&txn, 1)?.as_ref(), Some(&text));
    assert!(odd.verify(&txn).run()?.is_clean());
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
