//! The serde attributes, as far as they change how a row is stored.
//!
//! They are serde's to check: whatever cannot be read is passed over in silence.

use proc_macro2::{Group, Span};
use syn::ext::IdentExt as _;
use syn::{Attribute, Expr, Token, token};

/// One word in a `#[serde(…)]`.
pub(crate) struct SerdeKey {
    pub(crate) name: String,
    pub(crate) span: Span,
}

/// The words of all `#[serde(…)]` among `attributes`.
pub(crate) fn read(attributes: &[Attribute]) -> Vec<SerdeKey> {
    let mut keys = Vec::new();
    for attribute in attributes {
        if !attribute.path().is_ident("serde") {
            continue;
        }
        let read = attribute.parse_nested_meta(|meta| {
            if let Some(word) = meta.path.get_ident() {
                keys.push(SerdeKey { name: word.unraw().to_string(), span: word.span() });
            }
            if meta.input.peek(Token![=]) {
                meta.value()?.parse::<Expr>()?;
            } else if meta.input.peek(token::Paren) {
                meta.input.parse::<Group>()?;
            }
            Ok(())
        });
        // Serde reports it; what was read before the mistake still counts.
        drop(read);
    }
    keys
}
