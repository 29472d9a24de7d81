//! The arguments, and the functions that run each command.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};
use index_table::__private::admin::checked;

use crate::{
    commands::{
        analyze, archive, copies, diff, dump, keys, moving, overview, readers, recovery, remote,
        replaced, rows, salvage, schema, serve, shards, status, streams, table_rows, upkeep, usage,
        whatif, writes,
    },
    failure::{Code, Failure},
    interrupt::wait_if_interrupted,
    output::{Color, Output},
    server::without_passwords,
    typed::Declared,
    value::printable_lines,
};

/// Shows the contents of an index-table store, checks it, and copies it.
///
/// STORE is the directory of a plain or of a sharded store, or the URL of a database of PostgreSQL, such as
/// postgresql://app@127.0.0.1/app?schema=shop, whose password can be in the variable PGPASSWORD. Commands open it read-only unless their description says
/// that they write, and work while a service uses the store. With `--url URL`, a running service does the work of a command, without STORE:
/// see `--url URL --help`.
#[derive(Debug, Parser)]
#[expect(clippy::doc_markdown, reason = "the help shows it as it is")]
#[command(name = "index-table", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    form: Form,
    #[command(subcommand)]
    command: Command,
}

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  a check, a verification or another command has found damage, `diff` a difference, or `status` a reason for attention
  2  wrong arguments
  3  the store, the table, the index, the row or the shard map does not exist
  4  not available now, for example because another process writes the store
  5  any other error
  6  the time limit of a dump has passed, and rows are left
130  interrupted by Ctrl-C";

/// The form of the output.
#[derive(Debug, Args)]
pub(crate) struct Form {
    /// Write JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
}

/// A store.
#[derive(Debug, Args)]
pub(crate) struct Dir {
    /// The directory of the store, or the URL of a database of PostgreSQL.
    #[arg(value_name = "STORE")]
    pub(crate) dir: PathBuf,
}

/// A store that the command writes, with its archive.
#[derive(Debug, Args)]
pub(crate) struct Written {
    /// The directory of the store, or the URL of a database of PostgreSQL.
    #[arg(value_name = "STORE")]
    pub(crate) dir: PathBuf,
    /// The directory of the archive of the store, which gets the commits of this command.
    #[arg(long, value_name = "DIR", conflicts_with = "without_archive")]
    pub(crate) archive: Option<PathBuf>,
    /// Give up the archive of the store, which ends. A program that names the archive continues it after a gap.
    #[arg(long)]
    pub(crate) without_archive: bool,
    /// Show what would change, and change nothing. Commands that can't tell refuse it.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A store whose rows and entries are counted.
#[derive(Debug, Args)]
pub(crate) struct Counted {
    /// The directory of the store, or the URL of a database of PostgreSQL.
    #[arg(value_name = "STORE")]
    pub(crate) dir: PathBuf,
    /// Count all entries. Without it, those of packed indexes, and the rows of a table whose keys move to another shard, are estimated
    /// from a limited number of pages, and marked with ≈.
    #[arg(long)]
    pub(crate) exact: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the tables with their rows, bytes and indexes.
    Tables(Counted),
    /// List the indexes with their keys, states and sizes.
    Indexes {
        #[command(flatten)]
        store: Counted,
        /// Only the indexes of this table.
        table: Option<String>,
    },
    /// Show the rows, entries and bytes of each table and index.
    Sizes(Counted),
    /// List the keys of a table or of an index in their order, decoded by their types.
    ///
    /// With --json, each key is an object in a line of its own.
    Keys(keys::Keys),
    /// Print a table's rows, or those in a part of an index, as JSON or CSV.
    ///
    /// The rows are those of any release, without the types of a program. With --json, each row is a line.
    Rows(table_rows::Rows),
    /// Print a row as JSON.
    Get(rows::Key<Dir>),
    /// Print the rows that an index finds, as JSON lines; with --json, as an object with `items` and `next`.
    Find(rows::Find),
    /// Print all rows of a table in the order of their primary keys, as JSON lines.
    ///
    /// A dump reads one snapshot, whose pages can't be reused until it ends. `--limit` and `--time-limit` bound this time.
    Dump(dump::Dump),
    /// Add or replace a row, as JSON in the form of `get`. This writes.
    Put(writes::Row),
    /// Delete a row. This writes.
    Delete(rows::Key<Written>),
    /// Load rows from JSON lines. This writes.
    ///
    /// With the types of a program, all rows are loaded, or none. Without them, each batch of up to 1,024 rows is a transaction, and a row
    /// has all fields of the last rows of its table. A table whose keys only the types can compute is refused.
    Load(upkeep::Load),
    /// Show how the keys of each index are distributed, with their most common values.
    ///
    /// All entries are read, or a sample.
    Analyze {
        #[command(flatten)]
        dir: Dir,
        /// Only this table.
        table: Option<String>,
        /// Estimate the figures from about this number of pages of each index.
        #[arg(long, value_name = "PAGES")]
        sample: Option<u64>,
    },
    /// Show advice from the distribution of the keys, with the attribute to write.
    ///
    /// Advice that depends on queries is not included, since their counters are in the program that runs them.
    Advice {
        #[command(flatten)]
        dir: Dir,
        /// Only this table.
        table: Option<String>,
        /// Estimate the figures from about this number of pages of each index.
        #[arg(long, value_name = "PAGES")]
        sample: Option<u64>,
    },
    /// Show what an index would be that the table does not have: its entries, bytes, levels and keys. Or a shard key.
    Whatif(whatif::WhatIf),
    /// Check the structure of each page in use.
    Check(Dir),
    /// Show the health of the store, the most urgent reason first, and its durability.
    ///
    /// The exit code is 1 if the store needs attention.
    Status(Dir),
    /// List the processes that read the store, and how old their snapshots are.
    Readers(Dir),
    /// Show the catalog: all tables and indexes as last declared.
    Catalog(Dir),
    /// Show the tables with their fields, indexes, references and lists, as JSON; or compare them with declarations.
    ///
    /// A program with its types compares its own declarations, without --format and --check FILE.
    Schema(schema::Schema),
    /// Compare the rows of two stores, of which each may be an archive.
    ///
    /// The exit code is 0 if they are equal, and 1 if they differ. With --json, each row that differs is an object in a line of its own,
    /// and each table has a line with counts.
    Diff(diff::Diff),
    /// Copy the store to a directory that does not exist, while it may be written.
    ///
    /// The pages of the copy are checked before it gets its name, so that a damaged store leaves no copy.
    Backup {
        #[command(flatten)]
        dir: Dir,
        /// The directory of the copy.
        to: PathBuf,
        /// Leave out free pages.
        #[arg(long)]
        compact: bool,
        /// Don't check the pages of the copy.
        #[arg(long)]
        no_check: bool,
    },
    /// Copy a backup, or a state of an archive, to a directory that does not exist.
    Restore(copies::Restore),
    /// Copy the store without its free pages to a directory that does not exist.
    Compact {
        #[command(flatten)]
        dir: Dir,
        /// The directory of the copy.
        to: PathBuf,
    },
    /// Copy everything that can be read of a damaged store to a directory that does not exist.
    ///
    /// A damaged index is not copied: the program builds it. The exit code is 1 if rows are lost, which are listed by their keys.
    Salvage {
        /// The directory of the damaged store.
        #[arg(value_name = "STORE")]
        dir: PathBuf,
        /// The directory of the copy.
        to: PathBuf,
    },
    /// Apply the commits in the journal, after the process that wrote the store was killed. This writes.
    Recover(Written),
    /// Make a follower a store, if the machine of the original is lost. This writes.
    Promote(replaced::Promote),
    /// Rebuild a lost shard map manager from its shards. This writes.
    RebuildManager(replaced::RebuildManager),
    /// List from when to when an archive can be restored, and verify its files.
    Archive(archive::Archive),
    /// List the messages that could not be applied to the eventual indexes of a table, apply them again, or drop one.
    DeadLetters(recovery::DeadLetters),
    /// Skip changes of a consumer of a change stream, or remove it. This writes.
    Consumer(recovery::Consumer),
    /// Drop the indexes that are no longer declared. This writes.
    DropRetired(Written),
    /// Build the indexes that are not readable, while others read and write. This writes.
    Build(upkeep::Build),
    /// Serve a page that shows the store in a browser, and metrics for Prometheus. It only reads.
    Serve(serve::Serve),
    /// Show the counters of queries and writes in the memory of a service, from the page that it mounts.
    Usage(usage::Usage),
    /// List the consumers of change streams with their positions and lags.
    Consumers(Dir),
    /// Show the pending messages of eventual indexes, the changes that consumers have not committed, and the commits of its
    /// archive that a follower has not applied.
    Lag(Dir),
    /// List the unfinished moves between shards.
    Moves(Dir),
    /// List the shards with their states, rows and bytes.
    Shards(Dir),
    /// List the ranges of the shard maps with their shards, rows and bytes.
    Ranges {
        #[command(flatten)]
        dir: Dir,
        /// Only the ranges of this shard map.
        map: Option<String>,
    },
}

impl Command {
    /// Runs the command, with the types of a program.
    pub(crate) fn run(self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        match self {
            Self::Tables(store) => overview::tables(out, &store),
            Self::Indexes { store, table } => overview::indexes(out, &store, table.as_deref()),
            Self::Sizes(store) => overview::sizes(out, &store),
            Self::Keys(keys) => keys.run(out),
            Self::Rows(rows) => rows.run(out, declared),
            Self::Get(key) => key.get(out, declared),
            Self::Find(find) => find.run(out, declared),
            Self::Dump(dump) => dump.run(out, declared),
            Self::Put(row) => row.put(out, declared),
            Self::Delete(key) => key.delete(out, declared),
            Self::Load(load) => load.run(out, declared),
            Self::Analyze { dir, table, sample } => {
                analyze::analyze(out, &dir, table.as_deref(), sample)
            }
            Self::Advice { dir, table, sample } => {
                analyze::advice(out, &dir, table.as_deref(), sample)
            }
            Self::Whatif(whatif) => whatif.run(out),
            Self::Check(Dir { dir }) => copies::check(out, &dir),
            Self::Status(Dir { dir }) => status::status(out, &dir),
            Self::Readers(Dir { dir }) => readers::readers(out, &dir),
            Self::Catalog(Dir { dir }) => overview::catalog(out, &dir),
            Self::Schema(schema) => schema.run(out, declared),
            Self::Diff(diff) => diff.run(out),
            Self::Backup { dir: Dir { dir }, to, compact, no_check } => {
                copies::backup(out, &dir, &to, (compact, !no_check))
            }
            Self::Promote(follower) => follower.run(out),
            Self::RebuildManager(manager) => manager.run(out, declared),
            Self::Archive(archive) => archive.run(out),
            Self::DeadLetters(letters) => letters.run(out, declared),
            Self::Consumer(consumer) => consumer.run(out),
            Self::Restore(restore) => restore.run(out),
            Self::Compact { dir: Dir { dir }, to } => copies::copy(out, &dir, &to, true),
            Self::Recover(store) => copies::recover(out, &store),
            Self::DropRetired(store) => copies::drop_retired(out, &store),
            Self::Build(build) => build.run(out, declared),
            Self::Salvage { dir, to } => salvage::salvage(out, &dir, &to, declared),
            Self::Serve(serve) => serve.run(out, declared),
            Self::Usage(usage) => usage.run(out),
            Self::Consumers(Dir { dir }) => streams::consumers(out, &dir),
            Self::Lag(Dir { dir }) => streams::lag(out, &dir),
            Self::Moves(Dir { dir }) => streams::moves(out, &dir),
            Self::Shards(Dir { dir }) => shards::shards(out, &dir),
            Self::Ranges { dir: Dir { dir }, map } => shards::ranges(out, &dir, map.as_deref()),
        }
    }
}

/// Shows the contents of a store, checks it, copies it, and works on its rows.
///
/// STORE is the directory of a plain or of a sharded store, or the URL of a database of PostgreSQL, such as
/// postgresql://app@127.0.0.1/app?schema=shop, whose password can be in the variable PGPASSWORD. Commands open it read-only unless their description says
/// that they write, and work while a service uses the store. With `--url URL`, a running service does the work of a command, without STORE:
/// see `--url URL --help`.
#[derive(Debug, Parser)]
#[expect(clippy::doc_markdown, reason = "the help shows it as it is")]
#[command(version, after_help = EXIT_CODES)]
struct TypedCli {
    #[command(flatten)]
    form: Form,
    #[command(subcommand)]
    command: TypedCommand,
}

#[derive(Debug, Subcommand)]
enum TypedCommand {
    #[command(flatten)]
    Any(Command),
    /// Compare the indexes with the rows.
    Verify(upkeep::Chosen<Dir>),
    /// Correct the entries that differ from the rows. This writes.
    Repair(upkeep::Repair),
    /// Rewrite rows of older versions in the current version. This writes.
    Upgrade(upkeep::Chosen<Written>),
    /// Delete expired rows. This writes.
    Expire(upkeep::Expire),
    /// Move keys of a shard map to another shard, while the store is in use. This writes.
    Move(moving::Move),
    /// Add a shard to a store, which may have one data file. This writes.
    AddShard(moving::AddShard),
    /// Move a table without a shard key to another shard. This writes.
    MoveTable(moving::MoveTable),
    /// Split a range of a shard map, and move its upper part to another shard. This writes.
    Split(moving::Split),
    /// Move keys so that all shards have about the same load. This writes, except with --dry-run.
    Rebalance(moving::Rebalance),
    /// Continue an unfinished move. This writes.
    ResumeMove(moving::Unfinished),
    /// Cancel an unfinished move, and remove its copies. This writes.
    CancelMove(moving::Unfinished),
    /// Restore a lost shard from a backup of it. This writes.
    RestoreShard(replaced::RestoreShard),
}

impl TypedCommand {
    fn run(self, out: &Output, tables: &[Declared]) -> Result<(), Failure> {
        match self {
            Self::Any(command) => command.run(out, tables),
            Self::Verify(chosen) => chosen.verify(out, tables),
            Self::Repair(repair) => repair.run(out, tables),
            Self::Upgrade(chosen) => chosen.upgrade(out, tables),
            Self::Expire(expire) => expire.run(out, tables),
            Self::Move(moving) => moving.run(out, tables),
            Self::AddShard(added) => added.run(out, tables),
            Self::MoveTable(moving) => moving.run(out, tables),
            Self::Split(split) => split.run(out, tables),
            Self::Rebalance(rebalance) => rebalance.run(out, tables),
            Self::ResumeMove(own) => own.resume(out, tables),
            Self::CancelMove(own) => own.cancel(out, tables),
            Self::RestoreShard(shard) => shard.run(out, tables),
        }
    }
}

/// Reads the arguments of the process, or returns the exit code of the help or of an error.
fn parsed<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| {
        // The arguments can't be read, so `--json` is searched for.
        let json = std::env::args_os().any(|argument| argument == "--json");
        if json && error.use_stderr() {
            let text = error.render().to_string();
            // The usage follows.
            let reason: Vec<_> =
                text.lines().map(str::trim).take_while(|it| !it.is_empty()).collect();
            let reason = reason.join(" ");
            let reason = reason.strip_prefix("error: ").unwrap_or(&reason);
            Output::new(true, Color::Never).error(Code::Arguments as u8, reason);
        } else {
            let text = error.render().to_string();
            // The help has no arguments.
            let shown = if error.use_stderr() { without_passwords(&text) } else { text.clone() };
            let shown = printable_lines(&shown);
            // A closed stream is no reason to fail.
            if shown.trim_end() == text.trim_end() {
                let _ = error.print();
            } else {
                let _ = writeln!(io::stderr(), "{shown}");
            }
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Code::Arguments as u8))
    })
}

/// Runs a command of a running service, if the arguments have its address. The types of its rows are in the service.
fn run_remote() -> Option<ExitCode> {
    let is_url = |argument: &std::ffi::OsStr| {
        argument == "--url" || argument.to_string_lossy().starts_with("--url=")
    };
    if !std::env::args_os().skip(1).take_while(|it| it != "--").any(|it| is_url(&it)) {
        return None;
    }
    let cli: remote::RemoteCli = match parsed() {
        Ok(cli) => cli,
        Err(code) => return Some(code),
    };
    let out = Output::new(cli.form.json, cli.form.color);
    Some(finish(&out, cli.run(&out)))
}

/// Runs a command of a process that has the types of the rows.
pub(crate) fn run_typed(tables: &[Declared]) -> ExitCode {
    if let Some(code) = run_remote() {
        return code;
    }
    let TypedCli { form, command } = match parsed() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let out = Output::new(form.json, form.color);
    finish(&out, checked(|| command.run(&out, tables)))
}

/// Runs a command of a process.
pub(crate) fn run() -> ExitCode {
    if let Some(code) = run_remote() {
        return code;
    }
    let Cli { form, command } = match parsed() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let out = Output::new(form.json, form.color);
    finish(&out, checked(|| command.run(&out, &[])))
}

/// Writes the error of a command, and returns its exit code.
pub(crate) fn finish(out: &Output, outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message, next }) => {
            wait_if_interrupted();
            out.error_with(code as u8, &message, next.as_deref());
            ExitCode::from(code as u8)
        }
    }
}

/// Ignores the error of an output that its reader has closed, as in `index-table keys … | head`.
pub(crate) fn unless_closed(outcome: io::Result<()>) -> Result<bool, Failure> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure { code: Code::Other, ..error.into() }),
    }
}
