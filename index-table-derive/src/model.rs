//! The input of code generation: a table, after all rules are checked and all defaults are resolved.

use std::rc::Rc;

use proc_macro2::{Span, TokenStream};
use syn::{ExprPath, Ident, Member, Path, Type, Visibility};

use crate::attr::keys::Lint;
use crate::types::DataType;

/// A struct that is stored as a table.
#[expect(clippy::struct_excessive_bools, reason = "each of them is a property of its own")]
pub(crate) struct Table {
    /// The path of the crate for generated code.
    pub(crate) krate: Path,
    pub(crate) visibility: Visibility,
    /// The struct itself.
    pub(crate) row: Ident,
    /// Whether the struct has exactly the fields of the model; false after an error about a field.
    pub(crate) storable: bool,
    /// Whether a row can have other entries when it is read back.
    pub(crate) reads_back: bool,
    /// Whether a row keeps fields that the struct does not know.
    pub(crate) keeps_unknown: bool,
    pub(crate) repository: Ident,
    pub(crate) name: String,
    /// The former names of the table, the last first.
    pub(crate) was: Vec<String>,
    pub(crate) version: u32,
    /// The struct of the previous version, if it is declared.
    pub(crate) previous: Option<Path>,
    /// The names of the fields that the conversion from `previous` changes.
    pub(crate) changed: Vec<String>,
    /// The fields, in order of declaration.
    pub(crate) fields: Vec<Rc<Field>>,
    /// The fields of the primary key; never empty.
    pub(crate) primary_key: Vec<Rc<Field>>,
    pub(crate) indexes: Vec<Rc<Index>>,
    /// The warning about the primary key.
    pub(crate) findings: Vec<Finding>,
    /// The expiry, if the rows expire.
    pub(crate) expiry: Option<Expiry>,
    /// The change stream, if the table has one.
    pub(crate) changes: Option<ChangeStream>,
    /// The field with the revision, if there is one.
    pub(crate) revision: Option<Rc<Field>>,
    pub(crate) aggregates: Vec<Aggregate>,
    pub(crate) references: Vec<Reference>,
    /// The struct of the rows of which the rows are parts.
    pub(crate) part_of: Option<Path>,
    /// The shard key, if there is one.
    pub(crate) sharding: Option<Sharding>,
    /// Whether every shard has a copy of the table.
    pub(crate) reference: bool,
    /// The view, if there is one.
    pub(crate) view: Option<View>,
    /// The query methods, in the order of generation.
    pub(crate) queries: Vec<Query>,
}

impl Table {
    /// Whether a row has no entries, no groups and no references.
    pub(crate) fn has_no_entries(&self) -> bool {
        self.indexes.is_empty() && self.aggregates.is_empty() && self.references.is_empty()
    }
}

/// The expiry of the rows.
pub(crate) struct Expiry {
    /// The time: a field, or a computed value; `None` after a mistake.
    pub(crate) time: Option<KeyPart>,
    /// The position of the index that begins with the time.
    pub(crate) index: usize,
}

/// The retention of a change stream.
pub(crate) struct ChangeStream {
    /// The number of seconds for which a change is kept; `u64::MAX` without a limit.
    pub(crate) keep: u64,
    /// The maximum number of bytes of kept changes; `u64::MAX` without a limit.
    pub(crate) bytes: u64,
    /// Whether a change is kept until all consumers have committed it, instead.
    pub(crate) until_consumed: bool,
}

/// Fields with the primary key of a row of another struct.
pub(crate) struct Reference {
    /// The names of the fields, joined by `_`.
    pub(crate) name: String,
    /// The struct of the rows that are referred to.
    pub(crate) to: Path,
    pub(crate) fields: Vec<Rc<Field>>,
    /// The type in the `Option`, if the only field is one.
    pub(crate) inner: Option<Type>,
    /// The position of the index that begins with the fields; `None` if the primary key does.
    pub(crate) index: Option<usize>,
    /// Whether the rows are deleted with the row to which they refer.
    pub(crate) cascade: bool,
}

/// The count and the sums of groups of rows.
pub(crate) struct Aggregate {
    /// The name on disk, and of the method for one group.
    pub(crate) name: String,
    /// The struct of the totals.
    pub(crate) ident: Ident,
    /// The fields of the group; none for the whole table.
    pub(crate) group: Vec<Rc<Field>>,
    /// The methods that iterate over the groups with given leading fields: for each number of fields from 1 on, its name.
    pub(crate) leading: Vec<String>,
    /// The summed fields.
    pub(crate) sums: Vec<Rc<Field>>,
    /// The first and last values of fields.
    pub(crate) extremes: Vec<Extreme>,
    /// Whether a worker updates the totals after the commit.
    pub(crate) eventual: bool,
    /// The fields that the attribute names, with the spans of their names.
    pub(crate) mentions: Vec<Ident>,
    /// The span of errors.
    pub(crate) span: Span,
    /// The span of the methods.
    pub(crate) place: Span,
}

impl Aggregate {
    /// Returns the name of the method that iterates over all groups: `aggregates_by_customer`.
    pub(crate) fn name_of_all(&self) -> String {
        format!("aggregates{}", self.name.strip_prefix("aggregate").unwrap_or_default())
    }
}

/// The first or last value of a field in a group, from an index on the group and the field.
pub(crate) struct Extreme {
    pub(crate) field: Rc<Field>,
    /// The position of the index.
    pub(crate) index: usize,
    pub(crate) greatest: bool,
}

impl Extreme {
    /// Returns `min_amount` or `max_amount`.
    pub(crate) fn name(&self) -> String {
        format!("{}_{}", if self.greatest { "max" } else { "min" }, self.field.name)
    }
}

/// The shard key of a table: the first fields of the primary key.
pub(crate) struct Sharding {
    /// The number of fields; at least one.
    pub(crate) fields: usize,
    /// Whether rows are distributed by a hash of the shard key.
    pub(crate) hashed: bool,
    /// The name of the shard map.
    pub(crate) map: String,
}

/// The struct of an older version of a table's rows.
pub(crate) struct RowVersion {
    /// The path of the crate for generated code.
    pub(crate) krate: Path,
    /// The struct itself.
    pub(crate) row: Ident,
    /// Whether serde can read the struct, as far as the types of its fields show.
    pub(crate) readable: bool,
    pub(crate) version: u32,
    /// The struct of the previous version, if it is declared.
    pub(crate) previous: Option<Path>,
    /// The names of the fields that the conversion from `previous` changes.
    pub(crate) changed: Vec<String>,
    /// The fields, in order of declaration.
    pub(crate) fields: Vec<Rc<Field>>,
}

/// The message about the version number of a `previous`.
pub(crate) const NOT_BELOW: &str = "the struct of `previous` must have a smaller `version` than \
                                    this struct";

/// A field of the struct.
#[expect(clippy::struct_excessive_bools, reason = "each is an attribute of its own")]
pub(crate) struct Field {
    pub(crate) visibility: Visibility,
    /// The position in the struct.
    pub(crate) position: usize,
    /// The identifier, with its `r#` if it has one.
    pub(crate) ident: Ident,
    /// The name, without the `r#`.
    pub(crate) name: String,
    /// The names by which serde reads the field in a row: its name there, and then its aliases.
    pub(crate) stored: Vec<String>,
    /// The name that serde writes in a row.
    pub(crate) written: String,
    /// Whether a row may lack the field, which has the default of its type then.
    pub(crate) skipped: bool,
    /// Whether serde has a value for a row that lacks the field, by `default` or because it never reads it.
    pub(crate) has_default: bool,
    /// Whether a function reads it, and not its type.
    pub(crate) has_function: bool,
    /// Whether the row has the fields of its type in its place.
    pub(crate) is_flat: bool,
    pub(crate) ty: DataType,
    /// The type as text.
    pub(crate) declared: String,
    /// The documentation of the field, as attributes.
    pub(crate) doc: TokenStream,
}

/// One part of an index's key. Each form of a field in `#[index(…)]` is a variant.
#[derive(Clone)]
pub(crate) enum KeyPart {
    /// The value of a field.
    Plain(Rc<Field>),
    /// The value of a field, in descending order.
    Desc(Rc<Field>),
    /// Each element of a collection, of the given type.
    Each(Rc<Field>, Rc<DataType>),
    /// The value of a method.
    Computed(Rc<Method>),
    /// A hash of the value of a field, for values that may be too long.
    Hash(Rc<Field>),
    /// Each element of the collection that a method returns, of the given type.
    EachComputed(Rc<Method>, Rc<DataType>),
    /// A hash of the value of a method.
    HashComputed(Rc<Method>),
}

impl KeyPart {
    /// Returns the field of this part, if there is one.
    pub(crate) fn field(&self) -> Option<&Rc<Field>> {
        match self {
            Self::Plain(field) | Self::Desc(field) | Self::Each(field, _) | Self::Hash(field) => {
                Some(field)
            }
            Self::Computed(_) | Self::EachComputed(..) | Self::HashComputed(_) => None,
        }
    }

    /// Returns the method of this part, if there is one.
    pub(crate) fn method(&self) -> Option<&Rc<Method>> {
        match self {
            Self::Computed(method) | Self::EachComputed(method, _) | Self::HashComputed(method) => {
                Some(method)
            }
            Self::Plain(_) | Self::Desc(_) | Self::Each(..) | Self::Hash(_) => None,
        }
    }

    /// Returns the identifier of the field or the method.
    pub(crate) fn ident(&self) -> &Ident {
        match self {
            Self::Plain(field) | Self::Desc(field) | Self::Each(field, _) | Self::Hash(field) => {
                &field.ident
            }
            Self::Computed(method) | Self::EachComputed(method, _) | Self::HashComputed(method) => {
                &method.ident
            }
        }
    }

    /// Returns the name of the part in all generated items.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Plain(field) | Self::Desc(field) | Self::Each(field, _) | Self::Hash(field) => {
                &field.name
            }
            Self::Computed(method) | Self::EachComputed(method, _) | Self::HashComputed(method) => {
                &method.name
            }
        }
    }

    /// Returns the type of the value in the key, or of the hashed value.
    pub(crate) fn key_type(&self) -> &DataType {
        match self {
            Self::Plain(field) | Self::Desc(field) | Self::Hash(field) => &field.ty,
            Self::Each(_, element) | Self::EachComputed(_, element) => element,
            Self::Computed(method) | Self::HashComputed(method) => &method.ty,
        }
    }

    /// Whether this part of a key contains the value of a field.
    pub(crate) fn holds(&self, other: &Rc<Field>) -> bool {
        match self {
            Self::Plain(field) | Self::Desc(field) => Rc::ptr_eq(field, other),
            _ => false,
        }
    }

    /// Whether the entry of a full index has no field for this part of its key, because the row has the same
    /// value, or because the part is a hash.
    pub(crate) fn is_left_out_of_full(&self) -> bool {
        matches!(self, Self::Plain(_) | Self::Desc(_)) || self.is_hash()
    }

    pub(crate) fn is_each(&self) -> bool {
        matches!(self, Self::Each(..) | Self::EachComputed(..))
    }

    /// Whether a sparse index can have no entry for a row because of this part: for a `None` or an empty
    /// collection. Returns `None` if the spelling of the type does not show this.
    pub(crate) fn can_be_absent(&self) -> Option<bool> {
        if self.is_each() { Some(true) } else { self.key_type().is_optional() }
    }

    pub(crate) fn is_desc(&self) -> bool {
        matches!(self, Self::Desc(_))
    }

    pub(crate) fn is_hash(&self) -> bool {
        matches!(self, Self::Hash(_) | Self::HashComputed(_))
    }

    /// Whether both sort entries in the same way.
    pub(crate) fn sorts_as(&self, other: &Self) -> bool {
        self.same(other) && self.is_desc() == other.is_desc() && self.is_hash() == other.is_hash()
    }

    /// Whether queries compare both with the same value, in any sort order.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let same = match (self.method(), other.method()) {
            (Some(method), Some(other)) => method.name == other.name,
            _ => self
                .field()
                .zip(other.field())
                .is_some_and(|(field, other)| Rc::ptr_eq(field, other)),
        };
        same && self.is_each() == other.is_each()
    }
}

/// A method of the struct that returns a part of a key.
pub(crate) struct Method {
    /// The identifier, with its `r#` if it has one.
    pub(crate) ident: Ident,
    /// The name, without the `r#`.
    pub(crate) name: String,
    /// The return type.
    pub(crate) ty: DataType,
}

/// One index table.
pub(crate) struct Index {
    /// The position among the indexes.
    pub(crate) position: usize,
    /// The name on disk and in the names of methods.
    pub(crate) name: String,
    /// Whether the attribute has a name, which replaces the names of all fields.
    pub(crate) named: bool,
    /// The parts of the key; never empty, with at most one `each`.
    pub(crate) parts: Vec<KeyPart>,
    pub(crate) strategy: Strategy,
    pub(crate) unique: bool,
    pub(crate) eventual: bool,
    /// The span of `scope`, if the index is global: sharded by its own key.
    pub(crate) global: Option<Span>,
    pub(crate) conditions: Conditions,
    pub(crate) findings: Vec<Finding>,
    pub(crate) entry: Entry,
    /// The fields that the attribute names, with the spans of their names.
    pub(crate) mentions: Vec<Ident>,
    /// The span of the methods.
    pub(crate) place: Span,
}

/// A warning about an index or the primary key.
#[derive(Clone)]
pub(crate) struct Finding {
    /// The span of the field of the warning.
    pub(crate) span: Span,
    pub(crate) lint: Lint,
    /// The reason, and how to suppress it.
    pub(crate) text: String,
}

impl Index {
    pub(crate) fn is_sparse(&self) -> bool {
        self.conditions.sparse.is_some()
    }

    /// Whether a query with the first `length` fields would omit rows because a later field is absent.
    /// Returns `None` if the spelling of the types does not show this.
    pub(crate) fn omits_rows_after(&self, length: usize) -> Option<bool> {
        if !self.is_sparse() {
            return Some(false);
        }
        let rest = || self.parts.iter().skip(length).map(KeyPart::can_be_absent);
        if rest().any(|absent| absent == Some(true)) {
            return Some(true);
        }
        rest().all(|absent| absent == Some(false)).then_some(false)
    }

    /// Returns the hashed parts, in the order of the key.
    pub(crate) fn hashed(&self) -> impl Iterator<Item = &KeyPart> {
        self.parts.iter().filter(|part| part.is_hash())
    }

    /// Whether an entry carries all values that are hashed in the key, in separate fields.
    pub(crate) fn carries_hashed(&self) -> bool {
        match &self.strategy {
            Strategy::Normalized => false,
            Strategy::Partial(included) => self.hashed().all(|part| {
                let has = |field| included.iter().any(|other| Rc::ptr_eq(field, other));
                part.field().is_some_and(has)
            }),
            Strategy::Full => self.hashed().all(|part| part.field().is_some()),
        }
    }
}

/// The message about a `sparse` index whose key can't contain a `None`.
pub(crate) const NEVER_ABSENT: &str = "`sparse` has no effect here: a sparse index has no entry \
                                       for a row with a `None` in its key, and no field of this \
                                       key is an `Option` or `each(…)`";

/// The condition for a row to have entries.
#[derive(Clone)]
pub(crate) struct Conditions {
    /// The span of the option `sparse`: only rows without a `None` in the key have entries.
    pub(crate) sparse: Option<Span>,
    /// The method of `filter`: only rows for which it returns true have entries.
    pub(crate) filter: Option<Ident>,
}

/// The contents of an entry in addition to its key.
#[derive(Clone)]
pub(crate) enum Strategy {
    /// The primary key.
    Normalized,
    /// The primary key and these fields.
    Partial(Vec<Rc<Field>>),
    /// The whole row.
    Full,
}

/// The struct of the entries of an index.
pub(crate) struct Entry {
    pub(crate) ident: Ident,
    /// The steps to read an entry, in stored order. The steps that keep a value are the fields of the struct.
    pub(crate) steps: Vec<Step>,
}

impl Entry {
    /// Returns the fields of the struct.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&Ident, &Source)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Keep(ident, source) => Some((ident, source)),
            Step::SkipKey(_) | Step::SkipPrimaryKey(_) => None,
        })
    }

    /// Whether a field of the struct borrows from the transaction.
    pub(crate) fn borrows(&self) -> bool {
        self.fields().any(|(_, source)| source.borrows())
    }
}

/// One step in reading an entry.
pub(crate) enum Step {
    /// Read a value into a field of this name.
    Keep(Ident, Source),
    /// Skip a part of the key, so that the next value is read from the right position.
    SkipKey(KeyPart),
    /// Skip a field of the primary key, so that the next value is read from the right position.
    SkipPrimaryKey(Rc<Field>),
}

/// The source of a value in an entry.
pub(crate) enum Source {
    Key(KeyPart),
    PrimaryKey(Rc<Field>),
    Included(Rc<Field>),
    /// A field of the whole row.
    Row(Rc<Field>),
}

impl Source {
    /// Returns the visibility of the field with this value, or with the collection of this value.
    pub(crate) fn visibility(&self) -> Option<&Visibility> {
        match self {
            Self::Key(KeyPart::Each(field, _)) => Some(&field.visibility),
            _ => self.field().map(|field| &field.visibility),
        }
    }

    /// Returns the field of the row with this value, if there is one.
    pub(crate) fn field(&self) -> Option<&Field> {
        match self {
            Self::Key(KeyPart::Plain(field) | KeyPart::Desc(field))
            | Self::PrimaryKey(field)
            | Self::Included(field)
            | Self::Row(field) => Some(field),
            Self::Key(_) => None,
        }
    }

    /// Whether the value in the entry is `Copy`, as the spelling of its type shows.
    pub(crate) fn is_copied(&self) -> bool {
        match self {
            // A descending text is owned.
            Self::Key(part) => !part.is_desc() && part.key_type().key_is_copied(),
            Self::PrimaryKey(field) => field.ty.key_is_copied(),
            Self::Included(field) | Self::Row(field) => field.ty.is_carried_as_argument(),
        }
    }

    pub(crate) fn ty(&self) -> &DataType {
        match self {
            Self::Key(part) => part.key_type(),
            Self::PrimaryKey(field) | Self::Included(field) | Self::Row(field) => &field.ty,
        }
    }

    fn borrows(&self) -> bool {
        match self {
            // Inverted bytes can't be borrowed.
            Self::Key(part) => !part.is_desc() && part.key_type().key_borrows(),
            Self::PrimaryKey(field) => field.ty.key_borrows(),
            Self::Included(field) | Self::Row(field) => field.ty.carried_borrows(),
        }
    }
}

/// The borrowed form of a row.
pub(crate) struct View {
    pub(crate) ident: Ident,
    /// The serde attributes that the view shares with the row.
    pub(crate) serde: Vec<TokenStream>,
    /// The fields in order of declaration, which is the stored order.
    pub(crate) fields: Vec<ViewField>,
}

impl View {
    /// Whether a field borrows from the transaction.
    pub(crate) fn borrows(&self) -> bool {
        self.fields.iter().any(|field| match field.reading {
            Reading::Carried => field.field.ty.carried_borrows(),
            Reading::Owned | Reading::With(_) | Reading::Made(_) => false,
        })
    }
}

/// A field of a view, with the name of the row's field.
pub(crate) struct ViewField {
    pub(crate) field: Rc<Field>,
    pub(crate) reading: Reading,
    /// The serde attributes that the view's field shares with the row's field.
    pub(crate) serde: Vec<TokenStream>,
}

/// The way to read a field of a view, which determines its type.
pub(crate) enum Reading {
    /// Read, and borrowed if possible.
    Carried,
    /// Read, with the type of the row.
    Owned,
    /// Read by this function, with the type of the row.
    With(ExprPath),
    /// The field is not stored. Its value is the result of this function, or the type's default.
    Made(Option<ExprPath>),
}

/// One query method of a table or an index.
pub(crate) struct Query {
    pub(crate) method: Ident,
    pub(crate) target: Target,
    pub(crate) form: Form,
}

/// The target of a query.
#[derive(Clone)]
pub(crate) enum Target {
    /// The table itself, by its primary key.
    Rows,
    Index(Rc<Index>),
}

impl Target {
    /// Whether a query takes the inner value of a part whose type is an `Option`, or may be an `Option` by
    /// its spelling.
    pub(crate) fn takes_present(&self, part: &KeyPart) -> bool {
        match self {
            Self::Rows => false,
            Self::Index(index) => index.is_sparse() && part.key_type().is_optional() != Some(false),
        }
    }
}

/// The restriction of a query.
pub(crate) enum Form {
    /// `by_town`: no restriction.
    Whole,
    /// `find_by_town`: these fields have these values.
    Equal(Vec<KeyPart>),
    /// `find_by_town_range`: the first fields have these values, the last is in a range.
    Range(Vec<KeyPart>, KeyPart),
    /// `find_by_town_in`: the first fields have these values, the last has one of several values.
    In(Vec<KeyPart>, KeyPart),
    /// `find_by_town_starting_with`: the first fields have these values, the last starts with a
    /// text or with bytes.
    StartingWith(Vec<KeyPart>, KeyPart),
    /// `get_by_email`: the row whose fields have these values.
    Get(Vec<KeyPart>),
    /// `get_by_email_live`: the row whose fields have these values, unless it has expired.
    GetLive(Vec<KeyPart>),
    /// `get_by_email_async`: the same row, for asynchronous code.
    GetAsync(Vec<KeyPart>),
    /// `get_view_by_email`: the view of the row whose fields have these values.
    GetView(Vec<KeyPart>),
    /// `put_by_email`: replaces the row with the same values of these fields.
    PutBy(Vec<KeyPart>),
    /// `delete_by_email`: deletes the row whose fields have these values.
    DeleteBy(Vec<KeyPart>),
    /// `distinct_town`: the distinct values of some fields, with given values for the preceding fields.
    Distinct { leading: Vec<KeyPart>, values: Vec<KeyPart> },
}

/// A type that can be part of a key.
pub(crate) struct KeyType {
    /// The path of the crate for generated code.
    pub(crate) krate: Path,
    pub(crate) ident: Ident,
    pub(crate) values: KeyValues,
}

/// The values of a key type.
pub(crate) enum KeyValues {
    /// The fields of a struct of keys, in order of declaration; one field for a newtype. Never empty.
    Members(Vec<KeyMember>),
    /// The variants of an enum without fields, in order of declaration. Never empty.
    Variants(Vec<KeyVariant>),
}

/// A field of a struct of keys.
pub(crate) struct KeyMember {
    pub(crate) member: Member,
    /// The name in messages.
    pub(crate) marker: Ident,
    pub(crate) ty: DataType,
}

/// A variant of an enum.
pub(crate) struct KeyVariant {
    pub(crate) ident: Ident,
    /// The name, without an `r#`.
    pub(crate) name: String,
    /// The number in a key. No two variants have the same number.
    pub(crate) number: u16,
}
