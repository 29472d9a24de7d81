//! The data files of all shards as of any archived commit.
//!
//! The bases of shards have different times. A record is applied to each of its shards whose base does not have it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use heed::MdbError;

use super::{
    format::{Base, Head, MANAGER, MANAGER_FILE},
    records::{Archived, Records, sections},
    restore::{
        Archive, Segment, Step, Until, Walked, closed, damaged, failed, not_applied, open, utc,
    },
};
use crate::{
    engine::lmdb::{
        journal::{
            changes::{Operation, Operations},
            frame::Place,
            recovery::grow,
            replay::{self, Drops, Failure},
            tail::Fault,
        },
        names::Env,
    },
    model::error::{Error, Result},
};

/// The records of a shard map manager.
pub(crate) type ManagerEntries = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the numbers of the shards that need a base, from the records of a shard map manager.
pub(crate) type NeedsBase<'n> = &'n dyn Fn(&[(Vec<u8>, Vec<u8>)]) -> Result<Vec<u32>>;

/// The database with the own records of a shard.
const OWN_RECORDS: &str = ".shard";

/// A restored state of all shards.
#[derive(Default)]
pub(crate) struct RestoredShards {
    /// The number of the last commit in each shard.
    pub(crate) numbers: BTreeMap<u32, u64>,
    pub(crate) manager: ManagerEntries,
}

impl Archive {
    /// For each shard, returns the last base that is not later than the last commit of the restored store.
    pub(crate) fn shard_bases(
        &self,
        until: &Until,
        needs_base: NeedsBase<'_>,
    ) -> Result<Vec<Base>> {
        let generations: BTreeSet<_> = self.bases.iter().map(|base| base.generation).collect();
        let (mut missing, mut complete) = (None, Vec::new());
        for generation in generations.iter().rev() {
            let mut found = BTreeMap::new();
            let of_generation = || self.bases.iter().filter(|base| base.generation == *generation);
            let completed = self.completed(until, of_generation())?;
            for base in of_generation() {
                if completed.includes(base.shard(), base.commit, base.time)
                    && self.has_commits_of(base)?
                {
                    found.insert(base.shard(), *base);
                }
            }
            let found: Vec<_> = found.into_values().collect();
            let Some(first) = first(&found) else { continue };
            // The store had one data file in this generation.
            let Some(manager) = self.manager_from(first)? else { continue };
            let needed = needs_base(&manager)?;
            match needed.iter().find(|shard| found.iter().all(|base| base.shard() != **shard)) {
                None if matches!(until, Until::Commit(_)) => complete.push(found),
                None => return self.check_managers(&found).map(|()| found),
                Some(shard) => missing = missing.or(Some(*shard)),
            }
        }
        let usable: BTreeSet<_> = complete.iter().flatten().map(|base| base.generation).collect();
        if let Some(found) = self.of_commit(complete, until)? {
            if let (Some(first), Until::Commit(numbers)) = (first(&found), until) {
                self.refuse_commit_of_later(first, numbers, (&usable, needs_base))?;
            }
            self.check_managers(&found)?;
            return Ok(found);
        }
        Err(self.lacks(match (missing, self.bases.first()) {
            (Some(shard), _) => format!("it has no base of shard number {shard} before that"),
            (None, Some(first)) => format!("it begins at {}", utc(first.time)),
            (None, None) => "it has no base yet".to_owned(),
        }))
    }

    /// Completes a commit number that lacks the numbers of some shards. All records of a generation are in one order, so such a
    /// shard gets its last number up to the last record with a given number.
    ///
    /// Without such numbers, no record is read.
    fn completed<'u, 'b>(
        &self,
        until: &'u Until,
        bases: impl Iterator<Item = &'b Base>,
    ) -> Result<Cow<'u, Until>> {
        let Until::Commit(given) = until else { return Ok(Cow::Borrowed(until)) };
        let first = bases.min_by_key(|base| base.segment);
        let (Some(first), true) = (first, given.contains(&0)) else {
            return Ok(Cow::Borrowed(until));
        };
        let given_of = |shard: u32| given.get(shard as usize).copied().unwrap_or(0);
        let (mut seen, mut before, mut after) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut step = |walked: &Walked<'_>| {
            let Walked { path, file, head, record } = walked;
            let parts = Parts::read(file, head, record);
            let parts = parts.map_err(|failure| failed(&self.directory, failure, path))?;
            seen.extend(parts.shards.iter().copied());
            if parts.shards.iter().any(|(shard, number)| *number <= given_of(*shard)) {
                before.clone_from(&seen);
                after.clear();
            } else {
                for (shard, number) in parts.shards {
                    after.entry(shard).or_insert(number);
                }
            }
            Ok(Step::Next)
        };
        self.walk(first, &mut step, &mut |_| ())?;
        let last = |(shard, given): (u32, &u64)| match (given, after.get(&shard)) {
            (0, None) => 0,
            (0, Some(next)) => before.get(&shard).copied().unwrap_or(next.saturating_sub(1)),
            (given, _) => *given,
        };
        Ok(Cow::Owned(Until::Commit((0..).zip(given).map(last).collect())))
    }

    /// Fails if a generation after that of a base may have the requested commit, before its bases are complete. After an older
    /// copy of a shard was restored or attached, two generations can have the same numbers of this shard. `usable` has the
    /// generations whose bases are before the commit.
    fn refuse_commit_of_later(
        &self,
        base: &Base,
        numbers: &[u64],
        (usable, needs_base): (&BTreeSet<u64>, NeedsBase<'_>),
    ) -> Result<()> {
        // The segments from which on a later generation has a base of each shard.
        let mut ends = BTreeMap::new();
        let later = self.bases.iter().filter(|it| it.generation > base.generation);
        let generations: BTreeMap<_, _> = later.map(|base| (base.generation, base)).collect();
        for (generation, base) in generations {
            let own = |shard: &u32| {
                let bases = self.bases.iter().filter(|it| it.generation == generation);
                bases.filter(|it| it.shard() == *shard).map(|it| it.segment).min()
            };
            let needed = needs_base(&self.manager_from(base)?.unwrap_or_default())?;
            let end = needed.iter().try_fold(0, |end, shard| Some(own(shard)?.max(end)));
            ends.insert(generation, end.unwrap_or(u64::MAX));
        }
        let is_read = |head: &Head| {
            let end = ends.get(&head.generation).copied().unwrap_or(u64::MAX);
            !usable.contains(&head.generation) && head.segment < end
        };
        let mut is_lacking = |walked: &Walked<'_>| {
            let Walked { path, file, head, record } = walked;
            let parts = Parts::read(file, head, record);
            let parts = parts.map_err(|failure| failed(&self.directory, failure, path))?;
            let is_within = |(shard, number): &(u32, u64)| {
                numbers.get(*shard as usize).is_some_and(|last| number <= last)
            };
            Ok(parts.shards.iter().any(is_within).then_some(true))
        };
        self.refuse_later(base, &is_read, &mut is_lacking)
    }

    /// Returns whether the segments have all commits of a base of a shard. Earlier releases could copy a base before the segments
    /// with its commits. If these segments were lost, the base can have a part of a transaction.
    fn has_commits_of(&self, base: &Base) -> Result<bool> {
        let end = self.manifest.segment + 1;
        if base.segment != end {
            return Ok(base.segment < end);
        }
        // The last commit of the shard before the base is in a segment, or in an earlier base.
        let of_generation = || self.bases.iter().filter(|it| it.generation == base.generation);
        let first = of_generation().map(|it| it.segment).min().unwrap_or(end);
        for segment in (first..=end).rev() {
            if let Some(last) = self.last_in_segment(segment, base)? {
                return Ok(base.commit <= last);
            }
        }
        let is_earlier = |it: &&Base| it.shard() == base.shard() && it.segment < base.segment;
        let earlier = of_generation().filter(is_earlier).map(|it| it.commit).max();
        Ok(earlier.map_or(base.segment == first, |earlier| base.commit <= earlier))
    }

    /// Returns the last commit that a segment has for the shard of a base. Both have the same generation.
    fn last_in_segment(&self, segment: u64, base: &Base) -> Result<Option<u64>> {
        let mut last = None;
        let Some(Segment { path, file, .. }) = Segment::find(&self.directory, segment)? else {
            return Ok(None);
        };
        let io = |source| Error::io(&path, source);
        let Some(mut records) = Records::open(&file).map_err(io)? else { return Ok(None) };
        let head = records.head;
        if (head.identity, head.generation) != (base.identity, base.generation) {
            return Ok(None);
        }
        while let Some(record) = records.next().map_err(io)? {
            let parts = Parts::read(&file, &head, &record);
            let parts = parts.map_err(|failure| failed(&self.directory, failure, &path))?;
            let own = parts.shards.iter().find(|(shard, _)| *shard == base.shard());
            last = own.map(|(_, number)| *number).or(last);
        }
        Ok(last)
    }

    /// Returns the bases of the last generation that has a commit; of the last generation, if none has it. `found` has the
    /// bases of generations, the last generation first.
    fn of_commit(&self, mut found: Vec<Vec<Base>>, until: &Until) -> Result<Option<Vec<Base>>> {
        let Until::Commit(numbers) = until else { return Ok(None) };
        if found.len() < 2 {
            return Ok(found.pop());
        }
        let mut newest: Option<(&Vec<Base>, BTreeMap<u32, u64>)> = None;
        for bases in &found {
            let last = self.last_numbers(bases)?;
            let has =
                |base: &Base, number: u64| last.get(&base.shard()).is_some_and(|it| *it >= number);
            let number_of = |base: &Base| numbers.get(base.shard() as usize).copied().unwrap_or(0);
            if !bases.iter().all(|base| has(base, number_of(base))) {
                continue;
            }
            let Some((newer, last_of_newer)) = &newest else {
                newest = Some((bases, last));
                continue;
            };
            // A generation continues after all commits of the generations before, unless a copy of the store has written it.
            let begins_before = |base: &&Base| {
                let is_first =
                    |it: &&Base| it.generation == base.generation && it.shard() == base.shard();
                let first = self.bases.iter().find(is_first);
                first.is_some_and(|first| first.commit < number_of(base))
            };
            if let (Some(newer), Some(older)) = (newer.iter().find(begins_before), bases.first()) {
                let what = format!("the requested commit of shard number {}", newer.shard());
                return Err(self.two_histories(&what, older, newer));
            }
            // The newer one begins with these numbers. If it began with an older copy of a shard, only the generation before
            // has the state that had them first.
            let generation = newer.first().map(|base| base.generation);
            let of_newer = self.bases.iter().filter(|base| Some(base.generation) == generation);
            let completed = self.completed(until, of_newer)?;
            let completed_of = |base: &Base| match completed.number_of(base.shard()) {
                // The requested commit does not have the shard, and no later commit has it.
                0 => last_of_newer.get(&base.shard()).copied().unwrap_or_default(),
                number => number,
            };
            if newer.iter().all(|base| base.commit == completed_of(base)) {
                newest = Some((bases, last));
            }
        }
        let newest = newest.map(|(bases, _)| bases.clone());
        Ok(newest.or_else(|| found.into_iter().next()))
    }

    /// Returns the number of the last commit of each shard in the generation of these bases. All records after the bases are
    /// read.
    fn last_numbers(&self, bases: &[Base]) -> Result<BTreeMap<u32, u64>> {
        let mut last: BTreeMap<_, _> =
            bases.iter().map(|base| (base.shard(), base.commit)).collect();
        let Some(first) = first(bases) else { return Ok(last) };
        let mut step = |walked: &Walked<'_>| {
            let Walked { path, file, head, record } = walked;
            let parts = Parts::read(file, head, record);
            let parts = parts.map_err(|failure| failed(&self.directory, failure, path))?;
            for (shard, number) in parts.shards {
                last.entry(shard).and_modify(|last| *last = number.max(*last));
            }
            Ok(Step::Next)
        };
        self.walk(first, &mut step, &mut |_| ())?;
        Ok(last)
    }

    /// Fails if the records of the shard map manager in one of these bases are damaged. The files of a damaged base may not
    /// belong together.
    fn check_managers(&self, bases: &[Base]) -> Result<()> {
        let of_shards = bases.iter().filter(|base| base.shard.is_some());
        of_shards.map(|base| self.manager_of(base)).try_for_each(|manager| manager.map(drop))
    }

    /// Returns the records of the shard map manager from which a restore begins that uses these bases, of which this is the
    /// first; `None` if the store had one data file in their generation.
    fn manager_from(&self, first: &Base) -> Result<Option<ManagerEntries>> {
        if first.shard.is_some() {
            return self.manager_of(first).map(Some);
        }
        Ok(self.growth(first)?.map(|growth| growth.manager))
    }

    /// Returns the records of the shard map manager in a base of a shard.
    pub(super) fn manager_of(&self, base: &Base) -> Result<ManagerEntries> {
        let path = self.base_directory(base).join(MANAGER_FILE);
        let bytes = fs::read(&path).map_err(|source| Error::io(&path, source))?;
        let entries = base
            .shard
            .filter(|shard| shard.manager == *blake3::hash(&bytes).as_bytes())
            .and_then(|_| entries(&bytes));
        entries
            .ok_or_else(|| damaged(&self.directory, format!("the base {} is damaged", base.name())))
    }

    /// Returns the maximum number of bytes that a restore of all shards reads.
    pub(crate) fn bytes_of_shards(&self, bases: &[Base]) -> Result<u64> {
        let Some(first) = first(bases) else { return Ok(0) };
        let copied: u64 = bases.iter().map(|base| base.length).sum();
        Ok(copied + self.bytes(first)?.saturating_sub(first.length))
    }

    /// Applies the records after the bases to copies of the bases. No process has the copies open. `directories` has
    /// the copies in the order of `bases`.
    pub(crate) fn apply_to_shards(
        &self,
        bases: &[Base],
        until: &Until,
        directories: &[PathBuf],
        applied: &mut dyn FnMut(u64),
    ) -> Result<RestoredShards> {
        let Some(first) = first(bases) else { return Ok(RestoredShards::default()) };
        let mut envs = BTreeMap::new();
        for (base, directory) in bases.iter().zip(directories) {
            let env = open(directory, base);
            let env = env.map_err(|error| failed(&self.directory, error, directory))?;
            envs.insert(base.shard(), (env, directory.as_path()));
        }
        let of_generation = self.bases.iter().filter(|base| base.generation == first.generation);
        let completed = self.completed(until, of_generation)?;
        let mut restoring = Restoring {
            archive: self,
            until: &completed,
            envs: &envs,
            manager: self.manager_from(first)?.unwrap_or_default(),
            later: None,
            is_past: false,
        };
        let outcome = self.walk(first, &mut |walked| restoring.step(walked), applied);
        let Restoring { manager, later, .. } = restoring;
        let manager = later.filter(|_| *until == Until::End).unwrap_or(manager);
        let mut numbers = BTreeMap::new();
        let mut outcome = outcome;
        for (shard, (env, directory)) in envs {
            numbers.insert(shard, env.info().last_txn_id as u64);
            let closed = closed(env, directory, &self.directory, outcome.is_ok());
            outcome = outcome.and(closed);
        }
        outcome?;
        if let Until::Commit(requested) = until {
            for (shard, last) in &numbers {
                if requested.get(*shard as usize).is_some_and(|requested| last < requested) {
                    return Err(self.lacks(format!(
                        "its last commit of shard number {shard} is {last}, and a later commit was requested"
                    )));
                }
            }
        }
        Ok(RestoredShards { numbers, manager })
    }
}

/// Returns the base after which the first needed record follows.
fn first(bases: &[Base]) -> Option<&Base> {
    bases.iter().min_by_key(|base| base.segment)
}

/// Reads the records of a shard map manager.
pub(crate) fn entries(changes: &[u8]) -> Option<ManagerEntries> {
    let mut entries = Vec::new();
    for operation in Operations::of(changes) {
        match operation {
            Ok((_, Operation::Put { key, value })) => entries.push((key.to_vec(), value.to_vec())),
            _ => return None,
        }
    }
    Some(entries)
}

/// Returns the records of a shard map manager if a segment begins with them. With such a segment, a store that has grown continues
/// the generation of its only data file; no earlier segment of the generation has records of a manager.
pub(super) fn begins_with_manager(
    file: &fs::File,
    records: &mut Records<'_, fs::File>,
) -> std::result::Result<Option<ManagerEntries>, Failure> {
    let head = records.head;
    match records.next().map_err(Fault::Io)? {
        Some(record) => Ok(Parts::read(file, &head, &record)?.manager),
        None => Ok(None),
    }
}

/// The shards of a record, with the numbers of their transactions.
pub(crate) struct Parts {
    pub(crate) shards: Vec<(u32, u64)>,
    /// The records of the shard map manager.
    pub(crate) manager: Option<ManagerEntries>,
    /// Whether the own records of a shard change.
    pub(crate) has_own_records: bool,
}

impl Parts {
    pub(in crate::engine::lmdb) fn read(
        file: &fs::File,
        head: &Head,
        record: &Archived,
    ) -> std::result::Result<Self, Failure> {
        let mut parts = Self { shards: Vec::new(), manager: None, has_own_records: false };
        for offset in &record.frames {
            sections(file, head, *offset, &mut |section| {
                if section.shard == MANAGER {
                    let malformed = || replay::malformed(place(head, *offset));
                    parts.manager = Some(entries(section.changes).ok_or_else(malformed)?);
                    return Ok::<_, Failure>(());
                }
                let mut operations = Operations::of(section.changes);
                parts.has_own_records |= operations
                    .any(|operation| operation.is_ok_and(|(name, _)| name == OWN_RECORDS));
                if parts.shards.iter().all(|(shard, _)| *shard != section.shard) {
                    parts.shards.push((section.shard, section.number));
                }
                Ok::<_, Failure>(())
            })?;
        }
        Ok(parts)
    }
}

const fn place(head: &Head, offset: u64) -> Place {
    Place { sequence: head.segment, offset }
}

/// Applies the sections of a shard in a record.
pub(crate) fn apply_sections_of(
    env: &Env,
    shard: u32,
    (file, head, record): (&fs::File, &Head, &Archived),
    drops: Drops,
) -> std::result::Result<(), Failure> {
    let each: replay::Each<'_> = &|apply| {
        for offset in &record.frames {
            let place = place(head, *offset);
            sections(file, head, *offset, &mut |section| {
                if section.shard == shard { apply(section, place) } else { Ok(()) }
            })?;
        }
        Ok(())
    };
    replay::apply_sections(env, record.commit, drops, each)
}

/// A restore of all shards.
struct Restoring<'r> {
    archive: &'r Archive,
    until: &'r Until,
    envs: &'r BTreeMap<u32, (Env, &'r Path)>,
    manager: ManagerEntries,
    /// Records of the shard map manager before the next record. They may belong to a commit that is left out.
    later: Option<ManagerEntries>,
    /// Whether a record was left out.
    is_past: bool,
}

impl Restoring<'_> {
    fn step(&mut self, walked: &Walked<'_>) -> Result<Step> {
        let Walked { path, file, head, record } = walked;
        let failed = |failure| failed(&self.archive.directory, failure, path);
        let parts = Parts::read(file, head, record).map_err(failed)?;
        let is_included =
            |(shard, number): &(u32, u64)| self.until.includes(*shard, *number, record.time);
        if !parts.shards.iter().all(is_included) {
            self.is_past = true;
            // With a number for each shard, later records of other shards can be included.
            let is_over = matches!(self.until, Until::Time(_));
            return Ok(if is_over { Step::End } else { Step::Next });
        }
        if parts.manager.is_some() {
            self.later = parts.manager.filter(|_| !self.is_past);
        } else if let Some(manager) = self.later.take() {
            self.manager = manager;
        }
        for (shard, number) in parts.shards {
            let Some((env, to)) = self.envs.get(&shard) else { continue };
            let failed = |failure| not_applied(&self.archive.directory, failure, path, to);
            let next = env.info().last_txn_id as u64 + 1;
            if number < next {
                continue;
            }
            if number > next {
                return Err(self.archive.lacks(format!(
                    "shard number {shard} was changed without the archive, and its next base is not complete"
                )));
            }
            loop {
                match apply_sections_of(env, shard, (file, head, record), Drops::Remove) {
                    Err(Failure::Lmdb(heed::Error::Mdb(MdbError::MapFull)))
                        if grow(env).map_err(failed)? => {}
                    Err(Failure::Fault(Fault::Io(error))) => {
                        return Err(Error::io(path, error));
                    }
                    outcome => break outcome.map_err(failed)?,
                }
            }
        }
        Ok(Step::Next)
    }
}
