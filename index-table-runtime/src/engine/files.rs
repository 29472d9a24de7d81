//! Directories and files that are private to their owner.

#[cfg(unix)]
use std::ffi::OsStr;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{DIRECTORY_MODE, FILE_MODE};
use crate::model::error::is_full;

/// The data file in the directory of a store.
pub(crate) const DATA_FILE: &str = "data.mdb";

/// The file with LMDB's locks in the directory of a store.
pub(crate) const LOCK_FILE: &str = "lock.mdb";

/// The file that the process has locked that writes a store with shards.
pub(crate) const WRITER_LOCK: &str = "writer.lock";

/// The file that describes an archive, in its directory.
pub(crate) const MANIFEST_FILE: &str = "manifest";

/// Whether a path leads to a file or a directory. Unlike `Path::exists`, this does not take an error for a missing file.
pub(crate) fn exists(path: &Path) -> io::Result<bool> {
    is_found(fs::metadata(path))
}

/// Whether a path has a file, a directory or a link, which may lead nowhere.
pub(crate) fn is_taken(path: &Path) -> io::Result<bool> {
    is_found(path.symlink_metadata())
}

fn is_found(metadata: io::Result<fs::Metadata>) -> io::Result<bool> {
    match metadata {
        Ok(_) => Ok(true),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Creates the directory and its missing parents with this mode, and syncs their names.
pub(crate) fn create_directories(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if path.is_file() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is a file, not a directory"));
    }
    let mut missing = 0;
    for path in path.ancestors().take_while(|path| !path.as_os_str().is_empty()) {
        if exists(path)? {
            break;
        }
        missing += 1;
    }
    private().recursive(true).create(path)?;
    if mode != DIRECTORY_MODE {
        path.ancestors().take(missing).try_for_each(|path| set_mode(&File::open(path)?, mode))?;
    }
    path.ancestors().take(missing).try_for_each(|path| sync_directory(parent(path)))
}

/// Sets the mode of a new file or directory, which was private before. Other systems have no modes.
#[cfg_attr(
    not(unix),
    expect(
        clippy::missing_const_for_fn,
        clippy::unnecessary_wraps,
        reason = "it does more on Unix"
    )
)]
pub(crate) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    #[cfg(not(unix))]
    let _ = (file, mode);
    Ok(())
}

/// Opens a file for writing, and creates it with this mode if it is missing.
pub(crate) fn open_or_create(
    options: &mut OpenOptions,
    path: &Path,
    mode: u32,
) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, FILE_MODE);
    let file = options.open(path)?;
    // An empty file was created just now, by this process, or by another process with the same options.
    if mode != FILE_MODE && file.metadata()?.len() == 0 {
        set_mode(&file, mode)?;
    }
    Ok(file)
}

/// Returns whether two paths lead to the same directory.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    let id = |path: &Path| {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(path).map(|directory| (directory.dev(), directory.ino())).ok()
    };
    #[cfg(not(unix))]
    let id = |path: &Path| path.canonicalize().ok();
    let absolute = |path| std::path::absolute(path).ok();
    absolute(one) == absolute(other) || id(one).is_some_and(|one| Some(one) == id(other))
}

/// The device and the inode of a file.
pub(crate) type FileId = (u64, u64);

/// Returns the device and the inode of a file.
#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "it fails on other systems")]
pub(crate) fn id(file: &fs::Metadata) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt as _;

    Ok((file.dev(), file.ino()))
}

/// Fails on systems without such numbers, on which files in use can't be replaced.
#[cfg(not(unix))]
pub(crate) fn id(_: &fs::Metadata) -> io::Result<FileId> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the number of an open file; `None` on systems without such numbers.
pub(crate) fn number_of(file: &File) -> io::Result<Option<FileId>> {
    Ok(id(&file.metadata()?).ok())
}

/// Whether a path leads to this open file. Where files in use can't be replaced, it does.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let number = |found: io::Result<fs::Metadata>| found.and_then(|found| id(&found)).ok();
    cfg!(not(unix))
        || number(file.metadata()).is_some_and(|own| number(fs::metadata(path)) == Some(own))
}

/// Returns the directory that contains the name `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in a directory durable. It is not an error if the directory can't be opened, or its file system
/// can't sync it.
#[cfg(unix)]
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::Unsupported
        | io::ErrorKind::InvalidInput => Ok(()),
        _ => Err(error),
    })
}

/// Does nothing on systems on which directories can't be opened.
#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
pub(crate) fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Creates the directory, which must not exist. On Unix, only its owner has access.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    private().create(path)
}

fn private() -> fs::DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "other systems have no mode"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, DIRECTORY_MODE);
    builder
}

/// Creates a file for writing, which must not exist. On Unix, only its owner has access.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, FILE_MODE);
    options.open(path)
}

/// The bytes that [`lack_of_room`] writes.
pub(crate) const SAMPLE: usize = 1 << 16;

/// Writes some bytes to the disk of this directory, and returns the operating system's error if it is full.
pub(crate) fn lack_of_room(directory: &Path) -> Option<io::Error> {
    let written = temporary(directory).and_then(|mut file| file.write_all(&vec![0; SAMPLE]));
    written.err().filter(is_full)
}

/// Creates a file in the directory that only this process can use. It is removed when it is closed,
/// and when the process is killed.
pub(crate) fn temporary(directory: &Path) -> io::Result<File> {
    #[cfg(unix)]
    remove_left_names(directory);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    match without_name(directory) {
        Err(error) if lacks_files_without_name(&error) => {}
        outcome => return outcome,
    }
    with_name(directory)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn without_name(directory: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE | libc::O_EXCL);
    options.open(directory)
}

/// Whether the error means that the file system or the kernel has no files without names.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn lacks_files_without_name(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, Unsupported};

    matches!(error.kind(), InvalidInput | IsADirectory | Unsupported)
}

/// Creates a file with a name. The name is removed at once on Unix, and on Windows when the file is closed.
fn with_name(directory: &Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{PREFIX}{}-{number}{SUFFIX}", process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, FILE_MODE);
        #[cfg(windows)]
        {
            /// `FILE_FLAG_DELETE_ON_CLOSE`
            const DELETE_ON_CLOSE: u32 = 0x0400_0000;
            std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, DELETE_ON_CLOSE);
        }
        match options.open(&path) {
            Ok(file) => {
                #[cfg(unix)]
                remove_name(&path)?;
                return Ok(file);
            }
            // The file belongs to a process with the same number in another container.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

const PREFIX: &str = ".index-table-";
const SUFFIX: &str = ".tmp";

/// Removes the names that killed processes have left. This may remove the name of a live process's file, which
/// doesn't need it.
#[cfg(unix)]
fn remove_left_names(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_left = is_temporary_name(&entry.file_name())
            && entry.metadata().is_ok_and(|file| file.is_file() && file.len() == 0);
        if is_left {
            // The file may belong to another user, so an error is ignored.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes the name, unless another process has done so.
#[cfg(unix)]
fn remove_name(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn is_temporary_name(name: &OsStr) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = || name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('-');
    numbers().is_some_and(|(process, number)| is_number(process) && is_number(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_temporary_file_never_has_a_name() -> io::Result<()> {
        use std::os::fd::AsRawFd;

        let directory = tempfile::tempdir()?;
        if without_name(directory.path()).is_err_and(|error| lacks_files_without_name(&error)) {
            let demanded = std::env::var_os("INDEX_TABLE_PRIVILEGED_TESTS").is_some();
            assert!(!demanded, "the file system has no files without a name");
            return Ok(());
        }
        let file = temporary(directory.path())?;
        let name = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        assert!(!name.to_string_lossy().contains(PREFIX), "{}", name.display());
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn names_of_killed_processes_are_removed() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        let mine = format!("{PREFIX}{}-0{SUFFIX}", process::id());
        for left in [mine.as_str(), ".index-table-1-0.tmp", ".index-table-99999999-17.tmp"] {
            fs::write(path(left), "")?;
        }
        let others =
            [".index-table-1-x.tmp", ".index-table-1.tmp", "data.mdb", "index-table-1-0.tmp"];
        for other in others {
            fs::write(path(other), "")?;
        }
        fs::write(path(".index-table-2-0.tmp"), "something")?;
        fs::create_dir(path(".index-table-3-0.tmp"))?;
        drop(temporary(directory.path())?);
        drop(with_name(directory.path())?);
        let mut names = fs::read_dir(directory.path())?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        let mut expected =
            [&others[..], &[".index-table-2-0.tmp", ".index-table-3-0.tmp"]].concat();
        expected.sort_unstable();
        assert_eq!(names, expected);
        Ok(())
    }
}
