//! What is generated from: a table whose every rule has been checked and whose every default is
//! resolved.

use std::rc::Rc;

use proc_macro2::{Span, TokenStream};
use syn::{ExprPath, Ident, Member, Path, Visibility};

use crate::attr::keys::Lint;
use crate::types::DataType;

/// A struct that is stored as a table.
pub(crate) struct Table {
    /// The path of the crate that generated code goes through.
    pub(crate) krate: Path,
    pub(crate) visibility: Visibility,
    /// The struct itself.
    pub(crate) row: Ident,
    /// The struct has the fields of the model, and not others that an error is about.
    pub(crate) storable: bool,
    pub(crate) repository: Ident,
    pub(crate) name: String,
    pub(crate) version: u32,
    /// The struct of the version before, if the code has it.
    pub(crate) previous: Option<Path>,
    /// The names of the fields that the `From` of `previous` changes.
    pub(crate) changed: Vec<String>,
    /// In order of declaration.
    pub(crate) fields: Vec<Rc<Field>>,
    /// Never empty.
    pub(crate) primary_key: Vec<Rc<Field>>,
    pub(crate) indexes: Vec<Rc<Index>>,
    /// About the primary key.
    pub(crate) findings: Vec<Finding>,
    /// If it has a shard key.
    pub(crate) sharding: Option<Sharding>,
    /// If there is to be one.
    pub(crate) view: Option<View>,
    /// The methods that ask, in the order in which they are generated.
    pub(crate) queries: Vec<Query>,
}

/// The shard key of a table: the first fields of the primary key.
pub(crate) struct Sharding {
    /// How many fields it has; at least one.
    pub(crate) fields: usize,
    /// Whether rows are distributed by a hash of it.
    pub(crate) hashed: bool,
    /// The name of the shard map.
    pub(crate) map: String,
}

/// A struct that rows of a table had in an older version.
pub(crate) struct RowVersion {
    /// The path of the crate that generated code goes through.
    pub(crate) krate: Path,
    /// The struct itself.
    pub(crate) row: Ident,
    /// Serde can read it, as far as the types of its fields tell.
    pub(crate) readable: bool,
    pub(crate) version: u32,
    /// The struct of the version before, if the code has it.
    pub(crate) previous: Option<Path>,
    /// The names of the fields that the `From` of `previous` changes.
    pub(crate) changed: Vec<String>,
    /// In order of declaration.
    pub(crate) fields: Vec<Rc<Field>>,
}

/// What is wrong with the number of a `previous`.
pub(crate) const NOT_BELOW: &str = "the struct of `previous` has a `version` that is not below \
                                    that of this one";

/// A field of the struct.
pub(crate) struct Field {
    /// As it is accessed, with its `r#` if it has one.
    pub(crate) ident: Ident,
    /// As it is named, without.
    pub(crate) name: String,
    pub(crate) ty: DataType,
    /// The type as text.
    pub(crate) declared: String,
    /// Its own documentation, as attributes.
    pub(crate) doc: TokenStream,
}

/// One part of an index's key. Each form of a field in `#[index(…)]` is a variant.
#[derive(Clone)]
pub(crate) enum KeyPart {
    /// The value of a field.
    Plain(Rc<Field>),
    /// The same, in descending order.
    Desc(Rc<Field>),
    /// Each element of a collection, of the given type.
    Each(Rc<Field>, Rc<DataType>),
    /// What a method returns.
    Computed(Rc<Method>),
    /// A hash of the value of a field, which stands for it where it may be too long.
    Hash(Rc<Field>),
    /// Each element of the collection that a method returns, of the given type.
    EachComputed(Rc<Method>, Rc<DataType>),
    /// A hash of what a method returns.
    HashComputed(Rc<Method>),
}

impl KeyPart {
    /// The field it is taken from, if it is from one.
    pub(crate) fn field(&self) -> Option<&Rc<Field>> {
        match self {
            Self::Plain(field) | Self::Desc(field) | Self::Each(field, _) | Self::Hash(field) => {
                Some(field)
            }
            Self::Computed(_) | Self::EachComputed(..) | Self::HashComputed(_) => None,
        }
    }

    /// The method that returns it, or its collection, if it is from one.
    pub(crate) fn method(&self) -> Option<&Rc<Method>> {
        match self {
            Self::Computed(method) | Self::EachComputed(method, _) | Self::HashComputed(method) => {
                Some(method)
            }
            Self::Plain(_) | Self::Desc(_) | Self::Each(..) | Self::Hash(_) => None,
        }
    }

    /// The identifier of its field or method.
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

    /// What it is called by in all that is generated.
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

    /// The type of the value that is in the key, or whose hash is.
    pub(crate) fn key_type(&self) -> &DataType {
        match self {
            Self::Plain(field) | Self::Desc(field) | Self::Hash(field) => &field.ty,
            Self::Each(_, element) | Self::EachComputed(_, element) => element,
            Self::Computed(method) | Self::HashComputed(method) => &method.ty,
        }
    }

    /// Whether an entry has this value of a field from its key.
    pub(crate) fn holds(&self, other: &Rc<Field>) -> bool {
        match self {
            Self::Plain(field) | Self::Desc(field) => Rc::ptr_eq(field, other),
            _ => false,
        }
    }

    /// Whether the entry of a full index has nothing from this part of its key: a field of the row is the same
    /// value, or it is a hash.
    pub(crate) fn is_left_out_of_full(&self) -> bool {
        matches!(self, Self::Plain(_) | Self::Desc(_)) || self.is_hash()
    }

    pub(crate) fn is_each(&self) -> bool {
        matches!(self, Self::Each(..) | Self::EachComputed(..))
    }

    /// Whether a sparse index has no entry for some rows because of this part: for a `None` or an
    /// empty collection. `None` where only the compiler knows.
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

    /// Whether the same is asked of both: how they are sorted does not matter.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let same = match (self.method(), other.method()) {
            (Some(method), Some(of)) => method.name == of.name,
            _ => self.field().zip(other.field()).is_some_and(|(field, of)| Rc::ptr_eq(field, of)),
        };
        same && self.is_each() == other.is_each()
    }
}

/// A method of the struct that returns a part of a key.
pub(crate) struct Method {
    /// As it is called, with its `r#` if it has one.
    pub(crate) ident: Ident,
    /// As it is named, without.
    pub(crate) name: String,
    /// What it returns.
    pub(crate) ty: DataType,
}

/// One index table.
pub(crate) struct Index {
    /// Its place among the indexes.
    pub(crate) position: usize,
    /// Both on disk and in the names of methods.
    pub(crate) name: String,
    /// The name was given: it stands for all the fields together.
    pub(crate) named: bool,
    /// Never empty, with at most one `each`.
    pub(crate) parts: Vec<KeyPart>,
    pub(crate) strategy: Strategy,
    pub(crate) unique: bool,
    pub(crate) eventual: bool,
    pub(crate) conditions: Conditions,
    pub(crate) findings: Vec<Finding>,
    pub(crate) entry: Entry,
    /// The fields, each time that the attribute names one: with the place of that name.
    pub(crate) mentions: Vec<Ident>,
    /// Where its methods point to.
    pub(crate) place: Span,
}

/// What is said against an index or the primary key, as a warning.
#[derive(Clone)]
pub(crate) struct Finding {
    /// The field that it is said at.
    pub(crate) span: Span,
    pub(crate) lint: Lint,
    /// The reason, and how to allow it.
    pub(crate) text: String,
}

impl Index {
    pub(crate) fn is_sparse(&self) -> bool {
        self.conditions.sparse.is_some()
    }

    /// Whether a query with the first `length` fields would omit rows because a later field is
    /// absent: `None`, where only the compiler knows whether that can be.
    pub(crate) fn omits_rows_behind(&self, length: usize) -> Option<bool> {
        if !self.is_sparse() {
            return Some(false);
        }
        let rest = || self.parts.iter().skip(length).map(KeyPart::can_be_absent);
        if rest().any(|absent| absent == Some(true)) {
            return Some(true);
        }
        rest().all(|absent| absent == Some(false)).then_some(false)
    }

    /// The parts that are hashed in the key, in its order.
    pub(crate) fn hashed(&self) -> impl Iterator<Item = &KeyPart> {
        self.parts.iter().filter(|part| part.is_hash())
    }

    /// Whether an entry carries, in fields of its own, all values that are hashed in the key.
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

/// Why an index of which no part of the key can be absent is not sparse.
pub(crate) const NEVER_ABSENT: &str = "a sparse index has no entry for a row with a `None` in its \
                                       key, and no part of this one is an `Option` or `each(…)`";

/// Which rows have entries.
#[derive(Clone)]
pub(crate) struct Conditions {
    /// Those of which no part of the key is `None`; where this is demanded.
    pub(crate) sparse: Option<Span>,
    /// Those for which this method holds.
    pub(crate) filter: Option<Ident>,
}

/// What an entry carries besides its key.
#[derive(Clone)]
pub(crate) enum Strategy {
    /// The primary key.
    Normalized,
    /// The primary key and these fields.
    Partial(Vec<Rc<Field>>),
    /// The whole row.
    Full,
}

/// The struct that an entry of an index is read into.
pub(crate) struct Entry {
    pub(crate) ident: Ident,
    /// How to read it, in the order in which it is stored. The fields of the struct are what is
    /// kept.
    pub(crate) steps: Vec<Step>,
}

impl Entry {
    /// The fields of the struct.
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
    /// Pass over a part of the key, so that the next value is read from the right place.
    SkipKey(KeyPart),
    /// Pass over a field of the primary key for the same reason.
    SkipPrimaryKey(Rc<Field>),
}

/// Where in an entry a value is stored.
pub(crate) enum Source {
    Key(KeyPart),
    PrimaryKey(Rc<Field>),
    Included(Rc<Field>),
    /// A field of the whole row.
    Row(Rc<Field>),
}

impl Source {
    /// The field of the row that it is the whole value of, if it is that of one.
    pub(crate) fn field(&self) -> Option<&Field> {
        match self {
            Self::Key(KeyPart::Plain(field) | KeyPart::Desc(field))
            | Self::PrimaryKey(field)
            | Self::Included(field)
            | Self::Row(field) => Some(field),
            Self::Key(_) => None,
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

/// The struct that a row is read into without a copy.
pub(crate) struct View {
    pub(crate) ident: Ident,
    /// What it has of the row's serde attributes.
    pub(crate) serde: Vec<TokenStream>,
    /// In order of declaration, which is the order in which they are stored.
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

/// A field of a view, called as the row's.
pub(crate) struct ViewField {
    pub(crate) field: Rc<Field>,
    pub(crate) reading: Reading,
    /// What it has of the field's serde attributes.
    pub(crate) serde: Vec<TokenStream>,
}

/// How a field of a view is made, and so of what type it is.
pub(crate) enum Reading {
    /// Read, and borrowed if it can be.
    Carried,
    /// Read, as the row has it.
    Owned,
    /// Read by this function, as the row has it.
    With(ExprPath),
    /// Not stored: what this function returns, or the type's default.
    Made(Option<ExprPath>),
}

/// One method that asks a table or an index.
pub(crate) struct Query {
    pub(crate) method: Ident,
    pub(crate) target: Target,
    pub(crate) form: Form,
}

/// What a query looks through.
#[derive(Clone)]
pub(crate) enum Target {
    /// The table itself, by its primary key.
    Rows,
    Index(Rc<Index>),
}

impl Target {
    /// Whether a query takes the value of a part, in the place of the `Option` that it is or, as far
    /// as its spelling tells, could be.
    pub(crate) fn takes_present(&self, part: &KeyPart) -> bool {
        match self {
            Self::Rows => false,
            Self::Index(index) => index.is_sparse() && part.key_type().is_optional() != Some(false),
        }
    }
}

/// How a query restricts what it looks through.
pub(crate) enum Form {
    /// `by_town`: not at all.
    Whole,
    /// `find_by_town`: these fields have these values.
    Equal(Vec<KeyPart>),
    /// `find_by_town_range`: the first fields have these values, the last is in a range.
    Range(Vec<KeyPart>, KeyPart),
    /// `find_by_town_in`: the first fields have these values, the last has one of several.
    In(Vec<KeyPart>, KeyPart),
    /// `find_by_town_starting_with`: the first fields have these values, the last starts with a
    /// text or with bytes.
    StartingWith(Vec<KeyPart>, KeyPart),
    /// `get_by_email`: the one row whose fields have these values.
    Get(Vec<KeyPart>),
    /// `get_view_by_email`: its view.
    GetView(Vec<KeyPart>),
    /// `put_by_email`: writes a row over the one that has its values of these fields.
    PutBy(Vec<KeyPart>),
    /// `delete_by_email`: deletes the one row whose fields have these values.
    DeleteBy(Vec<KeyPart>),
    /// `distinct_town`: each different value of fields behind the first ones, which have these
    /// values.
    Distinct { leading: Vec<KeyPart>, values: Vec<KeyPart> },
}

/// A type that can be part of a key.
pub(crate) struct KeyType {
    /// The path of the crate that generated code goes through.
    pub(crate) krate: Path,
    pub(crate) ident: Ident,
    pub(crate) values: KeyValues,
}

/// What the values of such a type are.
pub(crate) enum KeyValues {
    /// A struct of keys, in order of declaration; with one, a newtype. Never empty.
    Members(Vec<KeyMember>),
    /// An enum without fields, in order of declaration. Never empty.
    Variants(Vec<KeyVariant>),
}

/// A field of a struct of keys.
pub(crate) struct KeyMember {
    pub(crate) member: Member,
    /// What it is called in messages.
    pub(crate) marker: Ident,
    pub(crate) ty: DataType,
}

/// A variant of an enum.
pub(crate) struct KeyVariant {
    pub(crate) ident: Ident,
    /// As it is named, without an `r#`.
    pub(crate) name: String,
    /// What it is in a key. No two variants have the same.
    pub(crate) number: u16,
}
