//! Whether a catalog is a later version of another one.

use crate::{
    catalog::Catalog,
    kind::{Enum, Field, Kind, List, Union, Variant},
};

impl Catalog {
    /// Whether each row that `earlier` reads has the same values with this catalog, so that this may be a later version of
    /// it. Of two different catalogs with the same version, neither is.
    #[must_use]
    pub fn extends(&self, earlier: &Self) -> bool {
        (self.version > earlier.version || self == earlier)
            && all(&self.lists, &earlier.lists, has_list)
            && all(&self.enums, &earlier.enums, has_enum)
            && all(&self.unions, &earlier.unions, has_union)
    }
}

fn all<T>(later: &[T], earlier: &[T], has: impl Fn(&T, &T) -> bool) -> bool {
    later.len() >= earlier.len() && later.iter().zip(earlier).all(|(later, it)| has(later, it))
}

fn has_list(later: &List, earlier: &List) -> bool {
    later.fields.len() == earlier.fields.len() && all(&later.fields, &earlier.fields, has_field)
}

fn has_field(later: &Field, earlier: &Field) -> bool {
    later.name == earlier.name
        && later.absent == earlier.absent
        && has_kind(&later.kind, &earlier.kind)
}

fn has_enum(later: &Enum, earlier: &Enum) -> bool {
    all(&later.variants, &earlier.variants, has_variant)
}

fn has_variant(later: &Variant, earlier: &Variant) -> bool {
    later.name == earlier.name
        && later.form == earlier.form
        && has_kind(&later.payload, &earlier.payload)
}

fn has_union(later: &Union, earlier: &Union) -> bool {
    all(&later.kinds, &earlier.kinds, has_kind)
}

/// Whether the kinds are equal, apart from what was filled in place.
fn has_kind(later: &Kind, earlier: &Kind) -> bool {
    match (later, earlier) {
        (_, Kind::Hole) => true,
        (Kind::Option(later), Kind::Option(it)) | (Kind::Seq(later), Kind::Seq(it)) => {
            has_kind(later, it)
        }
        (Kind::Array(count, later), Kind::Array(len, it)) => count == len && has_kind(later, it),
        (Kind::Map(later), Kind::Map(it)) => has_kind(&later.0, &it.0) && has_kind(&later.1, &it.1),
        _ => later == earlier,
    }
}
