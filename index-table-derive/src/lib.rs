//! The derive macro of `index-table`.

// A mistake in the user's program must cause an error message, never a panic in the macro.
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

/// Generates a repository with secondary indexes for a struct.
///
/// For the struct `Customer`, it generates a `CustomerRepository` with methods that store and query rows, and a
/// struct for the entries of each index, such as `CustomerByTown`. The struct must have named fields and no
/// generic parameters, and must implement serde's `Serialize` and `Deserialize`.
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
/// Marks the field that identifies a row. Several fields, at most 12, form a composite key in the order of their
/// declaration. The attribute takes no arguments.
///
/// # `#[revision]`, on a field
///
/// Marks an unsigned field that counts the writes of a row. `insert` stores 1, and each later write
/// increments it. A `put`, `replace` or `update` fails with `Conflict` if the revision of its row differs from
/// the stored revision. The repository also has `delete_if`.
///
/// # `#[table(…)]`, on the struct
///
/// All options can be omitted.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `name = "…"` | the name on disk: ASCII letters, digits, `_` and `-`, at most 100 of them | the struct's name in snake case |
/// | `was = "…"` or `was = ["…", "…"]` | the former names of the table, the last first: a store that has the table by one of them renames it when it is opened | none |
/// | `version = N` | the version of the struct, at least 1 | 1 |
/// | `previous = Type` | the struct of the previous version, with `#[derive(RowVersion)]` or `#[derive(IndexTable)]`; this struct implements `From` or `TryFrom` it | none |
/// | `changed = [a, b]` | the fields whose values the conversion from `previous` changes; indexes on other fields with the same name and type stay readable when the version changes | none |
/// | `expires = field`, `expires = computed(method: Type)` | the time at which a row expires: an instant, or an `Option` of an instant. If no index with each row begins with it in ascending order, the derive adds an index with its name | none |
/// | `changes` | the table has a durable stream of its changes, which the repository's `changes` reads | none |
/// | `changes(keep = "7d")` | how long a change is kept: a number of seconds, minutes, hours, days or weeks (`s`, `m`, `h`, `d`, `w`) | 7 days; without a limit if `bytes` is given |
/// | `changes(bytes = N)` | the maximum number of bytes of kept changes, without overhead; with `keep`, a change is removed when either limit is reached | without a limit |
/// | `changes(until_consumed)` | a change is kept until all consumers have committed it; without a consumer, all changes are kept; excludes `keep` and `bytes` | |
/// | `shard_by = field`, `[field, field]` or `hash(field)` | the shard key of a sharded store: the first field or fields of the primary key, or a hash of them | the whole table is in one shard |
/// | `shard_map = "…"` | the name of the shard map, which assigns shard keys to shards | the table's name |
/// | `reference` | every shard of a sharded store has a copy of the table | the whole table is in one shard |
/// | `part_of = Struct` | each row is a part of the row of `Struct` with the same primary key: it can't be inserted without this main row, and is deleted with it; in a sharded store, it is in the same shard, or the table of the parts is placed in another shard | |
/// | `keep_unknown` | fields that a later release of the program has added to the struct are kept when an earlier one writes the row | writing such a row is an error |
/// | `repository = Ident` | the name of the repository | the struct's name and `Repository` |
/// | `allow(optional_key)` | suppresses the warning about an `Option` in the primary key | none |
/// | `view`, `view = Ident` | generates a view, which borrows its strings; `Ident` is its name | no view; the struct's name and `View` |
/// | `crate = path` | the path of the crate `index-table` | `::index_table` |
///
/// ## Views
///
/// With `#[table(view)]`, `Customer` has a view `CustomerView<'txn>`. It is returned by `get_view`,
/// `get_view_by_…`, and the `views()` of scans, of combinations and of `get_many`. It has the fields of the row
/// under the same names. A field whose type is spelled as in the first column is borrowed from the transaction.
/// Other fields have the same type as in the row.
///
/// | field of the row | field of the view |
/// |---|---|
/// | `String`, `Box<str>`, `Arc<str>`, `Cow<'static, str>` | `&'txn str` |
/// | `Vec<u8>` | `&'txn [u8]` |
/// | `Option` of one of these | `Option` of the borrowed type |
///
/// The view always has the lifetime, even if no field needs it. It implements `Debug`, `Clone`, `PartialEq`
/// and `Serialize`, so the types of all fields must implement them too. A view is serialized like the row, in
/// any format: serde's `rename`, `rename_all`, `tag`, `transparent`, `with`, `serialize_with`, `skip` and
/// `skip_serializing_if` also apply to the view. It is also deserialized like the row: a field with `with`,
/// `serialize_with` or `deserialize_with` is read by the same function, and is owned. A field with `skip` has the
/// value of the function of its `default`, or the default of its type. A field with `skip_serializing_if` is owned,
/// unless the function is `Option::is_none`; it has the default of its type if its row lacks it.
///
/// A view reads the fields one after another, in the order of declaration, so the row's serde traits must be
/// derived. The view of a row of an older version borrows from the converted row, which the transaction keeps in
/// memory.
///
/// # `#[index(fields, options)]`, on the struct
///
/// Declares one index. The attribute can be repeated. The fields come first, in the sort order of the index.
///
/// | field | meaning |
/// |---|---|
/// | `field` | the value of the field |
/// | `desc(field)` | the value of the field, in descending order: the greatest first, `None` last |
/// | `each(field)` | one entry for each distinct element of a collection; at most one in an index |
/// | `computed(method: Type)` | the value of a method of the struct: `fn method(&self) -> Type`; `Desc<…>` sorts in descending order |
/// | `hash(field)` | a hash of the value of the field, for queries by equality on values of any length |
/// | `each(computed(method: Type))` | one entry for each distinct element of the collection that a method returns |
/// | `hash(computed(method: Type))` | a hash of the value of a method |
///
/// | option | meaning |
/// |---|---|
/// | `strategy = "normalized"` | an entry refers to its row by the primary key; the default |
/// | `strategy = "partial"` | an entry also carries the fields of `include` |
/// | `strategy = "full"` | an entry carries the whole row |
/// | `include = [field]` | the fields that a partial index carries; it implies the strategy |
/// | `consistency = "strong"` | entries change in the transaction of their row; the default |
/// | `scope = "local"` | in a sharded store, entries are in the shard of their row; the default |
/// | `scope = "global"` | in a sharded store, entries are sharded by their own key; needs `shard_by` |
/// | `consistency = "eventual"` | a write adds a message to a queue, and a worker updates the entries later; not with `unique` |
/// | `unique` | at most one row for each key |
/// | `sparse` | no entry with a `None` among the fields of its key; queries take the value of an `Option` |
/// | `filter = method` | entries only for rows for which `fn method(&self) -> bool` returns true; needs a `name` |
/// | `allow(lint)` | suppresses a warning, or several separated by commas: `few_values`, `redundant`, `doubled_full` |
/// | `name = "ident"` | the name of the index on disk and in the names of all its methods, instead of its fields |
///
/// Fields whose types are spelled with `HashSet` or `HashMap` are stored in a canonical order, in rows and in
/// `include`, so that writing an equal row is never a change. The derive can't detect these collections in a
/// struct inside the row, in a type alias or in a field with serde's `with`. In these cases, use `BTreeSet`
/// and `BTreeMap`. Otherwise an equal row counts as a change, and `verify` reports entries that include such
/// a field as stale.
///
/// In a `unique` index that is sparse or filtered, at most one of the rows with entries has each key.
///
/// # `#[indexes((fields, options), …)]`, on the struct
///
/// Declares several indexes in one attribute. `#[indexes((town), (town, last_name), (email, unique))]` is the
/// same as `#[index(town)]`, `#[index(town, last_name)]` and `#[index(email, unique)]`. Clippy reports a word
/// that occurs in two `#[index(…)]` as a repeated attribute (`clippy::duplicated_attributes`), and accepts
/// this form.
///
/// # `#[references(Struct, options)]`, on a field or on the struct
///
/// The field has the primary key of a row of another struct, or of the same struct (`Self`). For a reference with
/// several fields, put the attribute with `fields = [tenant, customer]` on the struct. An `insert`, `put` or `update`
/// fails with `MissingReference` if the referenced row does not exist; a field with `None` is not checked. An index, or
/// the primary key, has to begin with the fields.
///
/// | option | meaning |
/// |---|---|
/// | `on_delete = "restrict"` | deleting a referenced row fails with `Referenced`, even in a program without this struct; the default |
/// | `on_delete = "cascade"` | the referring rows are deleted with the referenced row, in the same transaction; in a program without this struct, the deletion fails with `RepositoryNeeded` |
/// | `fields = [a, b]` | the fields, on the struct |
///
/// In a sharded store, the referring and the referenced row have to be in the same shard, or the referenced table must
/// have a copy in each shard (`reference`). Otherwise, the table can't be opened. A table with `part_of` can also be placed
/// in another shard.
///
/// # `#[aggregate(fields, options)]`, on the struct
///
/// Keeps the number of rows, and the sums of some fields, for each group of rows with equal values in these
/// fields. Without fields, the whole table is one group. The attribute can be repeated. The totals change in the
/// transaction of the row, or later if the aggregate is eventual.
///
/// | option | meaning |
/// |---|---|
/// | `sum = [field]` | the sums of integers of up to 64 bits or `i128`, or of `Option`s of them, whose `None` counts as 0; each is an `i128` |
/// | `min = [field]`, `max = [field]` | the least or greatest value, from an index that begins with the fields of the group and then this field |
/// | `consistency = "eventual"` | the index worker changes the totals after the commit, as in an eventual index; `count()` of a query does not read them. Default: `"strong"` |
///
/// `#[aggregate(customer, sum = [amount])]` adds `aggregate_by_customer`, which returns the totals of a group,
/// and `aggregates_by_customer`, which iterates over all groups. `#[aggregate(tenant, status)]` also adds
/// `aggregates_by_tenant`, which iterates over the groups with this tenant. `#[aggregate(sum = [amount])]` adds
/// `aggregate`. The totals are a struct, such as `InvoiceAggregateByCustomer`, with the fields of the group,
/// `count`, `sum_amount` and `min_amount`. It implements `Debug`, `Clone`, `PartialEq` and `Serialize`.
///
/// # Warnings
///
/// An index that probably costs more than it saves causes a warning at its first field. The compiler reports
/// the warning under the lint `deprecated`, so it stops a build only if that lint is denied. The repository's
/// `usage` repeats the warnings that are not suppressed. A field of the primary key that is spelled as an
/// `Option` also causes a warning (`optional_key`, on the table), because `None` is an ordinary value there.
///
/// | name | warning | condition |
/// |---|---|---|
/// | `few_values` | an index on a `bool` alone finds a large part of the table | its only field is spelled `bool` or `Option<bool>`, in any form; not if it is `unique`, `sparse` or filtered |
/// | `redundant` | another index serves the same queries at the same cost | its fields are the first fields of another index, in the same forms, with the same strategy (of two partial indexes, the other includes all of its fields) and the same `sparse` and `filter`, so that both have entries for the same rows; or its fields are the first fields of the primary key, and it isn't partial. Not if it is `unique` |
/// | `doubled_full` | each full index stores the whole table again | another full index with all rows is declared before it |
///
/// A redundant index can be useful: only an index without additional fields has the rows of one key in the
/// order of the primary key, which `and` and `or` read without sorting.
///
/// # Undetected changes
///
/// A write calls the methods of `computed` and `filter` for the old row and for the new row, so their result
/// must depend on the row alone. An index is rebuilt when its declaration changes, but a change in the body
/// of such a method can't be detected. If you change the body, give the index another name.
///
/// A field called `unique` or `sparse` is written `r#unique` or `r#sparse` in the attribute. Names have no
/// `r#`: the index on `r#type` is called `type`.
///
/// # Generated items
///
/// The repository has `open`, `open_online`, `insert`, `put`, `update`, `try_update`, `delete`, `remove`,
/// `get`, `all`, `get_live` if the rows expire, and `get_view` if there is a view. It dereferences to the `Table` of its rows, which has
/// other methods, such as `replace`, `get_many`, `bulk_load`, `watch` and `verify`. An index on `a` and `b`
/// adds these methods:
///
/// | method | returns |
/// |---|---|
/// | `by_a_b` | the whole index, in its order |
/// | `find_by_a`, `find_by_a_b` | the entries with these values |
/// | `find_by_a_range`, `find_by_a_b_range` | the entries with the last field in a range |
/// | `find_by_a_starting_with`, `find_by_a_b_starting_with` | the entries with the last field starting with a text or bytes, if it is a `String`, `Box<str>`, `Arc<str>`, `Cow<'static, str>` or `Vec<u8>`, or an `Option` of one of these |
/// | `find_by_a_in`, `find_by_a_b_in` | the entries with the last field equal to one of several values, in the order of the index |
/// | `get_by_a_b` | the row with these values, if the index is `unique` |
/// | `get_by_a_b_live` | this row, unless it has expired, if the index is `unique` and the rows expire |
/// | `get_view_by_a_b` | the view of this row, if the index is `unique` and there is a view |
/// | `put_by_a_b` | nothing; inserts a row, or replaces the row with the same values, if the index is `unique` and has no `each` |
/// | `delete_by_a_b` | whether a row with these values was deleted, if the index is `unique` |
/// | `distinct_a`, `distinct_a_b` | the distinct values of these fields, and the number of entries with each; up to 12 fields |
/// | `distinct_b_by_a` | the distinct values of `b` in the entries with a value of `a`; the first and the last are the smallest and the greatest (reversed for a `desc` field) |
///
/// For an eventual index, the scans are `EventualScan`s, which have `stale()` and `verified()`, and there are
/// no `distinct_…` methods.
///
/// The primary key also has the `find_by_…` methods, and `distinct_…` for its first fields. If several keys
/// begin with the same fields, the methods for these fields query the key that has no other fields, or else the
/// key that is declared first. The primary key counts as declared before all indexes.
///
/// The methods of an index with a name contain that name. With `name = "open"`, an index on `a` and `b` has
/// `by_open`, `find_by_open` with both values, `find_by_open_a` with the first value, and `distinct_open`,
/// `distinct_open_a` and `distinct_open_by_a`. A query on the first fields of a `sparse` index omits rows if
/// a later field is `None`, so its name contains the name of the index: `find_by_a_b_a`. If the type of the
/// later field is an alias of an `Option`, the compiler reports an error.
///
/// A range of a `desc` field is a range of its values, and is read from the greatest value to the smallest.
///
/// A `hash(field)` takes 16 bytes of a key. A query compares its value with the value in the row, so values
/// that share a hash are distinguished; `unique` distinguishes them, too. Hashed fields have no ranges, prefixes or distinct
/// values; other fields of the key have them. `by_…` returns the whole index in the order of the hashes. The
/// comparison costs a look-up of the row for each entry, even in `entries()`, `keys()` and `count()`, unless
/// the entry carries the field by `include` or in a full index. `hash` is refused for a field that is never
/// longer than its hash, and inside other forms.
///
/// An entry has the fields of its key, the fields of the primary key, and the included fields, but no field
/// for a hash. Strings and bytes are borrowed from the store, except in a `desc` field, where they are owned.
/// The value of a `computed` method is a field with the method's name. For `each(cast)`, the field `cast` is
/// one element. If the collection is also included, its field is called `all_cast`. Entries implement
/// `Debug`, `Clone`, `PartialEq` and `Serialize`, so the types of the included fields must implement them
/// too.
///
/// All generated items have the visibility of the struct. A field of an entry or of a view has the visibility of the row's
/// field, and that of the struct if a method computes it.
///
/// # Errors
///
/// All mistakes are reported at once, each at the offending token. After a mistake, the repository, the view and the
/// entries have no known type, so the compiler reports nothing about their uses. A row has the names of its fields, so it can use most
/// of serde's attributes. A view, and an entry of a full index, read each field separately, by its name and type. So these
/// attributes are mistakes too:
///
/// | attribute | where |
/// |---|---|
/// | `skip_serializing` without `default` | on any field |
/// | `skip`, `skip_serializing`, `skip_deserializing` | on a field of a key, of an `include` or of an aggregate, on the revision, and on any field if an index is full |
/// | `skip_serializing_if` | on a field of an aggregate, and on the revision |
/// | `skip_serializing_if`, `skip_serializing` | on a field with `default = "…"`, `with` or `deserialize_with`, or without a `default` of its own in a struct with serde's `default`, if an index is full or there is a view |
/// | `with`, `serialize_with`, `deserialize_with` | on a field of an `include` or of an aggregate, and on any field if an index is full |
/// | `flatten` | on a field of a key, and on any field if an index is full or there is a view |
/// | `from`, `try_from`, `into`, `remote` | on the struct, if an index is full or there is a view |
/// | `skip`, `skip_deserializing` without a `default` of its own | on a field, if there is a view and the struct has serde's `default` |
///
/// If other attributes change the value that is read back (`with` on a field of a key, or `skip` in a table whose index
/// calls a method), each row is decoded when it is written. A row with another key in an index or in the primary key is
/// refused with `Error::Codec`.
#[proc_macro_derive(
    IndexTable,
    attributes(
        table, primary_key, revision, references, index, indexes, aggregate,
        // These words of other libraries are errors, which name the right attribute.
        primary, primarykey, pk, id, key, unique, indexed, foreign_key
    )
)]
pub fn derive_index_table(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(input.into()).into()
}

/// Makes rows of an older version readable as the struct of that version.
///
/// The struct must have named fields and no generic parameters, and must implement serde's `Deserialize`. The
/// order, names and types of its fields must not change, and neither must the definitions of these types. The struct
/// of the next version names this struct as its `previous`, and implements `From` or `TryFrom` it. The next version is the
/// table itself, or another older version.
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
/// A struct with `#[derive(IndexTable)]` can also be a `previous`. `RowVersion` generates less code: no
/// indexes and no repository.
///
/// # `#[table(…)]`, on the struct
///
/// | option | meaning | default |
/// |---|---|---|
/// | `version = N` | the version of the struct | 1 |
/// | `previous = Type` | the struct of the previous version; this struct implements `From` or `TryFrom` it | none |
/// | `changed = [a, b]` | the fields whose values the conversion from `previous` changes | none |
/// | `crate = path` | the path of the crate `index-table` | `::index_table` |
///
/// `#[primary_key]` can stay on fields. It has no effect.
///
/// # Errors
///
/// All mistakes are reported at once, each at the offending token. serde's `skip_serializing` without `default` is a
/// mistake, too, as on the struct of a table.
#[proc_macro_derive(
    RowVersion,
    attributes(table, primary_key, revision, references, index, indexes, aggregate)
)]
pub fn derive_row_version(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive_version(input.into()).into()
}

/// Makes a type a key: a type for a field of a primary key, of an index or of `each(…)`.
///
/// | type | form in a key | queries take | entries have |
/// |---|---|---|---|
/// | a struct with one field | the field | `&Self` | `Self` |
/// | a struct with several fields, named or not | the fields one after another, as a tuple | `&Self` | `Self` |
/// | an enum without fields | the variant's number, in two bytes | `Self` | `Self` |
///
/// Values are sorted by the fields in order, or by the variants in order of declaration. All fields must be
/// keys. The type must implement `Debug`, `Clone`, `PartialEq` and serde's `Serialize`, and an enum also
/// `Copy`. It must have no generic parameters.
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
/// Sets the variant's number, from 0 to 65535, which determines its position in the order. Either all
/// variants of an enum have this attribute or none. Without it, variants are numbered from 0 in the order of
/// declaration. A variant's discriminant (`A = 5`) is ignored.
///
/// New variants must be declared after the existing variants, and don't change existing files. With `order`, they
/// can sort between existing variants. If the variants in a file are not the first variants of the enum, or have other
/// numbers, opening the table fails, because rows contain the positions of variants.
///
/// # `#[key(crate = path)]`, on the type
///
/// Sets the path of the crate `index-table`. The default is `::index_table`.
///
/// # Errors
///
/// All mistakes are reported at once, each at the offending token.
#[proc_macro_derive(IndexKey, attributes(key))]
pub fn derive_index_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive_key(input.into()).into()
}
