//! `#[table(name = "…", was = "…", version = N, previous = Type, changed = [FIELDS], repository = Ident,
//! view = Ident, changes(…), shard_by = FIELDS, shard_map = "…", reference, part_of = Type, keep_unknown, allow(LINTS), crate =
//! path)]`

use proc_macro2::{Group, TokenStream};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, discouraged::Speculative as _};
use syn::{Attribute, Ident, LitInt, LitStr, Path, Token, bracketed, parenthesized, token};

use super::index::{IndexAttr, expiry, lints};
use super::keys::{self, CHANGES_KEYS, ChangesKey, Form, Lint, TABLE_KEYS, TABLE_LINTS, TableKey};
use super::{Setting, complete, equals, fields, for_each_item, no_value, set, string, value, word};
use crate::diagnostics::Diagnostics;
use crate::types::{shown, text};

/// The contents of `#[table(…)]`. Several attributes on one struct are merged.
#[derive(Default)]
pub(crate) struct TableAttr {
    pub(crate) name: Option<Setting<LitStr>>,
    /// The former names.
    pub(crate) was: Option<Setting<Vec<LitStr>>>,
    pub(crate) version: Option<Setting<LitInt>>,
    pub(crate) previous: Option<Setting<Path>>,
    pub(crate) changed: Option<Setting<Vec<Ident>>>,
    pub(crate) repository: Option<Setting<Ident>>,
    /// The view; its name, if it is given.
    pub(crate) view: Option<Setting<Option<Ident>>>,
    /// The index on the time of expiry; `None` if it could not be parsed.
    pub(crate) expires: Option<Setting<Option<IndexAttr>>>,
    pub(crate) changes: Option<Setting<ChangesAttr>>,
    pub(crate) shard_by: Option<Setting<ShardBy>>,
    pub(crate) shard_map: Option<Setting<LitStr>>,
    pub(crate) reference: Option<Setting<()>>,
    pub(crate) keep_unknown: Option<Setting<()>>,
    /// The struct of the rows of which the rows are parts.
    pub(crate) part_of: Option<Setting<Path>>,
    pub(crate) krate: Option<Setting<Path>>,
    pub(crate) allow: Option<Setting<Vec<Lint>>>,
    /// Whether the attribute names the primary key, which has been reported.
    pub(crate) primary_key: bool,
}

/// `changes`, or `changes(keep = "7d", bytes = 1_000_000_000)`, or `changes(until_consumed)`
#[derive(Default)]
pub(crate) struct ChangesAttr {
    pub(crate) keep: Option<Setting<LitStr>>,
    pub(crate) bytes: Option<Setting<LitInt>>,
    pub(crate) until_consumed: Option<Setting<()>>,
}

/// `shard_by = tenant`, `shard_by = [tenant, region]` or `shard_by = hash(id)`
pub(crate) struct ShardBy {
    pub(crate) fields: Vec<Ident>,
    pub(crate) hashed: bool,
}

/// The expected syntax of a name.
const IDENTIFIER: &str = "an identifier without quotes";

impl TableAttr {
    pub(super) fn read(&mut self, attribute: &Attribute, errors: &Diagnostics) {
        for_each_item(attribute, "#[table(name = \"…\")]", errors, |input| {
            self.item(input, errors)
        });
    }

    fn item(&mut self, input: ParseStream<'_>, errors: &Diagnostics) -> syn::Result<()> {
        if let Ok(name) = input.fork().parse::<LitStr>() {
            return Err(input.error(keys::name_of_table(&name.value())));
        }
        let word = word(input, "an option of the table")?;
        let Some(key) = keys::find(TABLE_KEYS, &word.unraw().to_string()) else {
            let name = word.unraw().to_string();
            self.primary_key |= name == "primary_key";
            let alone = input.is_empty() || input.peek(Token![,]);
            return Err(syn::Error::new(word.span(), keys::unknown_in_table(&name, alone)));
        };
        match key.form {
            Form::Value if input.peek(token::Paren) => {
                let value;
                let parentheses = parenthesized!(value in input);
                let inside = shown(&text(value.fork().parse::<TokenStream>()?));
                let message = format!("this is written `{} = {inside}`", key.name);
                // The name, so that it can be used.
                if key.id == TableKey::Repository {
                    set(&mut self.repository, &word, value.call(Ident::parse_any)?)?;
                }
                value.parse::<TokenStream>()?;
                return Err(syn::Error::new(parentheses.span.open(), message));
            }
            Form::Value => equals(input, &word, key.usage)?,
            Form::Flag if key.id != TableKey::View => no_value(input, &word)?,
            _ => {}
        }
        match key.id {
            TableKey::Name => set(&mut self.name, &word, string(input, &word, key.usage)?),
            TableKey::Was => {
                let was = strings(input, &word, key.usage)?;
                set(&mut self.was, &word, was)
            }
            TableKey::Version => {
                let version = value(input, "a whole number from 1 on", key.usage)?;
                set(&mut self.version, &word, version)
            }
            TableKey::Previous => {
                let previous = path(input, "the name of a struct", key.usage)?;
                set(&mut self.previous, &word, previous)
            }
            TableKey::Changed => {
                let changed = fields(input, key.usage, "an item that `From` changes")?;
                set(&mut self.changed, &word, changed)
            }
            TableKey::Repository => {
                let (repository, mistake) = identifier(input, key.usage);
                if let Some(repository) = repository {
                    set(&mut self.repository, &word, repository)?;
                }
                mistake.map_or(Ok(()), Err)
            }
            TableKey::View => self.view(input, &word, key.usage),
            TableKey::Expires => {
                let index = expiry(input, key.usage, errors);
                let (index, mistake) =
                    index.map_or_else(|it| (None, Some(it)), |it| (Some(it), None));
                set(&mut self.expires, &word, index)?;
                mistake.map_or(Ok(()), Err)
            }
            TableKey::Changes => {
                let changes = changes(input)?;
                set(&mut self.changes, &word, changes)
            }
            TableKey::ShardBy => {
                let shard_by = shard_by(input, key.usage)?;
                set(&mut self.shard_by, &word, shard_by)
            }
            TableKey::ShardMap => set(&mut self.shard_map, &word, string(input, &word, key.usage)?),
            TableKey::Reference => set(&mut self.reference, &word, ()),
            TableKey::KeepUnknown => set(&mut self.keep_unknown, &word, ()),
            TableKey::PartOf => {
                let whole = path(input, "the name of a struct", key.usage)?;
                set(&mut self.part_of, &word, whole)
            }
            TableKey::Allow if input.peek(token::Paren) => {
                set(&mut self.allow, &word, lints(input, TABLE_LINTS, errors)?)
            }
            TableKey::Allow => {
                let message = format!("this is written `{}`", key.usage);
                Err(syn::Error::new(word.span(), message))
            }
            TableKey::Crate => {
                let krate = path(input, "a path", key.usage)?;
                set(&mut self.krate, &word, krate)
            }
        }
    }

    /// Reads `view` or `view = CustomerView`.
    fn view(&mut self, input: ParseStream<'_>, word: &Ident, usage: &str) -> syn::Result<()> {
        if let Ok(group) = input.fork().parse::<Group>() {
            set(&mut self.view, word, None)?;
            let message = format!("this is written `view = {}`", shown(&text(group.stream())));
            return Err(syn::Error::new(group.span_open(), message));
        }
        if !input.peek(Token![=]) {
            return set(&mut self.view, word, None);
        }
        let (name, mistake) = match equals(input, word, usage) {
            Ok(()) => identifier(input, usage),
            Err(mistake) => (None, Some(mistake)),
        };
        // A view is requested, with any name.
        set(&mut self.view, word, name)?;
        mistake.map_or(Ok(()), Err)
    }
}

/// Reads an identifier. In quotes, it is an error with the name that is meant.
fn identifier(input: ParseStream<'_>, usage: &str) -> (Option<Ident>, Option<syn::Error>) {
    let quoted = input.fork().parse::<LitStr>().and_then(|text| text.parse::<Ident>());
    let at = input.span();
    let ahead = input.fork();
    if let Ok(path) = ahead.parse::<Path>()
        && let (Some(last), true) = (path.segments.last(), path.get_ident().is_none())
    {
        let message = format!(
            "this type is declared beside the struct; write its name alone: `{}`",
            last.ident
        );
        // The following tokens are after the path.
        input.advance_to(&ahead);
        return (Some(last.ident.clone()), Some(syn::Error::new(at, message)));
    }
    match value(input, IDENTIFIER, usage) {
        Ok(ident) => (Some(ident), None),
        Err(mistake) => (quoted.ok(), Some(mistake)),
    }
}

/// Reads the options after `changes`.
fn changes(input: ParseStream<'_>) -> syn::Result<ChangesAttr> {
    let mut changes = ChangesAttr::default();
    if !input.peek(token::Paren) {
        return Ok(changes);
    }
    let inner;
    parenthesized!(inner in input);
    complete(&inner, |inner| {
        while !inner.is_empty() {
            let word = word(inner, "an option of the change stream")?;
            let Some(key) = keys::find(CHANGES_KEYS, &word.to_string()) else {
                let message = format!(
                    "`changes` has no option `{word}`; it has `keep = \"7d\"`, `bytes = 1_000_000_000` and \
                     `until_consumed`"
                );
                return Err(syn::Error::new(word.span(), message));
            };
            if key.form == Form::Value {
                equals(inner, &word, key.usage)?;
            }
            match key.id {
                ChangesKey::Keep => {
                    set(&mut changes.keep, &word, string(inner, &word, key.usage)?)?;
                }
                ChangesKey::Bytes => {
                    let bytes = value(inner, "a number of bytes", key.usage)?;
                    set(&mut changes.bytes, &word, bytes)?;
                }
                ChangesKey::UntilConsumed => set(&mut changes.until_consumed, &word, ())?,
            }
            if !inner.is_empty() {
                inner.parse::<Token![,]>()?;
            }
        }
        Ok(())
    })?;
    Ok(changes)
}

/// Reads `"customers"` or `["customers", "buyers"]`.
fn strings(input: ParseStream<'_>, word: &Ident, usage: &str) -> syn::Result<Vec<LitStr>> {
    if !input.peek(token::Bracket) {
        return string(input, word, usage).map(|only| vec![only]);
    }
    let inner;
    bracketed!(inner in input);
    complete(&inner, |inner| {
        let mut strings = Vec::new();
        while !inner.is_empty() {
            strings.push(value(inner, "a string", "was = [\"customers\", \"buyers\"]")?);
            if !inner.is_empty() {
                inner.parse::<Token![,]>()?;
            }
        }
        Ok(strings)
    })
}

/// Reads a path, or returns an error on the token with the syntax of the key.
fn path(input: ParseStream<'_>, what: &str, usage: &str) -> syn::Result<Path> {
    let at = input.span();
    Path::parse_mod_style(input)
        .map_err(|_| syn::Error::new(at, format!("expected {what} without quotes: `{usage}`")))
}

/// Reads a shard key.
fn shard_by(input: ParseStream<'_>, usage: &str) -> syn::Result<ShardBy> {
    if input.peek(token::Bracket) {
        let fields = fields(input, "shard_by = [field, field]", "a part of a shard key")?;
        return Ok(ShardBy { fields, hashed: false });
    }
    if input.peek(LitStr) {
        return Err(input.error(format!("expected a field without quotes: `{usage}`")));
    }
    let first = word(input, "a field of the primary key")?;
    if !input.peek(token::Paren) {
        return Ok(ShardBy { fields: vec![first], hashed: false });
    }
    if first != "hash" {
        let message = format!(
            "a shard key has no `{first}(…)`; write the field alone, or `shard_by = hash(field)`"
        );
        return Err(syn::Error::new(first.span(), message));
    }
    let inner;
    parenthesized!(inner in input);
    complete(&inner, |inner| {
        let mut fields = Vec::new();
        while !inner.is_empty() {
            fields.push(word(inner, "a field of the primary key")?);
            if !inner.is_empty() {
                inner.parse::<Token![,]>()?;
            }
        }
        if fields.is_empty() {
            let message = "expected a field of the primary key: `shard_by = hash(field)`";
            return Err(syn::Error::new(first.span(), message));
        }
        Ok(ShardBy { fields, hashed: true })
    })
}
