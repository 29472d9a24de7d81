//! The other process: it does what it reads from its standard input, a command in a line.

use std::{
    env,
    io::{BufRead, BufReader, Lines, Write, stdin, stdout},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use index_table::{Error, Result, Store};

use crate::{
    TestResult, open,
    release::{PostRepository, open_release},
};

/// The place of the store, for the other process.
pub(crate) const PLACE: &str = "INDEX_TABLE_ROLLOUT_PLACE";

/// The mark of the lines that answer a command.
const MARK: &str = "answer: ";

/// The place of a store.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    File(PathBuf),
    #[cfg(feature = "postgres")]
    Server {
        url: String,
        schema: String,
    },
}

impl Place {
    pub(crate) fn open(&self) -> Result<Store> {
        match self {
            Self::File(path) => open(path),
            #[cfg(feature = "postgres")]
            Self::Server { url, schema } => Store::options().schema(schema).connect(url),
        }
    }

    pub(crate) fn parse(text: &str) -> Self {
        match text.split_once('\n') {
            None => Self::File(text.into()),
            #[cfg(feature = "postgres")]
            Some((url, schema)) => Self::Server { url: url.to_owned(), schema: schema.to_owned() },
            #[cfg(not(feature = "postgres"))]
            Some(_) => unreachable!(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            #[cfg(feature = "postgres")]
            Self::Server { url, schema } => format!("{url}\n{schema}"),
        }
    }
}

/// A process with a release of the program.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    /// Starts a process, which opens the table with this release.
    pub(crate) fn start(
        place: &Place,
        release: &str,
    ) -> std::result::Result<Self, Box<dyn std::error::Error>> {
        let mut child = Command::new(env::current_exe()?)
            .args(["--exact", "other", "--nocapture", "--test-threads=1"])
            .env(PLACE, place.text())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let input = child.stdin.take();
        let mut client = Self { child, input, lines };
        assert_eq!(client.ask(&format!("open {release}")), "ok");
        Ok(client)
    }

    /// Returns the answer to a command.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        let input = self.input.as_mut().expect("it has an input");
        writeln!(input, "{command}").expect("it reads its input");
        input.flush().expect("it reads its input");
        loop {
            let line = self.lines.next().expect("it answers").expect("it answers");
            // The test runner prints the name of the test in the same line.
            if let Some((_, answer)) = line.split_once(MARK) {
                return answer.to_owned();
            }
        }
    }

    /// Ends the process, which closes its store.
    pub(crate) fn end(mut self) {
        self.input = None;
        assert!(self.child.wait().is_ok_and(|status| status.success()), "the other process fails");
    }

    /// Kills the process.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        let _ = self.child.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs in the other process.
pub(crate) fn run(place: &Place) -> TestResult {
    let store = place.open()?;
    let (mut table, mut posts) = (None, None);
    for line in stdin().lines() {
        let line = line?;
        let (command, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match (command, &table) {
            ("open", _) => {
                // The declaration of before is not in use any more.
                table = None;
                open_release(&store, rest).map(|opened| {
                    table = Some(opened);
                    "ok".to_owned()
                })
            }
            ("refer", _) => PostRepository::open(&store).map(|opened| {
                posts = Some(opened);
                "ok".to_owned()
            }),
            (_, Some(table)) => match table.run(&store, command, rest) {
                // A server can return it once for an index under construction.
                Err(Error::SnapshotTooOld { .. }) => table.run(&store, command, rest),
                done => done,
            },
            (_, None) => unreachable!("{command}"),
        };
        let answer = answer.unwrap_or_else(|error| error.to_string());
        let mut out = stdout().lock();
        writeln!(out, "\n{MARK}{}", answer.replace('\n', "; "))?;
        out.flush()?;
    }
    drop(posts);
    Ok(())
}
