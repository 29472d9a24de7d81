//! Directories that killed processes have left, and that nothing needs.
//!
//! | directory | created by |
//! |---|---|
//! | `.{name}.restored`, `..{name}.restored.….partial` beside the directory `{name}` of a shard | `restore_shard` |
//! | `.manager.partial` in the directory of the shard map manager | `rebuild` |
//! | `.shards.manager.partial` in the directory of the store | `add_shard` of a store with one data file |
//!
//! Only a process with the lock of the store's writer uses them, so the next such process can remove them. A lost shard that is
//! not available keeps its copies until the next call of `restore_shard`: its directory is recorded in copies of the shard map
//! manager, too, and the process of another manager does not have this lock.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
};

use super::grow;
use crate::{
    engine::files,
    placement::shards::{HERE, ManagerRecords, Shard, place_of},
};

/// How the name of a directory ends that has a copied backup.
const RESTORED: &str = ".restored";

/// The end of the name of a directory that a copy is filling.
const PARTIAL: &str = ".partial";

/// The directory in which `rebuild` writes the manager.
pub(super) const MANAGER: &str = ".manager.partial";

/// Returns the name of the directory for a copied backup, beside that of its shard.
pub(crate) fn name_of_copy(shard: &OsStr) -> OsString {
    let mut name = OsString::from(".");
    name.push(shard);
    name.push(RESTORED);
    name
}

/// Returns the copies with these names that killed processes have left in a directory, complete or not.
pub(crate) fn left_copies(parent: &Path, names: &[OsString]) -> io::Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name();
        if names.iter().any(|copy| is_copy(name.as_encoded_bytes(), copy.as_encoded_bytes())) {
            left.push(entry.path());
        }
    }
    Ok(left)
}

fn is_copy(name: &[u8], copy: &[u8]) -> bool {
    let rest = || name.strip_prefix(b".")?.strip_prefix(copy);
    let is_partial = |rest: &[u8]| rest.starts_with(b".") && rest.ends_with(PARTIAL.as_bytes());
    name == copy || rest().is_some_and(is_partial)
}

/// Removes what killed processes have left. This process has the lock of the store's writer.
///
/// If a directory can't be removed, the next opening tries again.
pub(super) fn remove(path: &Path, records: &ManagerRecords, shards: &[Shard]) {
    let mut copies: BTreeMap<PathBuf, Vec<OsString>> = BTreeMap::new();
    for (record, _) in records.shards.iter().zip(shards).filter(|(_, it)| it.opened().is_ok()) {
        let place = place_of(path, &record.place);
        // After a growth, no backup takes the place of the first data file.
        if record.place == HERE {
            continue;
        }
        let parent = files::parent(&place).canonicalize();
        if let (Some(name), Ok(parent)) = (place.file_name(), parent) {
            copies.entry(parent).or_default().push(name_of_copy(name));
        }
    }
    let copies = copies.iter().flat_map(|(parent, names)| left_copies(parent, names));
    for left in copies.flatten().chain([MANAGER, grow::PARTIAL].map(|name| path.join(name))) {
        let _ = fs::remove_dir_all(left);
    }
}
