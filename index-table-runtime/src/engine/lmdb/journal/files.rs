//! The files of a journal.

use std::{
    fmt::Display,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    block::{Block, HEAD},
    tail::{Source, file_of},
};
pub(super) use crate::engine::lmdb::pages::read_at;
use crate::engine::{
    files::{FileId, number_of},
    lmdb::names::FILE,
};

/// The number of files. While a checkpoint is made, the segments since the last checkpoint are needed, which
/// are two. A recovery needs one more.
pub(crate) const FILES: usize = 3;

/// The length of a new file, whose bytes are all written. No file becomes shorter.
pub(super) const FIRST: u64 = 1 << 18;

/// Replaces the first bytes of a checkpoint in a journal that is given up.
const GIVEN_UP: [u8; 8] = *b"itJG\0\0\0\x01";

pub(super) static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// The prefixes of file names: of the journal of one data file, and of the journal of all shards.
pub(crate) const OWN: &str = "journal";
pub(crate) const SHARED: &str = "shards.journal";

/// Returns the path of a file of a journal.
pub(crate) fn path(directory: &Path, journal: &str, at: impl Display) -> PathBuf {
    directory.join(format!("{journal}.{at}"))
}

/// Returns the paths of the files of a journal.
pub(crate) fn paths(directory: &Path, journal: &str) -> impl Iterator<Item = PathBuf> {
    (0..FILES).map(move |at| path(directory, journal, at))
}

/// Opens the existing files of a journal for reading.
pub(crate) fn existing(directory: &Path, journal: &str) -> io::Result<Vec<Segment>> {
    (0..FILES).map(|at| Segment::open(&path(directory, journal, at))).collect()
}

/// Opens the files for writing, and creates missing files with the mode of the data file.
pub(crate) fn create(directory: &Path, journal: &str) -> io::Result<Vec<File>> {
    let mut is_new = false;
    let mut files = Vec::with_capacity(FILES);
    for at in 0..FILES {
        let file = create_one(directory, &path(directory, journal, at))?;
        let length = file.metadata()?.len();
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

/// The files of a journal that this process writes.
///
/// Only the first file stays open, because it may have the lock of the writer. The others are opened when they are needed, so
/// that a store has few open files; the log keeps the file of the current segment.
pub(crate) struct Segments {
    first: Arc<File>,
    /// The paths, and the numbers of the files on systems that have numbers.
    files: Vec<(PathBuf, Option<FileId>)>,
}

impl Segments {
    /// Returns the files with these paths.
    pub(crate) fn new(paths: impl Iterator<Item = PathBuf>, files: Vec<File>) -> io::Result<Self> {
        let numbered = |(path, file): (_, &File)| Ok((path, number_of(file)?));
        let numbered = paths.zip(&files).map(numbered).collect::<io::Result<_>>()?;
        let first = files.into_iter().next().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { first: Arc::new(first), files: numbered })
    }

    /// Returns the number of files.
    pub(crate) const fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) const fn first(&self) -> &Arc<File> {
        &self.first
    }

    /// Returns the paths and the numbers of the files; nothing on systems without numbers.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (PathBuf, FileId)> {
        self.files.iter().filter_map(|(path, number)| Some((path.clone(), (*number)?)))
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// If the file can't be opened, or if another file is at its path.
    pub(crate) fn open(&self, at: usize) -> io::Result<File> {
        // On systems without numbers, other descriptors of a locked file can't be read or written.
        if at == 0 && cfg!(not(unix)) {
            return self.first.try_clone();
        }
        let (path, number) = self.files.get(at).ok_or(io::ErrorKind::NotFound)?;
        let file = File::options().read(true).write(true).open(path)?;
        if number_of(&file)? == *number {
            Ok(file)
        } else {
            Err(io::Error::other("a file of the journal was replaced"))
        }
    }

    /// Opens the file of a segment.
    pub(crate) fn of(&self, sequence: u64) -> io::Result<File> {
        self.open(file_of(sequence, self.len()))
    }

    /// Opens all files.
    pub(crate) fn open_all(&self) -> io::Result<Vec<File>> {
        (0..self.len()).map(|at| self.open(at)).collect()
    }
}

/// Opens a file for writing. If it is new, it has the mode of the data file.
pub(super) fn create_one(directory: &Path, path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    if file.metadata()?.len() == 0
        && let Ok(data) = fs::metadata(directory.join(FILE))
    {
        file.set_permissions(data.permissions())?;
    }
    Ok(file)
}

/// Removes the files of a journal that is not needed, starting with this number.
pub(crate) fn remove(directory: &Path, first: usize) {
    for at in first..FILES {
        // A remaining file is ignored, because the marker of the data file doesn't refer to it.
        let _ = fs::remove_file(path(directory, OWN, at));
    }
}

/// Marks all checkpoints of a journal as given up. Afterwards, its records are not evidence of later commits.
pub(super) fn give_up(directory: &Path) -> io::Result<()> {
    for at in 0..FILES {
        let mut options = File::options();
        let file = match options.read(true).write(true).open(path(directory, OWN, at)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        if file.metadata()?.len() >= HEAD {
            write_at(&file, 0, &GIVEN_UP)?;
            file.sync_data()?;
        }
    }
    Ok(())
}

/// Whether a journal with this first block was given up.
pub(super) fn is_given_up(head: &[u8]) -> bool {
    head.starts_with(&GIVEN_UP)
}

/// Removes the checkpoints of earlier journals, which are not needed.
pub(super) fn forget_others(files: &[File], identity: &[u8; 16]) -> io::Result<()> {
    for file in files {
        let mut head = vec![0; HEAD as usize];
        read_at(file, 0, &mut head)?;
        let is_own = Block::read(&head).is_some_and(|block| block.salt.identity == *identity);
        if !is_own && head.iter().any(|byte| *byte != 0) {
            write_at(file, 0, &vec![0; HEAD as usize])?;
            file.sync_data()?;
        }
    }
    Ok(())
}

/// Checks that the files of a journal that is needed are all there. They exist, with their first length, before the journal
/// is used.
pub(super) fn find_missing(
    directory: &Path,
    journal: &str,
    files: &[Segment],
) -> io::Result<Option<String>> {
    for (at, file) in files.iter().enumerate() {
        if file.length()? < FIRST {
            let name = path(directory, journal, at);
            let name = name.file_name().unwrap_or_default().to_string_lossy();
            return Ok(Some(format!(
                "`{name}` is missing or too short, and may have commits that data.mdb lacks; put it back"
            )));
        }
    }
    Ok(None)
}

/// Writes zeros, so that later writes change neither the length of the file nor the location of its bytes.
pub(super) fn zero(file: &File, from: u64, to: u64) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let count = usize::try_from(to - at).unwrap_or(ZEROS.len()).min(ZEROS.len());
        write_at(file, at, ZEROS.get(..count).unwrap_or_default())?;
        at += count as u64;
    }
    Ok(())
}

/// Returns the first blocks of the files, which have the checkpoints.
pub(crate) fn heads(files: &[Segment]) -> io::Result<Vec<Vec<u8>>> {
    files.iter().map(Segment::head).collect()
}

/// A file that may be missing, for reading.
pub(crate) struct Segment(Option<File>);

impl Segment {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match File::open(path) {
            Ok(file) => Ok(Self(Some(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self(None)),
            Err(error) => Err(error),
        }
    }

    pub(super) const fn file(&self) -> Option<&File> {
        self.0.as_ref()
    }

    /// Makes all readable bytes durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), File::sync_data)
    }

    pub(super) fn head(&self) -> io::Result<Vec<u8>> {
        let length = self.length()?;
        if length < HEAD {
            return Ok(Vec::new());
        }
        let mut head = vec![0; HEAD as usize];
        self.read_at(0, &mut head)?;
        let whole = Block::length(&head).filter(|whole| *whole as u64 <= length);
        head.resize(whole.unwrap_or(HEAD as usize), 0);
        let rest = head.get_mut(HEAD as usize..).unwrap_or_default();
        self.read_at(HEAD, rest)?;
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

impl Source for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        read_at(self, offset, into)
    }
}

/// Makes the names of the files durable.
#[cfg(unix)]
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Does nothing on systems where directories can't be opened.
#[cfg(not(unix))]
pub(super) fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
pub(super) fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

/// Fails on systems without positioned writes, where journals are not opened.
#[cfg(not(unix))]
pub(super) fn write_at(_: &File, _: u64, _: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_has_the_bytes_of_a_journal_that_is_given_up() {
        let bytes = GIVEN_UP.map(|byte| format!("{byte:02x}")).join(" ");
        assert!(include_str!("../../../../../docs/FORMAT.md").contains(&bytes), "{bytes}");
        assert!(is_given_up(&GIVEN_UP) && Block::read(&GIVEN_UP).is_none());
    }
}
