//! The schema of a table from its record in the catalog, for code that has no struct of its rows.

use super::{AggregateSchema, SumSchema};
use super::{
    Condition, FieldSchema, IndexRecord, IndexSchema, KeyField, KeyFieldRecord, KeyForm, Strategy,
    StrategyRecord, TableRecord, TableSchema,
    catalog::{EVENTUAL, FILTER, FORMAT, GLOBAL},
};
use crate::model::key::{kept_list, kept_text, shape_of};

impl TableRecord {
    /// Returns a record with these parts.
    pub(crate) const fn new(
        version: u32,
        fields: Vec<(String, String)>,
        primary_key: Vec<KeyFieldRecord>,
        indexes: Vec<IndexRecord>,
    ) -> Self {
        Self { format: FORMAT, version, fields, primary_key, indexes, changes: 0 }
    }

    /// Sets the engine's layout of each index of `schema`, the schema of this record.
    pub(crate) fn set_layouts(
        &mut self,
        schema: &TableSchema,
        layout: impl Fn(&IndexSchema) -> &'static str,
    ) {
        let indexes = self.indexes.iter_mut().filter(|index| index.is_index());
        for (record, index) in indexes.zip(schema.indexes) {
            layout(index).clone_into(&mut record.layout);
        }
    }

    /// Returns the schema of this record.
    ///
    /// The schema lives as long as the process, so a caller keeps it for other calls with the same record.
    ///
    /// # Errors
    ///
    /// The reason: a later release wrote the record, and this release doesn't support a type or an option in it.
    pub(crate) fn schema(&self, table: &str) -> Result<TableSchema, String> {
        let fields = self.fields.iter().map(|(name, declared)| {
            // The types are compared only with the types of other structs.
            FieldSchema::new::<()>(kept_text(name), kept_text(declared))
        });
        let fields = fields.collect();
        let indexes = self.indexes.iter().filter(|index| index.is_index());
        let indexes = indexes.map(index).collect::<Result<_, _>>()?;
        Ok(TableSchema {
            name: kept_text(table),
            was: &[],
            version: self.version,
            fields: kept_list(fields),
            previous: None,
            changed: &[],
            primary_key: key(&self.primary_key)?,
            indexes: kept_list(indexes),
            aggregates: self.aggregates()?,
        })
    }

    /// Returns the aggregates in the record, without extremes. # Errors As of [`schema`](Self::schema).
    pub(crate) fn aggregates(&self) -> Result<&'static [AggregateSchema], String> {
        let aggregates = self.indexes.iter().filter(|index| index.is_aggregate()).map(|index| {
            let sums = match &index.strategy {
                StrategyRecord::Partial(sums) => sums.as_slice(),
                StrategyRecord::Normalized | StrategyRecord::Full => &[],
            };
            Ok::<_, String>(AggregateSchema {
                name: kept_text(&index.name),
                key: key(&index.key)?,
                sums: kept_list(SumSchema::named(sums, kept_text)),
                extremes: &[],
                eventual: index.is_eventual(),
            })
        });
        aggregates.collect::<Result<_, _>>().map(kept_list)
    }

    /// Returns the positions of the global indexes.
    pub(crate) fn global(&self) -> &'static [usize] {
        let indexes = self.indexes.iter().enumerate().filter(|(_, index)| index.is_global());
        kept_list(indexes.map(|(position, _)| position).collect())
    }
}

fn key(fields: &[KeyFieldRecord]) -> Result<&'static [KeyField], String> {
    let fields = fields.iter().map(|KeyFieldRecord { name, shape, form }| {
        let unknown =
            |what, name| format!("this release doesn't support the {what} `{name}` of a key");
        let form = match form.as_str() {
            "field" => KeyForm::Field,
            "each" => KeyForm::Each,
            "desc" => KeyForm::Desc,
            "computed" => KeyForm::Computed,
            "hash" => KeyForm::Hash,
            "each-computed" => KeyForm::EachComputed,
            "hash-computed" => KeyForm::HashComputed,
            form => return Err(unknown("form", form)),
        };
        let shape = shape_of(shape).ok_or_else(|| unknown("type", shape.as_str()))?;
        Ok(KeyField { name: kept_text(name), shape, form })
    });
    fields.collect::<Result<_, _>>().map(kept_list)
}

fn index(record: &IndexRecord) -> Result<IndexSchema, String> {
    let (mut unique, mut eventual, mut conditions) = (false, false, Vec::new());
    for option in &record.options {
        match option.as_str() {
            "unique" => unique = true,
            "sparse" => conditions.push(Condition::Sparse),
            EVENTUAL => eventual = true,
            GLOBAL => {}
            option => match option.strip_prefix(FILTER) {
                Some(method) => conditions.push(Condition::Filter(kept_text(method))),
                None => {
                    return Err(format!(
                        "this release doesn't support the option `{option}` of the index `{}`",
                        record.name
                    ));
                }
            },
        }
    }
    Ok(IndexSchema {
        name: kept_text(&record.name),
        key: key(&record.key)?,
        strategy: match &record.strategy {
            StrategyRecord::Normalized => Strategy::Normalized,
            StrategyRecord::Partial(included) => Strategy::Partial(kept_list(
                included.iter().map(|field| kept_text(field)).collect(),
            )),
            StrategyRecord::Full => Strategy::Full,
        },
        unique,
        eventual,
        conditions: kept_list(conditions),
        findings: &[],
    })
}
