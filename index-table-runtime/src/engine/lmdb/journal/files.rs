//! The files of a journal.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::{block::HEAD, tail::Source};
use crate::engine::lmdb::names::FILE;

/// How many files there are. While a checkpoint is made, the segments from the last one on are needed, which
/// are two; a recovery needs one more.
pub(crate) const FILES: usize = 3;

/// The bytes of a new file, all of which are written.
const FIRST: u64 = 1 << 20;

pub(super) static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// The name of a file.
fn name(at: usize) -> String {
    format!("journal.{at}")
}

/// The files of the journal in a directory, as far as they are there, for reading.
pub(crate) fn existing(directory: &Path) -> io::Result<Vec<Segment>> {
    (0..FILES)
        .map(|at| match File::open(directory.join(name(at))) {
            Ok(file) => Ok(Segment(Some(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Segment(None)),
            Err(error) => Err(error),
        })
        .collect()
}

/// Opens the files for writing, and creates those that are missing, with the mode of the data file.
pub(crate) fn create(directory: &Path) -> io::Result<Vec<File>> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut is_new = false;
    let mut files = Vec::with_capacity(FILES);
    for at in 0..FILES {
        let file = options.open(directory.join(name(at)))?;
        let length = file.metadata()?.len();
        if length == 0
            && let Ok(data) = fs::metadata(directory.join(FILE))
        {
            file.set_permissions(data.permissions())?;
        }
        if length < FIRST {
            is_new = true;
            zero(&file, length, FIRST)?;
            file.sync_all()?;
        }
        files.push(file);
    }
    if is_new {
        sync_directory(directory)?;
    }
    Ok(files)
}

/// Removes the files of a journal that is not needed.
pub(crate) fn remove(directory: &Path) {
    for at in 0..FILES {
        // What is left is ignored, since the data file says so.
        let _ = fs::remove_file(directory.join(name(at)));
    }
}

/// Writes zeros, so that later writes there don't change the length of the file or where its bytes are.
pub(super) fn zero(file: &File, from: u64, to: u64) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let count = usize::try_from(to - at).unwrap_or(ZEROS.len()).min(ZEROS.len());
        write_at(file, at, ZEROS.get(..count).unwrap_or_default())?;
        at += count as u64;
    }
    Ok(())
}

/// The beginnings of the files, where the checkpoints are.
pub(crate) fn heads(files: &[Segment]) -> io::Result<Vec<Vec<u8>>> {
    files.iter().map(Segment::head).collect()
}

/// A file that may be missing, for reading.
pub(crate) struct Segment(Option<File>);

impl Segment {
    fn head(&self) -> io::Result<Vec<u8>> {
        if self.length()? < HEAD {
            return Ok(Vec::new());
        }
        let mut head = vec![0; HEAD as usize];
        self.read_at(0, &mut head)?;
        Ok(head)
    }
}

impl Source for Segment {
    fn length(&self) -> io::Result<u64> {
        self.0.as_ref().map_or(Ok(0), |file| Ok(file.metadata()?.len()))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let file = self.0.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
        read_at(file, offset, into)
    }
}

/// So that the names are on the disk too.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Where directories can't be opened.
#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
pub(super) fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(unix)]
pub(super) fn read_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset)
}

/// Where a write has no place of its own: nobody opens a journal there.
#[cfg(not(unix))]
pub(super) fn write_at(_: &File, _: u64, _: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
pub(super) fn read_at(_: &File, _: u64, _: &mut [u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
