//! The change stream of a table: its options, and the bytes of its records. See [`crate::write::changes`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::model::entity::Entity;

/// The name of the stream in the table's record and in the file. No index can have it.
pub(crate) const STREAM: &str = "change-stream";

/// The maximum length of the name of a consumer in bytes.
pub(crate) const MAX_NAME: usize = 480;

/// A row type with `#[table(changes)]`. Only the derive implements it.
#[diagnostic::on_unimplemented(
    message = "the table of `{Self}` has no change stream",
    note = "declare it: `#[table(changes)]`"
)]
pub trait Streamed: Entity {}

/// The retention of a change stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeStream {
    /// The number of seconds for which a change is kept; `u64::MAX` without a limit.
    pub keep: u64,
    /// The maximum number of bytes of kept changes; `u64::MAX` without a limit.
    pub bytes: u64,
    /// Whether a change is kept until all consumers have committed it, regardless of the limits.
    pub until_consumed: bool,
}

impl ChangeStream {
    /// The stream of a table whose declaration is only known from the catalog, which has no limits: writes without the struct keep
    /// all changes. The next writes with the struct remove the old ones.
    pub(crate) const RECORDED: Self =
        Self { keep: u64::MAX, bytes: u64::MAX, until_consumed: false };

    /// Whether a change of this age, in milliseconds, has been kept long enough.
    pub(crate) const fn is_old(&self, age: u64) -> bool {
        age >= self.keep.saturating_mul(1000)
    }
}

/// The kind of a change in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredKind {
    /// The row is new.
    Inserted,
    /// The row has other values.
    Updated,
    /// The row was removed.
    Deleted,
}

impl StoredKind {
    const fn byte(self) -> u8 {
        match self {
            Self::Inserted => 1,
            Self::Updated => 2,
            Self::Deleted => 3,
        }
    }

    const fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Inserted),
            2 => Some(Self::Updated),
            3 => Some(Self::Deleted),
            _ => None,
        }
    }
}

/// The bit of the kind of a change with a place in the order of all shards.
const ORDERED: u8 = 0x10;

/// The key of the [`Mark`] of the last removed change.
pub(crate) const REMOVED: [u8; 1] = [0];
/// The first byte of the key of a change.
const CHANGE: u8 = 1;
/// The first byte of the key of a consumer.
pub(crate) const CONSUMER: u8 = 2;

/// In a shard, the key of a place in the order of all shards: the places of later changes in it are greater.
pub(crate) const ORDER: [u8; 1] = [4];

/// In a shard, the key of the version of the list of consumers.
pub(crate) const LIST: [u8; 1] = [6];

/// The key of the corrections of the clock.
pub(crate) const CLOCK: [u8; 1] = [7];

/// The first byte of the key of a change that has no number yet.
const UNNUMBERED: u8 = 5;

/// The exclusive upper bound of the keys of changes without numbers.
pub(crate) const UNNUMBERED_END: [u8; 1] = [UNNUMBERED + 1];

/// The place of a change without a number: the number of its transaction, and the number of earlier changes of the same
/// transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Place {
    pub(crate) transaction: u64,
    pub(crate) position: u64,
}

impl Place {
    /// Returns the key of the change with this place.
    pub(crate) fn key(self) -> [u8; 17] {
        let mut key = [UNNUMBERED; 17];
        let both = u128::from(self.transaction) << 64 | u128::from(self.position);
        if let Some(rest) = key.get_mut(1..) {
            rest.copy_from_slice(&both.to_be_bytes());
        }
        key
    }

    /// Returns the place in the key of a change without a number.
    pub(crate) fn of_key(key: &[u8]) -> Option<Self> {
        let mut rest = key.strip_prefix(&[UNNUMBERED])?;
        let place = Self { transaction: take(&mut rest)?, position: take(&mut rest)? };
        rest.is_empty().then_some(place)
    }
}

/// Returns the key of a change.
pub(crate) fn change_key(number: u64) -> [u8; 9] {
    let mut key = [CHANGE; 9];
    if let Some(rest) = key.get_mut(1..) {
        rest.copy_from_slice(&number.to_be_bytes());
    }
    key
}

/// Returns the number in the key of a change.
pub(crate) fn number_of(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(&[CHANGE])?;
    number.try_into().ok().map(u64::from_be_bytes)
}

/// Returns the key of a consumer.
pub(crate) fn consumer_key(name: &str) -> Vec<u8> {
    [&[CONSUMER], name.as_bytes()].concat()
}

/// A position in a stream, after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    pub(crate) number: u64,
    /// The bytes of all changes up to and including this change, since the stream began.
    pub(crate) end: u64,
}

impl Mark {
    pub(crate) fn encode(self) -> [u8; 16] {
        let both = u128::from(self.number) << 64 | u128::from(self.end);
        both.to_be_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mark = Self { number: take(&mut rest)?, end: take(&mut rest)? };
        rest.is_empty().then_some(mark)
    }
}

/// A change in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredChange<'c> {
    /// The time of the write, in milliseconds since 1970.
    pub(crate) time: u64,
    /// The `end` of the [`Mark`] of this change.
    pub(crate) end: u64,
    pub(crate) kind: StoredKind,
    /// In a sharded store, the place of the change in the order of all shards.
    pub(crate) order: Option<u64>,
    pub(crate) primary_key: &'c [u8],
    /// The new row; for a deleted row, the old row.
    pub(crate) row: &'c [u8],
}

impl<'c> StoredChange<'c> {
    /// Returns the length of the encoding.
    pub(crate) const fn len(order: Option<u64>, primary_key: &[u8], row: &[u8]) -> usize {
        let order = if order.is_some() { 8 } else { 0 };
        8 + 8 + 1 + order + 2 + primary_key.len() + row.len()
    }

    /// Returns the public number of a change. `number` is its number in the stream of its shard, or of its store.
    pub(crate) fn number(&self, number: u64) -> u64 {
        self.order.unwrap_or(number)
    }

    /// Returns the encoding. Primary keys are shorter than 2^16 bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { time, end, kind, order, primary_key, row } = self;
        out.extend(time.to_be_bytes());
        out.extend(end.to_be_bytes());
        match order {
            None => out.push(kind.byte()),
            Some(order) => {
                out.push(kind.byte() | ORDERED);
                out.extend(order.to_be_bytes());
            }
        }
        let len = u16::try_from(primary_key.len()).unwrap_or(u16::MAX);
        out.extend(len.to_be_bytes());
        out.extend(*primary_key);
        out.extend(*row);
    }

    pub(crate) fn decode(bytes: &'c [u8]) -> Option<Self> {
        let mut rest = bytes;
        let (time, end) = (take(&mut rest)?, take(&mut rest)?);
        let (kind, mut after) = rest.split_first()?;
        let order = if kind & ORDERED == 0 { None } else { Some(take(&mut after)?) };
        let kind = StoredKind::of(kind & !ORDERED)?;
        let (len, after) = after.split_first_chunk()?;
        let (primary_key, row) = after.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        Some(Self { time, end, kind, order, primary_key, row })
    }
}

/// The record of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConsumerRecord {
    /// The last committed change.
    pub(crate) at: Mark,
    /// The time of the last commit, or of the creation, in milliseconds since 1970.
    pub(crate) time: u64,
    /// A random number from its creation, the same in all shards; 0 if an earlier build created it. A later consumer of the
    /// same name has another identity.
    pub(crate) identity: u64,
}

impl ConsumerRecord {
    pub(crate) fn encode(self) -> Vec<u8> {
        let identity = self.identity.to_be_bytes();
        let identity: &[u8] = if self.identity == 0 { &[] } else { &identity };
        [&self.at.encode()[..], &self.time.to_be_bytes(), identity].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (at, mut rest) = bytes.split_at_checked(16)?;
        let (at, time) = (Mark::decode(at)?, take(&mut rest)?);
        let identity = if rest.is_empty() { 0 } else { take(&mut rest)? };
        rest.is_empty().then_some(Self { at, time, identity })
    }
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_be_bytes(*number))
}

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a time in milliseconds since 1970.
pub(crate) fn time_of(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change_bytes(change: &StoredChange<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        bytes
    }

    #[test]
    fn the_bytes_of_the_records_are_those_of_the_format() {
        let change = StoredChange {
            time: 0x0102,
            end: 25,
            kind: StoredKind::Updated,
            order: None,
            primary_key: b"key",
            row: b"row",
        };
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        assert_eq!(bytes, b"\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x19\x02\0\x03keyrow");
        assert_eq!(StoredChange::len(None, b"key", b"row"), bytes.len());
        assert_eq!(StoredChange::decode(&bytes), Some(change));
        for (len, _) in bytes.iter().enumerate().take(22) {
            assert_eq!(StoredChange::decode(&bytes[..len]), None, "{len}");
        }
        bytes[16] = 4;
        assert_eq!(StoredChange::decode(&bytes), None);

        let ordered = StoredChange { order: Some(0x0304), end: 33, ..change };
        let ordered_bytes = change_bytes(&ordered);
        assert_eq!(StoredChange::len(Some(0), b"key", b"row"), ordered_bytes.len());
        assert_eq!(StoredChange::decode(&ordered_bytes), Some(ordered));
        assert_eq!((ordered.number(9), change.number(9)), (0x0304, 9));

        let at = Mark { number: 3, end: 75 };
        let earlier = ConsumerRecord { at, time: 0x0102, identity: 0 };
        let bytes = earlier.encode();
        assert_eq!(bytes, b"\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x4B\0\0\0\0\0\0\x01\x02");
        assert_eq!(ConsumerRecord::decode(&bytes), Some(earlier));
        assert_eq!(Mark::decode(&bytes[..16]), Some(at));
        let consumer = ConsumerRecord { identity: 0x0506, ..earlier };
        let consumer_bytes = consumer.encode();
        assert_eq!(consumer_bytes, [&bytes[..], &[0, 0, 0, 0, 0, 0, 5, 6]].concat());
        assert_eq!(ConsumerRecord::decode(&consumer_bytes), Some(consumer));
        for len in (0..consumer_bytes.len()).filter(|len| *len != bytes.len()) {
            assert_eq!(ConsumerRecord::decode(&consumer_bytes[..len]), None, "{len}");
        }

        for bytes in [&change_bytes(&change), &ordered_bytes, &bytes, &consumer_bytes] {
            let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let vector = format!("`{}`", hex.join(" "));
            assert!(include_str!("../../../docs/FORMAT.md").contains(&vector), "{vector}");
        }

        let place = Place { transaction: 258, position: 3 };
        let key: Vec<_> = place.key().iter().map(|byte| format!("{byte:02x}")).collect();
        let vector = format!("`{}`", key.join(" "));
        assert!(include_str!("../../../docs/FORMAT.md").contains(&vector), "{vector}");
        assert_eq!(Place::of_key(&place.key()), Some(place));
        assert_eq!(Place::of_key(&change_key(258)), None);

        assert_eq!(change_key(258), *b"\x01\0\0\0\0\0\0\x01\x02");
        assert_eq!(number_of(&change_key(258)), Some(258));
        assert_eq!(consumer_key("mailer"), b"\x02mailer");
        assert_eq!(number_of(&consumer_key("mailerxx")), None);
        assert_eq!((LIST, CLOCK), ([6], [7]));
    }

    #[test]
    fn a_change_is_old_after_its_time() {
        let stream = ChangeStream { keep: 2, bytes: u64::MAX, until_consumed: false };
        assert!(!stream.is_old(1999) && stream.is_old(2000));
        assert!(!ChangeStream::RECORDED.is_old(u64::MAX - 1));
    }
}
