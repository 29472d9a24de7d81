//! The form of an entry in memory and in a file:
//!
//! `length of the index key: u16 ‖ of the primary key: u16 ‖ of the data: u32 ‖ index key ‖ primary
//! key ‖ data`, with the lengths in the machine's order.

use crate::model::entry::RawEntry;

pub(super) const HEADER: usize = 8;

/// The lengths of the parts of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    key: usize,
    primary_key: usize,
    data: usize,
}

impl Lengths {
    /// Returns the header of an entry with these parts, and the length of its record; `None` if a part is too
    /// long.
    #[inline]
    pub(super) fn of(
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
        tail: &[u8],
    ) -> Option<([u8; HEADER], usize)> {
        let data = data.len() + tail.len();
        let (Ok(key_len), Ok(primary_key_len), Ok(data_len)) = (
            u16::try_from(key.len()),
            u16::try_from(primary_key.len()),
            // So that the offset of a record in a segment is a u32 as well.
            u32::try_from(data + (1 << 18)).map(|data| data - (1 << 18)),
        ) else {
            return None;
        };
        let [k0, k1] = key_len.to_ne_bytes();
        let [p0, p1] = primary_key_len.to_ne_bytes();
        let [d0, d1, d2, d3] = data_len.to_ne_bytes();
        let record = HEADER + key.len() + primary_key.len() + data;
        Some(([k0, k1, p0, p1, d0, d1, d2, d3], record))
    }

    /// Reads the lengths of the record at the start of these bytes.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [k0, k1, p0, p1, d0, d1, d2, d3] = *bytes.first_chunk::<HEADER>()?;
        Some(Self {
            key: usize::from(u16::from_ne_bytes([k0, k1])),
            primary_key: usize::from(u16::from_ne_bytes([p0, p1])),
            data: u32::from_ne_bytes([d0, d1, d2, d3]) as usize,
        })
    }

    /// Returns the length of the whole record.
    #[inline]
    pub(super) const fn record(self) -> usize {
        HEADER + self.key + self.primary_key + self.data
    }
}

/// Returns the sort key of the record at the start of these bytes: index key and primary key.
#[inline]
pub(super) fn sort_key(bytes: &[u8]) -> &[u8] {
    let Some(Lengths { key, primary_key, .. }) = Lengths::read(bytes) else { return &[] };
    bytes.get(HEADER..HEADER + key + primary_key).unwrap_or_default()
}

/// Returns the entry of the record at the start of these bytes.
#[inline]
pub(super) fn entry(bytes: &[u8]) -> RawEntry<'_> {
    let parts = || {
        let Lengths { key, primary_key, data } = Lengths::read(bytes)?;
        let (key, rest) = bytes.get(HEADER..)?.split_at_checked(key)?;
        let (primary_key, rest) = rest.split_at_checked(primary_key)?;
        Some(RawEntry { key, primary_key, data: rest.get(..data)? })
    };
    parts().unwrap_or(RawEntry::NOWHERE)
}
