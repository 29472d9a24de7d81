//! The marker in the data file, behind what LMDB has in its first page: whether the state of the file is
//! complete without the journal.
//!
//! It is not in a file of its own, so that a journal that was deleted is missed, and a data file that was
//! copied without its journal is recognized. LMDB writes the first 152 bytes of the page only.
//!
//! Pure but for [`find`] and [`put`]. `docs/FORMAT.md` fixes the bytes ("The marker").

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
};

use super::read::{Rest, first_half};

/// Where it is in the data file: in the first page, and in another sector than the bytes of LMDB.
pub(crate) const AT: u64 = 2048;

/// Its bytes.
pub(crate) const LENGTH: usize = 64;

const MAGIC: [u8; 8] = *b"itJM\0\0\0\x01";

/// What a data file says about its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// It has none.
    None,
    /// It has one, which is not needed: the file is complete.
    Clean(Journalled),
    /// Commits are in the journal that may not be in the file.
    Needed(Journalled),
}

/// Which journal it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Journalled {
    pub(crate) identity: [u8; 16],
    /// How often it was started.
    pub(crate) epoch: u64,
}

impl Marker {
    /// `None`: the bytes are damaged.
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
        let _unused = rest.word()?;
        if rest.array()? != first_half(blake3::hash(bytes.get(..48)?)) {
            return None;
        }
        let journalled = Journalled { identity, epoch };
        match state {
            1 => Some(Self::Clean(journalled)),
            2 => Some(Self::Needed(journalled)),
            _ => None,
        }
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let (state, Journalled { identity, epoch }) = match self {
            Self::None => return vec![0; LENGTH],
            Self::Clean(journalled) => (1_u64, journalled),
            Self::Needed(journalled) => (2, journalled),
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&state.to_le_bytes());
        bytes.extend_from_slice(&identity);
        bytes.extend_from_slice(&epoch.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        let sum = first_half(blake3::hash(&bytes));
        bytes.extend_from_slice(&sum);
        bytes
    }
}

/// The marker of a data file; `None`: it is damaged. A file that is too short has none.
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

#[cfg(test)]
mod tests {
    use super::{super::written::hex, *};

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        let journalled = Journalled { identity: [7; 16], epoch: 3 };
        for marker in [Marker::None, Marker::Clean(journalled), Marker::Needed(journalled)] {
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
    fn bytes_of_the_format() {
        let journalled = Journalled { identity: [7; 16], epoch: 3 };
        let bytes = Marker::Needed(journalled).bytes();
        let hex = hex(&bytes);
        let documented = include_str!("../../../../../docs/FORMAT.md");
        assert!(documented.contains(&hex), "{hex}");
    }
}
