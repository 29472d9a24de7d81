//! The generated identifiers, and the collisions among them.

use std::collections::HashMap;
use std::rc::Rc;

use proc_macro2::Span;
use quote::format_ident;
use syn::Ident;
use syn::ext::IdentExt as _;

use crate::diagnostics::{Diagnostics, listed};
use crate::model::{Field, Form, Index, KeyPart, Query, Target};

/// Returns the name of an identifier, without its `r#`.
pub(crate) fn plain(ident: &Ident) -> String {
    ident.unraw().to_string()
}

/// Returns an identifier with another span. `gen` is a name in the editions before 2024, and the edition of a span can be this
/// crate's, in which it is a keyword. So it becomes `r#gen`.
pub(crate) fn with_span(ident: &Ident, span: Span) -> Ident {
    if ident == "gen" {
        return Ident::new_raw("gen", span);
    }
    let mut ident = ident.clone();
    ident.set_span(span);
    ident
}

/// Returns the default name of a table: `blog_post` for `BlogPost`, `http_server` for `HTTPServer`.
pub(crate) fn table(row: &Ident) -> String {
    snake_case(&plain(row))
}

/// Returns `CustomerRepository`.
pub(crate) fn repository(row: &Ident) -> Ident {
    format_ident!("{}Repository", row.unraw(), span = row.span())
}

/// Returns `CustomerView`, with the span of the word `view`.
pub(crate) fn view(row: &Ident, span: Span) -> Ident {
    format_ident!("{}View", row.unraw(), span = span)
}

/// Returns `CustomerByTownLastName`.
pub(crate) fn entry(row: &Ident, index: &str, span: Span) -> Ident {
    format_ident!("{}By{}", row.unraw(), pascal_case(index), span = span)
}

/// Returns `InvoiceAggregateByCustomer`.
pub(crate) fn aggregate(row: &Ident, fields: &str, span: Span) -> Ident {
    format_ident!("{}AggregateBy{}", row.unraw(), pascal_case(fields), span = span)
}

/// Returns the default name of an index: `town_last_name`.
pub(crate) fn index(parts: &[KeyPart]) -> String {
    let names: Vec<&str> = parts.iter().map(KeyPart::name).collect();
    names.join("_")
}

/// Returns the name of the field of an entry that carries a whole collection in addition to one of its
/// elements: `all_cast`.
pub(crate) fn collection(field: &Field) -> Ident {
    format_ident!("all_{}", field.name, span = field.ident.span())
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut letters = name.chars().peekable();
    let mut previous: Option<char> = None;
    while let Some(letter) = letters.next() {
        let starts_word = letter.is_uppercase()
            && previous.is_some_and(|previous| {
                // After a lowercase letter or a digit, or before the last capital of an acronym.
                (!previous.is_uppercase() && previous != '_')
                    || (previous.is_uppercase()
                        && letters.peek().is_some_and(|next| next.is_lowercase()))
            });
        if starts_word {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
        previous = Some(letter);
    }
    snake
}

fn pascal_case(name: &str) -> String {
    let mut pascal = String::new();
    for word in name.split('_') {
        let mut letters = word.chars();
        if let Some(first) = letters.next() {
            pascal.extend(first.to_uppercase());
            pascal.push_str(letters.as_str());
        }
    }
    pascal
}

/// The names of the generated types, to detect duplicates.
#[derive(Default)]
pub(crate) struct Types {
    taken: HashMap<String, String>,
}

impl Types {
    /// Whether a name is free.
    pub(crate) fn is_free(&self, ident: &Ident) -> bool {
        !self.taken.contains_key(&plain(ident))
    }

    /// Reserves a name for an item. `described` is the item in messages, and `advice` the way to choose
    /// another name. Reports an error and returns false if the name is taken.
    pub(crate) fn take(
        &mut self,
        ident: &Ident,
        described: String,
        advice: &str,
        errors: &Diagnostics,
    ) -> bool {
        let Some(other) = self.taken.get(&plain(ident)) else {
            self.taken.insert(plain(ident), described);
            return true;
        };
        errors.error(
            ident.span(),
            format!("two types would be called `{ident}`: {other} and {described}; {advice}"),
        );
        false
    }
}

/// Whether the rows have a view, and whether they expire.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) viewed: bool,
    pub(crate) expires: bool,
}

/// Returns the query methods of the primary key and of each index.
///
/// If several keys begin with the same fields, the methods query one of these keys: the key without further
/// fields, or else the key that is declared first. The primary key counts as declared before every index. An
/// eventual index has no methods for distinct values.
///
/// The methods of the primary key have the span `place`.
///
/// The names of the methods contain the name of the index if it is given, or if the methods would omit rows
/// of a sparse index whose queried fields all have a value. No other index competes for these names.
pub(crate) fn queries(
    primary_key: &[Rc<Field>],
    place: Span,
    indexes: &[(Rc<Index>, Span)],
    Rows { viewed, expires }: Rows,
    errors: &Diagnostics,
) -> Vec<Query> {
    let rows = Owner {
        target: Target::Rows,
        parts: primary_key.iter().cloned().map(KeyPart::Plain).collect(),
        span: primary_key.first().map_or(place, |field| field.ident.span()),
        place,
    };
    let indexes = indexes.iter().map(|(index, span)| Owner {
        target: Target::Index(Rc::clone(index)),
        parts: index.parts.clone(),
        span: *span,
        place: index.place,
    });
    let owners: Vec<Owner> = std::iter::once(rows).chain(indexes).collect();

    let mut methods = Methods { queries: Vec::new(), taken: HashMap::new(), errors };
    for (position, owner) in owners.iter().enumerate() {
        if let Target::Index(index) = &owner.target {
            methods.add(owner, format!("by_{}", index.name), Form::Whole);
        }
        for prefix in owner.prefixes() {
            let has_methods = |prefix_use| is_queried(position, &prefix, &owners, prefix_use);
            if has_methods(PrefixUse::Values) && !methods.add_finder(owner, &prefix) {
                // The other methods would collide with the same methods.
                continue;
            }
            if has_methods(PrefixUse::AllSorted) {
                methods.add_distinct(owner, &prefix);
            }
            if has_methods(PrefixUse::LastSorted) {
                methods.add_by_last(owner, &prefix);
            }
        }
        if let Target::Index(index) = &owner.target
            && index.unique
        {
            methods.add(owner, format!("get_by_{}", index.name), Form::Get(index.parts.clone()));
            if expires {
                let form = Form::GetLive(index.parts.clone());
                methods.add(owner, format!("get_by_{}_live", index.name), form);
            }
            if cfg!(feature = "async") {
                let form = Form::GetAsync(index.parts.clone());
                methods.add(owner, format!("get_by_{}_async", index.name), form);
            }
            // With several keys per row, a row could replace several rows.
            if !index.parts.iter().any(KeyPart::is_each) {
                let form = Form::PutBy(index.parts.clone());
                methods.add(owner, format!("put_by_{}", index.name), form);
            }
            let form = Form::DeleteBy(index.parts.clone());
            methods.add(owner, format!("delete_by_{}", index.name), form);
            if viewed {
                let form = Form::GetView(index.parts.clone());
                methods.add(owner, format!("get_view_by_{}", index.name), form);
            }
        }
    }
    methods.queries
}

/// A key with generated methods.
struct Owner {
    target: Target,
    parts: Vec<KeyPart>,
    /// The span of errors.
    span: Span,
    /// The span of the methods.
    place: Span,
}

/// The first fields of a key, and their name in methods.
struct Prefix {
    parts: Vec<KeyPart>,
    name: PrefixName,
    /// Whether these are all fields of the key.
    exact: bool,
}

/// The part of a name after `find_by_`.
enum PrefixName {
    /// The fields: `town_last_name`.
    Fields,
    /// The name of the index, in place of its fields: `residents`.
    Index(String),
    /// The name of the index and the first fields: `residents_town`.
    FieldsOf(String),
}

impl Prefix {
    /// Returns a name such as `town_last_name`, `residents` or `residents_town`.
    fn name(&self) -> String {
        match &self.name {
            PrefixName::Fields => index(&self.parts),
            PrefixName::Index(index_name) => index_name.clone(),
            PrefixName::FieldsOf(index_name) => format!("{index_name}_{}", index(&self.parts)),
        }
    }

    /// Returns the name of the last field, `last`, after `distinct_`, such as `last_name`, `residents` or
    /// `residents_town`.
    fn name_of_last(&self, last: &KeyPart) -> String {
        match &self.name {
            PrefixName::Fields => last.name().to_owned(),
            PrefixName::Index(index_name) => index_name.clone(),
            PrefixName::FieldsOf(index_name) => format!("{index_name}_{}", last.name()),
        }
    }

    /// Whether no other index competes for these methods.
    fn is_named(&self) -> bool {
        !matches!(self.name, PrefixName::Fields)
    }
}

impl Owner {
    fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        (1..=self.parts.len()).map(|length| {
            let parts: Vec<KeyPart> = self.parts.iter().take(length).cloned().collect();
            let exact = length == self.parts.len();
            let name = match &self.target {
                Target::Index(index) if index.named && exact => {
                    PrefixName::Index(index.name.clone())
                }
                Target::Index(index)
                    if index.named || index.omits_rows_after(length) == Some(true) =>
                {
                    PrefixName::FieldsOf(index.name.clone())
                }
                Target::Index(_) | Target::Rows => PrefixName::Fields,
            };
            Prefix { parts, name, exact }
        })
    }

    /// Whether this is an eventual index, which may still contain values that no row has.
    fn is_eventual(&self) -> bool {
        match &self.target {
            Target::Rows => false,
            Target::Index(index) => index.eventual,
        }
    }

    fn describe(&self) -> String {
        match &self.target {
            Target::Rows => "the primary key".to_owned(),
            Target::Index(index) => format!("the index `{}`", index.name),
        }
    }
}

/// The restrictions on the fields of a prefix, which may contain a hashed field.
#[derive(Clone, Copy)]
enum PrefixUse {
    /// The rows with given values, which every key supports.
    Values,
    /// A restriction by the order of the last field, with given values for the preceding fields.
    LastSorted,
    /// A restriction by the order of all fields.
    AllSorted,
}

impl PrefixUse {
    fn is_supported_by(self, parts: &[KeyPart]) -> bool {
        match self {
            Self::Values => true,
            Self::LastSorted => !parts.last().is_some_and(KeyPart::is_hash),
            Self::AllSorted => !parts.iter().any(KeyPart::is_hash),
        }
    }
}

/// Whether the methods of `prefix` query the key at `position`.
fn is_queried(position: usize, prefix: &Prefix, owners: &[Owner], prefix_use: PrefixUse) -> bool {
    if !prefix_use.is_supported_by(&prefix.parts) {
        return false;
    }
    if prefix.is_named() {
        return true;
    }
    // The position of each candidate key, and whether the key has no further fields.
    let candidates = || {
        owners.iter().enumerate().filter_map(|(position, owner)| {
            let candidate = owner.prefixes().find(|candidate| {
                !candidate.is_named()
                    && prefix_use.is_supported_by(&candidate.parts)
                    && candidate.parts.len() == prefix.parts.len()
                    && candidate.parts.iter().zip(&prefix.parts).all(|(a, b)| a.same(b))
            })?;
            Some((position, candidate.exact))
        })
    };
    let chosen = candidates().find(|(_, exact)| *exact).or_else(|| candidates().next());
    chosen.is_some_and(|(chosen, _)| chosen == position)
}

/// The maximum length of a tuple that is a key in the runtime.
const LONGEST_TUPLE: usize = 12;

struct Methods<'a> {
    queries: Vec<Query>,
    /// The item that has each name.
    taken: HashMap<String, String>,
    errors: &'a Diagnostics,
}

impl Methods<'_> {
    /// Adds `find_by_town_last_name` and `find_by_town_last_name_in`.
    fn add_finder(&mut self, owner: &Owner, prefix: &Prefix) -> bool {
        let (name, mut parts) = (prefix.name(), prefix.parts.clone());
        let is_free = self.add(owner, format!("find_by_{name}"), Form::Equal(parts.clone()));
        if is_free && let Some(last) = parts.pop() {
            self.add(owner, format!("find_by_{name}_in"), Form::In(parts, last));
        }
        is_free
    }

    /// Adds `distinct_town_last_name`.
    fn add_distinct(&mut self, owner: &Owner, prefix: &Prefix) {
        // The values of the whole primary key are distinct, and `keys` returns them.
        if owner.is_eventual() || (prefix.exact && matches!(owner.target, Target::Rows)) {
            return;
        }
        if prefix.parts.len() <= LONGEST_TUPLE {
            let form = Form::Distinct { leading: Vec::new(), values: prefix.parts.clone() };
            self.add(owner, format!("distinct_{}", prefix.name()), form);
        }
    }

    /// Adds `find_by_town_last_name_range` and `find_by_town_last_name_starting_with`, and
    /// `distinct_last_name_by_town` if there are several fields.
    fn add_by_last(&mut self, owner: &Owner, prefix: &Prefix) {
        let (name, mut parts) = (prefix.name(), prefix.parts.clone());
        let Some(last) = parts.pop() else { return };
        if !parts.is_empty() && !owner.is_eventual() {
            let method = format!("distinct_{}_by_{}", prefix.name_of_last(&last), index(&parts));
            let form = Form::Distinct { leading: parts.clone(), values: vec![last.clone()] };
            self.add(owner, method, form);
        }
        let range = Form::Range(parts.clone(), last.clone());
        self.add(owner, format!("find_by_{name}_range"), range);
        if last.key_type().has_prefixes() {
            let starting_with = Form::StartingWith(parts, last);
            self.add(owner, format!("find_by_{name}_starting_with"), starting_with);
        }
    }

    /// Adds a method, unless its name is taken.
    fn add(&mut self, owner: &Owner, name: String, form: Form) -> bool {
        let described = format!("{} in {}", describe(&form), owner.describe());
        if let Some(other) = self.taken.get(&name) {
            self.errors.error(
                owner.span,
                format!(
                    "two methods would be called `{name}`: {other} and {described}; give one of \
                     the indexes another name with `name = \"…\"`"
                ),
            );
            return false;
        }
        let method = Ident::new(&name, owner.place);
        self.taken.insert(name, described);
        self.queries.push(Query { method, target: owner.target.clone(), form });
        true
    }
}

fn describe(form: &Form) -> String {
    let by = |what: &str, parts: &[KeyPart], last: Option<&KeyPart>| {
        let parts = parts.iter().chain(last).map(KeyPart::name);
        format!("{what} by {}", listed(parts))
    };
    match form {
        Form::Whole => "the scan".to_owned(),
        Form::Equal(parts) => by("the search", parts, None),
        Form::Range(leading, last) => by("the range", leading, Some(last)),
        Form::In(leading, last) => by("the search for several values", leading, Some(last)),
        Form::StartingWith(leading, last) => by("the search for a prefix", leading, Some(last)),
        Form::Get(parts) => by("the look-up", parts, None),
        Form::GetLive(parts) => by("the look-up of a row that has not expired", parts, None),
        Form::GetAsync(parts) => by("the asynchronous look-up", parts, None),
        Form::GetView(parts) => by("the view", parts, None),
        Form::PutBy(parts) => by("the replacement", parts, None),
        Form::DeleteBy(parts) => by("the deletion", parts, None),
        Form::Distinct { leading, values } => {
            let values = listed(values.iter().map(KeyPart::name));
            let what = format!("the values of {values}");
            if leading.is_empty() { what } else { by(&what, leading, None) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{pascal_case, snake_case};

    #[test]
    fn snake_case_keeps_acronyms_together() {
        assert_eq!(snake_case("Customer"), "customer");
        assert_eq!(snake_case("BlogPost"), "blog_post");
        assert_eq!(snake_case("HTTPServer"), "http_server");
        assert_eq!(snake_case("Area51Log"), "area51_log");
        assert_eq!(snake_case("ID"), "id");
        assert_eq!(snake_case("already_snake"), "already_snake");
        assert_eq!(snake_case("Odd_Name"), "odd_name");
        assert_eq!(snake_case(""), "");
    }

    #[test]
    fn pascal_case_joins_words() {
        assert_eq!(pascal_case("town_last_name"), "TownLastName");
        assert_eq!(pascal_case("type"), "Type");
        assert_eq!(pascal_case("_hidden__field_"), "HiddenField");
        assert_eq!(pascal_case("élan"), "Élan");
        assert_eq!(pascal_case("_"), "");
    }
}
