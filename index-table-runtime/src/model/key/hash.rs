//! Hashes of fields that may be too long for a key.
//!
//! BLAKE3, so that an attacker who chooses the values can't make them share a hash: results would stay right,
//! and queries would become slower. It is part of the format.

use super::{DecodeError, KeyReader};

/// The length of a hash, in bytes.
pub(super) const LEN: usize = 16;

/// The bytes in a key for the field with this encoding: the first 128 bits of its BLAKE3 hash.
pub(crate) fn hash(encoding: &[u8]) -> [u8; LEN] {
    #[cfg(test)]
    if collides(encoding) {
        return [0; LEN];
    }
    let mut hash = [0; LEN];
    blake3::Hasher::new().update(encoding).finalize_xof().fill(&mut hash);
    hash
}

/// In unit tests, all texts that begin with `~` have the same hash.
#[cfg(test)]
fn collides(encoding: &[u8]) -> bool {
    encoding.starts_with(b"~")
}

/// Skips one hash.
pub(crate) fn skip(reader: &mut KeyReader<'_>) -> Result<(), DecodeError> {
    reader.take(LEN).map(drop)
}
