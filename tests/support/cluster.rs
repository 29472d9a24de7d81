//! Further clusters of PostgreSQL, and the programs of the server.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    error::Error,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use index_table::{__private::run_sql, Store};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A cluster that is stopped and removed when this is dropped.
pub(crate) struct Cluster {
    script: Child,
    pub(crate) url: String,
}

impl Cluster {
    /// Starts a new cluster by `scripts/postgres`.
    pub(crate) fn start() -> Result<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/postgres");
        let mut script = Command::new(script)
            .args(["bash", "-c", "echo \"$INDEX_TABLE_POSTGRES_URL\"; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut url = String::new();
        BufReader::new(script.stdout.take().ok_or("no output")?).read_line(&mut url)?;
        let url = url.trim_end().to_owned();
        if url.is_empty() { Err("no cluster".into()) } else { Ok(Self { script, url }) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The command of the script ends with its input.
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// Returns the folder of the server's programs, if it is on this machine.
pub(crate) fn binaries(store: &Store) -> Result<Option<PathBuf>> {
    let found = run_sql(store, "SELECT setting FROM pg_config WHERE name = 'BINDIR'")?;
    Ok(found.map(PathBuf::from).filter(|it| it.join("pg_dump").exists()))
}

/// Copies a schema to another database by `pg_dump` and `pg_restore`.
pub(crate) fn copy_schema(store: &Store, from: &str, schema: &str, to: &str) -> Result<()> {
    let binaries = binaries(store)?.ok_or("the server has no pg_dump on this machine")?;
    let dump = Command::new(binaries.join("pg_dump"))
        .args(["-Fc", "-n", &format!("\"{schema}\""), "-d", from])
        .stderr(Stdio::inherit())
        .output()?;
    assert!(dump.status.success());
    let mut restore = Command::new(binaries.join("pg_restore"))
        .args(["--exit-on-error", "-d", to])
        .stdin(Stdio::piped())
        .spawn()?;
    restore.stdin.take().ok_or("no input")?.write_all(&dump.stdout)?;
    assert!(restore.wait()?.success());
    Ok(())
}

/// Returns the number of the next transaction.
pub(crate) fn next_number(store: &Store) -> Result<u64> {
    let next = run_sql(store, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text")?;
    Ok(next.ok_or("no number")?.parse()?)
}

/// Lets the server assign numbers of transactions, up to this one.
pub(crate) fn burn(store: &Store, upto: u64) -> Result<()> {
    let sql = format!(
        "DO $$ BEGIN WHILE pg_current_xact_id()::text::int8 < {upto} LOOP COMMIT; END LOOP; END $$"
    );
    run_sql(store, &sql)?;
    Ok(())
}
