//! The options of an archive.

use std::{io, path::Path, sync::Arc};

use super::{
    hand_over::{ArchiveFile, Destination, HandOver},
    options::Options,
};

impl Options {
    /// Sets the directory of an archive, with [`Durability::Journal`](crate::Durability::Journal). Default: none. Every commit is copied to the
    /// directory within a second, and [`Store::restore_archive`](crate::Store::restore_archive) restores the store as of
    /// any commit. When the last handle to the store is dropped, the archive has all commits.
    ///
    /// A missing directory is created with the modes of the store. An archive belongs to one store. If a restored store is opened
    /// with the directory of an existing archive, the archive continues after a gap, with a new base. A new store is refused
    /// with [`Error::ArchiveInUse`](crate::Error::ArchiveInUse), so that a disk that is not mounted doesn't end in an archive whose
    /// last state is an empty store. The directory can be on another disk. With an archive, a relative path is relative to the
    /// current directory.
    ///
    /// An archive has a base, which is a copy of the data file, and segments with the commits. The first base is written
    /// when the store is opened with a new archive, by a thread. Later bases follow when the segments have become as large
    /// as the last base, and at least 64 MiB. A commit does no work for the archive, because a thread reads the
    /// journal. Each byte of the journal is written two more times: to the directory `archive.pending` of the store,
    /// and to the archive.
    ///
    /// If the archive can't be written, commits continue. `archive.pending` then keeps all commits until the archive
    /// can be written again, even if the store is closed and opened in the meantime.
    /// [`Store::archive_lag`](crate::Store::archive_lag) reports the error. This also holds if the directory of the archive is
    /// empty or missing, such as the mount point of a disk that is not mounted. To begin a new archive in it, open the store
    /// once with [`without_archive`](Options::without_archive), and then with the archive again.
    ///
    /// The directory of the store records its archive. Opening the store for writing without naming an archive then fails
    /// with [`Error::ArchiveNotNamed`](crate::Error::ArchiveNotNamed), because the archive would miss commits; see
    /// [`without_archive`](Options::without_archive). To change the archive, name another one. A follower that is promoted,
    /// a restored store and a copy by [`backup_to`](crate::Store::backup_to) have no archive.
    ///
    /// No file of an archive is removed. A base, and all segments with smaller numbers than the oldest remaining base, can
    /// be removed by hand.
    ///
    /// All shards of a store and the shard map manager have one archive, because the shards have one journal, so each of them
    /// must have the journal. [`Store::restore_archive`](crate::Store::restore_archive) restores all of them as of any time or
    /// commit. Each shard has bases of its own. When a shard is added, its first base is written. When a detached shard is
    /// attached again or a lost one is [restored](crate::Store::restore_shard), or when a shard was written outside of the
    /// store, the archive continues after a gap, with new bases of all shards.
    ///
    /// If a shard is missing when the store is opened, the archive keeps the shard as it was. A gap ends when all new bases are
    /// written ([`has_base`](crate::ArchiveLag::has_base)). Until then, later commits can't be restored:
    /// [`Error::NotInArchive`](crate::Error::NotInArchive).
    ///
    /// With another durability, opening fails with [`Error::Io`](crate::Error::Io) with the kind `InvalidInput`.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Durability, IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Note {
    ///     #[primary_key]
    ///     id: u32,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (shop, archive, restored) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
    /// let options = Store::options().durability(Durability::Journal).archive(&archive);
    /// let store = options.open(&shop)?;
    /// let notes = NoteRepository::open(&store)?;
    /// store.transaction(|txn| notes.insert(txn, &Note { id: 1 }))?;
    /// drop((notes, store));
    ///
    /// Store::restore_archive(&archive).run(&restored)?;
    /// let store = Store::open(&restored)?;
    /// assert_eq!(NoteRepository::open(&store)?.all(&store.read()?).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn archive(mut self, directory: impl AsRef<Path>) -> Self {
        self.archive = Some(directory.as_ref().to_owned());
        self.hand_over = None;
        self.without_archive = false;
        self
    }

    /// Gives up the archive of a store, so that it can be opened for writing without it. It is not needed for
    /// [`read_only`](Options::read_only), and has no effect on a store without an archive. Later openings need not repeat it.
    ///
    /// The archive ends with the last commit that it has. A file `ended` in its directory records this: restoring its last
    /// state needs [`until_end`](crate::RestoreArchive::until_end), and its followers report an error in their lag. If the
    /// directory can't be written, each later opening for writing tries again. An archive whose files a function
    /// gets has no such file. When the store is opened with this archive again, the archive continues after a gap, with a new
    /// base.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Durability, Error, Store};
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (shop, archive) = (dir.path().join("a"), dir.path().join("b"));
    /// drop(Store::options().durability(Durability::Journal).archive(&archive).open(&shop)?);
    ///
    /// assert!(matches!(Store::open(&shop), Err(Error::ArchiveNotNamed { .. })));
    /// Store::options().without_archive().open(&shop)?;
    /// Store::open(&shop)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_archive(mut self) -> Self {
        (self.archive, self.hand_over) = (None, None);
        self.without_archive = true;
        self
    }

    /// Sets a function that gets the files of an archive, such as for an object store. It replaces a directory set by
    /// [`archive`](Options::archive), whose documentation applies except for the following.
    ///
    /// The function gets complete segments only: at the latest 10 seconds after a commit, after 16 MiB, and when the last
    /// handle to the store is dropped. It stores the contents of the file under the name, and replaces an object with the
    /// same name. After an error, or if the process ends, it gets the file again. It is called by background threads of
    /// all stores, at most two at the same time for a store. So it must not wait for ever: with eight such functions that wait, no
    /// other archive continues. Files stay in
    /// `archive.pending` until the function has returned `Ok`. A base is written there first, so the disk of the store needs
    /// room for a copy of the data file.
    ///
    /// Each name begins with the identity of the archive, in hex, and `/`. To restore, download all objects with the same
    /// identity to a directory, with the rest of the names as paths, and call
    /// [`Store::restore_archive`](crate::Store::restore_archive) with this directory. A store whose `archive.pending` is
    /// lost, such as a restored store, has a new identity. Two open stores never use the same names.
    ///
    /// Functions are compared by identity: opening an open store again with options that have another function fails with
    /// [`Error::AlreadyOpen`](crate::Error::AlreadyOpen); use a clone of the options. They are not serialized.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::fs;
    ///
    /// use index_table::{Durability, Store};
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (bucket, path) = (dir.path().join("bucket"), dir.path().join("shop"));
    /// let options = Store::options().durability(Durability::Journal).archive_with(move |file| {
    ///     let object = bucket.join(file.name); // stands for an upload
    ///     fs::create_dir_all(object.parent().unwrap())?;
    ///     fs::copy(file.path, object).map(drop)
    /// });
    /// let store = options.open(path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn archive_with(
        mut self,
        function: impl Fn(ArchiveFile<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.hand_over = Some(HandOver(Arc::new(function)));
        self.archive = None;
        self.without_archive = false;
        self
    }

    /// Whether the store has an archive.
    pub(crate) const fn has_archive(&self) -> bool {
        self.archive.is_some() || self.hand_over.is_some()
    }

    /// Returns the destination of the archive.
    pub(crate) fn destination(&self) -> Option<Destination> {
        let function = self.hand_over.clone().map(Destination::Function);
        function.or_else(|| self.archive.clone().map(Destination::Directory))
    }
}
