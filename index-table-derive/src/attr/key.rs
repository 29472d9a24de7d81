//! `#[key(crate = path)]` on a type and `#[key(order = N)]` on a variant.

use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::{Attribute, LitInt, Meta, Path};

use super::keys::{self, KEY_KEYS, KeyKey};
use super::{Setting, equals, for_each_item, set, value, word};
use crate::diagnostics::Diagnostics;

/// The contents of `#[key(…)]`.
#[derive(Default)]
pub(crate) struct KeyAttr {
    pub(crate) order: Option<Setting<LitInt>>,
    pub(crate) krate: Option<Setting<Path>>,
}

impl KeyAttr {
    /// Reads the attributes on a type, a variant or a field. Several attributes are merged.
    pub(crate) fn read(attributes: &[Attribute], errors: &Diagnostics) -> Self {
        const USAGE: &str = "#[key(order = 1)]";
        let mut read = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("key")) {
            if let Meta::Path(path) = &attribute.meta {
                errors.error_on(path, format!("expected a list: `{USAGE}`"));
            }
            for_each_item(attribute, USAGE, errors, |input| read.item(input));
        }
        read
    }

    fn item(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let word = word(input, "an option of the key")?;
        let Some(key) = keys::find(KEY_KEYS, &word.unraw().to_string()) else {
            let message = keys::unknown_in_key(&word.unraw().to_string());
            return Err(syn::Error::new(word.span(), message));
        };
        equals(input, &word, key.usage)?;
        match key.id {
            KeyKey::Order => {
                let order = value(input, "a whole number", key.usage)?;
                set(&mut self.order, &word, order)
            }
            KeyKey::Crate => {
                let at = input.span();
                let path = Path::parse_mod_style(input).map_err(|_| {
                    let message = format!("expected a path without quotes: `{}`", key.usage);
                    syn::Error::new(at, message)
                })?;
                set(&mut self.krate, &word, path)
            }
        }
    }
}
