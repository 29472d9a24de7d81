//! Random operations and consumers, compared with a list of the committed changes.

use std::collections::BTreeMap;

use index_table::{
    ChangeKind::{Deleted, Inserted, Updated},
    Error, OnDuplicate, Result, Store, WriteTxn,
};
use proptest::prelude::*;

use crate::{Invoice, InvoiceRepository, Seen, invoice, seen, stores::plain_stores};

#[derive(Debug, Clone)]
enum Write {
    Insert(u32, i64),
    Put(u32, i64),
    Update(u32, i64),
    Rename(u32, u32),
    Delete(u32),
    Load(Vec<u32>, i64),
}

#[derive(Debug, Clone)]
enum Step {
    /// Writes in one transaction, which is committed or not.
    Commit(Vec<Write>, bool),
    /// Writes in a nested transaction, which is kept or not.
    Nested(Vec<Write>, bool),
    /// A consumer takes a batch of up to this number of changes, and commits it or not.
    Consume(usize, usize, bool),
    Skip(usize, u64),
    /// The store is closed and opened again, if it is on disk.
    Reopen,
}

fn write() -> impl Strategy<Value = Write> {
    let (key, amount) = (|| 0..12_u32, || 0..4_i64);
    prop_oneof![
        (key(), amount()).prop_map(|(key, amount)| Write::Insert(key, amount)),
        (key(), amount()).prop_map(|(key, amount)| Write::Put(key, amount)),
        (key(), amount()).prop_map(|(key, amount)| Write::Update(key, amount)),
        (key(), key()).prop_map(|(from, to)| Write::Rename(from, to)),
        key().prop_map(Write::Delete),
        (prop::collection::vec(key(), 0..5), amount())
            .prop_map(|(keys, amount)| Write::Load(keys, amount)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let writes = || prop::collection::vec(write(), 0..6);
    prop_oneof![
        4 => (writes(), prop::bool::weighted(0.8)).prop_map(|(all, keep)| Step::Commit(all, keep)),
        2 => (writes(), any::<bool>()).prop_map(|(all, keep)| Step::Nested(all, keep)),
        4 => (0..3_usize, 0..9_usize, any::<bool>())
            .prop_map(|(who, limit, commit)| Step::Consume(who, limit, commit)),
        1 => (0..3_usize, 0..40_u64).prop_map(|(who, to)| Step::Skip(who, to)),
        1 => Just(Step::Reopen),
    ]
}

/// The rows, and all committed changes.
#[derive(Clone, Default)]
struct Model {
    rows: BTreeMap<u32, Invoice>,
    log: Vec<Seen>,
}

impl Model {
    fn set(&mut self, row: &Invoice) {
        match self.rows.insert(row.number, row.clone()) {
            Some(old) if old == *row => {}
            Some(_) => self.log.push((Updated, row.number, row.amount)),
            None => self.log.push((Inserted, row.number, row.amount)),
        }
    }

    fn remove(&mut self, number: u32) -> Option<Invoice> {
        let old = self.rows.remove(&number)?;
        self.log.push((Deleted, number, old.amount));
        Some(old)
    }
}

fn apply(
    invoices: &InvoiceRepository,
    txn: &mut WriteTxn<'_>,
    model: &mut Model,
    write: &Write,
) -> Result<()> {
    match *write {
        Write::Insert(number, amount) => match invoices.insert(txn, &invoice(number, amount)) {
            Err(Error::DuplicateKey { .. }) => assert!(model.rows.contains_key(&number)),
            inserted => {
                inserted?;
                model.set(&invoice(number, amount));
            }
        },
        Write::Put(number, amount) => {
            invoices.put(txn, &invoice(number, amount))?;
            model.set(&invoice(number, amount));
        }
        Write::Update(number, amount) => {
            if invoices.update(txn, number, |row| row.amount = amount)? {
                model.set(&invoice(number, amount));
            }
        }
        Write::Rename(from, to) => {
            let renamed = invoices.update(txn, from, |row| {
                (row.number, row.reference) = (to, to);
            });
            match renamed {
                Err(Error::DuplicateKey { .. }) => assert!(model.rows.contains_key(&to)),
                renamed => {
                    if renamed?
                        && from != to
                        && let Some(old) = model.remove(from)
                    {
                        model.set(&invoice(to, old.amount));
                    }
                }
            }
        }
        Write::Delete(number) => {
            assert_eq!(invoices.delete(txn, number)?, model.remove(number).is_some());
        }
        Write::Load(ref keys, amount) => {
            let keys: std::collections::BTreeSet<u32> = keys.iter().copied().collect();
            let rows = keys.iter().map(|key| invoice(*key, amount));
            invoices.bulk_load_in(txn, rows).on_duplicate(OnDuplicate::Replace).run()?;
            for key in keys {
                model.set(&invoice(key, amount));
            }
        }
    }
    Ok(())
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn run(mut store: Store, path: Option<&std::path::Path>, steps: &[Step]) -> Result<()> {
    let mut invoices = InvoiceRepository::open(&store)?;
    let (mut model, mut positions) = (Model::default(), [0_usize; 3]);
    let mut copies: [BTreeMap<u32, i64>; 3] = Default::default();
    for step in steps {
        match step {
            Step::Commit(writes, keep) => {
                let (mut txn, mut after) = (store.write()?, model.clone());
                for write in writes {
                    apply(&invoices, &mut txn, &mut after, write)?;
                }
                if *keep {
                    txn.commit()?;
                    model = after;
                }
            }
            Step::Nested(writes, keep) => {
                let mut txn = store.write()?;
                let mut after = model.clone();
                let kept: Result<()> = txn.nested(|txn| {
                    for write in writes {
                        apply(&invoices, txn, &mut after, write)?;
                    }
                    if *keep { Ok(()) } else { Err(Error::WriteInProgress) }
                });
                if kept.is_ok() {
                    model = after;
                }
                apply(&invoices, &mut txn, &mut model, &Write::Put(3, 9))?;
                txn.commit()?;
            }
            Step::Consume(who, limit, commit) => {
                let mut changes = invoices.changes(&store, NAMES[*who])?;
                let batch = changes.next_batch(*limit)?;
                let position = &mut positions[*who];
                let expected = model.log[*position..].iter().take(*limit).copied();
                assert_eq!(seen(&batch), expected.collect::<Vec<_>>());
                if *commit {
                    batch.commit(&store)?;
                    *position += batch.len();
                    apply_to_copy(&mut copies[*who], &seen(&batch));
                }
            }
            Step::Skip(who, to) => {
                let mut changes = invoices.changes(&store, NAMES[*who])?;
                let position = &mut positions[*who];
                let expected = model.log.len().min(usize::try_from(*to).unwrap_or(0));
                changes.skip_to(*to)?;
                if expected > *position {
                    apply_to_copy(&mut copies[*who], &model.log[*position..expected]);
                    *position = expected;
                }
            }
            Step::Reopen => {
                if let Some(path) = path {
                    drop((invoices, store));
                    store = Store::options().map_size(1 << 26).open(path)?;
                    invoices = InvoiceRepository::open(&store)?;
                }
            }
        }
    }
    let rows: BTreeMap<u32, i64> =
        model.rows.iter().map(|(number, row)| (*number, row.amount)).collect();
    for (who, name) in NAMES.iter().enumerate() {
        let mut changes = invoices.changes(&store, name)?;
        loop {
            let batch = changes.next_batch(7)?;
            if batch.is_empty() {
                break;
            }
            apply_to_copy(&mut copies[who], &seen(&batch));
            batch.commit(&store)?;
        }
        assert_eq!(copies[who], rows, "the drained copy of {name}");
    }
    assert!(store.verify()?.is_clean());
    Ok(())
}

fn apply_to_copy(copy: &mut BTreeMap<u32, i64>, changes: &[Seen]) {
    for (kind, key, amount) in changes {
        let old = if *kind == Deleted { copy.remove(key) } else { copy.insert(*key, *amount) };
        assert_eq!(old.is_some(), *kind != Inserted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn a_stream_has_the_committed_changes_in_order(steps in prop::collection::vec(step(), 0..30)) {
        let [_, memory] = plain_stores()?;
        run(Store::clone(&memory), None, &steps)?;
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::options().map_size(1 << 26).open(directory.path())?;
        run(store, Some(directory.path()), &steps)?;
    }
}
