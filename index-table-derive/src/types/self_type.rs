//! `Self` in the types of fields.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::Type;

/// Replaces `Self` in a type by the struct's name, so that the type has the same meaning in entries and
/// implementations.
pub(crate) fn named(ty: &Type, row: &Ident) -> Type {
    // The result is always a type.
    syn::parse2(renamed(ty.to_token_stream(), row)).unwrap_or_else(|_| ty.clone())
}

fn renamed(tokens: TokenStream, row: &Ident) -> TokenStream {
    let rename = |token| match token {
        TokenTree::Ident(ident) if ident == "Self" => {
            let mut row = row.clone();
            row.set_span(row.span().located_at(ident.span()));
            TokenTree::Ident(row)
        }
        TokenTree::Group(group) => {
            let mut inner = Group::new(group.delimiter(), renamed(group.stream(), row));
            inner.set_span(group.span());
            TokenTree::Group(inner)
        }
        other => other,
    };
    tokens.into_iter().map(rename).collect()
}

#[cfg(test)]
mod tests {
    use proc_macro2::{Ident, Span};

    use super::named;
    use crate::types::text;

    #[test]
    fn self_is_replaced_by_the_name_of_the_struct() {
        let row = Ident::new("Node", Span::call_site());
        for (written, expected) in [
            ("Vec<Self>", "Vec<Node>"),
            ("[u8; Self::LEN]", "[u8;Node::LEN]"),
            (
                "(Option<Box<Self>>, <Self as Trait>::Item)",
                "(Option<Box<Node>>,<Node as Trait>::Item)",
            ),
            ("[u8; { Self::LEN + 1 }]", "[u8;{Node::LEN+1}]"),
            ("Selfish", "Selfish"),
        ] {
            let ty = syn::parse_str(written).expect("it is a type");
            assert_eq!(text(named(&ty, &row)), expected);
        }
    }
}
