//! The conversion of tokens to attributes. It checks only the grammar; [`lower`](crate::lower) determines the
//! meaning of an attribute for its struct.
//!
//! A mistake in one item of an attribute is reported, and parsing continues after the next comma, so that one
//! attribute can report several mistakes.

pub(crate) mod aggregate;
pub(crate) mod index;
pub(crate) mod key;
pub(crate) mod keys;
pub(crate) mod reference;
pub(crate) mod serde;
pub(crate) mod table;
pub(crate) mod words;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::spanned::Spanned as _;
use syn::{Attribute, Field, Ident, LitBool, LitStr, Meta, Path, Token, bracketed, token};

use self::aggregate::AggregateAttr;
use self::index::IndexAttr;
use self::reference::ReferenceAttr;
use self::serde::SerdeKey;
use self::table::TableAttr;
use crate::diagnostics::{Diagnostics, edit_distance};
use crate::types::{shown, text};

/// A key with its value. Each has its own span.
pub(crate) struct Setting<T> {
    /// The span of the key.
    pub(crate) key: Span,
    pub(crate) value: T,
}

/// The attributes on the struct.
pub(crate) struct StructAttrs {
    pub(crate) table: TableAttr,
    pub(crate) indexes: Vec<IndexAttr>,
    pub(crate) aggregates: Vec<AggregateAttr>,
    pub(crate) references: Vec<ReferenceAttr>,
    pub(crate) serde: Vec<SerdeKey>,
    /// Whether the struct has `#[primary_key]`, which has been reported.
    pub(crate) primary_key: bool,
}

/// The attributes on one field.
pub(crate) struct FieldAttrs {
    /// The span of `#[primary_key]`.
    pub(crate) primary_key: Option<Span>,
    /// An attribute such as `#[id]`, which may belong to another derive.
    pub(crate) similar: Option<Similar>,
    /// The span of `#[revision]`.
    pub(crate) revision: Option<Span>,
    pub(crate) references: Vec<ReferenceAttr>,
    pub(crate) serde: Vec<SerdeKey>,
}

/// Reads the attributes on the struct.
pub(crate) fn on_struct(attributes: &[Attribute], errors: &Diagnostics) -> StructAttrs {
    let mut table = TableAttr::default();
    let (mut indexes, mut aggregates) = (Vec::new(), Vec::new());
    let mut references = Vec::new();
    let mut primary_key = false;
    for attribute in attributes {
        let path = attribute.path();
        if path.is_ident("table") {
            table.read(attribute, errors);
        } else if path.is_ident("index") {
            indexes.push(IndexAttr::read(attribute, errors));
        } else if path.is_ident("indexes") {
            indexes.extend(index::read_several(attribute, errors));
        } else if path.is_ident("aggregate") {
            aggregates.push(AggregateAttr::read(attribute, errors));
        } else if path.is_ident("references") {
            references.push(ReferenceAttr::read(attribute, errors));
        } else if path.is_ident("primary_key") {
            errors.error_on(path, keys::MARK_PRIMARY_KEY);
            primary_key = true;
        } else if path.is_ident("revision") {
            errors.error_on(path, "`#[revision]` is written on the field with the revision");
        } else if is_misspelt(path, "index") {
            indexes.extend(as_meant(|errors| IndexAttr::read(attribute, errors)));
        } else if is_misspelt(path, "aggregate") {
            aggregates.extend(as_meant(|errors| AggregateAttr::read(attribute, errors)));
        }
    }
    primary_key |= table.primary_key || indexes.iter().any(|index| index.primary_key);
    StructAttrs {
        table,
        indexes,
        aggregates,
        references,
        serde: serde::read(attributes),
        primary_key,
    }
}

/// Whether an attribute is unknown, and has one wrong letter. The compiler reports it, and corrects it.
fn is_misspelt(path: &Path, name: &str) -> bool {
    path.get_ident().is_some_and(|word| edit_distance(&word.to_string(), name) == 1)
}

/// Reads a misspelt attribute, so that the methods exist that the program calls. With another mistake, it is ignored.
fn as_meant<A>(read: impl FnOnce(&Diagnostics) -> A) -> Option<A> {
    let errors = Diagnostics::new();
    let attribute = read(&errors);
    errors.finish().take_first().is_none().then_some(attribute)
}

/// An attribute that may stand for `#[primary_key]`.
#[derive(Clone, Copy)]
pub(crate) struct Similar {
    pub(crate) span: Span,
    /// Whether the compiler reports it, because no derive has it.
    pub(crate) is_reported: bool,
}

/// Reads the attributes on a field.
pub(crate) fn on_field(field: &Field, errors: &Diagnostics) -> FieldAttrs {
    let (mut primary_key, mut similar) = (None, None);
    let mut revision = None;
    let mut references = Vec::new();
    let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
    for attribute in &field.attrs {
        let path = attribute.path();
        let word = path.get_ident().map(ToString::to_string).unwrap_or_default();
        if ["primary", "primarykey", "pk", "id", "key"].contains(&word.as_str()) {
            similar = similar.or(Some(Similar { span: path.span(), is_reported: false }));
        } else if path.is_ident("primary_key") {
            if primary_key.is_some() {
                errors.error_on(path, "this field is in the primary key already");
            }
            primary_key = primary_key.or(Some(path.span()));
            arguments_of_primary_key(attribute, errors);
        } else if path.is_ident("revision") {
            if revision.is_some() {
                errors.error_on(path, "this field is marked already");
            }
            revision = revision.or(Some(path.span()));
            if !matches!(attribute.meta, Meta::Path(_)) {
                errors.error_on(attribute, "`#[revision]` takes no arguments");
            }
        } else if ["index", "indexes"].contains(&word.as_str()) {
            let options = arguments(attribute);
            let after = options.strip_prefix(&name);
            let after = after.filter(|after| after.is_empty() || after.starts_with(','));
            let options = after.unwrap_or(&options);
            let comma = if options.is_empty() || options.starts_with(',') { "" } else { ", " };
            let index = format!("#[index({name}{comma}{options})]");
            errors.error_on(path, words::on_the_struct(&index));
        } else if path.is_ident("references") {
            references.push(ReferenceAttr::read(attribute, errors));
        } else if path.is_ident("aggregate") {
            let message = "`#[aggregate(…)]` is written on the struct";
            errors.error_on(path, message);
        } else if path.is_ident("table") {
            errors.error_on(path, "`#[table(…)]` is written on the struct");
        } else if similar.is_none() && edit_distance(&word, "primary_key") == 1 {
            // The compiler reports an unknown attribute.
            similar = Some(Similar { span: path.span(), is_reported: true });
        }
    }
    FieldAttrs { primary_key, similar, revision, references, serde: serde::read(&field.attrs) }
}

/// The message about a field that is marked by another word.
pub(crate) const IS_PRIMARY_KEY: &str = "this is written `#[primary_key]`";

/// Returns the text in the parentheses of an attribute.
fn arguments(attribute: &Attribute) -> String {
    match &attribute.meta {
        Meta::List(list) => shown(&text(&list.tokens)),
        Meta::Path(_) | Meta::NameValue(_) => String::new(),
    }
}

fn arguments_of_primary_key(attribute: &Attribute, errors: &Diagnostics) {
    const MESSAGE: &str = "`#[primary_key]` takes no arguments; several fields make a composite \
                           key, in the order of their declaration";
    match &attribute.meta {
        Meta::Path(_) => {}
        Meta::List(list) => errors.error(list.delimiter.span().join(), MESSAGE),
        Meta::NameValue(pair) => errors.error_on(&pair.value, MESSAGE),
    }
}

/// Calls `item` for each of the comma-separated items of an attribute.
///
/// `item` parses one item. If it returns an error, the error is reported, and parsing continues after the
/// next comma.
fn for_each_item(
    attribute: &Attribute,
    usage: &str,
    errors: &Diagnostics,
    item: impl FnMut(ParseStream<'_>) -> syn::Result<()>,
) {
    let list = match &attribute.meta {
        Meta::Path(_) => return,
        Meta::List(list) => list,
        Meta::NameValue(pair) => {
            errors.error(pair.eq_token.span, format!("expected a list: `{usage}`"));
            return;
        }
    };
    let read = |input: ParseStream<'_>| items(input, errors, item);
    if let Err(error) = read.parse2(list.tokens.clone()) {
        errors.push(error);
    }
}

/// Like [`for_each_item`], for the contents of parentheses.
fn items(
    input: ParseStream<'_>,
    errors: &Diagnostics,
    mut item: impl FnMut(ParseStream<'_>) -> syn::Result<()>,
) -> syn::Result<()> {
    while !input.is_empty() {
        match item(input) {
            Ok(()) if input.is_empty() || input.peek(Token![,]) => {}
            Ok(()) => errors.push(after_item(input)),
            Err(error) => errors.push(error),
        }
        while !input.is_empty() && !input.peek(Token![,]) {
            input.parse::<TokenTree>()?;
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

/// Returns the error about a token after an item.
fn after_item(input: ParseStream<'_>) -> syn::Error {
    let message = match input.fork().parse::<TokenTree>() {
        Ok(TokenTree::Ident(word)) => format!("expected `,` before `{word}`"),
        Ok(TokenTree::Punct(token)) => {
            format!("expected `,`, which separates items, and found `{token}`")
        }
        _ => "expected `,`".to_owned(),
    };
    input.error(message)
}

/// Returns an error if a word that takes no value has one.
fn no_value(input: ParseStream<'_>, word: &Ident) -> syn::Result<()> {
    if !input.peek(Token![=]) {
        return Ok(());
    }
    let ahead = input.fork();
    ahead.parse::<Token![=]>()?;
    let is_false = ahead.parse::<LitBool>().is_ok_and(|value| !value.value);
    let advice = if is_false { "remove it" } else { "write the word alone" };
    Err(input.error(format!("`{word}` takes no value; {advice}")))
}

/// Stores a setting, or returns an error if the key has a value already.
fn set<T>(slot: &mut Option<Setting<T>>, key: &Ident, value: T) -> syn::Result<()> {
    if slot.is_some() {
        return Err(syn::Error::new(key.span(), format!("`{}` is given twice", key.unraw())));
    }
    *slot = Some(Setting { key: key.span(), value });
    Ok(())
}

/// Reads the `=` before a value, or returns an error with the syntax of the key.
fn equals(input: ParseStream<'_>, key: &Ident, usage: &str) -> syn::Result<()> {
    if input.peek(Token![=]) {
        input.parse::<Token![=]>()?;
        if !input.is_empty() {
            return Ok(());
        }
    }
    Err(syn::Error::new(key.span(), format!("`{}` needs a value: `{usage}`", key.unraw())))
}

/// Reads a value of type `T`, or returns an error on the token with the syntax of the key.
fn value<T: syn::parse::Parse>(input: ParseStream<'_>, what: &str, usage: &str) -> syn::Result<T> {
    let at = input.span();
    input.parse().map_err(|_| syn::Error::new(at, format!("expected {what}: `{usage}`")))
}

/// Reads a string literal.
fn string(input: ParseStream<'_>, key: &Ident, usage: &str) -> syn::Result<LitStr> {
    if let Ok(word) = Ident::parse_any(&input.fork()) {
        let message = format!("expected a string: `{} = \"{}\"`", key.unraw(), word.unraw());
        return Err(input.error(message));
    }
    value(input, "a string", usage)
}

/// Reads a word, which may be a keyword: `crate` is a key of `#[table(…)]`.
fn word(input: ParseStream<'_>, expected: &str) -> syn::Result<Ident> {
    if let Ok(text) = input.fork().parse::<LitStr>() {
        let text = text.value();
        return Err(input.error(format!("expected {expected} without quotes: `{text}`")));
    }
    let at = input.span();
    Ident::parse_any(input).map_err(|_| syn::Error::new(at, format!("expected {expected}")))
}

/// Skips the prefix of a field or a method: `self.town`, `Customer::town`, `&town`. The prefix is reported
/// together with the word.
fn skip_row(input: ParseStream<'_>, what: &str, errors: &Diagnostics) -> syn::Result<()> {
    let at = input.span();
    let mut found = false;
    loop {
        let ahead = input.fork();
        if ahead.parse::<Token![&]>().is_ok() {
            input.parse::<Token![&]>()?;
        } else if ahead.call(Ident::parse_any).is_ok()
            && (ahead.peek(Token![::]) || (ahead.peek(Token![.]) && input.peek(Token![self])))
        {
            input.call(Ident::parse_any)?;
            if input.parse::<Option<Token![::]>>()?.is_none() {
                input.parse::<Token![.]>()?;
            }
        } else {
            break;
        }
        found = true;
    }
    let ahead = input.fork();
    if let (true, Ok(word)) = (found, ahead.call(Ident::parse_any))
        && !ahead.peek(Token![.])
    {
        errors.error(at, format!("write the {what} alone: `{}`", word.unraw()));
    }
    Ok(())
}

/// Reads `[a, b]`. `what` describes an item of the list, for the message about a field in another form.
fn fields(input: ParseStream<'_>, usage: &str, what: &str) -> syn::Result<Vec<Ident>> {
    if !input.peek(token::Bracket) {
        let example = match input.fork().call(Ident::parse_any) {
            Ok(word) => usage.replace("[field]", &format!("[{word}]")),
            Err(_) => usage.to_owned(),
        };
        return Err(input.error(format!("expected a list of fields: `{example}`")));
    }
    let inner;
    bracketed!(inner in input);
    complete(&inner, |inner| {
        let mut fields = Vec::new();
        while !inner.is_empty() {
            let field = word(inner, "a field")?;
            if inner.peek(token::Paren) {
                let message = format!("{what} must be a field of the row, in no other form");
                return Err(syn::Error::new(field.span(), message));
            }
            fields.push(field);
            if !inner.is_empty() {
                inner.parse::<Token![,]>()?;
            }
        }
        Ok(fields)
    })
}

/// Reads the contents of brackets. After a mistake, the remaining tokens are skipped, because syn would
/// report them as another mistake.
fn complete<T>(
    inner: ParseStream<'_>,
    read: impl FnOnce(ParseStream<'_>) -> syn::Result<T>,
) -> syn::Result<T> {
    let result = read(inner);
    if result.is_err() {
        inner.parse::<TokenStream>()?;
    }
    result
}
