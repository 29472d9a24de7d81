//! Appending many entries has the same outcome as writing them one by one.

use proptest::{collection::vec, prelude::*};

use super::{
    BLOCKS, Engine, KeyRange, Query, RawEntry, Result, SOURCES, Source, TABLE, Tables, Txn, engines,
};
use crate::{
    engine::{Ascending, Read as _, Write as _},
    model::maintain::Sink as _,
};

/// Key, primary key and data.
type Entry = ([u8; 1], [u8; 2], Vec<u8>);

struct List<'a>(std::slice::Iter<'a, Entry>, Source);

impl Ascending for List<'_> {
    fn next(&mut self) -> Result<Option<RawEntry<'_>>> {
        Ok(self.0.next().map(|entry| raw(entry, self.1)))
    }
}

/// Returns the entry in the form that this source can have.
fn raw((key, primary_key, data): &Entry, source: Source) -> RawEntry<'_> {
    let key: &[u8] = if source == Source::Facts { &[] } else { key };
    let data: &[u8] = if source == Source::Index(BLOCKS) { &[] } else { data };
    RawEntry { key, primary_key, data }
}

/// The keys of the pieces of an index, and its entries.
type Dump = (Vec<Vec<u8>>, Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>);

fn dump(txn: &Txn<'_>, tables: &Tables, source: Source) -> Result<Dump> {
    let reader = txn.reader(tables).expect("a transaction of the same engine");
    let (mut pieces, mut entries) = (Vec::new(), Vec::new());
    if let Source::Index(index) = source {
        for piece in reader.pieces(index, None)?.into_iter().flatten() {
            let piece = piece?;
            assert_eq!(piece.fault, None);
            pieces.push(piece.at.to_vec());
        }
    }
    for entry in reader.scan(Query::new(source, KeyRange::ALL))? {
        entries.push(super::kept(entry?));
    }
    Ok((pieces, entries))
}

/// Returns the contents after writing `before`, and then `entries`, at once or one by one.
fn written(
    engine: &Engine,
    before: &[Entry],
    entries: &[Entry],
    at_once: bool,
) -> Result<Vec<Dump>> {
    let tables = super::open(engine, TABLE);
    let mut txn = engine.write()?;
    let mut writer = txn.writer(&tables).expect("a write transaction");
    for source in SOURCES {
        for entry in before {
            writer.change(raw(entry, source).put(source))?;
        }
        if at_once {
            let count = writer.append(source, &mut List(entries.iter(), source))?;
            assert_eq!(count, entries.len() as u64);
        } else {
            entries.iter().try_for_each(|entry| writer.change(raw(entry, source).put(source)))?;
        }
    }
    SOURCES.iter().map(|source| dump(&txn, &tables, *source)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn entries_appended_at_once_equal_entries_put_one_by_one(
        before in vec((any::<[u8; 1]>(), any::<[u8; 2]>(), vec(any::<u8>(), 0..9)), 0..40),
        ids in vec(any::<u16>(), 0..2_000),
        keys in 1_u8..4,
        sorted in prop::bool::weighted(0.8),
        filled in any::<bool>(),
    ) {
        let mut entries: Vec<Entry> = ids
            .into_iter()
            .map(|id| ([(id % u16::from(keys)) as u8], id.to_be_bytes(), vec![id as u8; 3]))
            .collect();
        if sorted {
            entries.sort();
        }
        let before = if filled { before.as_slice() } else { &[] };
        let harnesses = || engines().into_iter();
        for (one_by_one, at_once) in harnesses().zip(harnesses()) {
            prop_assert_eq!(
                written(at_once.engine(), before, &entries, true)?,
                written(one_by_one.engine(), before, &entries, false)?
            );
        }
    }
}
