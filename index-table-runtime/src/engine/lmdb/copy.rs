//! Copying the file while it is written.

use std::{fs::File, io::Seek};

use heed::CompactionOption;

use super::{
    env::Engine,
    gate::Kind,
    journal::marker::{self, Marker},
    names::Env,
};
use crate::{
    engine::CopyKind,
    model::error::{Error, Result},
};

impl Engine {
    /// Returns the bytes in use, up to the last page.
    pub(crate) fn size(&self) -> Result<u64> {
        // Dropped in this order: the transaction, its pass.
        let reading = self.begin(Kind::Reader, Env::read_txn)?;
        let used = self.used() as u64;
        drop(reading);
        Ok(used)
    }

    /// Writes a snapshot into an empty file.
    pub(crate) fn copy(&self, mut file: &File, copy: CopyKind) -> Result<()> {
        let compaction = match copy {
            CopyKind::Whole => CompactionOption::Disabled,
            CopyKind::Compact => CompactionOption::Enabled,
        };
        let (copied, _pass) = self.begin(Kind::Reader, |env| {
            // The copy may be repeated after the map has grown.
            let copied = file
                .set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| file.try_clone())
                .map_err(heed::Error::Io)
                .and_then(|mut same| env.copy_to_file(&mut same, compaction));
            match copied {
                // The error concerns the file of the copy, not the file of the store.
                Err(heed::Error::Io(source)) => Ok(Err(Error::io(&self.path, source))),
                copied => copied.map(Ok),
            }
        })?;
        copied?;
        // A copy is complete without a journal.
        marker::put(file, Marker::None).map_err(|source| Error::io(&self.path, source))
    }
}
