//! Dead letters of eventual indexes, and consumers of change streams.

use clap::Args;
use index_table::{__private::admin::UntypedTable, DeadLetter, ReadTxn};
use serde_json::json;

use super::writes::Target;
use crate::{
    cli::Written,
    failure::Failure,
    names::unknown,
    open::{self, Opened},
    output::{Align, Grid, Output},
    typed::Declared,
};

/// The dead letters of a table.
#[derive(Debug, Args)]
pub(crate) struct DeadLetters {
    #[command(flatten)]
    dir: Written,
    /// The table.
    table: String,
    /// Apply all of them again. This needs the types of the program, and writes.
    #[arg(long, conflicts_with = "drop")]
    retry: bool,
    /// Drop the message with this number: the entries of its row stay as they are, and `repair` corrects them. This writes.
    #[arg(long, value_name = "NUMBER")]
    drop: Option<u64>,
    /// The shard of the dropped message, if the list names one.
    #[arg(long, requires = "drop")]
    shard: Option<String>,
}

impl DeadLetters {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let table = self.table.as_str();
        let own = declared.iter().find(|own| own.name == table);
        if self.retry && own.is_none() {
            return Err(Failure::arguments(format!(
                "applying dead letters needs the type of the rows: use the command of a program that declares table \
                 `{table}`"
            )));
        }
        if self.dir.dry_run && (self.retry || self.drop.is_some()) {
            let opened = Opened::to_read(out, &self.dir.dir)?;
            let tables = opened.store.open_recorded()?;
            let letters = open::table(&tables, table)?.dead_letters(&opened.store.read()?)?;
            let is_own = |own: &&DeadLetter| {
                self.drop.is_none_or(|number| own.number == number && own.shard == self.shard)
            };
            let (count, what) =
                (letters.iter().filter(is_own).count(), if self.retry { "apply" } else { "drop" });
            if let (Some(number), 0) = (self.drop, count) {
                return Err(self.missing(number));
            }
            return Ok(out.would(&format!("{what} {count} dead letters"))?);
        }
        if let Some(number) = self.drop {
            let opened = Opened::to_write(out, &self.dir)?;
            // Without types, the schema stays as it is.
            let target = Target::open(&opened, &[], table)?.table.untyped();
            if !target.drop_dead_letter(&opened.store, self.shard.as_deref(), number)? {
                return Err(self.missing(number));
            }
            return Ok(out.put(&json!({ "dropped": number }), |text| {
                writeln!(
                    text,
                    "dropped dead letter {number}; `repair` corrects the entries of its row"
                )
            })?);
        }
        let Some(own) = own.filter(|_| self.retry) else { return self.show(out) };
        let opened = Opened::to_write(out, &self.dir)?;
        let target = own.open(&opened.store)?.untyped();
        let done = target.retry_dead_letters(&opened.store)?;
        let value = json!({ "applied": done.applied, "dead_letters": done.dead_letters });
        out.put(&value, |text| {
            writeln!(text, "{} applied, {} failed again", done.applied, done.dead_letters)
        })?;
        if done.dead_letters == 0 {
            return Ok(());
        }
        Err(Failure::damage(
            "dead letters could not be applied; `dead-letters` shows their errors, and `--drop` gives one up",
        ))
    }

    fn missing(&self, number: u64) -> Failure {
        Failure::not_found(format!(
            "there is no dead letter `{number}` of table `{}`; `dead-letters` lists them, with their shards",
            self.table
        ))
    }

    fn show(&self, out: &Output) -> Result<(), Failure> {
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let tables = opened.store.open_recorded()?;
        let letters = open::table(&tables, &self.table)?.dead_letters(&opened.store.read()?)?;
        let mut grid = Grid::new([
            ("number", Align::Right),
            ("shard", Align::Left),
            ("row", Align::Left),
            ("indexes", Align::Left),
            ("error", Align::Left),
        ]);
        for own in &letters {
            grid.row([
                own.number.to_string(),
                own.shard.clone().unwrap_or_default(),
                own.row.clone().unwrap_or_default(),
                own.indexes.join(", "),
                own.error.clone(),
            ]);
        }
        Ok(out.put(&json!({ "dead_letters": letters }), |text| out.grid(text, &mut grid))?)
    }
}

/// A consumer of a change stream, and what becomes of it.
#[derive(Debug, Args)]
#[group(required = true, multiple = false, args = ["skip_to", "skip_all", "to_oldest", "remove"])]
pub(crate) struct Consumer {
    #[command(flatten)]
    dir: Written,
    /// The table with the change stream.
    table: String,
    /// The name of the consumer, from `consumers`.
    #[arg(value_name = "CONSUMER")]
    name: String,
    /// Skip the changes up to this number.
    #[arg(long, value_name = "NUMBER")]
    skip_to: Option<u64>,
    /// Skip all changes.
    #[arg(long)]
    skip_all: bool,
    /// After missed changes: continue at the oldest change that is kept.
    #[arg(long)]
    to_oldest: bool,
    /// Remove the consumer with its position.
    #[arg(long)]
    remove: bool,
}

impl Consumer {
    pub(crate) fn run(&self, out: &Output) -> Result<(), Failure> {
        if self.dir.dry_run {
            return self.show(out);
        }
        let opened = Opened::to_write(out, &self.dir)?;
        // Without types, the schema stays as it is.
        let table = Target::open(&opened, &[], &self.table)?.table.untyped();
        let (store, consumer) = (&opened.store, self.name.as_str());
        self.check(&table, &store.read()?)?;
        if self.remove {
            table.remove_consumer(store, consumer)?;
            return Ok(out.put(&json!({ "removed": consumer }), |text| {
                writeln!(text, "removed consumer `{consumer}`")
            })?);
        }
        let to = if self.skip_all { u64::MAX } else { self.skip_to.unwrap_or(0) };
        let skipped = table.skip_changes(store, consumer, to)?;
        Ok(out.put(&json!({ "consumer": consumer, "skipped": skipped }), |text| {
            writeln!(text, "consumer `{consumer}` skipped {skipped} changes")
        })?)
    }

    /// Shows the changes that would be skipped.
    fn show(&self, out: &Output) -> Result<(), Failure> {
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let (tables, txn) = (opened.store.open_recorded()?, opened.store.read()?);
        let table = open::table(&tables, &self.table)?;
        self.check(table, &txn)?;
        let consumers = table.change_consumers(&txn)?;
        let Some(own) = consumers.into_iter().find(|own| own.name == self.name) else {
            return Ok(());
        };
        let (name, lag) = (&self.name, own.lag.changes);
        let what = match self.skip_to {
            _ if self.remove => {
                format!("remove consumer `{name}`, which has not committed {lag} changes")
            }
            Some(to) => format!("skip the changes of `{name}` from {} to {to}", own.position),
            None if self.skip_all => format!("skip {lag} changes of `{name}`"),
            None => format!("skip the {} missed changes of `{name}`", own.missed),
        };
        Ok(out.would(&what)?)
    }

    /// Fails if the table has no such consumer, which would be created.
    fn check(&self, table: &UntypedTable, txn: &ReadTxn<'_>) -> Result<(), Failure> {
        let consumers = table.change_consumers(txn)?;
        if consumers.iter().any(|own| own.name == self.name) {
            return Ok(());
        }
        let names = consumers.iter().map(|own| own.name.as_str());
        Err(unknown("consumer", &self.name, names))
    }
}
