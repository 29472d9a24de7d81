//! Decoding of numbers and byte strings. The bytes may be damaged.

/// The bytes that are not read yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest<'b>(pub(super) &'b [u8]);

impl<'b> Rest<'b> {
    pub(super) fn take(&mut self, bytes: usize) -> Option<&'b [u8]> {
        let (first, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(first)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn short(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn long(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn word(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Returns the first 16 bytes of a hash.
pub(super) fn first_half(hash: blake3::Hash) -> [u8; 16] {
    let mut half = [0; 16];
    half.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
    half
}
