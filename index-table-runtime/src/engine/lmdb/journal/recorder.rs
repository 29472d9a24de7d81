//! Recording the changes of a write transaction for the journal.

use std::{io, path::Path, sync::Arc};

use super::{
    changes::{Changes, Mark, Operation},
    frame::{Kind, Section},
    group::{Group, Pending, Strategy},
    limits::Limits,
    log::{self, AppendFailure, End, Log},
    spilled::{Spilled, Stored},
};

/// The maximum size of changes in memory. Larger changes are appended as a part of the record.
const PART: usize = 1 << 20;

/// Records changes in a store with a journal. In other stores, each call is one comparison.
#[derive(Default)]
pub(in crate::engine::lmdb) struct Recorder {
    journal: Option<Box<Recording>>,
}

struct Recording {
    /// The log to which changes are appended.
    group: Arc<Group>,
    /// The number of the member.
    shard: u32,
    /// With limits, larger transactions are not recorded.
    limits: Option<Arc<Limits>>,
    changes: Changes,
    /// Earlier changes that are not appended yet.
    parts: Spilled,
    /// The number of the last record.
    record: u64,
    /// The number of LMDB's transaction.
    number: u64,
    /// The open nested transactions.
    nested: Vec<Nested>,
    /// The bytes of the changes that are not in memory any more.
    earlier: u64,
    mode: Mode,
}

/// What becomes of the changes of the current transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// They are recorded.
    Recorded,
    /// They are only counted, because the transaction is too large for the journal.
    Direct,
    /// They are refused, because a part could not be appended, with an error of this kind.
    Failed(io::ErrorKind),
}

/// An open nested transaction, whose changes may be removed again.
struct Nested {
    /// The end of the changes before it, unless they are in earlier parts.
    mark: Mark,
    /// The end of the parts before it, if it is in an earlier part.
    end: Option<PartEnd>,
}

/// The end of a part of the record.
#[derive(Clone, Copy)]
enum PartEnd {
    /// In the log.
    Appended(End),
    /// The number of parts that wait for the commit.
    Waiting(usize),
}

/// The parts of a record before its commit.
enum Parts<'p> {
    /// They are appended to the log, in sections without changes yet.
    Appended(&'p mut Log, Section<'p>),
    /// They wait for the commit. Those that don't fit into the memory are in a temporary file in this directory.
    Waiting(&'p mut Spilled, &'p Path),
}

impl Parts<'_> {
    fn add(&mut self, changes: &[u8]) -> io::Result<()> {
        match self {
            _ if changes.is_empty() => Ok(()),
            Self::Appended(log, section) => {
                log.append(Kind::Part, &[Section { changes, ..*section }], log::nanoseconds())
            }
            Self::Waiting(spilled, directory) => spilled.push(changes, directory),
        }
    }

    const fn end(&self) -> PartEnd {
        match self {
            Self::Appended(log, _) => PartEnd::Appended(log.position()),
            Self::Waiting(spilled, _) => PartEnd::Waiting(spilled.len()),
        }
    }
}

/// The amount of changes of a transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::engine::lmdb) struct Recorded {
    pub(in crate::engine::lmdb) operations: u64,
    /// The bytes of the segment.
    pub(in crate::engine::lmdb) length: u64,
    /// The number of the record.
    pub(in crate::engine::lmdb) record: u64,
}

/// A record that LMDB might not commit.
pub(in crate::engine::lmdb) struct Record {
    group: Arc<Group>,
    number: u64,
}

impl Record {
    /// Appends and syncs the notice that LMDB has not committed the record.
    pub(in crate::engine::lmdb) fn take_back(&self) -> io::Result<()> {
        self.group.take_back(self.number)
    }
}

/// Makes the changes so far parts of the record. A part ends where a nested transaction begins, so that the parts after this
/// position can be removed.
fn add_parts(mut parts: Parts<'_>, changes: &[u8], nested: &mut [Nested]) -> io::Result<()> {
    let mut from = 0;
    for nested in nested.iter_mut().filter(|nested| nested.end.is_none()) {
        let to = nested.mark.bytes();
        parts.add(changes.get(from..to).unwrap_or_default())?;
        from = to;
        nested.end = Some(parts.end());
    }
    parts.add(changes.get(from..).unwrap_or_default())
}

impl Recorder {
    /// Returns the recorder of a member. With limits, larger transactions are not recorded.
    pub(super) fn new(group: Arc<Group>, shard: u32, limits: Option<Arc<Limits>>) -> Self {
        let (changes, parts) = (Changes::default(), Spilled::default());
        let (record, number, nested, earlier) = (0, 0, Vec::new(), 0);
        let mode = Mode::Recorded;
        let recording = Recording {
            group,
            shard,
            limits,
            changes,
            parts,
            record,
            number,
            nested,
            earlier,
            mode,
        };
        Self { journal: Some(Box::new(recording)) }
    }

    #[inline]
    pub(in crate::engine::lmdb) const fn is_on(&self) -> bool {
        self.journal.is_some()
    }

    /// Starts a transaction. Removes the changes of an earlier transaction that was rolled back.
    #[inline]
    pub(in crate::engine::lmdb) fn begin(&mut self, number: usize) {
        if let Some(recording) = &mut self.journal {
            recording.begin(number as u64);
        }
    }

    #[inline]
    pub(in crate::engine::lmdb) fn add(
        &mut self,
        database: &str,
        operation: Operation<'_>,
    ) -> heed::Result<()> {
        match &mut self.journal {
            None => Ok(()),
            Some(recording) => recording.add(database, operation),
        }
    }

    #[inline]
    pub(in crate::engine::lmdb) fn put(
        &mut self,
        database: &str,
        key: &[u8],
        value: &[u8],
    ) -> heed::Result<()> {
        self.add(database, Operation::Put { key, value })
    }

    #[inline]
    pub(in crate::engine::lmdb) fn delete(
        &mut self,
        database: &str,
        key: &[u8],
    ) -> heed::Result<()> {
        self.add(database, Operation::Delete { key })
    }

    /// Starts a nested transaction.
    pub(in crate::engine::lmdb) fn nest(&mut self) {
        if let Some(recording) = &mut self.journal {
            let mark = recording.changes.mark();
            recording.nested.push(Nested { mark, end: None });
        }
    }

    /// Ends the innermost nested transaction, and removes its changes if it was rolled back.
    pub(in crate::engine::lmdb) fn unnest(&mut self, is_rolled_back: bool) {
        if let Some(recording) = &mut self.journal
            && let Some(nested) = recording.nested.pop()
            && is_rolled_back
        {
            recording.back_to(nested);
        }
    }

    /// Makes the recorded changes durable. Returns `None` if there are none.
    pub(in crate::engine::lmdb) fn append(&mut self) -> Result<Option<Recorded>, AppendFailure> {
        match &mut self.journal {
            Some(recording) if recording.changes.operations() > 0 => recording.append().map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the transaction has changes and is too large for the journal. LMDB's commit has to make it durable, and no other
    /// transaction may be committed before the next checkpoint.
    pub(in crate::engine::lmdb) fn is_direct(&self) -> bool {
        let recording = self.journal.as_ref();
        recording.is_some_and(|it| it.mode == Mode::Direct && it.changes.operations() > 0)
    }

    pub(in crate::engine::lmdb) fn has_changes(&self) -> bool {
        self.changes() > 0
    }

    /// Returns the number of recorded changes.
    pub(in crate::engine::lmdb) fn changes(&self) -> u64 {
        self.journal.as_ref().map_or(0, |recording| recording.changes.operations())
    }

    /// Returns the number of bytes of the recorded changes.
    pub(in crate::engine::lmdb) fn bytes(&self) -> u64 {
        self.journal
            .as_ref()
            .map_or(0, |recording| recording.changes.bytes().len() as u64 + recording.parts.bytes())
    }

    /// Whether records can have changes of several members.
    pub(in crate::engine::lmdb) fn is_shared(&self) -> bool {
        let recording = self.journal.as_ref();
        recording.is_some_and(|recording| recording.group.strategy == Strategy::Gathered)
    }

    /// Makes the recorded changes of several shards durable as one record. A single shard may have its
    /// own journal.
    pub(in crate::engine::lmdb) fn append_together(
        recorders: &mut [&mut Self],
    ) -> Result<(Option<Record>, Vec<Recorded>), AppendFailure> {
        let mut all: Vec<_> =
            recorders.iter_mut().filter_map(|it| it.journal.as_deref_mut()).collect();
        if let [one] = &mut all[..] {
            let recorded = one.append()?;
            return Ok((Some(one.last()), vec![recorded]));
        }
        let Some(first) = all.first() else { return Ok((None, Vec::new())) };
        all.iter().try_for_each(|recording| recording.refuse_failed())?;
        let sections: Vec<_> = all.iter().flat_map(|recording| recording.sections()).collect();
        let (record, length) = first.group.append(&sections)?;
        drop(sections);
        let recorded = all.iter_mut().map(|recording| recording.appended(record, length));
        let recorded = recorded.collect();
        Ok((all.first().map(|recording| recording.last()), recorded))
    }

    /// Appends and syncs the notice that LMDB has not committed the last record.
    pub(in crate::engine::lmdb) fn take_back(&mut self) -> io::Result<()> {
        self.journal.as_ref().map_or(Ok(()), |recording| recording.last().take_back())
    }
}

impl Recording {
    fn begin(&mut self, number: u64) {
        self.changes.clear();
        self.number = number;
        self.nested.clear();
        (self.earlier, self.mode) = (0, Mode::Recorded);
        self.parts.clear();
        if self.group.strategy == Strategy::Streamed {
            self.group.stream(Log::roll_back);
        }
    }

    fn add(&mut self, database: &str, operation: Operation<'_>) -> heed::Result<()> {
        if self.mode != Mode::Recorded {
            return self.add_unrecorded();
        }
        self.changes.add(database, operation);
        if self.changes.bytes().len() < PART {
            return Ok(());
        }
        self.add_part()
    }

    #[cold]
    fn add_unrecorded(&mut self) -> heed::Result<()> {
        if matches!(self.mode, Mode::Failed(_)) {
            return Err(heed::MdbError::BadTxn.into());
        }
        self.changes.count();
        Ok(())
    }

    /// Makes the changes in memory a part of the record, or stops recording.
    #[cold]
    fn add_part(&mut self) -> heed::Result<()> {
        self.earlier += self.changes.bytes().len() as u64;
        if self.limits.as_ref().is_some_and(|limits| self.earlier > limits.transaction()) {
            self.group.stream(Log::remove_parts);
            self.changes.forget_bytes();
            self.mode = Mode::Direct;
            return Ok(());
        }
        let section = self.section(&[]);
        let (changes, nested) = (self.changes.bytes(), &mut self.nested);
        let appended = match self.group.strategy {
            Strategy::Streamed => {
                self.group.stream(|log| add_parts(Parts::Appended(log, section), changes, nested))
            }
            Strategy::Gathered => {
                let directory = self.group.directory();
                add_parts(Parts::Waiting(&mut self.parts, directory), changes, nested)
            }
        };
        if let Err(error) = &appended {
            self.mode = Mode::Failed(error.kind());
        }
        self.changes.forget_bytes();
        appended.map_err(heed::Error::Io)
    }

    /// Removes the changes of a nested transaction.
    fn back_to(&mut self, Nested { mark, end }: Nested) {
        // The changes before it are not recorded either.
        if self.mode == Mode::Direct {
            return;
        }
        let Some(end) = end else { return self.changes.back_to(mark) };
        self.changes.forget_after(&mark);
        match end {
            PartEnd::Appended(end) => self.group.stream(|log| log.back_to(end)),
            PartEnd::Waiting(len) => self.parts.truncate(len),
        }
    }

    const fn section<'c>(&self, changes: &'c [u8]) -> Section<'c> {
        Section { shard: self.shard, number: self.number, changes }
    }

    /// Returns the sections of this member, whose changes have waited for the commit.
    fn sections(&self) -> impl Iterator<Item = Pending<'_>> {
        let shard = self.shard;
        let (number, last) = (self.number, Stored::Memory(self.changes.bytes()));
        let parts = self.parts.iter().chain([last]);
        parts.map(move |changes| Pending { shard, number, changes })
    }

    fn append(&mut self) -> Result<Recorded, AppendFailure> {
        self.refuse_failed()?;
        let (record, length) = match self.group.strategy {
            Strategy::Streamed => self.append_streamed()?,
            Strategy::Gathered => self.group.append(&self.sections().collect::<Vec<_>>())?,
        };
        Ok(self.appended(record, length))
    }

    /// Refuses to append a record that lacks a part.
    fn refuse_failed(&self) -> Result<(), AppendFailure> {
        let Mode::Failed(kind) = self.mode else { return Ok(()) };
        let reason = "an earlier part of the transaction could not be written";
        Err(AppendFailure::Refused(io::Error::new(kind, reason)))
    }

    /// Notes that all changes are in this record.
    fn appended(&mut self, record: u64, length: u64) -> Recorded {
        self.record = record;
        let recorded = Recorded { operations: self.changes.operations(), length, record };
        self.changes.clear();
        self.parts.clear();
        recorded
    }

    /// Appends the end of a record, whose parts are in the log. Returns its number and the length of the segment.
    fn append_streamed(&self) -> Result<(u64, u64), AppendFailure> {
        // In a direct record, there are no changes.
        let kind = if self.mode == Mode::Direct { Kind::Direct } else { Kind::Commit };
        let section = self.section(self.changes.bytes());
        self.group.append_with(|log| log.append(kind, &[section], log::nanoseconds()))
    }

    /// Returns the last record that was appended.
    fn last(&self) -> Record {
        Record { group: Arc::clone(&self.group), number: self.record }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            block::HEAD,
            files::{self, SHARED, Segments},
            frame::Salt,
        },
        *,
    };

    #[test]
    fn a_record_that_lacks_a_part_is_refused() -> io::Result<()> {
        for strategy in [Strategy::Streamed, Strategy::Gathered] {
            let directory = tempfile::tempdir()?;
            let path = directory.path();
            let segments = Segments::new(files::paths(path, SHARED), files::create(path, SHARED)?)?;
            let salt = Salt { identity: [7; 16], epoch: 1, sequence: 1 };
            let log = Log::new(Arc::new(segments), salt, 1, HEAD)?;
            // Changes that don't fit into the memory need a file in this directory.
            let group = Group::new(log, path.join("missing"), strategy, None);
            let mut recorder = Recorder::new(Arc::new(group), 0, None);
            recorder.begin(1);
            let value = vec![0; PART];
            let is_failed = (0..4).any(|_| recorder.put("rows", b"key", &value).is_err());
            let is_gathered = strategy == Strategy::Gathered;
            assert_eq!(is_failed, is_gathered);
            let appended = recorder.append();
            assert_eq!(matches!(appended, Err(AppendFailure::Refused(_))), is_gathered);
        }
        Ok(())
    }
}
