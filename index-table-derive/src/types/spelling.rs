//! The properties of a type that its spelling shows.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Expr, ExprLit, GenericArgument, Lit, PathArguments, PathSegment, Type};

/// The recognized types of the standard library, and their modules.
const STANDARD: &[(&str, &str)] = &[
    ("String", "string"),
    ("Vec", "vec"),
    ("Option", "option"),
    ("Box", "boxed"),
    ("Arc", "sync"),
    ("Cow", "borrow"),
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

/// A type of the standard library, by its spelling.
pub(super) struct Standard<'a> {
    pub(super) name: &'static str,
    pub(super) arguments: Vec<&'a Type>,
}

/// Recognizes `Vec<T>`, `std::vec::Vec<T>`, `::alloc::vec::Vec<T>` and so on.
pub(super) fn standard(ty: &Type) -> Option<Standard<'_>> {
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
    Some(Standard { name, arguments: arguments(last) })
}

/// Returns the types between the angle brackets.
pub(super) fn arguments(segment: &PathSegment) -> Vec<&Type> {
    match &segment.arguments {
        PathArguments::AngleBracketed(list) => list.args.iter().filter_map(as_type).collect(),
        PathArguments::None | PathArguments::Parenthesized(_) => Vec::new(),
    }
}

fn as_type(argument: &GenericArgument) -> Option<&Type> {
    match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// Whether a type is a recognized type of the standard library.
pub(crate) fn is_standard(ty: &Type) -> bool {
    standard(ty).is_some()
}

/// Returns the argument, if there is exactly one.
pub(super) fn only<'a>(arguments: &[&'a Type]) -> Option<&'a Type> {
    match arguments {
        [one] => Some(one),
        _ => None,
    }
}

/// Returns the type inside parentheses and the invisible groups of `macro_rules!`.
pub(super) fn peel(ty: &Type) -> &Type {
    match ty {
        Type::Paren(inner) => peel(&inner.elem),
        Type::Group(inner) => peel(&inner.elem),
        _ => ty,
    }
}

pub(super) fn is_u8(ty: &Type) -> bool {
    standard(ty).is_some_and(|standard| standard.name == "u8")
}

pub(crate) fn is_str(ty: &Type) -> bool {
    matches!(peel(ty), Type::Path(path) if path.path.is_ident("str"))
}

/// Whether the values of a type can be numbered.
pub(crate) enum Numbers {
    /// The type is an integer.
    Yes,
    /// Only if the type implements the trait `Sequence`.
    ByTrait,
    No,
}

impl Numbers {
    pub(super) fn of(ty: &Type) -> Self {
        match (standard(ty), peel(ty)) {
            (Some(Standard { name, .. }), _) if name.starts_with(['u', 'i']) && is_scalar(name) => {
                Self::Yes
            }
            (None, Type::Path(_)) => Self::ByTrait,
            _ => Self::No,
        }
    }
}

pub(super) fn is_scalar(name: &str) -> bool {
    STANDARD.iter().any(|(scalar, home)| *scalar == name && *home == PRIMITIVE)
}

/// Whether the spelling shows that no value has an encoding of more than 16 bytes.
pub(crate) fn is_short(ty: &Type) -> bool {
    standard(ty).is_some_and(|Standard { name, arguments }| {
        is_scalar(name) || (name == "Option" && only(&arguments).is_some_and(is_shorter))
    })
}

/// Whether the spelling shows that no value has an encoding of more than 15 bytes.
fn is_shorter(ty: &Type) -> bool {
    standard(ty)
        .is_some_and(|Standard { name, .. }| is_scalar(name) && !matches!(name, "u128" | "i128"))
}

/// Whether a type is an `Option`. Returns `None` for an unknown name.
pub(super) fn is_option(ty: &Type) -> Option<bool> {
    match (peel(ty), standard(ty)) {
        (_, Some(standard)) => Some(standard.name == "Option"),
        (Type::Path(_) | Type::Macro(_), None) => None,
        _ => Some(false),
    }
}

/// Whether a type is `bool`, by its spelling.
pub(super) fn is_bool(ty: &Type) -> bool {
    standard(ty).is_some_and(|standard| standard.name == "bool")
}

/// Returns the type that is spelled `String`, without a path, in this type or in its `Option`.
pub(super) fn string(ty: &Type) -> Option<&Type> {
    let Standard { name, arguments } = standard(ty)?;
    match (name, peel(ty)) {
        ("Option", _) => only(&arguments).and_then(string),
        (_, string @ Type::Path(path)) if path.path.is_ident("String") => Some(string),
        _ => None,
    }
}

/// Whether a type is `index_table::Desc<…>`, by its spelling.
pub(crate) fn is_desc(ty: &Type) -> bool {
    let Type::Path(path) = peel(ty) else { return false };
    let mut segments = path.path.segments.iter().rev();
    let called = segments.next().is_some_and(|last| {
        last.ident == "Desc" && matches!(last.arguments, PathArguments::AngleBracketed(_))
    });
    let ours = segments.next().is_none_or(|root| root.ident == "index_table");
    called && ours && segments.next().is_none() && path.qself.is_none()
}

/// Returns the type of a collection's elements, by its spelling.
pub(super) fn element(collection: &Type) -> Option<&Type> {
    match peel(collection) {
        Type::Array(array) => return Some(&array.elem),
        Type::Path(_) => {}
        _ => return None,
    }
    let Standard { name, arguments } = standard(collection)?;
    match (name, arguments.as_slice()) {
        // A hasher does not change the type of the elements.
        ("HashSet", [element, ..]) | ("Vec" | "VecDeque" | "BTreeSet" | "Option", [element]) => {
            Some(element)
        }
        ("Box", [Type::Slice(slice)]) => Some(&slice.elem),
        _ => None,
    }
}

/// Whether `each` on a field of this type is probably the intention.
pub(crate) fn is_collection_of_keys(ty: &Type) -> bool {
    !is_long_array(ty) && element(ty).is_some_and(|element| !has_no_encoding(element))
}

/// Whether the elements of this collection certainly have no key encoding.
pub(crate) fn elements_have_no_encoding(ty: &Type) -> bool {
    element(ty).is_some_and(has_no_encoding)
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

/// The maximum length of an array in a key, which is the maximum in serde.
pub(crate) const LONGEST_ARRAY: usize = 32;

/// Whether this is certainly an array of bytes that is too long.
pub(crate) fn is_long_array(ty: &Type) -> bool {
    match peel(ty) {
        Type::Array(array) if is_u8(&array.elem) => match &array.len {
            Expr::Lit(ExprLit { lit: Lit::Int(len), .. }) => {
                len.base10_parse::<usize>().is_ok_and(|len| len > LONGEST_ARRAY)
            }
            _ => false,
        },
        _ => false,
    }
}

/// Whether a field of this type certainly has no key encoding. If this is not certain, the bound on the trait
/// reports a missing encoding.
pub(crate) fn has_no_encoding(ty: &Type) -> bool {
    match peel(ty) {
        Type::Reference(_)
        | Type::FnPtr(_)
        | Type::Ptr(_)
        | Type::Slice(_)
        | Type::TraitObject(_)
        | Type::ImplTrait(_)
        | Type::Infer(_)
        | Type::Never(_) => true,
        Type::Array(_) => is_long_array(ty),
        Type::Path(_) => standard(ty).is_some_and(|Standard { name, arguments }| match name {
            "VecDeque" | "BTreeSet" | "BTreeMap" | "HashSet" | "HashMap" => true,
            // An unknown name could be an alias of `u8`.
            "Vec" => {
                only(&arguments).and_then(standard).is_some_and(|element| element.name != "u8")
            }
            "Option" => only(&arguments).is_some_and(has_no_encoding),
            _ => false,
        }),
        _ => false,
    }
}

/// Formats the tokens of a type or a path, with spaces only between words.
pub(crate) fn text(tokens: impl ToTokens) -> String {
    let mut text = String::new();
    write(tokens.to_token_stream(), &mut text);
    text
}

/// Formats a type's text for messages.
pub(crate) fn shown(text: &str) -> String {
    text.replace(',', ", ").replace(';', "; ")
}

fn write(tokens: TokenStream, text: &mut String) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (opening, closing) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                text.push_str(opening);
                write(group.stream(), text);
                text.push_str(closing);
            }
            TokenTree::Punct(punct) => {
                // A lifetime is also a word.
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

#[cfg(test)]
mod tests {
    use syn::Type;

    use super::{elements_have_no_encoding, has_no_encoding, is_desc, is_no_collection, text};

    fn parse(ty: &str) -> Type {
        syn::parse_str(ty).expect("it is a type")
    }

    #[test]
    fn only_certain_mistakes_are_reported() {
        for refused in
            ["&'static str", "fn()", "HashMap<u8, u8>", "Vec<String>", "dyn Any", "[u8; 33]"]
        {
            assert!(has_no_encoding(&parse(refused)), "{refused}");
        }
        for allowed in [
            "Vec<u8>",
            "Vec<Byte>",
            "Kind",
            "my::HashMap<u8>",
            "(u8, String)",
            "[u8; 32]",
            "[u8; N]",
        ] {
            assert!(!has_no_encoding(&parse(allowed)), "{allowed}");
        }
        for refused in ["String", "u8", "(u8, u8)", "fn()"] {
            assert!(is_no_collection(&parse(refused)), "{refused}");
        }
        for allowed in ["Tags", "Vec<u8>", "[u8; 4]", "Option<u8>"] {
            assert!(!is_no_collection(&parse(allowed)), "{allowed}");
        }
        assert!(elements_have_no_encoding(&parse("Vec<Vec<String>>")));
        assert!(!elements_have_no_encoding(&parse("Vec<Vec<u8>>")));
    }

    #[test]
    fn desc_is_recognized_by_its_path() {
        for desc in ["Desc<u64>", "index_table::Desc<u64>", "::index_table::Desc<u64>"] {
            assert!(is_desc(&parse(desc)), "{desc}");
        }
        for other in ["Desc", "self::Desc<u64>", "other::Desc<u64>", "Option<Desc<u64>>"] {
            assert!(!is_desc(&parse(other)), "{other}");
        }
    }

    #[test]
    fn text_does_not_depend_on_the_layout() {
        assert_eq!(text(parse("HashMap < String , Vec<u8> >")), "HashMap<String,Vec<u8>>");
        assert_eq!(text(parse("&'static mut dyn Any")), "&'static mut dyn Any");
        assert_eq!(text(parse("[ u8 ; 4 ]")), "[u8;4]");
    }
}
