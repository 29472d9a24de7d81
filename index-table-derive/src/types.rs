//! How the type of a field appears in parameters and in entries.
//!
//! A macro sees types as they are spelled. The usual ones are recognized and given the form that one would write by
//! hand (`&str` for a `String`); everything else goes through the traits, which come to the same.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::spanned::Spanned as _;
use syn::{GenericArgument, Lifetime, PathArguments, Type};

/// The type of a value that is stored: a field's, or that of a collection's elements.
#[derive(Clone)]
pub(crate) struct DataType {
    written: Written,
    shape: Shape,
}

#[derive(Clone)]
enum Written {
    /// As in the source.
    Plainly(Type),
    /// Known to the trait `Each` only: the element of this collection.
    ElementOf(Type),
}

/// What is known of a type by its spelling.
#[derive(Clone)]
enum Shape {
    /// `String`
    Text,
    /// `Vec<u8>`
    Bytes,
    /// Passed as it is: an integer, a float, `bool`, `char`, `[u8; N]`.
    Scalar(Type),
    /// `Option` of one of the above.
    Optional(Box<Shape>),
    /// Known to the traits only.
    Other,
}

impl DataType {
    /// The type of a field.
    pub(crate) fn of(ty: &Type) -> Self {
        Self { written: Written::Plainly(ty.clone()), shape: Shape::of(ty) }
    }

    /// The type of the elements of a field.
    pub(crate) fn element_of(collection: &Type) -> Self {
        match element(collection) {
            Some(element) => Self::of(element),
            None => {
                Self { written: Written::ElementOf(collection.clone()), shape: Shape::Other }
            }
        }
    }

    /// Whether the type is spelled `String`, so that it has prefixes to ask for.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.shape, Shape::Text)
    }

    /// Where the type is written.
    pub(crate) fn span(&self) -> Span {
        match &self.written {
            Written::Plainly(ty) | Written::ElementOf(ty) => ty.span(),
        }
    }

    /// The type itself.
    pub(crate) fn tokens(&self, krate: &TokenStream) -> TokenStream {
        match &self.written {
            Written::Plainly(ty) => ty.to_token_stream(),
            Written::ElementOf(collection) => quote!(<#collection as #krate::Each>::Element),
        }
    }

    /// The type of a parameter that is compared with it.
    pub(crate) fn argument(&self, krate: &TokenStream, lifetime: &Lifetime) -> TokenStream {
        self.shape.argument(lifetime).unwrap_or_else(|| {
            let ty = self.tokens(krate);
            quote!(<#ty as #krate::Key>::Arg<#lifetime>)
        })
    }

    /// Whether [`argument`](Self::argument) mentions its lifetime.
    pub(crate) fn argument_borrows(&self) -> bool {
        self.shape.borrows().unwrap_or(true)
    }

    /// The type of the value when it is read from a key.
    pub(crate) fn key(&self, krate: &TokenStream, lifetime: &Lifetime) -> TokenStream {
        self.shape.key(lifetime).unwrap_or_else(|| {
            let ty = self.tokens(krate);
            quote!(<#ty as #krate::Key>::Ref<#lifetime>)
        })
    }

    /// Whether [`key`](Self::key) mentions its lifetime.
    pub(crate) fn key_borrows(&self) -> bool {
        self.shape.borrows().unwrap_or(true)
    }

    /// The type of the value when it is read from an entry's data or from a row.
    pub(crate) fn carried(&self, krate: &TokenStream, lifetime: &Lifetime) -> TokenStream {
        self.shape.carried(lifetime).unwrap_or_else(|| self.tokens(krate))
    }

    /// Whether [`carried`](Self::carried) mentions its lifetime.
    pub(crate) fn carried_borrows(&self) -> bool {
        self.shape.borrows().unwrap_or(false)
    }
}

impl Shape {
    fn of(ty: &Type) -> Self {
        if let Type::Array(array) = peel(ty) {
            return if is_u8(&array.elem) { Self::Scalar(ty.clone()) } else { Self::Other };
        }
        match standard(ty) {
            Some(Standard { name: "String", arguments }) if arguments.is_empty() => Self::Text,
            Some(Standard { name: "Vec", arguments }) if only(&arguments).is_some_and(is_u8) => {
                Self::Bytes
            }
            Some(Standard { name: "Option", arguments }) => {
                match only(&arguments).map(Self::of) {
                    None | Some(Self::Other | Self::Optional(_)) => Self::Other,
                    Some(inner) => Self::Optional(Box::new(inner)),
                }
            }
            Some(Standard { name, arguments }) if arguments.is_empty() && is_scalar(name) => {
                Self::Scalar(ty.clone())
            }
            _ => Self::Other,
        }
    }

    fn argument(&self, lifetime: &Lifetime) -> Option<TokenStream> {
        // `&'_ str` is `&str`.
        let lifetime = (lifetime.ident != "_").then_some(lifetime);
        self.render(&quote!(&#lifetime str), &quote!(&#lifetime [u8]))
    }

    fn key(&self, lifetime: &Lifetime) -> Option<TokenStream> {
        // The encoding of bytes has escapes, so a key with one cannot be borrowed.
        self.render(&quote!(&#lifetime str), &quote!(::std::borrow::Cow<#lifetime, [u8]>))
    }

    fn carried(&self, lifetime: &Lifetime) -> Option<TokenStream> {
        self.render(&quote!(&#lifetime str), &quote!(&#lifetime [u8]))
    }

    fn render(&self, text: &TokenStream, bytes: &TokenStream) -> Option<TokenStream> {
        Some(match self {
            Self::Text => text.clone(),
            Self::Bytes => bytes.clone(),
            Self::Scalar(ty) => ty.to_token_stream(),
            Self::Optional(inner) => {
                let inner = inner.render(text, bytes)?;
                quote!(::core::option::Option<#inner>)
            }
            Self::Other => return None,
        })
    }

    /// Whether it borrows in the forms above; unknown for [`Shape::Other`].
    fn borrows(&self) -> Option<bool> {
        match self {
            Self::Text | Self::Bytes => Some(true),
            Self::Scalar(_) => Some(false),
            Self::Optional(inner) => inner.borrows(),
            Self::Other => None,
        }
    }
}

/// The standard types that mean something here, and the module that each lives in.
const STANDARD: &[(&str, &str)] = &[
    ("String", "string"),
    ("Vec", "vec"),
    ("Option", "option"),
    ("Box", "boxed"),
    ("VecDeque", "collections"),
    ("BTreeSet", "collections"),
    ("BTreeMap", "collections"),
    ("HashSet", "collections"),
    ("HashMap", "collections"),
    ("bool", PRIMITIVE),
    ("char", PRIMITIVE),
    ("u8", PRIMITIVE),
    ("u16", PRIMITIVE),
    ("u32", PRIMITIVE),
    ("u64", PRIMITIVE),
    ("u128", PRIMITIVE),
    ("usize", PRIMITIVE),
    ("i8", PRIMITIVE),
    ("i16", PRIMITIVE),
    ("i32", PRIMITIVE),
    ("i64", PRIMITIVE),
    ("i128", PRIMITIVE),
    ("isize", PRIMITIVE),
    ("f32", PRIMITIVE),
    ("f64", PRIMITIVE),
];

const PRIMITIVE: &str = "primitive";

/// A standard type as it is spelled.
struct Standard<'a> {
    name: &'static str,
    arguments: Vec<&'a Type>,
}

/// Recognizes `Vec<T>`, `std::vec::Vec<T>`, `::alloc::vec::Vec<T>` and so on.
fn standard(ty: &Type) -> Option<Standard<'_>> {
    let Type::Path(path) = peel(ty) else { return None };
    if path.qself.is_some() {
        return None;
    }
    let mut segments = path.path.segments.iter().rev();
    let last = segments.next()?;
    let (name, home) = STANDARD.iter().find(|(name, _)| last.ident == name)?;
    match (segments.next(), segments.next(), segments.next()) {
        (None, ..) if path.path.leading_colon.is_none() => {}
        (Some(module), Some(root), None)
            if module.ident == home
                && ["std", "core", "alloc"].iter().any(|name| root.ident == name) => {}
        _ => return None,
    }
    let arguments = match &last.arguments {
        PathArguments::AngleBracketed(list) => list.args.iter().filter_map(as_type).collect(),
        PathArguments::None | PathArguments::Parenthesized(_) => Vec::new(),
    };
    Some(Standard { name, arguments })
}

fn as_type(argument: &GenericArgument) -> Option<&Type> {
    match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// The one argument there is.
fn only<'a>(arguments: &[&'a Type]) -> Option<&'a Type> {
    match arguments {
        [one] => Some(one),
        _ => None,
    }
}

/// The type inside of parentheses and of the invisible groups that `macro_rules!` leaves.
fn peel(ty: &Type) -> &Type {
    match ty {
        Type::Paren(inner) => peel(&inner.elem),
        Type::Group(inner) => peel(&inner.elem),
        _ => ty,
    }
}

fn is_u8(ty: &Type) -> bool {
    standard(ty).is_some_and(|standard| standard.name == "u8")
}

fn is_scalar(name: &str) -> bool {
    STANDARD.iter().any(|(scalar, home)| *scalar == name && *home == PRIMITIVE)
}

/// The type of a collection's elements, by its spelling.
fn element(collection: &Type) -> Option<&Type> {
    match peel(collection) {
        Type::Array(array) => return Some(&array.elem),
        Type::Path(_) => {}
        _ => return None,
    }
    let Standard { name, arguments } = standard(collection)?;
    match (name, arguments.as_slice()) {
        // A hasher does not change what the elements are.
        ("HashSet", [element, ..]) | ("Vec" | "VecDeque" | "BTreeSet" | "Option", [element]) => {
            Some(element)
        }
        ("Box", [Type::Slice(slice)]) => Some(&slice.elem),
        _ => None,
    }
}

/// Whether `each` on a field of this type certainly works.
pub(crate) fn is_collection(ty: &Type) -> bool {
    element(ty).is_some()
}

/// Whether `each` on a field of this type is certainly a mistake.
pub(crate) fn is_no_collection(ty: &Type) -> bool {
    match peel(ty) {
        Type::Path(_) => standard(ty)
            .is_some_and(|standard| standard.name == "String" || is_scalar(standard.name)),
        Type::Tuple(_) | Type::FnPtr(_) | Type::Ptr(_) | Type::Never(_) => true,
        _ => false,
    }
}

/// Whether a field of this type certainly has no key encoding. Where this is in doubt, the bound on the trait reports it.
pub(crate) fn has_no_encoding(ty: &Type) -> bool {
    match peel(ty) {
        Type::Reference(_)
        | Type::FnPtr(_)
        | Type::Ptr(_)
        | Type::Slice(_)
        | Type::TraitObject(_)
        | Type::Never(_) => true,
        Type::Path(_) => standard(ty).is_some_and(|Standard { name, arguments }| match name {
            "VecDeque" | "BTreeSet" | "BTreeMap" | "HashSet" | "HashMap" => true,
            // An unknown name could be an alias of `u8`.
            "Vec" => only(&arguments)
                .and_then(standard)
                .is_some_and(|element| element.name != "u8"),
            "Option" => only(&arguments).is_some_and(has_no_encoding),
            _ => false,
        }),
        _ => false,
    }
}

/// The tokens of a type or a path as text, with spaces only between words.
///
/// This is kept as the declaration of a field, so it must not depend on how the source is laid out.
pub(crate) fn text(tokens: impl ToTokens) -> String {
    let mut text = String::new();
    write(tokens.to_token_stream(), &mut text);
    text
}

fn write(tokens: TokenStream, text: &mut String) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                text.push_str(open);
                write(group.stream(), text);
                text.push_str(close);
            }
            TokenTree::Punct(punct) => {
                // A lifetime is a word too.
                if punct.as_char() == '\'' && text.ends_with(is_word) {
                    text.push(' ');
                }
                text.push(punct.as_char());
            }
            word @ (TokenTree::Ident(_) | TokenTree::Literal(_)) => {
                if text.ends_with(is_word) {
                    text.push(' ');
                }
                text.push_str(&word.to_string());
            }
        }
    }
}

fn is_word(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}
