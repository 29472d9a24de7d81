//! Short primary keys. If all primary keys of a table have the same length, a reference needs none of the `00` bytes
//! at the start of a primary key: a row number of type `u64` then takes one to three bytes in most tables.
//!
//! An entry of a unique index has one short primary key. A [block](super::blocks) leaves out the same number of bytes
//! of all of its primary keys, so they still have one length: a search compares them in place, and a count divides the
//! length of the block. The first byte of a block is the number of these bytes.

use std::num::NonZeroU32;

use crate::model::entry::{LONGEST_SHORT_KEY, ShortKey, number};

/// Returns the number of bytes that a primary key does not need: the `00` bytes at its start, without its last byte. Of
/// long primary keys, which rarely start with `00`, it needs all.
#[inline]
pub(super) fn zeros(primary_key: &[u8]) -> usize {
    if let Ok(number) = <[u8; 8]>::try_from(primary_key) {
        return ((u64::from_be_bytes(number) | 1).leading_zeros() / 8) as usize;
    }
    if primary_key.len() > LONGEST_SHORT_KEY {
        return 0;
    }
    let last = primary_key.len().saturating_sub(1);
    primary_key.iter().take(last).take_while(|&&byte| byte == 0).count()
}

/// Returns a primary key without the bytes that it does not need.
#[inline]
pub(super) fn short(primary_key: &[u8]) -> &[u8] {
    primary_key.get(zeros(primary_key)..).unwrap_or(primary_key)
}

/// The primary keys in a block, or the unread ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed<'t> {
    /// The number of `00` bytes that each primary key lacks.
    zeros: usize,
    /// The length of each primary key without these bytes.
    width: usize,
    keys: &'t [u8],
}

impl<'t> Packed<'t> {
    pub(super) const EMPTY: Self = Self { zeros: 0, width: 1, keys: &[] };

    /// Reads a block of primary keys of this length; `None` if it is not such a block.
    #[inline]
    pub(super) fn read(value: &'t [u8], primary_key: usize) -> Option<Self> {
        let (&zeros, keys) = value.split_first()?;
        let zeros = usize::from(zeros);
        let width = width(primary_key, zeros)?;
        quotient(keys.len(), width).map(|_| Self { zeros, width, keys })
    }

    /// Returns the bytes of the primary keys.
    pub(super) const fn keys(&self) -> &'t [u8] {
        self.keys
    }

    /// Returns the number of primary keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len() / self.width.max(1)
    }

    /// Returns the offset of a primary key (`Ok`), or the offset at which it belongs (`Err`), in bytes. Of a prefix of primary
    /// keys, such as the empty one, returns the offset of the first primary key with this prefix or after it, as `Err`.
    #[inline]
    pub(super) fn place(&self, primary_key: &[u8]) -> Result<usize, usize> {
        if primary_key.len() != self.zeros + self.width {
            return Err(self.place_of_prefix(primary_key));
        }
        self.place_with(primary_key, zeros(primary_key))
    }

    #[cold]
    fn place_of_prefix(&self, prefix: &[u8]) -> usize {
        let (head, rest) = prefix.split_at(prefix.len().min(self.zeros));
        if head.iter().any(|byte| *byte != 0) {
            return self.keys.len();
        }
        place_of_any(self.keys, self.width, rest).unwrap_or_else(|place| place)
    }

    /// Like [`place`](Self::place), if the [zeros] of the primary key are known.
    pub(super) fn place_with(&self, primary_key: &[u8], zeros: usize) -> Result<usize, usize> {
        if zeros < self.zeros {
            // All other primary keys have `00` where this primary key has a greater byte.
            return Err(self.keys.len());
        }
        let key = primary_key.get(self.zeros..).unwrap_or_default();
        match self.width {
            1 => place::<1>(self.keys, key),
            2 => place::<2>(self.keys, key),
            3 => place::<3>(self.keys, key),
            4 => place::<4>(self.keys, key),
            5 => place::<5>(self.keys, key),
            6 => place::<6>(self.keys, key),
            7 => place::<7>(self.keys, key),
            8 => place::<8>(self.keys, key),
            width => place_of_any(self.keys, width, key),
        }
    }

    /// Keeps the bytes up to an offset.
    pub(super) fn up_to(self, offset: usize) -> Self {
        Self { keys: self.keys.get(..offset).unwrap_or_default(), ..self }
    }

    /// Keeps the bytes from an offset.
    pub(super) fn from(self, offset: usize) -> Self {
        Self { keys: self.keys.get(offset..).unwrap_or_default(), ..self }
    }

    /// Returns the offset of the primary key at a position.
    pub(super) const fn offset_of(&self, position: usize) -> usize {
        position * self.width
    }

    /// Returns the offset after the primary key at an offset.
    pub(super) const fn after(&self, offset: usize) -> usize {
        offset + self.width
    }

    /// Takes the first primary key.
    #[inline]
    pub(super) fn next(&mut self) -> Option<ShortKey<'t>> {
        let (bytes, rest) = self.keys.split_at_checked(self.width)?;
        self.keys = rest;
        Some(ShortKey { bytes, zeros: self.zeros })
    }

    /// Takes the last primary key.
    #[inline]
    pub(super) fn next_back(&mut self) -> Option<ShortKey<'t>> {
        let at = self.keys.len().checked_sub(self.width)?;
        let (rest, bytes) = self.keys.split_at_checked(at)?;
        self.keys = rest;
        Some(ShortKey { bytes, zeros: self.zeros })
    }

    /// Writes these primary keys as a block.
    pub(super) fn write(&self, value: &mut Vec<u8>) {
        begin(value, self.zeros, self.keys.len());
        value.extend_from_slice(self.keys);
    }

    /// Writes the block without the primary key at an offset.
    pub(super) fn write_without(&self, offset: usize, value: &mut Vec<u8>) {
        let (low, high) = self.keys.split_at_checked(offset).unwrap_or_default();
        begin(value, self.zeros, self.keys.len());
        value.extend_from_slice(low);
        value.extend_from_slice(high.get(self.width..).unwrap_or_default());
    }

    /// Writes the block with a further primary key, which belongs at an offset. `zeros` are the [zeros] of the primary
    /// key.
    pub(super) fn write_with(
        &self,
        offset: usize,
        (primary_key, zeros): (&[u8], usize),
        value: &mut Vec<u8>,
    ) {
        if zeros >= self.zeros {
            let (low, high) = self.keys.split_at_checked(offset).unwrap_or_default();
            begin(value, self.zeros, self.keys.len() + self.width);
            value.extend_from_slice(low);
            value.extend_from_slice(primary_key.get(self.zeros..).unwrap_or_default());
            value.extend_from_slice(high);
        } else {
            self.write_longer(primary_key, zeros, value);
        }
    }

    /// Writes the block with a primary key that is greater than all others, since it has another byte where all others
    /// have `00`.
    #[cold]
    fn write_longer(&self, primary_key: &[u8], zeros: usize, value: &mut Vec<u8>) {
        let own = primary_key.get(zeros..).unwrap_or_default();
        begin(value, zeros, (self.len() + 1) * own.len());
        for key in self.keys.chunks(self.width.max(1)) {
            value.resize(value.len() + self.zeros - zeros, 0);
            value.extend_from_slice(key);
        }
        value.extend_from_slice(own);
    }
}

/// Writes a block of one primary key with these [zeros].
#[inline]
pub(super) fn write_one(primary_key: &[u8], zeros: usize, value: &mut Vec<u8>) {
    begin(value, zeros, primary_key.len());
    value.extend_from_slice(primary_key.get(zeros..).unwrap_or_default());
}

/// Writes a block of ascending primary keys of one length.
pub(super) fn write_all(packed: &[u8], primary_key: usize, value: &mut Vec<u8>) {
    let keys = packed.chunks(primary_key.max(1));
    let zeros = keys.clone().next_back().map_or(0, zeros);
    begin(value, zeros, packed.len());
    for key in keys {
        value.extend_from_slice(key.get(zeros..).unwrap_or_default());
    }
}

/// Writes the first byte of a block. `len` is the length of its keys.
#[inline]
fn begin(value: &mut Vec<u8>, zeros: usize, len: usize) {
    value.clear();
    value.reserve(len + 1);
    // Short primary keys have at most 16 bytes.
    value.push(zeros as u8);
}

/// Counts the primary keys in blocks. Most blocks lack as many bytes as the block before them, so their width is known.
pub(super) struct Counter {
    /// The length of a whole primary key.
    primary_key: usize,
    /// The number of bytes that the last block lacks, and the width of its primary keys.
    last: Option<(u8, NonZeroU32)>,
}

impl Counter {
    pub(super) const fn new(primary_key: usize) -> Self {
        Self { primary_key, last: None }
    }

    /// Returns the number of primary keys in a block; `None` if it is not a block of primary keys of this length.
    #[inline]
    pub(super) fn count(&mut self, value: &[u8]) -> Option<u32> {
        let (&zeros, keys) = value.split_first()?;
        let width = match self.last {
            Some((last, width)) if last == zeros => width,
            _ => {
                let width = width(self.primary_key, usize::from(zeros))?;
                let width = NonZeroU32::new(u32::try_from(width).ok()?)?;
                self.last.insert((zeros, width)).1
            }
        };
        let len = u32::try_from(keys.len()).ok()?;
        (len > 0 && len % width == 0).then_some(len / width)
    }
}

/// Returns the length of a short primary key that lacks this number of bytes; `None` if it can't lack them.
#[inline]
const fn width(primary_key: usize, zeros: usize) -> Option<usize> {
    if zeros > 0 && primary_key > LONGEST_SHORT_KEY { None } else { primary_key.checked_sub(zeros) }
}

/// Returns the quotient of two lengths, unless it is 0 or there is a remainder.
#[inline]
fn quotient(len: usize, width: usize) -> Option<usize> {
    // For constant widths, the compiler replaces the division.
    let (count, rest) = match width {
        1 => (len, 0),
        2 => (len / 2, len % 2),
        3 => (len / 3, len % 3),
        4 => (len / 4, len % 4),
        8 => (len / 8, len % 8),
        16 => (len / 16, len % 16),
        _ => (len.checked_div(width)?, len % width),
    };
    (count > 0 && rest == 0).then_some(count)
}

fn place<const WIDTH: usize>(keys: &[u8], key: &[u8]) -> Result<usize, usize> {
    let Ok(key) = <&[u8; WIDTH]>::try_from(key) else { return place_of_any(keys, WIDTH, key) };
    // Numbers are compared with fewer instructions than arrays of bytes. The width is at most 8.
    let places = keys.as_chunks::<WIDTH>().0;
    let place = places.binary_search_by_key(&number(key), |key| number(key));
    place.map(|at| at * WIDTH).map_err(|at| at * WIDTH)
}

fn place_of_any(keys: &[u8], width: usize, key: &[u8]) -> Result<usize, usize> {
    let (mut low, mut high) = (0, keys.len() / width.max(1));
    while low < high {
        let middle = low.midpoint(high);
        let at = middle * width;
        match keys.get(at..at + width).unwrap_or_default().cmp(key) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Equal => return Ok(at),
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Err(low * width)
}

/// The body of the fuzz target for blocks: reads the last bytes as a block, and adds or removes the primary key before
/// them. The first byte gives the length of the primary keys.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((&len, bytes)) = bytes.split_first() else { return };
    let len = usize::from(len % 20) + 1;
    let Some((primary_key, value)) = bytes.split_at_checked(len) else { return };
    let Some(mut packed) = Packed::read(value, len) else {
        assert_eq!(Counter::new(len).count(value), None);
        return;
    };
    assert_eq!(Counter::new(len).count(value), u32::try_from(packed.len()).ok());
    let block = packed;
    let mut keys: Vec<_> = std::iter::from_fn(|| packed.next()).map(ShortKey::to_vec).collect();
    packed = block;
    let mut back: Vec<_> =
        std::iter::from_fn(|| packed.next_back()).map(ShortKey::to_vec).collect();
    back.reverse();
    assert!(keys == back && keys.len() == block.len() && keys.iter().all(|key| key.len() == len));

    let (mut changed, place) = (Vec::new(), block.place(primary_key));
    match place {
        Ok(offset) => block.write_without(offset, &mut changed),
        Err(offset) => block.write_with(offset, (primary_key, zeros(primary_key)), &mut changed),
    }
    if !keys.is_sorted_by(|one, next| one < next) {
        return;
    }
    let at = keys.binary_search_by(|key| key.as_slice().cmp(primary_key));
    assert_eq!(place.is_ok(), at.is_ok());
    match at {
        Ok(at) => {
            keys.remove(at);
        }
        Err(at) => keys.insert(at, primary_key.to_vec()),
    }
    let changed = Packed::read(&changed, len);
    let of = |mut packed: Packed<'_>| {
        std::iter::from_fn(move || packed.next().map(ShortKey::to_vec)).collect::<Vec<_>>()
    };
    assert_eq!(changed.map(of).unwrap_or_default(), keys);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(value: &[u8], primary_key: usize) -> Option<usize> {
        Counter::new(primary_key).count(value).map(|count| count as usize)
    }

    fn all(mut packed: Packed<'_>) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| packed.next()).map(ShortKey::to_vec).collect()
    }

    #[test]
    fn a_prefix_belongs_before_the_primary_keys_that_have_it() {
        for keys in [&[0_u32, 1, 7, 255][..], &[256, 300, 70_000], &[1 << 24, u32::MAX], &[5]] {
            let mut block = Vec::new();
            let packed: Vec<u8> = keys.iter().flat_map(|key| key.to_be_bytes()).collect();
            write_all(&packed, 4, &mut block);
            let block = Packed::read(&block, 4).expect("a block");
            for key in keys.iter().chain(&[0, 2, 256, 299, 1 << 16, u32::MAX]) {
                let key = key.to_be_bytes();
                for prefix in (0..4).map(|len| &key[..len]) {
                    let before = keys.iter().filter(|own| own.to_be_bytes()[..] < *prefix).count();
                    let place = block.place(prefix);
                    assert_eq!(place, Err(block.offset_of(before)), "{prefix:?} in {keys:?}");
                }
            }
        }
    }

    /// Returns numbers of 1 to 64 bits, which are often near a power of 256.
    fn number(random: &mut u64, len: usize) -> Vec<u8> {
        let mut below = |below: u64| {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (*random >> 33) % below
        };
        let significant = below(len as u64 + 1) as usize;
        let mut bytes = vec![0; len];
        for byte in bytes.iter_mut().skip(len - significant) {
            *byte = [0, 1, 0x7F, 0xFF, below(256) as u8][below(5) as usize];
        }
        bytes
    }

    #[test]
    fn blocks_contain_the_primary_keys_that_were_inserted_and_not_removed() {
        let mut random = 11;
        for len in [1, 2, 3, 4, 7, 8, 12, 16, 64] {
            for _ in 0..40 {
                let first = number(&mut random, len);
                let (mut value, mut expected) = (Vec::new(), vec![first.clone()]);
                write_one(&first, zeros(&first), &mut value);
                for _ in 0..60 {
                    let key = number(&mut random, len);
                    let block = value.clone();
                    let packed = Packed::read(&block, len).unwrap();
                    assert_eq!(all(packed), expected);
                    assert_eq!(
                        (packed.len(), count(&block, len)),
                        (expected.len(), Some(expected.len()))
                    );
                    let at = expected.binary_search(&key);
                    match packed.place(&key) {
                        Err(offset) => {
                            packed.write_with(offset, (&key, zeros(&key)), &mut value);
                            expected.insert(at.unwrap_err(), key);
                        }
                        Ok(offset) if expected.len() > 1 => {
                            packed.write_without(offset, &mut value);
                            expected.remove(at.unwrap());
                        }
                        Ok(_) => assert_eq!(at, Ok(0)),
                    }
                }
                let mut again = Vec::new();
                write_all(&expected.concat(), len, &mut again);
                assert_eq!(all(Packed::read(&again, len).unwrap()), expected);
                assert!(again.len() <= value.len());
            }
        }
    }

    #[test]
    fn blocks_of_any_bytes_are_read_and_changed() {
        let mut random = 3;
        for len in [0, 1, 2, 5, 7, 15, 16, 19] {
            for _ in 0..400 {
                let size = 1 + (number(&mut random, 1)[0] % 90) as usize;
                let mut bytes = number(&mut random, size);
                bytes.insert(0, len);
                fuzz(&bytes);
            }
        }
    }

    #[test]
    fn values_that_are_no_blocks_are_not_read() {
        for value in
            [&[][..], &[0], &[8, 1], &[9, 1], &[255, 1, 2], &[0, 1, 2, 3], &[5, 1, 2, 3, 4]]
        {
            assert_eq!((Packed::read(value, 8), count(value, 8)), (None, None), "{value:?}");
        }
        assert_eq!(count(&[6, 1, 2, 3, 4], 8), Some(2));
        let mut counter = Counter::new(8);
        let counts = [&[6, 1, 2, 3, 4][..], &[6, 1, 2, 3], &[8, 1], &[6, 1, 2], &[7, 1, 2], &[6]];
        let counts = counts.map(|value| counter.count(value));
        assert_eq!(counts, [Some(2), None, None, Some(1), Some(2), None]);
        assert_eq!(
            (count(&[0; 18], 17), count(&[&[1][..], &[0; 16]].concat(), 17)),
            (Some(1), None)
        );
    }

    #[test]
    fn the_last_byte_of_a_primary_key_stays() {
        for (whole, expected) in [
            (&[0; 8][..], 7),
            (&[0, 0, 3], 2),
            (&[5, 0], 0),
            (&[0], 0),
            (&[0; 16], 15),
            (&[0; 17], 0),
        ] {
            assert_eq!((zeros(whole), short(whole).len()), (expected, whole.len() - expected));
        }
        assert_eq!((zeros(&256_u64.to_be_bytes()), zeros(&u64::MAX.to_be_bytes())), (6, 0));
    }
}
