//! The unordered collections in a type.

use syn::{PathSegment, Type};

use super::spelling::{Standard, arguments, peel, standard};

/// The collections in a type, by its spelling.
pub(crate) struct Collection {
    /// Whether the type is a `HashSet` or a `HashMap`.
    pub(crate) sorted: bool,
    /// The types of a tuple's elements, or the one type of the elements, the values or the content. Empty if
    /// these types contain no unordered collections.
    pub(crate) inside: Vec<Self>,
}

impl Collection {
    pub(super) fn of(ty: &Type) -> Self {
        match peel(ty) {
            Type::Tuple(tuple) => Self::with(tuple.elems.iter()),
            Type::Array(array) => Self::with([&*array.elem]),
            Type::Slice(slice) => Self::with([&*slice.elem]),
            ty => match (unordered(ty), standard(ty)) {
                // The elements of a set and the keys of a map contain no unordered collections, which can't
                // be hashed.
                (Some(unordered), _) => {
                    Self { sorted: true, ..Self::with(arguments(unordered).get(1).copied()) }
                }
                // These are serialized as their content.
                (_, Some(Standard { name: "Box" | "Arc" | "Cow", arguments })) => {
                    arguments.last().map_or(Self::with([]), |content| Self::of(content))
                }
                (
                    _,
                    Some(Standard { name: "Option" | "Vec" | "VecDeque" | "BTreeMap", arguments }),
                ) => Self::with(arguments.last().copied()),
                _ => Self::with([]),
            },
        }
    }

    fn with<'t>(types: impl IntoIterator<Item = &'t Type>) -> Self {
        let mut inside: Vec<_> = types.into_iter().map(Self::of).collect();
        if inside.iter().all(Self::is_plain) {
            inside.clear();
        }
        Self { sorted: false, inside }
    }

    /// Whether the type contains no unordered collection.
    pub(crate) fn is_plain(&self) -> bool {
        !self.sorted && self.inside.is_empty()
    }
}

/// Returns the last segment of a path to a `HashSet` or a `HashMap` of any crate.
fn unordered(ty: &Type) -> Option<&PathSegment> {
    let Type::Path(path) = ty else { return None };
    path.path.segments.last().filter(|last| last.ident == "HashSet" || last.ident == "HashMap")
}

#[cfg(test)]
mod tests {
    use super::Collection;

    /// Formats a sorted collection as `S`, followed by the contained types in parentheses.
    fn show(Collection { sorted, inside }: &Collection) -> String {
        let inside: Vec<_> = inside.iter().map(show).collect();
        let inside =
            if inside.is_empty() { String::new() } else { format!("({})", inside.join(" ")) };
        format!("{}{inside}", if *sorted { "S" } else { "-" })
    }

    fn shown(ty: &str) -> String {
        show(&Collection::of(&syn::parse_str(ty).expect("it is a type")))
    }

    #[test]
    fn hashed_collections_are_found_where_they_are_spelled() {
        for set in
            ["HashSet<u8>", "HashSet<u8, Hasher>", "std::collections::HashSet<u8>", "(HashSet)"]
        {
            assert_eq!(shown(set), "S", "{set}");
        }
        for map in ["HashMap<u8, Vec<u8>>", "hashbrown::HashMap<u8, u8, Hasher>"] {
            assert_eq!(shown(map), "S", "{map}");
        }
        for content in
            ["Box<HashSet<u8>>", "std::sync::Arc<HashSet<u8>>", "Cow<'static, HashSet<u8>>"]
        {
            assert_eq!(shown(content), "S", "{content}");
        }
        for one in [
            "Option<HashSet<u8>>",
            "Vec<HashMap<u8, u8>>",
            "BTreeMap<u8, HashSet<u8>>",
            "[HashSet<u8>; 2]",
            "Box<[HashSet<u8>]>",
        ] {
            assert_eq!(shown(one), "-(S)", "{one}");
        }
        assert_eq!(shown("HashMap<u8, Option<HashSet<u8>>>"), "S(-(S))");
        assert_eq!(shown("(u8, HashSet<u8>, String)"), "-(- S -)");
        for none in
            ["Vec<u8>", "BTreeSet<u8>", "Tags<HashSet<u8>>", "(u8, u8)", "()", "&'static str"]
        {
            assert_eq!(shown(none), "-", "{none}");
        }
    }
}
