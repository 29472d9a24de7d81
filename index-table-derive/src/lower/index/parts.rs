//! The fields of `#[index(…)]`, which are the parts of its key.

use std::rc::Rc;

use proc_macro2::Span;
use syn::{Ident, Type};

use super::Scope;
use crate::attr::index::{IndexAttr, Outer, PartAttr, PartKind};
use crate::attr::keys::{self, Form, INDEX_KEYS, IndexKey, TABLE_KEYS};
use crate::diagnostics::suggestion;
use crate::lower::{Declared, KEY_TYPES, no_encoding};
use crate::model::{Field, KeyPart, Method};
use crate::names;
use crate::types::{self, DataType};

/// Collects the parts of a key.
pub(super) struct KeyParts<'s, 'a> {
    scope: &'s Scope<'a>,
    pub(super) parts: Vec<KeyPart>,
    /// Whether no part is missing.
    pub(super) sound: bool,
    /// Whether a misspelt field was replaced.
    pub(super) guessed: bool,
    /// Whether a single word is a misspelt `unique`.
    pub(super) unique: bool,
    /// A single word that is the value of an option, such as `full`.
    pub(super) meant: Option<String>,
    /// The syntax for a field with the name of an option of this index.
    like_a_flag: Option<String>,
}

impl<'s, 'a> KeyParts<'s, 'a> {
    pub(super) fn of(scope: &'s Scope<'a>, attribute: &IndexAttr) -> Self {
        let like_a_flag = field_like_a_flag(scope, attribute).map(|(_, advice)| advice);
        let mut keys = Self {
            scope,
            parts: Vec::new(),
            sound: true,
            guessed: false,
            unique: false,
            meant: None,
            like_a_flag,
        };
        for part in &attribute.parts {
            keys.add(part);
        }
        keys
    }

    fn add(&mut self, part: &PartAttr) {
        match &part.kind {
            PartKind::Field(word) => self.plain(word, part.late, KeyPart::Plain),
            PartKind::Each(field) => self.each(field, part.late),
            PartKind::Desc(field) => self.plain(field, part.late, KeyPart::Desc),
            PartKind::Hash(field) => self.plain(field, part.late, KeyPart::Hash),
            PartKind::Computed { method, ty, outer } => {
                self.computed(method, ty, *outer, part.late);
            }
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
                "a hash takes 16 bytes, and no `{}` takes more; to index the value itself, write \
                 `{name}`",
                types::shown(ty)
            );
            self.scope.errors.error(word.span(), message);
        }
        self.push(word, part);
    }

    fn computed(&mut self, method: &Ident, ty: &Type, outer: Option<Outer>, late: bool) {
        let errors = self.scope.errors;
        let name = names::plain(method);
        if late {
            errors.error(method.span(), self.after_options(&name));
        }
        if outer == Some(Outer::Each) {
            return self.each_computed(method, ty);
        }
        if types::has_no_encoding(ty) {
            let advice = match ty {
                Type::Reference(_) => "the value of a method in a key must be owned; ".to_owned(),
                _ if outer.is_none() && types::is_collection_of_keys(ty) => {
                    format!("`each(computed({name}: …))` makes an entry for each of its elements; ")
                }
                _ => String::new(),
            };
            let ty_text = types::shown(&types::text(ty));
            let message = format!(
                "`{name}` returns `{ty_text}`, which has no key encoding; {advice}{KEY_TYPES}"
            );
            errors.error_on(ty, message);
            self.sound = false;
            return;
        }
        if outer.is_some() && types::is_short(ty) {
            let ty = types::shown(&types::text(ty));
            let message = format!(
                "a hash takes 16 bytes, and no `{ty}` takes more; to index the value itself, \
                 write `computed({name}: {ty})`"
            );
            errors.error(method.span(), message);
        }
        let computed = Rc::new(self.method(method, ty));
        self.push(
            method,
            match outer {
                None => KeyPart::Computed(computed),
                Some(_) => KeyPart::HashComputed(computed),
            },
        );
    }

    fn method(&self, method: &Ident, ty: &Type) -> Method {
        let number = self.scope.number_of_method(&names::plain(method));
        let ty = DataType::of(&types::named(ty, self.scope.row)).at(self.scope.row, number);
        Method { ident: method.clone(), name: names::plain(method), ty }
    }

    fn each_computed(&mut self, method: &Ident, ty: &Type) {
        let (errors, name) = (self.scope.errors, names::plain(method));
        let text = types::shown(&types::text(ty));
        let mistake = if matches!(ty, Type::Reference(_)) {
            Some(format!("`{name}` returns `{text}`; the value of a method in a key must be owned"))
        } else if types::elements_have_no_encoding(ty) {
            Some(format!(
                "`each(computed({name}: …))` makes a key of each element of `{text}`, and they have no \
                 key encoding"
            ))
        } else if types::is_no_collection(ty) {
            Some(format!(
                "`each(computed({name}: …))` makes an entry for each element, and `{text}` is \
                 not a collection; to index the value itself, write `computed({name}: {text})`"
            ))
        } else {
            None
        };
        if let Some(mistake) = mistake {
            errors.error_on(ty, mistake);
            self.sound = false;
            return;
        }
        if self.has_each(method) {
            return;
        }
        let number = self.scope.number_of_method(&name) + 1;
        let element = DataType::element_of(&types::named(ty, self.scope.row));
        let element = Rc::new(element.at(self.scope.row, number));
        let part = KeyPart::EachComputed(Rc::new(self.method(method, ty)), element);
        self.push(method, part);
    }

    /// Whether the key already has an `each`, which is reported.
    fn has_each(&mut self, word: &Ident) -> bool {
        let has = self.parts.iter().any(KeyPart::is_each);
        if has {
            self.scope.errors.error(
                word.span(),
                "an index can have one `each`: two would make an entry for every pair of elements",
            );
            self.sound = false;
        }
        has
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
                    "`each({name})` makes an entry for each element, and `{ty}` is not a \
                     collection; to index the value itself, write `{name}`"
                ),
            );
            self.push(word, KeyPart::Plain(Rc::clone(&declared.field)));
            return;
        }
        if self.has_each(word) {
            return;
        }
        let element = DataType::element_of(&types::named(declared.ty, self.scope.row));
        let element = Rc::new(element.at(self.scope.row, 2 * declared.field.position + 1));
        self.push(word, KeyPart::Each(Rc::clone(&declared.field), element));
    }

    fn push(&mut self, word: &Ident, part: KeyPart) {
        let name = part.name();
        if let Some(other) = self.parts.iter().find(|other| other.name() == name) {
            if !self.guessed {
                let reason = if other.field().is_some() != part.field().is_some() {
                    "; the parts of a key need different names, so rename the method"
                } else if other.is_hash() != part.is_hash() {
                    "; a hash beside the value adds nothing"
                } else if other.is_desc() != part.is_desc() {
                    "; a second time, it does not change the order"
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

    fn after_options(&mut self, name: &str) -> String {
        let message = format!("fields come before options; move `{name}` forward");
        let Some(advice) = &self.like_a_flag else { return message };
        // The word may not be an option.
        self.guessed = true;
        format!("{message}; {advice}")
    }

    /// Returns the field that a word names, or the field with the most similar name.
    fn resolve(&mut self, word: &Ident, late: bool) -> Option<&'a Declared<'a>> {
        let errors = self.scope.errors;
        let name = names::plain(word);
        if let Some(declared) = self.scope.field(&name) {
            if late {
                errors.error(word.span(), self.after_options(&name));
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
        if let Some(option) = keys::option_of(&name) {
            let message = format!("`#[index(…)]` has no `{name}`; did you mean `{option}`?");
            errors.error(word.span(), message);
            self.meant = Some(name);
            return None;
        }
        let is_table_option =
            keys::find(TABLE_KEYS, &name).is_some_and(|key| key.form == Form::Flag);
        if late || is_table_option || name == "primary_key" {
            errors.error(word.span(), keys::unknown_in_index(&name, Form::Flag));
            self.unique |= meant_unique(&name);
            return None;
        }

        let flags = INDEX_KEYS.iter().filter(|key| key.form == Form::Flag).map(|key| key.name);
        let candidates = self.scope.field_names().chain(flags);
        let meant = suggestion(&name, candidates);
        let field = meant.and_then(|meant| self.scope.field(meant));
        if meant.is_some() && field.is_none() {
            errors.error(word.span(), keys::unknown_in_index(&name, Form::Flag));
            self.unique |= meant_unique(&name);
            return None;
        }
        errors.error(word.span(), self.scope.unknown_field(&name, meant));
        self.guessed |= field.is_some();
        self.sound &= field.is_some();
        field
    }
}

/// Whether a single word is a misspelt `unique`.
fn meant_unique(name: &str) -> bool {
    let unique = INDEX_KEYS.iter().filter(|key| key.id == IndexKey::Unique);
    suggestion(name, unique.map(|key| key.name)).is_some()
}

/// Returns the span of an option with the name of a field, and the syntax of the field.
pub(super) fn field_like_a_flag(
    scope: &Scope<'_>,
    attribute: &IndexAttr,
) -> Option<(Span, String)> {
    let flags = [(&attribute.unique, "unique"), (&attribute.sparse, "sparse")];
    let mut flags = flags.into_iter().filter_map(|(given, name)| {
        let span = given.as_ref()?.key;
        scope.field(name)?;
        Some((span, format!("`{name}` is an option here; the field is written `r#{name}`")))
    });
    flags.next()
}

impl PartKind {
    pub(super) fn span(&self) -> Span {
        match self {
            Self::Field(field) | Self::Each(field) | Self::Desc(field) | Self::Hash(field) => {
                field.span()
            }
            Self::Computed { method, .. } => method.span(),
        }
    }
}
