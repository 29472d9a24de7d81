//! The text of the report.

use std::fmt::Write as _;

use super::{MEASURES, Measured, Unit, short, targets, thousands};
use crate::{
    build_cost::Derives,
    contenders, eventual, films,
    results::{Measure, Results},
    run::SEED,
    writers::{self, Figure},
};

/// Returns the report in Markdown. The picture is the file `picture` in the same directory.
pub(super) fn report(measured: &Measured, picture: &str) -> String {
    let mut out = String::new();
    introduction(&mut out, measured);
    targets(&mut out, measured);
    let results = &measured.customers;
    let _ = write!(
        out,
        "\n## Figures\n\nThe figures are medians. The number in brackets is the median of the ratios to `index-table` within a round: above 1, that contender takes longer or needs more. `N/A` means that the contender lacks the operation. The tables also show where `index-table` is not the best.\n"
    );
    for rows in results.sizes() {
        figures(&mut out, results, rows);
    }
    growth(&mut out, results, picture);
    others(&mut out, measured);
    out
}

/// Returns the tables of targets and figures.
pub(super) fn tables(measured: &Measured) -> String {
    let mut out = String::new();
    targets(&mut out, measured);
    for rows in measured.customers.sizes() {
        figures(&mut out, &measured.customers, rows);
    }
    others(&mut out, measured);
    out
}

/// Writes the figures of the other measurements.
fn others(out: &mut String, measured: &Measured) {
    for results in &measured.writers {
        writers(out, results);
    }
    if let Some(results) = &measured.eventual {
        eventual(out, results);
    }
    if let Some(results) = &measured.films {
        films(out, results);
    }
    if !measured.build.is_empty() {
        build(out, measured);
    }
    let _ = write!(out, "\n{NOTES}");
}

fn introduction(out: &mut String, measured: &Measured) {
    let (loads, rounds) = measured.customers.rounds;
    out.push_str(
        "<!-- Written by `cargo run --release -p index-table-bench -- --report`; the text is in \
         index-table-bench/src/report. -->\n\n# Benchmarks\n\n\
         All contenders run the same workload from the same seed in one process:\n\n| contender | description |\n\
         |---|---|\n",
    );
    for kind in contenders::ALL {
        let _ = writeln!(out, "| {} | {} |", kind.name, kind.about);
    }
    let _ = writeln!(
        out,
        "\nVersions: {}, SQLite {}. Configurable caches have 1 GiB.",
        versions(),
        rusqlite::version()
    );
    let _ = write!(
        out,
        "\n## Workload\n\n\
         The rows are customers with a number, first and last name, town, phone number and email address. \
         Towns and names have a realistic skew (Zipf): the first of 1,000 towns has one row in \
         seven, the hundredth town one in 750. There are three indexes: on the town (normalized), on town and last name with the phone number included (partial), and on the email address (unique). The \
         seed is \
         {SEED}.\n\n\
         | operation | how |\n|---|---|\n\
         | load | all rows in one transaction, in the order of their numbers |\n\
         | bulk load | the same rows, by the library's bulk load |\n\
         | durable inserts | each row in its own transaction, synced to disk |\n\
         | point get | random rows by number and by email in one read transaction, as all queries, and by number in a transaction each |\n\
         | one key to rows | the rows of towns of medium size, by following references |\n\
         | one key, covered | number, last name and phone number of all customers in these towns, in order |\n\
         | prefix and range | the rows of these towns with last names from D to L |\n\
         | page | 20 rows in the middle of the largest towns, after a given row |\n\
         | count | the number of rows of a town, at least two hundred times |\n\
         | update, delete, inserts | random rows in one transaction with its commit |\n\
         | reopen | open the closed files, and get one row |\n\
         | space | the length of all files after the load. An LMDB file does not shrink. Before it is measured, SQLite moves its log into its file, and fjall its memory tables to disk. fjall's journal has 64 MiB from the start, which is most of the space of a small table |\n\
         | allocations | by Rust code, for an entry of the covered query; allocations of C code are not counted |\n\n\
         Times are for one row, entry, page or count. Every round runs the same operations on all contenders in turn, and starts with a different contender. The figure is the median of {rounds} rounds, \
         {loads} for loads. After each operation, a checksum over every byte of the results is compared among all contenders, and after the rounds a checksum over all tables. A difference ends the run.\n\n\
         All contenders make commits durable: LMDB and index-table with two syncs (`Durability::Full`; its default, the journal, has figures of its own), SQLite with `synchronous = FULL`, redb \
         and `native_db` with their defaults, fjall with a sync of its journal. Operations marked *to disk* are measured on a disk. All others are measured with the files in memory. The calls are the same, but a sync costs nothing, so the figures show the work without the noise of the disk, which is larger.\n\n\
         Measured on {}.\n\n## Repeating the measurement\n\n\
         ```sh\n\
         cargo run --release -p index-table-bench -- --quick                       # a few seconds, on the terminal\n\
         cargo run --release -p index-table-bench -- --build --writers --eventual --films FILE.jsonl --save figures.json --report docs/BENCHMARKS.md\n\
         cargo run --release -p index-table-bench -- --from figures.json --report docs/BENCHMARKS.md  # without measuring\n\
         cargo bench -p index-table-bench                                          # criterion, for development\n\
         ```\n\n`--help` lists the other arguments.\n",
        measured.machine.describe()
    );
}

/// Returns the versions of the contenders in the lock file.
fn versions() -> String {
    let lock = include_str!("../../../Cargo.lock");
    let names = ["heed", "native_db", "rusqlite", "redb", "fjall"];
    let versions = names.map(|name| {
        let versions = lock.split("[[package]]").filter_map(|package| {
            let package = package.strip_prefix(&format!("\nname = \"{name}\"\nversion = \""))?;
            Some(package.split('"').next().unwrap_or_default())
        });
        // The last version is the newest. `native_db` depends on an older version of redb.
        format!("{name} {}", versions.last().unwrap_or("of unknown version"))
    });
    versions.join(", ")
}

fn targets(out: &mut String, measured: &Measured) {
    out.push_str("\n## Targets\n\n| target | required | measured | |\n|---|---|---|---|\n");
    let mut causes = String::new();
    for target in targets::all(measured) {
        let outcome = match (&target.measured, target.met) {
            (None, _) => "not measured",
            (_, true) => "met",
            (_, false) => "**missed**",
        };
        let figure = target.measured.as_deref().unwrap_or("");
        let _ = writeln!(out, "| {} | {} | {figure} | {outcome} |", target.name, target.required);
        if outcome == "**missed**" {
            let cause = target.cause().unwrap_or("the cause is not known yet.");
            let _ = writeln!(causes, "- *{}*: {cause}", target.name);
        }
    }
    if !causes.is_empty() {
        let _ = write!(
            out,
            "\nThe following are the causes of missed targets. The instructions were counted by callgrind with 10,000 rows: see index-table-bench/src/bin/one.rs.\n\n{causes}"
        );
    }
}

fn figures(out: &mut String, results: &Results, rows: usize) {
    let contenders = results.contenders();
    let _ = write!(out, "\n### {} rows\n\n| |", thousands(rows));
    for name in &contenders {
        let _ = write!(out, " {name} |");
    }
    let _ = writeln!(out, "\n|---|{}", "--:|".repeat(contenders.len()));
    for (measure, title, unit) in MEASURES {
        let _ = write!(out, "| {title} |");
        for (at, name) in contenders.iter().enumerate() {
            // The allocations of C code are not counted.
            let foreign = measure == Measure::Allocations && *name == "SQLite";
            let figure = results.figure(rows, measure, name).filter(|_| !foreign);
            let Some(median) = figure.and_then(|figure| figure.median) else {
                out.push_str(" N/A |");
                continue;
            };
            let _ = write!(out, " {}", unit.show(median));
            match figure.and_then(|figure| figure.ratio) {
                Some(ratio) if at > 0 && unit != Unit::Count => {
                    let _ = write!(out, " ({}) |", short(ratio));
                }
                _ => out.push_str(" |"),
            }
        }
        out.push('\n');
    }
}

fn growth(out: &mut String, results: &Results, picture: &str) {
    let sizes = results.sizes();
    let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) else { return };
    if first == last {
        return;
    }
    let contenders = results.contenders();
    let _ = write!(
        out,
        "\n## Growth\n\nThe figures are the factors by which the cost of one operation grows from {} to {} rows. \
         The results of a count grow with the table.\n\n| |",
        thousands(first),
        thousands(last)
    );
    for name in &contenders {
        let _ = write!(out, " {name} |");
    }
    let _ = writeln!(out, "\n|---|{}", "--:|".repeat(contenders.len()));
    for (measure, title, unit) in MEASURES {
        if unit == Unit::Count {
            continue;
        }
        let _ = write!(out, "| {title} |");
        for name in &contenders {
            let median = |rows| results.figure(rows, measure, name)?.median;
            match (median(first), median(last)) {
                (Some(first), Some(last)) => {
                    let _ = write!(out, " {} |", short(last / first));
                }
                _ => out.push_str(" N/A |"),
            }
        }
        out.push('\n');
    }
    let _ = writeln!(out, "\n![Cost of each operation against the size of the table]({picture})");
}

fn writers(out: &mut String, results: &writers::Results) {
    let writers::Results { threads, rows, commits, rounds, figures } = results;
    let (title, ways) = if *threads > 1 {
        (format!("{threads} threads that write"), &writers::TOGETHER[..])
    } else {
        ("One thread that writes".to_owned(), &writers::SINGLE[..])
    };
    let _ = write!(
        out,
        "\n## {title}\n\nEach commit inserts one customer and is on disk before its thread continues. The table has {} rows. A round has {} commits, and the figures are medians of {rounds} rounds; p50 and p99 are those of all commits.\n\n\
         | way | inserts a second | time as a multiple of the first | p50 | p99 |\n\
         |---|--:|--:|--:|--:|\n",
        thousands(*rows),
        thousands(*commits),
    );
    for Figure { name, per_second, ratio, p50, p99 } in figures {
        let _ = writeln!(
            out,
            "| {name} | {per_second:.0} | {} | {} | {} |",
            short(*ratio),
            Unit::Time.show(*p50),
            Unit::Time.show(*p99)
        );
    }
    out.push('\n');
    for way in ways {
        let _ = writeln!(out, "- *{}*: {}.", way.name, way.about);
    }
}

fn eventual(out: &mut String, results: &eventual::Results) {
    let eventual::Results { rows, commits, rounds, figures } = results;
    let _ = write!(
        out,
        "\n## Strong and eventual indexes\n\n{} rows with a text of 100 bytes and a number for each index, normalized. Each write replaces a row and changes all numbers. *A row of many* is the time for one of all rows written in a transaction, in memory, without a worker. *A commit* is a durable commit of one row, {} in a round, while a worker commits the messages of each 10 ms together. *Keeps up* is the number of rows a second written in transactions of 100, in memory, until the last message is applied, when writers wait for the worker while the queue is full. *Applied* is the number of messages applied a second without writers. The figures are medians of {rounds} rounds; p50 and p99 are those of all commits.\n\n\
         | indexes | consistency | a row of many | a commit, p50 | p99 | keeps up, rows a second | \
         applied a second |\n|--:|---|--:|--:|--:|--:|--:|\n",
        thousands(*rows),
        thousands(*commits),
    );
    for figure in figures {
        let eventual::Figure { indexes, consistency, write, p50, p99, kept_up, applied } = figure;
        let applied = applied.map_or("N/A".to_owned(), |applied| format!("{applied:.0}"));
        let [write, p50, p99] = [write, p50, p99].map(|time| Unit::Time.show(*time));
        let _ = writeln!(
            out,
            "| {indexes} | {consistency} | {write} | {p50} | {p99} | {kept_up:.0} | {applied} |"
        );
    }
}

fn films(out: &mut String, results: &films::Results) {
    let _ = write!(
        out,
        "\n## Films\n\n{} real films have two indexes: an index with an entry for each actor, which covers the titles, and an index by year. The queries are about actors with three films or more. \
         heed, redb and fjall have hand-written index tables; SQLite has casts in JSON and a \
         table of actors; `native_db` has no index over the elements of a collection.\n\n| |",
        thousands(results.films)
    );
    for (name, _) in &results.contenders {
        let _ = write!(out, " {name} |");
    }
    let _ = writeln!(out, "\n|---|{}", "--:|".repeat(results.contenders.len()));
    for (measure, title) in films::MEASURES.iter().enumerate() {
        let figure = |(_, figures): &(String, Vec<Option<f64>>)| *figures.get(measure)?;
        let unit = if title.starts_with("space") { Unit::Bytes } else { Unit::Time };
        let first = results.contenders.first().and_then(figure);
        let _ = write!(out, "| {title} |");
        for (at, contender) in results.contenders.iter().enumerate() {
            match (figure(contender), first) {
                (Some(one), Some(first)) if at > 0 => {
                    let _ = write!(out, " {} ({}) |", unit.show(one), short(one / first));
                }
                (Some(one), _) => {
                    let _ = write!(out, " {} |", unit.show(one));
                }
                (None, _) => out.push_str(" N/A |"),
            }
        }
        out.push('\n');
    }
}

/// The text that does not depend on the figures.
const NOTES: &str = include_str!("notes.md");

fn build(out: &mut String, measured: &Measured) {
    out.push_str(
        "\n## Build time and size\n\nA generated crate has this number of structs with eight fields and four indexes each: normalized, partial, full and unique. Dependencies are compiled beforehand, and incremental compilation is off. The program inserts, updates, deletes and queries each struct in nine ways. With serde alone, it encodes and decodes each struct.\n\n\
         | entities | derives | `cargo check` | `cargo build --release` | code |\n\
         |--:|---|--:|--:|--:|\n",
    );
    for cost in &measured.build {
        let derives = match cost.derives {
            Derives::None => "none",
            Derives::Serde => "serde's two",
            Derives::IndexTable => "serde's two and `IndexTable`",
        };
        let _ = writeln!(
            out,
            "| {} | {derives} | {:.2} s | {:.2} s | {} KiB |",
            cost.entities,
            cost.check,
            cost.build,
            cost.text / 1024
        );
    }
}

#[cfg(test)]
mod tests {
    /// Writing the report again would otherwise change text that was edited in one of the two files only.
    #[test]
    fn the_published_report_ends_with_the_notes() {
        let published = include_str!("../../../docs/BENCHMARKS.md");
        assert!(published.ends_with(super::NOTES));
    }
}
