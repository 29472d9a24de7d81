//! Local and global eventual indexes of tables with rows in several shards.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use index_table::{
    Durability, Error, IndexTable, IndexToken, Options, Result, ShardMap, Store, WhenFull,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::random_local::random_together::copy;

const LONG: Duration = Duration::from_mins(1);

/// Makes the key of the index `initial` fail.
static POISON: AtomicBool = AtomicBool::new(false);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", shard_by = tenant)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(town, consistency = "eventual", include = [email])]
#[index(each(words), consistency = "eventual")]
#[index(email, scope = "global", consistency = "eventual", strategy = "full")]
#[index(email, town, name = "place", scope = "global")]
#[index(tenant, town, name = "of_tenant")]
struct Note {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    town: String,
    email: String,
    words: Vec<String>,
}

/// A table with a message that can't be applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "letters", shard_by = tenant, shard_map = "notes")]
#[index(computed(initial: String), consistency = "eventual")]
struct Letter {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    text: String,
}

impl Letter {
    fn initial(&self) -> String {
        assert!(self.text != "poison" || !POISON.load(Relaxed), "it has no initial");
        self.text.chars().take(1).collect()
    }
}

type Model = BTreeMap<(u32, u64), Note>;

/// Returns the options of a store with this number of shards. Each shard has 20 tenants.
fn options(shards: u32) -> Options {
    with_queue(shards, 1000, WhenFull::ApplyInLine)
}

fn with_queue(shards: u32, messages: u64, when_full: WhenFull) -> Options {
    let mut map = ShardMap::ranges();
    let common = Options::default().index_queue(messages, when_full);
    let mut options = common;
    for number in 0..shards {
        let name = format!("s{number}");
        options = options.shard(&name, &name);
        let start = number * 20;
        map = if number + 1 == shards {
            map.to(name, start..)
        } else {
            map.to(name, start..start + 20)
        };
    }
    options.map("notes", map).durability(Durability::Relaxed)
}

/// Returns an error that undoes a transaction.
fn undone() -> Error {
    Error::TransactionFailed { reason: "undone".to_owned() }
}

fn note(tenant: u32, id: u64, content: u32) -> Note {
    let one_of = |names: [&str; 3], number: u32| names[number as usize % 3].to_owned();
    Note {
        tenant,
        id,
        town: one_of(["Oz", "Rome", "Oslo"], content),
        email: one_of(["a@x", "b@x", "c@x"], content / 3),
        words: (0..content % 4).map(|word| one_of(["w", "x", "y"], word + content)).collect(),
    }
}

/// Compares the indexes with the rows, after all messages have been applied.
fn assert_applied(notes: &NoteRepository, store: &Store, model: &Model) -> Result<()> {
    let txn = store.read()?;
    assert_eq!(notes.lag(&txn)?.messages, 0);
    let sorted = |rows: Vec<&Note>| rows.into_iter().cloned().collect::<Vec<_>>();
    for town in ["Oz", "Rome", "Oslo"] {
        let expected = sorted(model.values().filter(|note| note.town == town).collect());
        let stale: Vec<_> = notes.find_by_town(&txn, town).stale().rows().collect::<Result<_>>()?;
        assert_eq!(stale, expected, "{town}");
        let verified = notes.find_by_town(&txn, town).verified().rows();
        assert_eq!(verified.collect::<Result<Vec<_>>>()?, expected, "{town}");
        let emails: Vec<_> = notes
            .find_by_town(&txn, town)
            .stale()
            .entries()
            .map(|it| it.map(|it| it.email.to_owned()))
            .collect::<Result<_>>()?;
        assert!(emails.iter().eq(expected.iter().map(|note| &note.email)), "{town}");
    }
    for email in ["a@x", "b@x", "c@x"] {
        let expected = sorted(model.values().filter(|note| note.email == email).collect());
        let stale = notes.find_by_email(&txn, email).stale().rows().collect::<Result<Vec<_>>>()?;
        assert_eq!(stale, expected, "{email}");
    }
    for word in ["w", "x", "y"] {
        let has = |note: &&Note| note.words.iter().any(|own| own == word);
        let expected = sorted(model.values().filter(has).collect());
        let found = notes.find_by_words(&txn, word).stale().rows().collect::<Result<Vec<_>>>()?;
        assert_eq!(found, expected, "{word}");
    }
    drop(txn);
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[derive(Debug, Clone)]
enum Operation {
    Put(u32, u64, u32),
    Update(u32, u64, u32),
    /// Changes the primary key. The row may move to another shard.
    Move(u32, u64, u32),
    Delete(u32, u64),
    /// A savepoint, and whether it is kept.
    Nested(Vec<Operation>, bool),
}

#[derive(Debug, Clone)]
enum Step {
    Transaction(Vec<Operation>, bool),
    /// In the shard of this tenant.
    OneShard(u32, Vec<Operation>),
    Drain(u64),
    Verify,
    /// Corrects the entries without the worker.
    Repair,
    Reopen,
    /// Continues with the files that a killed process would leave.
    Kill,
}

fn operation() -> impl Strategy<Value = Operation> {
    let (tenant, id, content) = (0..100_u32, 0..3_u64, 0..12_u32);
    let single = prop_oneof![
        5 => (tenant.clone(), id.clone(), content.clone())
            .prop_map(|(tenant, id, content)| Operation::Put(tenant, id, content)),
        4 => (tenant.clone(), id.clone(), content)
            .prop_map(|(tenant, id, content)| Operation::Update(tenant, id, content)),
        2 => (tenant.clone(), id.clone(), tenant.clone())
            .prop_map(|(tenant, id, to)| Operation::Move(tenant, id, to)),
        2 => (tenant, id).prop_map(|(tenant, id)| Operation::Delete(tenant, id)),
    ];
    let nested = prop::collection::vec(single.clone(), 1..4);
    prop_oneof![
        8 => single,
        1 => (nested, any::<bool>()).prop_map(|(all, is_kept)| Operation::Nested(all, is_kept)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let operations = || prop::collection::vec(operation(), 1..8);
    let step = prop_oneof![
        8 => (operations(), prop::bool::weighted(0.9))
            .prop_map(|(all, is_kept)| Step::Transaction(all, is_kept)),
        2 => (0..100_u32, operations()).prop_map(|(tenant, all)| Step::OneShard(tenant, all)),
        3 => (1..9_u64).prop_map(Step::Drain),
        1 => Just(Step::Verify),
        1 => Just(Step::Repair),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
    ];
    prop::collection::vec(step, 1..25)
}

/// Applies operations to the store and to the model. The tenants are few, so that rows meet.
fn apply(
    notes: &NoteRepository,
    txn: &mut index_table::WriteTxn<'_>,
    model: &mut Model,
    operations: &[Operation],
    tenant_of: &dyn Fn(u32) -> u32,
) -> Result<()> {
    for operation in operations {
        match operation {
            Operation::Put(tenant, id, content) => {
                let note = note(tenant_of(*tenant), *id, *content);
                notes.put(txn, &note)?;
                model.insert((note.tenant, *id), note);
            }
            Operation::Update(tenant, id, content) => {
                let key = (tenant_of(*tenant), *id);
                let new = note(key.0, *id, *content);
                let found = notes.update(txn, key.0, *id, |row| *row = new.clone())?;
                assert_eq!(found, model.contains_key(&key));
                if let Some(row) = model.get_mut(&key) {
                    *row = new;
                }
            }
            Operation::Move(tenant, id, to) => {
                let (from, to) = ((tenant_of(*tenant), *id), tenant_of(*to));
                if model.contains_key(&(to, *id)) {
                    continue;
                }
                notes.update(txn, from.0, *id, |row| row.tenant = to)?;
                if let Some(mut row) = model.remove(&from) {
                    row.tenant = to;
                    model.insert((to, *id), row);
                }
            }
            Operation::Delete(tenant, id) => {
                let key = (tenant_of(*tenant), *id);
                assert_eq!(notes.delete(txn, key.0, *id)?, model.remove(&key).is_some());
            }
            Operation::Nested(operations, is_kept) => {
                let before = model.clone();
                let outcome = txn.nested(|txn| {
                    apply(notes, txn, model, operations, tenant_of)?;
                    if *is_kept { Ok(()) } else { Err(undone()) }
                });
                match outcome {
                    Err(Error::TransactionFailed { .. }) => *model = before,
                    outcome => outcome?,
                }
            }
        }
    }
    Ok(())
}

fn run(steps: &[Step], shards: u32, queue: (u64, WhenFull), dir: Option<&Path>) -> Result<()> {
    let mut path = dir.map(|dir| dir.join("0"));
    let open = |path: &Option<PathBuf>| -> Result<Store> {
        let options = with_queue(shards, queue.0, queue.1);
        path.as_ref().map_or_else(|| options.clone().in_memory(), |path| options.clone().open(path))
    };
    let mut store = open(&path)?;
    let mut notes = NoteRepository::open(&store)?;
    let (mut model, mut kills) = (Model::new(), 0);
    let tenant = |number: u32| number % 10 * 10;
    for step in steps {
        match step {
            Step::Transaction(operations, is_kept) => {
                let mut after = model.clone();
                let outcome = store.transaction(|txn| {
                    after.clone_from(&model);
                    apply(&notes, txn, &mut after, operations, &tenant)?;
                    if *is_kept { Ok(()) } else { Err(undone()) }
                });
                match outcome {
                    Err(Error::TransactionFailed { .. }) if !is_kept => {}
                    outcome => {
                        outcome?;
                        model = after;
                    }
                }
            }
            Step::OneShard(own, operations) => {
                let own = tenant(*own);
                let shard = notes.shard_of(&store, own)?;
                let mut after = model.clone();
                // The strong global index `place` changes in none of these.
                store.transaction_on(&shard, |txn| {
                    after.clone_from(&model);
                    for operation in operations {
                        let Operation::Update(_, id, content) = operation else { continue };
                        let words = note(own, *id, *content).words;
                        notes.update(txn, own, *id, |row| row.words.clone_from(&words))?;
                        if let Some(row) = after.get_mut(&(own, *id)) {
                            row.words = words;
                        }
                    }
                    Ok(())
                })?;
                model = after;
            }
            Step::Drain(most) => {
                let before = notes.lag(&store.read()?)?.messages;
                let drained = notes.drain(&store, *most)?;
                assert_eq!(drained.applied + drained.left, before);
                assert_eq!(drained.applied, before.min(*most));
            }
            Step::Verify => {
                let report = store.verify()?;
                assert!(report.is_clean(), "{report}");
                let txn = store.read()?;
                let rows: Vec<_> = notes.all(&txn).rows().collect::<Result<_>>()?;
                assert!(rows.iter().eq(model.values()));
            }
            Step::Repair => {
                store.transaction(|txn| notes.repair(txn).run().map(drop))?;
                let txn = store.read()?;
                let expected = model.values().filter(|note| note.email == "a@x");
                let found = notes.find_by_email(&txn, "a@x").stale().rows();
                assert!(found.collect::<Result<Vec<_>>>()?.iter().eq(expected));
            }
            Step::Reopen if path.is_some() => {
                drop((notes, store));
                store = open(&path)?;
                notes = NoteRepository::open(&store)?;
            }
            Step::Kill => {
                let (Some(dir), Some(own)) = (dir, &path) else { continue };
                kills += 1;
                let killed = dir.join(kills.to_string());
                copy(own, &killed).expect("the files are copied");
                drop((notes, store));
                path = Some(killed);
                store = open(&path)?;
                notes = NoteRepository::open(&store)?;
            }
            Step::Reopen => {}
        }
    }
    notes.drain(&store, u64::MAX)?;
    assert_applied(&notes, &store, &model)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_transactions_and_drains_match_the_model(
        steps in steps(),
        shards in prop::sample::select(vec![1, 2, 5]),
        queue in prop::sample::select(vec![3, 100]),
    ) {
        run(&steps, shards, (queue, WhenFull::ApplyInLine), None).expect("no error");
        let dir = tempfile::tempdir().expect("a directory");
        run(&steps, shards, (queue, WhenFull::ApplyInLine), Some(dir.path())).expect("no error");
    }
}

/// Inserts a row for each of these tenants.
fn insert(notes: &NoteRepository, store: &Store, tenants: &[u32]) -> Result<IndexToken> {
    let mut txn = store.write()?;
    tenants.iter().try_for_each(|tenant| notes.insert(&mut txn, &note(*tenant, 1, 0)))?;
    txn.commit_with_token()
}

#[test]
fn a_worker_applies_the_messages_of_all_shards() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options(3).in_memory()?, options(3).open(dir.path())?] {
        let notes = NoteRepository::open(&store)?;
        let worker = store.start_index_worker()?;
        let token = insert(&notes, &store, &[0, 20, 40])?;
        assert!(!token.is_empty());
        assert!(notes.wait_for(&store, &token, LONG)?);
        let txn = store.read()?;
        assert_eq!(notes.find_by_town(&txn, "Oz").stale().count()?, 3);
        assert_eq!(notes.find_by_email(&txn, "a@x").stale().count()?, 3);
        drop(txn);
        drop(worker);

        // Messages are applied by a later worker.
        let token = insert(&notes, &store, &[1, 41])?;
        assert!(!notes.wait_for(&store, &token, Duration::from_millis(1))?);
        assert_eq!(notes.lag(&store.read()?)?.messages, 2);
        let worker = store.start_index_worker()?;
        assert!(notes.wait_for(&store, &token, LONG)?);
        assert_eq!(notes.find_by_town(&store.read()?, "Oz").stale().count()?, 5);
        assert!(worker.error().is_none());
    }
    Ok(())
}

#[test]
fn threads_and_workers_write_in_several_shards() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options(4).open(dir.path())?;
    let notes = NoteRepository::open(&store)?;
    let workers = [store.start_index_worker()?, store.start_index_worker()?];
    let tokens: Vec<IndexToken> = std::thread::scope(|scope| {
        let write = |thread: u32| {
            let (store, notes) = (&store, &notes);
            scope.spawn(move || -> Result<IndexToken> {
                let mut last = IndexToken::default();
                for round in 0..50_u32 {
                    let (first, second) = (thread * 20, (thread * 20 + 20) % 80);
                    store.transaction(|txn| {
                        notes.put(txn, &note(first, u64::from(thread), round))?;
                        notes.put(txn, &note(second, 100 + u64::from(thread), round))?;
                        last = txn.token();
                        Ok(())
                    })?;
                }
                Ok(last)
            })
        };
        let threads: Vec<_> = (0..4).map(write).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        joined.collect::<Result<_>>()
    })?;
    for token in &tokens {
        assert!(notes.wait_for(&store, token, LONG)?);
    }
    assert!(workers.iter().all(|worker| worker.error().is_none()));
    drop(workers);
    let mut model = Model::new();
    for thread in 0..4_u32 {
        for (tenant, id) in
            [(thread * 20, u64::from(thread)), ((thread * 20 + 20) % 80, 100 + u64::from(thread))]
        {
            model.insert((tenant, id), note(tenant, id, 49));
        }
    }
    assert_applied(&notes, &store, &model)
}

#[test]
fn a_transaction_of_one_shard_leaves_the_messages_of_a_global_index() -> Result<()> {
    let store = options(3).in_memory()?;
    let notes = NoteRepository::open(&store)?;
    insert(&notes, &store, &[0, 20])?;
    notes.drain(&store, u64::MAX)?;
    let shard = notes.shard_of(&store, 20)?;
    store.transaction_on(&shard, |txn| {
        notes.update(txn, 20, 1, |row| row.words.push("w".into())).map(drop)
    })?;
    // The entry in the full global index is updated by its message.
    let words = || -> Result<BTreeSet<usize>> {
        let txn = store.read()?;
        let rows = notes.find_by_email(&txn, "a@x").stale().rows();
        rows.map(|row| row.map(|row| row.words.len())).collect()
    };
    assert_eq!(words()?, BTreeSet::from([0]));
    assert_eq!(notes.drain(&store, u64::MAX)?.applied, 1);
    assert_eq!(words()?, BTreeSet::from([0, 1]));
    let moves = store
        .transaction_on(&shard, |txn| notes.update(txn, 20, 1, |row| row.email = "b@x".into()));
    assert!(
        matches!(moves, Err(Error::OtherShard { .. })),
        "a strong global index changes: {moves:?}"
    );
    Ok(())
}

#[test]
fn a_full_queue_of_one_shard_does_not_block_the_others() -> Result<()> {
    let when_full = WhenFull::Wait(Duration::from_millis(20));
    let store = with_queue(2, 2, when_full).in_memory()?;
    let notes = NoteRepository::open(&store)?;
    insert(&notes, &store, &[0])?;
    insert(&notes, &store, &[1])?;
    // The other shard has room.
    insert(&notes, &store, &[20])?;
    let full = insert(&notes, &store, &[2]);
    assert!(matches!(full, Err(Error::IndexQueueFull { table: "notes", messages: 2 })), "{full:?}");
    let full = store.transaction(|txn| notes.insert(txn, &note(2, 1, 0)));
    assert!(matches!(full, Err(Error::IndexQueueFull { .. })), "{full:?}");
    let worker = store.start_index_worker()?;
    // The worker may need longer than the transaction waits.
    let mut inserted =
        (0..1000).map(|_| store.transaction(|txn| notes.insert(txn, &note(2, 1, 0))));
    let is_full = |inserted: &Result<()>| matches!(inserted, Err(Error::IndexQueueFull { .. }));
    inserted.find(|it| !is_full(it)).expect("room in the queue")?;
    drop(worker);
    notes.drain(&store, u64::MAX)?;
    assert_eq!(notes.find_by_town(&store.read()?, "Oz").stale().count()?, 4);

    let store = with_queue(2, 2, WhenFull::Disable).in_memory()?;
    let refused = NoteRepository::open(&store).map(drop);
    assert!(matches!(refused, Err(Error::NotOffered { .. })), "{refused:?}");
    Ok(())
}

#[test]
fn dead_letters_name_their_shard() -> Result<()> {
    let store = options(3).in_memory()?;
    let letters = LetterRepository::open(&store)?;
    let letter = |tenant, text: &str| Letter { tenant, id: 1, text: text.to_owned() };
    store.transaction(|txn| {
        letters.insert(txn, &letter(0, "a"))?;
        letters.insert(txn, &letter(20, "poison"))?;
        letters.insert(txn, &letter(40, "poison"))
    })?;
    POISON.store(true, Relaxed);
    let drained = letters.drain(&store, u64::MAX)?;
    POISON.store(false, Relaxed);
    assert_eq!((drained.applied, drained.dead_letters, drained.left), (1, 2, 0));
    let txn = store.read()?;
    assert_eq!(letters.lag(&txn)?.dead_letters, 2);
    let dead = letters.dead_letters(&txn)?;
    let shown: Vec<_> = dead.iter().map(|it| (it.shard.as_deref(), it.row.as_deref())).collect();
    assert_eq!(shown, [(Some("s1"), Some("(20, 1)")), (Some("s2"), Some("(40, 1)"))]);
    drop(txn);
    assert_eq!(letters.retry_dead_letters(&store)?.applied, 2);
    assert_eq!(letters.find_by_initial(&store.read()?, "p").stale().count()?, 2);
    assert!(letters.dead_letters(&store.read()?)?.is_empty());
    Ok(())
}

/// The table before its index on words was declared, in which the index on towns is strong.
mod earlier {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", shard_by = tenant)]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[index(town, include = [email])]
    #[index(email, town, name = "place", scope = "global")]
    #[index(tenant, town, name = "of_tenant")]
    pub(super) struct Note {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u64,
        pub(super) town: String,
        pub(super) email: String,
        pub(super) words: Vec<String>,
    }
}

#[test]
fn new_eventual_indexes_have_the_rows_of_all_shards() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut model = Model::new();
    {
        let store = options(3).open(dir.path())?;
        let notes = earlier::NoteRepository::open(&store)?;
        store.transaction(|txn| {
            (0..60).try_for_each(|tenant| {
                let row = note(tenant, 1, tenant);
                model.insert((tenant, 1), row.clone());
                let Note { tenant, id, town, email, words } = row;
                notes.insert(txn, &earlier::Note { tenant, id, town, email, words })
            })
        })?;
    }
    let store = options(3).open(dir.path())?;
    let notes = NoteRepository::open(&store)?;
    assert_applied(&notes, &store, &model)?;
    let more: Vec<_> = (0..60).map(|tenant| note(tenant, 2, tenant + 1)).collect();
    notes.bulk_load(&store, more.iter().cloned()).run()?;
    model.extend(more.into_iter().map(|row| ((row.tenant, row.id), row)));
    assert_applied(&notes, &store, &model)?;
    notes.build(&store).run()?;
    assert_applied(&notes, &store, &model)
}

mod older {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", shard_by = tenant)]
    pub(super) struct Note {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u64,
        pub(super) town: String,
        pub(super) email: String,
        pub(super) words: Vec<String>,
    }
}

#[test]
fn eventual_indexes_are_built_online() -> Result<()> {
    for shards in [1, 2, 5] {
        for is_exclusive in [false, true] {
            let dir = tempfile::tempdir().expect("a directory");
            let store = options(shards).open(dir.path())?;
            let mut model = Model::new();
            {
                let notes = older::NoteRepository::open(&store)?;
                for tenant in (0..shards * 20).step_by(3) {
                    for id in 0..10 {
                        let row = note(tenant, id, tenant + id as u32);
                        let Note { tenant, id, town, email, words } = row.clone();
                        let older = older::Note { tenant, id, town, email, words };
                        store.transaction(|txn| notes.insert(txn, &older))?;
                        model.insert((tenant, id), row);
                    }
                }
            }
            let notes = NoteRepository::open_online(&store)?;
            for round in 0..4 {
                for tenant in (0..shards * 20).step_by(3) {
                    let row = note(tenant, u64::from(round * 3), tenant * 7 + round);
                    store.transaction(|txn| notes.put(txn, &row))?;
                    model.insert((row.tenant, row.id), row);
                }
                let build = notes.build(&store).batch_bytes(100);
                let build = if is_exclusive { build.exclusive() } else { build };
                build.limit(1).run()?;
            }
            let report = notes.build(&store).run()?;
            assert!(report.is_readable(), "{report}");
            let worker = store.start_index_worker()?;
            let mut txn = store.write()?;
            for shard in 0..shards {
                let row = note(shard * 20, 50, shard);
                notes.insert(&mut txn, &row)?;
                model.insert((row.tenant, row.id), row);
            }
            let token = txn.commit_with_token()?;
            assert!(notes.wait_for(&store, &token, LONG)?);
            drop(worker);
            assert_applied(&notes, &store, &model)?;
            assert!(notes.verify(&store.read()?).run()?.is_clean());
        }
    }
    Ok(())
}
