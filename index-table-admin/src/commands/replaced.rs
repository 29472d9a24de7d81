//! A store in the place of a lost one: a promoted follower, a restored shard, a rebuilt shard map manager.

use std::path::{Path, PathBuf};

use clap::Args;
use index_table::{Follower, Store};
use serde_json::json;

use crate::{
    cli::Written,
    failure::Failure,
    interrupt::on_ctrl_c,
    names::{self, unknown},
    open::{DATA, Opened, is_follower},
    output::Output,
    server::{Server, shown},
    typed::{Declared, Typed},
};

/// The directory of the shard map manager of a store that has grown from one data file.
const GROWN: &str = "shards.manager";

/// A follower that becomes a store.
#[derive(Debug, Args)]
pub(crate) struct Promote {
    /// The directory of the follower.
    #[arg(value_name = "FOLLOWER")]
    dir: PathBuf,
    /// The archive. Default: the one that the follower has read.
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Show what would become the store, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Promote {
    pub(crate) fn run(&self, out: &Output) -> Result<(), Failure> {
        let dir = &self.dir;
        if !is_follower(dir) {
            return Err(Failure::arguments(format!(
                "`{}` is not the directory of a follower",
                shown(dir)
            )));
        }
        let archive = match &self.archive {
            Some(archive) => archive.clone(),
            None => Follower::archive_of(dir)?.ok_or_else(|| {
                Failure::arguments(
                    "the follower has not recorded its archive; give `--archive DIR`",
                )
            })?,
        };
        let (place, from) = (dir.display().to_string(), archive.display().to_string());
        if self.dry_run {
            let opened = Opened::to_read(out, dir)?;
            let lag = opened.store.follower_lag()?;
            let commits = lag.as_ref().map_or(0, |lag| lag.commits);
            let error = lag.and_then(|lag| lag.error);
            let value =
                json!({ "follower": place, "archive": from, "commits": commits, "error": error });
            return Ok(out.put(&value, |text| {
                writeln!(
                    text,
                    "would apply {commits} commits of `{from}`, and make `{place}` a store"
                )?;
                error.iter().try_for_each(|error| writeln!(text, "{error}"))
            })?);
        }
        on_ctrl_c(
            out,
            "the follower is complete, or a store already; run the command again",
            || (),
        );
        let store = Follower::open(dir, &archive)?.promote()?;
        let last = store.read()?.commit_number().to_string();
        let value = json!({ "store": place, "archive": from, "last_commit": last });
        Ok(out.put(&value, |text| {
            writeln!(
                text,
                "`{place}` is a store now, up to commit {last}; name an archive when you open it"
            )
        })?)
    }
}

/// A lost shard.
#[derive(Debug, Args)]
pub(crate) struct RestoreShard {
    #[command(flatten)]
    dir: Written,
    /// The name of the shard.
    shard: String,
    /// A backup of the shard: its directory in a backup of the store.
    backup: PathBuf,
}

impl RestoreShard {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        if !self.backup.join(DATA).exists() {
            return Err(names::no_store(&self.backup));
        }
        let opened = if self.dir.dry_run {
            Opened::to_read(out, &self.dir.dir)?
        } else {
            Opened::to_write(out, &self.dir)?
        };
        let store = opened.shards()?;
        let shards = store.shard_ids();
        let shard = shards.iter().find(|own| own.name() == self.shard).ok_or_else(|| {
            unknown("shard", &self.shard, shards.iter().map(index_table::ShardId::name))
        })?;
        if self.dir.dry_run {
            let backup = self.backup.display();
            return Ok(out.would(&format!("restore shard `{shard}` from `{backup}`"))?);
        }
        let catalog = opened.catalog()?;
        let exists = |own: &&Declared| catalog.tables.iter().any(|it| own.is_named(&it.name));
        // Their rows in the backup are checked.
        let tables: Result<Vec<Box<dyn Typed>>, Failure> =
            declared.iter().filter(exists).map(|own| own.open_online(store)).collect();
        let _tables = tables?;
        on_ctrl_c(out, "the shard is restored, or as before; run the command again", || ());
        store.restore_shard(shard, &self.backup)?;
        let (shard, backup) = (self.shard.as_str(), self.backup.display().to_string());
        Ok(out.put(&json!({ "shard": shard, "backup": backup }), |text| {
            writeln!(text, "restored shard `{shard}` from `{backup}`; run `verify`")
        })?)
    }
}

/// A lost shard map manager.
#[derive(Debug, Args)]
pub(crate) struct RebuildManager {
    #[command(flatten)]
    dir: Written,
    /// Each shard with its directory, relative to that of the store or absolute. The first shard of a store that has grown from
    /// one data file is `main=.`.
    #[arg(required = true, value_name = "NAME=DIRECTORY")]
    shards: Vec<String>,
}

impl RebuildManager {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let dir = &self.dir.dir;
        let place = shown(dir);
        if Server::of(dir)?.is_some() {
            return Err(Failure::other("a store on a server has no shard map manager"));
        }
        let mut options = Store::options();
        let mut has_grown = false;
        for text in &self.shards {
            let (name, directory) = text.split_once('=').ok_or_else(|| {
                Failure::arguments(format!("`{text}` is not a shard such as `north=data/north`"))
            })?;
            has_grown |= Path::new(directory) == Path::new(".");
            options = options.shard(name, directory);
        }
        let manager = if has_grown { dir.join(GROWN) } else { dir.clone() };
        if manager.join(DATA).exists() {
            return Err(Failure::other(format!(
                "there is a shard map manager in `{}`: open the store, or move the damaged `{DATA}` away",
                manager.display()
            )));
        }
        if !dir.is_dir() {
            return Err(names::no_store(dir));
        }
        if self.dir.dry_run {
            let shards = self.shards.join(", ");
            return Ok(
                out.would(&format!("rebuild the shard map manager of `{place}` from {shards}"))?
            );
        }
        options = self.dir.options(options);
        let store = options.rebuild(dir)?;
        let count = store.shard_ids().len();
        // Each row is compared with the rebuilt shard map, and global indexes with the rows.
        let catalog = store.catalog()?;
        let exists = |own: &&Declared| catalog.tables.iter().any(|it| own.is_named(&it.name));
        declared.iter().filter(exists).try_for_each(|own| own.open(&store).map(drop))?;
        let further = if declared.is_empty() {
            "; the program checks it when it opens its tables"
        } else {
            ", and opened the tables"
        };
        Ok(out.put(&json!({ "store": place, "shards": count }), |text| {
            writeln!(
                text,
                "rebuilt the shard map manager of `{place}`, which has {count} shards{further}"
            )
        })?)
    }
}
