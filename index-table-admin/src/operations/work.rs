//! The work of each kind of operation, with the same arguments and results as the command.

use std::path::{Component, Path, PathBuf};

use clap::Subcommand;
use index_table::Store;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    commands::{
        copies::{Copied, drop_retired_of},
        moving::{AddedShard, MoveKeys, MovedTable, Open, RebalancedMap, SplitRange, UnfinishedId},
        upkeep::{BuiltTables, ChosenTables, ExpiredRows, LoadedFile, RepairedTables},
    },
    failure::Failure,
    open::Opened,
    output::Output,
    server::shown,
    typed::Declared,
};

/// An operation with its arguments.
#[derive(Debug, Subcommand, Serialize, Deserialize)]
#[serde(tag = "kind", content = "arguments", rename_all = "kebab-case")]
pub(crate) enum Work {
    /// Move keys of a shard map to another shard.
    Move(MoveKeys),
    /// Split a range of a shard map, and move its upper part to another shard.
    Split(SplitRange),
    /// Move a table without a shard key to another shard.
    MoveTable(MovedTable),
    /// Add a shard. An absolute directory must be in the directory of files of the service.
    AddShard(AddedShard),
    /// Move keys so that all shards have about the same load.
    Rebalance(RebalancedMap),
    /// Continue an unfinished move.
    ResumeMove(UnfinishedId),
    /// Cancel an unfinished move, and remove its copies.
    CancelMove(UnfinishedId),
    /// Copy the store to a directory in the directory of files of the service.
    Backup(Copied),
    /// Drop the indexes that are no longer declared.
    DropRetired(Nothing),
    /// Compare the indexes with the rows.
    Verify(ChosenTables),
    /// Correct the entries that differ from the rows.
    Repair(RepairedTables),
    /// Rewrite rows of older versions in the current version.
    Upgrade(ChosenTables),
    /// Build the indexes that are not readable.
    Build(BuiltTables),
    /// Delete expired rows.
    Expire(ExpiredRows),
    /// Load rows from a file in the directory of files of the service.
    Load(LoadedFile),
}

/// No arguments.
#[derive(Debug, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// The names of the operations, and whether they can be cancelled: between two batches, two pieces of a copy, or two steps of a table.
pub(super) const KINDS: [(&str, bool); 15] = [
    ("move", true),
    ("split", true),
    ("move-table", true),
    ("add-shard", false),
    ("rebalance", true),
    ("resume-move", true),
    ("cancel-move", false),
    ("backup", true),
    ("drop-retired", false),
    ("verify", true),
    ("repair", true),
    ("upgrade", true),
    ("build", true),
    ("expire", true),
    ("load", true),
];

/// What operations work on.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) store: Store,
    pub(super) types: Vec<Declared>,
    /// The directory of files.
    pub(super) files: Option<PathBuf>,
}

impl Work {
    /// Reads the arguments of a request.
    pub(super) fn read(kind: &str, arguments: &Value) -> Result<Self, Failure> {
        let read = serde_json::from_value(json!({ "kind": kind, "arguments": arguments }));
        read.map_err(|error| Failure::arguments(format!("the arguments of `{kind}`: {error}")))
    }

    /// Returns the arguments as JSON.
    pub(crate) fn arguments(&self) -> Result<(String, Value), Failure> {
        let failed = |error: String| Failure::arguments(format!("the arguments: {error}"));
        let value = serde_json::to_value(self).map_err(|error| failed(error.to_string()))?;
        match (value.get("kind").and_then(Value::as_str), value.get("arguments")) {
            (Some(kind), Some(arguments)) => Ok((kind.to_owned(), arguments.clone())),
            _ => Err(failed("they have no kind".to_owned())),
        }
    }

    pub(super) fn run(&self, out: &Output, service: &Service) -> Result<(), Failure> {
        let Service { store, types, .. } = service;
        let open = || Open::in_service(store, types);
        match self {
            Self::Move(own) => own.run(out, &open()?, false),
            Self::Split(own) => own.run(out, &open()?, false),
            Self::MoveTable(own) => own.run(out, &open()?, false),
            Self::AddShard(own) => {
                service.check_directory(&own.directory)?;
                own.run(out, &open()?, false)
            }
            Self::Rebalance(own) => own.run(out, &open()?, false),
            Self::ResumeMove(own) => own.resume(out, &open()?, false),
            Self::CancelMove(own) => own.cancel(out, &open()?, false),
            Self::Backup(own) => own.run(out, store, &service.file(&own.to)?),
            Self::DropRetired(Nothing {}) => drop_retired_of(out, store),
            Self::Verify(own) => own.verify(out, &service.opened()?, types),
            Self::Repair(own) => own.run(out, &service.opened()?, types),
            Self::Upgrade(own) => own.upgrade(out, &service.opened()?, types),
            Self::Build(own) => own.run(out, &service.opened()?, types),
            Self::Expire(own) => own.run(out, &service.opened()?, types),
            Self::Load(own) => {
                let opened = Opened { store: store.clone() };
                let file = service.file(&own.file)?;
                // A pipe without a writer would never end.
                if file.metadata().is_ok_and(|file| !file.is_file()) {
                    let message = format!("`{}` is not a file", shown(&own.file));
                    return Err(Failure::arguments(message));
                }
                own.run(out, (&opened, &file), types)
            }
        }
    }
}

impl Service {
    /// Returns the store, whose tables have types.
    fn opened(&self) -> Result<Opened, Failure> {
        if self.types.is_empty() {
            return Err(Failure::arguments(
                "this operation needs the types of the rows, and the service has given none: call \
                 `Operations::types::<(Customer, Order)>()` in the service",
            ));
        }
        Ok(Opened { store: self.store.clone() })
    }

    /// Returns the path of a file, which must be in the directory of files.
    fn file(&self, name: &Path) -> Result<PathBuf, Failure> {
        let Some(files) = &self.files else {
            return Err(Failure::arguments(
                "the service has no directory for the files of operations: call `Operations::files` in the service",
            ));
        };
        check_relative(name)?;
        inside(files, &files.join(name))
    }

    /// Checks the directory of a shard.
    fn check_directory(&self, directory: &Path) -> Result<(), Failure> {
        if !directory.is_absolute() {
            check_relative(directory)?;
            let Some(store) = self.store.directory() else { return Ok(()) };
            return inside(&store, &store.join(directory)).map(drop);
        }
        let refused = || {
            Failure::arguments(format!(
                "`{}` is not in the directory for the files of operations, which `Operations::files` sets; give a path relative \
                 to the store",
                shown(directory)
            ))
        };
        let files = self.files.as_ref().ok_or_else(refused)?;
        check_relative(directory.strip_prefix(files).map_err(|_| refused())?)?;
        inside(files, directory).map(drop)
    }
}

/// Checks that a path has only names.
fn check_relative(path: &Path) -> Result<(), Failure> {
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
    if path.components().next().is_some() && path.components().all(is_name) {
        return Ok(());
    }
    Err(Failure::arguments(format!(
        "`{}` is not a path within the directory of the service; give names without `..`",
        shown(path)
    )))
}

/// Checks that no link in a path leads out of the directory. The last parts may not exist.
fn inside(directory: &Path, path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| Failure::other(format!("`{}`: {error}", shown(directory)));
    let directory = directory.canonicalize().map_err(failed)?;
    let existing = path.ancestors().find_map(|own| own.canonicalize().ok());
    if existing.is_some_and(|own| own.starts_with(&directory)) {
        return Ok(path.to_owned());
    }
    Err(Failure::arguments(format!(
        "`{}` is a link out of the directory of the service",
        shown(path)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_arguments() {
        for (kind, _) in KINDS {
            let error = Work::read(kind, &json!({ "unknown": 1 })).expect_err("refused");
            let message = error.message;
            assert!(message.contains("`unknown`") && !message.contains("variant"), "{message}");
        }
        let work = Work::read("move", &json!({ "map": "orders", "keys": "..5", "to": "south" }));
        let (kind, arguments) = work.expect("a move").arguments().expect("JSON");
        assert_eq!(kind, "move");
        assert_eq!(
            arguments,
            json!({ "map": "orders", "keys": "..5", "to": "south", "offline": false })
        );
        assert!(Work::read("drop", &json!({})).is_err());
    }

    #[test]
    fn files_stay_in_their_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let (files, outside) = (dir.path().join("files"), dir.path().join("outside"));
        for directory in [&files, &outside] {
            std::fs::create_dir(directory).expect("created");
        }
        let store = Store::open(dir.path().join("store")).expect("a store");
        let service = Service { store, types: Vec::new(), files: Some(files.clone()) };
        assert_eq!(service.file("a".as_ref()).expect("inside"), files.join("a"));
        for name in ["../outside/a", "/etc/passwd", "", ".", "a/../../b"] {
            assert!(service.file(name.as_ref()).is_err(), "{name}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&outside, files.join("link")).expect("a link");
            assert!(service.file("link/a".as_ref()).is_err());
        }
        assert!(service.check_directory("south".as_ref()).is_ok());
        assert!(service.check_directory(&files.join("south")).is_ok());
        assert!(service.check_directory(&outside).is_err());
        assert!(service.check_directory("../south".as_ref()).is_err());
        let none = Service { files: None, ..service };
        assert!(
            none.file("a".as_ref()).expect_err("refused").message.contains("Operations::files")
        );
        assert!(none.check_directory(&files).is_err());
    }
}
