//! The tables of a schema with their fields and references, as pictures show them.

use index_table::report::{SchemaIndex, SchemaTable, StoreSchema};

/// A table of a picture.
pub(crate) struct Entity<'s> {
    pub(crate) table: &'s SchemaTable,
    pub(crate) fields: Vec<EntityField<'s>>,
    pub(crate) references: Vec<Reference<'s>>,
}

/// A field of an [`Entity`].
pub(crate) struct EntityField<'s> {
    pub(crate) name: &'s str,
    /// Its type.
    pub(crate) declared: &'s str,
    pub(crate) is_primary: bool,
    pub(crate) is_foreign: bool,
    /// The indexes with this field.
    pub(crate) indexes: Vec<&'s str>,
}

/// A reference of an [`Entity`].
pub(crate) struct Reference<'s> {
    pub(crate) name: &'s str,
    /// The name of the other table.
    pub(crate) to: &'s str,
}

/// Returns the tables in their order.
pub(crate) fn entities(schema: &StoreSchema) -> Vec<Entity<'_>> {
    schema.tables.iter().map(entity).collect()
}

fn entity(table: &SchemaTable) -> Entity<'_> {
    let (references, indexes): (Vec<_>, Vec<_>) =
        table.indexes.iter().partition(|index| index.strategy == "reference");
    let has = |index: &SchemaIndex, name: &str| index.key.iter().any(|key| key.name == name);
    let fields = table.rows.fields.iter().map(|own| EntityField {
        name: &own.name,
        declared: &own.declared,
        is_primary: table.primary_key.iter().any(|key| key.name == own.name),
        is_foreign: references.iter().any(|index| has(index, &own.name)),
        indexes: indexes
            .iter()
            .filter(|index| index.strategy != "aggregate" && has(index, &own.name))
            .map(|index| index.name.as_str())
            .collect(),
    });
    let references = references.iter().map(|reference| Reference {
        name: reference.name.trim_start_matches('@'),
        to: reference
            .options
            .iter()
            .find_map(|option| option.strip_prefix("to="))
            .unwrap_or_default(),
    });
    let (fields, references) = (fields.collect(), references.collect());
    Entity { table, fields, references }
}
