//! Types of the user inside other types.

use syn::Type;

use super::spelling::{Standard, is_str, peel, standard};

/// Collects the types in a type that are not of the standard library, such as `Address` in `Vec<Address>`. A
/// type of the standard library implements `Clone`, `Debug` and `PartialEq` if these types do.
pub(super) fn own_types<'a>(ty: &'a Type, found: &mut Vec<&'a Type>) {
    match peel(ty) {
        Type::Array(array) => own_types(&array.elem, found),
        Type::Slice(slice) => own_types(&slice.elem, found),
        Type::Tuple(tuple) => tuple.elems.iter().for_each(|ty| own_types(ty, found)),
        ty if is_str(ty) => {}
        ty => match standard(ty) {
            // The inner type need not be `Sized`.
            Some(Standard { name: "Box" | "Arc" | "Cow", arguments }) => {
                let mut inside = Vec::new();
                for ty in arguments {
                    own_types(ty, &mut inside);
                }
                found.extend((!inside.is_empty()).then_some(ty));
            }
            Some(Standard { arguments, .. }) => {
                for ty in arguments {
                    own_types(ty, found);
                }
            }
            None => found.push(ty),
        },
    }
}

#[cfg(test)]
mod tests {
    use syn::Type;

    use super::own_types;
    use crate::types::text;

    fn parse(ty: &str) -> Type {
        syn::parse_str(ty).expect("it is a type")
    }

    #[test]
    fn own_types_are_found_inside_other_types() {
        let found = |ty: &str| {
            let ty = parse(ty);
            let mut found = Vec::new();
            own_types(&ty, &mut found);
            found.into_iter().map(text).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        for standard in [
            "String",
            "[Vec<u8>; 3]",
            "HashMap<String, (u8, Box<str>)>",
            "Cow<'static, [u8]>",
            "()",
        ] {
            assert_eq!(found(standard), none, "{standard}");
        }
        assert_eq!(found("Option<Vec<Place>>"), ["Place"]);
        assert_eq!(found("HashMap<Kind, (u8, my::Place)>"), ["Kind", "my::Place"]);
        assert_eq!(found("Box<[Place]>"), ["Box<[Place]>"]);
        assert_eq!(found("Wrapper<Place>"), ["Wrapper<Place>"]);
    }
}
