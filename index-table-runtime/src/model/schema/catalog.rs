//! The catalog: the declaration of each table at the time when it was last opened for writing.
//!
//! An index that is not in a table's record is ignored, and emptied before it is reused. Forms and options
//! are names and not flags, so that later releases can add others.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    AggregateSchema, Condition, IndexSchema, KeptDeclaration, KeyField, KeyForm, Strategy,
    TableSchema, field_of,
    renamed::{WAY_OUT, renamed_to},
    versions::{VersionRecord, names_and_types},
};
use crate::model::{
    error::{Error, Result},
    key::fits,
    reference::{MARK, ReferenceSchema, TO},
    stream::{ChangeStream, STREAM},
};

/// The format number of the file. It is the first field of each record, which has the same form in all
/// formats.
pub const FORMAT: u32 = 2;

/// The option of an eventual index.
pub(super) const EVENTUAL: &str = "eventual";

/// The option of a global index in a shard. A plain store has no such option, because its entries are all in one place.
pub(super) const GLOBAL: &str = "global";

/// The prefix of the option of a filtered index, before the name of the method.
pub(super) const FILTER: &str = "filter=";

/// The layout of an aggregate. An older release without support for it retires the aggregate.
pub(crate) const AGGREGATE: &str = "aggregate";

/// The layout of a change stream. An older release without support for it retires the stream.
pub(crate) const CHANGES: &str = "changes";
/// The layout of a reference.
pub(crate) const REFERENCE: &str = "reference";

/// The prefix of the option of a reference, before the name of its index.
pub(super) const VIA: &str = "index=";

/// The forms of a field in a key.
const FIELD_FORMS: [&str; 4] = ["field", "each", "desc", "hash"];

/// The record of one table. Its value in the catalog is postcard's encoding of this struct.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TableRecord {
    pub(crate) format: u32,
    pub(crate) version: u32,
    /// The name in rows and the declared type of each field.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) primary_key: Vec<KeyFieldRecord>,
    pub(crate) indexes: Vec<IndexRecord>,
    /// The number of times that the record was replaced. A process with an open table compares this number to
    /// detect that the declaration has changed, even if it has changed back: indexes that were readable may
    /// be under construction. Encoded after the struct, unless it is 0.
    #[serde(skip)]
    pub(crate) changes: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyFieldRecord {
    /// The name of the field in rows, or of the method.
    pub(crate) name: String,
    /// The name of its [`KeyShape`](crate::model::key::KeyShape).
    pub(crate) shape: String,
    /// Its form: `field`, `each`, `desc`, `computed` or `hash`.
    pub(crate) form: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexRecord {
    pub(crate) name: String,
    pub(crate) key: Vec<KeyFieldRecord>,
    pub(crate) strategy: StrategyRecord,
    /// `unique`, `sparse`, `filter=method`, [`GLOBAL`] and [`EVENTUAL`], in this order, if they are given.
    pub(crate) options: Vec<String>,
    /// The engine's layout of the entries.
    pub(crate) layout: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum StrategyRecord {
    Normalized,
    Partial(Vec<String>),
    Full,
}

/// The result of the comparison of the declaration with the file.
#[derive(Debug, PartialEq)]
pub(crate) enum Comparison {
    /// The record is equal to the declaration.
    Same,
    /// The rows fit, and the indexes at these positions have to be built, because they are new or changed.
    /// Without such indexes, only the record has to be written: an index is no longer declared, or an enum
    /// has new variants.
    Build(Vec<usize>),
}

impl Comparison {
    /// Adds indexes to be built.
    pub(crate) fn with(self, indexes: Vec<usize>) -> Self {
        match self {
            Self::Same if indexes.is_empty() => Self::Same,
            Self::Same => Self::Build(indexes),
            Self::Build(own) => {
                let all: BTreeSet<usize> = own.into_iter().chain(indexes).collect();
                Self::Build(all.into_iter().collect())
            }
        }
    }
}

impl TableRecord {
    /// Returns the record of `schema`. `layout` returns the engine's layout of an index.
    pub(crate) fn of(schema: &TableSchema, layout: impl Fn(&IndexSchema) -> &'static str) -> Self {
        Self {
            format: FORMAT,
            version: schema.version,
            fields: names_and_types(schema.fields),
            primary_key: key_fields(schema, schema.primary_key),
            indexes: schema
                .indexes
                .iter()
                .map(|index| IndexRecord {
                    name: index.name.to_owned(),
                    key: key_fields(schema, index.key),
                    strategy: match index.strategy {
                        Strategy::Normalized => StrategyRecord::Normalized,
                        Strategy::Partial(fields) => StrategyRecord::Partial(
                            fields.iter().map(|name| schema.stored_name(name).to_owned()).collect(),
                        ),
                        Strategy::Full => StrategyRecord::Full,
                    },
                    options: options(index),
                    layout: layout(index).to_owned(),
                })
                .collect(),
            changes: 0,
        }
    }

    /// Adds the table's aggregates after the indexes, as partial indexes that include the summed fields.
    pub(crate) fn with_aggregates(
        mut self,
        schema: &TableSchema,
        aggregates: &[AggregateSchema],
    ) -> Self {
        self.indexes.extend(aggregates.iter().map(|aggregate| {
            IndexRecord {
                name: aggregate.name.to_owned(),
                key: key_fields(schema, aggregate.key),
                strategy: StrategyRecord::Partial(
                    aggregate
                        .sums
                        .iter()
                        .flat_map(|sum| sum.names(schema.stored_name(sum.name)))
                        .collect(),
                ),
                options: aggregate.eventual.then(|| EVENTUAL.to_owned()).into_iter().collect(),
                layout: AGGREGATE.to_owned(),
            }
        }));
        self
    }

    /// Adds the table's change stream after the aggregates and the references, as a full index without a key.
    pub(crate) fn with_changes(mut self, changes: Option<ChangeStream>) -> Self {
        self.indexes.extend(changes.map(|_| IndexRecord {
            name: STREAM.to_owned(),
            key: Vec::new(),
            strategy: StrategyRecord::Full,
            options: Vec::new(),
            layout: CHANGES.to_owned(),
        }));
        self
    }

    /// Adds the table's references after the aggregates.
    pub(crate) fn with_references(
        mut self,
        schema: &TableSchema,
        references: &[ReferenceSchema],
    ) -> Self {
        self.indexes.extend(references.iter().filter_map(|reference| {
            let index = reference.index.and_then(|index| schema.indexes.get(index));
            let to = format!("{TO}{}", reference.to.name);
            let via = format!("{VIA}{}", index.map_or("", |index| index.name));
            let on_delete = format!("on_delete={}", reference.on_delete());
            Some(IndexRecord {
                name: format!("{MARK}{}", reference.name),
                key: key_fields(schema, reference.key(schema)?),
                strategy: StrategyRecord::Normalized,
                options: vec![to, via, on_delete],
                layout: REFERENCE.to_owned(),
            })
        }));
        self
    }

    /// Whether the table has a change stream.
    pub(crate) fn has_changes(&self) -> bool {
        self.indexes.iter().any(|index| index.layout == CHANGES)
    }

    /// Whether the table has an eventual index.
    pub(crate) fn has_eventual(&self) -> bool {
        self.indexes.iter().any(IndexRecord::is_eventual)
    }

    /// Adds the references in another record.
    pub(crate) fn with_references_of(mut self, other: &Self) -> Self {
        self.indexes.extend(other.indexes.iter().filter(|it| it.is_reference()).cloned());
        self
    }

    /// Returns the names of the references, each with the table to which it refers.
    pub(crate) fn references(&self) -> Vec<(String, String)> {
        let references = self.indexes.iter().filter(|index| index.is_reference());
        let names = references.filter_map(|index| {
            let to = index.options.first()?.strip_prefix(TO)?;
            Some((index.name.strip_prefix(MARK)?.to_owned(), to.to_owned()))
        });
        names.collect()
    }

    /// Whether the rows in the file have the version and the fields of this schema.
    pub(crate) fn has_rows_of(&self, schema: &TableSchema) -> bool {
        self.version == schema.version && self.fields == names_and_types(schema.fields)
    }

    /// Whether the rows in the file have the primary key of this schema.
    pub(crate) fn has_primary_key_of(&self, schema: &TableSchema) -> bool {
        all_fit(&self.primary_key, &key_fields(schema, schema.primary_key))
    }

    /// Returns the record in a shard: the indexes at these positions are global.
    pub(crate) fn with_global(mut self, global: &[usize]) -> Self {
        for index in global {
            if let Some(index) = self.indexes.get_mut(*index) {
                index.set_global();
            }
        }
        self
    }

    /// Returns the record of a store with one data file as that of its first shard: the indexes of `schema` at these positions are
    /// global.
    pub(crate) fn grown(mut self, schema: &TableSchema, global: &[usize]) -> Self {
        for index in global.iter().filter_map(|index| schema.indexes.get(*index)) {
            if let Some(own) = self.indexes.iter_mut().find(|own| own.name == index.name) {
                own.set_global();
            }
        }
        self
    }

    pub(crate) fn encode(&self, table: &'static str) -> Result<Vec<u8>> {
        let failed = |error: postcard::Error| Error::Codec { table, reason: error.to_string() };
        let record = postcard::to_stdvec(self).map_err(failed)?;
        match self.changes {
            0 => Ok(record),
            changes => postcard::to_extend(&changes, record).map_err(failed),
        }
    }

    pub(crate) fn decode(table: &'static str, bytes: &[u8]) -> Result<Self> {
        let way_out = if renamed_to(bytes).is_some() {
            WAY_OUT
        } else if matches!(postcard::take_from_bytes::<u32>(bytes), Ok((..FORMAT, _))) {
            "write its rows to a dump with the release of index-table that wrote it, by the command `dump`, and \
             read them into a new store by `load --no-changes`"
        } else {
            "open it with the release of index-table that wrote it, or a later one"
        };
        Self::read(bytes).map_err(|difference| Error::SchemaMismatch { table, difference, way_out })
    }

    /// Decodes a record. # Errors The reason why it can't be decoded.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        const UNREADABLE: &str = "its catalog record can't be read";
        if let Some(to) = renamed_to(bytes) {
            return Err(format!("it was renamed to `{to}`"));
        }
        // The format comes first, so that a record of a later format is recognized.
        match postcard::take_from_bytes::<u32>(bytes) {
            Ok((FORMAT, _)) => {}
            Ok((format, _)) => {
                return Err(format!(
                    "the file has format {format}, this release reads format {FORMAT}"
                ));
            }
            Err(_) => return Err(UNREADABLE.to_owned()),
        }
        let (record, changes): (Self, _) =
            postcard::take_from_bytes(bytes).map_err(|_| UNREADABLE.to_owned())?;
        if changes.is_empty() {
            return Ok(record);
        }
        match postcard::take_from_bytes(changes) {
            Ok((changes @ 1.., [])) => Ok(Self { changes, ..record }),
            _ => Err(UNREADABLE.to_owned()),
        }
    }

    /// Returns the records of the indexes that `declared` no longer has.
    pub(crate) fn retired<'a>(
        &'a self,
        declared: &'a Self,
    ) -> impl Iterator<Item = KeptDeclaration> + 'a {
        let gone = |index: &&IndexRecord| {
            !index.is_reference() && declared.indexes.iter().all(|it| it.name != index.name)
        };
        let version = self.version;
        self.indexes
            .iter()
            .filter(gone)
            .map(move |index| KeptDeclaration { version, index: index.clone() })
    }

    /// Compares the record in the file (`self`) with the declaration. Rows have the names of their fields, so the fields can be
    /// others. An index is built again if its entries may be others: it has a computed field or a filter and any field is
    /// another, or it has a field that is new or of another type.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`] if the rows in the file can't be read with the declaration.
    pub(crate) fn compare(&self, declared: &Self, schema: &TableSchema) -> Result<Comparison> {
        let table = schema.name;
        let mismatch =
            |difference, way_out| Err(Error::SchemaMismatch { table, difference, way_out });
        if !all_fit(&self.primary_key, &declared.primary_key) {
            return mismatch(
                format!(
                    "its primary key is ({}) in the file and ({}) in the code",
                    show_fields(&self.primary_key),
                    show_fields(&declared.primary_key)
                ),
                "a primary key can't change; if only the name of a field has changed, give it its \
                 former name in rows by `#[serde(rename = …)]`, with an `alias` if rows have another; otherwise, declare the struct under \
                 another `#[table(name = …)]` and copy the rows",
            );
        }
        if self.version > declared.version {
            return mismatch(
                format!(
                    "its rows have version {} in the file and {} in the code",
                    self.version, declared.version
                ),
                "open it with the release of the program that declares the version of the file, or \
                 a later one",
            );
        }
        if self.version < declared.version {
            schema.check_older(self.version)?;
        }
        if self == declared {
            return Ok(Comparison::Same);
        }
        let stays = |index: &IndexRecord| {
            self.keeps_entries(index, declared, schema)
                && self.indexes.iter().any(|stored| stored.fits(index))
        };
        let build = declared.indexes.iter().enumerate().filter(|(_, index)| !stays(index));
        Ok(Comparison::Build(build.map(|(position, _)| position).collect()))
    }

    /// Whether rows that were written with this record have the same entries in an index of `declared`.
    fn keeps_entries(&self, index: &IndexRecord, declared: &Self, schema: &TableSchema) -> bool {
        if self.version == declared.version {
            return self.has_same_fields(index, declared);
        }
        index.is_made_of(|name| schema.keeps(self.version, name, &self.fields))
    }

    /// Returns the positions of the indexes whose entries can be others because the struct of an older version has other fields than
    /// recorded.
    pub(crate) fn changed_by(
        &self,
        changed: &[(u32, VersionRecord)],
        schema: &TableSchema,
    ) -> Vec<usize> {
        let stays = |index: &IndexRecord, (version, record): &(u32, VersionRecord)| {
            index.is_made_of(|name| schema.keeps(*version, name, &record.fields))
        };
        let indexes = self.indexes.iter().enumerate();
        let others = indexes.filter(|(_, index)| !changed.iter().all(|older| stays(index, older)));
        others.map(|(position, _)| position).collect()
    }

    /// Whether the fields on which an index of `declared` depends are the same in both records of one version.
    pub(super) fn has_same_fields(&self, index: &IndexRecord, declared: &Self) -> bool {
        self.has_fields_of(declared)
            || index.is_made_of(|name| self.field(name) == declared.field(name))
    }

    /// Returns the declared type of a field.
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, declared)| declared.as_str())
    }

    /// Whether the rows have the same fields, in any order.
    fn has_fields_of(&self, other: &Self) -> bool {
        self.fields.len() == other.fields.len()
            && self.fields.iter().all(|field| other.fields.contains(field))
    }
}

impl TableRecord {
    /// Whether this record has the index at this position of `code`, for rows of the same version.
    pub(crate) fn has_index_of(&self, code: &Self, index: usize) -> bool {
        code.indexes.get(index).is_some_and(|index| {
            self.version == code.version
                && self.has_same_fields(index, code)
                && self.indexes.iter().any(|stored| stored.fits(index))
        })
    }

    /// Returns the version of `self` and its record, if `declared` has a later version. The catalog keeps
    /// this record, because rows may still have the older version.
    pub(crate) fn outdated_by(&self, declared: &Self) -> Option<(u32, VersionRecord)> {
        (self.version < declared.version)
            .then(|| (self.version, VersionRecord { fields: self.fields.clone() }))
    }
}

impl IndexRecord {
    /// The option of a global index in a shard.
    pub(crate) const GLOBAL: &'static str = GLOBAL;

    /// Adds the option of a global index, unless the index has it.
    fn set_global(&mut self) {
        if self.is_global() {
            return;
        }
        let is_eventual = self.options.last().is_some_and(|option| option == EVENTUAL);
        let at = self.options.len() - usize::from(is_eventual);
        self.options.insert(at, GLOBAL.to_owned());
    }

    /// Whether it is an index, and neither an aggregate nor the change stream.
    pub(crate) fn is_index(&self) -> bool {
        !self.is_aggregate() && !self.is_reference() && self.layout != CHANGES
    }

    /// Whether it is not an index, but an aggregate.
    pub(crate) fn is_aggregate(&self) -> bool {
        self.layout == AGGREGATE
    }

    /// Whether it is not an index, but a reference.
    pub(crate) fn is_reference(&self) -> bool {
        self.layout == REFERENCE
    }

    /// Whether the index is eventual.
    pub(crate) fn is_eventual(&self) -> bool {
        self.options.last().is_some_and(|option| option == EVENTUAL)
    }

    /// Whether the entries can depend on a field.
    pub(super) fn depends_on(&self, field: &str) -> bool {
        !self.is_made_of(|name| name != field)
    }

    /// Whether the entries depend only on fields for which `is_such` is true, and not on a method. The rows
    /// in a full index do not matter, because each has its version.
    pub(super) fn is_made_of(&self, is_such: impl Fn(&str) -> bool) -> bool {
        let Self { name: _, key, strategy, options, layout: _ } = self;
        let is_sum = self.is_aggregate();
        let included: &[String] = match strategy {
            StrategyRecord::Normalized | StrategyRecord::Full => &[],
            StrategyRecord::Partial(included) => included,
        };
        key.iter().all(|field| FIELD_FORMS.contains(&&*field.form) && is_such(&field.name))
            && included.iter().all(|name| is_such(if is_sum { field_of(name) } else { name }))
            && !options.iter().any(|option| option.starts_with(FILTER))
    }

    /// Whether the entries in the file are valid for the declared index. An index can become eventual, but
    /// not the reverse, because an eventual index may lack entries.
    pub(super) fn fits(&self, code: &Self) -> bool {
        let Self { name, key, strategy, options, layout } = self;
        *name == code.name
            && all_fit(key, &code.key)
            && *strategy == code.strategy
            && (*options == code.options || becomes_eventual(options, &code.options))
            && *layout == code.layout
    }
}

fn becomes_eventual(file: &[String], code: &[String]) -> bool {
    code.split_last().is_some_and(|(last, others)| last == EVENTUAL && others == file)
}

impl KeyFieldRecord {
    fn fits(&self, code: &Self) -> bool {
        self.name == code.name && self.form == code.form && fits(&self.shape, &code.shape)
    }
}

pub(super) fn all_fit(file: &[KeyFieldRecord], code: &[KeyFieldRecord]) -> bool {
    file.len() == code.len() && file.iter().zip(code).all(|(file, code)| file.fits(code))
}

fn key_fields(schema: &TableSchema, fields: &[KeyField]) -> Vec<KeyFieldRecord> {
    fields
        .iter()
        .map(|field| KeyFieldRecord {
            name: schema.name_in_key(field).to_owned(),
            shape: field.shape.to_string(),
            form: match field.form {
                KeyForm::Field => "field",
                KeyForm::Each => "each",
                KeyForm::Desc => "desc",
                KeyForm::Computed => "computed",
                KeyForm::Hash => "hash",
                KeyForm::EachComputed => "each-computed",
                KeyForm::HashComputed => "hash-computed",
            }
            .to_owned(),
        })
        .collect()
}

fn options(index: &IndexSchema) -> Vec<String> {
    let unique = index.unique.then(|| "unique".to_owned());
    let conditions = index.conditions.iter().map(|condition| match condition {
        Condition::Sparse => "sparse".to_owned(),
        Condition::Filter(method) => format!("{FILTER}{method}"),
    });
    let eventual = index.eventual.then(|| EVENTUAL.to_owned());
    unique.into_iter().chain(conditions).chain(eventual).collect()
}

fn show_fields(fields: &[KeyFieldRecord]) -> String {
    let fields: Vec<_> =
        fields.iter().map(|field| format!("{}: {}", field.name, field.shape)).collect();
    fields.join(", ")
}
