//! Hashes of fields that may be too long for a key.
//!
//! The hash is BLAKE3, so that an attacker can't choose values with the same hash. Such values would make
//! queries slower, not incorrect. The hash function is part of the format.

use super::{DecodeError, KeyReader};

/// The length of a hash, in bytes.
pub(super) const LEN: usize = 16;

/// Returns the bytes in a key for a hashed field with this encoding: the first 128 bits of the BLAKE3 hash.
pub(crate) fn hash(encoding: &[u8]) -> [u8; LEN] {
    #[cfg(test)]
    if collides(encoding) {
        return [0; LEN];
    }
    let mut hash = [0; LEN];
    blake3::Hasher::new().update(encoding).finalize_xof().fill(&mut hash);
    hash
}

/// Whether unit tests make the hash of this encoding collide, which they do for texts that begin with `~`.
#[cfg(test)]
fn collides(encoding: &[u8]) -> bool {
    encoding.starts_with(b"~")
}

/// Skips one hash.
pub(crate) fn skip(reader: &mut KeyReader<'_>) -> Result<(), DecodeError> {
    reader.skip(LEN)
}
