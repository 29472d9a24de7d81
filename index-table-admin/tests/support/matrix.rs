//! A table of all commands with their arguments and their expected results.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use index_table::report::StoreSchema;
use serde_json::Value;

pub(crate) use self::Expected::{Done, FailsWith};

/// The parts of a store that a command uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uses {
    /// The catalog.
    Catalog,
    Sizes,
    /// The keys or the rows of all shards.
    Rows,
    /// The row of one key.
    OneShard,
    /// All pages.
    Check,
    /// The files.
    Copy,
    /// The files of a plain store.
    Salvage,
    /// What needs attention.
    Health,
    Readers,
    /// The page of a service.
    Page,
    Write,
    /// Writing only unfinished work, of which these stores have none.
    WriteIfNeeded,
    /// Writing the catalog.
    Drop,
    Expire,
    /// A shard map.
    Shards,
    /// The rows of a shard map.
    Plan,
    /// Writing a shard map.
    Moves,
    /// The keys of one shard.
    MovesKeys,
    /// A shard that is added.
    Grows,
    /// A table without a shard key.
    MovesTable,
    /// An unfinished move.
    Resumes,
    Cancels,
    /// Writing a consumer or a dead letter, of which these stores have none.
    Absent,
    /// Nothing, since the arguments are refused first, with this exit code and a part of the error.
    Refused(i32, &'static str),
}

impl Uses {
    pub(crate) const fn writes(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::WriteIfNeeded
                | Self::Drop
                | Self::Expire
                | Self::Moves
                | Self::MovesKeys
                | Self::Grows
                | Self::MovesTable
                | Self::Resumes
                | Self::Cancels
                | Self::Absent
        )
    }
}

/// The expected result of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expected {
    /// The exit code is 0, and the output has the expected part.
    Done,
    /// The exit code, and a part of the error.
    FailsWith(i32, &'static str),
}

/// The commands: name, arguments, used parts of a store, and a part of its output, as text and as JSON.
const COMMANDS: &[(&str, &str, Uses, &str)] = &[
    ("tables", "STORE", Uses::Catalog, "TABLE"),
    ("indexes", "STORE TABLE", Uses::Catalog, "INDEX"),
    ("sizes", "STORE", Uses::Sizes, "TABLE"),
    ("catalog", "STORE", Uses::Catalog, "TABLE"),
    ("keys", "STORE TABLE", Uses::Rows, ""),
    ("keys", "STORE TABLE INDEX --from VALUE", Uses::Rows, "VALUE"),
    ("analyze", "STORE TABLE", Uses::Rows, "INDEX"),
    ("advice", "STORE", Uses::Rows, ""),
    ("schema", "STORE", Uses::Rows, "TABLE"),
    ("schema", "STORE --check SCHEMA", Uses::Rows, "TABLE"),
    ("diff", "STORE STORE", Uses::Rows, "TABLE"),
    ("whatif", "STORE --index NEW-INDEX", Uses::Rows, "entries"),
    ("check", "STORE", Uses::Check, "intact"),
    ("status", "STORE", Uses::Health, "durability"),
    ("readers", "STORE", Uses::Readers, ""),
    ("backup", "STORE COPY", Uses::Copy, "cop"),
    ("restore", "STORE COPY", Uses::Copy, "cop"),
    ("compact", "STORE COPY", Uses::Copy, "cop"),
    ("recover", "STORE", Uses::WriteIfNeeded, "STORE"),
    ("drop-retired", "STORE", Uses::Drop, ""),
    ("salvage", "STORE COPY", Uses::Salvage, "cop"),
    ("serve", "STORE 127.0.0.1:0", Uses::Catalog, "TABLE"),
    ("usage", "URL", Uses::Page, "TABLE"),
    ("consumers", "STORE", Uses::Catalog, ""),
    ("lag", "STORE", Uses::Catalog, ""),
    ("moves", "STORE", Uses::Shards, ""),
    ("shards", "STORE", Uses::Shards, "north"),
    ("ranges", "STORE", Uses::Shards, "orders"),
    ("rows", "STORE TABLE", Uses::Rows, "ROW"),
    ("get", "STORE TABLE KEY", Uses::OneShard, "ROW"),
    ("find", "STORE TABLE INDEX VALUE", Uses::Rows, "ROW"),
    ("find", "STORE TABLE INDEX --count", Uses::Rows, ""),
    ("dump", "STORE TABLE", Uses::Rows, "ROW"),
    ("put", "STORE TABLE LINES", Uses::Write, "written"),
    ("load", "STORE TABLE LINES --on-duplicate skip", Uses::Write, "written"),
    ("delete", "STORE TABLE VICTIM", Uses::Write, "deleted"),
    ("verify", "STORE", Uses::Rows, "TABLE"),
    ("repair", "STORE", Uses::Write, "TABLE"),
    ("build", "STORE", Uses::Write, "TABLE"),
    ("upgrade", "STORE", Uses::WriteIfNeeded, "TABLE"),
    ("expire", "STORE", Uses::Expire, "deleted"),
    ("move", "STORE orders ..50 south", Uses::MovesKeys, "rows"),
    ("add-shard", "STORE EAST EAST", Uses::Grows, "EAST"),
    ("move-table", "STORE TABLE main", Uses::MovesTable, "rows"),
    ("split", "STORE orders 50 south", Uses::Moves, "rows"),
    ("rebalance", "STORE orders", Uses::Moves, "rows"),
    ("rebalance", "STORE orders --dry-run", Uses::Plan, "north"),
    ("resume-move", "STORE MOVE", Uses::Resumes, "rows"),
    ("cancel-move", "STORE MOVE", Uses::Cancels, "cancelled"),
    ("consumer", "STORE TABLE mailer --to-oldest", Uses::Absent, ""),
    ("dead-letters", "STORE TABLE", Uses::Catalog, ""),
    ("dead-letters", "STORE TABLE --drop 7", Uses::Absent, ""),
    ("promote", "STORE", Uses::Refused(2, "not the directory of a follower"), ""),
    ("rebuild-manager", "STORE north=north", Uses::Refused(5, "shard map manager"), ""),
    ("archive", "STORE", Uses::Refused(3, "there is no archive"), ""),
    ("restore-shard", "STORE south missing", Uses::Refused(3, "there is no"), ""),
];

/// The commands that are run with the types, though they need none: tables have keys that only the types compute.
const WITH_TYPES: &[&str] = &["put", "load", "delete", "build"];

/// A store, and the words for the arguments.
pub(crate) struct Situation {
    place: PathBuf,
    typed: PathBuf,
    words: BTreeMap<&'static str, Vec<String>>,
    lines: String,
    schema: String,
    is_in_use: bool,
    is_recovered: bool,
}

impl Situation {
    /// A store, and the program with its types.
    pub(crate) fn new(place: &Path, typed: PathBuf) -> Self {
        let words = BTreeMap::from([("MOVE", vec!["7".to_owned()])]);
        Self {
            place: place.to_owned(),
            typed,
            words,
            lines: String::new(),
            schema: String::new(),
            is_in_use: false,
            is_recovered: false,
        }
    }

    pub(crate) fn word(self, name: &'static str, word: &str) -> Self {
        self.words(name, &[word])
    }

    pub(crate) fn words(mut self, name: &'static str, words: &[&str]) -> Self {
        // Numbers of a key are separate arguments.
        let one = |word: &&str| match name {
            "KEY" | "VICTIM" | "OTHER-VICTIM" if words.len() == 1 => {
                word.split(' ').map(str::to_owned).collect()
            }
            _ => vec![(*word).to_owned()],
        };
        self.words.insert(name, words.iter().flat_map(one).collect());
        self
    }

    /// The line to load.
    pub(crate) fn line(mut self, line: &str) -> Self {
        line.clone_into(&mut self.lines);
        self
    }

    /// The declarations to check.
    pub(crate) fn schema(mut self, schema: &StoreSchema) -> Self {
        self.schema = serde_json::to_string(schema).expect("JSON");
        self
    }

    /// Commands that write work on the store itself, and not on a copy.
    pub(crate) const fn in_use(mut self) -> Self {
        self.is_in_use = true;
        self
    }

    /// Commands that read recover the store. They work on a copy too.
    pub(crate) const fn recovered(mut self) -> Self {
        self.is_recovered = true;
        self
    }
}

/// Returns the commands that the help of a program lists.
fn commands(program: &Path) -> BTreeSet<String> {
    let help = Command::new(program).arg("-h").env("COLUMNS", "200").output().expect("a process");
    let help = String::from_utf8(help.stdout).expect("text");
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| line.starts_with("  ")).filter_map(|line| {
        let (name, _) = line.strip_prefix("  ")?.split_once(' ')?;
        (!name.is_empty() && name != "help").then(|| name.to_owned())
    });
    names.collect()
}

/// Returns the bytes of the files of a store, without the reader slots.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.file_name().is_some_and(|name| name != "lock.mdb") {
            all.insert(path.clone(), fs::read(path).expect("a file"));
        }
    }
    all
}

/// A page that is served until this value is dropped.
struct Page(Child);

impl Page {
    /// Starts a page, and returns its address; or the output of a process that fails.
    fn start(mut command: Command) -> Result<(Self, String), Output> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut own = Self(command.spawn().expect("a process"));
        let mut output = BufReader::new(own.0.stdout.take().expect("the output"));
        let mut shown = String::new();
        // With `--json`, the address is in the second line.
        while !shown.contains("http://") {
            if output.read_line(&mut shown).expect("a line") == 0 {
                let (mut stderr, status) = (Vec::new(), own.0.wait().expect("the end"));
                let mut errors = own.0.stderr.take().expect("the errors");
                errors.read_to_end(&mut stderr).expect("the errors");
                return Err(Output { status, stdout: shown.into_bytes(), stderr });
            }
        }
        let (_, address) = shown.split_once("http://").expect("an address");
        let address = address.split('/').next().unwrap_or_default().to_owned();
        Ok((own, address))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn overview(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(TIME)).expect("a time limit");
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

/// The time in which each command ends.
const TIME: Duration = Duration::from_mins(1);

/// One call of a command.
struct Call<'c> {
    situation: &'c Situation,
    name: &'static str,
    is_json: bool,
    store: PathBuf,
    copy: PathBuf,
    lines: PathBuf,
    program: PathBuf,
}

impl Call<'_> {
    fn text(&self, words: &str, url: &str) -> Vec<String> {
        let path = |path: &Path| vec![path.to_str().expect("text").to_owned()];
        let word = |word: &str| match word {
            "STORE" => path(&self.store),
            "COPY" => path(&self.copy),
            "LINES" => path(&self.lines),
            "SCHEMA" => path(&self.lines.with_extension("schema")),
            "URL" => vec![url.to_owned()],
            "EAST" => vec![if self.is_json { "east" } else { "far-east" }.to_owned()],
            "VICTIM" if self.is_json => self.situation.words["OTHER-VICTIM"].clone(),
            word => {
                self.situation.words.get(word).cloned().unwrap_or_else(|| vec![word.to_owned()])
            }
        };
        words.split_whitespace().flat_map(word).collect()
    }

    /// Runs the command. Returns its output, or why it is wrong.
    fn output(&self, arguments: &str) -> Result<Output, String> {
        let (mut url, mut page) = ("http://127.0.0.1:1/".to_owned(), None);
        if self.name == "usage" {
            let mut serve = Command::new(&self.program);
            serve.arg("serve").arg(&self.store).arg("127.0.0.1:0");
            if let Ok((own, address)) = Page::start(serve) {
                (url, page) = (format!("http://{address}/"), Some(own));
            }
        }
        let mut all = vec![self.name.to_owned()];
        all.extend(self.is_json.then(|| "--json".to_owned()));
        all.extend(self.text(arguments, &url));
        if self.name == "serve" {
            let mut command = Command::new(&self.program);
            command.args(all).env_remove("INDEX_TABLE_TOKEN");
            return match Page::start(command) {
                Err(output) => Ok(output),
                Ok((_page, address)) => {
                    let stdout = overview(&address).into_bytes();
                    Ok(Output { status: success(), stdout, stderr: Vec::new() })
                }
            };
        }
        let mut command = assert_cmd::Command::new(&self.program);
        command.args(all).env_remove("COLUMNS").timeout(TIME);
        let output = command.output().map_err(|error| format!("no process: {error}"))?;
        drop(page);
        match output.status.code() {
            Some(_) => Ok(output),
            None => Err(format!("the process did not end by itself: {}", output.status)),
        }
    }

    fn check(&self, arguments: &str, expected: Expected, part: &str) -> Result<(), String> {
        let output = self.output(arguments)?;
        let (shown, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let code = output.status.code().unwrap_or(-1);
        let wrong = |what: &str| Err(format!("{what}: exit code {code}, {error}{shown:.300}"));
        // The two snapshots of a store that is written can differ.
        let differs = code == 1 && error.contains("the stores differ");
        let is_difference = self.situation.is_in_use && self.name == "diff" && differs;
        match expected {
            Done if code != 0 && !is_difference => return wrong("0 was expected"),
            FailsWith(other, part) if code != other || !error.contains(part) => {
                return wrong(&format!("{other} and `{part}` were expected"));
            }
            _ => {}
        }
        if error.contains("panicked") {
            return wrong("a panic");
        }
        // A salvage that has lost rows has copied all others.
        let is_salvaged = self.name == "salvage" && error.contains("has everything else");
        let copies = arguments.contains("COPY") && (code == 0 || is_salvaged);
        if self.copy.exists() != copies {
            return wrong("a copy without success, or no copy");
        }
        if code != 0 {
            let last = error.lines().last().unwrap_or_default();
            let is_right = if self.is_json {
                serde_json::from_str::<Value>(last).is_ok_and(|it| it["code"] == code)
            } else {
                last.starts_with("error: ") && last.len() > 20
            };
            return if is_right { Ok(()) } else { wrong("the form of the error") };
        }
        let part = self.text(part, "").join(" ");
        if !shown.contains(&part) {
            return wrong(&format!("`{part}` is missing"));
        }
        let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        let is_right = match self.name {
            _ if !self.is_json => true,
            "serve" => shown.starts_with("HTTP/1.1 200"),
            "keys" | "rows" | "dump" | "diff" => shown.lines().all(is_json),
            _ => is_json(&shown),
        };
        if is_right { Ok(()) } else { wrong("the form of the output") }
    }
}

fn success() -> std::process::ExitStatus {
    std::process::ExitStatus::default()
}

/// Runs all commands, with and without `--json`. Those that write get a copy of the store, unless it is in use; those
/// that read leave its files as they are.
pub(crate) fn run(name: &str, situation: &Situation, expected: impl Fn(Uses) -> Expected) {
    run_each(name, situation, |_, uses| expected(uses));
}

/// Like [`run`]. The expected result also depends on the command with its arguments.
pub(crate) fn run_each(
    name: &str,
    situation: &Situation,
    expected: impl Fn(&str, Uses) -> Expected,
) {
    let any = assert_cmd::cargo::cargo_bin!("index-table").to_owned();
    let of_any = commands(&any);
    let listed: BTreeSet<_> = COMMANDS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(commands(&situation.typed), listed, "each command is in the table");
    assert!(of_any.is_subset(&listed) && of_any.len() > 20, "{of_any:?}");

    let temporary = tempfile::tempdir().expect("a directory");
    let lines = temporary.path().join("lines.jsonl");
    fs::write(&lines, &situation.lines).expect("a file");
    fs::write(lines.with_extension("schema"), &situation.schema).expect("a file");
    let mut wrong = String::new();
    for (at, (command, arguments, uses, part)) in COMMANDS.iter().enumerate() {
        for is_json in [false, true] {
            let own = temporary.path().join(format!("{at}-{is_json}"));
            let mut store = situation.place.clone();
            let writes = uses.writes() || situation.is_recovered;
            if writes && !situation.is_in_use {
                store = own.join("store");
                super::process::copy(&situation.place, &store);
            }
            let is_of_any = of_any.contains(*command) && !WITH_TYPES.contains(command);
            let program = if is_of_any { &any } else { &situation.typed };
            let call = Call {
                situation,
                name: command,
                is_json,
                store: store.clone(),
                copy: temporary.path().join(format!("{at}-{is_json}-copy")),
                lines: lines.clone(),
                program: program.clone(),
            };
            let is_unchanged = !writes && !situation.is_in_use;
            let before = if is_unchanged { files(&store) } else { BTreeMap::new() };
            let expected = match uses {
                Uses::Refused(code, part) => FailsWith(*code, part),
                uses => expected(&format!("{command} {arguments}"), *uses),
            };
            if let Err(reason) = call.check(arguments, expected, part) {
                let _ = writeln!(wrong, "{command} {arguments}, JSON {is_json}: {reason}");
            }
            if is_unchanged && files(&store) != before {
                let _ = writeln!(wrong, "{command} {arguments}: the files have changed");
            }
        }
    }
    assert!(wrong.is_empty(), "{name}:\n{wrong}");
}
