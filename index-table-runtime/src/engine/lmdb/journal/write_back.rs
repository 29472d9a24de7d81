//! Writing the data file back in small pieces, before a checkpoint syncs it.
//!
//! A single sync of many changed pages fills the queue of the disk, and the journal's sync of each commit
//! waits for these writes. With pieces, a commit waits for one piece at most. While a writer waits for the checkpoint, there
//! are no commits, and the pieces are larger.

use std::{fs::File, io};

use crate::engine::lmdb::process;

/// The size of a piece in bytes.
const PIECE: u64 = 128 << 10;

/// The size of a piece in bytes while a writer waits.
const LARGE_PIECE: u64 = 4 << 20;

/// The maximum number of pieces of a file. Larger files have larger pieces.
const MOST_PIECES: u64 = 1 << 17;

/// Writes the changed pages of a data file to the disk, piece by piece. The following sync has little to
/// write.
///
/// # Errors
///
/// An error of the disk. A sync through this descriptor does not return the same error again.
pub(in crate::engine::lmdb) fn write_back(
    data: &File,
    is_waited_for: impl Fn() -> bool,
) -> io::Result<()> {
    let length = data.metadata()?.len();
    let mut offset = 0;
    while offset < length {
        let piece = if is_waited_for() { LARGE_PIECE } else { PIECE };
        let piece = piece.max(length / MOST_PIECES);
        if !process::write_back(data, offset, piece)? {
            break;
        }
        offset += piece;
    }
    Ok(())
}
