//! The record of a process: its writes, changes of names, and syncs, in order.

use std::{fs, path::Path};

/// An event of a record. `shim/record.c` describes the format.
#[derive(Debug)]
pub(super) enum Event {
    CreateFile {
        inode: u64,
        path: String,
    },
    CreateDirectory {
        inode: u64,
        path: String,
    },
    Write {
        inode: u64,
        at: u64,
        /// The number of a write that is durable when it returns; 0 for other writes.
        number: u64,
        data: Vec<u8>,
    },
    WriteReturned {
        number: u64,
    },
    SetLength {
        inode: u64,
        length: u64,
    },
    SyncBegan {
        inode: u64,
        number: u64,
        path: String,
    },
    SyncReturned {
        number: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    /// Lines on the standard output.
    Output(String),
}

const HEAD: usize = 29;

/// Reads the events of a record. The last event may be incomplete, because the process was killed.
pub(super) fn read(path: &Path) -> Result<Vec<Event>, String> {
    let bytes = fs::read(path).map_err(|error| format!("no record: {error}"))?;
    let mut events = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((head, after)) = rest.split_first_chunk::<HEAD>() {
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let Some((data, after)) = after.split_at_checked(length) else { break };
        let number = |at: usize| {
            head[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let text = || String::from_utf8_lossy(data).into_owned();
        let (a, b, c) = (number(5), number(13), number(21));
        events.push(match head[0] {
            b'F' => Event::CreateFile { inode: a, path: text() },
            b'D' => Event::CreateDirectory { inode: a, path: text() },
            b'W' => Event::Write { inode: a, at: b, number: c, data: data.to_vec() },
            b'w' => Event::WriteReturned { number: a },
            b'L' => Event::SetLength { inode: a, length: b },
            b'S' => Event::SyncBegan { inode: a, number: b, path: text() },
            b's' => Event::SyncReturned { number: a },
            b'R' => {
                let paths = text();
                let (from, to) = paths.split_once('\0').ok_or("a rename without a new name")?;
                Event::Rename { from: from.to_owned(), to: to.to_owned() }
            }
            b'U' => Event::Remove { path: text() },
            b'O' => Event::Output(text()),
            kind => return Err(format!("the record has an event of kind {kind}")),
        });
        rest = after;
    }
    Ok(events)
}
