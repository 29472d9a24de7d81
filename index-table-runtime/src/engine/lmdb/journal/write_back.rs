//! Writing the data file back in small pieces, before a checkpoint syncs it.
//!
//! A single sync of many changed pages fills the queue of the disk, and the journal's sync of each commit
//! waits for these writes. With pieces, a commit waits for one piece at most.

use std::{fs::File, io};

use crate::engine::lmdb::process;

/// The size of a piece in bytes.
const PIECE: u64 = 128 << 10;

/// The maximum number of pieces of a file. Larger files have larger pieces.
const MOST_PIECES: u64 = 1 << 17;

/// Writes the changed pages of a data file to the disk, piece by piece. The following sync has little to
/// write.
///
/// # Errors
///
/// An error of the disk. A sync through this descriptor does not return the same error again.
pub(super) fn write_back(data: &File) -> io::Result<()> {
    let length = data.metadata()?.len();
    let piece = PIECE.max(length / MOST_PIECES);
    let mut offset = 0;
    while offset < length && process::write_back(data, offset, piece)? {
        offset += piece;
    }
    Ok(())
}
