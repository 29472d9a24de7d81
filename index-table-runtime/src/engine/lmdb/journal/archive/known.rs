//! The file in the directory of a store that records its archive.
//!
//! A process that writes the store without the archive would leave a gap. So opening the store for writing fails, unless the
//! options name an archive or give it up. The record is older than the first commit in the archive. When an archive is
//! given up, the record states this first, then the archive gets the file `ended`, and then the record is removed.
//!
//! The record also states whether the directory has had the archive. Then no new archive begins in it when it is empty.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    format::{ENDED, KNOWN, Known, MANIFEST_FILE, Manifest},
    outbox::{PENDING, put},
    target::{last_generation, promoted},
};
pub(crate) use crate::engine::files::is_same;
use crate::{
    engine::{
        DataFile, Destination, Options, files as modes,
        lmdb::{
            journal::{files::sync_directory, log},
            names::FILE,
        },
    },
    model::error::{Error, Result},
};

/// Refuses to open a store for writing if its archive is neither named nor given up.
pub(crate) fn check(options: &Options, store: &Path) -> Result<()> {
    if options.has_archive() || options.without_archive {
        return Ok(());
    }
    match read(store).map_err(|source| Error::io(&store.join(KNOWN), source))? {
        Some(Known { is_given_up: false, place, .. }) => {
            Err(Error::ArchiveNotNamed { path: store.to_owned(), archive: place.map(path_of) })
        }
        _ => Ok(()),
    }
}

/// Refuses to create a store whose archive has the commits of another one. A disk that is not mounted looks like a missing store.
pub(crate) fn refuse_new(options: &Options, store: &Path) -> Result<()> {
    let Some(archive) = &options.archive else { return Ok(()) };
    // An error of the archive does not stop a store, and the record of a store is older than its first commit in the archive.
    let is_used = modes::exists(&archive.join(MANIFEST_FILE)).unwrap_or_default();
    if !is_used || read(store).map_err(|source| Error::io(&store.join(KNOWN), source))?.is_some() {
        return Ok(());
    }
    if DataFile(store).is_vacant()? {
        return Err(Error::ArchiveInUse { path: store.to_owned(), archive: archive.clone() });
    }
    Ok(())
}

/// Records the archive of a store, or gives up its archive if there is none any more. This process is the only writer.
pub(crate) fn settle(store: &Path, archive: Option<&Destination>) -> io::Result<()> {
    let known = read(store)?;
    let before = known.as_ref().and_then(|known| known.place.clone()).map(path_of);
    match (archive, known) {
        (None, None) => Ok(()),
        (None, Some(known)) => {
            if !known.is_given_up {
                let place = known.place.clone();
                write(store, &Known { is_given_up: true, has_begun: false, place })?;
            }
            if before.is_none_or(|before| end(store, &before, known.is_given_up)) {
                fs::remove_file(store.join(KNOWN))?;
                sync_directory(store)?;
            }
            Ok(())
        }
        (Some(archive), known) => {
            let place = match archive {
                // Nothing is archived to the directory of a store. After an error, the archive is not written before
                // this is known.
                Destination::Directory(path)
                    if modes::exists(&path.join(FILE)).unwrap_or_default() =>
                {
                    return Ok(());
                }
                Destination::Directory(path) => Some(std::path::absolute(path)?),
                Destination::Function(_) => None,
            };
            let is_same =
                before.as_ref().zip(place.as_ref()).is_some_and(|(it, place)| is_same(it, place));
            if let Some(before) = before.filter(|_| !is_same) {
                // If it can't be written, its followers don't find the end. The caller has named another archive.
                let is_given_up = known.as_ref().is_some_and(|known| known.is_given_up);
                end(store, &before, is_given_up);
            }
            let has_begun = is_same && known.as_ref().is_some_and(|known| known.has_begun);
            let next = Known { is_given_up: false, has_begun, place: place.map(bytes_of) };
            if known.as_ref() == Some(&next) { Ok(()) } else { write(store, &next) }
        }
    }
}

/// Returns whether the store has this archive, as far as this is known.
pub(crate) fn has_archive(store: &Path, archive: &Path) -> bool {
    let known = read(store).ok().flatten().filter(|known| !known.is_given_up);
    known.is_some_and(|it| it.place.is_none_or(|place| is_same(&path_of(place), archive)))
}

/// Returns the directory of the archive that a store has recorded; `None` without an archive, and if a function gets its files.
pub(crate) fn place(store: &Path) -> Result<Option<PathBuf>> {
    let known = read(store).map_err(|source| Error::io(&store.join(KNOWN), source))?;
    Ok(known.filter(|known| !known.is_given_up).and_then(|known| known.place).map(path_of))
}

/// Returns whether the directory that the record names has had the archive.
pub(super) fn has_begun(store: &Path) -> io::Result<bool> {
    Ok(read(store)?.is_some_and(|known| known.has_begun))
}

/// Records that the directory has the archive now. If it is empty later, its disk is not mounted, or it was emptied.
pub(super) fn begin(store: &Path) -> io::Result<()> {
    match read(store)? {
        Some(known) if !known.is_given_up && !known.has_begun => {
            write(store, &Known { has_begun: true, ..known })
        }
        _ => Ok(()),
    }
}

/// Reads the record. A damaged record is that of an archive whose place is unknown.
fn read(store: &Path) -> io::Result<Option<Known>> {
    match fs::read(store.join(KNOWN)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        bytes => Ok(Some(Known::read(&bytes?).unwrap_or_default())),
    }
}

fn write(store: &Path, known: &Known) -> io::Result<()> {
    put(store, KNOWN, &known.bytes(), &store.join(FILE))
}

/// Records in an archive that its store is written without it from now on, or since its last commit in the archive if the archive
/// was given up earlier. Returns false if the archive can't be read or written now.
fn end(store: &Path, archive: &Path, was_given_up: bool) -> bool {
    try_end(store, archive, was_given_up).is_ok()
}

fn try_end(store: &Path, archive: &Path, was_given_up: bool) -> io::Result<()> {
    let manifest = |directory: &Path| match fs::read(directory.join(MANIFEST_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        bytes => bytes.map(|bytes| Manifest::read(&bytes)),
    };
    // Without segments, nothing was archived.
    let Some(own) = manifest(&store.join(PENDING))? else { return Ok(()) };
    let Some(found) = manifest(archive)? else { return Err(io::ErrorKind::NotFound.into()) };
    let is_own = |other: &Manifest| (other.identity, other.epoch) == (own.identity, own.epoch);
    let is_promoted = promoted(archive)?
        .is_some_and(|other| other.identity == own.identity && other.epoch > own.epoch);
    if !is_own(&found) || is_promoted {
        // Another store writes to it now.
        return Ok(());
    }
    let generation = last_generation(archive, Some(&found))?.max(own.generation);
    let since = if was_given_up { own.time } else { log::nanoseconds() };
    let ended = Manifest { generation, time: since.max(found.time), ..found };
    put(archive, ENDED, &ended.bytes(), &archive.join(MANIFEST_FILE))
}

#[cfg(unix)]
pub(super) fn bytes_of(path: PathBuf) -> Vec<u8> {
    std::os::unix::ffi::OsStringExt::into_vec(path.into_os_string())
}

#[cfg(unix)]
pub(super) fn path_of(bytes: Vec<u8>) -> PathBuf {
    let path: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(bytes);
    path.into()
}

#[cfg(not(unix))]
pub(super) fn bytes_of(path: PathBuf) -> Vec<u8> {
    path.to_string_lossy().into_owned().into_bytes()
}

#[cfg(not(unix))]
pub(super) fn path_of(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}
