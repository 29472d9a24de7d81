//! Images of rows that are needed more than once.

use std::collections::HashMap;

use super::row::load;
use crate::model::{maintain::Image, row_vtable::TableRows};

/// The maximum number of bytes of more than [`LEAST`] images.
const MOST: usize = 64 << 20;

/// The number of images that are kept regardless of their size, because rows often share elements.
const LEAST: usize = 4;

/// The images of rows, with their entries in one index.
#[derive(Debug, Default)]
pub(super) struct Images {
    index: usize,
    /// The images by primary key; `None` for an unreadable row.
    loaded: HashMap<Vec<u8>, Option<Image>>,
    /// The bytes of all images.
    bytes: usize,
}

impl Images {
    /// Returns the image of the row with these bytes; `None` if the row is unreadable.
    pub(super) fn get(
        &mut self,
        rows: &TableRows,
        index: usize,
        primary_key: &[u8],
        bytes: &[u8],
    ) -> Option<&Image> {
        let is_full = self.bytes > MOST && self.loaded.len() >= LEAST;
        let is_new = self.index != index || !self.loaded.contains_key(primary_key);
        if self.index != index || is_new && is_full {
            *self = Self { index, ..Self::default() };
        }
        if is_new {
            let mut image = Image::to_read();
            let loaded = load(rows, &mut image, primary_key, bytes, Some(index));
            let image = loaded.is_ok().then_some(image);
            self.bytes += size_of::<Image>() + primary_key.len();
            self.bytes += image.as_ref().map_or(0, Image::capacity);
            self.loaded.insert(primary_key.to_vec(), image);
        }
        self.loaded.get(primary_key)?.as_ref()
    }
}
