//! The number of lists of a table whose rows have optional fields.

use std::path::Path;

use index_table::{Result, Store};
use index_table_rows::Catalog;

use crate::TestResult;

/// A generator of random numbers that returns the same ones in each run: the output function of splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a value in one of two rows.
    fn some<T>(&mut self, value: impl Fn(u64) -> T) -> Option<T> {
        let random = self.next();
        random.is_multiple_of(2).then(|| value(random >> 1))
    }
}

/// Declares a release of a program: a struct with these optional fields, which are left out if they are `None`.
macro_rules! release {
    ($release:ident: $($(#[$attribute:meta])* $field:ident: $type:ty = $value:expr),+ $(,)?) => {
        mod $release {
            use std::collections::BTreeMap;

            use index_table::{IndexTable, Result, Store};
            use serde::{Deserialize, Serialize};

            use super::{Place, Random, Way};

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "surveys", repository = Surveys)]
            #[index(town)]
            pub(super) struct Survey {
                #[primary_key]
                pub(super) id: u64,
                pub(super) town: String,
                $(
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    $(#[$attribute])*
                    $field: Option<$type>,
                )+
            }

            impl Survey {
                pub(super) fn random(id: u64, random: &mut Random) -> Self {
                    let town = format!("town {}", id % 10);
                    Self { id, town, $($field: random.some($value)),+ }
                }
            }

            /// Writes rows, some in each transaction, and reads them.
            pub(super) fn write(store: &Store, rows: &[Survey]) -> Result<()> {
                let surveys = Surveys::open(store)?;
                for rows in rows.chunks(25) {
                    store.transaction(|txn| rows.iter().try_for_each(|row| surveys.put(txn, row)))?;
                }
                let txn = store.read()?;
                for row in rows {
                    assert_eq!(surveys.get(&txn, row.id)?.as_ref(), Some(row));
                }
                Ok(())
            }

            /// Returns the keys of all rows, each of which this release can read.
            pub(super) fn read(store: &Store) -> Result<Vec<u64>> {
                let surveys = Surveys::open(store)?;
                let txn = store.read()?;
                let report = surveys.verify(&txn).run()?;
                assert!(report.is_clean(), "{report}");
                surveys.all(&txn).rows().map(|row| row.map(|row| row.id)).collect()
            }
        }
    };
}

/// A struct with optional fields inside, which are also left out.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Place {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<i8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    door: Option<String>,
}

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
enum Way {
    Letter,
    Call { number: Option<u64> },
    Visit(Option<Place>),
}

fn place(random: u64) -> Place {
    Place {
        floor: random.is_multiple_of(3).then_some(random as i8),
        door: (random % 5 < 2).then(|| format!("{random}")),
    }
}

fn way(random: u64) -> Way {
    match random % 5 {
        0 => Way::Letter,
        1 | 2 => Way::Call { number: random.is_multiple_of(7).then_some(random) },
        _ => Way::Visit(random.is_multiple_of(2).then(|| place(random / 2))),
    }
}

release!(first:
    age: u8 = |it| it as u8,
    income: u64 = |it| it,
    debts: i64 = u64::cast_signed,
    weight: f32 = |it| (it % 999) as f32,
    rate: f64 = |it| it as f64,
    asset: u128 = |it| u128::from(it) << 40,
    smokes: bool = |it| it.is_multiple_of(2),
    grade: char = |it| char::from(b'a' + (it % 26) as u8),
    phone: String = |it| format!("{it}"),
    tags: Vec<String> = |it| vec!["tag".into(); it as usize % 3],
    marks: Vec<Option<i16>> = |it| vec![(it % 2 == 0).then_some(it as i16); it as usize % 3],
    pair: (u32, Option<u32>) = |it| (it as u32, (it % 2 == 0).then_some(1)),
    pairs: BTreeMap<String, Option<i32>> = |it| [(format!("{it}"), (it % 2 == 0).then_some(-1))].into(),
    home: Place = super::place,
    work: Place = super::place,
    way: Way = super::way,
    ways: Vec<Way> = |it| (0..it % 3).map(super::way).collect(),
);

release!(second:
    ways: Vec<Way> = |it| (0..it % 3).map(super::way).collect(),
    age: u16 = |it| (it % 256) as u16,
    income: u64 = |it| it,
    debts: i64 = u64::cast_signed,
    weight: f64 = |it| (it % 999) as f64,
    rate: f64 = |it| it as f64,
    asset: u128 = |it| u128::from(it) << 40,
    smokes: bool = |it| it.is_multiple_of(2),
    grade: char = |it| char::from(b'a' + (it % 26) as u8),
    #[serde(alias = "phone")]
    telephone: String = |it| format!("{it}"),
    tags: Vec<String> = |it| vec!["tag".into(); it as usize % 3],
    marks: Vec<Option<i16>> = |it| vec![(it % 2 == 0).then_some(it as i16); it as usize % 3],
    pair: (u32, Option<u32>) = |it| (it as u32, (it % 2 == 0).then_some(1)),
    pairs: BTreeMap<String, Option<i32>> = |it| [(format!("{it}"), (it % 2 == 0).then_some(-1))].into(),
    home: Place = super::place,
    way: Way = super::way,
    pets: u8 = |it| it as u8,
);

fn open(path: &Path) -> Result<Store> {
    Store::options().map_size(1 << 28).open(path)
}

/// Returns the catalog of rows in a closed store.
fn catalog(path: &Path) -> std::result::Result<Catalog, Box<dyn std::error::Error>> {
    let record = crate::stored(path, ".catalog", b"surveys.@lists")?.ok_or("no record")?;
    // A format and a checksum are in front of it.
    Ok(Catalog::from_bytes(record.get(9..).unwrap_or_default())?)
}

/// Each field that is first left out makes a list, and each change of a kind: not each combination.
#[test]
fn optional_fields_make_few_lists() -> TestResult {
    let dir = tempfile::tempdir()?;
    let mut random = Random(7);
    let rows: Vec<_> = (0..10_000).map(|id| first::Survey::random(id, &mut random)).collect();
    first::write(&open(dir.path())?, &rows)?;
    let found = catalog(dir.path())?;
    let (lists, bytes) = (found.len(), found.to_bytes().len());
    assert!(lists <= 30, "{lists} lists in {bytes} bytes");
    assert!(bytes <= 30 * 256, "{lists} lists in {bytes} bytes");
    Ok(())
}

/// Two releases write in turn, while both run: neither makes lists for ever.
#[test]
fn two_releases_make_at_most_twice_as_many_lists() -> TestResult {
    let dir = tempfile::tempdir()?;
    let mut random = Random(11);
    let mut half = Vec::new();
    for turn in 0..50 {
        let ids = turn * 100..turn * 100 + 100;
        let store = open(dir.path())?;
        let rows: Vec<_> = ids.clone().map(|id| first::Survey::random(id, &mut random)).collect();
        first::write(&store, &rows)?;
        drop(store);
        let store = open(dir.path())?;
        let rows: Vec<_> = ids.map(|id| second::Survey::random(5000 + id, &mut random)).collect();
        second::write(&store, &rows)?;
        drop(store);
        half.push(catalog(dir.path())?.len());
    }
    let store = open(dir.path())?;
    assert_eq!(first::read(&store)?, (0..10_000).collect::<Vec<_>>());
    drop(store);
    assert_eq!(second::read(&open(dir.path())?)?.len(), 10_000);
    let lists = half.last().copied().unwrap_or_default();
    assert!(lists <= 60, "{half:?}");
    assert_eq!(half.get(25), half.last(), "{half:?}");
    Ok(())
}
