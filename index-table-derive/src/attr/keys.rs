//! The words of the attributes, and their syntax.

use crate::diagnostics::{listed, suggestion};

/// The keys of `#[table(…)]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableKey {
    Name,
    Was,
    Version,
    Previous,
    Changed,
    Repository,
    View,
    Expires,
    Changes,
    ShardBy,
    ShardMap,
    Reference,
    PartOf,
    KeepUnknown,
    Allow,
    Crate,
}

/// The options of `changes(…)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangesKey {
    Keep,
    Bytes,
    UntilConsumed,
}

/// The keys of `#[index(…)]`, except for plain fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexKey {
    Each,
    Desc,
    Computed,
    Hash,
    Strategy,
    Consistency,
    Scope,
    Include,
    Name,
    Filter,
    Unique,
    Sparse,
    Allow,
}

/// The options of `#[aggregate(…)]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKey {
    Sum,
    Min,
    Max,
    Consistency,
}

/// The options of `#[references(…)]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceKey {
    OnDelete,
    Fields,
}

/// The warnings about an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lint {
    /// The only field of the index has two values.
    FewValues,
    /// The key is a prefix of another key.
    Redundant,
    /// Another index carries the whole row as well.
    DoubledFull,
    /// A field of the primary key is an `Option`.
    OptionalKey,
}

/// The keys of `#[key(…)]`, on a type or on a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKey {
    Crate,
    Order,
}

/// The syntax of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `each(field)`
    Call,
    /// `strategy = "partial"`
    Value,
    /// `unique`
    Flag,
    /// `allow(few_values)`
    List,
}

/// One known word.
#[derive(Debug)]
pub(crate) struct Key<K: 'static> {
    pub(crate) id: K,
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// The syntax, for messages.
    pub(crate) usage: &'static str,
}

const fn key<K>(id: K, name: &'static str, form: Form, usage: &'static str) -> Key<K> {
    Key { id, name, form, usage }
}

pub(crate) const TABLE_KEYS: &[Key<TableKey>] = &[
    key(TableKey::Name, "name", Form::Value, "name = \"customers\""),
    key(TableKey::Was, "was", Form::Value, "was = \"customers\""),
    key(TableKey::Version, "version", Form::Value, "version = 1"),
    key(TableKey::Previous, "previous", Form::Value, "previous = CustomerV1"),
    key(TableKey::Changed, "changed", Form::Value, "changed = [field]"),
    key(TableKey::Repository, "repository", Form::Value, "repository = Customers"),
    key(TableKey::View, "view", Form::Flag, "view = CustomerView"),
    key(TableKey::Expires, "expires", Form::Value, "expires = field"),
    key(TableKey::Changes, "changes", Form::Flag, "changes(keep = \"7d\")"),
    key(TableKey::ShardBy, "shard_by", Form::Value, "shard_by = field"),
    key(TableKey::ShardMap, "shard_map", Form::Value, "shard_map = \"customers\""),
    key(TableKey::Reference, "reference", Form::Flag, "reference"),
    key(TableKey::PartOf, "part_of", Form::Value, "part_of = Product"),
    key(TableKey::KeepUnknown, "keep_unknown", Form::Flag, "keep_unknown"),
    key(TableKey::Allow, "allow", Form::List, "allow(optional_key)"),
    key(TableKey::Crate, "crate", Form::Value, "crate = some::path"),
];

pub(crate) const CHANGES_KEYS: &[Key<ChangesKey>] = &[
    key(ChangesKey::Keep, "keep", Form::Value, "keep = \"7d\""),
    key(ChangesKey::Bytes, "bytes", Form::Value, "bytes = 1_000_000_000"),
    key(ChangesKey::UntilConsumed, "until_consumed", Form::Flag, "until_consumed"),
];

pub(crate) const KEY_KEYS: &[Key<KeyKey>] = &[
    key(KeyKey::Order, "order", Form::Value, "order = 1"),
    key(KeyKey::Crate, "crate", Form::Value, "crate = some::path"),
];

pub(crate) const INDEX_KEYS: &[Key<IndexKey>] = &[
    key(IndexKey::Each, "each", Form::Call, "each(field)"),
    key(IndexKey::Desc, "desc", Form::Call, "desc(field)"),
    key(IndexKey::Computed, "computed", Form::Call, "computed(method: Type)"),
    key(IndexKey::Hash, "hash", Form::Call, "hash(field)"),
    key(IndexKey::Strategy, "strategy", Form::Value, "strategy = \"partial\""),
    key(IndexKey::Consistency, "consistency", Form::Value, "consistency = \"eventual\""),
    key(IndexKey::Scope, "scope", Form::Value, "scope = \"global\""),
    key(IndexKey::Include, "include", Form::Value, "include = [field]"),
    key(IndexKey::Name, "name", Form::Value, "name = \"ident\""),
    key(IndexKey::Filter, "filter", Form::Value, "filter = method"),
    key(IndexKey::Unique, "unique", Form::Flag, "unique"),
    key(IndexKey::Sparse, "sparse", Form::Flag, "sparse"),
    key(IndexKey::Allow, "allow", Form::List, "allow(redundant)"),
];

pub(crate) const AGGREGATE_KEYS: &[Key<AggregateKey>] = &[
    key(AggregateKey::Sum, "sum", Form::Value, "sum = [field]"),
    key(AggregateKey::Min, "min", Form::Value, "min = [field]"),
    key(AggregateKey::Max, "max", Form::Value, "max = [field]"),
    key(AggregateKey::Consistency, "consistency", Form::Value, "consistency = \"eventual\""),
];

pub(crate) const REFERENCE_KEYS: &[Key<ReferenceKey>] = &[
    key(ReferenceKey::OnDelete, "on_delete", Form::Value, "on_delete = \"restrict\""),
    key(ReferenceKey::Fields, "fields", Form::Value, "fields = [tenant, customer]"),
];

/// The values of `on_delete`.
pub(crate) const RESTRICT: &str = "restrict";
pub(crate) const CASCADE: &str = "cascade";

/// The names in `allow(…)` of a table.
pub(crate) const TABLE_LINTS: &[(&str, Lint)] = &[("optional_key", Lint::OptionalKey)];

/// The names in `allow(…)` of an index.
pub(crate) const INDEX_LINTS: &[(&str, Lint)] = &[
    ("few_values", Lint::FewValues),
    ("redundant", Lint::Redundant),
    ("doubled_full", Lint::DoubledFull),
];

/// The strategies by their names.
pub(crate) const STRATEGIES: [&str; 3] = [NORMALIZED, PARTIAL, FULL];
pub(crate) const NORMALIZED: &str = "normalized";
pub(crate) const PARTIAL: &str = "partial";
pub(crate) const FULL: &str = "full";

/// The consistencies by their names.
pub(crate) const CONSISTENCIES: [&str; 2] = [STRONG, EVENTUAL];
pub(crate) const STRONG: &str = "strong";
pub(crate) const EVENTUAL: &str = "eventual";

/// The scopes by their names.
pub(crate) const SCOPES: [&str; 2] = [LOCAL, GLOBAL];
pub(crate) const LOCAL: &str = "local";
pub(crate) const GLOBAL: &str = "global";

/// The orders, with the words of SQL for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

impl Order {
    pub(crate) fn of(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "asc" | "ascending" => Some(Self::Ascending),
            "desc" | "descending" => Some(Self::Descending),
            _ => None,
        }
    }

    /// Returns the syntax for this order of a field.
    pub(crate) fn usage(self, field: &str) -> String {
        match self {
            Self::Ascending => format!("ascending order is written `{field}`"),
            Self::Descending => format!("descending order is written `desc({field})`"),
        }
    }
}

/// Misspelt options for the order, which are treated as descending order.
pub(crate) const ORDERS: [&str; 5] = ["order", "order_by", "sort", "sort_by", "direction"];

/// Words for an option that does not exist, because the fields are given without an option.
pub(crate) const FIELDS: [&str; 7] = ["fields", "field", "columns", "column", "keys", "key", "on"];

/// Returns the key with this name.
pub(crate) fn find<K>(keys: &'static [Key<K>], name: &str) -> Option<&'static Key<K>> {
    keys.iter().find(|key| key.name == name)
}

/// Returns the message for an unknown `word` in `#[table(…)]`. If `alone`, the word may be intended as a
/// name.
pub(crate) fn unknown_in_table(word: &str, alone: bool) -> String {
    if let Some(key) = find(INDEX_KEYS, word) {
        return format!("`{}` is an option of `#[index(…)]`", key.usage);
    }
    if word == "primary_key" {
        return MARK_PRIMARY_KEY.to_owned();
    }
    let message = unknown("table", word, TABLE_KEYS, |_| true);
    let is_name = alone && suggestion(word, TABLE_KEYS.iter().map(|key| key.name)).is_none();
    if is_name { format!("{message}; {}", name_of_table(word)) } else { message }
}

/// Returns the syntax for the name of a table.
pub(crate) fn name_of_table(name: &str) -> String {
    format!("the name of a table is written `name = \"{name}\"`")
}

/// The message about a primary key that is declared on the struct.
pub(crate) const MARK_PRIMARY_KEY: &str =
    "`#[primary_key]` is written on the field that identifies a row";

/// Returns the message for an unknown `word` in `#[key(…)]`.
pub(crate) fn unknown_in_key(word: &str) -> String {
    unknown("key", word, KEY_KEYS, |_| true)
}

/// Returns the message for an unknown `word` in `#[aggregate(…)]`.
pub(crate) fn unknown_in_aggregate(word: &str) -> String {
    unknown("aggregate", word, AGGREGATE_KEYS, |_| true)
}

/// Returns the message for an unknown `word` in `#[references(…)]`.
pub(crate) fn unknown_in_references(word: &str) -> String {
    unknown("references", word, REFERENCE_KEYS, |_| true)
}

/// Returns the message for an unknown `word` in this form in `#[index(…)]`.
pub(crate) fn unknown_in_index(word: &str, form: Form) -> String {
    if let Some(key) = find(TABLE_KEYS, word) {
        return format!("`{}` is an option of `#[table(…)]`", key.usage);
    }
    let order = ORDERS.contains(&word).then_some(Order::Descending).or_else(|| Order::of(word));
    if let Some(order) = order {
        return format!("`#[index(…)]` has no `{word}`; {}", order.usage("field"));
    }
    if FIELDS.contains(&word) {
        return format!("`#[index(…)]` has no `{word}`; write the fields alone: `#[index(field)]`");
    }
    if word == "primary_key" {
        return MARK_PRIMARY_KEY.to_owned();
    }
    // A call is a form of a field, or a list. Everything else is an option.
    unknown("index", word, INDEX_KEYS, |key| {
        key.form == Form::List || (key.form == Form::Call) == (form == Form::Call)
    })
}

/// Whether an unknown `word` in `#[index(…)]` is not a misspelt option either.
pub(crate) fn is_no_option(word: &str) -> bool {
    suggestion(word, INDEX_KEYS.iter().map(|key| key.name)).is_none() && !ORDERS.contains(&word)
}

/// Returns the option with this word as its value: `strategy = "full"`.
pub(crate) fn option_of(word: &str) -> Option<String> {
    let key = if STRATEGIES.contains(&word) {
        "strategy"
    } else if CONSISTENCIES.contains(&word) {
        "consistency"
    } else if SCOPES.contains(&word) {
        "scope"
    } else {
        return None;
    };
    Some(format!("{key} = \"{word}\""))
}

/// Returns the message for an unknown `word` in `allow(…)`.
pub(crate) fn unknown_lint(word: &str, lints: &[(&str, Lint)]) -> String {
    let names = || lints.iter().map(|(name, _)| *name);
    match suggestion(word, names()) {
        Some(meant) => format!("there is no `{word}` to allow; did you mean `{meant}`?"),
        None => format!("there is no `{word}` to allow, only {}", listed(names())),
    }
}

fn unknown<K>(
    attribute: &str,
    word: &str,
    keys: &'static [Key<K>],
    fits: impl Fn(&Key<K>) -> bool,
) -> String {
    let names = || keys.iter().filter(|key| fits(key)).map(|key| key.name);
    match suggestion(word, names()) {
        Some(meant) => format!("`#[{attribute}(…)]` has no `{word}`; did you mean `{meant}`?"),
        None => format!("`#[{attribute}(…)]` has no `{word}`, only {}", listed(names())),
    }
}
