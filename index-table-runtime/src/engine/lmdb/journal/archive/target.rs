//! The directory of an archive, for writing.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::{
    format::{self, Base, Based, ENDED, LOCK, MANIFEST_FILE, Manifest, PROMOTED},
    known,
    outbox::{Outbox, Work, put},
    records::Records,
};
use crate::{
    engine::{
        DIRECTORY_MODE, files as modes,
        lmdb::{
            journal::files::{read_at, sync_directory, write_at},
            names::FILE,
        },
    },
    locks::Unshared,
};

/// The number of bytes that are copied at once.
const PIECE: usize = 1 << 20;

const REMOVED: &str = "its manifest is gone, as if its disk were not mounted; the archive continues when the manifest is \
                       there again; to begin a new archive, open the store once with `without_archive` \
                       (`--without-archive`), and then with this archive";

const LOST: &str = "another store has written to the archive; choose another directory";

const PROMOTED_ELSEWHERE: &str = "a follower has been promoted, and writes to this store are refused; to write to it \
                                  nevertheless, archive it to another directory";

/// An archive to which this process writes.
pub(super) struct Target {
    directory: PathBuf,
    /// The data file of the store, whose mode all files get.
    data: PathBuf,
    /// Locked while this process writes to the archive.
    lock: Option<(Unshared, File)>,
    /// The end of the archive that this process has written.
    end: Option<Manifest>,
    /// Whether this or an earlier process has found or begun the archive.
    is_known: bool,
    /// The segment that is being copied, with its length there.
    part: Option<(u64, File, u64)>,
    /// Another store has written to the archive.
    is_lost: bool,
    /// A follower of the archive has been promoted.
    is_promoted: bool,
}

impl Target {
    pub(super) fn new(directory: PathBuf, store: &Path) -> Self {
        Self {
            directory,
            data: store.join(FILE),
            lock: None,
            end: None,
            // If the record can't be read, opening the store has failed.
            is_known: known::has_begun(store).unwrap_or_default(),
            part: None,
            is_lost: false,
            is_promoted: false,
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns whether the outbox has been compared with the archive, and continues it.
    pub(super) const fn is_attached(&self) -> bool {
        self.end.is_some()
    }

    /// Opens the archive, and compares its end with the outbox. If the outbox does not continue the archive, it starts
    /// a new generation. Returns the shards of which the generation has a base.
    pub(super) fn attach(&mut self, outbox: &mut Outbox) -> io::Result<Based> {
        if self.is_lost {
            let reason = if self.is_promoted { PROMOTED_ELSEWHERE } else { LOST };
            return Err(other(reason));
        }
        if self.is_known && self.manifest()?.is_none() {
            return Err(other(REMOVED));
        }
        if modes::exists(&self.directory.join(FILE))? {
            return Err(other("it is a store; choose an empty directory for the archive"));
        }
        if !self.directory.is_dir() {
            modes::create_directories(&self.directory, DIRECTORY_MODE)?;
            fs::set_permissions(&self.directory, fs::metadata(outbox.store())?.permissions())?;
        }
        if self.lock.is_none() {
            self.lock = Some(self.lock()?);
        }
        let found = self.manifest()?;
        let promoted = promoted(&self.directory)?;
        let is_own = promoted.is_some_and(|it| it.identity == outbox.manifest().identity);
        if is_own && promoted.is_some_and(|it| it.epoch > outbox.manifest().epoch) {
            return Err(self.lose_to_follower());
        }
        let (own, last) = (*outbox.manifest(), last_segment(&self.directory)?);
        let first = outbox.work().complete.first().map_or(own.segment + 1, |it| it.segment);
        // Segments of an earlier generation may be pending.
        let is_same = found.is_some_and(|found| {
            found.identity == own.identity
                && found.epoch == own.epoch
                && found.generation <= own.generation
                && found.segment < own.segment + 1
                && found.segment + 1 >= first
        });
        let is_new = found.is_none() && last == 0 && own.segment == 0 && own.generation == 1;
        if !is_same && !is_new {
            let generation = last_generation(&self.directory, found.as_ref())?;
            let epoch = promoted.map_or(0, |it| it.epoch);
            outbox.move_to(found.as_ref(), epoch, (generation, last))?;
        }
        let own = outbox.manifest();
        let end = match found.filter(|_| is_same) {
            Some(found) => Manifest { generation: own.generation, ..found },
            None => Manifest { commit: found.map_or(own.commit, |found| found.commit), ..*own },
        };
        self.put(&end)?;
        if !self.is_known {
            known::begin(outbox.store())?;
        }
        (self.end, self.is_known) = (Some(end), true);
        // The store was closed without a further commit since its archive was given up.
        let is_continued = |it: Manifest| {
            it.identity == end.identity && it.generation >= outbox.manifest().generation
        };
        if ended(&self.directory)?.is_some_and(is_continued) {
            fs::remove_file(self.directory.join(ENDED))?;
            sync_directory(&self.directory)?;
        }
        self.based(outbox.manifest())
    }

    fn lock(&self) -> io::Result<(Unshared, File)> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(self.directory.join(LOCK))?;
        file.set_permissions(fs::metadata(&self.data)?.permissions())?;
        let unshared = Unshared::new(&file);
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                Err(other("another process archives a store to it; choose another directory"))
            }
            // Without file locks, the manifest shows another store.
            Ok(()) | Err(TryLockError::Error(_)) => Ok((unshared, file)),
        }
    }

    fn manifest(&self) -> io::Result<Option<Manifest>> {
        match fs::read(self.directory.join(MANIFEST_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(bytes) => match Manifest::read(&bytes) {
                Some(manifest) => Ok(Some(manifest)),
                None => Err(other("its manifest is damaged; archive to another directory")),
            },
        }
    }

    /// Records the generation of the next segment, before the archive has a base of the generation.
    pub(super) fn begin_generation(&mut self, generation: u64) -> io::Result<()> {
        self.refuse_other_store()?;
        if let Some(end) = self.end.map(|end| Manifest { generation, ..end }) {
            self.put(&end)?;
            self.end = Some(end);
        }
        Ok(())
    }

    fn put(&self, manifest: &Manifest) -> io::Result<()> {
        put(&self.directory, MANIFEST_FILE, &manifest.bytes(), &self.data)
    }

    /// Returns the shards of which the archive has a base of this generation.
    pub(super) fn based(&self, own: &Manifest) -> io::Result<Based> {
        Ok(format::based(bases(&self.directory)?, own))
    }

    /// Copies everything that the archive lacks. `pending` is the directory of the outbox. Calls `complete` with the
    /// number of each segment that is complete in the archive.
    pub(super) fn deliver(
        &mut self,
        pending: &Path,
        work: &Work,
        complete: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        self.refuse_other_store()?;
        let generation = self.end.map_or(0, |end| end.generation);
        for end in &work.complete {
            let end = &Manifest { generation: end.generation.max(generation), ..*end };
            let segment = end.segment;
            if self.end.is_none_or(|own| own.segment < segment) {
                self.copy(&pending.join(format::segment_name(segment)), segment, None)?;
                self.finish(segment)?;
                self.put(end)?;
                self.end = Some(*end);
            }
            complete(segment);
        }
        if work.growing > 0 {
            let segment = work.manifest.segment + 1;
            self.copy(&pending.join(format::part_name(segment)), segment, Some(work.growing))?;
        }
        Ok(())
    }

    /// Returns the number of the segment that is being copied, and the bytes of it that the archive has.
    pub(super) fn part(&self) -> Option<(u64, u64)> {
        self.part.as_ref().map(|(segment, _, offset)| (*segment, *offset))
    }

    /// Checks that no other store has written to the archive.
    fn refuse_other_store(&mut self) -> io::Result<()> {
        let own = self.end.map_or(0, |end| end.epoch);
        if promoted(&self.directory)?.is_some_and(|promoted| promoted.epoch > own) {
            return Err(self.lose_to_follower());
        }
        let found = self.manifest()?;
        if found == self.end {
            return Ok(());
        }
        self.end = None;
        if found.is_none() {
            (self.lock, self.part) = (None, None);
            return Err(other(REMOVED));
        }
        self.is_lost = true;
        self.lock = None;
        Err(other(LOST))
    }

    /// Ends the archive of this store, because a follower of the archive has been promoted.
    fn lose_to_follower(&mut self) -> io::Error {
        (self.end, self.lock, self.is_lost, self.is_promoted) = (None, None, true, true);
        other(PROMOTED_ELSEWHERE)
    }

    /// Returns true if a follower of the archive has been promoted, so that this store must not be written.
    pub(super) const fn is_promoted(&self) -> bool {
        self.is_promoted
    }

    /// Copies the bytes of a segment that the archive lacks, up to `length`.
    fn copy(&mut self, from: &Path, segment: u64, length: Option<u64>) -> io::Result<()> {
        let from = File::open(from)?;
        let length = length.map_or_else(|| from.metadata().map(|file| file.len()), Ok)?;
        let (file, mut offset) = match self.part.take() {
            Some((part, file, offset)) if part == segment => (file, offset),
            _ => (self.create(segment)?, 0),
        };
        let mut piece = Vec::new();
        while offset < length {
            piece.resize(usize::try_from(length - offset).unwrap_or(PIECE).min(PIECE), 0);
            read_at(&from, offset, &mut piece)?;
            write_at(&file, offset, &piece)?;
            offset += piece.len() as u64;
        }
        self.part = Some((segment, file, offset));
        Ok(())
    }

    fn create(&self, segment: u64) -> io::Result<File> {
        let mut options = File::options();
        // An earlier process may have copied the same bytes, which stay until they are replaced.
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(self.directory.join(format::part_name(segment)))?;
        file.set_permissions(fs::metadata(&self.data)?.permissions())?;
        Ok(file)
    }

    fn finish(&mut self, segment: u64) -> io::Result<()> {
        if let Some((_, file, length)) = self.part.take() {
            file.set_len(length)?;
            file.sync_all()?;
        }
        let path = |name: String| self.directory.join(name);
        fs::rename(path(format::part_name(segment)), path(format::segment_name(segment)))?;
        sync_directory(&self.directory)
    }
}

fn other(reason: &'static str) -> io::Error {
    io::Error::other(reason)
}

/// Returns the record of the last follower that was promoted.
pub(super) fn promoted(directory: &Path) -> io::Result<Option<Manifest>> {
    let damaged = "its file `promoted` is damaged; archive to another directory";
    record(directory, PROMOTED, damaged)
}

/// Returns the record of the last end of an archive: its last generation and the time.
pub(super) fn ended(directory: &Path) -> io::Result<Option<Manifest>> {
    record(directory, ENDED, "its file `ended` is damaged; archive to another directory")
}

fn record(directory: &Path, name: &str, damaged: &'static str) -> io::Result<Option<Manifest>> {
    match fs::read(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(bytes) => match Manifest::read(&bytes) {
            Some(record) => Ok(Some(record)),
            None => Err(other(damaged)),
        },
    }
}

/// Records that a follower of an archive has been promoted.
pub(in crate::engine::lmdb) fn promote(directory: &Path, last: &Manifest) -> io::Result<Fence> {
    let before = promoted(directory)?;
    let epoch = before.map_or(0, |before| before.epoch).max(last.epoch) + 1;
    let record = Manifest { epoch, ..*last };
    let fence = Fence { directory: directory.to_owned(), before, record };
    match put(directory, PROMOTED, &record.bytes(), &directory.join(MANIFEST_FILE)) {
        Ok(()) => Ok(fence),
        Err(error) => {
            // The record can be there, if only the sync of the directory has failed.
            let _ = fence.lift();
            Err(error)
        }
    }
}

/// The record in an archive that refuses the writes of the original.
#[must_use = "the original is refused until the fence is lifted"]
pub(crate) struct Fence {
    directory: PathBuf,
    before: Option<Manifest>,
    record: Manifest,
}

impl Fence {
    /// Removes the record, because the promotion has failed. The original can be opened again, and written.
    pub(crate) fn lift(self) -> io::Result<()> {
        let Self { directory, before, record } = self;
        if promoted(&directory)? != Some(record) {
            // Another follower has been promoted since.
            return Ok(());
        }
        if let Some(before) = before {
            return put(&directory, PROMOTED, &before.bytes(), &directory.join(MANIFEST_FILE));
        }
        fs::remove_file(directory.join(PROMOTED))?;
        sync_directory(&directory)
    }
}

/// Returns the last segment in an archive, complete or not; 0 if there is none.
fn last_segment(directory: &Path) -> io::Result<u64> {
    let mut last = 0;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let name = name.strip_suffix(".part").unwrap_or(&name);
        last = last.max(format::number_of(name, "segment").unwrap_or(0));
    }
    Ok(last)
}

/// Returns the last generation of which an archive has a base or a segment. A store that was interrupted may have written
/// it without the manifest.
pub(super) fn last_generation(directory: &Path, manifest: Option<&Manifest>) -> io::Result<u64> {
    let ended = ended(directory)?;
    let mut last = manifest.into_iter().chain(&ended).map(|it| it.generation).max().unwrap_or(0);
    for base in bases(directory)? {
        last = last.max(base.generation);
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("segment.") {
            let head = Records::open(&File::open(entry.path())?)?.map(|records| records.head);
            last = last.max(head.map_or(0, |head| head.generation));
        }
    }
    Ok(last)
}

/// Returns the descriptions of all bases in an archive.
pub(super) fn bases(directory: &Path) -> io::Result<Vec<Base>> {
    let mut bases = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if format::is_base(&entry.file_name().to_string_lossy()) {
            match fs::read(entry.path().join(format::BASE_FILE)) {
                // The description is the last file of a base that is passed to a function.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                bytes => bases.extend(Base::read(&bytes?)),
            }
        }
    }
    Ok(bases)
}
