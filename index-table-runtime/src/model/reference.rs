//! References: fields with the primary key of a row in another table. This code is pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{
    entity::Entity,
    error::{Error, Result},
    key::kept_text,
    row_vtable::RowVtable,
    schema::{KeyField, TableSchema, names_databases},
    shard::Distribution,
};

/// One declared reference, from a referring row to a referenced row. A row can't refer to a missing row, and a
/// referenced row can't be deleted.
#[derive(Debug)]
pub struct ReferenceSchema {
    /// The names of its fields, joined by `_`.
    pub name: &'static str,
    /// The number of its fields.
    pub fields: usize,
    /// The table of the referenced rows.
    pub to: &'static TableSchema,
    /// The distribution of the referenced rows.
    pub distribution: Distribution,
    /// The position of the index that begins with the fields; `None` if they are the primary key, as in `part_of`.
    pub index: Option<usize>,
    /// Whether its only field is an `Option`. A row with `None` refers to no row.
    pub optional: bool,
    /// The repository of the referring rows, if they are deleted with the referenced row.
    pub cascade: Option<&'static str>,
    /// For a part: the table of its main row, which may be in another shard.
    pub main: Option<MainTable>,
}

/// The table of the main rows of parts.
#[derive(Clone, Copy)]
pub struct MainTable(pub(crate) fn() -> &'static RowVtable);

impl MainTable {
    /// Returns the table of these rows.
    #[must_use]
    pub const fn of<R: Entity>() -> Self {
        Self(|| &const { RowVtable::of::<R>() })
    }
}

impl fmt::Debug for MainTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MainTable").field(&self.0().schema.name).finish()
    }
}

impl ReferenceSchema {
    /// Whether this is the reference of a part to its main row.
    pub(crate) const fn is_to_main_row(&self) -> bool {
        self.main.is_some()
    }

    /// Returns the fields, which begin the primary key or an index of the table `schema`.
    pub(crate) fn key(&self, schema: &TableSchema) -> Option<&'static [KeyField]> {
        let key = match self.index {
            Some(index) => schema.indexes.get(index)?.key,
            None => schema.primary_key,
        };
        key.get(..self.fields)
    }

    /// Whether each row of the table `schema`, with this distribution, is in a shard that also has the referenced row.
    /// If each of the two tables is completely in one shard, both must be placed in the same shard.
    pub(crate) fn is_co_located(&self, schema: &TableSchema, own: Distribution) -> bool {
        match (own, self.distribution) {
            (_, Distribution::Reference) | (Distribution::Whole, Distribution::Whole) => true,
            (Distribution::ByKey(own), Distribution::ByKey(other)) => {
                let by = self.key(schema).and_then(|key| key.get(..own.fields));
                let names =
                    |key: &[KeyField]| key.iter().map(|field| field.name).collect::<Vec<_>>();
                own.map == other.map
                    && own.fields == other.fields
                    && own.hashed == other.hashed
                    && by.map(names) == schema.primary_key.get(..own.fields).map(names)
            }
            _ => false,
        }
    }

    /// Returns the value of `on_delete`.
    pub(crate) const fn on_delete(&self) -> &'static str {
        if self.cascade.is_some() { CASCADE } else { RESTRICT }
    }
}

/// A type of row, to which references can refer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a table",
    label = "put `#[derive(IndexTable)]` on it",
    note = "a reference, and `part_of`, name the struct of the rows of another table"
)]
pub trait Referenced {}

#[diagnostic::do_not_recommend]
impl<R: Entity> Referenced for R {}

/// Compiles if `R` is a type of row.
pub const fn assert_table<R: Referenced>() {}

/// A type that a reference can have, whose field is named `Field`. It refers to rows `R`, whose primary key is a `Key`.
#[diagnostic::on_unimplemented(
    message = "the primary key of `{R}` is `{Key}`, and `{Field}` is `{Self}`",
    label = "has the primary key `{Key}`",
    note = "a reference has the type of the referenced primary key, or an `Option` of it; with several fields, the \
            types are those of the fields of the primary key, in order"
)]
pub trait KeyOfReference<R, Key, Field> {}

#[diagnostic::do_not_recommend]
impl<R, Key, Field> KeyOfReference<R, Key, Field> for Key {}

/// Compiles if `R` has a primary key of type `K`.
pub const fn assert_reference<R: Entity, K: KeyOfReference<R, R::Key, Field>, Field>() {}

/// A row that is a part of a row of type `W`, with the same primary key: `#[table(part_of = W)]`.
#[diagnostic::on_unimplemented(
    message = "rows of `{Self}` are not parts of rows of `{W}`",
    note = "put `#[table(part_of = {W})]` on the struct `{Self}`"
)]
pub trait PartOf<W>: Entity {}

/// The first letter of the names of references: in the record of the referring table, and in the catalog's parts of the
/// referenced table. No index has such a name.
pub(crate) const MARK: char = '@';

/// The prefix of the first option of a reference, before the name of the table to which it refers.
pub(crate) const TO: &str = "to=";

/// The name of the reference of a part to its main row.
pub(crate) const PART_OF: &str = "part_of";

/// The first byte of the record of a referrer. No state of an index begins with it, so a release without references
/// refuses the table.
const TAG: u8 = 127;

/// The record of a reference in the catalog, as a part of the referenced table. With [`CASCADE`], the name of the
/// repository of the referring rows follows.
#[derive(Debug, Serialize, Deserialize)]
struct Record<'r> {
    tag: u8,
    /// Empty if the primary key begins with the fields.
    index: &'r str,
    optional: bool,
    on_delete: &'r str,
}

/// A value of `on_delete`: a referenced row can't be deleted.
pub(crate) const RESTRICT: &str = "restrict";

/// A value of `on_delete`: the referring rows are deleted with the referenced row.
pub(crate) const CASCADE: &str = "cascade";

/// A reference to a table, without the declaration of its own table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Referrer {
    /// The table of the referring rows.
    pub(crate) table: &'static str,
    /// The names of the fields, joined by `_`.
    pub(crate) reference: &'static str,
    /// The name of the index that begins with the fields; empty if the primary key does.
    pub(crate) index: &'static str,
    pub(crate) optional: bool,
    /// The repository of the referring rows, if they are deleted with the referenced row.
    pub(crate) cascade: Option<&'static str>,
}

impl Referrer {
    /// Returns the reference of a table.
    pub(crate) fn of(schema: &'static TableSchema, reference: &ReferenceSchema) -> Self {
        let index = reference.index.and_then(|index| schema.indexes.get(index));
        let index = index.map_or("", |index| index.name);
        let ReferenceSchema { name, optional, cascade, .. } = *reference;
        Self { table: schema.name, reference: name, index, optional, cascade }
    }

    /// Returns the name of its record, as a part of the referenced table.
    pub(crate) fn part(&self) -> String {
        part(self.table, self.reference)
    }

    /// Returns the name of the database in which the keys of the referring rows begin with the referenced primary key:
    /// an index, or the facts.
    pub(crate) fn database(&self) -> String {
        let dot = if self.index.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.table, self.index)
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let Self { table, index, optional, cascade, .. } = *self;
        let on_delete = if cascade.is_some() { CASCADE } else { RESTRICT };
        let record = Record { tag: TAG, index, optional, on_delete };
        let encoded = match cascade {
            None => postcard::to_stdvec(&record),
            Some(repository) => postcard::to_stdvec(&(record, repository)),
        };
        encoded.map_err(|error| Error::Codec { table, reason: error.to_string() })
    }

    /// Reads the record of a part of the table `to`; `None` if the part is not a reference.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`] if a later release wrote the record.
    pub(crate) fn decode(to: &'static str, part: &str, record: &[u8]) -> Result<Option<Self>> {
        // Without a dot, it is a reference of this table that an older release has retired as an index.
        let name = part.strip_prefix(MARK);
        let name = name.filter(|name| name.contains('.') && !names_databases(part));
        let Some(name) = name else { return Ok(None) };
        match (name.split_once('.'), read(record)) {
            (Some((table, reference)), Some((Record { index, optional, .. }, cascade))) => {
                Ok(Some(Self {
                    table: kept_text(table),
                    reference: kept_text(reference),
                    index: kept_text(index),
                    optional,
                    cascade: cascade.map(kept_text),
                }))
            }
            _ => Err(Error::SchemaMismatch {
                table: to,
                difference: format!("the reference `{name}` to it can't be read"),
                way_out: "open it with the release of index-table that wrote it, or a later one",
            }),
        }
    }

    /// Whether the record of this reference is still `record`. Otherwise, the reference has been declared differently
    /// since then.
    pub(crate) fn is_recorded_as(&self, record: &[u8]) -> bool {
        read(record).is_some_and(|(record, cascade)| {
            record.index == self.index
                && record.optional == self.optional
                && cascade == self.cascade
        })
    }

    /// Returns the prefix of the keys of the rows that refer to the row with this primary key.
    pub(crate) fn prefix(&self, primary_key: &[u8]) -> Vec<u8> {
        let some: &[u8] = if self.optional { &[1] } else { &[] };
        [some, primary_key].concat()
    }
}

/// Reads the record of a reference, and the name of the repository; `None` if a later release wrote it.
fn read(record: &[u8]) -> Option<(Record<'_>, Option<&str>)> {
    let (record, rest) = postcard::take_from_bytes::<Record<'_>>(record).ok()?;
    match record.on_delete {
        _ if record.tag != TAG => None,
        RESTRICT => Some((record, None)),
        CASCADE => Some((record, Some(postcard::from_bytes(rest).ok()?))),
        _ => None,
    }
}

/// Returns the name of the record of a reference, as a part of the referenced table.
pub(crate) fn part(table: &str, reference: &str) -> String {
    format!("{MARK}{table}.{reference}")
}
