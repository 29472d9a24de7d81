//! The derive macro of `index-table`.

// A mistake in a program that uses the macro is a message, never a panic of the compiler.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod attr;
mod derive;
mod diagnostics;
mod expand;
mod fallback;
mod lower;
mod model;
mod names;
#[cfg(test)]
mod tests;
mod types;

use crate::derive::{derive, derive_key, derive_version};

/// Makes a struct a table with secondary indexes.
///
/// The struct `Customer` gets a `CustomerRepository` with methods to store rows and to ask for
/// them, and for each index the struct of its entries, such as `CustomerByTown`. The struct has
/// named fields, no generic parameters, and implements serde's `Serialize` and `Deserialize`.
///
/// ```text
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[table(name = "customers")]
/// #[index(town)]
/// #[index(town, last_name, include = [phone])]
/// #[index(last_name, strategy = "full")]
/// #[index(email, unique)]
/// struct Customer {
///     #[primary_key]
///     id: u64,
///     first_name: String,
///     last_name: String,
///     town: String,
///     phone: String,
///     email: String,
/// }
/// ```
///
/// # `#[primary_key]`, on a field
///
/// The field that identifies a row. On several fields: a composite key, in the order in which the
/// fields are declared, at most 12 of them. It takes no arguments.
///
/// # `#[table(…)]`, on the struct
///
/// All of it is optional.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `name = "…"` | the name on disk: ASCII letters, digits, `_` and `-`, at most 100 of them | the struct's name in snake case |
/// | `version = N` | the version of the struct, from 1 on | 1 |
/// | `previous = Type` | the struct of the version before, with `#[derive(RowVersion)]` or `#[derive(IndexTable)]`, for which this one has a `From` | none |
/// | `changed = [a, b]` | the fields to which that `From` gives another value; indexes over other fields of the same name and type stay as they are when the version changes | none |
/// | `shard_by = field`, `[field, field]` or `hash(field)` | the shard key of a sharded store: the first field or fields of the primary key, or a hash of them | the table is whole in one shard |
/// | `shard_map = "…"` | the shard map that says which shard has a shard key | the table's name |
/// | `repository = Ident` | the name of the repository | the struct's name and `Repository` |
/// | `allow(optional_key)` | a field of the primary key is meant to be an `Option` | none |
/// | `view`, `view = Ident` | the struct's borrowed twin, and its name | none; the struct's name and `View` |
/// | `crate = path` | where the crate `index-table` is found | `::index_table` |
///
/// ## Views
///
/// With `#[table(view)]`, `Customer` has a twin `CustomerView<'txn>`, from `get_view`,
/// `get_view_by_…` and the `views()` of scans, of their combinations and of `get_many`. It has the
/// same fields under the same names. Those that are spelled as in the first column are borrowed from
/// the transaction; all others are as the row has them.
///
/// | field of the row | of the view |
/// |---|---|
/// | `String`, `Box<str>`, `Arc<str>`, `Cow<'static, str>` | `&'txn str` |
/// | `Vec<u8>` | `&'txn [u8]` |
/// | `Option` of one of these | `Option` of the borrowed one |
///
/// The view always has the lifetime, whether a field needs it or not. It is `Debug`, `Clone`,
/// `PartialEq` and `Serialize`, so the types of all fields have to be. It is serialized as the row
/// is, in any format: serde's `rename`, `rename_all`, `transparent`, `with`, `serialize_with` and
/// `skip` hold for it too. It is read as the row is: a field with `with`, `serialize_with` or
/// `deserialize_with` is read by the same function, and is owned; one with `skip` is made by the
/// function of its `default`, or by its type's.
///
/// A view reads the fields one after another, in the order of declaration, so the row's serde traits
/// have to be derived ones. Of a row of an older version it borrows from what the row is converted to,
/// which the transaction keeps.
///
/// # `#[index(fields, options)]`, on the struct
///
/// One index; the attribute can be repeated. The fields come first, in the order in which the
/// index is sorted.
///
/// | field | meaning |
/// |---|---|
/// | `field` | the value of the field |
/// | `desc(field)` | the value of the field, in descending order: the greatest first, `None` last |
/// | `each(field)` | one entry for each distinct element of a collection; at most one in an index |
/// | `computed(method: Type)` | what a method of the struct returns: `fn method(&self) -> Type`; `Desc<…>` sorts in descending order |
/// | `hash(field)` | a hash of the value of the field, which may be of any length: for questions by the value alone |
/// | `each(computed(method: Type))` | one entry for each distinct element of the collection that a method returns |
/// | `hash(computed(method: Type))` | a hash of what a method returns |
///
/// | option | meaning |
/// |---|---|
/// | `strategy = "normalized"` | an entry refers to its row by the primary key; the default |
/// | `strategy = "partial"` | an entry also carries the fields of `include` |
/// | `strategy = "full"` | an entry carries the whole row |
/// | `include = [field]` | the fields that a partial index carries; it implies the strategy |
/// | `consistency = "strong"` | entries change with their row, in the same transaction; the default |
/// | `consistency = "eventual"` | the write leaves a message, and a worker changes the entries later; not with `unique` |
/// | `unique` | at most one row for each key |
/// | `sparse` | no entry with a `None` among the fields of its key; queries take the value of an `Option` |
/// | `filter = method` | entries only for the rows for which `fn method(&self) -> bool` holds; needs a `name` |
/// | `allow(lint)` | this is meant: `few_values`, `redundant`, `doubled_full`, several with commas |
/// | `name = "ident"` | the name of the index on disk and in the names of all its methods, instead of its fields |
///
/// Fields whose types are spelled with `HashSet` or `HashMap` are stored in a canonical order, in rows and in
/// `include`, so that an equal row is never a change. The derive does not see these collections in a struct inside of the
/// row, behind an alias or in a field with serde's `with`. There, use `BTreeSet` and `BTreeMap`; otherwise an equal
/// row counts as a change, and `verify` reports entries that include such a field as stale.
///
/// A `unique` index that is sparse or filtered has one row at most for each key among the rows that
/// have entries.
///
/// # `#[indexes((fields, options), …)]`, on the struct
///
/// Several indexes in one attribute. `#[indexes((town), (town, last_name), (email, unique))]` is the
/// same as `#[index(town)]`, `#[index(town, last_name)]` and `#[index(email, unique)]`. Clippy takes a
/// word that occurs in two `#[index(…)]` for a repeated attribute (`clippy::duplicated_attributes`),
/// and accepts this form.
///
/// # Warnings
///
/// An index that is likely to cost more than it saves is a warning at its first field. It doesn't
/// stand in the way of a build, but where `deprecated` is denied, which is the lint that the compiler
/// takes it for. What isn't allowed is also in the report of the repository's `usage`. A primary key that
/// is spelled as an `Option` is a warning too (`optional_key`, on the table): one row at most has `None`.
///
/// | to allow | what is said | and when |
/// |---|---|---|
/// | `few_values` | an index on a `bool` alone finds a large part of the table | its only field is spelled `bool` or `Option<bool>`, in any form; not if it is `unique`, `sparse` or filtered |
/// | `redundant` | another index answers the same at the same cost | its fields are the first ones of another index, in the same forms, with the same strategy (what a partial one includes is in the other one too) and the same `sparse` and `filter`, so that both have entries for the same rows; or they are the first ones of the primary key, and it isn't partial. Not if it is `unique` |
/// | `doubled_full` | each full index is the table once more | it isn't the first one that is full and has all rows |
///
/// A redundant index can be meant: only an index without further fields has rows in the order of the
/// primary key, which `and` and `or` read without sorting.
///
/// # What isn't noticed
///
/// The methods of `computed` and `filter` are asked when a row is written, for what it was and for
/// what it becomes, so they have to answer by the row alone. An index is built anew when its
/// declaration changes, but a change in the body of such a method can't be noticed: give the index
/// another name then.
///
/// A field that is called `unique` or `sparse` is written `r#unique` here. Names drop an `r#`:
/// the index over `r#type` is called `type`.
///
/// # What is generated
///
/// For the repository: `open`, `open_online`, `insert`, `put`, `update`, `try_update`, `delete`, `remove`, `get`,
/// `all`, and `get_view` if there is a view. It dereferences to the `Table` of its rows, which has the methods that
/// name no key or field, such as `replace`, `get_many`, `bulk_load`, `watch` and `verify`. For an index over `a`
/// and `b`:
///
/// | method | answers with |
/// |---|---|
/// | `by_a_b` | the whole index, in its order |
/// | `find_by_a`, `find_by_a_b` | the entries with these values |
/// | `find_by_a_range`, `find_by_a_b_range` | the entries with the last field in a range |
/// | `find_by_a_starting_with`, `find_by_a_b_starting_with` | the entries with the last field starting with a text or bytes, if it is a `String`, `Box<str>`, `Arc<str>`, `Cow<'static, str>` or `Vec<u8>`, or an `Option` of one of these |
/// | `find_by_a_in`, `find_by_a_b_in` | the entries with the last field equal to one of several values, in the order of the index |
/// | `get_by_a_b` | the one row with these values, if the index is `unique` |
/// | `get_view_by_a_b` | its view, if the index is `unique` and there is a view |
/// | `put_by_a_b` | nothing: it writes a row over the one with its values, if the index is `unique` and has no `each` |
/// | `delete_by_a_b` | whether there was such a row, which it deletes, if the index is `unique` |
/// | `distinct_a`, `distinct_a_b` | each different value of these fields once, and how many entries have it; up to 12 fields |
/// | `distinct_b_by_a` | each different `b` of the entries with this `a`; the first and the last are the smallest and the greatest (for a `desc` field the other way round) |
///
/// Of an index that is eventual, these return an `EventualScan`, which has `stale()` and `verified()`, and there are no `distinct_…` methods.
///
/// The primary key has the `find_by_…` methods too, and `distinct_…` for its first fields. Where several keys begin with
/// the same fields, the methods for these query the key that has no further fields, or else the one
/// declared first, the primary key before all indexes.
///
/// All methods of an index with a name have that name: with `name = "open"`, an index over `a` and `b`
/// has `by_open`, `find_by_open` with both values, `find_by_open_a` with the first one, and
/// `distinct_open`, `distinct_open_a` and `distinct_open_by_a`. A query on the first fields of a
/// `sparse` index would omit rows if a later field can be `None`, so it has the name of the index in
/// the same way: `find_by_a_b_a`. The compiler reports an `Option` that is spelled as another type
/// there.
///
/// A range of a `desc` field is one of its values, and is answered from the greatest down.
///
/// A `hash(field)` takes 16 bytes of a key, and what is found by it is compared with the value in the
/// row: values that share a hash are told apart, also by `unique`. There are no ranges, beginnings or
/// distinct values of it, only of the fields before and behind it; `by_…` of the whole index has the
/// hashes in an order that means nothing. The comparison costs a look-up of the row for each entry,
/// in `entries()`, `keys()` and `count()` too, unless the entry carries the field, in an `include` or
/// a full index. It is not for fields that are never longer than their hash, nor inside of other
/// forms.
///
/// An entry has the fields of its key, those of the primary key, and what it carries, but no field for a hash. Texts and
/// bytes are borrowed from the store, but for those of a `desc` field, which are owned. What a
/// method of `computed` returns is a field with the method's name. An `each(cast)` is one element called `cast`; if the
/// collection is carried too, that one is called `all_cast`. Entries are `Debug`, `Clone`,
/// `PartialEq` and `Serialize`, so the types of the carried fields have to be.
///
/// Everything generated has the visibility of the struct.
///
/// # Errors
///
/// All mistakes are reported at once, each at the word that is wrong. A row is stored in a format
/// that does not name its fields, so these serde attributes are mistakes as well:
///
/// | attribute | where |
/// |---|---|
/// | `flatten`, `skip_serializing_if`; `skip_serializing` or `skip_deserializing` alone | on any field |
/// | `skip` | on a field of a key or of an `include`, and on any field if an index is full or asks a method |
/// | `with`, `serialize_with`, `deserialize_with` | on a field of a key or of an `include`, and on any field if an index is full |
/// | `tag`, `content`, `untagged` | on the struct |
/// | `from`, `try_from`, `into`, `remote` | on the struct, if an index is full or there is a view |
/// | `skip` without a `default` of its own | on a field, if there is a view and the struct has serde's `default` |
#[proc_macro_derive(IndexTable, attributes(table, primary_key, index, indexes))]
pub fn derive_index_table(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(input.into()).into()
}

/// Keeps the struct that rows of a table had in an older version, so that they can be read.
///
/// The struct has named fields, no generic parameters, and implements serde's `Deserialize`. It stays
/// as it was when the rows were written, in the order, the names and the types of its fields; types of
/// its own inside of it have to stay as well. A `From` turns it into the struct of the next version,
/// which names it as its `previous`; that one is the table itself, or another older version.
///
/// ```text
/// #[derive(Deserialize, RowVersion)]
/// struct CustomerV1 {
///     id: u64,
///     name: String,
/// }
///
/// #[derive(Deserialize, RowVersion)]
/// #[table(version = 2, previous = CustomerV1)]
/// struct CustomerV2 {
///     id: u64,
///     first_name: String,
///     last_name: String,
/// }
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[table(version = 3, previous = CustomerV2)]
/// #[index(last_name)]
/// struct Customer { … }
///
/// impl From<CustomerV1> for CustomerV2 { … }
/// impl From<CustomerV2> for Customer { … }
/// ```
///
/// A struct with `#[derive(IndexTable)]` can be a `previous` as it is. This derive generates less:
/// the struct has no indexes and no repository.
///
/// # `#[table(…)]`, on the struct
///
/// | option | meaning | default |
/// |---|---|---|
/// | `version = N` | the version that the struct was | 1 |
/// | `previous = Type` | the struct of the version before, for which this one has a `From` | none |
/// | `changed = [a, b]` | the fields to which that `From` gives another value | none |
/// | `crate = path` | where the crate `index-table` is found | `::index_table` |
///
/// `#[primary_key]` may stay on fields, and means nothing here.
///
/// # Errors
///
/// All mistakes are reported at once, each at the word that is wrong. The serde attributes that the
/// rows of a table can't have are mistakes here too; see [`IndexTable`](macro@IndexTable).
#[proc_macro_derive(RowVersion, attributes(table, primary_key, index, indexes))]
pub fn derive_row_version(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive_version(input.into()).into()
}

/// Makes a type a key: one that a field of a primary key, of an index or of `each(…)` may have.
///
/// | type | in a key it is | queries take | entries give |
/// |---|---|---|---|
/// | a struct with one field | that field | `&Self` | `Self` |
/// | a struct with several fields, named or not | the fields one after another, as a tuple | `&Self` | `Self` |
/// | an enum without fields | its variant's number, two bytes | `Self` | `Self` |
///
/// It sorts by the fields in order, or by the variants in order of declaration. All fields are
/// keys themselves. The type implements `Debug`, `Clone`, `PartialEq` and serde's `Serialize`, and
/// an enum `Copy` as well. It has no parameters.
///
/// ```text
/// #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, IndexKey)]
/// enum Kind {
///     Private,
///     Company,
/// }
///
/// #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexKey)]
/// struct CustomerId(u64);
/// ```
///
/// # `#[key(order = N)]`, on a variant
///
/// The variant's number, from 0 to 65535, and so its place in the order; on all variants of an enum
/// or on none. Without it, variants are numbered from 0 on as they are declared. A variant's
/// discriminant (`A = 5`) doesn't count.
///
/// New variants are declared behind the others and leave the files that there are as they are; with
/// an `order` they can be sorted in between. If the variants that are in a file are not the first
/// ones, or have other numbers, opening the table fails: rows have the positions of variants.
///
/// # `#[key(crate = path)]`, on the type
///
/// Where the crate `index-table` is found; the default is `::index_table`.
///
/// # Errors
///
/// All mistakes are reported at once, each at the word that is wrong.
#[proc_macro_derive(IndexKey, attributes(key))]
pub fn derive_index_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive_key(input.into()).into()
}
