//! The serde attributes that change how a row is stored.
//!
//! serde checks its attributes, so an attribute that can't be parsed is ignored.

use proc_macro2::{Group, Span, TokenStream};
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;
use syn::{Attribute, Expr, ExprLit, ExprPath, Lit, Token, token};

/// One item in a `#[serde(…)]`.
#[derive(Clone)]
pub(crate) struct SerdeKey {
    pub(crate) name: String,
    pub(crate) span: Span,
    /// The whole item: `default`, `with = "path"` or `rename(serialize = "name")`.
    pub(crate) item: TokenStream,
    /// The value, if it is a path.
    pub(crate) path: Option<ExprPath>,
}

/// Reads the items of all `#[serde(…)]` in `attributes`.
pub(crate) fn read(attributes: &[Attribute]) -> Vec<SerdeKey> {
    let mut keys = Vec::new();
    for attribute in attributes {
        if !attribute.path().is_ident("serde") {
            continue;
        }
        let read = attribute.parse_nested_meta(|meta| {
            let key = &meta.path;
            let (mut item, mut path) = (key.to_token_stream(), None);
            if meta.input.peek(Token![=]) {
                let value = meta.value()?.parse::<Expr>()?;
                path = in_quotes(&value);
                item = quote!(#key = #value);
            } else if meta.input.peek(token::Paren) {
                let list = meta.input.parse::<Group>()?;
                item = quote!(#key #list);
            }
            if let Some(word) = key.get_ident() {
                let name = word.unraw().to_string();
                keys.push(SerdeKey { name, span: word.span(), item, path });
            }
            Ok(())
        });
        // Serde reports the mistake. The items before it still count.
        drop(read);
    }
    keys
}

/// Returns the path in `"path::to"`, even inside an invisible group of `macro_rules!`.
fn in_quotes(value: &Expr) -> Option<ExprPath> {
    match value {
        Expr::Group(group) => in_quotes(&group.expr),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.parse().ok(),
        _ => None,
    }
}
