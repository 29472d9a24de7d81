//! Work on whole tables, with their types.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fmt,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use clap::Args;
use index_table::{
    __private::admin::{UntypedRange, repairing},
    Error, FindingKind, IndexState, OnDuplicate, Progress, VerifyReport,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{rows::find, writes::PlainLoad};
use crate::{
    cli::{Dir, Written},
    failure::{Code, Failure},
    interrupt::on_ctrl_c,
    open::Opened,
    output::Output,
    progress::Bar,
    typed::{Calls, Declared, How, Loaded},
};

/// The advice after Ctrl-C, if a part of the work is done.
const CONTINUES: &str = "the same command continues";

/// The advice after a job was cancelled, if a part of the work is done.
const CONTINUES_JOB: &str = "the same operation continues";

/// All tables, or one.
#[derive(Debug, Args)]
pub(crate) struct Chosen<D: Args> {
    #[command(flatten)]
    dir: D,
    #[command(flatten)]
    only: ChosenTables,
}

/// All tables, or one, of an open store.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChosenTables {
    /// Only this table.
    #[serde(default)]
    table: Option<String>,
}

/// The tables of an open store whose indexes are built.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BuiltTables {
    /// Only this table.
    #[serde(default)]
    table: Option<String>,
    /// Also build indexes that running clients of an earlier release don't declare. They can't write the table from then on.
    #[arg(long)]
    #[serde(default)]
    refuse_earlier_releases: bool,
}

/// The tables whose indexes are built.
#[derive(Debug, Args)]
pub(crate) struct Build {
    #[command(flatten)]
    chosen: Chosen<Written>,
    /// Also build indexes that running clients of an earlier release don't declare. They can't write the table from then on.
    #[arg(long)]
    refuse_earlier_releases: bool,
    /// Give up this index first, whose pages are damaged: nothing of it is read, and it is built again from the rows. Without the
    /// types of a program, it is only emptied, and the program builds it when it opens the table.
    #[arg(long, num_args = 2, value_names = ["TABLE", "INDEX"], conflicts_with = "table")]
    rebuild: Option<Vec<String>>,
}

impl Build {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        if declared.is_empty() && self.rebuild.is_none() {
            return Err(Failure::arguments(
                "building an index needs the types of the program, which builds it when it opens the table; give \
                 `--rebuild TABLE INDEX` to give up a damaged index first",
            ));
        }
        if self.chosen.dir.dry_run {
            return self.show(out);
        }
        let opened = repairing(|| Opened::to_write(out, &self.chosen.dir))?;
        on_ctrl_c(out, CONTINUES, || ());
        let given_up = match self.rebuild.as_deref() {
            Some([table, index]) => {
                opened.store.give_up_index(table, index)?;
                Some(table)
            }
            _ => None,
        };
        let tables = match given_up {
            Some(name) => declared.iter().filter(|table| table.is_named(name)).collect(),
            None => self.chosen.only.tables(&opened, declared)?,
        };
        if let Some([table, index]) = self.rebuild.as_deref()
            && tables.is_empty()
        {
            let value = json!({ "table": table, "index": index, "state": "given up" });
            return Ok(out.put(&value, |text| {
                writeln!(
                    text,
                    "index `{table}.{index}` is given up; the program builds it when it opens the table"
                )
            })?);
        }
        build(out, &opened, &tables, self.refuse_earlier_releases)
    }
}

impl BuiltTables {
    pub(crate) fn run(
        &self,
        out: &Output,
        opened: &Opened,
        declared: &[Declared],
    ) -> Result<(), Failure> {
        let only = ChosenTables { table: self.table.clone() };
        build(out, opened, &only.tables(opened, declared)?, self.refuse_earlier_releases)
    }
}

/// Builds the indexes of tables, and shows their states.
fn build(out: &Output, opened: &Opened, tables: &[&Declared], refuse: bool) -> Result<(), Failure> {
    let (mut reports, stop) = (Vec::new(), || out.is_stopping());
    for table in tables {
        check_stop(out, &texts(&reports), CONTINUES_JOB)?;
        let bar = Bar::of(out);
        let mut progress = |at: Progress| bar.show(at);
        let calls = Calls { progress: &mut progress, stop: &stop };
        let report = table.open_online(&opened.store)?.build(&opened.store, refuse, calls)?;
        reports.push(report);
    }
    // A build that ends before its first batch knows no index.
    if !reports.iter().all(|report| report.is_done() && report.steps > 0) {
        check_stop(out, &texts(&reports), CONTINUES_JOB)?;
    }
    out.put(&json!({ "tables": reports }), |text| {
        for report in &reports {
            let (table, rows) = (report.table, report.rows);
            if report.indexes.is_empty() {
                writeln!(text, "table `{table}`: all indexes are readable")?;
                continue;
            }
            writeln!(text, "table `{table}`: {} indexes, {rows} rows read", report.indexes.len())?;
            for index in &report.indexes {
                writeln!(text, "  index `{}`: {}", index.name, index.state)?;
            }
        }
        Ok(())
    })?;
    let mut indexes = reports.iter().flat_map(|report| &report.indexes);
    if indexes.clone().any(|index| index.state == IndexState::Announced) {
        return Err(Failure::damage(
            "an index is not declared by running clients of an earlier release; end them, or run `build \
             --refuse-earlier-releases`",
        ));
    }
    if indexes.any(|index| index.state != IndexState::Readable) {
        return Err(Failure::damage(
            "an index is not readable; `indexes` shows its duplicates: change these rows, and run \
             `build` again",
        ));
    }
    Ok(())
}

impl Build {
    /// Shows the indexes that would be built.
    fn show(&self, out: &Output) -> Result<(), Failure> {
        let opened = repairing(|| Opened::to_read(out, &self.chosen.dir.dir))?;
        let catalog = opened.catalog()?;
        let mut names = Vec::new();
        for table in &catalog.tables {
            if self.chosen.only.table.as_ref().is_some_and(|only| *only != table.name) {
                continue;
            }
            let is_built =
                |state: &IndexState| !matches!(state, IndexState::Readable | IndexState::Retired);
            let own = table.indexes.iter().filter(|index| {
                self.rebuild.as_deref() == Some(&[table.name.clone(), index.name.clone()])
                    || self.rebuild.is_none() && is_built(&index.state)
            });
            names.extend(own.map(|index| format!("`{}.{}`", table.name, index.name)));
        }
        let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        let what = if self.rebuild.is_some() { "give up and build" } else { "build" };
        Ok(out.would(&format!("{what} {names}"))?)
    }
}

/// Fails if the job was asked to end. `done` is the work on each table so far.
fn check_stop(out: &Output, done: &[String], advice: &str) -> Result<(), Failure> {
    if !out.is_stopping() {
        return Ok(());
    }
    let done = if done.is_empty() { "nothing was done".to_owned() } else { done.join("; ") };
    Err(Failure::other(format!("cancelled: {done}; {advice}")))
}

/// Returns the first line of each report.
fn texts<R: fmt::Display>(reports: &[R]) -> Vec<String> {
    let first = |report: &R| report.to_string().lines().next().unwrap_or_default().to_owned();
    reports.iter().map(first).collect()
}

impl ChosenTables {
    /// Returns the chosen tables. Without a choice, these are the declared tables that the store has.
    fn tables<'d>(
        &self,
        opened: &Opened,
        declared: &'d [Declared],
    ) -> Result<Vec<&'d Declared>, Failure> {
        if let Some(name) = &self.table {
            return Ok(vec![find(declared, name)?]);
        }
        let catalog = opened.catalog()?;
        let exists = |table: &&Declared| catalog.tables.iter().any(|own| table.is_named(&own.name));
        Ok(declared.iter().filter(exists).collect())
    }
}

/// The tables of an open store that are repaired.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepairedTables {
    /// Only this table.
    #[serde(default)]
    table: Option<String>,
    /// Delete the rows that can't be decoded, and those whose primary key differs from the key under which they are stored. Their contents
    /// are lost.
    #[arg(long)]
    #[serde(default)]
    delete_unreadable: bool,
}

/// The tables that are repaired.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    #[command(flatten)]
    dir: Written,
    #[command(flatten)]
    only: RepairedTables,
}

impl Chosen<Dir> {
    pub(crate) fn verify(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        self.only.verify(out, &Opened::to_read(out, &self.dir.dir)?, declared)
    }
}

impl ChosenTables {
    pub(crate) fn verify(
        &self,
        out: &Output,
        opened: &Opened,
        declared: &[Declared],
    ) -> Result<(), Failure> {
        let (mut reports, stop) = (Vec::new(), || out.is_stopping());
        for table in self.tables(opened, declared)? {
            if stop() {
                break;
            }
            let bar = Bar::of(out);
            let table = table.open_online(&opened.store)?;
            let txn = opened.store.read()?;
            let mut progress = |at: Progress| bar.show(at);
            reports.push(table.verify(&txn, Calls { progress: &mut progress, stop: &stop })?);
        }
        let is_clean = reports.iter().all(VerifyReport::is_clean);
        show(out, &reports)?;
        if is_clean {
            return check_stop(out, &texts(&reports), "the next verification begins again");
        }
        Err(Failure::damage("indexes differ from the rows; `repair` corrects them"))
    }
}

impl Repair {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        if self.dir.dry_run {
            let only = ChosenTables { table: self.only.table.clone() };
            return only.verify(out, &Opened::to_read(out, &self.dir.dir)?, declared);
        }
        let opened = repairing(|| Opened::to_write(out, &self.dir))?;
        on_ctrl_c(out, "the table is unchanged; run the command again", || ());
        self.only.run(out, &opened, declared)
    }
}

impl RepairedTables {
    pub(crate) fn run(
        &self,
        out: &Output,
        opened: &Opened,
        declared: &[Declared],
    ) -> Result<(), Failure> {
        let (only, delete) = (ChosenTables { table: self.table.clone() }, self.delete_unreadable);
        let (mut reports, stop) = (Vec::new(), || out.is_stopping());
        for table in only.tables(opened, declared)? {
            let repaired = || {
                let mut done = texts(&reports);
                done.push(format!("table `{}` and later ones are unchanged", table.name));
                check_stop(out, &done, "run the operation again for them")
            };
            repaired()?;
            let own = table.open(&opened.store)?;
            let bar = Bar::of(out);
            let mut progress = |at: Progress| bar.show(at);
            let outcome = opened.store.transaction(|txn| {
                own.repair(txn, delete, Calls { progress: &mut progress, stop: &stop })
            });
            if outcome.as_ref().is_err_and(is_stop) {
                repaired()?;
            }
            reports.push(outcome?);
        }
        let is_clean = reports.iter().all(|report| report.left == 0);
        show(out, &reports)?;
        if is_clean {
            return Ok(());
        }
        let count = |kind| reports.iter().map(|report| report.count(kind)).sum::<u64>();
        let unreadable = count(FindingKind::UndecodableRow) + count(FindingKind::WrongPrimaryKey);
        Err(Failure::damage(if unreadable > 0 && !delete {
            "some findings can't be repaired; restore the store from a backup, or delete the rows that can't be read with \
             `--delete-unreadable`"
        } else {
            "some findings can't be repaired; restore the store from a backup"
        }))
    }
}

impl Chosen<Written> {
    pub(crate) fn upgrade(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        if self.dir.dry_run {
            return self.older(out, declared);
        }
        let opened = Opened::to_write(out, &self.dir)?;
        on_ctrl_c(out, CONTINUES, || ());
        self.only.upgrade(out, &opened, declared)
    }
}

impl ChosenTables {
    pub(crate) fn upgrade(
        &self,
        out: &Output,
        opened: &Opened,
        declared: &[Declared],
    ) -> Result<(), Failure> {
        let (mut reports, stop) = (Vec::new(), || out.is_stopping());
        for table in self.tables(opened, declared)? {
            if stop() {
                break;
            }
            let bar = Bar::of(out);
            let table = table.open(&opened.store)?;
            let mut progress = |at: Progress| bar.show(at);
            let calls = Calls { progress: &mut progress, stop: &stop };
            reports.push(table.upgrade(&opened.store, calls)?);
        }
        out.put(&json!({ "tables": reports }), |text| {
            reports.iter().try_for_each(|report| writeln!(text, "{report}"))
        })?;
        check_stop(out, &texts(&reports), CONTINUES_JOB)
    }
}

impl Chosen<Written> {
    /// Counts the rows of older versions.
    fn older(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let (catalog, txn, mut rows) = (opened.catalog()?, opened.store.read()?, 0_u64);
        for table in self.only.tables(&opened, declared)? {
            let table = table.open_online(&opened.store)?.untyped();
            let own = catalog.tables.iter().find(|own| own.name == table.name());
            let version = own.map_or(0, |own| own.version);
            table.each_entry(&txn, &UntypedRange::default(), |row| {
                rows += u64::from(table.list_of(&row)?.0 < version);
                Ok::<_, Failure>(true)
            })?;
        }
        Ok(out.would(&format!("rewrite {rows} rows of older versions"))?)
    }
}

/// The number of rows to delete between two reports of the progress.
const BATCH: u64 = 1024;

/// Whether this is the error of a repair that was asked to stop.
fn is_stop(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::Interrupted)
}

#[derive(Debug, Args)]
pub(crate) struct Expire {
    #[command(flatten)]
    dir: Written,
    #[command(flatten)]
    expired: ExpiredRows,
}

/// The expired rows of an open store that are deleted.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpiredRows {
    /// Only this table.
    #[serde(default)]
    table: Option<String>,
    /// Delete at most this number of rows of each table.
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    #[serde(default = "all", skip_serializing_if = "is_all")]
    limit: u64,
}

const fn all() -> u64 {
    u64::MAX
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_all(limit: &u64) -> bool {
    *limit == u64::MAX
}

impl Expire {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let (only, limit) = (self.expired.only(), self.expired.limit);
        if self.dir.dry_run {
            let opened = Opened::to_read(out, &self.dir.dir)?;
            let (mut rows, txn) = (0, opened.store.read()?);
            for table in only.tables(&opened, declared)? {
                let table = table.open_online(&opened.store)?.untyped();
                rows += table.expired(&txn, SystemTime::now())?.min(limit);
            }
            return Ok(out.would(&format!("delete {rows} expired rows"))?);
        }
        let opened = Opened::to_write(out, &self.dir)?;
        on_ctrl_c(out, CONTINUES, || ());
        self.expired.run(out, &opened, declared)
    }
}

impl ExpiredRows {
    fn only(&self) -> ChosenTables {
        ChosenTables { table: self.table.clone() }
    }

    pub(crate) fn run(
        &self,
        out: &Output,
        opened: &Opened,
        declared: &[Declared],
    ) -> Result<(), Failure> {
        let (mut deleted, mut refused, mut missing) = (0, Vec::new(), BTreeSet::new());
        for table in self.only().tables(opened, declared)? {
            let bar = Bar::of(out);
            let table = table.open(&opened.store)?;
            let expired = table.untyped().expired(&opened.store.read()?, SystemTime::now())?;
            let (total, mut done) = (expired.min(self.limit), 0);
            let mut left = self.limit;
            loop {
                let own = table.expire(&opened.store, left.min(BATCH))?;
                deleted += own.deleted;
                (done, left) = (done + own.deleted, left - own.deleted);
                // Further rows expire meanwhile.
                bar.count("rows deleted", done, Some(total.max(done)));
                missing.extend(own.missing.into_iter().map(|shard| shard.name));
                if out.is_stopping() {
                    return Err(Failure::other(format!(
                        "cancelled after {deleted} deleted rows; the same operation continues"
                    )));
                }
                // The last call has read all rows that stay.
                if left == 0 || own.deleted == 0 {
                    let reason = own.refusal.map(|error| error.to_string());
                    refused.extend(reason.map(|reason| (own.refused, reason)));
                    break;
                }
            }
        }
        let lines: Vec<_> =
            refused.iter().map(|(rows, first)| json!({ "rows": rows, "first": first })).collect();
        out.put(&json!({ "deleted": deleted, "refused": lines, "missing": missing }), |text| {
            writeln!(text, "deleted {deleted} expired rows")?;
            for (rows, first) in &refused {
                writeln!(text, "{rows} expired rows can't be deleted; the first: {first}")?;
            }
            for shard in &missing {
                writeln!(text, "shard `{shard}` is not available; its rows were left out")?;
            }
            Ok(())
        })?;
        if refused.is_empty() && missing.is_empty() {
            return Ok(());
        }
        Err(Failure::other(
            "expired rows are left; delete the rows that refer to them, or open the missing shards",
        ))
    }
}

/// The handling of a loaded row whose primary key exists.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Duplicate {
    /// Load nothing.
    #[default]
    Fail,
    /// Keep the first row, and leave out the others.
    Skip,
    /// Keep the last row. It replaces the row with the same primary key. If a row with another primary key has its key in
    /// a unique index, nothing is loaded, so that no row is lost.
    Replace,
}

impl From<Duplicate> for OnDuplicate {
    fn from(own: Duplicate) -> Self {
        match own {
            Duplicate::Fail => Self::Fail,
            Duplicate::Skip => Self::Skip,
            Duplicate::Replace => Self::Replace,
        }
    }
}

/// A file on the machine of a service whose rows are loaded.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoadedFile {
    /// The table.
    table: String,
    /// The file with JSON lines, in the directory of files of the service.
    pub(crate) file: PathBuf,
    /// The handling of a row whose primary key, or key in a unique index, exists.
    #[arg(long, value_enum, default_value_t = Duplicate::Fail)]
    #[serde(default)]
    on_duplicate: Duplicate,
    /// Add no changes to the change stream of the table, so that no consumer receives the rows again.
    #[arg(long)]
    #[serde(default)]
    no_changes: bool,
}

impl LoadedFile {
    /// Loads the file at `path`. Memory grows with its rows if the program declares the table.
    pub(crate) fn run(
        &self,
        out: &Output,
        (opened, path): (&Opened, &Path),
        declared: &[Declared],
    ) -> Result<(), Failure> {
        let bytes = Cell::new(0);
        let total = length(path)?;
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let is_stopping = || out.is_stopping();
        let mut lines = BufReader::new(Counted { file, bytes: &bytes, is_stopping: &is_stopping });
        let on_duplicate = self.on_duplicate.into();
        let bar = Bar::of(out);
        let report = match declared.iter().find(|table| table.name == self.table) {
            Some(declared) => {
                let mut progress = |at: Progress| match (at.total, total) {
                    (None, Some(total)) => bar.count("bytes", bytes.get(), Some(total)),
                    _ => bar.show(at),
                };
                let how = How { on_duplicate, notes_changes: !self.no_changes };
                let table = declared.open(&opened.store)?;
                table.load(&opened.store, &mut lines, how, &mut progress)?
            }
            None if self.no_changes => {
                return Err(Failure::arguments(format!(
                    "`no_changes` needs the type of the rows: give the service the type of table `{}` with `Operations::types`",
                    self.table
                )));
            }
            None => {
                let load = PlainLoad { table: &self.table, on_duplicate };
                load.run(out, opened, &mut lines, &mut |rows| match total {
                    Some(total) => bar.count("bytes", bytes.get(), Some(total)),
                    None => bar.count("rows", rows, None),
                })?
            }
        };
        drop(bar);
        Load::report(out, &report)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Load {
    #[command(flatten)]
    dir: Written,
    /// The table.
    table: String,
    /// The file; without it, the standard input.
    file: Option<PathBuf>,
    /// The handling of a row whose primary key, or key in a unique index, exists.
    #[arg(long, value_enum, default_value_t = Duplicate::Fail)]
    on_duplicate: Duplicate,
    /// Add no changes to the change stream of the table, so that no consumer receives the rows again.
    #[arg(long)]
    no_changes: bool,
    /// Create the store if the directory has none.
    #[arg(long)]
    create: bool,
}

impl Load {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let dir = &self.dir;
        let declared = declared.iter().find(|table| table.name == self.table);
        let (bytes, total) =
            (Cell::new(0), self.file.as_deref().map(length).transpose()?.flatten());
        let mut lines: Box<dyn BufRead + '_> = match &self.file {
            None => Box::new(io::stdin().lock()),
            Some(path) => {
                let file = File::open(path).map_err(|error| unreadable(path, &error))?;
                Box::new(BufReader::new(Counted { file, bytes: &bytes, is_stopping: &|| false }))
            }
        };
        let on_duplicate = self.on_duplicate.into();
        let Some(declared) = declared else {
            let report = self.load_plainly(out, &mut *lines, (&bytes, total), on_duplicate)?;
            return Self::report(out, &report);
        };
        let opened =
            if self.create { Opened::to_create(out, dir)? } else { Opened::to_write(out, dir)? };
        let table = declared.open(&opened.store)?;
        let after = if opened.store.has_shards() {
            "in each shard, all rows were loaded, or none; run the command again with `--on-duplicate skip`"
        } else {
            "all rows were loaded, or none; run the command again"
        };
        on_ctrl_c(out, after, || ());
        let bar = Bar::new();
        let mut progress = |at: Progress| match (at.total, total) {
            // The number of rows in the file is unknown, and the number of its bytes is known.
            (None, Some(total)) => bar.count("bytes", bytes.get(), Some(total)),
            _ => bar.show(at),
        };
        let how = How { on_duplicate, notes_changes: !self.no_changes };
        let report = table.load(&opened.store, &mut *lines, how, &mut progress)?;
        drop(bar);
        Self::report(out, &report)
    }

    fn report(out: &Output, report: &Loaded) -> Result<(), Failure> {
        Ok(out.put(report, |text| {
            let Loaded { read, written, skipped, replaced, .. } = report;
            writeln!(
                text,
                "{read} rows read, {written} written, {skipped} skipped, {replaced} replaced"
            )
        })?)
    }

    /// Loads rows without their type.
    fn load_plainly(
        &self,
        out: &Output,
        lines: &mut dyn BufRead,
        (bytes, total): (&Cell<u64>, Option<u64>),
        on_duplicate: OnDuplicate,
    ) -> Result<Loaded, Failure> {
        if self.create || self.no_changes {
            let option = if self.create { "--create" } else { "--no-changes" };
            return Err(Failure::arguments(format!(
                "`{option}` needs the type of the rows: use the command of a program that declares table `{}`",
                self.table
            )));
        }
        let opened = Opened::to_write(out, &self.dir)?;
        let load = PlainLoad { table: &self.table, on_duplicate };
        let bar = Bar::new();
        load.run(out, &opened, lines, &mut |rows| match total {
            Some(total) => bar.count("bytes", bytes.get(), Some(total)),
            None => bar.count("rows", rows, None),
        })
    }
}

/// Returns the bytes of a file; `None` for a pipe.
fn length(path: &Path) -> Result<Option<u64>, Failure> {
    let file = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if file.is_dir() {
        let message = format!("`{}` is a directory; give a file of JSON lines", path.display());
        return Err(Failure::arguments(message));
    }
    Ok(Some(file.len()).filter(|_| file.is_file()))
}

pub(super) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let message = format!("`{}` can't be read: {error}", path.display());
    match error.kind() {
        io::ErrorKind::NotFound => Failure::not_found(message),
        io::ErrorKind::PermissionDenied => {
            Failure::other(format!("{message}; run the command as a user that can read the file"))
        }
        _ => Failure::other(message),
    }
}

/// A file that counts the bytes that were read.
struct Counted<'b> {
    file: File,
    bytes: &'b Cell<u64>,
    /// Whether the job of the load was asked to end.
    is_stopping: &'b dyn Fn() -> bool,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.is_stopping)() {
            return Err(io::Error::other("the load was cancelled"));
        }
        let read = self.file.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

fn show(out: &Output, reports: &[VerifyReport]) -> Result<(), Failure> {
    let put = out.put(&json!({ "tables": reports }), |text| {
        reports.iter().try_for_each(|report| {
            report
                .to_string()
                .lines()
                .try_for_each(|line| writeln!(text, "{}", crate::value::printable(line)))
        })
    });
    put.map_err(|error| Failure { code: Code::Other, ..error.into() })
}
