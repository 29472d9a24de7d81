//! Where a type has unordered collections.

use std::ptr;

/// The collections in a type, by its spelling.
#[derive(Debug)]
pub struct Collection {
    /// Whether the elements are stored in the order of their bytes: true for a `HashSet` or a `HashMap`.
    pub sorted: bool,
    /// The types of a tuple's elements, or the one type of the elements, the values or the content. Empty if these types
    /// contain no sorted collections.
    pub inside: &'static [Self],
}

/// A field with sorted collections in its type.
#[derive(Debug)]
pub struct CollectionField {
    /// The offset in the struct.
    pub offset: usize,
    /// The type.
    pub collection: Collection,
}

/// The sorted collections in a value: those in the fields of a struct, or those in a value with the type of such a field.
#[derive(Clone, Copy, Debug)]
pub enum Sorted {
    /// The value is a struct with these fields, which are recognized by their addresses.
    Fields(&'static [CollectionField]),
    /// The value has this type.
    Collection(&'static Collection),
}

/// A type without sorted collections.
pub(crate) static PLAIN: Collection = Collection { sorted: false, inside: &[] };

impl Collection {
    pub(crate) const fn is_plain(&self) -> bool {
        !self.sorted && self.inside.is_empty()
    }

    /// Returns the type of the element at this position.
    pub(crate) fn element(&'static self, position: usize) -> &'static Self {
        self.inside.get(position).or(self.inside.last()).unwrap_or(&PLAIN)
    }
}

impl Sorted {
    /// Returns the sorted collections in a field of a struct that has these fields.
    pub fn in_field<R, T: ?Sized>(fields: &'static [CollectionField], row: &R, field: &T) -> Self {
        Self::Collection(find(fields, ptr::from_ref(row).addr(), field))
    }
}

impl From<&'static [CollectionField]> for Sorted {
    fn from(fields: &'static [CollectionField]) -> Self {
        Self::Fields(fields)
    }
}

/// Returns the type of a field of the struct at this address.
pub(crate) fn find<T: ?Sized>(
    fields: &'static [CollectionField],
    address: usize,
    field: &T,
) -> &'static Collection {
    let offset = ptr::from_ref(field).addr().wrapping_sub(address);
    let field = fields.iter().find(|field| field.offset == offset);
    field.map_or(&PLAIN, |field| &field.collection)
}
