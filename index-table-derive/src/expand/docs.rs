//! The documentation of generated items, which is short, for editors and `cargo expand`.

use std::rc::Rc;

use proc_macro2::TokenStream;

use crate::diagnostics::listed;
use crate::model::{
    Aggregate, Conditions, Extreme, Field, Form, Index, KeyPart, Reading, Source, Strategy, Table,
    Target,
};
use crate::names;

/// Expands to `#[doc = " …"]`, with all lines in one attribute, because each attribute costs compile time.
pub(super) fn doc(text: &str) -> TokenStream {
    let lines: Vec<String> = text
        .lines()
        .map(|line| if line.is_empty() { String::new() } else { format!(" {line}") })
        .collect();
    let lines = lines.join("\n");
    mixed!(#[doc = #lines])
}

fn fields<'a>(fields: impl IntoIterator<Item = &'a KeyPart>) -> String {
    listed(fields.into_iter().map(KeyPart::name))
}

fn primary_key(table: &Table) -> String {
    listed(table.primary_key.iter().map(|field| field.name.as_str()))
}

pub(super) fn repository(table: &Table) -> TokenStream {
    let Table { name, row, .. } = table;
    let key = primary_key(table);
    let indexes = match table.indexes.as_slice() {
        [] => String::new(),
        [one] => format!(", with the index `{}`", one.name),
        many => format!(", with the indexes {}", listed(many.iter().map(|it| it.name.as_str()))),
    };
    doc(&format!(
        "Repository of the table `{name}`: rows of type `{row}` by {key}{indexes}.\n\n\
         It is a handle: cloning it is cheap, and threads can share it."
    ))
}

pub(super) fn entry(table: &Table, index: &Index) -> TokenStream {
    let what = match index.strategy {
        Strategy::Normalized => "its key and the primary key of the row",
        Strategy::Partial(_) => "its key, the primary key of the row and the included fields",
        Strategy::Full => "the whole row",
    };
    let rows = rows_with_entries(index).map(|rows| format!("\n\n{rows}")).unwrap_or_default();
    doc(&format!(
        "Entry of the index `{}` of the table `{}`: {what}.{rows}",
        index.name, table.name
    ))
}

pub(super) fn totals(table: &Table, aggregate: &Aggregate) -> TokenStream {
    let of = match group_fields(aggregate) {
        Some(fields) => format!("a group of rows with the same {fields}"),
        None => "all rows".to_owned(),
    };
    doc(&format!("Totals of {of} in the table `{}`.", table.name))
}

fn group_fields(aggregate: &Aggregate) -> Option<String> {
    let fields = || aggregate.group.iter().map(|field| field.name.as_str());
    fields().next().map(|_| listed(fields()))
}

pub(super) fn group(field: &Field) -> TokenStream {
    if !field.doc.is_empty() {
        return field.doc.clone();
    }
    doc(&format!("The field `{}` of all rows of the group.", field.name))
}

pub(super) fn sum(field: &Field) -> TokenStream {
    doc(&format!("The sum of the field `{}`.", field.name))
}

pub(super) fn extreme(extreme: &Extreme) -> TokenStream {
    let which = if extreme.greatest { "greatest" } else { "least" };
    doc(&format!("The {which} value of the field `{}`; `None` without rows.", extreme.field.name))
}

pub(super) fn aggregate(aggregate: &Aggregate) -> TokenStream {
    let look_ups = match aggregate.extremes.len() {
        0 => "one look-up".to_owned(),
        extremes => format!("one look-up, and {extremes} in indexes"),
    };
    let totals = match group_fields(aggregate) {
        Some(fields) => {
            format!("Returns the totals of the rows with this {fields}; zeros if there are none.")
        }
        None => "Returns the totals of all rows; zeros if there are none.".to_owned(),
    };
    let late = late(aggregate);
    doc(&format!("{totals}{late}\n\nCost: {look_ups}, for any number of rows."))
}

/// Returns the sentence about an eventual aggregate.
const fn late(aggregate: &Aggregate) -> &'static str {
    if aggregate.eventual {
        " The aggregate is eventual: the totals lack the rows whose messages are not applied yet. `wait_for` waits for them."
    } else {
        ""
    }
}

/// The documentation of the method for the groups with given values of the fields `leading`.
pub(super) fn aggregates(aggregate: &Aggregate, leading: &[Rc<Field>]) -> TokenStream {
    let (fields, late) = (group_fields(aggregate).unwrap_or_default(), late(aggregate));
    if leading.is_empty() {
        return doc(&format!(
            "Iterates over the totals of all groups of rows with the same {fields}, in the order of the \
             groups.{late}\n\nCost: one seek for each group."
        ));
    }
    let leading = listed(leading.iter().map(|field| field.name.as_str()));
    doc(&format!(
        "Iterates over the groups with this {leading}, each of rows with the same {fields}, in their \
         order.{late}\n\nCost: one seek for each of these groups, and one more."
    ))
}

pub(super) fn view(table: &Table) -> TokenStream {
    let Table { name, row, .. } = table;
    doc(&format!(
        "View of a row of the table `{name}`: a `{row}` whose strings and bytes are borrowed \
         from the transaction."
    ))
}

pub(super) fn view_field(field: &Field, reading: &Reading) -> TokenStream {
    if !field.doc.is_empty() {
        return field.doc.clone();
    }
    let how = match reading {
        Reading::Made(_) => "which is not stored",
        Reading::Carried | Reading::Owned | Reading::With(_) => "from the row",
    };
    doc(&format!("The field `{}`, {how}.", field.name))
}

/// Returns a sentence about the rows with entries, if not all rows have entries.
fn rows_with_entries(index: &Index) -> Option<String> {
    let absent = "without a `None` in the key";
    let rows = match &index.conditions {
        Conditions { sparse: None, filter: None } => return None,
        Conditions { sparse: Some(_), filter: None } => absent.to_owned(),
        Conditions { sparse: None, filter: Some(method) } => {
            format!("for which `{}` returns true", names::plain(method))
        }
        Conditions { sparse: Some(_), filter: Some(method) } => {
            format!("for which `{}` returns true, {absent}", names::plain(method))
        }
    };
    Some(format!("Only rows {rows} have entries."))
}

/// Expands to the field's documentation, or to a description of its source.
pub(super) fn entry_field(source: &Source) -> TokenStream {
    if let Some(field) = source.field().filter(|field| !field.doc.is_empty()) {
        return field.doc.clone();
    }
    let described = |what: &str, field: &Field| format!("The field `{}`, {what}.", field.name);
    doc(&match source {
        Source::Key(KeyPart::Plain(field) | KeyPart::Desc(field) | KeyPart::Hash(field)) => {
            described("from the key", field)
        }
        Source::Key(KeyPart::Each(field, _)) => {
            format!("One element of the field `{}`, from the key.", field.name)
        }
        Source::Key(KeyPart::EachComputed(method, _)) => {
            format!(
                "One element of the collection that the method `{}` returned, from the \
                     key.",
                method.name
            )
        }
        Source::Key(KeyPart::Computed(method) | KeyPart::HashComputed(method)) => {
            format!("The value that the method `{}` returned, from the key.", method.name)
        }
        Source::PrimaryKey(field) => described("from the primary key", field),
        Source::Included(field) => described("included in the index", field),
        Source::Row(field) => described("from the row", field),
    })
}

fn put_by(table: &Table, parts: &[KeyPart]) -> TokenStream {
    let (name, key) = (&table.name, fields(parts));
    doc(&format!(
        "Replaces the row of the table `{name}` with the same {key}, even if its primary key is different, or adds the row.\n\n\
         Cost: two look-ups, one write for the row and one for each index entry that changes.\n\n\
         # Errors\n\nThose of `put`, `DuplicateKey` if a third row has the primary key, and `IndexNotReadable`."
    ))
}

fn delete_by(table: &Table, parts: &[KeyPart]) -> TokenStream {
    let (name, key) = (&table.name, fields(parts));
    doc(&format!(
        "Deletes the row of the table `{name}` with the given {key}, and returns whether it existed.\n\n\
         Cost: two look-ups, then one write for the row and one for each index entry.\n\n\
         # Errors\n\n`IndexNotReadable`, and the errors of writing: see `Error`."
    ))
}

/// The documentation of the methods of every repository.
pub(super) mod fixed {
    use super::{TokenStream, doc, primary_key};
    use crate::model::{Field, Table};

    pub(in super::super) fn open(table: &Table) -> TokenStream {
        let name = &table.name;
        doc(&format!(
            "Opens the table `{name}`. Creates the table and its indexes if they are missing.\n\n\
             Cost: one transaction. A new index of a large table is built in batches, between \
             which others can write.\n\n\
             # Errors\n\n`SchemaMismatch`, `UniqueViolation` if rows have the same key in a new unique index, \
             and the errors of writing: see `Error`."
        ))
    }

    pub(in super::super) fn open_online(table: &Table) -> TokenStream {
        let name = &table.name;
        doc(&format!(
            "Opens the table `{name}` without building indexes. New indexes are maintained, and are readable after `build`.\n\n\
             Cost: one transaction.\n\n\
             # Errors\n\n`SchemaMismatch`, and the errors of writing: see `Error`."
        ))
    }

    pub(in super::super) fn shard_of(table: &Table) -> TokenStream {
        let name = &table.name;
        doc(&format!(
            "Returns the shard that has the rows of the table `{name}` with the given shard key.\n\n\
             Cost: a binary search in the shard map, without reading the store.\n\n\
             # Errors\n\n`NoShard`, `WrongStore` and `Forked`."
        ))
    }

    pub(in super::super) fn submit_for(table: &Table) -> TokenStream {
        let name = &table.name;
        doc(&format!(
            "Submits a closure for the rows of the table `{name}` with the given shard key, as `submit` of the writer does. \
             The closure begins in the shard that has these rows when it runs. If it needs another shard, it uses this shard \
             too, or runs again with the shards that it needs.\n\n\
             Closures for rows of one shard are committed together, while other shards are written by other threads. \
             For one shard key, they run in the order of the calls, unless the rows move to another shard meanwhile. \
             Closures of `submit_on` are not in the same commits.\n\n\
             Cost: as `submit`. A closure that needs another shard locks both. If it has locked them in the wrong order, the \
             closures of its commit run again.\n\n\
             # Errors\n\nErrors of the result: `NoShard`, `WrongStore`, and those of `submit`; never `OtherShard`."
        ))
    }

    pub(in super::super) fn try_submit_for() -> TokenStream {
        doc(
            "Submits a closure as `submit_for` does if there is room in the queue, and returns it otherwise.\n\n\
             # Errors\n\n`QueueFull` with the closure. The result has all other errors.",
        )
    }

    pub(in super::super) fn submit_for_async() -> TokenStream {
        doc(
            "Submits a closure as `submit_for` does, and waits for its result, from async code of any runtime: see \
             `submit_async` of the writer.\n\n\
             # Errors\n\nErrors of its output: as with `submit_for`.",
        )
    }

    pub(in super::super) fn insert_with(table: &Table, number: &Field) -> TokenStream {
        let (name, number) = (&table.name, &number.name);
        doc(&format!(
            "Calls `row` with the next `{number}` within the given shard key, adds the returned row to the table \
             `{name}`, and returns the number. It is one above all assigned numbers and all rows of the shard key; the \
             first number is 1.\n\n\
             Cost: as `insert`, and one seek to the last row of the shard key, one look-up and one write.\n\n\
             # Errors\n\nThose of `insert`, `SequenceExhausted`, and `OtherKey` if the row has another key."
        ))
    }

    pub(in super::super) fn insert(table: &Table) -> TokenStream {
        let name = &table.name;
        let doc = doc(&format!(
            "Adds a row to the table `{name}`.\n\n\
             Cost: one write for the row and one for each index entry.\n\n\
             # Errors\n\n`DuplicateKey`, `UniqueViolation`, `KeyTooLong`, `Codec`, and the errors of \
             writing: see `Error`."
        ));
        mixed!(#doc #[doc(alias("add", "create", "insert_one", "push", "store"))])
    }

    pub(in super::super) fn put(table: &Table) -> TokenStream {
        let name = &table.name;
        let doc = doc(&format!(
            "Adds a row to the table `{name}`, or replaces the row with the same primary key.\n\n\
             Cost: one look-up, one write for the row and one for each index entry that \
             changes.\n\n\
             # Errors\n\n`UniqueViolation`, `KeyTooLong`, `Codec`, and the errors of writing: see `Error`."
        ));
        mixed!(#doc #[doc(alias("insert_or_replace", "save", "set", "upsert", "write"))])
    }

    pub(in super::super) fn all(table: &Table) -> TokenStream {
        let (name, key) = (&table.name, primary_key(table));
        let doc = doc(&format!("Scans all rows of the table `{name}` in the order of {key}."));
        mixed!(#doc #[doc(alias("find_all", "get_all", "iter", "list", "query", "select"))])
    }

    pub(in super::super) fn update(table: &Table) -> TokenStream {
        let name = &table.name;
        let key = primary_key(table);
        doc(&format!(
            "Changes the row of the table `{name}` with the given {key}, and returns whether it exists.\n\n\
             Cost: one look-up, one write for the row and one for each index entry that \
             changes.\n\n\
             # Errors\n\n`DuplicateKey` if another row has the changed primary key, `UniqueViolation`, \
             `KeyTooLong`, `Codec`, and the errors of writing: see `Error`."
        ))
    }

    pub(in super::super) fn try_update(table: &Table) -> TokenStream {
        let key = primary_key(table);
        doc(&format!(
            "Like `update`, with a closure that can fail. Returns the closure's value, or `None` if no row has the given {key}.\n\n\
             # Errors\n\nThe errors of the closure and of `update`. After an error, nothing has changed."
        ))
    }

    pub(in super::super) fn delete(table: &Table) -> TokenStream {
        let name = &table.name;
        let key = primary_key(table);
        doc(&format!(
            "Deletes the row of the table `{name}` with the given {key}, and returns whether it existed.\n\n\
             Cost: one look-up, then one write for the row and one for each index entry.\n\n\
             # Errors\n\nThe errors of writing: see `Error`."
        ))
    }

    pub(in super::super) fn remove(table: &Table) -> TokenStream {
        let key = primary_key(table);
        doc(&format!(
            "Like `delete`, but returns the row with the given {key}.\n\n\
             # Errors\n\nThe errors of writing: see `Error`."
        ))
    }

    pub(in super::super) fn get(table: &Table) -> TokenStream {
        let name = &table.name;
        let key = primary_key(table);
        let doc = doc(&format!(
            "Returns the row of the table `{name}` with the given {key}.\n\n\
             Cost: one look-up. The row is decoded.\n\n\
             # Errors\n\nThe errors of reading: see `Error`."
        ));
        mixed!(#doc #[doc(alias("contains", "contains_key", "exists", "fetch", "find", "find_one", "load"))])
    }

    pub(in super::super) fn get_async(table: &Table) -> TokenStream {
        let name = &table.name;
        let key = primary_key(table);
        doc(&format!(
            "Returns the row of the table `{name}` with the given {key}, in a transaction of its own. For any executor.\n\n\
             Cost: one look-up, in the thread of the task unless it may have to wait for a disk; on a server, one \
             round trip. The row is decoded.\n\n\
             # Errors\n\nThe errors of `Store::read_async`."
        ))
    }

    /// `write` is a method that writes one row.
    pub(in super::super) fn write_async(table: &Table, write: &str) -> TokenStream {
        let name = &table.name;
        let copied = match write {
            "insert" | "put" => " The row is copied when this method is called.",
            "update" => " The closure may run again.",
            _ => "",
        };
        doc(&format!(
            "Does the same as `{write}` in the table `{name}`, in a transaction of its own. For any executor.{copied}\n\n\
             The writes of many tasks are committed together; see `Store::transaction_async`, also for a dropped \
             future.\n\n\
             # Errors\n\nThe errors of `{write}` and of `Store::transaction_async`."
        ))
    }

    pub(in super::super) fn get_live(table: &Table) -> TokenStream {
        let name = &table.name;
        let key = primary_key(table);
        doc(&format!(
            "Returns the row of the table `{name}` with the given {key}, unless it has expired.\n\n\
             Cost: that of `get`.\n\n\
             # Errors\n\nThe errors of reading: see `Error`."
        ))
    }

    pub(in super::super) fn get_view(table: &Table) -> TokenStream {
        let name = &table.name;
        let key = primary_key(table);
        doc(&format!(
            "Returns the view of the row of the table `{name}` with the given {key}.\n\n\
             Cost: one look-up. Strings and bytes are borrowed.\n\n\
             # Errors\n\nThe errors of reading: see `Error`."
        ))
    }
}

fn get_view_by((place, rows): (&str, &str), target: &Target, parts: &[KeyPart]) -> TokenStream {
    doc(&format!(
        "Returns the view of the row of {place} with the given {}.{rows}\n\n\
         Cost: one look-up{}. Strings and bytes are borrowed.\n\n\
         # Errors\n\n`IndexNotReadable`, and the errors of reading: see `Error`.",
        fields(parts),
        second_look_up(target),
    ))
}

fn get_by_async((place, rows): (&str, &str), target: &Target, parts: &[KeyPart]) -> TokenStream {
    doc(&format!(
        "Returns the row of {place} with the given {}, in a transaction of its own. For any executor.{rows}\n\n\
         Cost: one look-up{}, in the thread of the task unless it may have to wait for a disk; \
         the row is decoded.\n\n\
         # Errors\n\n`IndexNotReadable`, and the errors of `Store::read_async`.",
        fields(parts),
        second_look_up(target),
    ))
}

/// Expands to the documentation of a query method.
pub(super) fn query(table: &Table, target: &Target, form: &Form) -> TokenStream {
    let place = match target {
        Target::Rows => format!("the table `{}`", table.name),
        Target::Index(index) => format!("the index `{}` of the table `{}`", index.name, table.name),
    };
    let rows = match target {
        Target::Index(index) => rows_with_entries(index),
        Target::Rows => None,
    };
    let rows = rows.map(|rows| format!("\n{rows}")).unwrap_or_default();
    let what = match form {
        Form::Whole => format!("Scans {place} in the order of its key{}.", hashes(target)),
        Form::Equal(parts) => {
            format!("Finds the entries of {place} with the given {}.", fields(parts))
        }
        Form::Range(leading, last) => {
            let order = if last.is_desc() { ", in descending order" } else { "" };
            format!("Finds the entries of {place} {} in a range{order}.", up_to_last(leading, last))
        }
        Form::In(leading, last) => {
            let last = up_to_last(leading, last);
            format!(
                "Finds the entries of {place} {last} equal to one of several values, in the order of its key."
            )
        }
        Form::StartingWith(leading, last) => {
            format!(
                "Finds the entries of {place} {} starting with a prefix.",
                up_to_last(leading, last)
            )
        }
        Form::Get(parts) | Form::GetLive(parts) => {
            let unless =
                if matches!(form, Form::GetLive(_)) { ", unless it has expired" } else { "" };
            return doc(&format!(
                "Returns the row of {place} with the given {}{unless}.{rows}\n\n\
                 Cost: one look-up{}. The row is decoded.\n\n\
                 # Errors\n\n`IndexNotReadable`, and the errors of reading: see `Error`.",
                fields(parts),
                second_look_up(target),
            ));
        }
        Form::GetView(parts) => return get_view_by((&place, &rows), target, parts),
        Form::GetAsync(parts) => return get_by_async((&place, &rows), target, parts),
        Form::PutBy(parts) => return put_by(table, parts),
        Form::DeleteBy(parts) => return delete_by(table, parts),
        Form::Distinct { leading, values } => {
            let condition = if leading.is_empty() {
                String::new()
            } else {
                format!(" for the given {}", fields(leading))
            };
            let compared = match compared(target, leading) {
                Some(_) => " and one look-up in the table",
                None => "",
            };
            return doc(&format!(
                "Returns the distinct values of {} in {place}{condition}, in order.{rows}\n\n\
                 Cost: one seek{compared} for each value, and one at the end.",
                fields(values),
            ));
        }
    };
    let compared_parts: &[KeyPart] = match form {
        Form::Equal(parts) => parts,
        Form::Range(leading, _) | Form::In(leading, _) | Form::StartingWith(leading, _) => leading,
        Form::Whole
        | Form::Get(_)
        | Form::GetLive(_)
        | Form::GetAsync(_)
        | Form::GetView(_)
        | Form::PutBy(_)
        | Form::DeleteBy(_)
        | Form::Distinct { .. } => &[],
    };
    let listed = match form {
        Form::In(_, last) => Some(last),
        _ => None,
    };
    let compared_parts: Vec<KeyPart> = compared_parts.iter().chain(listed).cloned().collect();
    let seeks = if listed.is_some() { "one seek for each value" } else { "one seek" };
    let cost = match compared(target, &compared_parts) {
        Some(compared) => format!(
            "{seeks}, then one step and one look-up in the table for each entry, to compare \
             {compared}. `rows()` needs no second look-up."
        ),
        None => format!("{seeks}, then {}", scan_cost(target)),
    };
    let lag = match target {
        Target::Index(index) if index.eventual => {
            "\nThe index may lag behind the rows. `stale()` reads its current entries, and `verified()` compares them with the rows."
        }
        Target::Index(_) | Target::Rows => "",
    };
    doc(&format!("{what}{rows}{lag}\n\nCost: {cost}"))
}

/// Returns ``, in which `url` is a hash``.
fn hashes(target: &Target) -> String {
    let Target::Index(index) = target else { return String::new() };
    let hashed: Vec<&str> = index.hashed().map(KeyPart::name).collect();
    match hashed.as_slice() {
        [] => String::new(),
        [one] => format!(", in which `{one}` is a hash"),
        several => format!(", in which {} are hashes", listed(several.iter().copied())),
    }
}

/// Returns the hashed fields of the query, if an entry doesn't carry them.
fn compared(target: &Target, compared_parts: &[KeyPart]) -> Option<String> {
    let Target::Index(index) = target else { return None };
    let hashed = || compared_parts.iter().filter(|part| part.is_hash());
    let carries = index.carries_hashed() || matches!(index.strategy, Strategy::Full);
    (hashed().next().is_some() && !carries).then(|| fields(hashed()))
}

/// Returns `` with the given values of `a` and `b`, and `c` ``, or only `` with `c` ``.
fn up_to_last(leading: &[KeyPart], last: &KeyPart) -> String {
    let last = last.name();
    if leading.is_empty() {
        format!("with `{last}`")
    } else {
        format!("with the given {}, and with `{last}`", fields(leading))
    }
}

fn second_look_up(target: &Target) -> &'static str {
    match target {
        Target::Index(index) if !matches!(index.strategy, Strategy::Full) => {
            " in the index and one in the table"
        }
        Target::Index(_) | Target::Rows => "",
    }
}

fn scan_cost(target: &Target) -> &'static str {
    match target {
        Target::Rows => "one step for each row.",
        Target::Index(index) => match index.strategy {
            Strategy::Normalized | Strategy::Partial(_) => {
                "one step for each entry; `rows()` follows the references, with one more look-up for \
                 each row."
            }
            Strategy::Full => "one step for each entry; `rows()` needs no second look-up.",
        },
    }
}
