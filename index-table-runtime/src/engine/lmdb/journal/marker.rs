//! The marker in the data file. It records whether the state of the file is complete without the journal.
//!
//! The marker is in the first page, after the bytes of LMDB, which writes only the first 152 bytes of the page. A
//! separate file is not sufficient: because the marker is in the data file, a deleted journal is detected, and so is a
//! data file that was copied without its journal.
//!
//! Only [`find`], [`put`] and [`put_durably`] do input and output. `docs/FORMAT.md` fixes the bytes ("The marker").

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
};

use super::read::{Rest, first_half};

/// The offset in the data file: in the first page, but not in the sector that LMDB writes.
pub(crate) const AT: u64 = 2048;

/// The length in bytes.
pub(crate) const LENGTH: usize = 64;

const MAGIC: [u8; 8] = *b"itJM\0\0\0\x01";

/// The identity in the marker of an open follower, which has no journal.
pub(crate) const LIVE: [u8; 16] = *b"index-table live";

/// The relation of a data file to its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// There is no journal.
    None,
    /// There is a journal, but the file is complete without it.
    Clean(Journalled),
    /// The journal may have commits that the file lacks.
    Needed(Journalled),
}

/// Identifies a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Journalled {
    /// The random identity of the journal.
    pub(crate) identity: [u8; 16],
    /// The number of times that the journal was started.
    pub(crate) epoch: u64,
    /// The number of the shard, if it is the journal of all shards.
    pub(crate) shard: Option<u32>,
}

impl Journalled {
    /// Returns a journal of one data file.
    pub(crate) const fn own(identity: [u8; 16], epoch: u64) -> Self {
        Self { identity, epoch, shard: None }
    }

    /// Whether the journal can be applied: it is in the directory of its data file, or it belongs to all shards and is `open`.
    /// A follower has no journal.
    pub(crate) fn is_here(&self, open: bool) -> bool {
        open || (self.shard.is_none() && self.identity != LIVE)
    }
}

impl Marker {
    /// Decodes a marker; `None` if the bytes are damaged.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..LENGTH)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(Self::None);
        }
        let mut rest = Rest(bytes);
        if rest.array()? != MAGIC {
            return None;
        }
        let (state, identity, epoch) = (rest.word()?, rest.array()?, rest.word()?);
        let shard = rest.word()?.checked_sub(1).map(u32::try_from).transpose().ok()?;
        if rest.array()? != first_half(blake3::hash(bytes.get(..48)?)) {
            return None;
        }
        let journalled = Journalled { identity, epoch, shard };
        match state {
            1 => Some(Self::Clean(journalled)),
            2 => Some(Self::Needed(journalled)),
            _ => None,
        }
    }

    /// Encodes the marker.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let (state, Journalled { identity, epoch, shard }) = match self {
            Self::None => return vec![0; LENGTH],
            Self::Clean(journalled) => (1_u64, journalled),
            Self::Needed(journalled) => (2, journalled),
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&state.to_le_bytes());
        bytes.extend_from_slice(&identity);
        bytes.extend_from_slice(&epoch.to_le_bytes());
        let shard = shard.map_or(0, |shard| u64::from(shard) + 1);
        bytes.extend_from_slice(&shard.to_le_bytes());
        let sum = first_half(blake3::hash(&bytes));
        bytes.extend_from_slice(&sum);
        bytes
    }
}

/// Reads the marker of a data file; `None` if it is damaged. A file that is too short has [`Marker::None`].
pub(crate) fn find(mut file: &File) -> io::Result<Option<Marker>> {
    let mut bytes = [0; LENGTH];
    if file.metadata()?.len() < AT + LENGTH as u64 {
        return Ok(Some(Marker::None));
    }
    file.seek(SeekFrom::Start(AT))?;
    file.read_exact(&mut bytes)?;
    Ok(Marker::read(&bytes))
}

/// Writes the marker, without a sync.
pub(crate) fn put(mut file: &File, marker: Marker) -> io::Result<()> {
    file.seek(SeekFrom::Start(AT))?;
    file.write_all(&marker.bytes())
}

/// Writes the marker, and makes it durable.
pub(crate) fn put_durably(file: &File, marker: Marker) -> io::Result<()> {
    #[cfg(test)]
    tests::fail()?;
    put(file, marker)?;
    #[cfg(test)]
    tests::fail()?;
    file.sync_data()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::{super::written::hex, *};

    thread_local! {
        /// The number of calls of the system that succeed before all others fail.
        static SUCCEED: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Calls `body`, in which only this number of writes and syncs of a marker by this thread succeed.
    pub(crate) fn with_failures_after<T>(calls: u32, body: impl FnOnce() -> T) -> T {
        SUCCEED.set(Some(calls));
        let returned = body();
        SUCCEED.set(None);
        returned
    }

    pub(super) fn fail() -> io::Result<()> {
        match SUCCEED.get() {
            Some(0) => Err(io::Error::other("refused")),
            left => {
                SUCCEED.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }

    #[test]
    fn markers_round_trip_and_damage_is_detected() {
        let journalled = Journalled::own([7; 16], 3);
        let of_shard = Journalled { shard: Some(u32::MAX), ..journalled };
        for marker in [
            Marker::None,
            Marker::Clean(journalled),
            Marker::Needed(journalled),
            Marker::Needed(of_shard),
        ] {
            let bytes = marker.bytes();
            assert_eq!(bytes.len(), LENGTH);
            assert_eq!(Marker::read(&bytes), Some(marker));
            assert_eq!(Marker::read(&bytes[1..]), None);
            for at in 0..LENGTH {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert_eq!(Marker::read(&damaged), None, "byte {at}");
            }
        }
    }

    #[test]
    fn the_format_has_the_documented_bytes() {
        let documented = include_str!("../../../../../docs/FORMAT.md");
        let own = Journalled::own([7; 16], 3);
        for journalled in [own, Journalled { shard: Some(2), ..own }] {
            let bytes = Marker::Needed(journalled).bytes();
            let hex = hex(&bytes);
            assert!(documented.contains(&hex), "{hex}");
        }
    }
}
