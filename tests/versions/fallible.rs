//! Conversions that can fail: `TryFrom` between versions.

use std::{fmt, num::ParseIntError};

use index_table::{Error, FindingKind, IndexTable, Result, RowVersion, Store};
use serde::{Deserialize, Serialize};

use crate::{TestResult, on_both_engines, on_local_engines};

/// A number of rows.
const MANY: u32 = 300;

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "parts", repository = Parts1)]
#[index(name)]
#[index(code, unique)]
#[aggregate(name, sum = [code])]
struct Part1 {
    #[primary_key]
    id: u32,
    name: String,
    code: u32,
    size: String,
}

/// The error of a conversion, which has no source and no `std::error::Error`.
#[derive(Debug)]
struct TooLarge(u64);

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the size {} is too large", self.0)
    }
}

/// Declares a module with the second and the third release. Both conversions can fail.
macro_rules! releases {
    ($name:ident, |$size:ident| $parse:expr, |$number:ident| $narrow:expr) => {
        mod $name {
            use super::*;

            #[derive(Deserialize, RowVersion)]
            struct Older {
                id: u32,
                name: String,
                code: u32,
                size: String,
            }

            #[derive(Serialize, Deserialize, IndexTable)]
            #[table(name = "parts", version = 2, previous = Older, changed = [size], repository = Parts2)]
            #[index(name)]
            #[index(code, unique)]
            #[aggregate(name, sum = [code])]
            pub(super) struct Part2 {
                #[primary_key]
                pub(super) id: u32,
                pub(super) name: String,
                pub(super) code: u32,
                pub(super) size: u64,
            }

            impl TryFrom<Older> for Part2 {
                type Error = ParseIntError;

                fn try_from(Older { id, name, code, size: $size }: Older) -> Result<Self, ParseIntError> {
                    Ok(Self { id, name, code, size: $parse? })
                }
            }

            #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "parts", version = 3, previous = Part2, changed = [size], view, repository = Parts)]
            #[index(name)]
            #[index(code, unique)]
            #[aggregate(name, sum = [code])]
            pub(super) struct Part {
                #[primary_key]
                pub(super) id: u32,
                pub(super) name: String,
                pub(super) code: u32,
                pub(super) size: u16,
            }

            impl TryFrom<Part2> for Part {
                type Error = TooLarge;

                fn try_from(Part2 { id, name, code, size: $number }: Part2) -> Result<Self, TooLarge> {
                    Ok(Self { id, name, code, size: $narrow? })
                }
            }
        }
    };
}

releases!(strict, |size| size.parse(), |size| size.try_into().map_err(|_| TooLarge(size)));
releases!(lenient, |size| size.parse().or_else(|_| "0".parse()), |size| Ok::<u16, TooLarge>(
    size.try_into().unwrap_or(u16::MAX)
));
releases!(never, |size| size.parse(), |size| Err::<u16, _>(TooLarge(size)));

/// Adds rows of version 1.
fn fill(store: &Store, size_of: impl Fn(u32) -> String) -> Result<()> {
    let parts = Parts1::open(store)?;
    let part = |id| Part1 { id, name: format!("n{}", id % 3), code: id + 1000, size: size_of(id) };
    store.transaction(|txn| (0..MANY).try_for_each(|id| parts.insert(txn, &part(id))))
}

#[track_caller]
fn assert_fails<T: fmt::Debug>(result: Result<T>, (id, reason): (u32, &str)) {
    match result {
        Err(Error::Conversion { table: "parts", key, version: 1, reason: own }) => {
            assert_eq!((key, own.as_str()), (id.to_string(), reason));
        }
        other => panic!("{other:?}"),
    }
}

const LARGE: &str = "from version 2: the size 70000 is too large";
const NO_NUMBER: &str = "invalid digit found in string";

/// The size of a part. Those of two parts can't be converted by the strict release.
fn size(id: u32) -> String {
    match id {
        7 => "seven".to_owned(),
        8 => "70000".to_owned(),
        _ => id.to_string(),
    }
}

#[test]
fn a_failed_conversion_is_the_error_of_its_row() -> TestResult {
    on_both_engines(|store| {
        fill(store, size)?;
        let parts = strict::Parts::open(store)?;
        let txn = store.read()?;
        assert_eq!(parts.get(&txn, 9)?.map(|part| part.size), Some(9));
        assert_eq!(parts.get_view(&txn, 9)?.map(|part| part.size), Some(9));
        assert_fails(parts.get(&txn, 7), (7, NO_NUMBER));
        assert_fails(parts.get(&txn, 8), (8, LARGE));
        assert_fails(parts.get_view(&txn, 8).map(drop), (8, LARGE));
        let error = parts.get(&txn, 8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "table `parts`: the row 8 has version 1, and can't be converted: from version 2: the \
             size 70000 is too large; correct the `From` or `TryFrom` of a later version"
        );
        assert_fails(parts.get_by_code(&txn, 1007), (7, NO_NUMBER));
        assert_fails(parts.get_view_by_code(&txn, 1008).map(drop), (8, LARGE));
        // A scan ends at such a row.
        let named = parts.find_by_name(&txn, "n1").rows().collect::<Result<Vec<_>>>();
        assert_fails(named, (7, NO_NUMBER));
        assert_eq!(parts.find_by_name(&txn, "n0").rows().flatten().count(), 100);
        let report = parts.verify(&txn).run()?;
        assert_eq!((report.rows, report.count(FindingKind::WrongConversion)), (300, 2), "{report}");
        assert_eq!(report.findings.len(), 2, "{report}");
        assert_eq!(
            report.findings[0].to_string(),
            "table `parts`, row 7: its conversion from version 1 fails: invalid digit found in \
             string; correct the `From` or `TryFrom` of a later version"
        );
        drop(txn);

        let mut txn = store.write()?;
        assert_fails(parts.update(&mut txn, 7, |part| part.size = 9).map(drop), (7, NO_NUMBER));
        assert_fails(parts.delete(&mut txn, 8).map(drop), (8, LARGE));
        // The stored rows are intact, so even `delete_unreadable_rows` keeps them.
        let report = parts.repair(&mut txn).delete_unreadable_rows().run()?;
        assert_eq!((report.count(FindingKind::WrongConversion), report.left), (2, 2), "{report}");
        txn.commit()?;
        assert_fails(parts.upgrade(store).run(), (7, NO_NUMBER));
        drop(parts);

        let parts = lenient::Parts::open(store)?;
        let report = parts.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
        parts.upgrade(store).run()?;
        let txn = store.read()?;
        let sizes = [7, 8].map(|id| parts.get(&txn, id).ok().flatten().map(|part| part.size));
        assert_eq!(sizes, [Some(0), Some(u16::MAX)]);
        let report = parts.verify(&txn).run()?;
        assert!(report.is_clean(), "{report}");
        Ok(())
    })
}

#[test]
fn a_conversion_that_always_fails_is_refused_before_anything_is_written() -> TestResult {
    on_both_engines(|store| check_always_fails(store, |store| Ok(store.catalog()?.to_string())))?;
    // Commits of other databases change the number of a server.
    on_local_engines(|store| check_always_fails(store, |store| Ok(store.read()?.commit_number())))
}

fn check_always_fails<T: PartialEq + fmt::Debug>(
    store: &Store,
    state: impl Fn(&Store) -> Result<T>,
) -> TestResult {
    fill(store, |_| "70000".to_owned())?;
    for _ in 0..2 {
        let before = state(store)?;
        let refused = strict::Parts::open(store).map(drop);
        assert_fails(refused, (0, LARGE));
        assert_eq!(state(store)?, before, "the store has changed");
    }
    let parts = Parts1::open(store)?;
    let report = parts.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    drop(parts);
    let parts = lenient::Parts::open(store)?;
    assert_eq!(parts.get(&store.read()?, 5)?.map(|part| part.size), Some(u16::MAX));
    Ok(())
}

/// Each version has lists of its own, so rows that can be read hide none that never can.
#[test]
fn rows_of_each_version_are_tried() -> TestResult {
    on_both_engines(|store| {
        fill(store, |id| id.to_string())?;
        let parts = strict::Parts2::open(store)?;
        store.transaction(|txn| {
            let part = |id| strict::Part2 { id, name: "n0".to_owned(), code: id + 1000, size: 1 };
            (10..MANY).try_for_each(|id| parts.put(txn, &part(id)).map(drop))
        })?;
        drop(parts);
        // Commits of other databases change the commit number of a server.
        let before = store.catalog()?.to_string();
        assert_fails(
            never::Parts::open(store).map(drop),
            (0, "from version 2: the size 0 is too large"),
        );
        assert_eq!(store.catalog()?.to_string(), before, "the store has changed");
        let parts = strict::Parts::open(store)?;
        let report = parts.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
        Ok(())
    })
}
