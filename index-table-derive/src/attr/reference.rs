//! `#[references(Customer, on_delete = "restrict", fields = [FIELDS])]`.

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::spanned::Spanned as _;
use syn::{Attribute, Ident, LitStr, Meta, Path, Token};

use super::keys::{self, CASCADE, REFERENCE_KEYS, RESTRICT, ReferenceKey};
use super::{Setting, equals, fields, for_each_item, set, string};
use crate::diagnostics::Diagnostics;

/// The contents of one `#[references(…)]`.
pub(crate) struct ReferenceAttr {
    /// The word `references` itself.
    pub(crate) span: Span,
    /// The struct of the referenced rows.
    pub(crate) to: Option<Path>,
    pub(crate) fields: Option<Setting<Vec<Ident>>>,
    on_delete: Option<Setting<LitStr>>,
    /// Whether `on_delete` is `"cascade"`.
    pub(crate) cascade: bool,
    /// Whether an item could not be parsed.
    pub(crate) incomplete: bool,
}

const USAGE: &str = "#[references(Customer, on_delete = \"restrict\")]";

impl ReferenceAttr {
    pub(super) fn read(attribute: &Attribute, errors: &Diagnostics) -> Self {
        let mut reference = Self {
            span: attribute.path().span(),
            to: None,
            fields: None,
            on_delete: None,
            cascade: false,
            incomplete: matches!(attribute.meta, Meta::NameValue(_)),
        };
        for_each_item(attribute, USAGE, errors, |input| {
            reference.item(input).inspect_err(|_| reference.incomplete = true)
        });
        if reference.to.is_none() && !reference.incomplete {
            let message = format!("a reference names the struct of the referenced rows: `{USAGE}`");
            errors.error(reference.span, message);
            reference.incomplete = true;
        }
        reference
    }

    fn item(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        if !(input.peek(syn::Ident) && input.peek2(Token![=])) {
            let at = input.span();
            let expected =
                || syn::Error::new(at, format!("expected a struct or an option: `{USAGE}`"));
            if let Ok(text) = input.fork().parse::<LitStr>() {
                let message = format!("expected a struct without quotes: `{}`", text.value());
                return Err(syn::Error::new(at, message));
            }
            let path: Path = input.call(Path::parse_mod_style).map_err(|_| expected())?;
            if self.to.is_some() {
                return Err(syn::Error::new(at, "a reference names one struct"));
            }
            self.to = Some(path);
            return Ok(());
        }
        let word = input.call(Ident::parse_any)?;
        let name = word.unraw().to_string();
        let Some(key) = keys::find(REFERENCE_KEYS, &name) else {
            return Err(syn::Error::new(word.span(), keys::unknown_in_references(&name)));
        };
        equals(input, &word, key.usage)?;
        match key.id {
            ReferenceKey::Fields => {
                let fields = fields(input, key.usage, "a part of a reference")?;
                set(&mut self.fields, &word, fields)
            }
            ReferenceKey::OnDelete => {
                let value = string(input, &word, key.usage)?;
                self.cascade = match value.value().as_str() {
                    RESTRICT => false,
                    CASCADE => true,
                    _ => {
                        let message =
                            "`on_delete` is `\"restrict\"`, which is the default, or `\"cascade\"`";
                        return Err(syn::Error::new(value.span(), message));
                    }
                };
                set(&mut self.on_delete, &word, value)
            }
        }
    }
}
