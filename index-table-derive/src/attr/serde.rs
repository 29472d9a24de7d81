//! The serde attributes that change how a row is stored.
//!
//! serde checks its attributes, so an attribute that can't be parsed is ignored.

use proc_macro2::{Group, Span, TokenStream};
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, ExprPath, Ident, Lit, MetaNameValue, Token, token};

/// One item in a `#[serde(…)]`.
#[derive(Clone)]
pub(crate) struct SerdeKey {
    pub(crate) name: String,
    pub(crate) span: Span,
    /// The whole item: `default`, `with = "path"` or `rename(serialize = "name")`.
    pub(crate) item: TokenStream,
    /// The value, if it is a path.
    pub(crate) path: Option<ExprPath>,
    /// The text of the value, or of `deserialize = "…"` in the list.
    pub(crate) text: Option<String>,
    /// The text of the value, or of `serialize = "…"` in the list.
    pub(crate) written: Option<String>,
}

/// Reads the items of all `#[serde(…)]` in `attributes`.
pub(crate) fn read(attributes: &[Attribute]) -> Vec<SerdeKey> {
    let mut keys = Vec::new();
    for attribute in attributes {
        if !attribute.path().is_ident("serde") {
            continue;
        }
        let read = attribute.parse_nested_meta(|meta| {
            let key = &meta.path;
            let (mut item, mut path) = (key.to_token_stream(), None);
            let (mut text, mut written) = (None, None);
            if meta.input.peek(Token![=]) {
                let value = meta.value()?.parse::<Expr>()?;
                path = in_quotes(&value);
                text = text_of(&value);
                written.clone_from(&text);
                item = quote!(#key = #value);
            } else if meta.input.peek(token::Paren) {
                let list = meta.input.parse::<Group>()?;
                text = text_in("deserialize", list.stream());
                written = text_in("serialize", list.stream());
                item = quote!(#key #list);
            }
            if let Some(word) = key.get_ident() {
                let name = word.unraw().to_string();
                keys.push(SerdeKey { name, span: word.span(), item, path, text, written });
            }
            Ok(())
        });
        // Serde reports the mistake. The items before it still count.
        drop(read);
    }
    keys
}

/// Returns the names by which serde reads a field: its name in the row, and then its aliases.
pub(crate) fn names_of(field: &Ident, keys: &[SerdeKey], on_struct: &[SerdeKey]) -> Vec<String> {
    let name = name_of(field, keys, on_struct, |key| key.text.as_deref());
    let aliases = keys.iter().filter(|key| key.name == "alias");
    [name].into_iter().chain(aliases.filter_map(|key| key.text.clone())).collect()
}

/// Whether serde has a value for a row that lacks a field.
pub(crate) fn has_default(keys: &[SerdeKey], on_struct: &[SerdeKey]) -> bool {
    let is_default = |key: &SerdeKey| key.name == "default";
    let is_unread = |key: &SerdeKey| ["skip", "skip_deserializing"].contains(&key.name.as_str());
    keys.iter().any(|key| is_default(key) || is_unread(key)) || on_struct.iter().any(is_default)
}

/// Whether a function reads a field.
pub(crate) fn has_function(keys: &[SerdeKey]) -> bool {
    keys.iter().any(|key| ["with", "deserialize_with"].contains(&key.name.as_str()))
}

/// Returns the name that serde writes for a field.
pub(crate) fn written_name(field: &Ident, keys: &[SerdeKey], on_struct: &[SerdeKey]) -> String {
    name_of(field, keys, on_struct, |key| key.written.as_deref())
}

/// Returns the name of a field by `rename` or `rename_all`, whose text `text` returns.
fn name_of(
    field: &Ident,
    keys: &[SerdeKey],
    on_struct: &[SerdeKey],
    text: impl Fn(&SerdeKey) -> Option<&str>,
) -> String {
    let find = |keys: &[SerdeKey], name: &str| {
        keys.iter().filter(|key| key.name == name).find_map(|key| text(key).map(str::to_owned))
    };
    find(keys, "rename").unwrap_or_else(|| {
        renamed(&field.unraw().to_string(), find(on_struct, "rename_all").as_deref())
    })
}

/// Applies a rule of `rename_all`. serde reports an unknown one.
fn renamed(field: &str, rule: Option<&str>) -> String {
    let capitalized = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    let pascal = || field.split('_').map(capitalized).collect::<String>();
    match rule.unwrap_or_default() {
        "UPPERCASE" | "SCREAMING_SNAKE_CASE" => field.to_ascii_uppercase(),
        "PascalCase" => pascal(),
        "camelCase" => {
            let pascal = pascal();
            let mut letters = pascal.chars();
            let first = letters.next().map(|first| first.to_ascii_lowercase());
            first.into_iter().chain(letters).collect()
        }
        "kebab-case" => field.replace('_', "-"),
        "SCREAMING-KEBAB-CASE" => field.to_ascii_uppercase().replace('_', "-"),
        _ => field.to_owned(),
    }
}

/// Returns the text in `"text"`, even inside an invisible group of `macro_rules!`.
fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Group(group) => text_of(&group.expr),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Returns the text of `name = "text"` in a list.
fn text_in(name: &str, list: TokenStream) -> Option<String> {
    let values = Punctuated::<MetaNameValue, Token![,]>::parse_terminated;
    let values = values.parse2(list).ok()?;
    values.iter().find(|it| it.path.is_ident(name)).and_then(|it| text_of(&it.value))
}

/// Returns the path in `"path::to"`, even inside an invisible group of `macro_rules!`.
fn in_quotes(value: &Expr) -> Option<ExprPath> {
    match value {
        Expr::Group(group) => in_quotes(&group.expr),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.parse().ok(),
        _ => None,
    }
}
