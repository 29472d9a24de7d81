//! Checks of one piece, one entry or one row.

use std::{borrow::Cow, rc::Rc};

use super::TableCheck;
use crate::{
    engine::{Piece, Read},
    model::{entry::RawEntry, error::Result, key::DecodeError, schema::Source},
    upkeep::verify::{
        compare::{self, Difference},
        finding::FindingKind,
        raw_finding::{Fix, RawFinding},
        resume_point::Stage,
        row::{holder, load},
        sums::hash,
    },
    write::references,
};

impl<'t> TableCheck<'t> {
    pub(super) fn piece(&mut self, Piece { at, fault }: Piece<'t>) {
        self.stepped(RawEntry { key: at, ..RawEntry::NOWHERE });
        let Stage::Pieces(index) = self.stage else { return };
        if let Some(fault) = fault {
            self.known.intact.remove(&index);
            let key = fault.key.and_then(|key| at.get(..key)).unwrap_or(at);
            let fix = Fix::RemovePieces { all: fault.key.is_some() };
            let found = RawEntry { key, ..RawEntry::NOWHERE };
            self.report(FindingKind::Malformed, Source::Index(index), found, fault.reason, fix);
        }
    }

    pub(super) fn entry(&mut self, entry: RawEntry<'_>) -> Result<()> {
        self.stepped(entry);
        let Stage::Entries(index) = self.stage else { return self.fact(entry) };
        if !self.is_part_of_global(index) && self.is_copy(entry.primary_key) {
            return Ok(());
        }
        // The walks of the parts have counted the entries of global indexes.
        self.entries += u64::from(self.only_global.is_none());
        let source = Source::Index(index);
        let Some(declared) = self.vtable.schema.index(source) else { return Ok(()) };
        if let Some((routing, own)) = self.place
            && let Some(global) = routing.global(index)
        {
            let is_copy = routing.is_copy(source, (entry.key, entry.primary_key), own);
            if global.shard_of(entry.key) != Some(own) && !is_copy {
                let reason =
                    "the shard map of the index gives its key to another shard, or to none";
                self.report(FindingKind::WrongShard, source, entry, reason, Fix::Delete);
            }
            return Ok(());
        }
        if self.has_one_entry_per_key(index, declared) && self.is_second(index, &entry)? {
            let reason = "it is a second entry of its key";
            self.report(FindingKind::Malformed, source, entry, reason, Fix::Delete);
            return Ok(());
        }
        if let Some(sums) = self.known.sums.get(&index)
            && sums.is_right(entry.key, entry.primary_key, hash(entry.data))
        {
            return Ok(());
        }
        let Some(fact) = self.reader.fact(entry.primary_key)? else {
            let reason = "it refers to a row that is not in the table";
            self.surplus(FindingKind::Dangling, source, entry, reason);
            return Ok(());
        };
        // The required entries of an unreadable row are unknown.
        let image = if declared.has_each() {
            self.known.images.get(self.vtable, index, entry.primary_key, fact)
        } else {
            let loaded = load(self.vtable, &mut self.image, entry.primary_key, fact, Some(index));
            loaded.ok().map(|()| &self.image)
        };
        let Some(image) = image else { return Ok(()) };
        match compare::compare(&self.vtable.lists, image, index, declared, &entry) {
            None => {}
            Some(Difference::Key) => {
                self.surplus(FindingKind::Stale, source, entry, "its row has no such key");
            }
            Some(Difference::Data) => {
                let fix = Fix::Put(image.data(index, declared).into());
                let reason = "its included fields differ from its row";
                self.report(FindingKind::Stale, source, entry, reason, fix);
            }
        }
        Ok(())
    }

    /// Whether the previous entry has the same key.
    fn is_second(&self, index: usize, entry: &RawEntry<'_>) -> Result<bool> {
        if let Some(previous) = &self.previous {
            return Ok(previous.key == entry.key);
        }
        // The walk may have continued in a later snapshot, which lacks the last entry of the earlier snapshot.
        match &self.after {
            Some(after) if after.key == entry.key => {
                Ok(self.reader.entry(index, entry.key, &after.primary_key)?.is_some())
            }
            _ => Ok(false),
        }
    }

    /// Reports an entry that should not exist.
    fn surplus(
        &mut self,
        kind: FindingKind,
        source: Source,
        entry: RawEntry<'_>,
        reason: &'static str,
    ) {
        if self.vtable.schema.can_read(source, entry.key, entry.primary_key) {
            self.report(kind, source, entry, reason, Fix::Delete);
        } else {
            self.report(
                FindingKind::Malformed,
                source,
                entry,
                "its key can't be decoded",
                Fix::Delete,
            );
        }
    }

    fn fact(&mut self, fact: RawEntry<'_>) -> Result<()> {
        if self.is_copy(fact.primary_key) {
            return Ok(());
        }
        // The walks of the parts have counted the rows, and reported the unreadable ones.
        let only_global = self.only_global.is_some();
        self.rows += u64::from(!only_global);
        if let Some((routing, own)) = self.place
            && routing.shard_of(fact.primary_key) != Some(own)
        {
            let reason = "the shard map gives its shard key to another shard, or to none";
            self.report(FindingKind::WrongShard, Source::Facts, fact, reason, Fix::None);
        }
        if let Err((kind, reason)) =
            load(self.vtable, &mut self.image, fact.primary_key, fact.data, None)
        {
            if !only_global {
                self.report(kind, Source::Facts, fact, reason, Fix::None);
            }
            return Ok(());
        }
        if !only_global
            && let Err(error @ DecodeError::Altered { .. }) =
                self.vtable.check_conversion(fact.data)
        {
            let (kind, reason) = (FindingKind::WrongConversion, error.to_string());
            self.report(kind, Source::Facts, fact, reason, Fix::None);
        }
        if !self.vtable.references.is_empty() {
            let is_elsewhere = self.has_main_rows_elsewhere();
            // The reader of a part has one shard.
            let orphaned = if only_global {
                references::without_main_row(self.vtable, self.reader, &self.image)?
                    .into_iter()
                    .collect()
            } else {
                references::orphaned(self.vtable, self.reader, &self.image, is_elsewhere)?
            };
            for error in orphaned {
                let reason = error.to_string();
                self.report(FindingKind::Orphan, Source::Facts, fact, reason, Fix::None);
            }
        }
        for (index, declared) in self.vtable.schema.indexes.iter().enumerate() {
            if self.is_skipped(index) || self.is_part_of_global(index) {
                continue;
            }
            let sums = self.known.sums.get(&index).filter(|_| self.known.intact.contains(&index));
            let sums = sums.map(|sums| (sums, hash(self.image.data(index, declared))));
            let mut missing = None;
            for key in self.image.keys(index) {
                let is_right =
                    sums.is_some_and(|(sums, data)| sums.is_right(key, fact.primary_key, data));
                let is_there =
                    is_right || self.reader.entry(index, key, fact.primary_key)?.is_some();
                let violated = self.unreadable.violated.contains(&index);
                let has_one = declared.has_one_entry_per_key() && !violated;
                let holder = if declared.unique && !violated && !(has_one && is_there) {
                    let images = &mut self.known.images;
                    holder(self.vtable, self.reader, &self.image, images, index, key)?
                } else {
                    None
                };
                let mut report = |kind, reason: Cow<'static, str>, fix| {
                    let at = RawEntry { key, ..fact };
                    let found = RawFinding::new(kind, Source::Index(index), at, reason, fix);
                    self.findings.push_back(found);
                };
                if !(is_there || has_one && holder.is_some()) {
                    let data =
                        missing.get_or_insert_with(|| self.image.data(index, declared).into());
                    let fix = Fix::Put(Rc::clone(data));
                    report(FindingKind::Missing, "there is no such entry".into(), fix);
                }
                // If a key can have several entries, all rows except the first row are duplicates.
                if let Some(holder) = holder
                    && (has_one || *holder < *fact.primary_key)
                {
                    let holder = self.vtable.schema.show_primary_key(&holder);
                    let reason = format!("the row {holder} has the same key");
                    report(FindingKind::Duplicate, reason.into(), Fix::None);
                }
            }
        }
        Ok(())
    }

    pub(super) fn report(
        &mut self,
        kind: FindingKind,
        source: Source,
        at: RawEntry<'_>,
        reason: impl Into<Cow<'static, str>>,
        fix: Fix,
    ) {
        self.findings.push_back(RawFinding::new(kind, source, at, reason, fix));
    }
}
