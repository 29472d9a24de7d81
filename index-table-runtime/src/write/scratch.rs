use crate::model::maintain::Image;

/// Buffers that all operations of a transaction and the next transactions reuse.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) old: Image,
    pub(crate) new: Image,
    /// The new row, decoded from its bytes as a test.
    pub(crate) tried: Image,
}

/// The maximum size of buffers that are kept for the next transaction, in bytes.
const LARGE: usize = 1 << 18;

impl Scratch {
    /// Whether a row has made the buffers too large to keep.
    pub(crate) fn is_large(&self) -> bool {
        let Self { old, new, tried } = self;
        [old, new, tried].map(Image::capacity).iter().sum::<usize>() > LARGE
    }
}
