//! The rules of `#[index(…)]`.

use std::rc::Rc;

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::parse::Parser as _;
use syn::{Ident, LitStr, Type};

use super::{Declared, KEY_TYPES, LONGEST_NAME, no_encoding, too_long};
use crate::attr::index::{IndexAttr, PartAttr, PartKind};
use crate::attr::keys::{self, Form, INDEX_KEYS, IndexKey, Lint, TABLE_KEYS};
use crate::diagnostics::{Diagnostics, listed, suggestion};
use crate::model::{Conditions, Field, Finding, KeyPart, Method, NEVER_ABSENT, Strategy};
use crate::names::{self, Types};
use crate::types::{self, DataType};

/// What the rules of an index look at besides its attribute.
pub(super) struct Scope<'a> {
    pub(super) row: &'a Ident,
    pub(super) fields: &'a [Declared<'a>],
    pub(super) primary_key: &'a [Rc<Field>],
    pub(super) types: Types,
    pub(super) errors: &'a Diagnostics,
}

/// An index that has been checked but for what concerns its entries.
#[expect(clippy::struct_excessive_bools, reason = "each is said by a word of its own")]
pub(super) struct Draft {
    /// Where what is generated for it points to.
    pub(super) span: Span,
    pub(super) name: String,
    pub(super) named: bool,
    pub(super) parts: Vec<KeyPart>,
    pub(super) strategy: Strategy,
    pub(super) unique: bool,
    /// It follows the rows, in its own time.
    pub(super) eventual: bool,
    pub(super) conditions: Conditions,
    pub(super) allowed: Vec<Lint>,
    pub(super) findings: Vec<Finding>,
    /// A mistake was repaired by a guess, so nothing else about it is worth a message.
    guessed: bool,
}

/// The strategies by their names.
const STRATEGIES: [&str; 3] = [NORMALIZED, PARTIAL, FULL];
const NORMALIZED: &str = "normalized";
const PARTIAL: &str = "partial";
const FULL: &str = "full";

/// When an index has what was written to its table, by name.
const CONSISTENCIES: [&str; 2] = [STRONG, EVENTUAL];
const STRONG: &str = "strong";
const EVENTUAL: &str = "eventual";

/// Checks each index. One that is not sound is left out.
pub(super) fn lower_all(scope: &mut Scope<'_>, attributes: &[IndexAttr]) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    for attribute in attributes {
        if let Some(draft) = lower(scope, attribute)
            && is_new(&draft, &drafts, scope.errors)
        {
            drafts.push(draft);
        }
    }
    drafts
}

fn lower(scope: &Scope<'_>, attribute: &IndexAttr) -> Option<Draft> {
    let errors = scope.errors;
    let mut keys =
        KeyParts { scope, parts: Vec::new(), sound: true, guessed: false, unique: false };
    for part in &attribute.parts {
        keys.add(part);
    }
    let KeyParts { parts, sound, guessed, unique, .. } = keys;
    let sound = sound && !attribute.incomplete;
    if attribute.parts.is_empty() && sound {
        errors.error(attribute.span, "this index has no fields: `#[index(field)]`");
    }
    let conditions = Conditions {
        sparse: sparse(attribute, &parts, sound && !guessed, errors),
        filter: attribute.filter.as_ref().map(|filter| filter.value.clone()),
    };
    let strategy = strategy(scope, attribute, &parts);
    let eventual = is_eventual(attribute, unique, errors);
    let given = attribute.name.as_ref().and_then(|name| given_name(&name.value, errors));
    if parts.is_empty() || !sound {
        return None;
    }

    let span = attribute.parts.first().map_or(attribute.span, |part| part.kind.span());
    let named = given.is_some();
    let name = given.unwrap_or_else(|| names::index(&parts));
    if !named && name.len() > LONGEST_NAME {
        errors.error(span, too_long("index", &name));
    }
    let unique = unique || attribute.unique.is_some();
    let allowed = attribute.allow.as_ref().map(|allow| allow.value.clone()).unwrap_or_default();
    let findings = Vec::new();
    Some(Draft {
        span,
        name,
        named,
        parts,
        strategy,
        unique,
        eventual,
        conditions,
        allowed,
        findings,
        guessed,
    })
}

/// Where `sparse` is demanded, if it makes a difference: where it can't be told, the compiler is
/// asked.
fn sparse(
    attribute: &IndexAttr,
    parts: &[KeyPart],
    certain: bool,
    errors: &Diagnostics,
) -> Option<Span> {
    let span = attribute.sparse.as_ref()?.key;
    let present = |part: &KeyPart| {
        !part.is_each() && part.key_type().is_optional().is_some_and(|optional| !optional)
    };
    if !parts.iter().all(present) {
        return Some(span);
    }
    // Of parts that are missing or were guessed nothing is known.
    if certain && !parts.is_empty() {
        errors.error(span, NEVER_ABSENT);
    }
    None
}

/// Whether no earlier index is the same. The first one stays.
fn is_new(draft: &Draft, drafts: &[Draft], errors: &Diagnostics) -> bool {
    let Some(other) = drafts.iter().find(|other| other.name == draft.name) else { return true };
    // What was guessed may well be wrong.
    if draft.guessed || other.guessed {
        return false;
    }
    let same = draft.parts.len() == other.parts.len()
        && draft.parts.iter().zip(&other.parts).all(|(a, b)| a.same(b));
    let name = &draft.name;
    let message = if same && !draft.named {
        format!(
            "there is an index `{name}` over these fields already; if both are meant, tell them \
             apart with `name = \"…\"`"
        )
    } else {
        format!("there is an index `{name}` already; tell them apart with `name = \"…\"`")
    };
    errors.error(draft.span, message);
    false
}

impl PartKind {
    fn span(&self) -> Span {
        match self {
            Self::Field(field) | Self::Each(field) | Self::Desc(field) | Self::Hash(field) => {
                field.span()
            }
            Self::Computed { method, .. } => method.span(),
        }
    }
}

/// Gathers the parts of a key.
struct KeyParts<'s, 'a> {
    scope: &'s Scope<'a>,
    parts: Vec<KeyPart>,
    /// No part is missing.
    sound: bool,
    /// A misspelt field was replaced.
    guessed: bool,
    /// A bare word turned out to be a misspelt `unique`.
    unique: bool,
}

impl<'a> KeyParts<'_, 'a> {
    fn add(&mut self, part: &PartAttr) {
        match &part.kind {
            PartKind::Field(word) => self.plain(word, part.late, KeyPart::Plain),
            PartKind::Each(field) => self.each(field, part.late),
            PartKind::Desc(field) => self.plain(field, part.late, KeyPart::Desc),
            PartKind::Hash(field) => self.plain(field, part.late, KeyPart::Hash),
            PartKind::Computed { method, ty } => self.computed(method, ty, part.late),
        }
    }

    fn plain(&mut self, word: &Ident, late: bool, form: fn(Rc<Field>) -> KeyPart) {
        let Some(declared) = self.resolve(word, late) else { return };
        if types::has_no_encoding(declared.ty) {
            // A field of the primary key has been reported where it is declared.
            if declared.primary_key.is_none() {
                let advice = if types::is_collection_of_keys(declared.ty) {
                    format!("; `each({word})` makes an entry for each of its elements")
                } else {
                    String::new()
                };
                let message = format!(
                    "{}{advice}",
                    no_encoding(&declared.field.name, &declared.field.declared, declared.ty)
                );
                self.scope.errors.error(word.span(), message);
            }
            self.sound = false;
            return;
        }
        let part = form(Rc::clone(&declared.field));
        if part.is_hash() && types::is_short(declared.ty) {
            let Field { name, declared: ty, .. } = &*declared.field;
            let message = format!(
                "a hash takes 16 bytes, and no `{}` takes more; the value itself is indexed by \
                 `{name}`",
                types::shown(ty)
            );
            self.scope.errors.error(word.span(), message);
        }
        self.push(word, part);
    }

    fn computed(&mut self, method: &Ident, ty: &Type, late: bool) {
        let errors = self.scope.errors;
        let name = names::plain(method);
        if late {
            errors.error(method.span(), behind_options(&name));
        }
        if types::has_no_encoding(ty) {
            let advice = match ty {
                Type::Reference(_) => "what a method returns for a key is owned; ",
                _ => "",
            };
            let ty_text = types::shown(&types::text(ty));
            let message = format!(
                "`{name}` returns `{ty_text}`, which has no key encoding; {advice}{KEY_TYPES}"
            );
            errors.error_on(ty, message);
            self.sound = false;
            return;
        }
        let computed = Method { ident: method.clone(), name, ty: DataType::of(ty) };
        self.push(method, KeyPart::Computed(Rc::new(computed)));
    }

    fn each(&mut self, word: &Ident, late: bool) {
        let errors = self.scope.errors;
        let Some(declared) = self.resolve(word, late) else { return };
        let Field { name, declared: ty, .. } = &*declared.field;
        let ty = types::shown(ty);
        if types::elements_have_no_encoding(declared.ty) {
            errors.error(
                word.span(),
                format!(
                    "`each({name})` makes a key of each element of `{ty}`, and they have no key \
                     encoding"
                ),
            );
            self.sound = false;
            return;
        }
        if types::is_no_collection(declared.ty) {
            errors.error(
                word.span(),
                format!(
                    "`each({name})` makes an entry for each element, and `{ty}` is no collection; \
                     the value itself is indexed by `{name}`"
                ),
            );
            self.push(word, KeyPart::Plain(Rc::clone(&declared.field)));
            return;
        }
        if self.parts.iter().any(KeyPart::is_each) {
            errors.error(
                word.span(),
                "an index has at most one `each`: two would make an entry for every pair of \
                 elements",
            );
            self.sound = false;
            return;
        }
        let element = Rc::new(DataType::element_of(&types::named(declared.ty, self.scope.row)));
        self.push(word, KeyPart::Each(Rc::clone(&declared.field), element));
    }

    fn push(&mut self, word: &Ident, part: KeyPart) {
        let name = part.name();
        if let Some(other) = self.parts.iter().find(|other| other.name() == name) {
            if !self.guessed {
                let reason = if other.field().is_some() != part.field().is_some() {
                    "; a part of a key is known by its name, so call the method something else"
                } else if other.is_hash() != part.is_hash() {
                    "; beside the value its hash tells nothing more"
                } else if other.is_desc() != part.is_desc() {
                    "; behind itself it has nothing left to sort, in either direction"
                } else {
                    ""
                };
                let message = format!("`{name}` is in this index already{reason}");
                self.scope.errors.error(word.span(), message);
            }
            return;
        }
        self.parts.push(part);
    }

    /// The field that a word names, or the one that it was probably meant to name.
    fn resolve(&mut self, word: &Ident, late: bool) -> Option<&'a Declared<'a>> {
        let Scope { fields, errors, .. } = *self.scope;
        let name = names::plain(word);
        if let Some(declared) = find(fields, &name) {
            if late {
                errors.error(word.span(), behind_options(&name));
            }
            return Some(declared);
        }
        if let Some(key) = keys::find(INDEX_KEYS, &name) {
            let message = match key.form {
                Form::Value => format!("`{name}` needs a value: `{}`", key.usage),
                Form::Call | Form::Flag | Form::List => format!("this is written `{}`", key.usage),
            };
            errors.error(word.span(), message);
            self.sound &= key.form != Form::Call;
            return None;
        }
        let of_the_table = keys::find(TABLE_KEYS, &name).is_some_and(|key| key.form == Form::Flag);
        if late || of_the_table {
            errors.error(word.span(), keys::unknown_in_index(&name, Form::Flag));
            self.unique |= meant_unique(&name);
            return None;
        }

        let flags = INDEX_KEYS.iter().filter(|key| key.form == Form::Flag).map(|key| key.name);
        let candidates = field_names(fields).chain(flags);
        let meant = suggestion(&name, candidates);
        let field = meant.and_then(|meant| find(fields, meant));
        if meant.is_some() && field.is_none() {
            errors.error(word.span(), keys::unknown_in_index(&name, Form::Flag));
            self.unique |= meant_unique(&name);
            return None;
        }
        errors.error(word.span(), unknown_field(self.scope, &name, meant));
        self.guessed |= field.is_some();
        self.sound &= field.is_some();
        field
    }
}

/// Whether a bare word is a misspelt `unique`.
fn meant_unique(name: &str) -> bool {
    let unique = INDEX_KEYS.iter().filter(|key| key.id == IndexKey::Unique);
    suggestion(name, unique.map(|key| key.name)).is_some()
}

/// The strategy that the options come to. Whatever is wrong with them, the fields that can be
/// included are kept.
fn strategy(scope: &Scope<'_>, attribute: &IndexAttr, parts: &[KeyPart]) -> Strategy {
    let errors = scope.errors;
    let included = attribute.include.as_ref().map(|include| {
        if include.value.is_empty() {
            errors.error(
                include.key,
                "this list is empty; name the fields to include, or leave it out",
            );
        }
        included(scope, &include.value, parts)
    });
    let carrying = match included {
        Some(fields) if !fields.is_empty() => Strategy::Partial(fields),
        _ => Strategy::Normalized,
    };
    let Some(given) = &attribute.strategy else { return carrying };

    let word = given.value.value();
    match (word.as_str(), &attribute.include) {
        (NORMALIZED | FULL, Some(include)) => {
            let reason =
                if word == FULL { "carries the whole row anyway" } else { "carries no fields" };
            errors.error(
                include.key,
                format!(
                    "a {word} index {reason}; fields are included with `strategy = \"{PARTIAL}\"`"
                ),
            );
            if word == FULL { Strategy::Full } else { carrying }
        }
        (PARTIAL, None) => {
            errors.error(
                given.value.span(),
                "a partial index carries the fields that it names: add `include = [field]`",
            );
            carrying
        }
        (FULL, None) => Strategy::Full,
        (NORMALIZED | PARTIAL, _) => carrying,
        _ => {
            let meant = suggestion(&word, STRATEGIES);
            let advice = match meant {
                Some(meant) => format!("did you mean `\"{meant}\"`?"),
                None => format!("there are {}", listed(STRATEGIES)),
            };
            errors.error(given.value.span(), format!("there is no strategy `{word}`; {advice}"));
            if meant == Some(FULL) { Strategy::Full } else { carrying }
        }
    }
}

/// Whether it follows the rows in its own time. A `unique` one can't: by then it is too late to
/// refuse a row.
fn is_eventual(attribute: &IndexAttr, meant_unique: bool, errors: &Diagnostics) -> bool {
    let Some(given) = &attribute.consistency else { return false };
    let (word, span) = (given.value.value(), given.value.span());
    let eventual = match word.as_str() {
        STRONG => false,
        EVENTUAL => true,
        _ => {
            let meant = suggestion(&word, CONSISTENCIES);
            let advice = match meant {
                Some(meant) => format!("did you mean `\"{meant}\"`?"),
                None => format!("there are {}", listed(CONSISTENCIES)),
            };
            errors.error(span, format!("there is no consistency `{word}`; {advice}"));
            meant == Some(EVENTUAL)
        }
    };
    let unique = attribute.unique.is_some();
    if unique && word == EVENTUAL {
        errors.error(
            span,
            "a unique index refuses a second row when it is written, and an eventual one is not \
             looked at then; leave one of the two out",
        );
    }
    eventual && !unique && !meant_unique
}

/// The fields of an include list that can be included.
fn included(scope: &Scope<'_>, words: &[Ident], parts: &[KeyPart]) -> Vec<Rc<Field>> {
    let Scope { fields, errors, .. } = *scope;
    let mut included: Vec<Rc<Field>> = Vec::new();
    for word in words {
        let name = names::plain(word);
        let exact = find(fields, &name);
        let meant = exact.or_else(|| {
            let meant = suggestion(&name, field_names(fields));
            errors.error(word.span(), unknown_included(scope, &name, meant, parts));
            find(fields, meant?)
        });
        let Some(Declared { field, .. }) = meant else { continue };

        let mistake = if parts.iter().any(|part| part.holds(field)) {
            format!("`{name}` is in the key of this index, so every entry has it already")
        } else if scope.primary_key.iter().any(|key| Rc::ptr_eq(key, field)) {
            format!("`{name}` is in the primary key, which every entry carries already")
        } else if included.iter().any(|other| Rc::ptr_eq(other, field)) {
            format!("`{name}` is included already")
        } else {
            included.push(Rc::clone(field));
            continue;
        };
        // A field that was guessed has its message.
        if exact.is_some() {
            errors.error(word.span(), mistake);
        }
    }
    included
}

fn unknown_field(scope: &Scope<'_>, name: &str, meant: Option<&str>) -> String {
    let advice = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
    format!("`{}` has no field `{name}`{advice}", scope.row)
}

fn unknown_included(
    scope: &Scope<'_>,
    name: &str,
    meant: Option<&str>,
    parts: &[KeyPart],
) -> String {
    if parts.iter().any(|part| part.name() == name) {
        format!("`{name}` is computed for the key of this index, so every entry has it already")
    } else {
        unknown_field(scope, name, meant)
    }
}

/// The name in `name = "…"`, if it is one.
fn given_name(given: &LitStr, errors: &Diagnostics) -> Option<String> {
    let name = given.value();
    // The name becomes the end of an identifier, so a keyword will do.
    let is_identifier = name != "_"
        && Ident::parse_any
            .parse_str(&name)
            .is_ok_and(|ident| ident == name && ident.unraw() == name);
    if !is_identifier {
        let message = format!("{name:?} is no identifier, and the methods are named by it");
        errors.error(given.span(), message);
    } else if name.len() > LONGEST_NAME {
        errors.error(given.span(), too_long("index", &name));
    } else {
        return Some(name);
    }
    None
}

/// The field of this name.
fn find<'a>(fields: &'a [Declared<'a>], name: &str) -> Option<&'a Declared<'a>> {
    fields.iter().find(|declared| declared.field.name == name)
}

fn field_names<'a>(fields: &'a [Declared<'a>]) -> impl Iterator<Item = &'a str> {
    fields.iter().map(|declared| declared.field.name.as_str())
}

fn behind_options(name: &str) -> String {
    format!("the fields come before the options; move `{name}` forward")
}
