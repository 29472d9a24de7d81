//! Further clusters of PostgreSQL, and the programs of the server.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    error::Error,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
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

/// A hot standby of the server, or `PgBouncer` before it, which ends when this is dropped.
pub(crate) struct Beside {
    script: Child,
    pub(crate) url: String,
}

/// Lets commands run as the user `postgres`, because the programs refuse root.
const AS_POSTGRES: &str = r#"
set -euo pipefail
as_postgres() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --init-groups "$@"; else "$@"; fi; }
directory=$(mktemp -d)
[ "$(id -u)" != 0 ] || chown postgres "$directory"
cd "$directory"
"#;

impl Beside {
    fn start(script: &str, environment: &[(&str, &str)], url: &str) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut script = Command::new("bash")
            .args(["-c", &format!("{AS_POSTGRES}{script}")])
            .envs(environment.iter().copied())
            .env("PORT", &port)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(script.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        if line.is_empty() {
            return Err("the program has not started".into());
        }
        let server = url.split('@').nth(1).and_then(|rest| rest.split('/').next());
        let url = url.replace(server.ok_or("no server")?, &format!("127.0.0.1:{port}"));
        Ok(Self { script, url })
    }

    /// Starts a hot standby.
    pub(crate) fn standby(store: &Store, url: &str) -> Result<Option<Self>> {
        let Some(binaries) = binaries(store)? else { return Ok(None) };
        let script = r#"
as_postgres "$BIN/pg_basebackup" -d "$URL" -D data -R -X stream -c fast
trap 'as_postgres "$BIN/pg_ctl" -s -D data -m immediate stop; rm -rf "$directory"' EXIT
options="-p $PORT -h 127.0.0.1 -k $directory -c max_connections=200 -c ssl=off"
options+=" -c max_pred_locks_per_transaction=2048"
as_postgres "$BIN/pg_ctl" -s -w -D data -l "$directory/log" -o "$options" start >/dev/null
echo ready
cat >/dev/null
"#;
        let binaries = binaries.display().to_string();
        Self::start(script, &[("BIN", &binaries), ("URL", url)], url).map(Some)
    }

    /// Starts `PgBouncer` in this mode; `None` if it is not installed.
    pub(crate) fn pooler(url: &str, mode: &str) -> Result<Option<Self>> {
        let found = Command::new("sh")
            .args(["-c", "PATH=$PATH:/usr/sbin command -v pgbouncer"])
            .output()?;
        if !found.status.success() {
            eprintln!("not run: PgBouncer is not installed");
            return Ok(None);
        }
        let server = url.split('@').nth(1).and_then(|rest| rest.split('/').next());
        let port = server.and_then(|it| it.split(':').nth(1)).ok_or("no port")?;
        let script = r#"
PATH=$PATH:/usr/sbin
cat >pooler.ini <<END
[databases]
* = host=127.0.0.1 port=$SERVER_PORT user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $PORT
unix_socket_dir =
auth_type = any
pool_mode = $MODE
default_pool_size = 40
max_client_conn = 200
ignore_startup_parameters = extra_float_digits,options
END
chmod 644 pooler.ini
chmod 711 .
as_postgres pgbouncer -q pooler.ini >log 2>&1 &
pooler=$!
trap 'kill $pooler; rm -rf "$directory"' EXIT
for _ in {1..200}; do (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && break; sleep 0.05; done
echo ready
cat >/dev/null
"#;
        Self::start(script, &[("SERVER_PORT", port), ("MODE", mode)], url).map(Some)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // The script ends with its input.
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}
