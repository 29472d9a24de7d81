//! Conversions that break the rules of `From` between versions.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use index_table::{Error, FindingKind, IndexTable, RowVersion, Store};
use serde::{Deserialize, Serialize};

use crate::{TestResult, on_both_engines};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "files", repository = Files1)]
struct File1 {
    #[primary_key]
    id: u32,
    size: u32,
}

/// The conversion of the first version in the next release.
mod moving {
    use super::{Deserialize, IndexTable, RowVersion, Serialize};

    #[derive(Deserialize, RowVersion)]
    pub(super) struct Older {
        id: u32,
        size: u32,
    }

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "files", version = 2, previous = Older)]
    pub(super) struct File {
        #[primary_key]
        pub(super) id: u64,
        pub(super) size: u32,
    }

    impl From<Older> for File {
        fn from(old: Older) -> Self {
            Self { id: (old.id + 1).into(), size: old.size }
        }
    }
}

mod shifting {
    use super::{Deserialize, IndexTable, RowVersion, Serialize};

    #[derive(Deserialize, RowVersion)]
    pub(super) struct Older {
        id: u32,
        size: u32,
    }

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "files", version = 2, previous = Older)]
    pub(super) struct File {
        #[primary_key]
        pub(super) id: u32,
        pub(super) size: u32,
    }

    impl From<Older> for File {
        fn from(old: Older) -> Self {
            Self { id: old.id + 1, size: old.size }
        }
    }

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "files", version = 2, previous = Older)]
    #[index(size)]
    pub(super) struct Indexed {
        #[primary_key]
        pub(super) id: u32,
        pub(super) size: u32,
    }

    impl From<Older> for Indexed {
        fn from(old: Older) -> Self {
            Self { id: old.id + 1, size: old.size }
        }
    }
}

static CONVERTED: AtomicU32 = AtomicU32::new(0);

mod counting {
    use super::{CONVERTED, Deserialize, IndexTable, Relaxed, RowVersion, Serialize};

    #[derive(Deserialize, RowVersion)]
    pub(super) struct Older {
        id: u32,
        size: u32,
    }

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "files", version = 2, previous = Older)]
    #[index(number)]
    pub(super) struct File {
        #[primary_key]
        pub(super) id: u32,
        pub(super) size: u32,
        pub(super) number: u32,
    }

    impl From<Older> for File {
        fn from(old: Older) -> Self {
            Self { id: old.id, size: old.size, number: CONVERTED.fetch_add(1, Relaxed) }
        }
    }
}

fn fill(store: &Store) -> index_table::Result<()> {
    let files = Files1::open(store)?;
    store.transaction(|txn| (0..5).try_for_each(|id| files.insert(txn, &File1 { id, size: 1 })))
}

#[test]
fn a_primary_key_of_another_type_is_refused() -> TestResult {
    on_both_engines(|store| {
        fill(store)?;
        let error = moving::FileRepository::open(store).map(drop).err().ok_or("it opens")?;
        let expected = "its primary key is (id: u32) in the file and (id: u64) in the code";
        assert!(error.to_string().contains(expected), "{error}");
        Ok(())
    })
}

#[test]
fn a_conversion_that_changes_the_primary_key_is_found() -> TestResult {
    on_both_engines(|store| {
        fill(store)?;
        let result = shifting::IndexedRepository::open(store).map(drop);
        let is_found = |result: &index_table::Result<()>| {
            let Err(Error::Conversion { table: "files", key, version: 1, reason }) = result else {
                panic!("{result:?}");
            };
            assert_eq!(
                (key.as_str(), reason.as_str()),
                ("0", "its conversion changes the primary key to 1")
            );
        };
        is_found(&result);
        let files = shifting::FileRepository::open(store)?;
        let mut txn = store.write()?;
        is_found(&files.put(&mut txn, &shifting::File { id: 0, size: 9 }));
        is_found(&files.update(&mut txn, 0, |file| file.size = 9).map(drop));
        is_found(&files.delete(&mut txn, 0).map(drop));
        // The stored rows are intact, so even `delete_unreadable_rows` keeps them.
        let report = files.repair(&mut txn).delete_unreadable_rows().run()?;
        assert_eq!((report.count(FindingKind::WrongConversion), report.left), (5, 5));
        txn.commit()?;
        is_found(&files.upgrade(store).run().map(drop));
        let report = files.verify(&store.read()?).run()?;
        assert_eq!((report.rows, report.count(FindingKind::WrongConversion)), (5, 5));
        assert_eq!(
            report.findings[0].to_string(),
            "table `files`, row 0: its conversion from version 1 changes the primary key to 1; \
             correct the `From` or `TryFrom` of a later version"
        );
        Ok(())
    })
}

#[test]
fn rows_of_a_conversion_with_varying_keys_are_converted_once() -> TestResult {
    on_both_engines(|store| {
        fill(store)?;
        let files = counting::FileRepository::open(store)?;
        let upgraded = files.upgrade(store).run()?;
        assert_eq!((upgraded.rows, upgraded.upgraded), (5, 0));
        assert!(files.verify(&store.read()?).run()?.is_clean());
        Ok(())
    })
}
