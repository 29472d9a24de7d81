//! The requirements on types that the macro knows by name only.
//!
//! The compiler can check whether such a type has a key encoding, but the macro can't. For a single error
//! that names the field, the encoding is asserted once, and all other code is generated under the condition
//! that the encoding exists. If the assertion fails, the type in the condition causes no further errors. The compiler checks a bound on a type without parameters at the bound itself;
//! `for<'any>` postpones the check to the uses of the item.

use proc_macro2::{Literal, Span, TokenStream, TokenTree};
use quote::{format_ident, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Ident, Type};

use super::{Context, at};
use crate::model::{Form, Index, KeyPart, NEVER_ABSENT, Query, Reading, Table, Target};
use crate::types::{DataType, Requirement};

/// A field or a method, and the requirement on its type.
struct Required<'a> {
    ident: &'a Ident,
    computed: bool,
    ty: &'a DataType,
    requirement: Requirement,
}

fn of(table: &Table) -> Vec<Required<'_>> {
    let primary_key = table.primary_key.iter().map(|field| (&field.ident, false, &field.ty));
    let parts = table.indexes.iter().flat_map(|index| &index.parts);
    let parts = parts.map(|part| (part.ident(), part.method().is_some(), part.key_type()));
    let groups = table.aggregates.iter().flat_map(|aggregate| &aggregate.group);
    let groups = groups.map(|field| (&field.ident, false, &field.ty));
    let mut required: Vec<Required<'_>> = Vec::new();
    for (ident, computed, ty) in primary_key.chain(parts).chain(groups) {
        if let Some(requirement) = ty.requirement()
            && !required.iter().any(|other| {
                other.ident == ident
                    && other.computed == computed
                    && other.requirement == requirement
                    // Not the elements of an optional field.
                    && other.ty.place() == ty.place()
            })
        {
            required.push(Required { ident, computed, ty, requirement });
        }
    }
    required
}

/// Expands to `where for<'any> <Customer as _index_table::Required<Kind, 3>>::Type: _index_table::Key`, or to nothing.
pub(super) fn conditions(cx: &Context<'_>, private: &TokenStream) -> TokenStream {
    conditions_and(cx, private, Vec::new())
}

/// Like [`conditions`], with further conditions.
pub(super) fn conditions_and(
    cx: &Context<'_>,
    private: &TokenStream,
    further: Vec<TokenStream>,
) -> TokenStream {
    let conditions = of(cx.table).into_iter().map(|Required { ty, requirement, .. }| {
        let (ty, span) = (ty.required(private), at(ty.span()));
        match requirement {
            Requirement::Key => quote_spanned!(span=> for<'any> #ty: #private::Key),
            Requirement::Each => quote_spanned!(span=> for<'any> #ty: #private::Each),
        }
    });
    let conditions: Vec<_> = conditions.chain(further).collect();
    if conditions.is_empty() { TokenStream::new() } else { mixed!(where #(#conditions),*) }
}

/// Expands to assertions that almost every struct meets, then to the form [`DataType::required`] of each type:
///
/// ```text
/// const _: ::core::marker::PhantomData<_index_table::IsStored<Customer>> = …;
/// const _: ::core::marker::PhantomData<_index_table::IsText<String>> = …;
/// impl _index_table::Required<Kind, 3> for Customer {
///     type Type = <Kind as _index_table::Checked<{
///         const fn key<kind>() -> ::core::primitive::bool {
///             _index_table::assert_key::<Kind, kind>();
///             true
///         }
///         key::<()>()
///     }>>::Checked;
/// }
/// ```
///
/// The name of the field is a type parameter. For a type, the compiler would write the whole path, such as
/// `_::_::kind`, if another type had the same name.
///
/// The compiler checks the types of constants before their values, so the first two are reported before
/// further errors from the same mistake.
pub(super) fn assertions(cx: &Context<'_>) -> TokenStream {
    let row = &cx.table.row;
    let stored = cx.table.storable.then(|| well_formed(row.span(), &mixed!(IsStored<#row>)));
    let text = string(cx.table).map(|ty| well_formed(ty.span(), &mixed!(IsText<#ty>)));
    let sparse = cx.table.indexes.iter().filter_map(|index| sparse(cx, index));
    let omitting = cx.table.queries.iter().filter_map(|query| omits_nothing(cx, query));
    let required = required_types(cx);
    stored.into_iter().chain(text).chain([required]).chain(sparse).chain(omitting).collect()
}

/// Expands to the form [`DataType::required`] of each type.
pub(super) fn required_types(cx: &Context<'_>) -> TokenStream {
    let required =
        of(cx.table).into_iter().filter_map(|Required { ident, computed, ty, requirement }| {
            let (written, span) = (ty.written(), at(ty.span()));
            let assert = match requirement {
                Requirement::Key if computed => {
                    quote_spanned!(span=> _index_table::assert_computed)
                }
                Requirement::Key => quote_spanned!(span=> _index_table::assert_key),
                Requirement::Each => quote_spanned!(span=> _index_table::assert_each),
            };
            required_type(&cx.table.row, ty, &assert, &marker(ident, written))
        });
    required.collect()
}

/// Expands to the implementation of the form [`DataType::required`] of a type. If the call of `assert` has an error,
/// the form is a type that causes no further errors.
pub(super) fn required_type(
    owner: &Ident,
    ty: &DataType,
    assert: &TokenStream,
    marker: &Ident,
) -> Option<TokenStream> {
    let (written, (_, number)) = (ty.written(), ty.place()?);
    let number = Literal::usize_unsuffixed(number);
    Some(mixed! {
        impl _index_table::Required<#written, #number> for #owner {
            type Type = <#written as _index_table::Checked<{
                const fn key<#marker>() -> ::core::primitive::bool {
                    #assert::<#written, #marker>();
                    true
                }
                key::<()>()
            }>>::Checked;
        }
    })
}

/// Expands to a use of a type of the runtime, whose bound is reported at `place`.
pub(super) fn well_formed(place: Span, ty: &TokenStream) -> TokenStream {
    quote_spanned! {at(place)=>
        const _: ::core::marker::PhantomData<_index_table::#ty> = ::core::marker::PhantomData;
    }
}

/// Returns the first type that is spelled `String`, and therefore has the form `&str` in generated code.
fn string(table: &Table) -> Option<&Type> {
    let primary_key = table.primary_key.iter().map(|field| &field.ty);
    let keys = table.indexes.iter().flat_map(|index| &index.parts).map(KeyPart::key_type);
    let entries = table.indexes.iter().flat_map(|index| index.entry.fields());
    let entries = entries.map(|(_, source)| source.ty());
    let view = table.view.iter().flat_map(|view| &view.fields);
    let view = view.filter(|field| matches!(field.reading, Reading::Carried));
    let view = view.map(|field| &field.field.ty);
    let groups = table.aggregates.iter().flat_map(|aggregate| &aggregate.group);
    let groups = groups.map(|field| &field.ty);
    primary_key.chain(keys).chain(groups).chain(entries).chain(view).find_map(DataType::string)
}

/// Expands to one assertion for a sparse index, if only the compiler can check whether a part of its key can
/// be absent:
///
/// ```text
/// const _: () = {
///     use _index_table::NoKey as _;
///     ::core::assert!(_index_table::CanBeAbsent::<Nick>::HOLDS, "…")
/// };
/// ```
///
/// `NoKey` provides the value for a type that is not a key, which has its own error.
fn sparse(cx: &Context<'_>, index: &Index) -> Option<TokenStream> {
    let span = at(index.conditions.sparse?);
    if index.parts.iter().any(|part| part.can_be_absent() == Some(true)) {
        return None;
    }
    let shapes = can_be_absent(cx, &index.parts, &mixed!(HOLDS));
    let assertion = quote_spanned!(span=> ::core::assert!(#(#shapes)||*, #NEVER_ABSENT));
    Some(mixed! {
        const _: () = {
            #[allow(unused_imports)]
            use _index_table::NoKey as _;
            #assertion
        };
    })
}

/// Expands to one assertion for a query on a sparse index, if only the compiler can check whether a later
/// field is an `Option`. In that case the query would omit rows, and would need the name of the index:
///
/// ```text
/// const _: () = {
///     use _index_table::NoKey as _;
///     ::core::assert!(_index_table::CanBeAbsent::<Nick>::FAILS, "…")
/// };
/// ```
fn omits_nothing(cx: &Context<'_>, query: &Query) -> Option<TokenStream> {
    let (Target::Index(index), Form::Equal(parts)) = (&query.target, &query.form) else {
        return None;
    };
    if index.named || index.omits_rows_after(parts.len()).is_some() {
        return None;
    }
    let span = at(index.conditions.sparse?);
    let message = format!(
        "`{}` would omit rows: a later field of this sparse index can be `None`, which its type does \
         not show; give the index a name with `name = \"…\"`, for the names of its queries",
        query.method
    );
    let later = index.parts.get(parts.len()..).unwrap_or_default();
    let shapes = can_be_absent(cx, later, &mixed!(FAILS));
    let assertion = quote_spanned!(span=> ::core::assert!(#(#shapes)&&*, #message));
    Some(mixed! {
        const _: () = {
            #[allow(unused_imports)]
            use _index_table::NoKey as _;
            #assertion
        };
    })
}

/// Expands to `_index_table::CanBeAbsent::<Nick>::HOLDS`, or another constant, for each part that only the
/// compiler can check.
fn can_be_absent(cx: &Context<'_>, parts: &[KeyPart], constant: &TokenStream) -> Vec<TokenStream> {
    let unknown = parts.iter().filter(|part| part.can_be_absent().is_none());
    let shape = |part: &KeyPart| {
        let ty = part.key_type().tokens(&cx.short);
        mixed!(_index_table::CanBeAbsent::<#ty>::#constant)
    };
    unknown.map(shape).collect()
}

/// Returns the name of the type parameter that represents a field or a method in a message: the field's own
/// name, unless its type contains this name.
pub(super) fn marker(ident: &Ident, ty: TokenStream) -> Ident {
    if names(ty, ident) { format_ident!("{ident}_") } else { ident.clone() }
}

/// Whether a name is among these tokens.
pub(super) fn names(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => names(group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}
