//! The tables of a program or of a store as a document, which can be written to a file and read again.

use std::any::TypeId;

use serde::{Deserialize, Serialize};

use super::CatalogKey;
use crate::{
    model::{
        entity::Entity,
        key::{kept_list, kept_text},
        row_vtable::RowVtable,
        schema::{
            AGGREGATE, CHANGES, FieldSchema, FieldType, IndexRecord, IndexSchema, KeyFieldRecord,
            PreviousRow, REFERENCE, RowSchema, StrategyRecord, TableRecord, TableSchema,
        },
        shard::{Distribution, ShardKey},
    },
    upkeep::opening,
};

/// The number of the form of the document.
const FORM: u32 = 1;

/// The tables of a program, as it declares them, or of a store, as it records them. From [`schema`].
///
/// It is a value for any format of serde and not a text, so that a program that writes it chooses the format, and the default build
/// needs no JSON. The command `index-table schema STORE --check FILE` reads it as JSON, and says what opening the tables would do to
/// a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoreSchema {
    /// The number of this form, 1.
    pub form: u32,
    /// The tables: of a program in the order in which they are given, of a store by name.
    pub tables: Vec<SchemaTable>,
}

/// A table; see [`StoreSchema`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SchemaTable {
    /// Its name.
    pub table: String,
    /// Its former names, the last first. A store does not record them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub was: Vec<String>,
    /// The distribution of its rows among shards.
    #[serde(default)]
    pub distribution: SchemaDistribution,
    /// Whether a row keeps fields that the struct does not know.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keeps_unknown: bool,
    /// The current version of its rows.
    #[serde(flatten)]
    pub rows: SchemaVersion,
    /// The older versions, the last first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub previous: Vec<SchemaVersion>,
    /// The fields of its primary key.
    pub primary_key: Vec<CatalogKey>,
    /// Its indexes, aggregates and references, and its change stream, in this order.
    #[serde(default)]
    pub indexes: Vec<SchemaIndex>,
}

/// A version of the rows of a table; see [`StoreSchema`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SchemaVersion {
    /// Its number.
    pub version: u32,
    /// The fields in order.
    pub fields: Vec<SchemaField>,
    /// The fields of the struct that the conversion from the preceding version changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

/// A field of rows; see [`StoreSchema`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SchemaField {
    /// Its name in rows.
    pub name: String,
    /// Its type, as spelled in the struct.
    #[serde(rename = "type")]
    pub declared: String,
    /// Its name in the struct, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The other names by which it is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Whether there is a value for a row that lacks it. `None`: a store does not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
    /// Whether a function reads it, by `#[serde(with = …)]`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub function: bool,
    /// Whether rows have the fields of its type in its place, by `#[serde(flatten)]`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub flatten: bool,
    /// The number of its type, if the table has older versions: equal types have equal numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_number: Option<u32>,
}

/// An index, an aggregate, a reference or a change stream; see [`StoreSchema`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SchemaIndex {
    /// Its name; that of a reference begins with `@`.
    pub name: String,
    /// The fields of its key; of an aggregate, those of a group.
    pub key: Vec<CatalogKey>,
    /// `"normalized"`, `"partial"`, `"full"`, `"aggregate"`, `"reference"` or `"changes"`.
    pub strategy: String,
    /// The included fields of a partial index; the summed fields of an aggregate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// The options in the form of [`CatalogIndex::options`](super::CatalogIndex::options).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The distribution of the rows of a table among shards; see [`StoreSchema`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SchemaDistribution {
    /// All rows are in one shard.
    #[default]
    Whole,
    /// Every shard has a copy of all rows.
    Reference,
    /// The shard key of a row determines its shard.
    ByKey {
        /// The number of leading fields of the primary key.
        fields: usize,
        /// Whether rows are distributed by a hash of these fields.
        hashed: bool,
        /// The name of the shard map.
        map: String,
        /// The names of the global indexes.
        global: Vec<String>,
    },
}

/// Tables that a program declares: a struct with `#[derive(IndexTable)]`, or a tuple of up to twelve. An element of a tuple can be a
/// tuple, so there can be any number of tables.
pub trait Declarations: sealed::Declarations {}

mod sealed {
    /// The implementation of [`Declarations`](super::Declarations).
    pub trait Declarations {
        /// Appends the tables, in order.
        fn tables(tables: &mut Vec<super::SchemaTable>);
    }
}

impl<R: Entity> Declarations for R {}

impl<R: Entity> sealed::Declarations for R {
    fn tables(tables: &mut Vec<SchemaTable>) {
        tables.push(SchemaTable::declared(&const { RowVtable::of::<R>() }));
    }
}

macro_rules! tuples {
    ($($($row:ident)+;)*) => {$(
        impl<$($row: Declarations),+> Declarations for ($($row,)+) {}

        impl<$($row: Declarations),+> sealed::Declarations for ($($row,)+) {
            fn tables(tables: &mut Vec<SchemaTable>) {
                $(<$row as sealed::Declarations>::tables(tables);)+
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
}

/// Returns the tables that a program declares, without a store.
///
/// A test or a release script writes it to a file, as JSON for the command `index-table schema STORE --check FILE`. That command says
/// what a release with these declarations does to the data in a store.
///
/// Cost: a few allocations for each table.
///
/// # Examples
///
/// ```
/// use index_table::IndexTable;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[index(town)]
/// struct Customer {
///     #[primary_key]
///     id: u64,
///     town: String,
/// }
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// struct Order {
///     #[primary_key]
///     number: u64,
/// }
///
/// let declared = index_table::schema::<(Customer, Order)>();
/// assert_eq!(declared.tables[0].indexes[0].name, "town");
/// let file = serde_json::to_string_pretty(&declared).unwrap();
/// assert!(file.contains(r#""table": "order""#));
/// ```
#[must_use]
pub fn schema<T: Declarations>() -> StoreSchema {
    let mut tables = Vec::new();
    T::tables(&mut tables);
    StoreSchema { form: FORM, tables }
}

/// A declaration from a document, in the form in which a program has it.
pub(super) struct Declaration {
    pub(super) schema: &'static TableSchema,
    /// Its record in the catalog of a data file.
    pub(super) record: TableRecord,
    pub(super) distribution: Distribution,
}

impl StoreSchema {
    pub(super) const fn of_store(tables: Vec<SchemaTable>) -> Self {
        Self { form: FORM, tables }
    }

    /// Fails with the reason if the document has another form.
    pub(super) fn check_form(&self) -> Result<(), String> {
        if self.form == FORM {
            return Ok(());
        }
        Err(format!("the schema has form {}, and this release reads form {FORM}", self.form))
    }
}

impl SchemaTable {
    fn declared(rows: &RowVtable) -> Self {
        let schema = rows.schema;
        let record = opening::declaration(rows, &[], |_| "");
        let mut types = schema.previous.is_some().then(Vec::new);
        let mut own = SchemaVersion::declared(schema.version, schema.fields, &mut types);
        own.changed = schema.changed.iter().map(|&field| field.to_owned()).collect();
        let (mut previous, mut older) = (Vec::new(), schema.previous);
        while let Some(PreviousRow { schema }) = older {
            let mut version = SchemaVersion::declared(schema.version, schema.fields, &mut types);
            version.changed = schema.changed.iter().map(|&field| field.to_owned()).collect();
            previous.push(version);
            older = schema.previous;
        }
        Self {
            table: schema.name.to_owned(),
            was: schema.was.iter().map(|&was| was.to_owned()).collect(),
            distribution: SchemaDistribution::declared(rows.distribution, schema),
            keeps_unknown: rows.keeps_unknown(),
            rows: own,
            previous,
            primary_key: record.primary_key.into_iter().map(CatalogKey::of).collect(),
            indexes: record.indexes.into_iter().map(SchemaIndex::of).collect(),
        }
    }

    /// Returns a table of a store from its record and those of older versions of rows.
    pub(super) fn recorded(
        table: &str,
        record: TableRecord,
        older: Vec<(u32, Vec<(String, String)>)>,
        distribution: SchemaDistribution,
    ) -> Self {
        let mut previous: Vec<_> = older
            .into_iter()
            .map(|(number, fields)| SchemaVersion::recorded(number, fields))
            .collect();
        previous.sort_unstable_by_key(|older| std::cmp::Reverse(older.version));
        Self {
            table: table.to_owned(),
            was: Vec::new(),
            distribution,
            keeps_unknown: false,
            rows: SchemaVersion::recorded(record.version, record.fields),
            previous,
            primary_key: record.primary_key.into_iter().map(CatalogKey::of).collect(),
            indexes: record.indexes.into_iter().map(SchemaIndex::of).collect(),
        }
    }

    /// Returns the declaration. It lives as long as the process.
    ///
    /// # Errors
    ///
    /// The reason: a later release wrote the document, or it was changed.
    pub(super) fn declaration(
        &self,
        layout: impl Fn(&TableSchema, &IndexSchema) -> &'static str,
    ) -> Result<Declaration, String> {
        let keys = |key: &[CatalogKey]| key.iter().map(CatalogKey::record).collect::<Vec<_>>();
        let indexes = self.indexes.iter().map(|index| index.record(keys(&index.key)));
        let indexes = indexes.collect::<Result<Vec<_>, String>>()?;
        let fields = self.rows.fields.iter();
        let fields = fields.map(|field| (field.name.clone(), field.declared.clone())).collect();
        let mut record =
            TableRecord::new(self.rows.version, fields, keys(&self.primary_key), indexes);
        let mut previous = None;
        for older in self.previous.iter().rev() {
            let schema: &RowSchema = Box::leak(Box::new(RowSchema {
                version: older.version,
                fields: older.schema(),
                previous,
                changed: texts(&older.changed),
            }));
            previous = Some(PreviousRow { schema });
        }
        let schema: &'static TableSchema = Box::leak(Box::new(TableSchema {
            was: texts(&self.was),
            fields: self.rows.schema(),
            previous,
            changed: texts(&self.rows.changed),
            ..record.schema(&self.table)?
        }));
        record.set_layouts(schema, |index| layout(schema, index));
        let distribution = self.distribution.of(schema);
        Ok(Declaration { schema, record, distribution })
    }
}

impl SchemaVersion {
    fn declared(version: u32, fields: &[FieldSchema], types: &mut Option<Vec<FieldType>>) -> Self {
        let fields = fields.iter().map(|field| {
            let type_number = types.as_mut().map(|types| {
                let known = types.iter().position(|ty| *ty == field.ty);
                let at = known.unwrap_or_else(|| {
                    types.push(field.ty);
                    types.len() - 1
                });
                u32::try_from(at).unwrap_or(u32::MAX)
            });
            SchemaField {
                name: field.stored.to_owned(),
                declared: field.declared.to_owned(),
                field: (field.name != field.stored).then(|| field.name.to_owned()),
                aliases: field.aliases.iter().map(|&alias| alias.to_owned()).collect(),
                default: Some(field.has_default),
                function: field.has_function,
                flatten: field.is_flat,
                type_number,
            }
        });
        Self { version, fields: fields.collect(), changed: Vec::new() }
    }

    fn recorded(version: u32, fields: Vec<(String, String)>) -> Self {
        let fields = fields.into_iter().map(|(name, declared)| SchemaField {
            name,
            declared,
            field: None,
            aliases: Vec::new(),
            default: None,
            function: false,
            flatten: false,
            type_number: None,
        });
        Self { version, fields: fields.collect(), changed: Vec::new() }
    }

    fn schema(&self) -> &'static [FieldSchema] {
        let fields = self.fields.iter().map(|field| FieldSchema {
            name: kept_text(field.field.as_ref().unwrap_or(&field.name)),
            stored: kept_text(&field.name),
            declared: kept_text(&field.declared),
            aliases: texts(&field.aliases),
            has_default: field.default.unwrap_or(true),
            has_function: field.function,
            is_flat: field.flatten,
            ty: field
                .type_number
                .map_or_else(|| FieldType::Own(TypeId::of::<()>()), FieldType::Numbered),
        });
        kept_list(fields.collect())
    }
}

impl SchemaIndex {
    fn of(index: IndexRecord) -> Self {
        let IndexRecord { name, key, strategy, options, layout } = index;
        let (strategy, include) = match strategy {
            StrategyRecord::Normalized if layout == REFERENCE => ("reference", Vec::new()),
            StrategyRecord::Normalized => ("normalized", Vec::new()),
            StrategyRecord::Partial(sums) if layout == AGGREGATE => ("aggregate", sums),
            StrategyRecord::Partial(include) => ("partial", include),
            StrategyRecord::Full if layout == CHANGES => ("changes", Vec::new()),
            StrategyRecord::Full => ("full", Vec::new()),
        };
        let key = key.into_iter().map(CatalogKey::of).collect();
        // A shard records which indexes are global; the distribution has their names.
        let options = options.into_iter().filter(|option| option != IndexRecord::GLOBAL).collect();
        Self { name, key, strategy: strategy.to_owned(), include, options }
    }

    fn record(&self, key: Vec<KeyFieldRecord>) -> Result<IndexRecord, String> {
        let include = || StrategyRecord::Partial(self.include.clone());
        let (strategy, layout) = match self.strategy.as_str() {
            "normalized" => (StrategyRecord::Normalized, ""),
            "partial" => (include(), ""),
            "full" => (StrategyRecord::Full, ""),
            "aggregate" => (include(), AGGREGATE),
            "reference" => (StrategyRecord::Normalized, REFERENCE),
            "changes" => (StrategyRecord::Full, CHANGES),
            other => {
                return Err(format!(
                    "this release doesn't support the strategy `{other}` of the index `{}`",
                    self.name
                ));
            }
        };
        let (name, options) = (self.name.clone(), self.options.clone());
        Ok(IndexRecord { name, key, strategy, options, layout: layout.to_owned() })
    }
}

impl SchemaDistribution {
    fn declared(distribution: Distribution, schema: &TableSchema) -> Self {
        match distribution {
            Distribution::Whole => Self::Whole,
            Distribution::Reference => Self::Reference,
            Distribution::ByKey(ShardKey { fields, hashed, map, global }) => {
                let global = global.iter().filter_map(|at| schema.name_at(*at)).map(str::to_owned);
                Self::ByKey { fields, hashed, map: map.to_owned(), global: global.collect() }
            }
        }
    }

    fn of(&self, schema: &TableSchema) -> Distribution {
        match self {
            Self::Whole => Distribution::Whole,
            Self::Reference => Distribution::Reference,
            Self::ByKey { fields, hashed, map, global } => {
                let global = global.iter().filter_map(|index| schema.position_of(index));
                Distribution::ByKey(ShardKey {
                    fields: *fields,
                    hashed: *hashed,
                    map: kept_text(map),
                    global: kept_list(global.collect()),
                })
            }
        }
    }
}

impl CatalogKey {
    fn record(&self) -> KeyFieldRecord {
        let Self { name, shape, form } = self.clone();
        KeyFieldRecord { name, shape, form }
    }
}

fn texts(texts: &[String]) -> &'static [&'static str] {
    kept_list(texts.iter().map(|text| kept_text(text)).collect())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
