//! Aggregates: the structs of their totals, and the methods that read them.

use std::rc::Rc;

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Ident;

use super::{Context, allow_on_struct, at, carried, docs, entity, requirements, visibility_at};
use crate::model::{Aggregate, Extreme, Field};
use crate::names;

/// Expands to:
///
/// ```text
/// struct InvoiceAggregateByCustomer {
///     customer: u64,
///     count: u64,
///     sum_amount: i128,
///     min_amount: ::core::option::Option<i64>,
/// }
/// ```
///
/// A field has the visibility of the row's field. The sum of a field whose type is not spelled as an integer is a `<Money as _index_table::Summand>::Sum`.
pub(super) fn declaration(cx: &Context<'_>, aggregate: &Aggregate) -> TokenStream {
    let (v, private, ident) = (&cx.table.visibility, &cx.private, &aggregate.ident);
    let (doc, allow) = (docs::totals(cx.table, aggregate), allow_on_struct());
    let group = aggregate.group.iter().map(|field| {
        let (doc, ident, ty) = (docs::group(field), &field.ident, field.ty.tokens(private));
        let v = visibility_at(&field.visibility, ident.span());
        quote!(#doc #v #ident: #ty)
    });
    let sums = aggregate.sums.iter().map(|field| {
        let (doc, ident, v) = (docs::sum(field), sum(field), &field.visibility);
        let ty = if field.ty.is_summed_as_integer() {
            mixed!(i128)
        } else {
            let ty = field.ty.tokens(private);
            quote_spanned!(at(field.ty.span())=> <#ty as #private::Summand>::Sum)
        };
        mixed!(#doc #v #ident: #ty)
    });
    let extremes = aggregate.extremes.iter().map(|extreme| {
        let (doc, ident) = (docs::extreme(extreme), extreme_field(extreme));
        let v = &extreme.field.visibility;
        let ty = extreme.field.ty.tokens(private);
        mixed!(#doc #v #ident: ::core::option::Option<#ty>)
    });
    let count = docs::doc("The number of rows.");
    let conditions = requirements::conditions(cx, private);
    let fields = group.chain([mixed!(#count #v count: u64)]).chain(sums).chain(extremes);
    mixed! {
        #doc
        #allow
        #v struct #ident #conditions {
            #(#fields,)*
        }
    }
}

/// Expands to:
///
/// ```text
/// impl _index_table::Aggregate for InvoiceAggregateByCustomer {
///     type Row = Invoice;
///     const POSITION: usize = 0;
///     fn read(__group: &mut _index_table::KeyReader<'_>, __totals: &_index_table::Totals) -> … {
///         let mut __sums = __totals.sums();
///         _index_table::Ok(Self {
///             customer: <u64 as _index_table::Key>::decode_owned(__group)?,
///             count: __totals.count(),
///             sum_amount: __sums.next::<i64>(),
///             min_amount: __totals.extreme::<i64>(0)?,
///         })
///     }
/// }
/// ```
///
/// and `Serialize`, `Clone`, `Debug` and `PartialEq`.
pub(super) fn implementation(
    cx: &Context<'_>,
    position: usize,
    aggregate: &Aggregate,
) -> TokenStream {
    let (row, ident) = (&cx.table.row, &aggregate.ident);
    let position = Literal::usize_unsuffixed(position);
    let conditions = requirements::conditions(cx, &cx.short);
    let group = aggregate.group.iter().map(|field| {
        let (ident, ty) = (&field.ident, field.ty.tokens(&cx.short));
        quote_spanned! {at(field.ty.span())=>
            #ident: <#ty as _index_table::Key>::decode_owned(__group)?
        }
    });
    let sums = aggregate.sums.iter().map(|field| {
        let (ident, ty) = (sum(field), summed(field));
        quote_spanned!(at(field.ty.span())=> #ident: __sums.next::<#ty>())
    });
    let read_sums = (!aggregate.sums.is_empty()).then(|| mixed!(let mut __sums = __totals.sums();));
    let extremes = aggregate.extremes.iter().enumerate().map(|(at, extreme)| {
        let (ident, at) = (extreme_field(extreme), Literal::usize_unsuffixed(at));
        let ty = extreme.field.ty.tokens(&cx.short);
        mixed!(#ident: __totals.extreme::<#ty>(#at)?)
    });
    let values = group.chain([mixed!(count: __totals.count())]).chain(sums).chain(extremes);
    let reader = if aggregate.group.is_empty() { mixed!(_) } else { mixed!(__group) };
    let fields = fields(aggregate);
    let all: Vec<&Ident> = fields.iter().collect();
    let carried = carried::of_group(aggregate);
    let traits = carried::traits(cx, ident, None, &all, &carried, false);
    let name = names::plain(ident);
    let count = Literal::usize_unsuffixed(fields.len());
    let names = fields.iter().map(names::plain);
    mixed! {
        #[automatically_derived]
        impl _index_table::Aggregate for #ident #conditions {
            type Row = #row;

            const POSITION: usize = #position;

            fn read(
                #reader: &mut _index_table::KeyReader<'_>,
                __totals: &_index_table::Totals,
            ) -> _index_table::Result<Self, _index_table::DecodeError> {
                #read_sums
                _index_table::Ok(Self { #(#values),* })
            }
        }

        #[automatically_derived]
        impl _index_table::serde::Serialize for #ident #conditions {
            fn serialize<__S: _index_table::serde::Serializer>(
                &self,
                __serializer: __S,
            ) -> _index_table::Result<__S::Ok, __S::Error> {
                _index_table::StructFields::new(__serializer, #name, #count)
                    #(.field(#names, &self.#fields))*
                    .end()
            }
        }

        #traits
    }
}

/// Expands to, for a table with aggregates:
///
/// ```text
/// const AGGREGATES: &'static [_index_table::AggregateSchema] = &[_index_table::AggregateSchema {
///     name: "aggregate_by_customer",
///     key: &[_index_table::KeyField::new::<u64>("customer")],
///     sums: &[_index_table::SumSchema::new::<i64>("amount")],
///     extremes: &[_index_table::Extreme { index: 0, greatest: false }],
///     eventual: false,
/// }];
/// ```
pub(super) fn constant(cx: &Context<'_>) -> Option<TokenStream> {
    let aggregates = &cx.table.aggregates;
    if aggregates.is_empty() {
        return None;
    }
    let schemas = aggregates.iter().map(|aggregate| {
        let (name, eventual) = (&aggregate.name, aggregate.eventual);
        let key = aggregate.group.iter().map(|field| entity::plain_key_field(cx, field));
        let sums = aggregate.sums.iter().map(|field| {
            let (name, ty) = (&field.name, summed(field));
            let new = quote_spanned!(at(field.ty.span())=> new::<#ty>);
            mixed!(_index_table::SumSchema::#new(#name))
        });
        let extremes = aggregate.extremes.iter().map(|Extreme { index, greatest, .. }| {
            let index = Literal::usize_unsuffixed(*index);
            mixed!(_index_table::Extreme { index: #index, greatest: #greatest })
        });
        mixed! {
            _index_table::AggregateSchema {
                name: #name,
                key: &[#(#key),*],
                sums: &[#(#sums),*],
                extremes: &[#(#extremes),*],
                eventual: #eventual,
            }
        }
    });
    Some(mixed! {
        const AGGREGATES: &'static [_index_table::AggregateSchema] = &[#(#schemas),*];
    })
}

/// Expands to the arm of [`Entity::entries`](entity) for an aggregate:
///
/// ```text
/// 2 => {
///     __entries.key().push(&self.customer);
///     __entries.sum(&self.amount);
/// }
/// ```
pub(super) fn arm(position: usize, aggregate: &Aggregate) -> TokenStream {
    let position = Literal::usize_unsuffixed(position);
    let group = aggregate.group.iter().map(|field| entity::value(field));
    let key = if aggregate.group.is_empty() {
        mixed!(__entries.whole_table();)
    } else {
        mixed!(__entries.key() #(.push(#group))*;)
    };
    let sums = aggregate.sums.iter().map(|field| {
        let value = entity::value(field);
        let ty = field.ty.tokens(&mixed!(_index_table));
        quote_spanned!(at(field.ty.span())=> __entries.sum::<#ty>(#value);)
    });
    mixed!(#position => { #key #(#sums)* })
}

/// Expands to:
///
/// ```text
/// fn aggregate_by_customer(
///     &self,
///     txn: &_index_table::ReadTxn<'_>,
///     customer: u64,
/// ) -> _index_table::Result<InvoiceAggregateByCustomer> {
///     __table(self).aggregate(txn, &_index_table::Bounds::new().equal::<u64>(customer))
/// }
/// fn aggregates_by_customer<'txn>(
///     &'txn self,
///     txn: &'txn _index_table::ReadTxn<'_>,
/// ) -> _index_table::Aggregates<'txn, InvoiceAggregateByCustomer> {
///     __table(self).aggregates(txn)
/// }
/// ```
///
/// and, for an aggregate by several fields, a method for each number of leading fields:
///
/// ```text
/// fn aggregates_by_region<'txn>(
///     &'txn self,
///     txn: &'txn _index_table::ReadTxn<'_>,
///     region: &str,
/// ) -> _index_table::Aggregates<'txn, InvoiceAggregateByRegionCustomer> {
///     __table(self).aggregates_within(txn, &_index_table::Bounds::new().equal::<String>(region))
/// }
/// ```
pub(super) fn methods(cx: &Context<'_>, aggregate: &Aggregate) -> TokenStream {
    let (v, ident) = (&cx.table.visibility, &aggregate.ident);
    let method = Ident::new(&aggregate.name, aggregate.place);
    let (parameters, bounds) = (parameters(cx, &aggregate.group), bounds(cx, &aggregate.group));
    let doc = docs::aggregate(aggregate);
    let all =
        (!aggregate.group.is_empty()).then(|| groups(cx, aggregate, &aggregate.name_of_all(), 0));
    let leading = aggregate.leading.iter().zip(1..);
    let leading = leading.map(|(name, len)| groups(cx, aggregate, name, len));
    mixed! {
        #doc
        #v fn #method(
            &self,
            txn: &_index_table::ReadTxn<'_>,
            #parameters
        ) -> _index_table::Result<#ident> {
            __table(self).aggregate(txn, &#bounds)
        }

        #all
        #(#leading)*
    }
}

/// Expands to the method that iterates over the groups with given values of the first `len` fields.
fn groups(cx: &Context<'_>, aggregate: &Aggregate, name: &str, len: usize) -> TokenStream {
    let (v, txn, ident) = (&cx.table.visibility, &cx.txn, &aggregate.ident);
    let method = Ident::new(name, aggregate.place);
    let fields = aggregate.group.get(..len).unwrap_or_default();
    let (doc, parameters) = (docs::aggregates(aggregate, fields), parameters(cx, fields));
    let read = if fields.is_empty() {
        mixed!(aggregates(txn))
    } else {
        let bounds = bounds(cx, fields);
        mixed!(aggregates_within(txn, &#bounds))
    };
    mixed! {
        #doc
        #v fn #method<#txn>(
            &#txn self,
            txn: &#txn _index_table::ReadTxn<'_>,
            #parameters
        ) -> _index_table::Aggregates<#txn, #ident> {
            __table(self).#read
        }
    }
}

/// Expands to `region: &str, customer: u64,`.
fn parameters(cx: &Context<'_>, fields: &[Rc<Field>]) -> TokenStream {
    let parameters = fields.iter().map(|field| {
        let (ident, ty) = (&field.ident, field.ty.argument(&cx.short, &cx.elided));
        mixed!(#ident: #ty)
    });
    mixed!(#(#parameters,)*)
}

/// Expands to `_index_table::Bounds::new().equal::<String>(region).equal::<u64>(customer)`.
fn bounds(cx: &Context<'_>, fields: &[Rc<Field>]) -> TokenStream {
    let bounds = fields.iter().map(|field| {
        let (ident, ty) = (&field.ident, field.ty.tokens(&cx.short));
        quote_spanned!(at(field.ty.span())=> .equal::<#ty>(#ident))
    });
    mixed!(_index_table::Bounds::new() #(#bounds)*)
}

/// Returns the type whose sum is kept. `EntryBuffer::sum` has the type of the field, and gives the only error if its
/// spelling shows that it can't be summed.
fn summed(field: &Field) -> TokenStream {
    if field.ty.is_summed_as_integer() {
        return mixed!(i64);
    }
    field.ty.tokens(&mixed!(_index_table))
}

fn sum(field: &Field) -> Ident {
    format_ident!("sum_{}", field.name, span = field.ident.span())
}

fn extreme_field(extreme: &Extreme) -> Ident {
    format_ident!("{}", extreme.name(), span = extreme.field.ident.span())
}

/// Returns the fields of the struct.
fn fields(aggregate: &Aggregate) -> Vec<Ident> {
    let group = aggregate.group.iter().map(|field| field.ident.clone());
    let count = Ident::new("count", proc_macro2::Span::mixed_site());
    let sums = aggregate.sums.iter().map(|field| sum(field));
    let extremes = aggregate.extremes.iter().map(extreme_field);
    group.chain([count]).chain(sums).chain(extremes).collect()
}
