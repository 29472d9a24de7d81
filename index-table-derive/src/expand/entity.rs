//! `impl Entity`: the schema of a table, and the keys and entries of a row.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::Ident;

use super::{
    Context, aggregate, at, changes, collections, expiry, hashed, methods, reference, requirements,
    revision, version,
};
use crate::model::{Field, Index, KeyPart, Sharding, Strategy};
use crate::names;

/// Expands to:
///
/// ```text
/// impl _index_table::Entity for Customer {
///     type Key = u64;
///     const TABLE: &'static _index_table::TableSchema = &_index_table::TableSchema { … };
///     const RELEASE: _index_table::Release = …;
///     fn encode(&self, __out: _index_table::RowOutput<'_>) -> … { … }
///     fn decode(__body: _index_table::RowBody<'_>) -> … { … }
///     fn primary_key(&self, __key: &mut _index_table::KeyBuf) { … }
///     fn entries(&self, __index: usize, __entries: &mut _index_table::EntryBuffer) -> … { … }
/// }
/// ```
///
/// If there are sorted collections, hashed fields or a previous version, also expands to
/// [`collections::list`], [`hashed::methods`] and [`version::older`].
pub(super) fn implementation(cx: &Context<'_>) -> TokenStream {
    let row = &cx.table.row;
    let key = key_type(cx);
    let schema = schema(cx);
    let distribution = distribution(cx);
    let expiry = expiry::constant(cx);
    let stream = changes::constant(cx);
    let revision = revision::constant(cx);
    let aggregates = aggregate::constant(cx);
    let references = reference::constant(cx);
    let collections = collections::list(cx.table);
    let encode = collections::encode(cx.table);
    let reads_back = cx.table.reads_back.then(|| {
        mixed!(
            const READS_BACK: bool = true;
        )
    });
    let keeps_unknown = cx.table.keeps_unknown.then(|| {
        mixed!(
            const KEEPS_UNKNOWN: bool = true;
        )
    });
    let primary_key = primary_key(cx);
    let entries = entries(cx);
    let hashed = hashed::methods(cx);
    let decode = version::decode();
    let older = version::older(cx.table.previous.as_ref());
    let conditions = requirements::conditions(cx, &cx.short);
    let methods = methods::checks(cx);
    mixed! {
        #methods

        #[automatically_derived]
        impl _index_table::Entity for #row #conditions {
            type Key = #key;

            const TABLE: &'static _index_table::TableSchema = &#schema;

            const RELEASE: _index_table::Release = _index_table::Release::new(
                ::core::option_env!("CARGO_PKG_NAME"),
                ::core::option_env!("CARGO_PKG_VERSION"),
            );

            #distribution

            #expiry

            #stream

            #revision

            #aggregates

            #references

            #collections

            #reads_back

            #keeps_unknown

            #[inline]
            fn encode(
                &self,
                __out: _index_table::RowOutput<'_>,
            ) -> _index_table::Result<(), _index_table::EncodeError> {
                #encode
            }

            #decode

            fn primary_key(&self, __key: &mut _index_table::KeyBuf) {
                #primary_key
            }

            #entries
            #hashed
            #older
        }
    }
}

/// Expands to the other traits of a row.
pub(super) fn traits(cx: &Context<'_>) -> TokenStream {
    let expires = expiry::implementation(cx);
    let streamed = changes::implementation(cx);
    let part = reference::implementation(cx);
    let revised = revision::implementation(cx);
    mixed!(#expires #streamed #part #revised)
}

/// Expands to, for a table with a shard key, or with `Distribution::Reference` for a reference table:
///
/// ```text
/// const DISTRIBUTION: _index_table::Distribution =
///     _index_table::Distribution::ByKey(_index_table::ShardKey {
///         fields: 1,
///         hashed: false,
///         map: "customers",
///         global: &[2],
///     });
/// ```
fn distribution(cx: &Context<'_>) -> Option<TokenStream> {
    if cx.table.reference {
        return Some(mixed! {
            const DISTRIBUTION: _index_table::Distribution = _index_table::Distribution::Reference;
        });
    }
    let Sharding { fields, hashed, map } = cx.table.sharding.as_ref()?;
    let fields = Literal::usize_unsuffixed(*fields);
    let global = cx.table.indexes.iter().filter(|index| index.global.is_some());
    let global = global.map(|index| Literal::usize_unsuffixed(index.position));
    Some(mixed! {
        const DISTRIBUTION: _index_table::Distribution =
            _index_table::Distribution::ByKey(_index_table::ShardKey {
                fields: #fields,
                hashed: #hashed,
                map: #map,
                global: &[#(#global),*],
            });
    })
}

/// Expands to `__key.push(&self.id);`.
fn primary_key(cx: &Context<'_>) -> TokenStream {
    if !cx.table.storable {
        return mixed!(loop {});
    }
    let values = cx.table.primary_key.iter().map(|field| value(field));
    mixed!(__key #(.push(#values))*;)
}

/// Expands to the type of the only field, or to the tuple of all types: `(String, u32)`.
pub(super) fn key_type(cx: &Context<'_>) -> TokenStream {
    tuple(cx.table.primary_key.iter().map(|field| field.ty.tokens(&cx.short)))
}

/// Expands to the only type, or to the tuple of all types.
pub(super) fn tuple(types: impl Iterator<Item = TokenStream>) -> TokenStream {
    let types: Vec<_> = types.collect();
    match types.as_slice() {
        [one] => one.clone(),
        several => mixed!((#(#several),*)),
    }
}

/// Expands to:
///
/// ```text
/// _index_table::TableSchema {
///     name: "customers",
///     was: &[],
///     version: 1,
///     fields: &[_index_table::FieldSchema::new::<u64>("id", "u64")],
///     previous: ::core::option::Option::None,
///     changed: &[],
///     primary_key: &[_index_table::KeyField::new::<u64>("id")],
///     indexes: &[…],
///     aggregates: Self::AGGREGATES,
/// }
/// ```
fn schema(cx: &Context<'_>) -> TokenStream {
    let table = cx.table;
    let (name, was) = (&table.name, &table.was);
    let version = Literal::u32_unsuffixed(table.version);
    let fields = table.fields.iter().map(|field| version::schema_of_field(field, &cx.short));
    let previous = version::previous(table.previous.as_ref());
    let changed = &table.changed;
    let primary_key = table.primary_key.iter().map(|field| plain_key_field(cx, field));
    let indexes = table.indexes.iter().map(|index| index_schema(cx, index));
    mixed! {
        _index_table::TableSchema {
            name: #name,
            was: &[#(#was),*],
            version: #version,
            fields: &[#(#fields),*],
            previous: #previous,
            changed: &[#(#changed),*],
            primary_key: &[#(#primary_key),*],
            indexes: &[#(#indexes),*],
            aggregates: Self::AGGREGATES,
        }
    }
}

/// Expands to:
///
/// ```text
/// _index_table::IndexSchema {
///     name: "town",
///     key: &[_index_table::KeyField::new::<String>("town")],
///     strategy: _index_table::Strategy::Partial(&["phone"]),
///     unique: false,
///     eventual: false,
///     conditions: &[],
///     findings: &[],
/// }
/// ```
fn index_schema(cx: &Context<'_>, index: &Index) -> TokenStream {
    let (name, unique, eventual) = (&index.name, index.unique, index.eventual);
    let key = index.parts.iter().map(|part| match part {
        KeyPart::Plain(field) => plain_key_field(cx, field),
        KeyPart::Desc(field) => {
            let (ty, name) = (field.ty.tokens(&cx.short), &field.name);
            mixed!(_index_table::KeyField::desc::<#ty>(#name))
        }
        KeyPart::Each(field, _) => {
            let (ty, name) = (field.ty.tokens(&cx.short), &field.name);
            mixed!(_index_table::KeyField::each::<#ty>(#name))
        }
        KeyPart::Computed(method) => {
            let (ty, name) = (method.ty.tokens(&cx.short), &method.name);
            mixed!(_index_table::KeyField::computed::<#ty>(#name))
        }
        KeyPart::Hash(field) => {
            let (ty, name) = (field.ty.tokens(&cx.short), &field.name);
            mixed!(_index_table::KeyField::hash::<#ty>(#name))
        }
        KeyPart::EachComputed(method, _) => {
            let (ty, name) = (method.ty.tokens(&cx.short), &method.name);
            mixed!(_index_table::KeyField::each_computed::<#ty>(#name))
        }
        KeyPart::HashComputed(method) => {
            let (ty, name) = (method.ty.tokens(&cx.short), &method.name);
            mixed!(_index_table::KeyField::hash_computed::<#ty>(#name))
        }
    });
    let strategy = match &index.strategy {
        Strategy::Normalized => mixed!(Normalized),
        Strategy::Partial(included) => {
            let names = included.iter().map(|field| &field.name);
            mixed!(Partial(&[#(#names),*]))
        }
        Strategy::Full => mixed!(Full),
    };
    let sparse = index.conditions.sparse.map(|_| mixed!(_index_table::Condition::Sparse));
    let filter = index.conditions.filter.as_ref().map(|method| {
        let name = names::plain(method);
        mixed!(_index_table::Condition::Filter(#name))
    });
    let conditions = sparse.into_iter().chain(filter);
    let findings = index.findings.iter().map(|finding| &finding.text);
    mixed! {
        _index_table::IndexSchema {
            name: #name,
            key: &[#(#key),*],
            strategy: _index_table::Strategy::#strategy,
            unique: #unique,
            eventual: #eventual,
            conditions: &[#(#conditions),*],
            findings: &[#(#findings),*],
        }
    }
}

pub(super) fn plain_key_field(cx: &Context<'_>, field: &Field) -> TokenStream {
    let (ty, name) = (field.ty.tokens(&cx.short), &field.name);
    mixed!(_index_table::KeyField::new::<#ty>(#name))
}

/// Expands to:
///
/// ```text
/// fn entries(&self, __index: usize, __entries: &mut _index_table::EntryBuffer) -> … {
///     let _ = &self.town;
///     let _ = &self.phone;
///     match __index {
///         0 => {
///             __entries.include(&["phone"]);
///             __entries.key().push(&self.town);
///         }
///         1 => for __element in _index_table::Each::elements(&self.cast) {
///             __entries.key().push(__element);
///         },
///         2 => if _index_table::filter(self.is_active()) {
///             let __computed0: String = _index_table::computed(self.initials());
///             if _index_table::Key::is_present(&self.nick) {
///                 __entries.key().push(&__computed0).push_desc(&self.nick);
///             }
///         },
///         3 => {
///             let __hash0 = __entries.hash(&self.url);
///             __entries.key().push(&__hash0);
///         }
///         _ => {}
///     }
///     _index_table::Ok(())
/// }
/// ```
fn entries(cx: &Context<'_>) -> TokenStream {
    let first = cx.table.indexes.len();
    let aggregates = cx.table.aggregates.iter().enumerate();
    let aggregates = aggregates.map(|(at, it)| aggregate::arm(first + at, it));
    let after = first + cx.table.aggregates.len();
    let references = cx.table.references.iter().enumerate();
    let references = references.map(|(at, it)| reference::arm(after + at, it));
    let arms = cx.table.indexes.iter().map(|index| entries_of(index)).chain(aggregates);
    let arms = arms.chain(references);
    let mentions = mentions(cx);
    // Unused parameters have no names.
    let (index, entries, body) = if !cx.table.storable {
        (mixed!(_), mixed!(_), mixed!(loop {}))
    } else if cx.table.has_no_entries() {
        (mixed!(_), mixed!(_), mixed!(_index_table::Ok(())))
    } else {
        let body = mixed!(#mentions match __index { #(#arms)* _ => {} } _index_table::Ok(()));
        (mixed!(__index), mixed!(__entries), body)
    };
    mixed! {
        fn entries(
            &self,
            #index: usize,
            #entries: &mut _index_table::EntryBuffer,
        ) -> _index_table::Result<(), _index_table::EncodeError> {
            #body
        }
    }
}

/// Expands to `let _ = &self.town;` for each field in `#[index(…)]`, without an effect. The identifiers have
/// the spans of the attribute, so that an editor can go from the attribute to the fields.
fn mentions(cx: &Context<'_>) -> TokenStream {
    let mentions = cx.table.indexes.iter().flat_map(|index| &index.mentions);
    let aggregates = cx.table.aggregates.iter().flat_map(|aggregate| &aggregate.mentions);
    mentions.chain(aggregates).map(|field| mixed!(let _ = &self.#field;)).collect()
}

fn entries_of(index: &Index) -> TokenStream {
    let position = Literal::usize_unsuffixed(index.position);
    let included = match &index.strategy {
        Strategy::Partial(included) => included.as_slice(),
        Strategy::Normalized | Strategy::Full => &[],
    };
    let included = included.iter().map(|field| {
        let names = super::stored_names(field);
        mixed!(__entries.include(#names);)
    });
    // Each part with its value.
    let parts: Vec<(&KeyPart, TokenStream)> =
        index.parts.iter().enumerate().map(|(at, part)| (part, part_value(part, at))).collect();
    let pushes = parts.iter().enumerate().map(|(at, (part, value))| match part {
        KeyPart::Desc(_) => mixed!(.push_desc(#value)),
        part if part.is_hash() => {
            let local = hash_local(at);
            mixed!(.push(&#local))
        }
        _ => mixed!(.push(#value)),
    });
    let present = |each: bool| {
        let parts = parts.iter().filter(|(part, _)| part.is_each() == each);
        let absent = |part: &KeyPart| part.key_type().is_optional() != Some(false);
        let sparse = index.conditions.sparse.is_some();
        parts
            .filter(move |(part, _)| sparse && absent(part))
            .map(|(_, value)| mixed!(_index_table::Key::is_present(#value)))
            .collect::<Vec<_>>()
    };
    let mut keys = when(&present(true), mixed!(__entries.key() #(#pushes)*;));
    if let Some(collection) = index.parts.iter().enumerate().find_map(collection) {
        keys = mixed!(for __element in _index_table::Each::elements(#collection) { #keys });
    }
    // The hashes are computed before the loop over the elements, so only once.
    let hashes = parts.iter().enumerate().filter(|(_, (part, _))| part.is_hash());
    let hashes = hashes.map(|(at, (_, value))| {
        let local = hash_local(at);
        mixed!(let #local = __entries.hash(#value);)
    });
    let entries = mixed!(#(#included)* #(#hashes)* #keys);
    let entries = when(&present(false), entries);
    let computed = index.parts.iter().enumerate().filter_map(|(at, part)| computed(part, at));
    let filter = index.conditions.filter.as_ref().map(|method| {
        let call = methods::call(method);
        quote_spanned!(at(method.span())=> _index_table::filter(#call))
    });
    let entries = when(filter.as_slice(), mixed!(#(#computed)* #entries));
    mixed!(#position => { #entries })
}

/// Expands to `if … && … { … }`, or to the statements alone without conditions.
fn when(conditions: &[TokenStream], statements: TokenStream) -> TokenStream {
    if conditions.is_empty() {
        return statements;
    }
    mixed!(if #(#conditions)&&* { #statements })
}

/// Expands to the value of the part at this position of a key: `&self.town`, `__element`, `&__computed0`.
pub(super) fn part_value(part: &KeyPart, place: usize) -> TokenStream {
    let span = at(part.key_type().span());
    match part {
        KeyPart::Plain(field) | KeyPart::Desc(field) | KeyPart::Hash(field) => value(field),
        KeyPart::Each(field, _) => quote_spanned!(at(field.ty.span())=> __element),
        KeyPart::EachComputed(method, _) => quote_spanned!(at(method.ty.span())=> __element),
        KeyPart::Computed(_) | KeyPart::HashComputed(_) => returned(span, place),
    }
}

/// Expands to the collection of an `each`: `&self.cast`, or `&__computed0`.
fn collection((place, part): (usize, &KeyPart)) -> Option<TokenStream> {
    match part {
        KeyPart::Each(field, _) => Some(value(field)),
        KeyPart::EachComputed(method, _) => Some(returned(at(method.ty.span()), place)),
        _ => None,
    }
}

/// Expands to `&__computed0`, the value of the method of the part at this position.
fn returned(span: Span, place: usize) -> TokenStream {
    let local = format_ident!("__computed{place}", span = span);
    quote_spanned!(span=> &#local)
}

/// Returns the variable with the hash of the part at this position of a key.
fn hash_local(place: usize) -> Ident {
    format_ident!("__hash{place}", span = Span::mixed_site())
}

/// Expands to `let __computed0: String = _index_table::computed(self.initials());`, with the span of the
/// method, so that a wrong return type is reported there.
pub(super) fn computed(part: &KeyPart, place: usize) -> Option<TokenStream> {
    let method = part.method()?;
    let local = format_ident!("__computed{place}", span = Span::mixed_site());
    let (ty, call) = (method.ty.written(), methods::call(&method.ident));
    let value = quote_spanned!(at(method.ident.span())=> _index_table::computed(#call));
    Some(mixed!(let #local: #ty = #value;))
}

/// Expands to `&self.town`, with the span of the field's type, so that a missing trait is reported there.
pub(super) fn value(field: &Field) -> TokenStream {
    let mut ident = field.ident.clone();
    ident.set_span(ident.span().located_at(field.ty.span()));
    quote_spanned!(at(field.ty.span())=> &self.#ident)
}
