//! The forms of a field's type in parameters and in entries.
//!
//! A macro sees only the spelling of types. Common types are recognized and have the form of hand-written
//! code (`&str` for a `String`). All other types use the traits, with the same result.
//!
//! The traits have the span of the field's type, so that a missing implementation is reported there.

mod collection;
mod declared;
mod own;
mod self_type;
mod spelling;

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Ident, Lifetime, Type};

pub(crate) use self::collection::Collection;
pub(crate) use self::declared::declared;
use self::own::own_types;
pub(crate) use self::self_type::named;
pub(crate) use self::spelling::{
    LONGEST_ARRAY, Numbers, elements_have_no_encoding, has_no_encoding, is_collection_of_keys,
    is_desc, is_long_array, is_no_collection, is_short, is_standard, is_str, shown, text,
};
use self::spelling::{
    Standard, element, is_bool, is_option, is_scalar, is_u8, only, peel, standard, string,
};

/// The type of a stored value: of a field, or of a collection's elements.
#[derive(Clone)]
pub(crate) struct DataType {
    written: Written,
    shape: Shape,
    /// The type to which the value belongs, and its number there.
    place: Option<(Ident, usize)>,
}

#[derive(Clone)]
enum Written {
    /// The type in the source.
    Plainly(Type),
    /// The element of this collection, which only the trait `Each` determines.
    ElementOf(Type),
}

/// The properties of a type that its spelling shows.
#[derive(Clone)]
enum Shape {
    /// `String`, or another owner of a `str`
    Text,
    /// `Vec<u8>`
    Bytes,
    /// A type that is passed by value: an integer, a float, `bool`, `char`, `[u8; N]`.
    Scalar(Box<Type>),
    /// `Option` of one of the above.
    Optional(Box<Shape>),
    /// A type whose forms only the traits determine.
    Other,
}

/// The properties of a type that the compiler has to check.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// The type has a key encoding.
    Key,
    /// The type is a collection of elements with a key encoding.
    Each,
}

impl DataType {
    /// Returns the type of a field.
    pub(crate) fn of(ty: &Type) -> Self {
        Self { written: Written::Plainly(ty.clone()), shape: Shape::of(ty), place: None }
    }

    /// Returns the type of the elements of a field.
    pub(crate) fn element_of(collection: &Type) -> Self {
        if let Some(element) = element(collection) {
            return Self::of(element);
        }
        let written = Written::ElementOf(collection.clone());
        Self { written, shape: Shape::Other, place: None }
    }

    /// Returns this type as the type of the value with this number in `owner`.
    pub(crate) fn at(self, owner: &Ident, number: usize) -> Self {
        Self { place: Some((owner.clone(), number)), ..self }
    }

    /// Whether the type is spelled `String`, or as another owner of a `str`.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.shape, Shape::Text)
    }

    /// Whether a query can search for a prefix: of a text, of bytes, or of the value in an `Option` of these.
    pub(crate) fn has_prefixes(&self) -> bool {
        match &self.shape {
            Shape::Text | Shape::Bytes => true,
            Shape::Optional(inner) => matches!(**inner, Shape::Text | Shape::Bytes),
            Shape::Scalar(_) | Shape::Other => false,
        }
    }

    /// Returns the type that is spelled `String`, in this type or in its `Option`.
    pub(crate) fn string(&self) -> Option<&Type> {
        match &self.written {
            Written::Plainly(ty) => string(ty),
            Written::ElementOf(_) => None,
        }
    }

    /// Whether the type is spelled `bool` or `Option<bool>`.
    pub(crate) fn is_bool(&self) -> bool {
        match &self.shape {
            Shape::Scalar(ty) => is_bool(ty),
            Shape::Optional(inner) => matches!(&**inner, Shape::Scalar(ty) if is_bool(ty)),
            Shape::Text | Shape::Bytes | Shape::Other => false,
        }
    }

    /// Whether the spelling shows that sums of these values are an `i128`, or that they can't be summed.
    pub(crate) fn is_summed_as_integer(&self) -> bool {
        !matches!(self.shape, Shape::Other)
    }

    /// Returns the types in this type that are not of the standard library.
    pub(crate) fn own_types(&self) -> Vec<&Type> {
        let mut found = Vec::new();
        match &self.written {
            Written::Plainly(ty) | Written::ElementOf(ty) => own_types(ty, &mut found),
        }
        found
    }

    /// Whether the value in an entry has the type of a query's parameter.
    pub(crate) fn is_carried_as_argument(&self) -> bool {
        !matches!(self.shape, Shape::Other)
    }

    /// Whether `None` is a value, if the spelling shows it.
    pub(crate) fn is_optional(&self) -> Option<bool> {
        match &self.written {
            Written::Plainly(ty) => is_option(ty),
            Written::ElementOf(_) => None,
        }
    }

    /// Returns the unordered collections in this type.
    pub(crate) fn collection(&self) -> Collection {
        match &self.written {
            Written::Plainly(ty) | Written::ElementOf(ty) => Collection::of(ty),
        }
    }

    /// Returns whether values can be numbered.
    pub(crate) fn numbers(&self) -> Numbers {
        match &self.written {
            Written::Plainly(ty) => Numbers::of(ty),
            Written::ElementOf(_) => Numbers::No,
        }
    }

    /// Returns the requirement on the [written](Self::written) type, if its spelling doesn't show that it is
    /// met.
    pub(crate) fn requirement(&self) -> Option<Requirement> {
        match (&self.shape, &self.written) {
            (Shape::Other, Written::Plainly(_)) => Some(Requirement::Key),
            (Shape::Other, Written::ElementOf(_)) => Some(Requirement::Each),
            _ => None,
        }
    }

    /// Returns the type in the source: this type, or its collection.
    pub(crate) fn written(&self) -> TokenStream {
        match &self.written {
            Written::Plainly(ty) | Written::ElementOf(ty) => ty.to_token_stream(),
        }
    }

    /// Returns the span of the type in the source.
    pub(crate) fn span(&self) -> Span {
        match &self.written {
            Written::Plainly(ty) | Written::ElementOf(ty) => ty.span(),
        }
    }

    /// Returns the tokens of the type.
    pub(crate) fn tokens(&self, krate: &TokenStream) -> TokenStream {
        match &self.written {
            Written::Plainly(ty) => ty.to_token_stream(),
            Written::ElementOf(collection) => {
                quote_spanned!(self.span()=> <#collection as #krate::Each>::Element)
            }
        }
    }

    /// Returns the type to which the value belongs, and its number there.
    pub(crate) fn place(&self) -> Option<(&Ident, usize)> {
        self.place.as_ref().map(|(owner, number)| (owner, *number))
    }

    /// Returns the [written](Self::written) type, in a form that causes no further errors if the
    /// [requirement](Self::requirement) on it is not met: `<Customer as _index_table::Required<Kind, 3>>::Type`. The
    /// form has to be implemented.
    pub(crate) fn required(&self, krate: &TokenStream) -> TokenStream {
        let written = self.written();
        let Some((owner, number)) = &self.place else { return written };
        let number = Literal::usize_unsuffixed(*number);
        quote_spanned!(self.span()=> <#owner as #krate::Required<#written, #number>>::Type)
    }

    /// Returns the tokens of the type, as [`required`](Self::required) if there is a requirement.
    fn checked(&self, krate: &TokenStream) -> TokenStream {
        if self.requirement().is_none() {
            return self.tokens(krate);
        }
        let ty = self.required(krate);
        match &self.written {
            Written::Plainly(_) => ty,
            Written::ElementOf(_) => quote_spanned!(self.span()=> <#ty as #krate::Each>::Element),
        }
    }

    /// Returns the type of a query's parameter.
    pub(crate) fn argument(&self, krate: &TokenStream, lifetime: &Lifetime) -> TokenStream {
        self.shape.argument(lifetime).unwrap_or_else(|| {
            let ty = self.checked(krate);
            quote_spanned!(self.span()=> <#ty as #krate::Key>::Arg<#lifetime>)
        })
    }

    /// Returns the type of a parameter of a query on a sparse index, or of a prefix query: the inner type of
    /// an `Option`.
    pub(crate) fn present(&self, krate: &TokenStream, lifetime: &Lifetime) -> TokenStream {
        let shape = match &self.shape {
            Shape::Optional(inner) => inner,
            shape => shape,
        };
        shape.argument(lifetime).unwrap_or_else(|| {
            let ty = self.checked(krate);
            quote_spanned!(self.span()=> <#ty as #krate::Key>::Present<#lifetime>)
        })
    }

    /// Returns the type of an iterator over several values of a parameter, the constructor of `Values` that
    /// takes it, and whether the type mentions the lifetime. `present` is true for a query on a sparse index.
    pub(crate) fn list(
        &self,
        krate: &TokenStream,
        lifetime: &Lifetime,
        present: bool,
    ) -> (TokenStream, &'static str, bool) {
        let shape = match &self.shape {
            Shape::Optional(inner) if present => inner,
            shape => shape,
        };
        let (bound, constructor) = match shape {
            Shape::Text => (quote!(: ::core::convert::AsRef<str>), "texts"),
            Shape::Bytes => (quote!(: ::core::convert::AsRef<[u8]>), "bytes"),
            _ => {
                let (ty, constructor) = if present {
                    (self.present(krate, lifetime), "present")
                } else {
                    (self.argument(krate, lifetime), "new")
                };
                let borrows = shape.borrows().unwrap_or(true);
                return (quote!(::core::iter::IntoIterator<Item = #ty>), constructor, borrows);
            }
        };
        (quote!(::core::iter::IntoIterator<Item #bound>), constructor, false)
    }

    /// Whether [`argument`](Self::argument) mentions its lifetime.
    pub(crate) fn argument_borrows(&self) -> bool {
        self.shape.borrows().unwrap_or(true)
    }

    /// Returns the type of the value when it is read from a key.
    pub(crate) fn key(&self, krate: &TokenStream, lifetime: &Lifetime) -> TokenStream {
        self.shape.key(lifetime).unwrap_or_else(|| {
            let ty = self.checked(krate);
            quote_spanned!(self.span()=> <#ty as #krate::Key>::Ref<#lifetime>)
        })
    }

    /// Whether [`key`](Self::key) mentions its lifetime.
    pub(crate) fn key_borrows(&self) -> bool {
        self.shape.borrows().unwrap_or(true)
    }

    /// Whether that type is `Copy`, as the spelling shows.
    pub(crate) fn key_is_copied(&self) -> bool {
        match &self.shape {
            Shape::Text | Shape::Scalar(_) => true,
            Shape::Optional(inner) => matches!(**inner, Shape::Text | Shape::Scalar(_)),
            Shape::Bytes | Shape::Other => false,
        }
    }

    /// Returns the type of the value when it is read from an entry's data or from a row.
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
            return if is_u8(&array.elem) {
                Self::Scalar(Box::new(ty.clone()))
            } else {
                Self::Other
            };
        }
        match standard(ty) {
            Some(Standard { name: "String", arguments }) if arguments.is_empty() => Self::Text,
            Some(Standard { name: "Box" | "Arc" | "Cow", arguments })
                if arguments.last().is_some_and(|content| is_str(content)) =>
            {
                Self::Text
            }
            Some(Standard { name: "Vec", arguments }) if only(&arguments).is_some_and(is_u8) => {
                Self::Bytes
            }
            Some(Standard { name: "Option", arguments }) => match only(&arguments).map(Self::of) {
                None | Some(Self::Other | Self::Optional(_)) => Self::Other,
                Some(inner) => Self::Optional(Box::new(inner)),
            },
            Some(Standard { name, arguments }) if arguments.is_empty() && is_scalar(name) => {
                Self::Scalar(Box::new(ty.clone()))
            }
            _ => Self::Other,
        }
    }

    fn argument(&self, lifetime: &Lifetime) -> Option<TokenStream> {
        // `&'_ str` is written `&str`.
        let lifetime = (lifetime.ident != "_").then_some(lifetime);
        self.render(&quote!(&#lifetime str), &quote!(&#lifetime [u8]))
    }

    fn key(&self, lifetime: &Lifetime) -> Option<TokenStream> {
        // The encoding of bytes may have escapes, and escaped bytes can't be borrowed.
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

    /// Whether the forms above borrow; unknown for [`Shape::Other`].
    fn borrows(&self) -> Option<bool> {
        match self {
            Self::Text | Self::Bytes => Some(true),
            Self::Scalar(_) => Some(false),
            Self::Optional(inner) => inner.borrows(),
            Self::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;
    use quote::quote;
    use syn::{Lifetime, Type};

    use super::{DataType, text};

    fn parse(ty: &str) -> Type {
        syn::parse_str(ty).expect("it is a type")
    }

    fn tokens(source: &str) -> proc_macro2::TokenStream {
        source.parse().expect("these are tokens")
    }

    /// Returns the forms of the type: as an argument, as a part of a key, and as a carried value.
    fn forms(ty: &DataType) -> [String; 3] {
        let (krate, lifetime) = (quote!(k), Lifetime::new("'t", Span::call_site()));
        [
            text(ty.argument(&krate, &lifetime)),
            text(ty.key(&krate, &lifetime)),
            text(ty.carried(&krate, &lifetime)),
        ]
    }

    fn forms_of(ty: &str) -> [String; 3] {
        forms(&DataType::of(&parse(ty)))
    }

    #[test]
    fn common_types_have_the_form_of_hand_written_code() {
        for string in ["String", "std::string::String", "::alloc::string::String", "(String)"] {
            assert_eq!(forms_of(string), ["&'t str"; 3], "{string}");
        }
        for text in ["Box<str>", "std::sync::Arc<str>", "Cow<'static, str>"] {
            assert_eq!(forms_of(text), ["&'t str"; 3], "{text}");
        }
        for bytes in ["Vec<u8>", "::std::vec::Vec<std::primitive::u8>"] {
            let forms = forms_of(bytes);
            assert_eq!(forms, ["&'t[u8]", "::std::borrow::Cow<'t,[u8]>", "&'t[u8]"], "{bytes}");
        }
        for scalar in ["u64", "bool", "f32", "[u8;4]", "[u8;N]", "core::primitive::i8"] {
            assert_eq!(forms_of(scalar), [scalar; 3]);
        }
        assert_eq!(forms_of("Option<String>"), ["::core::option::Option<&'t str>"; 3]);
        assert_eq!(forms_of("std::option::Option<u8>"), ["::core::option::Option<u8>"; 3]);
    }

    #[test]
    fn other_types_use_the_traits() {
        for other in [
            "Box<[u8]>",
            "Arc<Kind>",
            "Cow<'static,[u8]>",
            "Kind",
            "Option<Kind>",
            "Option<Option<u8>>",
            "my::String",
            "(u8,u8)",
        ] {
            let forms = forms_of(other);
            assert_eq!(forms[0], text(tokens(&format!("<{other} as k::Key>::Arg<'t>"))));
            assert_eq!(forms[1], text(tokens(&format!("<{other} as k::Key>::Ref<'t>"))));
            assert_eq!(forms[2], other);
        }
    }

    #[test]
    fn elements_of_common_collections_are_recognized() {
        let collections = [
            "Vec<String>",
            "std::collections::VecDeque<String>",
            "BTreeSet<String>",
            "HashSet<String>",
            "HashSet<String, Hasher>",
            "Option<String>",
            "[String; 3]",
            "Box<[String]>",
        ];
        for collection in collections {
            let element = DataType::element_of(&parse(collection));
            assert!(element.is_text(), "{collection}");
        }
        let element = DataType::element_of(&parse("Tags"));
        assert_eq!(text(element.tokens(&quote!(k))), "<Tags as k::Each>::Element");
        assert_eq!(forms(&element)[0], "<<Tags as k::Each>::Element as k::Key>::Arg<'t>");
    }
}
