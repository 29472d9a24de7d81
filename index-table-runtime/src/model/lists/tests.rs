use std::{
    collections::BTreeMap,
    sync::{self, Arc},
};

use proptest::prelude::{
    ProptestConfig, Strategy as _, TestCaseError, prop, prop_assert, prop_assert_eq, proptest,
};
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Town {
    id: u64,
    name: Option<String>,
}

fn town(id: u64, name: Option<&str>) -> Town {
    Town { id, name: name.map(str::to_owned) }
}

fn encoded(lists: &Lists, value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    lists.encode(value, &mut bytes).unwrap();
    bytes
}

fn in_files(files: Vec<Vec<u8>>) -> Records {
    Records { manager: None, files }
}

#[test]
fn a_record_is_read_back_and_damage_is_found() {
    let lists = Lists::default();
    encoded(&lists, &town(1, Some("Oslo")));
    let (version, record) = lists.record();
    assert_eq!(version, lists.version());
    assert_eq!(decode(&record).as_ref(), Some(lists.catalog()));
    for at in 0..record.len() {
        let mut damaged = record.clone();
        damaged[at] ^= 1;
        assert_eq!(decode(&damaged), None, "{at}");
    }
    assert_eq!(decode(&record[..record.len() - 1]), None);
    assert_eq!(decode(&[]), None);
}

#[test]
fn lists_of_another_process_are_read_again() {
    let (writer, reader) = (Lists::default(), Lists::default());
    let record = std::sync::Arc::new(Mutex::<_>::new(Vec::new()));
    let source = std::sync::Arc::clone(&record);
    reader.set_source(Box::new(move || Ok(in_files(vec![source.lock().clone()]))));
    let row = encoded(&writer, &town(1, None));
    assert!(reader.decode::<Town>(&row).is_err());
    *record.lock() = writer.record().1;
    assert_eq!(reader.decode::<Town>(&row), Ok(town(1, None)));
    // The inside of the option is filled in place.
    let row = encoded(&writer, &town(1, Some("Oslo")));
    assert!(reader.decode::<Town>(&row).is_err());
    *record.lock() = writer.record().1;
    assert_eq!(reader.decode::<Town>(&row), Ok(town(1, Some("Oslo"))));
    assert_eq!(reader.lineage(), 0);
}

#[test]
fn claims_are_lost_if_another_process_records_other_lists() {
    let (own, other) = (Lists::default(), Lists::default());
    encoded(&own, &town(1, None));
    encoded(&other, &(1, 2));
    own.see(&other.record().1).unwrap();
    assert_eq!(own.catalog(), other.catalog());
    let lineage = own.lineage();
    assert_ne!(lineage, 0);
    // The same record again changes nothing, and neither do claims that are recorded unchanged.
    own.see(&other.record().1).unwrap();
    encoded(&own, &town(1, None));
    own.see(&own.record().1).unwrap();
    assert_eq!(own.lineage(), lineage);
    let row = encoded(&own, &town(2, Some("Rome")));
    assert_eq!(own.decode::<Town>(&row), Ok(town(2, Some("Rome"))));
}

#[test]
fn a_shard_with_other_lists_is_refused() {
    let (store, shard, other) = (Lists::default(), Lists::default(), Lists::default());
    encoded(&store, &town(1, None));
    encoded(&shard, &town(1, None));
    assert_eq!(store.open(shard.catalog().clone(), true), Opened::Taken);
    encoded(&shard, &town(1, Some("Oslo")));
    assert_eq!(store.open(shard.catalog().clone(), true), Opened::Taken);
    assert_eq!(store.catalog(), shard.catalog());
    encoded(&other, &(1, 2));
    assert_eq!(store.open(other.catalog().clone(), true), Opened::Contradicted);
    assert_eq!(store.catalog(), shard.catalog());
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A struct of any release: the bits of `has` say which fields it has. In a field is `None` or a number, by `number`.
#[derive(Clone, Copy, Debug)]
struct Any {
    has: u8,
    number: u64,
}

impl Any {
    fn fields(self) -> impl Iterator<Item = (&'static str, Option<u64>)> {
        let fields = (0..).zip(NAMES).filter(move |(at, _)| self.has >> at & 1 == 1);
        fields
            .map(move |(at, name)| (name, (self.number >> at & 1 == 1).then_some(self.number + at)))
    }
}

impl Serialize for Any {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut to = to.serialize_struct("Any", self.fields().count())?;
        self.fields().try_for_each(|(name, field)| to.serialize_field(name, &field))?;
        to.end()
    }
}

type Read = BTreeMap<String, Option<u64>>;

fn expected(value: Any) -> Read {
    value.fields().map(|(name, field)| (name.to_owned(), field)).collect()
}

#[test]
fn a_version_is_claimed_only_for_something_new() {
    let lists = Lists::default();
    assert_eq!((lists.version(), lists.lineage()), (0, 0));
    assert_eq!(decode(&lists.record().1).as_ref(), Some(&Catalog::new()));
    let first = encoded(&lists, &town(1, None));
    let version = lists.version();
    assert!(version > 0);
    assert_eq!(encoded(&lists, &town(1, None)), first);
    assert_eq!(encoded(&lists, &town(2, None))[1..], [2, 0]);
    assert_eq!(lists.version(), version);
    // An earlier version stays readable for those who have it.
    let before = lists.catalog();
    encoded(&lists, &town(1, Some("Oslo")));
    assert!(lists.version() > version && before.version() == version);
    assert!(lists.catalog().extends(before));
    assert_eq!(before.decode::<Town>(&first), Ok(town(1, None)));
    assert_eq!(lists.decode::<Town>(&first), Ok(town(1, None)));
}

#[test]
fn a_value_that_fails_claims_nothing() {
    struct Refused;
    impl Serialize for Refused {
        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            use serde::ser::{Error as _, SerializeStruct as _};
            let mut to = to.serialize_struct("Refused", 2)?;
            to.serialize_field("id", &1)?;
            Err(S::Error::custom("refused"))
        }
    }
    let (lists, mut out) = (Lists::default(), b"before".to_vec());
    assert_eq!(lists.encode(&Refused, &mut out).unwrap_err().to_string(), "refused");
    assert!(lists.encode_sorted(&Refused, &[], &mut out).is_err());
    assert_eq!((lists.version(), out.as_slice()), (0, &b"before"[..]));
}

#[test]
fn a_value_is_refused_if_there_are_too_many_versions() {
    let (lists, mut out) = (Lists::default(), b"before".to_vec());
    while lists.publish(Catalog::new()) {}
    let error = lists.encode(&town(1, None), &mut out).unwrap_err();
    let expected = rows::Error::from(rows::Reason::TooLarge).to_string();
    assert_eq!(error.to_string(), expected);
    assert_eq!((lists.version(), out.as_slice()), (0, &b"before"[..]));
}

#[test]
fn sorted_collections_claim_versions_too() {
    #[derive(Serialize)]
    struct Tags {
        tags: Vec<String>,
    }
    static SORTED: &[CollectionField] = &[CollectionField {
        offset: std::mem::offset_of!(Tags, tags),
        collection: rows::Collection { sorted: true, inside: &[] },
    }];
    let lists = Lists::default();
    for (tags, bytes) in [
        (&[][..], &b"\x00\x00"[..]),
        (&["b", "a"], b"\x00\x02\x01a\x01b"),
        (&["a", "b"], b"\x00\x02\x01a\x01b"),
    ] {
        let mut out = Vec::new();
        let value = Tags { tags: tags.iter().map(|&tag| tag.to_owned()).collect() };
        lists.encode_sorted(&value, SORTED, &mut out).unwrap();
        assert_eq!(out, bytes, "{tags:?}");
    }
    assert_eq!(
        encoded(&lists, &Tags { tags: vec!["b".into(), "a".into()] }),
        b"\x00\x02\x01b\x01a"
    );
}

#[test]
fn only_later_records_are_taken() {
    let (own, other) = (Lists::default(), Lists::default());
    encoded(&other, &town(1, None));
    let first = other.record().1;
    encoded(&other, &town(1, Some("Oslo")));
    let second = other.record().1;
    // Without claims, nothing is lost.
    own.see(&first).unwrap();
    own.see(&second).unwrap();
    assert_eq!((own.catalog(), own.lineage()), (other.catalog(), 0));
    own.see(&first).unwrap();
    assert_eq!(own.catalog(), other.catalog());
    assert!(!own.take(decode(&first).unwrap()) && !own.take(decode(&second).unwrap()));
    // A damaged record is ignored, also before one that is not.
    encoded(&other, &(1, 2));
    let third = other.record().1;
    let mut damaged = third.clone();
    *damaged.last_mut().unwrap() ^= 1;
    own.see(&damaged).unwrap();
    own.see(&[]).unwrap();
    assert_eq!(own.version(), decode(&second).unwrap().version());
    own.see(&third).unwrap();
    assert_eq!((own.catalog(), own.lineage()), (other.catalog(), 0));
}

#[test]
fn both_copies_are_read_if_the_first_one_is_damaged() {
    let (own, other) = (Lists::default(), Lists::default());
    encoded(&other, &town(1, None));
    let record = other.record().1;
    let mut damaged = record.clone();
    *damaged.last_mut().unwrap() ^= 1;
    own.set_source(Box::new(move || Ok(Records { manager: None, files: vec![record.clone()] })));
    own.see(&damaged).unwrap();
    assert_eq!(own.catalog(), other.catalog());
}

#[test]
fn claims_that_this_process_records_are_kept() {
    let lists = Lists::default();
    encoded(&lists, &town(1, None));
    let (recorded, record) = lists.record();
    // A later claim, while the transaction commits.
    let row = encoded(&lists, &town(1, Some("Oslo")));
    let version = lists.version();
    lists.note_recorded(recorded);
    lists.see(&record).unwrap();
    assert_eq!((lists.version(), lists.lineage()), (version, 0));
    assert_eq!(lists.decode::<Town>(&row), Ok(town(1, Some("Oslo"))));
    // The claim is not recorded yet, so it can be lost.
    let other = Lists::default();
    other.see(&record).unwrap();
    encoded(&other, &(1, 2));
    let before = lists.lineage();
    lists.see(&other.record().1).unwrap();
    assert!(lists.lineage() > before);
    assert_eq!(lists.catalog(), other.catalog());
    // An earlier version that is noted late lowers nothing.
    lists.note_recorded(recorded);
    assert!(!lists.take(decode(&record).unwrap()));
}

/// Both claims have the same version, and one reads the rows of the other. If it were recorded after the other, processes
/// that know the other would not notice.
#[test]
fn claims_of_the_same_version_are_lost_even_if_they_read_the_rows() {
    let (own, other) = (Lists::default(), Lists::default());
    encoded(&own, &town(1, Some("Oslo")));
    let row = encoded(&other, &town(1, None));
    assert_eq!(own.version(), other.version());
    assert_eq!(own.decode::<Town>(&row), Ok(town(1, None)));
    assert!(!own.catalog().extends(other.catalog()));
    let (_, record) = other.record();
    let before = own.lineage();
    own.see(&record).unwrap();
    assert!(own.lineage() > before);
    encoded(&own, &town(1, Some("Oslo")));
    assert!(own.version() > other.version());
    other.note_recorded(decode(&record).unwrap().version());
    other.see(&own.record().1).unwrap();
    assert_eq!(other.catalog(), own.catalog());
}

#[test]
fn a_claim_reads_the_records_first() {
    let (own, other) = (Lists::default(), Lists::default());
    let row = encoded(&other, &town(1, Some("Oslo")));
    let (version, record) = other.record();
    own.set_source(Box::new(move || Ok(in_files(vec![Vec::new(), record.clone()]))));
    assert_eq!(encoded(&own, &town(1, Some("Oslo"))), row);
    assert_eq!((own.version(), own.lineage()), (version, 0));
    assert!(!own.refresh().unwrap(), "nothing has changed");
    // A claim that the record does not satisfy continues it.
    encoded(&own, &(1, 2));
    assert!(own.version() > version && own.catalog().extends(other.catalog()));
    assert!(!own.refresh().unwrap() && own.version() > version);
}

/// Its number may mean another list by now.
#[test]
fn a_row_is_not_read_by_claims_if_the_records_cant_be_read() {
    let lists = Lists::default();
    let row = encoded(&lists, &town(1, Some("Oslo")));
    let failed = || Error::TransactionFailed { reason: "no slot".to_owned() };
    lists.set_source(Box::new(move || Err(failed())));
    match lists.decode::<Town>(&row) {
        Err(DecodeError::Store(error)) => assert_eq!(error.to_string(), failed().to_string()),
        other => panic!("{other:?}"),
    }
    let error = lists.decode::<Town>(&row).unwrap_err().at("towns", None, "1".to_owned());
    assert!(matches!(error, Error::TransactionFailed { .. }), "{error:?}");
}

#[test]
fn a_commit_keeps_what_the_file_lacks_and_refuses_other_lists() {
    let (own, other) = (Lists::default(), Lists::default());
    assert_eq!(own.to_keep(None), Ok(None));
    encoded(&own, &town(1, None));
    let first = decode(&own.record().1).unwrap();
    assert_eq!(own.to_keep(None), Ok(Some(own.record())));
    encoded(&own, &town(1, Some("Oslo")));
    assert_eq!(own.to_keep(Some(first)), Ok(Some(own.record())));
    encoded(&other, &(1, 2));
    assert_eq!(own.to_keep(decode(&other.record().1)), Err(Contradicted));
    assert_eq!(own.catalog(), other.catalog());
    assert_eq!(own.to_keep(decode(&other.record().1)), Ok(None));
}

#[test]
fn the_manager_gets_the_lists_of_a_file_and_no_file_contradicts_it() {
    let (own, file) = (Lists::default(), Lists::default());
    let manager = Arc::new(Mutex::<_>::new(None::<Vec<u8>>));
    let record = Arc::clone(&manager);
    own.set_exchange(Box::new(move |_, after| {
        let mut record = record.lock();
        let found = record.as_deref().and_then(decode);
        let is_extended = found.is_none_or(|found| decode(after).unwrap().extends(&found));
        if is_extended {
            *record = Some(after.to_vec());
        }
        Some(Ok(is_extended))
    }));
    let (record, other) = (Arc::clone(&manager), Lists::default());
    encoded(&other, &(1, 2));
    let contradicting = other.record().1;
    own.set_source(Box::new(move || {
        let manager = record.lock().clone();
        Ok(Records { manager, files: vec![contradicting.clone()] })
    }));
    encoded(&file, &town(1, None));
    assert_eq!(own.open(decode(&file.record().1).unwrap(), true), Opened::Taken);
    assert!(own.settle().unwrap());
    assert_eq!(*manager.lock(), Some(file.record().1));
    assert!(!own.refresh().unwrap());
    assert_eq!(own.catalog(), file.catalog());
    // The manager has a later version.
    encoded(&file, &town(1, Some("Oslo")));
    *manager.lock() = Some(file.record().1);
    own.unsettle();
    assert!(own.settle().unwrap());
    assert_eq!(own.catalog(), file.catalog());
    // The manager has other lists.
    encoded(&other, &(1, "a"));
    *manager.lock() = Some(other.record().1);
    own.unsettle();
    assert!(!own.settle().unwrap());
}

#[test]
fn fields_of_another_process_are_read_again() {
    let (writer, reader) = (Lists::default(), Lists::default());
    let row = encoded(&writer, &town(7, Some("Oslo")));
    assert!(
        matches!(reader.fields(&row), Err(DecodeError::Fields(error)) if error.is_unrecorded())
    );
    let (_, record) = writer.record();
    reader.set_source(Box::new(move || Ok(in_files(vec![record.clone()]))));
    let mut fields = reader.fields(&row).unwrap();
    assert_eq!(fields.field::<u64>(&["id"]), Ok(Some(7)));
    assert_eq!(fields.field::<&str>(&["name"]), Ok(Some("Oslo")));
    fields.end().unwrap();
}

/// The bytes and the values of rows.
type Rows = Vec<(Vec<u8>, Any)>;

/// A data file that several processes write.
#[derive(Default)]
struct DataFile {
    record: Vec<u8>,
    rows: Rows,
}

#[expect(
    clippy::disallowed_types,
    reason = "it is no lock of the product, so it has no place in their order"
)]
type File = sync::Mutex<DataFile>;

#[derive(Default)]
struct Process {
    lists: Lists,
    /// The lineage and the rows of the open transaction.
    open: Option<(u64, Rows)>,
}

impl Process {
    fn of(file: &Arc<File>) -> Self {
        let (process, file) = (Self::default(), Arc::clone(file));
        process
            .lists
            .set_source(Box::new(move || Ok(in_files(vec![file.lock().unwrap().record.clone()]))));
        process
    }

    /// Reads all rows, in a transaction of its own.
    fn read(&self, file: &File) -> Result<(), TestCaseError> {
        let rows = file.lock().unwrap().rows.clone();
        for (row, value) in rows {
            prop_assert_eq!(self.lists.decode::<Read>(&row), Ok(expected(value)));
        }
        Ok(())
    }

    fn write(&mut self, file: &File, value: Any) {
        let (_, rows) = self.open.get_or_insert_with(|| {
            self.lists.see(&file.lock().unwrap().record).unwrap();
            (self.lists.lineage(), Vec::new())
        });
        rows.push((encoded(&self.lists, &value), value));
    }

    /// Commits as a write transaction does. Returns false if claims were lost.
    fn commit(&mut self, file: &mut DataFile) -> bool {
        let Some((lineage, rows)) = self.open.take() else { return true };
        self.lists.see(&file.record).unwrap();
        if self.lists.lineage() != lineage {
            return false;
        }
        let (version, record) = self.lists.record();
        if !file.record.is_empty() {
            let (later, earlier) = (decode(&record).unwrap(), decode(&file.record).unwrap());
            assert!(later.extends(&earlier));
        }
        file.record = record;
        file.rows.extend(rows);
        self.lists.note_recorded(version);
        true
    }
}

fn any() -> impl proptest::strategy::Strategy<Value = Any> {
    (0_u8..16, 0_u64..200).prop_map(|(has, number)| Any { has, number })
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Transactions of several processes are interleaved at random.
    #[test]
    fn each_process_reads_the_committed_rows(
        steps in prop::collection::vec((0_usize..3, any(), 0..4), 1..60),
    ) {
        let file = Arc::new(File::default());
        let mut processes = [(); 3].map(|()| Process::of(&file));
        for (at, value, step) in steps {
            let process = &mut processes[at];
            match step {
                0 | 1 => process.write(&file, value),
                2 => {
                    let open = process.open.as_ref().map(|(_, rows)| rows.clone());
                    let done = process.commit(&mut file.lock().unwrap());
                    if !done {
                        // Nothing is lost twice.
                        open.iter().flatten().for_each(|(_, value)| process.write(&file, *value));
                        prop_assert!(process.commit(&mut file.lock().unwrap()));
                    }
                }
                _ => process.read(&file)?,
            }
        }
        for process in processes {
            process.read(&file)?;
        }
        Process::of(&file).read(&file)?;
    }
}

#[test]
fn threads_read_the_rows_of_each_other() {
    const THREADS: u64 = 6;
    for round in 0..20 {
        let (lists, written) = (Lists::default(), Mutex::<_>::new(Vec::new()));
        let begin = std::sync::Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (lists, written, begin) = (&lists, &written, &begin);
                scope.spawn(move || {
                    begin.wait();
                    for step in 0..16 {
                        // Each thread has another order.
                        let has = ((step * (2 * thread + 1) + round) % 16) as u8;
                        let value = Any { has, number: thread * 16 + step };
                        let row = encoded(lists, &value);
                        written.lock().push((row, value));
                        let rows: Vec<_> = written.lock().clone();
                        for (row, value) in rows {
                            assert_eq!(lists.decode::<Read>(&row), Ok(expected(value)));
                        }
                    }
                });
            }
        });
        assert_eq!(lists.catalog().len(), 16, "a list for each set of names");
        assert_eq!(lists.lineage(), 0);
        // All rows are of one history, and a new process reads them.
        let recorded = decode(&lists.record().1).unwrap();
        for (row, value) in written.lock().iter() {
            assert_eq!(recorded.decode::<Read>(row), Ok(expected(*value)));
        }
    }
}

/// A transaction notices in the lineage that its claims were lost, whenever that happens.
#[test]
fn a_row_of_the_current_lineage_is_readable() {
    const THREADS: u64 = 3;
    // Another process has recorded other lists.
    let other = Lists::default();
    (0..16).rev().for_each(|has| drop(encoded(&other, &Any { has, number: 15 })));
    let (_, record) = other.record();
    for round in 0..300 {
        let lists = Lists::default();
        let begin = std::sync::Barrier::new(THREADS as usize + 1);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (lists, begin) = (&lists, &begin);
                scope.spawn(move || {
                    begin.wait();
                    for step in 0..16 {
                        let number = thread + step;
                        let value = Any { has: (number % 16) as u8, number };
                        let lineage = lists.lineage();
                        let row = encoded(lists, &value);
                        let read = lists.decode::<Read>(&row);
                        if lists.lineage() == lineage {
                            assert_eq!(read, Ok(expected(value)));
                        }
                    }
                });
            }
            begin.wait();
            (0..round % 20 * 50).for_each(|_| std::hint::spin_loop());
            lists.see(&record).unwrap();
        });
    }
}

#[test]
fn one_intact_copy_of_a_record_is_enough() {
    let (own, other) = (Lists::default(), Lists::default());
    encoded(&own, &town(1, None));
    let (_, earlier) = own.record();
    encoded(&own, &town(1, Some("Oslo")));
    let (_, later) = own.record();
    encoded(&other, &(1, 2));
    let (_, foreign) = other.record();
    let mut damaged = later.clone();
    damaged[12] ^= 1;
    let chosen = |first: Option<&[u8]>, second: Option<&[u8]>| match choose(first, second) {
        Ok(found) => Ok(found.map(|it| (it.record.to_vec(), it.fault.map(|it| it.to_string())))),
        Err(unusable) => Err(unusable),
    };
    let fault = |copy: &str, reason: &str| {
        let fault =
            format!("the {copy} copy of their record {reason}, and the other copy is intact");
        Ok(Some((later.clone(), Some(fault))))
    };
    let intact = Some(&*later);
    assert_eq!(chosen(None, None), Ok(None));
    assert_eq!(chosen(intact, intact), Ok(Some((later.clone(), None))));
    for (one, reason) in
        [(None, "is missing"), (Some(&*damaged), "is damaged"), (Some(&*earlier), "lacks lists")]
    {
        assert_eq!(chosen(one, intact), fault("first", reason));
        assert_eq!(chosen(intact, one), fault("second", reason));
    }
    for (first, second) in [(None, Some(&*damaged)), (Some(&*damaged), None)] {
        assert!(chosen(first, second).is_err());
    }
    assert_eq!(chosen(Some(&damaged), Some(&damaged)), Err(Unusable::DAMAGED));
    assert_eq!(chosen(intact, Some(&foreign)), Err(Unusable::CONTRADICTING));
    assert_eq!(chosen(Some(&foreign), intact), Err(Unusable::CONTRADICTING));
}
