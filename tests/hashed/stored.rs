//! The bytes of a hash, and an index whose field becomes hashed.

use index_table::{Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{LinkRepository, link, raw};

/// `docs/FORMAT.md` has this hash among its test vectors.
#[test]
fn the_bytes_of_a_hashed_key_are_fixed() -> Result<()> {
    const HASH: [u8; 16] = [
        0xf6, 0x57, 0x09, 0x21, 0x83, 0x80, 0x74, 0xb6, 0x32, 0x02, 0xe7, 0xc2, 0x8d, 0x68, 0x0f,
        0xe2,
    ];
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = Store::options().map_size(1 << 24).open(dir.path())?;
        let links = LinkRepository::open(&store)?;
        store.transaction(|txn| links.insert(txn, &link(9, "https://example.com/")))?;
    }
    // The primary key lacks one byte in a block.
    let (year, id, block) = (&[7][..], &[0, 9][..], &[1, 9][..]);
    let entries = |name| {
        let mut found = Vec::new();
        raw(dir.path(), &[name], |_, entries, _| {
            found = entries;
            Ok(())
        });
        found
    };
    // Entries of a unique index have the form of other indexes, since two values may share a hash.
    assert_eq!(entries("normalized"), [(HASH.to_vec(), block.to_vec())]);
    assert_eq!(entries("once"), [(HASH.to_vec(), block.to_vec())]);
    assert_eq!(entries("partial"), [([&HASH, year, id].concat(), b"\0\x01A".to_vec())]);
    let [(key, _)] = &entries("once_a_year")[..] else { panic!("one entry") };
    assert_eq!(*key, [year, &HASH, id].concat());
    Ok(())
}

mod plain {
    use super::{Deserialize, IndexTable, Serialize};

    /// The same rows with another declaration of an index.
    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "links")]
    #[index(url, name = "normalized")]
    pub(super) struct Link {
        #[primary_key]
        pub(super) id: u16,
        pub(super) url: String,
        pub(super) title: String,
        pub(super) year: u8,
    }
}

#[test]
fn an_index_that_becomes_hashed_is_rebuilt() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || Store::options().map_size(1 << 24).open(dir.path());
    let a = "https://a";
    {
        let store = open()?;
        let links = plain::LinkRepository::open(&store)?;
        let row = plain::Link { id: 1, url: a.to_owned(), title: "A".to_owned(), year: 7 };
        store.transaction(|txn| links.insert(txn, &row))?;
        let long = plain::Link { url: "x".repeat(600), id: 2, ..row };
        match store.transaction(|txn| links.insert(txn, &long)) {
            Err(error @ Error::KeyTooLong { .. }) => {
                assert!(error.to_string().contains("`hash(field)`"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    {
        let store = open()?;
        let links = LinkRepository::open(&store)?;
        let txn = store.read()?;
        assert_eq!(links.find_by_normalized(&txn, a).count()?, 1);
        assert_eq!(links.get_by_once(&txn, a)?, Some(link(1, a)));
    }
    let store = open()?;
    let links = plain::LinkRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(links.find_by_normalized_starting_with(&txn, "https").count()?, 1);
    Ok(())
}
