//! What the files of a directory show before the store is opened.

use std::{fs, io, path::Path};

use super::{FILE, damaged, error, evidence, pages, refused};
use crate::{
    engine::DataFile,
    model::error::{Error, Result},
};

impl DataFile<'_> {
    /// Refuses to create a data file if other files show that the store had one with commits.
    pub(crate) fn refuse_missing(self) -> Result<()> {
        let is_lost = || has_pages(self.0).map(|has_pages| !has_pages);
        if !is_lost()? {
            return Ok(());
        }
        match refuse_commits(self.0) {
            // Another process has created the store in the meantime.
            Err(Error::DamagedFile { .. }) if !is_lost()? => Ok(()),
            outcome => outcome,
        }
    }

    /// Whether the data file in a directory has tables, without those that only a journal has. A damaged file is an error.
    pub(crate) fn has_tables(self) -> Result<bool> {
        let databases = pages::look_at_head(&self.0.join(FILE), false);
        let databases = databases.map_err(|fault| refused(self.0, fault))?;
        Ok(databases.unwrap_or(0) > 0)
    }

    /// Whether the data file in a directory is missing, or has no table and no journal, such as the file of a killed process that
    /// was creating a store. A damaged file is not vacant.
    pub(crate) fn is_vacant(self) -> Result<bool> {
        match self.has_tables() {
            Ok(true) | Err(Error::DamagedFile { .. }) => return Ok(false),
            Ok(false) => {}
            Err(error) => return Err(error),
        }
        let has_journal = evidence::has_journal(self.0);
        Ok(!has_journal.map_err(|source| Error::opening(self.0, source))?)
    }

    /// Returns the number of the last commit in the data file of a directory that no process has open.
    pub(crate) fn last_number(self) -> Result<u64> {
        pages::last_txn(&self.0.join(FILE)).map_err(|fault| refused(self.0, fault))
    }

    /// Gives the last commit in the data file of a directory that no process has open a later number, so that the following
    /// commits have later ones too. The file must be complete without a journal.
    pub(crate) fn raise_number(self, number: u64) -> Result<()> {
        pages::raise_txn(&self.0.join(FILE), number).map_err(|fault| refused(self.0, fault))
    }
}

/// Whether a directory has a data file that is not empty.
fn has_pages(path: &Path) -> Result<bool> {
    match fs::metadata(path.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        file => Ok(file.map_err(|source| error::not_opened(path, source))?.len() > 0),
    }
}

/// Does the same for a data file without commits.
pub(super) fn refuse_commits(path: &Path) -> Result<()> {
    let found = evidence::of_commits(path, has_pages(path)?)
        .map_err(|source| error::not_opened(path, source))?;
    let Some(found) = found else { return Ok(()) };
    Err(damaged(
        path,
        format!(
            "data.mdb is missing or has no commits, and `{found}` shows that the store had some; put data.mdb back, or, for a \
             new store, remove the other files of the directory; a shard map manager can be rebuilt with `rebuild`"
        ),
    ))
}
