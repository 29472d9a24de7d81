//! Copies of scans, maintained by events, compared with the scans after random writes.

use index_table::{Error, Event, OnDuplicate, ReadTxn, Result, Scan, Store, Watcher, WriteTxn};
use proptest::prelude::*;

use crate::{Copy, Person, PersonRepository, TestResult, stores};

#[derive(Debug, Clone)]
enum Write {
    Insert(Person),
    Put(Person),
    /// Changes all fields but the primary key, which may become the second number.
    Update(u32, Option<u32>, Person),
    Delete(u32),
    Load(Vec<Person>, OnDuplicate),
}

#[derive(Debug, Clone)]
enum Step {
    /// Writes of one transaction, and whether it is committed.
    Commit(Vec<Write>, bool),
    /// Writes that are separate closures of a group, and whether each closure fails after its write.
    Group(Vec<(Write, bool)>),
    /// The selected watchers receive their pending events.
    Receive(Vec<bool>),
}

fn row() -> impl Strategy<Value = Person> {
    let texts = (0..3_u8, 0..3_u8, 0..2_u8);
    let others = (0..24_u8, prop::collection::vec(0..4_u8, 0..3), prop::option::of(0..6_u8));
    (0..12_u32, texts, others).prop_map(|(id, (town, name, notes), (age, tags, email))| Person {
        id,
        town: ["Redmond", "Red", "Seattle"][usize::from(town)].to_owned(),
        name: ["A", "Aa", "B"][usize::from(name)].to_owned(),
        age,
        tags,
        email: email.map(|email| email.to_string()),
        notes: notes.to_string(),
    })
}

fn write() -> impl Strategy<Value = Write> {
    let policy =
        prop::sample::select(vec![OnDuplicate::Fail, OnDuplicate::Skip, OnDuplicate::Replace]);
    prop_oneof![
        3 => row().prop_map(Write::Insert),
        3 => row().prop_map(Write::Put),
        4 => (0..12_u32, prop::option::of(0..12_u32), row())
            .prop_map(|(id, to, row)| Write::Update(id, to, row)),
        2 => (0..12_u32).prop_map(Write::Delete),
        1 => (prop::collection::vec(row(), 0..6), policy)
            .prop_map(|(rows, policy)| Write::Load(rows, policy)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (prop::collection::vec(write(), 0..5), prop::bool::weighted(0.8))
            .prop_map(|(writes, commits)| Step::Commit(writes, commits)),
        1 => prop::collection::vec((write(), prop::bool::weighted(0.2)), 0..5)
            .prop_map(Step::Group),
        3 => prop::collection::vec(any::<bool>(), WATCHED.len() + 1).prop_map(Step::Receive),
    ]
}

impl Write {
    fn run(&self, people: &PersonRepository, txn: &mut WriteTxn<'_>) -> Result<()> {
        match self.clone() {
            Self::Insert(row) => people.insert(txn, &row),
            Self::Put(row) => people.put(txn, &row),
            Self::Update(id, to, row) => people
                .update(txn, id, |old| *old = Person { id: to.unwrap_or(id), ..row })
                .map(drop),
            Self::Delete(id) => people.delete(txn, id).map(drop),
            Self::Load(rows, policy) => {
                people.bulk_load_in(txn, rows).on_duplicate(policy).run().map(drop)
            }
        }
    }
}

/// Whether an error refuses a write and leaves the transaction unchanged.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::DuplicateKey { .. } | Error::UniqueViolation { .. })
}

/// Returns scans of each kind, as functions of a transaction.
macro_rules! watched {
    ($($scan:expr),* $(,)?) => {
        const WATCHED: &[(
            fn(&Store, &PersonRepository, usize) -> Result<Watcher<Person>>,
            fn(&ReadTxn<'_>, &PersonRepository) -> Result<Vec<Person>>,
        )] = &[$((
            |store, people, buffer| {
                let txn = store.read()?;
                people.watch(store).only(scan(people, &txn, $scan)).buffer(buffer).start()
            },
            |txn, people| scan(people, txn, $scan).rows().collect(),
        )),*];
    };
}

/// Runs `scan`, so that the compiler infers the types of the closure.
fn scan<'t, E>(
    people: &'t PersonRepository,
    txn: &'t ReadTxn<'_>,
    scan: impl FnOnce(&'t PersonRepository, &'t ReadTxn<'_>) -> Scan<'t, E>,
) -> Scan<'t, E> {
    scan(people, txn)
}

watched![
    |people, txn| people.all(txn),
    |people, txn| people.find_by_id_range(txn, 3..9),
    |people, txn| people.find_by_town(txn, "Redmond"),
    |people, txn| people.find_by_town_starting_with(txn, "Red"),
    |people, txn| people.find_by_town_name(txn, "Red", "A"),
    |people, txn| people.find_by_town_name_range(txn, "Redmond", "Aa"..),
    |people, txn| people.find_by_tags(txn, 2),
    |people, txn| people.by_tags(txn),
    |people, txn| people.by_email(txn),
    |people, txn| people.find_by_notes(txn, "1"),
    |people, txn| people.by_adults(txn),
    |people, txn| people.find_by_adults_range(txn, ..20),
];

struct Watching {
    watcher: Watcher<Person>,
    rows: fn(&ReadTxn<'_>, &PersonRepository) -> Result<Vec<Person>>,
    copy: Copy,
}

impl Watching {
    fn reread(&mut self, store: &Store, people: &PersonRepository) -> Result<()> {
        let txn = store.read()?;
        self.copy = Copy::read(&txn, (self.rows)(&txn, people)?.into_iter().map(Ok))?;
        Ok(())
    }

    fn receive(&mut self, store: &Store, people: &PersonRepository) -> TestResult {
        while let Ok(event) = self.watcher.try_recv() {
            match event {
                _ if event.commit_number() <= self.copy.commit => {}
                Event::Change(change) => self.copy.apply(&change)?,
                Event::Lagged(_) => self.reread(store, people)?,
            }
        }
        let txn = store.read()?;
        let now = Copy::read(&txn, (self.rows)(&txn, people)?.into_iter().map(Ok))?;
        assert_eq!(self.copy.rows, now.rows);
        Ok(())
    }
}

fn run(steps: &[Step], buffer: usize) -> TestResult {
    for (store, _dir) in stores()? {
        let people = PersonRepository::open(&store)?;
        let group = store.writer()?;
        let mut watching = Vec::new();
        for (watch, rows) in WATCHED {
            let watcher = watch(&store, &people, buffer)?;
            watching.push(Watching { watcher, rows: *rows, copy: Copy::default() });
        }
        let rows: fn(&ReadTxn<'_>, &PersonRepository) -> _ =
            |txn, people| people.all(txn).rows().collect();
        let watcher = people.watch(&store).buffer(buffer).start()?;
        watching.push(Watching { watcher, rows, copy: Copy::default() });
        for step in steps {
            match step {
                Step::Commit(writes, commits) => {
                    let mut txn = store.write()?;
                    for write in writes {
                        let written = write.run(&people, &mut txn);
                        assert!(written.as_ref().err().is_none_or(is_refusal), "{written:?}");
                    }
                    if *commits {
                        txn.commit()?;
                    }
                }
                Step::Group(writes) => {
                    let submit = |(write, fails): (Write, bool)| {
                        let people = people.clone();
                        group.submit(move |txn| {
                            write.run(&people, txn)?;
                            if fails { Err(Error::WriterClosed) } else { Ok(()) }
                        })
                    };
                    let held = store.write()?;
                    let submitted: Vec<_> = writes.iter().cloned().map(submit).collect();
                    drop(held);
                    for (submitted_write, (write, fails)) in submitted.into_iter().zip(writes) {
                        match submitted_write.wait() {
                            Err(Error::WriterClosed) if *fails => {}
                            Err(error) => assert!(is_refusal(&error), "{write:?}: {error}"),
                            Ok(()) => assert!(!fails, "{write:?}"),
                        }
                    }
                }
                Step::Receive(who) => {
                    for (watching, receives) in watching.iter_mut().zip(who) {
                        if *receives {
                            watching.receive(&store, &people)?;
                        }
                    }
                }
            }
        }
        watching.iter_mut().try_for_each(|watching| watching.receive(&store, &people))?;
    }
    Ok(())
}

/// Between two writes of a group, the buffer of one event becomes full.
#[test]
fn a_group_that_fills_a_buffer_gives_lagged() -> TestResult {
    let person = |id| Person {
        id,
        town: "Redmond".to_owned(),
        name: "A".to_owned(),
        age: 0,
        tags: vec![],
        email: None,
        notes: "0".to_owned(),
    };
    let insert = |id| (Write::Insert(person(id)), false);
    run(&[Step::Group(vec![insert(0), insert(1)])], 1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn copies_by_events_equal_the_scans(
        steps in prop::collection::vec(step(), 0..24),
        buffer in prop::sample::select(vec![1_usize, 3, 8, 1000]),
    ) {
        run(&steps, buffer).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}
