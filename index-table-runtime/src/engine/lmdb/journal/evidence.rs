//! Evidence of commits that a data file lacks, in the other files of its directory.
//!
//! Opening a store neither creates an empty data file nor uses an older one if these files show that the store has
//! other commits. A process that is killed while it creates a store leaves no such files, because the first two pages
//! of the data file are durable before all of them.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::{
    archive::{format::FOLLOWER, outbox::PENDING},
    block::{Block, HEAD, LONGEST_HEAD},
    files::{self, OWN, SHARED, read_at},
    found::Found,
    frame,
    marker::{Journalled, Marker},
    not_started::NotStarted,
    tail::file_of,
};
use crate::engine::{
    files as modes,
    lmdb::{lock, names::LOCK_FILE},
};

/// Returns the name of a file that shows commits of the store in a directory; `None` if there is none. The data file
/// is missing or empty, and no process has the store open.
///
/// `has_pages` if the data file has first pages of a new store. Then the lock file may be older than the data file.
pub(in crate::engine::lmdb) fn of_commits(
    directory: &Path,
    has_pages: bool,
) -> io::Result<Option<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_journal =
            |journal| name.strip_prefix(journal).is_some_and(|rest| rest.starts_with('.'));
        let is_evidence = match name.as_str() {
            PENDING | FOLLOWER => true,
            LOCK_FILE => !has_pages && lock::last_number(&entry.path())? > 0,
            _ if is_journal(OWN) || is_journal(SHARED) => has_frame(&entry.path())?,
            _ => false,
        };
        if is_evidence {
            found.push(name);
        }
    }
    Ok(found.into_iter().min())
}

/// Whether a data file has a journal, or has had one.
pub(in crate::engine::lmdb) fn has_journal(directory: &Path) -> io::Result<bool> {
    modes::exists(&files::path(directory, OWN, 0))
}

/// Whether a file of a journal has a frame, valid or not. Frames begin after the checkpoint, which may be damaged.
fn has_frame(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(false);
    }
    let mut first = [0; 8];
    let end = metadata.len().saturating_sub(first.len() as u64).min(LONGEST_HEAD);
    let mut at = HEAD;
    while at <= end {
        read_at(&file, at, &mut first)?;
        if frame::length(&first).is_some() {
            return Ok(true);
        }
        at += HEAD;
    }
    Ok(false)
}

/// Checks that the journal of one data file has no later commit than the file, whose last commit has this number. By
/// its marker, the file is complete without the journal.
pub(in crate::engine::lmdb) fn refuse_later_commits(
    directory: &Path,
    marker: &Marker,
    number: u64,
) -> Result<(), NotStarted> {
    let files = files::existing(directory, OWN)?;
    let mut newest: Vec<Block> = Vec::new();
    for (at, head) in files::heads(&files)?.iter().enumerate() {
        let Some(block) =
            Block::read(head).filter(|block| file_of(block.salt.sequence, files.len()) == at)
        else {
            continue;
        };
        let order = |block: &Block| (block.salt.epoch, block.salt.sequence);
        match newest.iter_mut().find(|own| own.salt.identity == block.salt.identity) {
            Some(own) if order(own) < order(&block) => *own = block,
            Some(_) => {}
            None => newest.push(block),
        }
    }
    for block in newest {
        // The journal that was open last, before the file became complete.
        let is_last = matches!(marker, Marker::Clean(Journalled { identity, epoch, .. })
            if *identity == block.salt.identity && *epoch >= block.salt.epoch);
        if is_last {
            continue;
        }
        let files = files::existing(directory, OWN)?;
        let last =
            Found::of(files, block, false).map_err(NotStarted::from).and_then(|it| it.last(0));
        let last = match last {
            Err(NotStarted::Damaged(_)) => u64::MAX,
            last => last?,
        };
        if last > number {
            return Err(NotStarted::Damaged(older(OWN)));
        }
    }
    Ok(())
}

/// Returns the reason to refuse a data file that is older than a journal.
pub(super) fn older(journal: &str) -> String {
    format!(
        "data.mdb lacks commits that `{journal}.*` has; put the newer data.mdb back, or, to use this one, remove the \
         files `{journal}.*`"
    )
}
