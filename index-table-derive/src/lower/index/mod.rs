//! The rules of `#[index(…)]`: for its fields ([`parts`]), for `include` ([`include`]), for the other options
//! ([`options`]), and for the whole index, in this module.

mod include;
pub(super) mod options;
mod parts;

use std::cell::RefCell;
use std::rc::Rc;

use proc_macro2::Span;
use syn::Ident;

use self::parts::KeyParts;
use super::{Declared, LONGEST_NAME, too_long, unknown_field};
use crate::attr::index::IndexAttr;
use crate::attr::keys::Lint;
use crate::diagnostics::Diagnostics;
use crate::model::{Conditions, Field, Finding, KeyPart, Strategy};
use crate::names::{self, Types};

/// The input of the rules of an index, in addition to its attribute.
pub(super) struct Scope<'a> {
    pub(super) row: &'a Ident,
    pub(super) fields: &'a [Declared<'a>],
    pub(super) primary_key: &'a [Rc<Field>],
    pub(super) types: Types,
    /// The methods that are parts of keys.
    pub(super) methods: RefCell<Vec<String>>,
    pub(super) errors: &'a Diagnostics,
}

impl<'a> Scope<'a> {
    /// Returns the field with this name.
    pub(super) fn field(&self, name: &str) -> Option<&'a Declared<'a>> {
        self.fields.iter().find(|declared| declared.field.name == name)
    }

    pub(super) fn field_names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.fields.iter().map(|declared| declared.field.name.as_str())
    }

    /// Returns the number of a method, for its type. The elements of its collection have the next number.
    pub(super) fn number_of_method(&self, name: &str) -> usize {
        let mut methods = self.methods.borrow_mut();
        let position = methods.iter().position(|method| method == name);
        let position = position.unwrap_or_else(|| {
            methods.push(name.to_owned());
            methods.len() - 1
        });
        2 * (self.fields.len() + position)
    }

    /// Returns the message about a word that is not a field.
    pub(super) fn unknown_field(&self, name: &str, meant: Option<&str>) -> String {
        unknown_field(self.row, name, meant)
    }
}

/// An index that is checked, except for its entries.
#[expect(clippy::struct_excessive_bools, reason = "each of these is a separate word")]
pub(super) struct Draft {
    /// The span of errors: the first field.
    pub(super) span: Span,
    /// The span of the generated items: the attribute. Fields have spans of their own.
    pub(super) place: Span,
    pub(super) name: String,
    pub(super) named: bool,
    pub(super) parts: Vec<KeyPart>,
    pub(super) strategy: Strategy,
    pub(super) unique: bool,
    /// Whether the index is eventual.
    pub(super) eventual: bool,
    /// The span of `scope`, if the index is global.
    pub(super) global: Option<Span>,
    pub(super) conditions: Conditions,
    pub(super) allowed: Vec<Lint>,
    pub(super) findings: Vec<Finding>,
    pub(super) mentions: Vec<Ident>,
    /// Whether a mistake was corrected by a guess, so that more messages could be wrong.
    pub(super) guessed: bool,
}

/// Checks each index. An invalid index is left out.
pub(super) fn lower_all(scope: &mut Scope<'_>, attributes: &[IndexAttr]) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    for attribute in attributes {
        if let Some(draft) = lower_one(scope, attribute)
            && is_new(&draft, &drafts, scope.errors)
        {
            drafts.push(draft);
        }
    }
    drafts
}

/// Checks one index. Returns `None` if it is invalid.
pub(super) fn lower_one(scope: &Scope<'_>, attribute: &IndexAttr) -> Option<Draft> {
    let errors = scope.errors;
    let KeyParts { parts, sound, guessed, unique, meant, .. } = KeyParts::of(scope, attribute);
    let sound = sound && !attribute.incomplete;
    if attribute.parts.is_empty() && sound && !attribute.reported {
        no_fields(scope, attribute);
    }
    let conditions = Conditions {
        sparse: options::sparse(attribute, &parts, sound && !guessed, errors),
        filter: attribute.filter.as_ref().map(|filter| filter.value.clone()),
    };
    options::filter(attribute, errors);
    let strategy = options::strategy(scope, attribute, &parts, meant.as_deref());
    let eventual = options::is_eventual(attribute, unique, meant.as_deref(), errors);
    let global = options::global(attribute, meant.as_deref(), errors);
    let given = attribute.name.as_ref().and_then(|name| options::name(&name.value, errors));
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
        place: attribute.span,
        name,
        named,
        parts,
        strategy,
        unique,
        eventual,
        global,
        conditions,
        allowed,
        findings,
        mentions: mentions(scope, attribute),
        guessed,
    })
}

/// Returns the fields that the attribute names. Each identifier has the span of the word, so that editors can
/// go from the word to the field.
fn mentions(scope: &Scope<'_>, attribute: &IndexAttr) -> Vec<Ident> {
    let parts = attribute.parts.iter().filter_map(|part| part.kind.field());
    let included = attribute.include.iter().flat_map(|include| &include.value);
    let mention = |word: &Ident| {
        let mut field = scope.field(&names::plain(word))?.field.ident.clone();
        field.set_span(word.span());
        Some(field)
    };
    parts.chain(included).filter_map(mention).collect()
}

/// Reports an index without fields. The error is at an option with the name of a field, if there is one.
fn no_fields(scope: &Scope<'_>, attribute: &IndexAttr) {
    match parts::field_like_a_flag(scope, attribute) {
        Some((span, advice)) => scope.errors.error(span, advice),
        None => scope.errors.error(attribute.span, "this index has no fields: `#[index(field)]`"),
    }
}

/// Whether no earlier index has the same name. Reports a duplicate; the first index stays.
fn is_new(draft: &Draft, drafts: &[Draft], errors: &Diagnostics) -> bool {
    let Some(other) = drafts.iter().find(|other| other.name == draft.name) else { return true };
    // The guess may be wrong.
    if draft.guessed || other.guessed {
        return false;
    }
    let same = draft.parts.len() == other.parts.len()
        && draft.parts.iter().zip(&other.parts).all(|(a, b)| a.same(b));
    let name = &draft.name;
    let message = if same && !draft.named {
        format!(
            "there is an index `{name}` over these fields already; if you need both, give one of \
             them another name with `name = \"…\"`"
        )
    } else {
        format!(
            "there is an index `{name}` already; give one of them another name with `name = \
                 \"…\"`"
        )
    };
    errors.error(draft.span, message);
    false
}
