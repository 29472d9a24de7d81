//! The image of a row whose type is not known: its keys and entries follow from its values, by the recorded schema of its table.
//!
//! They are those that the type gives, or there is an error: a field of a key must be in the list of the row, with a value whose key is
//! known, and the schema must be [computable](TableSchema::uncomputable). A field that the row lacks though its list has it is `None`
//! if its type is an `Option`: its `Serialize` has left it out. A field that the list lacks has the default of a later release, which
//! only the struct has.

use super::{EntryBuffer, Image};
use crate::model::{
    error::Result,
    key::{DecodeError, KeyBuf, KeyShape, PlainKey, kept_text, parameter_of},
    lists::Lists,
    row::{self, RowValue},
    schema::{Condition, IndexSchema, KeyField, KeyForm, Strategy, TableSchema},
};

const NULL: &RowValue = &RowValue::Null;

impl Image {
    /// Loads the row with these bytes, with its entries in all indexes or in the index `only`.
    ///
    /// # Errors
    ///
    /// The outer error means that the keys of the row are not known, or that the bytes are not a row.
    pub(crate) fn load_recorded(
        &mut self,
        schema: &'static TableSchema,
        lists: &Lists,
        bytes: &[u8],
        only: Option<usize>,
    ) -> Result<Result<()>, DecodeError> {
        let values = Values::read(schema, lists, bytes)?;
        self.set_row(bytes);
        self.primary_key.clear();
        for field in schema.primary_key {
            push(field, &values.key(field)?, &mut self.primary_key)?;
        }
        (self.is_renewed, self.has_unread) = (false, false);
        self.entries.clear();
        self.hashed.clear();
        self.hashed_ranges.clear();
        let is_wanted = |position| only.is_none_or(|only| only == position);
        for (index, declared) in schema.indexes.iter().enumerate() {
            if is_wanted(index) {
                self.entries.add_recorded(declared, &values)?;
                if let Strategy::Partial(included) = declared.strategy {
                    for name in included {
                        self.entries.include(std::slice::from_ref(name));
                    }
                    let copied = self.entries.copy_fields(lists, (bytes, schema.version), true);
                    match copied {
                        Ok(true) => {}
                        Ok(false) => return Err(lacking("an included field")),
                        Err(error) => {
                            return Ok(Err(schema.not_encoded(error, self.primary_key.as_bytes())));
                        }
                    }
                }
            }
            self.entries.finish_index();
            if is_wanted(index) && declared.unique {
                let start = self.hashed.len();
                push_hashed(declared, &values, &mut self.hashed)?;
                if self.hashed.len() > start {
                    self.hashed_ranges.push((index, start..self.hashed.len()));
                }
            }
        }
        Ok(Ok(()))
    }
}

/// Appends the encodings of the fields that an index hashes, from the row with these bytes.
pub(crate) fn hashed(
    schema: &'static TableSchema,
    lists: &Lists,
    bytes: &[u8],
    index: usize,
    out: &mut KeyBuf,
) -> Result<(), DecodeError> {
    let values = Values::read(schema, lists, bytes)?;
    schema.indexes.get(index).map_or(Ok(()), |declared| push_hashed(declared, &values, out))
}

fn push_hashed(
    declared: &IndexSchema,
    values: &Values,
    out: &mut KeyBuf,
) -> Result<(), DecodeError> {
    for field in declared.key {
        if let KeyShape::Hash(inner) = field.shape {
            inner.write(&values.key(field)?, out).map_err(|_| unknown(field))?;
        }
    }
    Ok(())
}

impl EntryBuffer {
    /// Adds the keys of a row in an index.
    fn add_recorded(&mut self, declared: &IndexSchema, values: &Values) -> Result<(), DecodeError> {
        let is_sparse = declared.conditions.iter().any(|it| matches!(it, Condition::Sparse));
        let each = declared.key.iter().find(|field| field.form == KeyForm::Each);
        let elements = each.map_or(Ok(vec![NULL]), |field| values.elements(field))?;
        for element in elements {
            let key = declared.key.iter().map(|field| match field.form {
                KeyForm::Each => element.key(&field.shape).ok_or_else(|| unknown(field)),
                _ => values.key(field),
            });
            let key = key.collect::<Result<Vec<_>, _>>()?;
            if is_sparse && key.contains(&PlainKey::Option(None)) {
                continue;
            }
            let out = self.key();
            for (field, value) in declared.key.iter().zip(&key) {
                push(field, value, out)?;
            }
        }
        Ok(())
    }
}

/// The values of a row, by the names of its fields.
struct Values {
    fields: Vec<(String, RowValue)>,
    /// The fields that the row lacks, though its list has them.
    absent: Vec<String>,
    schema: &'static TableSchema,
}

impl Values {
    fn read(
        schema: &'static TableSchema,
        lists: &Lists,
        bytes: &[u8],
    ) -> Result<Self, DecodeError> {
        if let Some(reason) = schema.uncomputable() {
            return Err(DecodeError::Value(kept_text(&reason)));
        }
        let body = row::body(bytes, schema.version)?;
        let (_, fields) = row::values(lists, bytes)?;
        let names = lists.fields(body)?.names();
        let is_absent = |name: &&str| !fields.iter().any(|(own, _)| own == *name);
        let absent = names.filter(is_absent).map(str::to_owned).collect();
        Ok(Self { fields, absent, schema })
    }

    /// Returns the value of a field.
    fn field(&self, name: &'static str) -> Result<&RowValue, DecodeError> {
        if let Some((_, value)) = self.fields.iter().find(|(own, _)| own == name) {
            return Ok(value);
        }
        let is_option = self
            .schema
            .declared(name)
            .is_some_and(|declared| parameter_of("Option", declared).is_some());
        let is_absent = is_option && self.absent.iter().any(|own| own == name);
        if is_absent { Ok(NULL) } else { Err(lacking(name)) }
    }

    /// Returns the value of a key's field.
    fn key(&self, field: &KeyField) -> Result<PlainKey, DecodeError> {
        let value = self.field(self.schema.name_in_key(field))?;
        value.key(&field.shape).ok_or_else(|| unknown(field))
    }

    /// Returns the elements of a collection.
    fn elements(&self, field: &KeyField) -> Result<Vec<&RowValue>, DecodeError> {
        let name = self.schema.name_in_key(field);
        let declared = self.schema.declared(name).unwrap_or_default();
        let is_option = parameter_of("Option", declared).is_some();
        match self.field(name)? {
            RowValue::Elements(elements) if !is_option => Ok(elements.iter().collect()),
            RowValue::Null if is_option => Ok(Vec::new()),
            RowValue::Some(value) if is_option => Ok(vec![value]),
            value if is_option => Ok(vec![value]),
            _ => Err(unknown(field)),
        }
    }
}

/// Appends the encoding of a field.
fn push(field: &KeyField, value: &PlainKey, out: &mut KeyBuf) -> Result<(), DecodeError> {
    let written = match field.shape {
        KeyShape::Hash(inner) => inner.write_hash(value, out),
        shape => shape.write(value, out),
    };
    written.map_err(|_| unknown(field))
}

#[cold]
fn unknown(field: &KeyField) -> DecodeError {
    no_key(field.name)
}

#[cold]
fn no_key(name: &str) -> DecodeError {
    DecodeError::Value(kept_text(&format!("the value of `{name}` is not one of its recorded type")))
}

#[cold]
fn lacking(name: &'static str) -> DecodeError {
    DecodeError::Missing(name)
}
