//! The CPU time of this process, and of its sessions on a server on the same machine.

use std::fs;

use super::{Outcome, sql::HandWritten};

/// CPU time in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    pub(crate) client: f64,
    pub(crate) server: f64,
}

impl Time {
    pub(crate) fn total(self) -> f64 {
        self.client + self.server
    }
}

/// Reads CPU times, on a session of its own.
pub(crate) struct Cpu {
    monitor: HandWritten,
    /// The processes of the sessions of the hand-written SQL, and of this value.
    of_sql: i32,
    own: i32,
}

impl Cpu {
    pub(crate) fn new(sql: &HandWritten) -> Outcome<Self> {
        let monitor = sql.another()?;
        let (of_sql, own) = (sql.backend()?, monitor.backend()?);
        Ok(Self { monitor, of_sql, own })
    }

    /// Measures an operation of the hand-written SQL, or of the index tables.
    pub(crate) fn measure(
        &self,
        is_sql: bool,
        operation: impl FnOnce() -> Outcome<usize>,
    ) -> Outcome<Time> {
        let (server, client) = (self.server(is_sql)?, client()?);
        operation()?;
        let client = client_since(client)?;
        Ok(Time { client, server: self.server(is_sql)? - server })
    }

    fn server(&self, is_sql: bool) -> Outcome<f64> {
        if is_sql {
            return on_cpu(&format!("/proc/{}/schedstat", self.of_sql));
        }
        let others = self.monitor.backends()?;
        let others = others.into_iter().filter(|it| *it != self.of_sql && *it != self.own);
        others.map(|backend| on_cpu(&format!("/proc/{backend}/schedstat"))).sum()
    }

    /// Returns the number of bytes of all tables of a schema.
    pub(crate) fn bytes(&self, schema: &str) -> Outcome<f64> {
        self.monitor.bytes(schema)
    }
}

fn client_since(before: f64) -> Outcome<f64> {
    Ok(client()? - before)
}

/// Returns the time of all threads of this process.
fn client() -> Outcome<f64> {
    let tasks = fs::read_dir("/proc/self/task")?.collect::<Result<Vec<_>, _>>()?;
    tasks.iter().map(|task| on_cpu(&format!("{}/schedstat", task.path().display()))).sum()
}

/// Returns the first number of a file: the time on a CPU. A thread that has ended counts as 0.
fn on_cpu(path: &str) -> Outcome<f64> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(0.0) };
    Ok(text.split_whitespace().next().unwrap_or_default().parse()?)
}
