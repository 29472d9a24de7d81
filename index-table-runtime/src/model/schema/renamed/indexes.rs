//! Renamed indexes and aggregates: the changes of the catalog. This code is pure.
//!
//! Nothing declares the former name of an index. It is found by its definition, if no other index has an equal one. Another name is
//! also the way to build an index again after a method has changed that computes its keys or filters its rows. So an index that
//! depends on a method is never renamed.

use super::Renaming;
use crate::model::{
    error::Result,
    key::kept_text,
    reference::{MARK, Referrer},
    schema::{
        IndexRecord, Parts, TableRecord, TableSchema,
        catalog::{GLOBAL, VIA},
    },
};

impl Renaming<'_> {
    /// Renames the indexes and aggregates of a table that `declared` has by other names, if `accepts` returns true for the recorded
    /// index and the new name. A name of an index with a state is not free. In a shard, the records of referenced tables don't count
    /// the change.
    pub(crate) fn rename_indexes(
        &mut self,
        table: &'static str,
        declared: &TableRecord,
        is_shard: bool,
        accepts: &dyn Fn(&IndexRecord, &str) -> bool,
    ) -> Result<()> {
        let Some(Ok(mut file)) = self.record(table).map(TableRecord::read) else { return Ok(()) };
        let of = |index: &str| format!("{table}.{index}");
        let renamed = file.renamed_indexes(declared).into_iter();
        let renamed = renamed
            .filter(|(from, to)| accepts(from, to) && self.record(&of(to)).is_none())
            .map(|(from, to)| (from.name.clone(), to.to_owned()));
        let renamed: Vec<_> = renamed.collect();
        for (from, to) in &renamed {
            file.rename_index(from, to);
            if let Some(state) = self.records.remove(&of(from)) {
                self.records.insert(of(to), state);
            }
            self.refer_by(table, (from, to), is_shard)?;
            self.databases.push((of(from), of(to)));
        }
        if !renamed.is_empty() {
            file.changes = file.changes.wrapping_add(1).max(1);
            self.records.insert(table.to_owned(), file.encode(table)?);
        }
        self.indexes.extend(renamed);
        Ok(())
    }

    /// Changes the records of references of a table that use a renamed index.
    fn refer_by(&mut self, table: &str, (from, to): (&str, &str), is_shard: bool) -> Result<()> {
        let by = format!("{MARK}{table}.");
        let mut changed = Vec::new();
        for (name, record) in &mut self.records {
            let Some((of, part)) = name.split_once('.').filter(|(_, part)| part.starts_with(&by))
            else {
                continue;
            };
            // A record of a later release is an error of the opening of its table.
            let Ok(Some(referrer)) = Referrer::decode("", part, record) else { continue };
            if referrer.index == from {
                *record = Referrer { index: kept_text(to), ..referrer }.encode()?;
                changed.push(of.to_owned());
            }
        }
        changed.retain(|of| of != table && !is_shard);
        changed.iter().try_for_each(|of| self.change(of, |_| true))
    }
}

impl TableRecord {
    /// Whether the schema has an index or an aggregate that is not in this record.
    pub(super) fn lacks_index_of(&self, schema: &TableSchema, parts: Parts) -> bool {
        let mut declared = schema.indexes.iter().map(|index| index.name).chain(parts.names());
        declared.any(|name| self.indexes.iter().all(|own| own.name != name))
    }

    /// Returns the indexes and aggregates of this record that `declared` has by other names, with these names. Their definitions are
    /// equal. If several indexes without a former or a new name have this definition, none of them is renamed.
    pub(crate) fn renamed_indexes<'r>(
        &'r self,
        declared: &'r Self,
    ) -> Vec<(&'r IndexRecord, &'r str)> {
        let gone = self.without(declared);
        let new = declared.without(self);
        let only = |all: &[&'r IndexRecord], one: &IndexRecord| {
            let mut equal = all.iter().filter(|it| it.is_defined_as(one));
            equal.next().copied().filter(|_| equal.next().is_none())
        };
        let renamed = new.iter().filter_map(|to| {
            let from = only(&gone, to)?;
            only(&new, from).map(|_| (from, to.name.as_str()))
        });
        renamed.collect()
    }

    /// Returns the indexes and aggregates that can be renamed, and whose names are not in `other`.
    fn without<'r>(&'r self, other: &Self) -> Vec<&'r IndexRecord> {
        let is_without = |own: &&IndexRecord| {
            own.can_be_renamed() && other.indexes.iter().all(|it| it.name != own.name)
        };
        self.indexes.iter().filter(is_without).collect()
    }

    fn rename_index(&mut self, from: &str, to: &str) {
        for index in &mut self.indexes {
            if index.name == from && index.can_be_renamed() {
                to.clone_into(&mut index.name);
            }
            if index.is_reference() {
                let via = index.options.iter_mut().filter(|it| it.strip_prefix(VIA) == Some(from));
                via.for_each(|option| *option = format!("{VIA}{to}"));
            }
        }
    }
}

impl IndexRecord {
    /// Whether it is a global index of a shard.
    pub(crate) fn is_global(&self) -> bool {
        self.options.iter().any(|option| option == GLOBAL)
    }

    fn can_be_renamed(&self) -> bool {
        (self.is_index() || self.is_aggregate()) && self.is_made_of(|_| true)
    }

    /// Whether both have the same definition, except for the name.
    fn is_defined_as(&self, other: &Self) -> bool {
        let Self { name: _, key, strategy, options, layout } = self;
        *key == other.key
            && *strategy == other.strategy
            && *options == other.options
            && *layout == other.layout
    }
}
