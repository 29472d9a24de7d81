//! The struct of an entry, and the code that reads it.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Context, allow_on_struct, at, carried, docs, key_type, requirements, visibility_at};
use crate::model::{Index, Source, Step};
use crate::names;

/// Expands to:
///
/// ```text
/// struct CustomerByTown<'txn> {
///     town: &'txn str,
///     id: u64,
/// }
/// ```
pub(super) fn declaration(cx: &Context<'_>, index: &Index) -> TokenStream {
    let (private, ident) = (&cx.private, &index.entry.ident);
    // If another type has this name, the compiler shows the index, and not the whole derive.
    let visibility = visibility_at(&cx.table.visibility, ident.span());
    let keyword = quote_spanned!(at(ident.span())=> struct);
    let doc = docs::entry(cx.table, index);
    let allow = allow_on_struct();
    let lifetime = index.entry.borrows().then(|| {
        let txn = &cx.txn;
        quote!(<#txn>)
    });
    let fields = index.entry.fields().map(|(ident, source)| {
        let doc = docs::entry_field(source);
        let ty = match source {
            Source::Key(part) if part.is_desc() => part.key_type().tokens(private),
            Source::Key(part) => part.key_type().key(private, &cx.txn),
            Source::PrimaryKey(field) => field.ty.key(private, &cx.txn),
            Source::Included(field) | Source::Row(field) => field.ty.carried(private, &cx.txn),
        };
        let visibility = source.visibility().unwrap_or(&cx.table.visibility);
        let v = visibility_at(visibility, ident.span());
        quote! {
            #doc
            #v #ident: #ty
        }
    });
    let conditions = requirements::conditions(cx, private);
    mixed! {
        #doc
        #allow
        #visibility #keyword #ident #lifetime #conditions {
            #(#fields,)*
        }
    }
}

/// Expands to:
///
/// ```text
/// impl<'txn> _index_table::IndexEntry<'txn> for CustomerByTown<'txn> {
///     type Row = Customer;
///     const SOURCE: _index_table::Source = _index_table::Source::Index(0);
///     fn decode(mut __entry: _index_table::EntryReader<'txn>) -> … { … }
/// }
/// impl<'txn> _index_table::serde::Serialize for CustomerByTown<'txn> { … }
/// ```
pub(super) fn implementation(cx: &Context<'_>, index: &Index) -> TokenStream {
    let (row, ident) = (&cx.table.row, &index.entry.ident);
    let position = Literal::usize_unsuffixed(index.position);
    let txn = &cx.txn;
    let lifetime = index.entry.borrows().then(|| quote!(<#txn>));
    let decode = decode(cx, index);
    let serialize = serialize(index);
    let fields: Vec<_> = index.entry.fields().map(|(ident, _)| ident).collect();
    let carried = carried::of_entry(index);
    let copied = index.entry.fields().all(|(_, source)| source.is_copied());
    let traits = carried::traits(cx, ident, lifetime.as_ref(), &fields, &carried, copied);
    let conditions = requirements::conditions(cx, &cx.short);
    mixed! {
        #[automatically_derived]
        impl<#txn> _index_table::IndexEntry<#txn> for #ident #lifetime #conditions {
            type Row = #row;

            const SOURCE: _index_table::Source = _index_table::Source::Index(#position);

            fn decode(
                mut __entry: _index_table::EntryReader<#txn>,
            ) -> _index_table::Result<Self, _index_table::DecodeError> {
                #decode
            }
        }

        #[automatically_derived]
        impl #lifetime _index_table::serde::Serialize for #ident #lifetime #conditions {
            #serialize
        }

        #traits
    }
}

/// Expands to the equivalent of serde's derive, which compiles in a fraction of the time:
///
/// ```text
/// fn serialize<__S: _index_table::serde::Serializer>(&self, __serializer: __S) -> … {
///     _index_table::StructFields::new(__serializer, "CustomerByTown", 2)
///         .field("town", &self.town)
///         .field("id", &self.id)
///         .end()
/// }
/// ```
fn serialize(index: &Index) -> TokenStream {
    let name = names::plain(&index.entry.ident);
    let fields = index.entry.fields().map(|(ident, source)| {
        let span = at(source.ty().span());
        let (mut field, name) = (ident.clone(), names::plain(ident));
        field.set_span(ident.span().located_at(source.ty().span()));
        quote_spanned!(span=> .field(#name, &self.#field))
    });
    let count = Literal::usize_unsuffixed(index.entry.fields().count());
    mixed! {
        fn serialize<__S: _index_table::serde::Serializer>(
            &self,
            __serializer: __S,
        ) -> _index_table::Result<__S::Ok, __S::Error> {
            _index_table::StructFields::new(__serializer, #name, #count) #(#fields)* .end()
        }
    }
}

/// Expands to statements for the skipped fields, then to a struct literal:
///
/// ```text
/// __entry.skip_key::<String>()?;
/// _index_table::Ok(Self { town: __entry.key::<String>()?, id: __entry.primary_key::<u64>()? })
/// ```
///
/// If a field between two others is skipped, expands to a statement for each field:
///
/// ```text
/// let __field0 = __entry.key::<String>()?;
/// __entry.skip_primary_key::<String>()?;
/// let __field1 = __entry.primary_key::<String>()?;
/// _index_table::Ok(Self { genre: __field0, title: __field1 })
/// ```
fn decode(cx: &Context<'_>, index: &Index) -> TokenStream {
    let steps = &index.entry.steps;
    let skips = |step: &&Step| !matches!(step, Step::Keep(..));
    let leading = steps.iter().take_while(skips).count();
    let bind = steps.iter().skip(leading).any(|step| skips(&step));

    let mut statements = Vec::new();
    let mut fields = Vec::new();
    for step in steps {
        match step {
            Step::Keep(ident, source) => {
                let read = read(cx, source);
                if bind {
                    let local = format_ident!("__field{}", fields.len(), span = Span::mixed_site());
                    statements.push(mixed!(let #local = #read;));
                    fields.push(mixed!(#ident: #local));
                } else {
                    fields.push(mixed!(#ident: #read));
                }
            }
            Step::SkipKey(part) if part.is_hash() => {
                statements.push(mixed!(__entry.skip_hash()?;));
            }
            Step::SkipKey(part) => {
                let ty = key_type(cx, part);
                statements.push(mixed!(__entry.skip_key::<#ty>()?;));
            }
            Step::SkipPrimaryKey(field) => {
                let ty = field.ty.tokens(&cx.short);
                statements.push(mixed!(__entry.skip_primary_key::<#ty>()?;));
            }
        }
    }
    mixed! {
        #(#statements)*
        _index_table::Ok(Self { #(#fields),* })
    }
}

/// Expands to `__entry.key::<String>()?`, or a similar call.
fn read(cx: &Context<'_>, source: &Source) -> TokenStream {
    let (reader, span, ty) = match source {
        Source::Key(part) => (mixed!(key), part.key_type().span(), key_type(cx, part)),
        Source::PrimaryKey(field) => {
            (mixed!(primary_key), field.ty.span(), field.ty.tokens(&cx.short))
        }
        Source::Included(field) | Source::Row(field) if field.ty.is_text() && !field.skipped => {
            let names = super::stored_names(field);
            return quote_spanned!(at(field.ty.span())=> __entry.text(#names)?);
        }
        Source::Included(field) | Source::Row(field) => {
            let (ty, names) = (field.ty.carried(&cx.short, &cx.txn), super::stored_names(field));
            let method = super::field_method(field);
            return quote_spanned!(at(field.ty.span())=> __entry.#method::<#ty>(#names)?);
        }
    };
    quote_spanned!(at(span)=> __entry.#reader::<#ty>()?)
}
