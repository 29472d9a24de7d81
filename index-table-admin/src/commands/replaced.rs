//! A store in the place of a lost one: a promoted follower, a restored shard, a rebuilt shard map manager.

use std::path::{Path, PathBuf};

use clap::Args;
use index_table::{Follower, Store};
use serde_json::json;

use crate::{
    cli::Written,
    failure::{Code, Failure},
    interrupt::on_ctrl_c,
    names::{self, unknown},
    open::{DATA, Opened, is_follower},
    output::Output,
    server::{Server, shown},
    typed::{Declared, Typed},
};

/// The directory of the shard map manager of a store that has grown from one data file.
const GROWN: &str = "shards.manager";

/// Whether two paths lead to one directory.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// A follower that becomes a store.
#[derive(Debug, Args)]
pub(crate) struct Promote {
    /// The directory of the follower.
    #[arg(value_name = "FOLLOWER")]
    dir: PathBuf,
    /// The archive, if the follower has not recorded the one that it has read.
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
        let archive = match (Follower::archive_of(dir)?, &self.archive) {
            (None, None) => {
                return Err(Failure::arguments(
                    "the follower has not recorded its archive; give `--archive DIR`",
                ));
            }
            (None, Some(given)) => given.clone(),
            // The archive of another store would replace the copy, and that store would be refused its next commits.
            (Some(recorded), Some(given)) if !is_same(&recorded, given) => {
                return Err(Failure::arguments(format!(
                    "the follower has read `{}`, and not `{}`; if that archive was moved there, open the follower with it in a \
                     program first",
                    shown(&recorded),
                    shown(given)
                )));
            }
            (Some(recorded), _) => recorded,
        };
        let (place, from) = (shown(dir), shown(&archive));
        if self.dry_run {
            let opened = match Opened::to_read(out, dir) {
                Err(failure) if failure.code == Code::Unavailable => {
                    return Ok(out.would(&format!(
                        "copy the archive `{from}` again, because the process of the follower was killed, and make `{place}` a \
                         store"
                    ))?);
                }
                opened => opened?,
            };
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
            "the follower is as before, incomplete, or a store already, and its original may be refused already; run the command \
             again",
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
        let opened = Opened::to_write(out, &self.dir)?;
        let store = opened.shards()?;
        let shards = store.shard_ids();
        let shard = shards.iter().find(|own| own.name() == self.shard).ok_or_else(|| {
            unknown("shard", &self.shard, shards.iter().map(index_table::ShardId::name))
        })?;
        let catalog = opened.catalog()?;
        let exists = |own: &&Declared| catalog.tables.iter().any(|it| own.is_named(&it.name));
        // Their rows in the backup are checked.
        let tables: Result<Vec<Box<dyn Typed>>, Failure> =
            declared.iter().filter(exists).map(|own| own.open_online(store)).collect();
        let _tables = tables?;
        on_ctrl_c(out, "the shard is restored, or as before; run the command again", || ());
        store.restore_shard(shard, &self.backup)?;
        let (shard, backup) = (self.shard.as_str(), shown(&self.backup));
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
        self.dir.refuse_dry_run()?;
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
            has_grown |= is_same(&dir.join(directory), dir);
            options = options.shard(name, directory);
        }
        let manager = if has_grown { dir.join(GROWN) } else { dir.clone() };
        if manager.join(DATA).exists() {
            return Err(Failure::other(format!(
                "there is `{}` in `{}`: if it has the rows of the first shard, give `main=.`; if it is a shard map manager, open the \
                 store, or move the damaged file away",
                DATA,
                manager.display()
            )));
        }
        if !dir.is_dir() {
            return Err(names::no_store(dir));
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
