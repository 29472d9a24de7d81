//! Each kind of damage, in each layout.

use index_table::{FindingKind, FindingKind::*, Result};

use crate::{INDEXES, counts, filled, in_steps, item, open, raw, raw::Raw};

/// Damages an index, compares the findings with `expected`, and repairs the index, which then has the same
/// bytes as before.
fn check(index: &str, expected: &[(FindingKind, u64)], damage: impl FnOnce(&mut Raw<'_, '_>)) {
    let dir = filled((1..=6).map(item));
    let before = raw::dump(dir.path());
    raw::on(dir.path(), &format!("items.{index}"), damage);
    assert_repaired(&dir, index, expected).expect("a store");
    assert_eq!(raw::dump(dir.path()), before, "{index}");
}

fn assert_repaired(
    dir: &tempfile::TempDir,
    index: &str,
    expected: &[(FindingKind, u64)],
) -> Result<()> {
    let (store, items) = open(dir)?;
    let found = items.verify(&store.read()?).run()?;
    assert_eq!(counts(&found), expected, "{found}");
    assert!(found.findings.iter().all(|finding| finding.index == Some(index)), "{found}");
    assert_eq!(in_steps(&items, &store.read()?, 1)?.findings, found.findings);
    let mut txn = store.write()?;
    assert_eq!(items.verify(&txn).run()?, found);
    let repaired = items.repair(&mut txn).run()?;
    assert_eq!(repaired.left, 0, "{repaired}");
    // A repair removes damaged blocks with their intact entries, so the numbers differ.
    if found.count(Malformed) == 0 {
        assert_eq!(repaired.counts, found.counts, "{repaired}");
    }
    assert!(items.verify(&txn).run()?.is_clean());
    txn.commit()?;
    assert!(items.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

fn be(id: u16) -> [u8; 2] {
    id.to_be_bytes()
}

/// An index with an entry in each key-value pair, as opposed to blocks.
struct Single {
    index: &'static str,
    unique: bool,
}

const SINGLES: [Single; 6] = [
    Single { index: "town_name", unique: false },
    Single { index: "name", unique: false },
    // Its values are short primary keys.
    Single { index: "code", unique: true },
    Single { index: "coded", unique: true },
    Single { index: "noted", unique: false },
    Single { index: "linked", unique: false },
];

const BLOCKS: [&str; 5] = ["town", "tags", "live", "initial", "once"];

impl Single {
    /// Returns the key, the primary key and the data of the first entry.
    fn first(&self, raw: &Raw<'_, '_>) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let (at, value) = raw.entries().remove(0);
        if self.is_short() {
            return (at, [&[0], &value[..]].concat(), Vec::new());
        }
        if self.unique {
            let (primary_key, data) = value.split_at(2);
            return (at, primary_key.to_vec(), data.to_vec());
        }
        let (key, primary_key) = at.split_at(at.len() - 2);
        (key.to_vec(), primary_key.to_vec(), value)
    }

    fn is_short(&self) -> bool {
        self.index == "code"
    }

    fn put(&self, raw: &mut Raw<'_, '_>, key: &[u8], primary_key: &[u8], data: &[u8]) {
        if self.is_short() {
            raw.put(key, primary_key.strip_prefix(&[0]).unwrap_or(primary_key));
        } else if self.unique {
            raw.put(key, [primary_key, data].concat());
        } else {
            raw.put([key, primary_key].concat(), data);
        }
    }
}

/// Returns another key that can be decoded.
fn other_key(index: &str, key: &[u8]) -> Vec<u8> {
    let mut key = key.to_vec();
    // The byte is in the first string, number or hash.
    let at = usize::from(index == "noted");
    key[at] = b'q';
    key
}

#[test]
fn every_index_is_in_one_of_the_lists() {
    let mut all: Vec<&str> = SINGLES.iter().map(|single| single.index).chain(BLOCKS).collect();
    all.sort_unstable();
    let mut indexes = INDEXES;
    indexes.sort_unstable();
    assert_eq!(all, indexes);
}

#[test]
fn a_missing_entry_is_found_and_repaired() {
    for index in INDEXES {
        check(index, &[(Missing, gone(index))], |raw| {
            let (at, _) = raw.entries().remove(0);
            raw.delete(at);
        });
    }
}

/// Returns the number of rows in the first entry of an index.
fn gone(index: &str) -> u64 {
    let dir = filled((1..=6).map(item));
    let entries = raw::on(dir.path(), &format!("items.{index}"), |raw| raw.entries());
    if BLOCKS.contains(&index) { entries[0].1.len() as u64 - 1 } else { 1 }
}

#[test]
fn a_dangling_entry_is_found_and_repaired() {
    for single in SINGLES {
        check(single.index, &[(Dangling, 1)], |raw| {
            let (key, _, data) = single.first(raw);
            single.put(raw, &other_key(single.index, &key), &be(999), &data);
        });
    }
    for index in BLOCKS {
        check(index, &[(Dangling, 1)], |raw| {
            let (at, packed) = raw.entries().remove(0);
            raw.put(at, [&packed[..], &[99]].concat());
        });
        check(index, &[(Dangling, 2)], |raw| {
            let (at, _) = raw.entries().remove(0);
            raw.put(other_key(index, &at), [1, 98, 99]);
        });
    }
}

#[test]
fn an_entry_with_a_key_that_its_row_lacks_is_found_and_repaired() {
    for single in SINGLES {
        check(single.index, &[(Stale, 1)], |raw| {
            let (key, primary_key, data) = single.first(raw);
            single.put(raw, &other_key(single.index, &key), &primary_key, &data);
        });
    }
    for index in BLOCKS {
        check(index, &[(Stale, 1)], |raw| {
            let (at, packed) = raw.entries().remove(0);
            raw.put(other_key(index, &at), &packed[..2]);
        });
    }
    // The entry of a key gets the row of another key.
    check("code", &[(Missing, 1), (Stale, 1)], |raw| {
        let entries = raw.entries();
        raw.put(&entries[0].0, &entries[1].1);
    });
    check("coded", &[(Missing, 1), (Stale, 1)], |raw| {
        let entries = raw.entries();
        raw.put(&entries[0].0, &entries[1].1);
    });
    check("once", &[(Missing, 1), (Stale, 1)], |raw| {
        let entries = raw.entries();
        raw.put(&entries[0].0, &entries[1].1);
    });
    // A row without a note, and a row that is not live, get entries.
    check("noted", &[(Stale, 1)], |raw| raw.put([&[0][..], &be(3)].concat(), b"\x04Rome"));
    check("live", &[(Stale, 1)], |raw| raw.put([!0, !0, !0, !103], [1, 3]));
}

#[test]
fn an_entry_with_wrong_data_is_found_and_repaired() {
    for single in SINGLES.iter().filter(|single| !single.is_short()) {
        check(single.index, &[(Stale, 1)], |raw| {
            let (key, primary_key, data) = single.first(raw);
            single.put(raw, &key, &primary_key, &[&data[..], b"x"].concat());
        });
        check(single.index, &[(Stale, 1)], |raw| {
            let (key, primary_key, mut data) = single.first(raw);
            *data.last_mut().expect("data") ^= 1;
            single.put(raw, &key, &primary_key, &data);
        });
    }
}

#[test]
fn an_undecodable_entry_is_found_and_repaired() {
    for index in ["town_name", "name", "noted", "linked"] {
        // A key without a primary key.
        check(index, &[(Malformed, 1)], |raw| raw.put([7], b"data"));
        check(index, &[(Malformed, 1)], |raw| raw.put(be(1), b"data"));
        check(index, &[(Malformed, 1)], |raw| raw.put([b"q", &be(999)[..]].concat(), b"data"));
    }
    // An escape that no encoder writes.
    check("name", &[(Malformed, 1)], |raw| {
        raw.put([b"q\x01\x07\0", &be(1)[..]].concat(), b"data");
    });
    check("code", &[(Malformed, 1)], |raw| raw.put([7; 3], be(1)));
    check("coded", &[(Malformed, 1)], |raw| raw.put([7; 5], be(1)));
    for (index, value) in [("code", &[][..]), ("code", &[0, 0, 1]), ("coded", &[0])] {
        check(index, &[(Missing, 1), (Malformed, 1)], |raw| {
            let (at, _) = raw.entries().remove(0);
            raw.put(at, value);
        });
    }
    check("town", &[(Malformed, 1)], |raw| raw.put(b"Oz", be(1)));
    check("town", &[(Malformed, 1)], |raw| raw.put(b"Oz\0x", be(1)));
    check("town", &[(Malformed, 1)], |raw| raw.put(b"Oz\0xxx", be(1)));
    check("town", &[(Malformed, 1)], |raw| raw.put(b"q\x01\x07\0", be(1)));
    check("live", &[(Malformed, 1)], |raw| raw.put([7; 3], be(1)));
}

/// `Oz` has the rows 2, 3, 5 and 6 in one block.
#[test]
fn a_damaged_block_is_found_and_repaired() {
    const OZ: &[u8] = b"Oz\0";
    let whole = |ids: &[u16]| -> Vec<u8> {
        std::iter::once(0).chain(ids.iter().flat_map(|id| be(*id))).collect()
    };
    let pack = |ids: &[u8]| [&[1], ids].concat();
    check("town", &[(Missing, 4), (Malformed, 1)], |raw| {
        assert_eq!(raw.entries()[0], (OZ.to_vec(), pack(&[2, 3, 5, 6])));
        raw.put(OZ, []);
    });
    for value in [&[&whole(&[2, 3, 5, 6])[..], &[0]].concat()[..], &[2, 2, 3, 5, 6], &[1]] {
        check("town", &[(Missing, 4), (Malformed, 1)], |raw| raw.put(OZ, value));
    }
    check("town", &[(Malformed, 1)], |raw| raw.put(OZ, pack(&[2, 2, 3, 5, 6])));
    // A binary search doesn't find primary keys that are out of order.
    check("town", &[(Missing, 3), (Malformed, 1)], |raw| raw.put(OZ, pack(&[6, 3, 5, 2])));
    // Blocks that start with another primary key, lack a first block, or overlap.
    let block = |id: u16| [OZ, &be(id)].concat();
    check("town", &[(Malformed, 1)], |raw| {
        raw.delete(OZ);
        raw.put(block(2), pack(&[2, 3, 5, 6]));
    });
    check("town", &[(Missing, 1), (Malformed, 1)], |raw| {
        raw.put(OZ, pack(&[2, 3]));
        raw.put(block(6), pack(&[5, 6]));
    });
    check("town", &[(Malformed, 1)], |raw| {
        raw.put(OZ, pack(&[2, 3, 5]));
        raw.put(block(5), pack(&[5, 6]));
    });
    check("town", &[(Missing, 1), (Malformed, 1)], |raw| {
        raw.put(OZ, pack(&[2, 6]));
        raw.put(block(3), pack(&[3, 5]));
    });
    // A damaged block and other damage in the same index.
    check("town", &[(Missing, 3), (Dangling, 1), (Malformed, 2)], |raw| {
        raw.put(OZ, []);
        raw.put(block(3), whole(&[3, 999]));
        raw.put(b"Z", []);
    });
}

/// Every block that `docs/FORMAT.md` allows is intact.
#[test]
fn blocks_of_any_fill_are_accepted() -> Result<()> {
    let dir = filled((1..=6).map(item));
    raw::on(dir.path(), "items.town", |raw| {
        raw.put(b"Oz\0", [1, 2]);
        raw.put([b"Oz\0", &be(3)[..]].concat(), [1, 5]);
        // It could lack a byte.
        raw.put([b"Oz\0", &be(6)[..]].concat(), [0, 0, 6]);
    });
    let (store, items) = open(&dir)?;
    // Only row 3 is missing. It belongs at the start of the second block.
    let report = items.verify(&store.read()?).run()?;
    assert_eq!(counts(&report), [(Missing, 1)], "{report}");
    assert_eq!(
        report.findings[0].to_string(),
        "table `items`, index `town`, key \"Oz\", row 3: there is no such entry; `repair` writes it"
    );
    store.transaction(|txn| items.repair(txn).run())?;
    assert!(items.verify(&store.read()?).run()?.is_clean());
    drop((store, items));
    let entries = raw::on(dir.path(), "items.town", |raw| raw.entries());
    assert_eq!(entries.len(), 4, "an intact entry was changed: {entries:?}");
    Ok(())
}
