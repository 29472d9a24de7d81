//! The conversion of attributes to the model, with every rule about more than one token, and every default.
//!
//! After a mistake is reported, it is corrected or its part is left out, so that the generated code still has
//! the methods that the program calls.

mod aggregate;
mod changes;
mod entry;
mod expiry;
mod index;
pub(crate) mod key;
mod lint;
mod owned;
mod reference;
mod serde;
mod sharding;
pub(crate) mod version;
mod view;

use std::cell::RefCell;
use std::rc::Rc;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::{Data, DeriveInput, Fields, Ident, Path, Type, parse_quote};

use crate::attr::reference::ReferenceAttr;
use crate::attr::serde::SerdeKey;
use crate::attr::table::TableAttr;
use crate::attr::{self, Similar, StructAttrs};
use crate::diagnostics::Diagnostics;
use crate::model::{Field, Table};
use crate::names::{self, Types};
use crate::types::{self, DataType, LONGEST_ARRAY};

/// The items that can be generated.
pub(crate) enum Lowered {
    Table(Box<Table>),
    /// Nothing but a replacement. An error has been reported.
    Inert(Inert),
}

/// The known parts of a struct that can't be a table.
pub(crate) struct Inert {
    pub(crate) krate: Path,
    pub(crate) repository: Ident,
    /// The name of the view, if there is one.
    pub(crate) view: Option<Ident>,
}

/// The maximum length of the on-disk name of a table or an index, in bytes.
const LONGEST_NAME: usize = 100;

/// The maximum number of fields of a primary key. The fields are a tuple, and the standard library implements
/// its traits for tuples of up to this length.
const LONGEST_PRIMARY_KEY: usize = 12;

/// A field with its attributes and their spans.
struct Declared<'a> {
    field: Rc<Field>,
    ty: &'a Type,
    /// The span of `#[primary_key]`.
    primary_key: Option<Span>,
    /// An attribute such as `#[id]`.
    similar: Option<Similar>,
    /// The span of `#[revision]`.
    revision: Option<Span>,
    references: Vec<ReferenceAttr>,
    serde: Vec<SerdeKey>,
}

/// Checks the struct and resolves every default.
pub(crate) fn lower(input: &DeriveInput, errors: &Diagnostics) -> Lowered {
    let owned = owned::without_references(input, errors);
    let storable = owned.is_none();
    let input = owned.as_ref().unwrap_or(input);
    let attributes = attr::on_struct(&input.attrs, errors);
    attr::words::check(input, errors);
    let krate = match &attributes.table.krate {
        Some(path) => path.value.clone(),
        None => parse_quote!(::index_table),
    };
    let repository = match &attributes.table.repository {
        Some(ident) => ident.value.clone(),
        None => names::repository(&input.ident),
    };
    let fields = declared_fields(input, "IndexTable", errors);
    if let Some(table) = table(input, &attributes, fields, &krate, &repository, errors) {
        return Lowered::Table(Box::new(Table { storable, ..table }));
    }
    let view = view::name(&attributes.table, &input.ident);
    Lowered::Inert(Inert { krate, repository, view })
}

fn table(
    input: &DeriveInput,
    attributes: &StructAttrs,
    fields: Option<Vec<Declared<'_>>>,
    krate: &Path,
    repository: &Ident,
    errors: &Diagnostics,
) -> Option<Table> {
    let name = table_name(&attributes.table, &input.ident, errors);
    let was = former_names(&attributes.table, &name, errors);
    let version = version::number(&attributes.table, errors);
    let previous = version::previous(&attributes.table, &input.ident, version, errors);
    let fields = fields?;
    let changed = version::changed(&attributes.table, &input.ident, &fields, errors);
    let primary_key = primary_key(&input.ident, &fields, attributes.primary_key, errors);

    let mut types = Types::default();
    let row = format!("the struct `{}` itself", input.ident);
    types.take(&input.ident, row, "", errors);
    let advice = "choose another name with `#[table(repository = …)]`";
    let repository = if types.take(repository, "the repository".to_owned(), advice, errors) {
        repository.clone()
    } else {
        names::repository(&input.ident)
    };

    let mut scope = index::Scope {
        row: &input.ident,
        fields: &fields,
        primary_key: &primary_key,
        types,
        methods: RefCell::default(),
        errors,
    };
    let mut indexes = index::lower_all(&mut scope, &attributes.indexes);
    let expiry = expiry::lower(&scope, &attributes.table, &mut indexes);
    let viewed = attributes.table.view.is_some();
    let reads_back = serde::check(&attributes.serde, &fields, &mut indexes, viewed, errors);
    lint::check(&mut indexes, &primary_key, errors);
    let allowed = attributes.table.allow.as_ref().map_or(&[][..], |allow| &allow.value);
    let findings = lint::primary_key(&primary_key, allowed, errors);
    let indexes = entry::finish(&mut scope, indexes);
    let expiry = expiry.map(|expiry| expiry.locate(&indexes));
    let sharding = sharding::lower(&attributes.table, &name, &scope);
    match &sharding {
        Some(sharding) => sharding::check_unique(sharding, &primary_key, &indexes, errors),
        // An invalid shard key has been reported.
        // The scope of an index may be a guess.
        None if attributes.table.shard_by.is_none() && errors.is_empty() => {
            sharding::check_global(&indexes, errors);
        }
        None => {}
    }
    let aggregates = aggregate::lower_all(&mut scope, &attributes.aggregates, &indexes);
    let stream = changes::lower(&attributes.table, errors);
    let references = reference::lower_all(&scope, attributes, &indexes);
    let revision = revision(&fields, errors);
    let view = view::lower(&mut scope, attributes);

    let marked = fields.iter().find_map(|declared| declared.primary_key);
    let place = marked.unwrap_or_else(|| input.ident.span());
    let rows = names::Rows { viewed: view.is_some(), expires: expiry.is_some() };
    let queries = names::queries(&primary_key, place, &indexes, rows, errors);
    // Without a primary key, no row can be stored.
    if primary_key.is_empty() {
        return None;
    }
    Some(Table {
        krate: krate.clone(),
        visibility: input.vis.clone(),
        row: input.ident.clone(),
        repository,
        storable: true,
        reads_back,
        keeps_unknown: attributes.table.keep_unknown.is_some(),
        name,
        was,
        version,
        previous,
        changed,
        fields: fields.into_iter().map(|declared| declared.field).collect(),
        primary_key,
        indexes: indexes.into_iter().map(|(index, _)| index).collect(),
        findings,
        expiry,
        changes: stream,
        revision,
        aggregates,
        references,
        part_of: attributes.table.part_of.as_ref().map(|part_of| part_of.value.clone()),
        sharding,
        reference: attributes.table.reference.is_some(),
        view,
        queries,
    })
}

/// Returns the fields, if the type is a struct with named fields and without generic parameters.
fn declared_fields<'a>(
    input: &'a DeriveInput,
    derive: &str,
    errors: &Diagnostics,
) -> Option<Vec<Declared<'a>>> {
    let row = &input.ident;
    let generic = input.generics.params.first().is_some();
    if generic {
        errors.error_on(
            &input.generics,
            format!(
                "a row has one stored form and owns its values, so `{derive}` cannot be derived \
                 for a struct with type, const or lifetime parameters"
            ),
        );
    }
    let shape = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => {
                let declared: Vec<_> = fields
                    .named
                    .iter()
                    .enumerate()
                    .filter_map(|it| declare(input, it, errors))
                    .collect();
                return (!generic).then_some(declared);
            }
            Fields::Unnamed(_) => "fields need names, so not for a tuple struct",
            Fields::Unit => "it needs a primary key, so not for a unit struct",
        },
        Data::Enum(_) => "every row has the same fields, so not for an enum",
        Data::Union(_) => "a row has all of its fields, so not for a union",
    };
    errors
        .error(row.span(), format!("`{derive}` is derived for structs with named fields: {shape}"));
    None
}

fn declare<'a>(
    input: &DeriveInput,
    (position, field): (usize, &'a syn::Field),
    errors: &Diagnostics,
) -> Option<Declared<'a>> {
    let row = &input.ident;
    let attributes = attr::on_field(field, errors);
    let ident = field.ident.clone()?;
    let on_struct = attr::serde::read(&input.attrs);
    if types::is_desc(&field.ty) {
        errors.error_on(&field.ty, not_desc(&ident, attributes.primary_key.is_some()));
    }
    Some(Declared {
        field: Rc::new(Field {
            name: names::plain(&ident),
            skipped: attributes.serde.iter().any(serde::leaves_out),
            has_default: attr::serde::has_default(&attributes.serde, &on_struct),
            has_function: attr::serde::has_function(&attributes.serde),
            is_flat: attributes.serde.iter().any(|key| key.name == "flatten"),
            stored: attr::serde::names_of(&ident, &attributes.serde, &on_struct),
            written: attr::serde::written_name(&ident, &attributes.serde, &on_struct),
            ident,
            // The elements have the next number.
            ty: DataType::of(&types::named(&field.ty, row)).at(row, 2 * position),
            position,
            visibility: field.vis.clone(),
            declared: types::declared(&field.ty),
            doc: documentation(field),
        }),
        ty: &field.ty,
        primary_key: attributes.primary_key,
        similar: attributes.similar,
        revision: attributes.revision,
        references: attributes.references,
        serde: attributes.serde,
    })
}

/// Returns the `#[doc = …]` attributes of a field.
fn documentation(field: &syn::Field) -> TokenStream {
    let is_text = |attribute: &&syn::Attribute| {
        attribute.path().is_ident("doc") && matches!(attribute.meta, syn::Meta::NameValue(_))
    };
    field.attrs.iter().filter(is_text).map(ToTokens::to_token_stream).collect()
}

/// Returns the reason why this field can't be a `Desc`.
fn not_desc(field: &Ident, in_primary_key: bool) -> String {
    let advice = if in_primary_key {
        "a primary key is in ascending order, and `rev()` reads it backwards".to_owned()
    } else {
        format!("keep the value itself, and index it by `desc({field})`")
    };
    format!(
        "only a method of `computed(…)` can return a `Desc`, and a row can't contain one; \
             {advice}"
    )
}

/// Returns the message about a word that is not a field of `row`.
fn unknown_field(row: &Ident, name: &str, meant: Option<&str>) -> String {
    let advice = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
    format!("`{row}` has no field `{name}`{advice}")
}

/// Returns the name in `#[table(name = "…")]`, or the default name.
fn table_name(table: &TableAttr, row: &Ident, errors: &Diagnostics) -> String {
    let default = names::table(row);
    let (name, span) = match &table.name {
        Some(name) => (name.value.value(), name.value.span()),
        None => (default.clone(), row.span()),
    };
    let given = table.name.is_some();
    if !is_name(&name) {
        let advice = if given { "" } else { "; choose one with `#[table(name = \"…\")]`" };
        errors.error(
            span,
            format!(
                "`{name}` can't be the name of a table: a name is a letter or `_`, then letters, \
                 digits, `_` and `-`, all ASCII{advice}"
            ),
        );
    } else if name.len() > LONGEST_NAME {
        errors.error(span, too_long("table", &name));
    } else {
        return name;
    }
    default
}

/// Returns the names in `#[table(was = …)]`.
fn former_names(table: &TableAttr, name: &str, errors: &Diagnostics) -> Vec<String> {
    let Some(was) = &table.was else { return Vec::new() };
    if was.value.is_empty() {
        errors.error(was.key, "this list is empty; name the former table: `was = \"customers\"`");
    }
    let mut names: Vec<String> = Vec::new();
    for given in &was.value {
        let former = given.value();
        if former.is_empty() {
            errors.error(
                given.span(),
                "no table had an empty name; give the former name, or remove `was`",
            );
        } else if former == name {
            errors.error(
                given.span(),
                format!(
                    "`{name}` is the name that the table has now; `was` is for its former names"
                ),
            );
        } else if names.contains(&former) {
            errors.error(given.span(), format!("`{former}` is in this list already"));
        } else if !is_name(&former) || former.len() > LONGEST_NAME {
            errors.error(given.span(), format!("no table can have had the name `{former}`"));
        } else {
            names.push(former);
        }
    }
    names
}

/// Whether a name can be the name of a table.
fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first == '_' || first.is_ascii_alphabetic())
        && letters.all(|letter| matches!(letter, '_' | '-') || letter.is_ascii_alphanumeric())
}

fn too_long(what: &str, name: &str) -> String {
    format!(
        "the name of this {what} has {} bytes, more than {LONGEST_NAME}; choose another with \
         `name = \"…\"`",
        name.len()
    )
}

/// Returns the fields of the primary key; after a mistake, the first possible field. A `misplaced` attribute
/// has been reported.
fn primary_key(
    row: &Ident,
    fields: &[Declared<'_>],
    misplaced: bool,
    errors: &Diagnostics,
) -> Vec<Rc<Field>> {
    let marked: Vec<_> = fields.iter().filter(|declared| declared.primary_key.is_some()).collect();
    let misplaced = misplaced && fields.iter().all(|it| it.field.name != "primary_key");
    let similar = fields.iter().find_map(|declared| declared.similar);
    if let (true, false, Some(similar)) = (marked.is_empty(), misplaced, similar) {
        if !similar.is_reported {
            errors.error(similar.span, attr::IS_PRIMARY_KEY);
        }
    } else if marked.is_empty() && !misplaced {
        errors.error(
            row.span(),
            "this table has no primary key; mark the field that identifies a row with \
             `#[primary_key]`, or several for a composite key",
        );
    }
    if let Some(span) = marked.get(LONGEST_PRIMARY_KEY).and_then(|declared| declared.primary_key) {
        errors.error(
            span,
            format!("too many fields: a primary key has at most {LONGEST_PRIMARY_KEY}"),
        );
    }
    for declared in &marked {
        if types::has_no_encoding(declared.ty) {
            errors.error_on(
                declared.ty,
                no_encoding(&declared.field.name, &declared.field.declared, declared.ty),
            );
        }
    }
    let (usable, unusable): (Vec<_>, Vec<_>) =
        marked.into_iter().partition(|declared| !types::has_no_encoding(declared.ty));
    if !usable.is_empty() && unusable.is_empty() {
        return usable
            .into_iter()
            .take(LONGEST_PRIMARY_KEY)
            .map(|declared| Rc::clone(&declared.field))
            .collect();
    }
    let stand_in = fields.iter().filter(|declared| declared.similar.is_some()).chain(fields);
    let stand_in = stand_in.into_iter().find(|declared| !types::has_no_encoding(declared.ty));
    stand_in.map(|declared| Rc::clone(&declared.field)).into_iter().collect()
}

/// Returns the field with `#[revision]`.
fn revision(fields: &[Declared<'_>], errors: &Diagnostics) -> Option<Rc<Field>> {
    let mut marked = fields.iter().filter_map(|declared| Some((declared, declared.revision?)));
    let (declared, span) = marked.next()?;
    for (_, span) in marked {
        errors.error(span, "a row has one revision; mark one field with `#[revision]`");
    }
    if declared.primary_key.is_some() {
        let message = "a field of the primary key can't be the revision, which changes with each \
                       write of the row";
        errors.error(span, message);
        return None;
    }
    if let Some(key) = declared.serde.iter().find(|key| key.name.contains("skip")) {
        serde::report(key, "a revision must be stored with its row", errors);
        return None;
    }
    Some(Rc::clone(&declared.field))
}

/// Returns the reason why a field with this name and type, whose text is `text`, can't be part of a key.
fn no_encoding(name: &str, text: &str, ty: &Type) -> String {
    let long = types::is_long_array(ty);
    let ty = types::shown(text);
    if long {
        return format!(
            "`{name}` is of type `{ty}`, and an array in a key has up to {LONGEST_ARRAY} bytes; \
             use `Vec<u8>`"
        );
    }
    format!("`{name}` is of type `{ty}`, which has no key encoding; {KEY_TYPES}")
}

const KEY_TYPES: &str = "a key consists of integers, floats, `bool`, `char`, `String`, `Vec<u8>`, \
                         `[u8; N]` up to 32, times, IP addresses, types with \
                         `#[derive(IndexKey)]`, and `Option`s and tuples of these";
