//! Writing rows without their type.
//!
//! There is one path of writes: a row is loaded into an [`Image`](crate::model::maintain::Image), with its entries in all indexes, and
//! `write/` compares images. Here, too. A row in JSON becomes the bytes that its type would have, and the image is that of these bytes:
//!
//! | the repository is | image of a row |
//! |---|---|
//! | in use in this process | by the struct, as for each stored row that is replaced or deleted |
//! | not in use | by the recorded schema: [`load_recorded`](crate::model::maintain::Image::load_recorded) |
//!
//! The bytes follow from the list of the table that was recorded last, which has names and kinds: each value must be of the kind of its
//! place, so nothing new is recorded. They are written by the writer of all rows. So a typed read accepts the row, unless the type of
//! a value accepts less than its kind: an integer inside of a field can be too large for its type, and a text can be none of its dates.
//! For a field whose recorded type is an integer of the standard library, the range is checked.
//!
//! Without the struct, the entries are exactly those of the struct because of what is refused:
//!
//! - A key with a field whose recorded type is not known: see [`uncomputable`](crate::model::schema::TableSchema::uncomputable).
//!   `computed`, `filter` and aggregates need the struct, too.
//! - A reference, since its checks need the other table as the struct declares it. A row can't be deleted if other tables refer to
//!   rows of its table, unless the engine knows these references (on a server).
//! - A stored row of an older version, or of a list without a field of a key: it has a default that only the struct has.
//! - The newest list, if it may be that of an earlier release: its rows would get the version of this one. See [`check_list`].
//! - A table of a reference, since its copies in other shards are completed by the struct only.
//!
//! A function of serde is not recorded (`with`, or `default` with a path). It could give a field another key than its recorded type.
//! So before the first write, the entries of up to [`TRIED`] stored rows at each end are compared with the indexes, and a table
//! without such rows is refused. This does not see a function that gives the sampled rows the keys of their types, such as a
//! `deserialize_with` that changes only some values. Sums can't be compared with rows, so aggregates are refused.

use std::{
    borrow::Borrow,
    cell::RefCell,
    sync::{Arc, atomic::Ordering},
};

use index_table_rows::{RecordedForm, RecordedStruct, RowList};
use serde_json::{Map, Value};

use super::{JsonTable, Keys};
use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        error::{Error, Result},
        exact::{Guided, Refused, key_of},
        key::{KeyShape, kept_text, shape_of_type},
        maintain::Image,
        row,
        schema::{Source, TableRecord, TableSchema, lacking},
        shard::Distribution,
    },
    store::{OpenTable, WriteTxn},
    table::{UntypedTable, untyped::Writing},
    write::{
        queue::lag_of,
        rows::{LoadRow, MadeLists},
    },
};

/// The number of stored rows at each end of the table whose entries are compared before the first write.
const TRIED: u64 = 16;

impl JsonTable {
    /// Adds a row in the [exact form](JsonTable), with all fields of the list that was recorded last. A `#[revision]` is not
    /// recorded: unless the repository is in use in this process, it is stored as it is given. Give 1 for a new row.
    ///
    /// Integers are checked against the recorded types of their fields, also in an `Option`. Inside of other types, such as the
    /// elements of a `Vec`, only integers of 8 and 128 bits are: a program can't read a row with a greater number than its type has.
    ///
    /// Cost: that of [`Table::insert`](crate::Table::insert), with the creation of the row from JSON in the place of its struct. Before
    /// the first write of an opened table, up to 32 stored rows are read.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidJson`]: the row lacks a field, or has an unknown one, or a value is not of the recorded kind.
    /// [`Error::NotOffered`], with the index or the field: without the struct, not all entries can be computed, or no row of the
    /// declared version is found. If the repository of the table is in use in this process, all tables can be written.
    /// [`Error::SchemaMismatch`]: since this value was returned by [`Store::table`](crate::Store::table) without the struct, a
    /// repository of the table was opened, or the store has grown; call `table` again. The errors of
    /// [`Table::insert`](crate::Table::insert).
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{IndexTable, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # use serde_json::json;
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # #[table(name = "people")]
    /// # #[index(town)]
    /// # struct Person { #[primary_key] id: u32, town: String }
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// # let people = PersonRepository::open(&store)?;
    /// # store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Oslo".into() }))?;
    /// # drop(people);
    /// let table = store.table("people")?;
    /// store.transaction(|txn| {
    ///     table.insert(txn, &json!({ "id": 2, "town": "Rome" }))?;
    ///     table.put(txn, &json!({ "id": 1, "town": "Rome" }))?;
    ///     table.delete(txn, json!(2)).map(|deleted| assert!(deleted))
    /// })?;
    /// let txn = store.read()?;
    /// assert_eq!(table.index("town")?.find(&txn, [json!("Rome")])?.count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn insert(&self, txn: &mut WriteTxn<'_>, row: &Value) -> Result<()> {
        let table = self.to_write(txn)?;
        let written = table.write_row(txn, Writing::Insert, &JsonRow { table: &table, json: row });
        explained(&table, written)
    }

    /// Adds a row, or replaces the row with the same primary key. If the table has a row with the same bytes, it is not written.
    ///
    /// A `#[revision]` is not recorded: unless the repository is in use in this process, the number is stored as it is given, and
    /// not compared with the stored row. Give the next number, so that another client that has read the row gets
    /// [`Error::Conflict`] instead of replacing this change.
    ///
    /// Cost: that of [`Table::put`](crate::Table::put), as for [`insert`](JsonTable::insert).
    ///
    /// # Errors
    ///
    /// Those of [`insert`](JsonTable::insert), except for a row with the same primary key. [`Error::NotOffered`], too: the stored row
    /// is of an earlier release, and has not all fields of the keys. [`Error::Corrupt`]: the stored row is damaged.
    pub fn put(&self, txn: &mut WriteTxn<'_>, row: &Value) -> Result<()> {
        let table = self.to_write(txn)?;
        let written = table.write_row(txn, Writing::Put, &JsonRow { table: &table, json: row });
        explained(&table, written)
    }

    /// Deletes the row with this primary key: the value of its field, or an array with the values of several fields. Returns false if
    /// there is none.
    ///
    /// Cost: that of [`Table::delete_key`](crate::Table::delete_key), as for [`insert`](JsonTable::insert).
    ///
    /// # Errors
    ///
    /// Those of [`put`](JsonTable::put) about the stored row, and [`Error::Referenced`].
    pub fn delete(&self, txn: &mut WriteTxn<'_>, key: impl Borrow<Value>) -> Result<bool> {
        let key = Keys::of(self.schema(), Source::Facts).whole(key.borrow())?;
        self.delete_encoded(txn, key.as_bytes())
    }

    /// Deletes the row with this encoded primary key.
    ///
    /// # Errors
    ///
    /// Those of [`delete`](JsonTable::delete).
    #[doc(hidden)]
    pub fn delete_encoded(&self, txn: &mut WriteTxn<'_>, primary_key: &[u8]) -> Result<bool> {
        let table = self.to_write(txn)?;
        if !table.rows.has_rows() && !table.has_referrers(txn.reader(&table)?)? {
            let reason =
                "other tables refer to its rows, so deleting one needs the structs of both";
            return Err(not_offered(table.schema, reason));
        }
        explained(&table, table.delete(txn, primary_key))
    }

    /// Returns the table for tools.
    #[doc(hidden)]
    #[must_use]
    pub fn untyped(&self) -> UntypedTable {
        UntypedTable::of(Arc::clone(&self.open))
    }

    /// Returns the table to write: that of its repository, if this is in use, since its watchers get the changes.
    fn to_write(&self, txn: &WriteTxn<'_>) -> Result<Arc<OpenTable>> {
        self.open.check_store(txn.store())?;
        let table = txn.table(self.name()).unwrap_or_else(|| Arc::clone(&self.open));
        if !table.rows.has_rows() && !txn.is_current(&table) {
            return Err(Error::SchemaMismatch {
                table: table.schema.name,
                difference: "since this table was opened without its struct, a repository of it was opened, or the shards of the store \
                             have changed"
                    .to_owned(),
                way_out: "open it again: call `store.table`",
            });
        }
        if !table.rows.has_rows() && table.tried.load(Ordering::Relaxed) == 0 {
            check(&table, txn)?;
            // The lists are looked at for each row.
            table.tried.store(1, Ordering::Relaxed);
        }
        Ok(table)
    }
}

/// Checks that the entries of the table can be computed without its struct.
fn check(table: &OpenTable, txn: &WriteTxn<'_>) -> Result<()> {
    let schema = table.schema;
    let record = TableRecord::decode(schema.name, &table.record)?;
    if let Some((name, to)) = record.references().first() {
        return Err(not_offered(
            schema,
            &format!("its reference `{name}` to `{to}` needs the struct"),
        ));
    }
    if let Some(reason) = schema.uncomputable() {
        return Err(not_offered(schema, &reason));
    }
    if matches!(table.rows.distribution, Distribution::Reference) {
        let reason = "each shard has a copy of its rows, which its struct completes";
        return Err(not_offered(schema, reason));
    }
    let lists = table.rows.lists.catalog().row_lists();
    let Some(newest) = lists.last() else { return Err(not_offered(schema, NO_LIST)) };
    let (newest_at, mut has_newest, mut compared) = (lists.len() - 1, false, 0_u64);
    let mut found = vec![(0_u64, 0_u64); schema.indexes.len()];
    let mut image = Image::to_read();
    for reverse in [false, true] {
        let query =
            Query { reverse, limit: Some(TRIED), ..Query::new(Source::Facts, KeyRange::ALL) };
        let reader = txn.reader(table)?;
        let mut rows = reader.cursor(query)?;
        let mut tried = 0;
        while tried < TRIED && rows.advance()? {
            tried += 1;
            let entry = rows.entry();
            has_newest |= row::list(entry.data).is_ok_and(|(version, list)| {
                version == schema.version && usize::try_from(list) == Ok(newest_at)
            });
            // A row of an earlier release is refused when it is replaced.
            let Ok(Ok(())) = table.rows.load(&mut image, entry.data) else { continue };
            compared += 1;
            if image.primary_key() != entry.primary_key {
                return Err(not_offered(schema, &other_keys("its primary key")));
            }
            for ((index, declared), (keys, entries)) in
                schema.indexes.iter().enumerate().zip(&mut found)
            {
                if table.state(reader, index)?.is_some() {
                    continue;
                }
                for key in image.keys(index) {
                    *keys += 1;
                    if reader.entry(index, key, entry.primary_key)?.is_some() {
                        *entries += 1;
                    } else if !declared.eventual {
                        let index = format!("its index `{}`", declared.name);
                        return Err(not_offered(schema, &other_keys(&index)));
                    }
                }
            }
        }
    }
    check_eventual(table, txn, &found)?;
    if compared == 0 {
        return Err(not_offered(
            schema,
            "it has no row of this release at its ends with which its keys can be compared",
        ));
    }
    if has_newest { Ok(()) } else { check_list(schema, newest) }
}

/// Checks the eventual indexes, each with the number of keys and entries of the sampled rows. An entry can only be missing while
/// its queue has messages.
fn check_eventual(table: &OpenTable, txn: &WriteTxn<'_>, found: &[(u64, u64)]) -> Result<()> {
    let schema = table.schema;
    let counted = schema.indexes.iter().zip(found).filter(|(index, _)| index.eventual);
    for (index, (keys, entries)) in counted {
        if keys == entries {
            continue;
        }
        let name = index.name;
        if lag_of(schema, txn.reader(table)?)?.messages == 0 {
            return Err(not_offered(schema, &other_keys(&format!("its index `{name}`"))));
        }
        if *entries == 0 {
            let reason = format!("the queue of index `{name}` has the entries of all sampled rows");
            return Err(not_offered(schema, &reason));
        }
    }
    Ok(())
}

/// Checks that the newest list is one of the declared version, though no sampled row has both. A row of version 1 has no earlier
/// version, so then it is enough that the list has the declared fields.
fn check_list(schema: &TableSchema, newest: &RowList) -> Result<()> {
    let reason = if schema.version > 1 {
        format!("no row at its ends has version {} and the newest list", schema.version)
    } else if let Some(reason) = lacking(schema.fields, newest) {
        format!("no row of this release is recorded: the newest list has {reason}")
    } else {
        return Ok(());
    };
    let reason = format!("{reason}; write one with the struct first, or run `upgrade`");
    Err(not_offered(schema, &reason))
}

/// Why a table can't be written for whose rows no list of fields is recorded.
const NO_LIST: &str = "no list of the fields of its rows is recorded, because it never had a row, or rows are not written as structs \
                       (`flatten`, `transparent`)";

fn other_keys(of: &str) -> String {
    format!(
        "{of} has other keys than those of the recorded types: a function of serde may write its fields, or it is damaged \
         (`verify` says so)"
    )
}

/// A table has few reasons, and their texts are kept.
#[cold]
fn not_offered(schema: &TableSchema, reason: &str) -> Error {
    Error::NotOffered {
        what: kept_text(&format!(
            "writing table `{}` without its struct: {reason}; write it with the program that declares it, or while its repository is \
             open in this process",
            schema.name
        )),
    }
}

/// Returns the error of a stored row whose keys are not known without the struct.
fn explained<T>(table: &OpenTable, outcome: Result<T>) -> Result<T> {
    outcome.map_err(|error| match &error {
        Error::Corrupt { reason, index: None, .. }
            if !table.rows.has_rows() && is_of_another_release(reason) =>
        {
            let reason = format!(
                "the keys of the stored row are not known ({reason}); if an earlier release has written it, run `upgrade` with the \
                 program that declares the table"
            );
            not_offered(table.schema, &reason)
        }
        _ => error,
    })
}

/// Whether this is the reason of an intact row that only its struct reads: the texts of
/// [`DecodeError`](crate::model::key::DecodeError). Others are those of damage.
fn is_of_another_release(reason: &str) -> bool {
    reason.starts_with("the row has no field `")
        || reason.starts_with("the value of `") && reason.ends_with("of its recorded type")
        || reason.starts_with("the row has version ") && reason.contains("the chain of `previous`")
}

/// A row to be written, as JSON.
struct JsonRow<'a> {
    table: &'a OpenTable,
    json: &'a Value,
}

impl JsonRow<'_> {
    fn invalid(&self, field: &str, reason: String) -> Error {
        let table = self.table.schema.name;
        let place = if field.is_empty() {
            format!("table `{table}`")
        } else {
            format!("table `{table}`, field `{field}`")
        };
        Error::InvalidJson { place, reason }
    }

    /// Returns the bytes of the row, in the list that was recorded last.
    fn encode(&self) -> Result<Vec<u8>> {
        let schema = self.table.schema;
        let catalog = self.table.rows.lists.catalog();
        let kind = catalog.row_kind(kept_text).ok_or_else(|| not_offered(schema, NO_LIST))?;
        if let (RecordedForm::Struct(fields), Value::Object(object)) = (kind.form(), self.json) {
            self.check_ranges(fields, object)?;
        }
        let takes_any = |field: &str| {
            let mut words =
                schema.declared(field).unwrap_or_default().split(|it: char| !it.is_alphanumeric());
            words.any(|word| word == "Value")
        };
        let refused = RefCell::new(None);
        let (json, takes_any) = (self.json, &takes_any);
        let row = Guided { kind, json, takes_any, place: None, refused: &refused };
        let mut bytes = Vec::new();
        row::begin(schema.version, &mut bytes);
        let encoded = catalog.encode(&row, &mut bytes);
        if let Some(Refused { field, reason }) = refused.take() {
            return Err(self.invalid(&field, reason));
        }
        encoded.map_err(|error| {
            let reason = if error.is_unrecorded() {
                "its kind is not recorded; write one with the struct first".to_owned()
            } else {
                error.to_string()
            };
            self.invalid(&error.field(), reason)
        })?;
        Ok(bytes)
    }

    /// Checks the fields whose types are integers, since all integers of 16 to 64 bits have the same kind.
    fn check_ranges(&self, fields: RecordedStruct<'_>, object: &Map<String, Value>) -> Result<()> {
        for field in fields.fields() {
            let (mut form, Some(json)) = (field.kind.form(), object.get(field.name)) else {
                continue;
            };
            while let RecordedForm::Option(inner) = form {
                form = inner.form();
            }
            let is_integer = matches!(form, RecordedForm::Unsigned | RecordedForm::Signed);
            let declared = self.table.schema.declared(field.name).and_then(shape_of_type);
            let Some(shape) = declared.filter(|_| is_integer) else { continue };
            if matches!(innermost(shape), KeyShape::Unsigned(_) | KeyShape::Signed(_)) {
                key_of(&shape, json).map_err(|reason| self.invalid(field.name, reason))?;
            }
        }
        Ok(())
    }
}

const fn innermost(mut shape: KeyShape) -> KeyShape {
    while let KeyShape::Option(inner) = shape {
        shape = *inner;
    }
    shape
}

impl LoadRow for JsonRow<'_> {
    fn load_row(&self, new: &mut Image) -> Result<MadeLists> {
        let rows = &self.table.rows;
        let bytes = self.encode()?;
        let loaded = rows.load(new, &bytes);
        loaded
            .map_err(|error| self.invalid("", format!("the row can't be read back: {error}")))??;
        rows.check_fields(new)?;
        Ok(MadeLists::No)
    }

    fn is_tested(&self, _: MadeLists) -> bool {
        false
    }

    fn load_entries(&self, new: &mut Image, _: &mut Image, _: MadeLists) -> Result<()> {
        let schema = self.table.schema;
        new.check_lengths(schema)?;
        new.check_groups(schema, schema.aggregates)
    }

    fn load(&self, new: &mut Image, tried: &mut Image) -> Result<()> {
        let made = self.load_row(new)?;
        self.load_entries(new, tried, made)
    }
}

#[cfg(test)]
mod tests {
    use super::is_of_another_release;
    use crate::model::key::DecodeError;

    #[test]
    fn damage_is_not_taken_for_a_row_of_another_release() {
        for error in [
            DecodeError::Missing("stars"),
            DecodeError::Value("the value of `stars` is not one of its recorded type"),
            DecodeError::Version { found: 1, expected: 2 },
        ] {
            assert!(is_of_another_release(&error.to_string()), "{error}");
        }
        for error in [
            DecodeError::Short,
            DecodeError::Long,
            DecodeError::Value("the row contains another primary key"),
            DecodeError::Version { found: 3, expected: 2 },
        ] {
            assert!(!is_of_another_release(&error.to_string()), "{error}");
        }
    }
}
