//! Opening a table with a changed type with `#[derive(IndexKey)]`.

use std::path::Path;

use index_table::{Error, Store};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Declares a release of a program: the table `jobs` with these variants of the key `Kind`.
macro_rules! release {
    ($release:ident: $($primary_key:ident)? $(#[index($index:ident)])?, $($(#[$order:meta])? $variant:ident),+) => {
        mod $release {
            use index_table::{IndexKey, IndexTable, Result, Store};
            use serde::{Deserialize, Serialize};

            #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, IndexKey)]
            pub(crate) enum Kind {
                $($(#[$order])? $variant,)+
            }

            #[derive(Debug, Serialize, Deserialize, IndexTable)]
            #[table(name = "jobs")]
            $(#[index($index)])?
            pub(crate) struct Job {
                #[primary_key]
                pub(crate) id: u8,
                $(#[$primary_key])?
                pub(crate) kind: Kind,
            }

            #[allow(dead_code, reason = "some releases only open the table")]
            pub(crate) fn fill(store: &Store) -> Result<()> {
                let jobs = JobRepository::open(store)?;
                let kinds = [$(Kind::$variant),+];
                store.transaction(|txn| {
                    kinds.into_iter().zip(1..).try_for_each(|(kind, id)| jobs.put(txn, &Job { id, kind }))
                })
            }

            pub(crate) fn open(store: &Store) -> Result<JobRepository> {
                JobRepository::open(store)
            }
        }
    };
}

release!(first: #[index(kind)], Print, Copy);
release!(more: #[index(kind)], Print, Copy, Scan);
release!(swapped: #[index(kind)], Copy, Print);
release!(numbered: #[index(kind)], #[key(order = 0)] Print, #[key(order = 9)] Copy);
release!(numbered_more: #[index(kind)], #[key(order = 0)] Print, #[key(order = 9)] Copy, #[key(order = 5)] Scan);
release!(between: #[index(kind)], #[key(order = 0)] Print, #[key(order = 5)] Scan, #[key(order = 9)] Copy);
release!(key_first: primary_key, Print, Copy);
release!(key_more: primary_key, Print, Copy, Scan);
release!(key_swapped: primary_key, Copy, Print);

fn store(path: &Path) -> index_table::Result<Store> {
    Store::options().map_size(1 << 24).open(path)
}

fn assert_mismatch<T: std::fmt::Debug>(opened: index_table::Result<T>, what: &str) {
    match opened {
        Err(Error::SchemaMismatch { table: "jobs", difference, .. }) => {
            assert!(difference.contains(what), "{difference}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn new_variants_are_no_change() -> TestResult {
    let dir = tempfile::tempdir()?;
    first::fill(&store(dir.path())?)?;
    {
        let store = store(dir.path())?;
        let jobs = more::open(&store)?;
        assert_eq!(jobs.find_by_kind(&store.read()?, more::Kind::Copy).count()?, 1);
        more::fill(&store)?;
        assert_eq!(jobs.find_by_kind_range(&store.read()?, more::Kind::Copy..).count()?, 2);
    }
    // The file now has a row that the first release can't read.
    let refused = first::open(&store(dir.path())?);
    assert!(matches!(refused, Err(Error::Corrupt { table: "jobs", .. })), "{refused:?}");
    Ok(())
}

/// Rows have the names of variants, and indexes are built again.
#[test]
fn an_index_on_other_variants_is_built_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    first::fill(&store(dir.path())?)?;
    macro_rules! check {
        ($release:ident, $ids:expr) => {{
            let store = store(dir.path())?;
            let jobs = $release::open(&store)?;
            let txn = store.read()?;
            let ids = jobs.by_kind(&txn).keys().collect::<Result<Vec<_>, _>>()?;
            assert_eq!(ids, $ids, stringify!($release));
            for (id, kind) in [(1, $release::Kind::Print), (2, $release::Kind::Copy)] {
                assert_eq!(jobs.get(&txn, id)?.map(|job| job.kind), Some(kind));
                assert_eq!(
                    jobs.find_by_kind(&txn, kind).keys().collect::<Result<Vec<_>, _>>()?,
                    [id]
                );
            }
            assert!(jobs.verify(&txn).run()?.is_clean());
        }};
    }
    check!(swapped, [2, 1]);
    check!(numbered, [1, 2]);
    check!(between, [1, 2]);
    check!(first, [1, 2]);
    Ok(())
}

/// A new variant may be sorted between others.
#[test]
fn a_new_variant_can_be_sorted_between_others() -> TestResult {
    let dir = tempfile::tempdir()?;
    numbered::fill(&store(dir.path())?)?;
    let store = store(dir.path())?;
    numbered_more::fill(&store)?;
    let jobs = numbered_more::open(&store)?;
    let ids = jobs.by_kind(&store.read()?).keys().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(ids, [1, 3, 2]);
    Ok(())
}

#[test]
fn variants_in_primary_keys_are_compared_too() -> TestResult {
    let dir = tempfile::tempdir()?;
    key_first::fill(&store(dir.path())?)?;
    assert_mismatch(
        key_swapped::open(&store(dir.path())?),
        "kind: enum[Print=0,Copy=1]) in the file",
    );
    {
        let store = store(dir.path())?;
        let jobs = key_more::open(&store)?;
        assert!(jobs.get(&store.read()?, 2, key_more::Kind::Copy)?.is_some());
        key_more::fill(&store)?;
    }
    assert_mismatch(key_first::open(&store(dir.path())?), "Scan=2");
    Ok(())
}

/// A newtype of an `Option`, which is absent when its value is `None`.
mod absent {
    use std::collections::BTreeSet;

    use index_table::{IndexKey, IndexTable, Store};
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IndexKey)]
    struct Nick(Option<String>);

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexKey)]
    struct Nested(Nick);

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[index(nick, unique, sparse)]
    #[index(desc(nick), sparse, name = "down")]
    #[index(nested, sparse)]
    #[index(each(others), sparse)]
    #[index(computed(first: Nick), sparse)]
    struct Person {
        #[primary_key]
        id: u32,
        nick: Nick,
        nested: Nested,
        others: BTreeSet<Nick>,
    }

    impl Person {
        fn first(&self) -> Nick {
            self.nick.clone()
        }
    }

    #[test]
    fn a_newtype_of_an_option_can_be_sparse() -> Result<(), Box<dyn std::error::Error>> {
        let store = Store::in_memory();
        let people = PersonRepository::open(&store)?;
        let mut txn = store.write()?;
        for (id, nick) in [(1, None), (2, None), (3, Some("Al")), (4, None)] {
            let nick = Nick(nick.map(str::to_owned));
            let others = [Nick(None), nick.clone()].into();
            let nested = Nested(nick.clone());
            people.insert(&mut txn, &Person { id, nick, nested, others })?;
        }
        assert_eq!(people.by_nick(&txn).keys().collect::<Result<Vec<_>, _>>()?, [3]);
        assert_eq!(people.by_down(&txn).count()?, 1);
        assert_eq!(people.by_nested(&txn).count()?, 1);
        assert_eq!(people.by_others(&txn).count()?, 1);
        assert_eq!(people.by_first(&txn).count()?, 1);
        Ok(())
    }
}
