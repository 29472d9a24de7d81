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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        error::Result,
        schema::{IndexSchema, KeyField, Strategy},
    };

    const fn index(name: &'static str, key: &'static [KeyField]) -> IndexSchema {
        IndexSchema {
            name,
            key,
            strategy: Strategy::Normalized,
            unique: false,
            eventual: false,
            conditions: &[],
            findings: &[],
        }
    }

    const TOWN: &[KeyField] = &[KeyField::new::<String>("town")];
    const CODE: &[KeyField] = &[KeyField::new::<u32>("code")];

    fn record(indexes: &'static [IndexSchema], layout: &'static str) -> TableRecord {
        let schema = TableSchema { indexes, ..TableSchema::of_records("people", &[]) };
        TableRecord::of(&schema, |_| layout)
    }

    fn renamed(before: &[IndexSchema], after: &[IndexSchema]) -> Vec<(String, String)> {
        let kept = |indexes: &[IndexSchema]| {
            let indexes = indexes
                .iter()
                .map(|it| IndexSchema { strategy: it.strategy, ..index(it.name, it.key) });
            record(Box::leak(indexes.collect()), "blocks")
        };
        let (before, after) = (kept(before), kept(after));
        let pairs = before.renamed_indexes(&after).into_iter();
        pairs.map(|(from, to)| (from.name.clone(), to.to_owned())).collect()
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn an_index_is_renamed_only_if_no_other_has_its_definition() {
        let [one, two, three] = ["one", "two", "three"].map(|name| index(name, TOWN));
        let (code, codes) = (index("code", CODE), index("codes", CODE));
        assert_eq!(renamed(&[one], &[two]), [pair("one", "two")]);
        let [one, two] = ["one", "two"].map(|name| index(name, TOWN));
        assert_eq!(
            renamed(&[one, code], &[two, codes]),
            [pair("one", "two"), pair("code", "codes")]
        );
        // Two recorded indexes fit, or two declared ones.
        let [one, two] = ["one", "two"].map(|name| index(name, TOWN));
        assert_eq!(renamed(&[one, two], &[three]), []);
        let [one, two, three] = ["one", "two", "three"].map(|name| index(name, TOWN));
        assert_eq!(renamed(&[one], &[two, three]), []);
        // An index that keeps its name does not count.
        let [one, two] = ["one", "two"].map(|name| index(name, TOWN));
        let [stays, three] = ["one", "three"].map(|name| index(name, TOWN));
        assert_eq!(renamed(&[one, two], &[stays, three]), [pair("two", "three")]);
    }

    #[test]
    fn each_part_of_a_definition_counts() {
        let file = record(const { &[index("town", TOWN)] }, "blocks");
        let other = |change: &dyn Fn(&mut IndexRecord)| {
            let mut declared = record(const { &[index("city", TOWN)] }, "blocks");
            declared.indexes.iter_mut().for_each(change);
            file.renamed_indexes(&declared).len()
        };
        assert_eq!(other(&|_| {}), 1);
        assert_eq!(other(&|it| it.key[0].name = "city".to_owned()), 0);
        assert_eq!(other(&|it| it.key[0].shape = "bytes".to_owned()), 0);
        assert_eq!(other(&|it| it.key[0].form = "hash".to_owned()), 0);
        assert_eq!(other(&|it| it.strategy = crate::model::schema::StrategyRecord::Full), 0);
        for option in ["unique", "sparse", "eventual", "global"] {
            assert_eq!(other(&|it| it.options = vec![option.to_owned()]), 0, "{option}");
        }
        assert_eq!(other(&|it| it.layout = "entries".to_owned()), 0);
    }

    /// Another name is the way to build such an index again.
    #[test]
    fn an_index_on_a_method_is_never_renamed() {
        let methods = |name: &str, change: &dyn Fn(&mut IndexRecord)| {
            let mut record = record(const { &[index("town", TOWN)] }, "blocks");
            for index in &mut record.indexes {
                name.clone_into(&mut index.name);
                change(index);
            }
            record
        };
        for form in ["computed", "each-computed", "hash-computed"] {
            let change = |it: &mut IndexRecord| it.key[0].form = form.to_owned();
            let (file, declared) = (methods("town", &change), methods("city", &change));
            assert!(file.renamed_indexes(&declared).is_empty(), "{form}");
        }
        let change = |it: &mut IndexRecord| it.options = vec!["filter=is_open".to_owned()];
        assert!(methods("town", &change).renamed_indexes(&methods("city", &change)).is_empty());
    }

    #[test]
    fn all_records_with_the_name_of_an_index_get_its_new_name() -> Result<()> {
        static PEOPLE: [IndexSchema; 1] = [index("town", TOWN)];
        static CITIES: [IndexSchema; 1] = [index("city", TOWN)];
        let by = Referrer {
            table: "people",
            reference: "town",
            index: "town",
            optional: false,
            cascade: None,
        };
        let put = |name: &str, record: &[u8]| (name.to_owned(), record.to_vec());
        let towns = record(&[], "").encode("towns")?;
        let before = [
            put("people", &record(&PEOPLE, "blocks").encode("people")?),
            put("people.town", &[3]),
            put("people.towns", &[4]),
            put("towns", &towns),
            put("towns.@people.town", &by.encode()?),
        ];
        let rename = |before: &[(String, Vec<u8>)], is_shard| {
            let mut renaming = Renaming::of(before);
            let declared = record(&CITIES, "blocks");
            renaming.rename_indexes("people", &declared, is_shard, &|_, _| true)?;
            let records = renaming.records().map(|(name, record)| put(name, record));
            Ok::<_, crate::Error>((
                records.collect::<Vec<_>>(),
                renaming.databases,
                renaming.indexes,
            ))
        };
        let (records, databases, indexes) = rename(&before, false)?;
        let names: Vec<_> = records.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["people", "people.city", "people.towns", "towns", "towns.@people.town"]);
        assert_eq!(databases, [pair("people.town", "people.city")]);
        assert_eq!(indexes, [pair("town", "city")]);
        let changes = |at: usize| TableRecord::read(&records[at].1).map(|record| record.changes);
        assert_eq!((changes(0), changes(3)), (Ok(1), Ok(1)));
        assert_eq!(records[4].1, Referrer { index: "city", ..by }.encode()?);
        // In a shard, the referenced table does not count the change.
        assert_eq!(rename(&before, true)?.0[3], put("towns", &towns));
        // The new name belongs to a retired index.
        let mut taken = before.to_vec();
        taken.push(put("people.city", &[2]));
        assert!(rename(&taken, false)?.2.is_empty());
        Ok(())
    }
}
