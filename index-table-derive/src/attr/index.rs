//! `#[index(FIELDS, OPTIONS)]`, and `#[indexes((FIELDS, OPTIONS), …)]` for several of them.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Attribute, Ident, LitStr, Meta, Token, Type, parenthesized, token};

use super::keys::{self, Form, INDEX_KEYS, INDEX_LINTS, IndexKey, Key, Lint, Order};
use super::{
    Setting, complete, equals, fields, for_each_item, items, no_value, set, skip_row, string,
    value, word,
};
use crate::diagnostics::Diagnostics;
use crate::types::{shown, text};

/// The contents of one `#[index(…)]`.
pub(crate) struct IndexAttr {
    /// The word `index` itself, or the parentheses inside of `#[indexes(…)]`.
    pub(crate) span: Span,
    pub(crate) parts: Vec<PartAttr>,
    /// Whether a field could not be parsed, so that `parts` is incomplete.
    pub(crate) incomplete: bool,
    /// Whether a reported token may be intended as a field.
    pub(crate) reported: bool,
    /// Whether the attribute names the primary key, which has been reported.
    pub(crate) primary_key: bool,
    pub(crate) strategy: Option<Setting<LitStr>>,
    pub(crate) consistency: Option<Setting<LitStr>>,
    pub(crate) scope: Option<Setting<LitStr>>,
    pub(crate) include: Option<Setting<Vec<Ident>>>,
    pub(crate) name: Option<Setting<LitStr>>,
    pub(crate) filter: Option<Setting<Ident>>,
    pub(crate) unique: Option<Setting<()>>,
    pub(crate) sparse: Option<Setting<()>>,
    pub(crate) allow: Option<Setting<Vec<Lint>>>,
}

/// Reads the indexes of `#[indexes((town), (email, unique))]`. Clippy warns about a repeated word among the
/// items of an attribute, but ignores parentheses without a preceding word.
pub(super) fn read_several(attribute: &Attribute, errors: &Diagnostics) -> Vec<IndexAttr> {
    const USAGE: &str = "#[indexes((field), (field, unique))]";
    let mut indexes = Vec::new();
    for_each_item(attribute, USAGE, errors, |input| {
        if !input.peek(token::Paren) {
            let message = format!("expected an index in parentheses: `{USAGE}`");
            return Err(input.error(message));
        }
        let inner;
        let parentheses = parenthesized!(inner in input);
        let mut index = IndexAttr::new(parentheses.span.join());
        let read = items(&inner, errors, |input| index.item(input, errors));
        indexes.push(index);
        read
    });
    if indexes.is_empty() && errors.is_empty() {
        errors.error_on(attribute.path(), format!("there are no indexes in it: `{USAGE}`"));
    }
    indexes
}

/// An item at the position of a field.
pub(crate) struct PartAttr {
    pub(crate) kind: PartKind,
    /// Whether the item is after an option.
    pub(crate) late: bool,
}

/// The forms of a field.
pub(crate) enum PartKind {
    /// `town`
    Field(Ident),
    /// `each(cast)`
    Each(Ident),
    /// `desc(year)`
    Desc(Ident),
    /// `hash(url)`
    Hash(Ident),
    /// `computed(method: Type)`, alone or inside of `each` or `hash`.
    Computed { method: Ident, ty: Box<Type>, outer: Option<Outer> },
}

/// The form around `computed`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outer {
    /// `each(computed(method: Type))`
    Each,
    /// `hash(computed(method: Type))`
    Hash,
}

impl PartKind {
    /// Returns the name of the field, if there is one.
    pub(crate) fn field(&self) -> Option<&Ident> {
        match self {
            Self::Field(field) | Self::Each(field) | Self::Desc(field) | Self::Hash(field) => {
                Some(field)
            }
            Self::Computed { .. } => None,
        }
    }
}

impl IndexAttr {
    pub(super) fn read(attribute: &Attribute, errors: &Diagnostics) -> Self {
        let mut index = Self::new(attribute.path().span());
        // `#[index = "town"]` names fields in an unsupported way.
        index.incomplete = matches!(attribute.meta, Meta::NameValue(_));
        for_each_item(attribute, "#[index(field)]", errors, |input| index.item(input, errors));
        index
    }

    fn new(span: Span) -> Self {
        Self {
            span,
            parts: Vec::new(),
            incomplete: false,
            reported: false,
            primary_key: false,
            strategy: None,
            consistency: None,
            scope: None,
            include: None,
            name: None,
            filter: None,
            unique: None,
            sparse: None,
            allow: None,
        }
    }

    fn item(&mut self, input: ParseStream<'_>, errors: &Diagnostics) -> syn::Result<()> {
        if let Some(message) = literal_option(input) {
            self.reported = true;
            return Err(message);
        }
        if let Ok(group) = input.fork().parse::<Group>() {
            self.incomplete = true;
            let inside = shown(&text(group.stream()));
            let message = format!("write the fields alone: `#[index({inside})]`");
            return Err(syn::Error::new(group.delim_span().open(), message));
        }
        skip_row(input, "field", errors)?;
        let word = word(input, "a field or an option").inspect_err(|_| self.incomplete = true)?;
        // Compared with its `r#`, if it has one, because a field called `unique` is written `r#unique`.
        let name = word.to_string();
        self.primary_key |= name == "primary_key";
        let known = keys::find(INDEX_KEYS, &name);

        if input.peek(token::Paren) {
            if known.is_some_and(|key| key.id == IndexKey::Allow) {
                return set(&mut self.allow, &word, lints(input, INDEX_LINTS, errors)?);
            }
            return self.call(input, &word, known, errors);
        }
        if input.peek(Token![=]) {
            let Some(key) = known else {
                if let Some(message) = self.field_with_value(input, &word) {
                    return Err(message);
                }
                self.reported |= keys::is_no_option(&name);
                return Err(unknown(&word, Form::Value));
            };
            return self.option(input, &word, key, errors);
        }
        if let Some(key) = known
            && key.form == Form::Call
            && !input.is_empty()
            && !input.peek(Token![,])
        {
            self.incomplete = true;
            let word = input.fork().call(Ident::parse_any);
            let usage = word.map_or(key.usage.to_owned(), |word| format!("{}({word})", key.name));
            return Err(input.error(format!("expected `{usage}`")));
        }
        match known.map(|key| key.id) {
            Some(IndexKey::Unique) => set(&mut self.unique, &word, ()),
            Some(IndexKey::Sparse) => set(&mut self.sparse, &word, ()),
            _ if input.peek(Token![.]) => {
                self.incomplete = true;
                Err(input.error(format!(
                    "an index can only name fields of the row; for a field inside `{word}`, \
                     write a method that returns it: `computed(method: Type)`"
                )))
            }
            // Any other single word may be a field: `#[index(name)]`.
            _ => self.field(input, word),
        }
    }

    /// Adds a field whose order or option has the form of a value, `year = desc` or `email = unique`, and returns the error.
    fn field_with_value(&mut self, input: ParseStream<'_>, field: &Ident) -> Option<syn::Error> {
        if keys::ORDERS.contains(&field.to_string().as_str()) {
            return None;
        }
        let ahead = input.fork();
        ahead.parse::<Token![=]>().ok()?;
        let text = ahead.fork().parse::<LitStr>().map(|text| text.value());
        let value = text.or_else(|_| ahead.call(Ident::parse_any).map(|word| word.to_string()));
        let value = value.ok()?;
        let order = Order::of(&value);
        let message = if let Some(order) = order {
            order.usage(&field.to_string())
        } else if matches!(value.as_str(), "unique" | "sparse") {
            format!("this is written `#[index({field}, {value})]`")
        } else {
            return None;
        };
        let error = syn::Error::new(field.span(), message);
        self.push(match order {
            Some(Order::Descending) => PartKind::Desc(field.clone()),
            Some(Order::Ascending) | None => PartKind::Field(field.clone()),
        });
        let flag = match value.as_str() {
            "unique" => &mut self.unique,
            "sparse" => &mut self.sparse,
            _ => return Some(error),
        };
        *flag = Some(Setting { key: field.span(), value: () });
        Some(error)
    }

    /// Adds a field. A word after the field is an error: `year desc` is reported, and treated as
    /// `desc(year)`.
    fn field(&mut self, input: ParseStream<'_>, field: Ident) -> syn::Result<()> {
        let order = input.fork().parse().ok().and_then(|word: Ident| Order::of(&word.to_string()));
        let message = order.map(|order| order.usage(&field.to_string()));
        self.push(match order {
            Some(Order::Descending) => PartKind::Desc(field),
            Some(Order::Ascending) | None => PartKind::Field(field),
        });
        message.map_or(Ok(()), |message| Err(input.error(message)))
    }

    /// Reads `each(field)`, and similar forms.
    fn call(
        &mut self,
        input: ParseStream<'_>,
        word: &Ident,
        known: Option<&Key<IndexKey>>,
        errors: &Diagnostics,
    ) -> syn::Result<()> {
        let Some(key) = known else {
            self.incomplete = true;
            if keys::FIELDS.contains(&word.to_string().as_str()) {
                let inside = input.fork().parse::<Group>()?;
                let inside = shown(&text(inside.stream()));
                let message = format!("write the fields alone: `#[index({inside})]`");
                return Err(syn::Error::new(word.span(), message));
            }
            return Err(unknown(word, Form::Call));
        };
        if key.form != Form::Call {
            self.reported = true;
            let inside = input.fork().parse::<Group>();
            let inside = inside.map(|group| shown(&text(group.stream()))).unwrap_or_default();
            let written = match key.form {
                _ if inside.is_empty() => key.usage.to_owned(),
                Form::Flag if !self.parts.is_empty() => {
                    let before = self.parts.iter().filter_map(|part| part.kind.field());
                    let before: String =
                        before.flat_map(|field| [field.to_string(), ", ".to_owned()]).collect();
                    let message = format!(
                        "`{word}` takes no value; write all fields before it, \
                         `#[index({before}{inside}, {word})]`, or declare another index: \
                         `#[index({inside}, {word})]`"
                    );
                    return Err(syn::Error::new(word.span(), message));
                }
                Form::Flag => format!("#[index({inside}, {word})]"),
                Form::Value if key.id == IndexKey::Include => format!("{word} = [{inside}]"),
                Form::Value if inside.starts_with('"') || key.id == IndexKey::Filter => {
                    format!("{word} = {inside}")
                }
                _ => key.usage.to_owned(),
            };
            return Err(syn::Error::new(word.span(), format!("this is written `{written}`")));
        }
        let result = self.part(input, key, errors);
        self.incomplete |= result.is_err();
        result
    }

    fn part(
        &mut self,
        input: ParseStream<'_>,
        key: &Key<IndexKey>,
        errors: &Diagnostics,
    ) -> syn::Result<()> {
        let inner;
        let parentheses = parenthesized!(inner in input);
        if inner.is_empty() {
            let message = format!("expected a field: `{}`", key.usage);
            return Err(syn::Error::new(parentheses.span.join(), message));
        }
        let kind = complete(&inner, |inner| {
            let kind = Self::part_kind(inner, key, errors)?;
            if inner.is_empty() { Ok(kind) } else { Err(inner.error(expected(key))) }
        })?;
        self.push(kind);
        Ok(())
    }

    fn part_kind(
        inner: ParseStream<'_>,
        key: &Key<IndexKey>,
        errors: &Diagnostics,
    ) -> syn::Result<PartKind> {
        let (expects, what) = match key.id {
            IndexKey::Computed => ("a method", "method"),
            _ => ("a field", "field"),
        };
        skip_row(inner, what, errors)?;
        let field = word(inner, expects)?;
        if inner.peek(token::Paren) && key.id != IndexKey::Computed {
            let outer = match key.id {
                IndexKey::Each => Outer::Each,
                IndexKey::Hash => Outer::Hash,
                _ => return Err(nested(key, &field)),
            };
            let computed = keys::find(INDEX_KEYS, "computed").filter(|_| field == "computed");
            let Some(computed) = computed else { return Err(nested(key, &field)) };
            let method;
            parenthesized!(method in inner);
            return complete(&method, |method| {
                skip_row(method, "method", errors)?;
                let name = word(method, "a method")?;
                let kind = Self::computed(method, name, computed, Some(outer))?;
                if method.is_empty() { Ok(kind) } else { Err(method.error(expected(computed))) }
            });
        }
        Ok(match key.id {
            IndexKey::Desc => PartKind::Desc(field),
            IndexKey::Hash => PartKind::Hash(field),
            IndexKey::Computed => Self::computed(inner, field, key, None)?,
            _ => PartKind::Each(field),
        })
    }

    /// Reads the colon and the type after the name of a method.
    fn computed(
        input: ParseStream<'_>,
        method: Ident,
        key: &Key<IndexKey>,
        outer: Option<Outer>,
    ) -> syn::Result<PartKind> {
        input.parse::<Token![:]>().map_err(|error| {
            let message = format!("expected `computed({}: Type)`", method.unraw());
            syn::Error::new(error.span(), message)
        })?;
        let ty = value(input, "the type that the method returns", key.usage)?;
        Ok(PartKind::Computed { method, ty: Box::new(ty), outer })
    }

    /// Reads `strategy = "partial"`, and similar options.
    fn option(
        &mut self,
        input: ParseStream<'_>,
        word: &Ident,
        key: &Key<IndexKey>,
        errors: &Diagnostics,
    ) -> syn::Result<()> {
        match key.form {
            Form::Value => equals(input, word, key.usage)?,
            Form::Flag => {
                return no_value(input, word);
            }
            Form::Call => {
                self.incomplete = true;
                return Err(input.error(expected(key)));
            }
            Form::List => return Err(input.error(expected(key))),
        }
        match key.id {
            IndexKey::Strategy => set(&mut self.strategy, word, string(input, word, key.usage)?),
            IndexKey::Consistency => {
                set(&mut self.consistency, word, string(input, word, key.usage)?)
            }
            IndexKey::Scope => set(&mut self.scope, word, string(input, word, key.usage)?),
            IndexKey::Name => set(&mut self.name, word, string(input, word, key.usage)?),
            IndexKey::Filter => {
                let method = filter(input, key.usage, errors)?;
                set(&mut self.filter, word, method)
            }
            _ => set(&mut self.include, word, fields(input, key.usage, "an included item")?),
        }
    }

    fn push(&mut self, kind: PartKind) {
        let late = self.strategy.is_some()
            || self.consistency.is_some()
            || self.scope.is_some()
            || self.include.is_some()
            || self.name.is_some()
            || self.filter.is_some()
            || self.unique.is_some()
            || self.sparse.is_some()
            || self.allow.is_some();
        self.parts.push(PartAttr { kind, late });
    }
}

/// Reads the field or the computed value after `expires =`, as the only field of an index.
pub(super) fn expiry(
    input: ParseStream<'_>,
    usage: &str,
    errors: &Diagnostics,
) -> syn::Result<IndexAttr> {
    skip_row(input, "field", errors)?;
    let field = word(input, "a field with the time of expiry")?;
    let mut index = IndexAttr::new(field.span());
    if !input.peek(token::Paren) {
        index.push(PartKind::Field(field));
        return Ok(index);
    }
    let Some(computed) = keys::find(INDEX_KEYS, "computed").filter(|_| field == "computed") else {
        let message = format!("expected `{usage}` or `expires = computed(method: Type)`");
        return Err(syn::Error::new(field.span(), message));
    };
    index.part(input, computed, errors)?;
    Ok(index)
}

/// Reads the method of `filter`. Reports any tokens after the name.
fn filter(input: ParseStream<'_>, usage: &str, errors: &Diagnostics) -> syn::Result<Ident> {
    const WHAT: &str = "the name of a method";
    if let Ok(text) = input.fork().parse::<LitStr>() {
        let message = format!("expected {WHAT} without quotes: `filter = {}`", text.value());
        return Err(input.error(message));
    }
    skip_row(input, "method", errors)?;
    let method: Ident = value(input, WHAT, usage)?;
    if input.peek(token::Paren) {
        let called;
        let parentheses = parenthesized!(called in input);
        called.parse::<TokenStream>()?;
        let message = format!("write the method alone: `filter = {}`", method.unraw());
        errors.error(parentheses.span.join(), message);
    } else if !input.is_empty() && !input.peek(Token![,]) {
        errors.push(input.error(format!(
            "expected {WHAT} alone: `filter = method`, a method `fn(&self) -> bool`"
        )));
        while !input.is_empty() && !input.peek(Token![,]) {
            input.parse::<TokenTree>()?;
        }
    }
    Ok(method)
}

/// Returns the error for a literal such as `"full"`, which is the value of an option.
fn literal_option(input: ParseStream<'_>) -> Option<syn::Error> {
    let value = input.fork().parse::<LitStr>().ok()?.value();
    keys::option_of(&value).map(|option| {
        input.error(format!("expected a field or an option; did you mean `{option}`?"))
    })
}

/// Reads `(few_values, redundant)`. Unknown names are reported, and the other names apply.
pub(super) fn lints(
    input: ParseStream<'_>,
    known: &[(&str, Lint)],
    errors: &Diagnostics,
) -> syn::Result<Vec<Lint>> {
    let inner;
    let parentheses = parenthesized!(inner in input);
    let words: Punctuated<Ident, Token![,]> = complete(&inner, |inner| {
        inner.parse_terminated(|input| word(input, "an allowed warning"), Token![,])
    })?;
    if words.is_empty() {
        let example = known.iter().map(|(name, _)| *name).rfind(|name| *name != "doubled_full");
        let message = format!(
            "`allow` needs the name of a warning: `allow({})`",
            example.unwrap_or_default()
        );
        errors.error(parentheses.span.join(), message);
    }
    let lints = words.iter().filter_map(|word| {
        let name = word.to_string();
        let lint = known.iter().find(|(lint, _)| *lint == name);
        if lint.is_none() {
            errors.error(word.span(), keys::unknown_lint(&name, known));
        }
        lint.map(|(_, lint)| *lint)
    });
    Ok(lints.collect())
}

/// Returns the error for nested forms, such as `desc(each(tags))`.
fn nested(outer: &Key<IndexKey>, inner: &Ident) -> syn::Error {
    let name = inner.to_string();
    let both = |a: &str, b: &str| [a, b] == [outer.name, &name] || [b, a] == [outer.name, &name];
    let reason = if both("desc", "each") {
        "the elements of a collection are in ascending order; `rev()` reads an index backwards"
    } else if both("desc", "computed") {
        "the values of a method are in ascending order; a method that returns \
         `index_table::Desc<…>` sorts in descending order, and `rev()` reads an index backwards"
    } else if both("desc", "hash") {
        "hashes have no order to reverse"
    } else if both("each", "hash") {
        "the elements of a collection can't be hashed; only a whole field can"
    } else if both("computed", "hash") {
        "the method is inside: `hash(computed(method: Type))`"
    } else if both("computed", "each") {
        "the method is inside: `each(computed(method: Type))`"
    } else {
        "the forms of a field can't be nested"
    };
    syn::Error::new(inner.span(), format!("expected `{}`: {reason}", outer.usage))
}

fn expected(key: &Key<IndexKey>) -> String {
    format!("expected `{}`", key.usage)
}

fn unknown(word: &Ident, form: Form) -> syn::Error {
    syn::Error::new(word.span(), keys::unknown_in_index(&word.unraw().to_string(), form))
}
