use crate::model::maintain::Image;

/// Buffers that every operation of the transaction uses again, and the next transaction.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) old: Image,
    pub(crate) new: Image,
    /// The new row, read back for a test.
    pub(crate) tried: Image,
}

/// The maximum size of buffers that are kept for the next transaction, in bytes.
const LARGE: usize = 1 << 18;

impl Scratch {
    /// Whether a row has made them so large that they should not be kept.
    pub(crate) fn is_large(&self) -> bool {
        let Self { old, new, tried } = self;
        [old, new, tried].map(Image::capacity).iter().sum::<usize>() > LARGE
    }
}
