//! Numbers as bytes.

use std::ops::{BitOrAssign, Shl};

/// The largest number of bytes of a varint.
const LONGEST: usize = 10;

/// The same for 128 bits.
const LONGEST_WIDE: usize = 19;

/// The bits of eight bytes that say that another byte follows.
const FOLLOWED: u64 = 0x8080_8080_8080_8080;

/// Whether `out` has room for so many further bytes. A fast path that asks first contains no call that enlarges `out`, so it
/// needs no stack.
#[inline(always)]
pub(crate) fn has_room(out: &Vec<u8>, len: usize) -> bool {
    out.capacity() - out.len() >= len
}

/// Appends seven bits for each byte, the lowest first; the eighth bit says that another byte follows.
#[inline]
pub(crate) fn varint(out: &mut Vec<u8>, value: u64) {
    if !short_varint(out, value) {
        long_varint(out, value);
    }
}

/// Like [`varint`]. Returns false if the value takes more than three bytes, or `out` must be enlarged.
#[inline(always)]
pub(crate) fn short_varint(out: &mut Vec<u8>, value: u64) -> bool {
    if !has_room(out, 3) || value >= 1 << 21 {
        return false;
    }
    if value < 0x80 {
        out.extend_from_slice(&[value as u8]);
    } else if value < 1 << 14 {
        out.extend_from_slice(&[value as u8 | 0x80, (value >> 7) as u8]);
    } else {
        out.extend_from_slice(&[
            value as u8 | 0x80,
            (value >> 7) as u8 | 0x80,
            (value >> 14) as u8,
        ]);
    }
    true
}

#[inline(never)]
fn long_varint(out: &mut Vec<u8>, value: u64) {
    let len = varint_len(value);
    if len > 8 {
        return longest_varint(out, value);
    }
    // Seven bits to each byte: 28 to each half, 14 to each quarter.
    let halves = value & 0x0fff_ffff | (value & 0x0fff_ffff << 28) << 4;
    let quarters = halves & 0x0000_3fff_0000_3fff | (halves & 0x0fff_c000_0fff_c000) << 2;
    let bytes = quarters & 0x007f_007f_007f_007f | (quarters & 0x3f80_3f80_3f80_3f80) << 1;
    let more = FOLLOWED & ((1 << (8 * (len - 1))) - 1);
    // All bytes at once, because copies of a constant length are inlined.
    let end = out.len() + len;
    out.extend_from_slice(&(bytes | more).to_le_bytes());
    out.truncate(end);
}

#[cold]
fn longest_varint(out: &mut Vec<u8>, mut value: u64) {
    let mut all = [0; LONGEST];
    let len = varint_len(value);
    for byte in all.iter_mut().take(len) {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    if let Some(last) = all.get_mut(len - 1) {
        *last &= 0x7f;
    }
    out.extend(all.iter().take(len));
}

/// Appends a number of 128 bits, as [`varint`] does.
pub(crate) fn wide_varint(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the number of bytes of a varint.
pub(crate) const fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Replaces the varint `old` at this position.
pub(crate) fn replace_varint(out: &mut Vec<u8>, at: usize, old: u64, new: u64) {
    let mut bytes = Vec::with_capacity(LONGEST);
    varint(&mut bytes, new);
    out.splice(at..at + varint_len(old), bytes);
}

/// Returns the first eight bytes, and the length of a varint at their start if it ends within them.
#[inline]
fn word(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    let ends = !word & FOLLOWED;
    (ends != 0).then(|| (word, ends.trailing_zeros() as usize / 8 + 1))
}

/// Returns the end of a varint, whose value is not read.
#[inline]
pub(crate) fn varint_end(bytes: &[u8]) -> Option<usize> {
    match word(bytes) {
        Some((_, len)) => Some(len),
        None => bytes.iter().position(|byte| *byte < 0x80).map(|last| last + 1),
    }
}

/// Reads a varint of any length, and removes it.
#[inline(never)]
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let Some((word, len)) = word(bytes) else { return take_bytewise(bytes, LONGEST, 1) };
    *bytes = bytes.get(len..)?;
    // The inverse of the steps in `long_varint`.
    let own = word & !FOLLOWED & (u64::MAX >> (64 - 8 * len));
    let quarters = own & 0x007f_007f_007f_007f | (own & 0x7f00_7f00_7f00_7f00) >> 1;
    let halves = quarters & 0x0000_3fff_0000_3fff | (quarters & 0x3fff_0000_3fff_0000) >> 2;
    Some(halves & 0x0fff_ffff | (halves & 0x0fff_ffff_0000_0000) >> 4)
}

/// Reads a varint of up to 128 bits, and removes it.
pub(crate) fn take_wide_varint(bytes: &mut &[u8]) -> Option<u128> {
    take_bytewise(bytes, LONGEST_WIDE, 3)
}

/// Reads a varint of at most `longest` bytes, the last of which is at most `most` if there are so many.
#[cold]
fn take_bytewise<T: From<u8> + Shl<usize, Output = T> + BitOrAssign>(
    bytes: &mut &[u8],
    longest: usize,
    most: u8,
) -> Option<T> {
    let mut value = T::from(0);
    for (position, &byte) in bytes.iter().enumerate().take(longest) {
        if position == longest - 1 && byte > most {
            return None;
        }
        value |= T::from(byte & 0x7f) << (7 * position);
        if byte < 0x80 {
            *bytes = bytes.get(position + 1..)?;
            return Some(value);
        }
    }
    None
}

/// Maps numbers near zero to small ones.
#[inline]
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
#[inline]
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Like [`zigzag`], for 128 bits.
pub(crate) const fn wide_zigzag(value: i128) -> u128 {
    ((value << 1) ^ (value >> 127)).cast_unsigned()
}

/// The inverse of [`wide_zigzag`].
pub(crate) const fn wide_unzigzag(value: u128) -> i128 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// The bits of an `f32`'s fraction that an `f64` has more.
const MORE_BITS: u32 = 29;

/// Returns the same number as an `f64`. The bits of a NaN are kept, which a cast of it does not promise.
pub(crate) fn widen(value: f32) -> f64 {
    if !value.is_nan() {
        return value.into();
    }
    let bits = u64::from(value.to_bits());
    f64::from_bits((bits & 1 << 31) << 32 | 0x7ff << 52 | (bits & 0x7f_ffff) << MORE_BITS)
}

/// Returns the same number as an `f32`, if there is one.
pub(crate) fn narrow(value: f64) -> Option<f32> {
    let narrow = if value.is_nan() {
        let bits = value.to_bits();
        f32::from_bits(
            (bits >> 32 & 1 << 31) as u32 | 0xff << 23 | (bits >> MORE_BITS & 0x7f_ffff) as u32,
        )
    } else {
        value as f32
    };
    (widen(narrow).to_bits() == value.to_bits()).then_some(narrow)
}

/// Returns the same number as an `f64`, if there is one.
#[expect(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "compared with the number")]
pub(crate) fn float_of_unsigned(value: u64) -> Option<f64> {
    let float = value as f64;
    // The cast back saturates, so the largest number would seem to be exact.
    (float < 2_f64.powi(64) && float as u64 == value).then_some(float)
}

/// Returns the same number as an `f64`, if there is one.
#[expect(clippy::cast_precision_loss, reason = "compared with the number")]
pub(crate) fn float_of_signed(value: i64) -> Option<f64> {
    let float = value as f64;
    (float < 2_f64.powi(63) && float as i64 == value).then_some(float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length_are_read_back() {
        for bits in 0..=64_u32 {
            for value in [0, 1, u64::MAX] {
                let value = (value | 1_u64.checked_shl(bits).unwrap_or(0))
                    & u64::MAX.checked_shr(63 - bits.min(63)).unwrap();
                let mut bytes = Vec::new();
                varint(&mut bytes, value);
                assert_eq!(bytes.len(), varint_len(value));
                for further in [&[][..], &[0], &[0xff; 8]] {
                    let bytes = [&bytes, further].concat();
                    let mut rest = &bytes[..];
                    assert_eq!(take_varint(&mut rest), Some(value));
                    assert_eq!(rest, further);
                    assert_eq!(varint_end(&bytes), Some(bytes.len() - further.len()));
                }
            }
        }
        assert_eq!(take_varint(&mut &[0xff; 10][..]), None, "more than 64 bits");
        assert_eq!(take_varint(&mut &[0x80, 0x80][..]), None, "no end");
        assert_eq!(varint_end(&[0x80, 0x80]), None, "no end");
    }

    #[test]
    fn varints_of_128_bits_are_read_back() {
        for bits in 0..128_u32 {
            for value in [1 << bits, u128::MAX >> bits] {
                let mut bytes = Vec::new();
                wide_varint(&mut bytes, value);
                assert_eq!(bytes.len(), (128 - value.leading_zeros()).div_ceil(7) as usize);
                assert_eq!(varint_end(&bytes), Some(bytes.len()));
                if let Ok(narrow) = u64::try_from(value) {
                    let mut same = Vec::new();
                    varint(&mut same, narrow);
                    assert_eq!(bytes, same);
                }
                bytes.push(7);
                let mut rest = &bytes[..];
                assert_eq!((take_wide_varint(&mut rest), rest), (Some(value), &[7][..]));
            }
        }
        for value in [0, -1, 1, i128::MIN, i128::MAX] {
            assert_eq!(wide_unzigzag(wide_zigzag(value)), value);
        }
        let more = [&[0xff; 18][..], &[4]].concat();
        assert_eq!(take_wide_varint(&mut &more[..]), None, "more than 128 bits");
        assert_eq!(take_wide_varint(&mut &[0xff; 19][..]), None, "more than 128 bits");
        assert_eq!(take_wide_varint(&mut &[0x80; 5][..]), None, "no end");
    }

    #[test]
    fn signs_are_kept() {
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!((zigzag(0), zigzag(-1), zigzag(1)), (0, 1, 2));
    }

    #[test]
    fn floats_change_their_width_only_exactly() {
        let floats = [0.0, -0.0, 0.1, f32::MIN_POSITIVE / 4.0, f32::MAX, f32::INFINITY, f32::NAN];
        let bits =
            floats.map(f32::to_bits).into_iter().chain([0x7fa0_0001, 0xffff_ffff, 0xff80_0001]);
        for bits in bits {
            assert_eq!(narrow(widen(f32::from_bits(bits))).map(f32::to_bits), Some(bits));
        }
        assert_eq!(narrow(0.1), None);
        assert_eq!(narrow(f64::from_bits(0x7ff8_0000_0000_0001)), None, "a NaN with more bits");
        assert_eq!(narrow(1e300), None);
        assert_eq!(float_of_unsigned(1 << 53), Some(9_007_199_254_740_992.0));
        assert_eq!(float_of_unsigned((1 << 53) + 1), None);
        assert_eq!(float_of_unsigned(u64::MAX), None);
        assert_eq!(float_of_signed(i64::MAX), None);
        assert_eq!(float_of_signed(i64::MIN), Some(-9_223_372_036_854_775_808.0));
    }
}
