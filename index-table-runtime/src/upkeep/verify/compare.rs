//! The comparison of an entry with the image of its row, without I/O.

use crate::model::{entry::RawEntry, lists::Lists, maintain::Image, row, schema::IndexSchema};

/// The difference between an entry and its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    /// The row has no entry with this key.
    Key,
    /// The data of the entry differs from the row.
    Data,
}

/// Compares an entry with the image of its row.
pub(super) fn compare(
    lists: &Lists,
    image: &Image,
    index: usize,
    declared: &IndexSchema,
    entry: &RawEntry<'_>,
) -> Option<Difference> {
    if !has_key(image, index, entry.key) {
        return Some(Difference::Key);
    }
    let (data, is_private) = (image.data(index, declared), image.is_private(index));
    let is_same = data == entry.data && !is_private
        || row::has_same_fields(lists, (data, is_private), entry.data, image.included(index));
    (!is_same).then_some(Difference::Data)
}

/// Whether a row has this key in an index.
pub(super) fn has_key(image: &Image, index: usize, key: &[u8]) -> bool {
    image.keys(index).has(key)
}

/// Whether both rows have this key in a unique index, and the same values in its hashed fields.
pub(super) fn is_double(image: &Image, other: &Image, index: usize, key: &[u8]) -> bool {
    has_key(other, index, key) && image.hashed(index) == other.hashed(index)
}
