//! Two processes with a store, of each pair of accesses and in each order, of which one is killed.

use std::{
    io::{BufRead as _, BufReader, Lines, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use index_table::{Durability, Error, Options, Store};

use crate::{NoteRepository, TestResult, expect, many_checkpoints, write};

/// The access and the directory of a child process.
const ACCESS: &str = "INDEX_TABLE_PAIR_ACCESS";
const STORE: &str = "INDEX_TABLE_PAIR_STORE";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Full,
    Journal,
    /// For writing, with the default durability.
    Unset,
}

const ALL: [Access; 4] = [Access::Read, Access::Full, Access::Journal, Access::Unset];

impl Access {
    fn options(self) -> Options {
        match self {
            Self::Read => Store::options().read_only(true),
            Self::Full => Store::options().durability(Durability::Full),
            Self::Journal => many_checkpoints(),
            Self::Unset => Store::options(),
        }
    }

    /// Returns the access of a process that opens the store beside another process.
    fn beside(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unset, Self::Full) => Self::Full,
            (Self::Unset, _) => Self::Journal,
            _ => self,
        }
    }

    fn writes(self) -> bool {
        self != Self::Read
    }

    /// Whether the store can be opened beside a process with another access.
    fn is_possible_beside(self, other: Self) -> bool {
        self == Self::Read
            || other == Self::Read
            || (self.beside(other) == other && other == Self::Full)
    }
}

/// Opens the store in the child process, and executes the commands of its input.
#[test]
fn a_child_process_executes_commands() -> TestResult {
    let (Ok(access), Ok(path)) = (std::env::var(ACCESS), std::env::var(STORE)) else {
        return Ok(());
    };
    let access = ALL.into_iter().find(|it| format!("{it:?}") == access).ok_or("no access")?;
    let say = |text: &str| {
        println!("\n> {text}");
        std::io::stdout().flush()
    };
    let store = match access.options().open(path) {
        Ok(store) => store,
        Err(error @ Error::WriterElsewhere { .. }) => return Ok(say(&format!("refused {error}"))?),
        Err(error) => return Err(error.into()),
    };
    let used =
        if access.writes() { format!("{:?}", store.durability()) } else { "Read".to_owned() };
    say(&format!("opened {used}"))?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let (command, step) = line.split_once(' ').ok_or("no step")?;
        match command {
            "write" => write(&store, &NoteRepository::open(&store)?, step.parse()?)?,
            _ => expect(&store, step.parse()?)?,
        }
        say("done")?;
    }
    Ok(())
}

struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(path: &Path, access: Access) -> std::io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "pairs::a_child_process_executes_commands", "--nocapture"])
            .env(ACCESS, format!("{access:?}"))
            .env(STORE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().expect("an output")).lines();
        let input = child.stdin.take();
        Ok(Self { child, input, output })
    }

    fn answer(&mut self) -> String {
        let mut lines = self.output.by_ref().map_while(std::io::Result::ok);
        let answer = lines.find_map(|line| line.strip_prefix("> ").map(ToOwned::to_owned));
        answer.expect("the child process has failed")
    }

    fn execute(&mut self, command: &str, step: u32) -> std::io::Result<()> {
        writeln!(self.input.as_mut().expect("an input"), "{command} {step}")?;
        assert_eq!(self.answer(), "done");
        Ok(())
    }

    /// Closes the store.
    fn end(mut self) -> TestResult {
        self.input = None;
        assert!(self.child.wait()?.success());
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The state in which the last writer has left the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Full,
    Closed,
    Killed,
}

/// Opens the store beside a process. Writes a step if it is possible.
fn open_beside(
    path: &Path,
    access: Access,
    (other, id): (Access, u32),
    steps: &mut u32,
) -> Result<Option<Process>, Box<dyn std::error::Error>> {
    let mut process = Process::start(path, access)?;
    let answer = process.answer();
    if !access.is_possible_beside(other) {
        let id = format!("process {id} ");
        assert!(answer.starts_with("refused"), "{access:?} beside {other:?}: {answer}");
        assert!(answer.contains(&id) && answer.contains("`Durability::Full`"), "{answer}");
        return Ok(None);
    }
    let used = format!("opened {:?}", access.beside(other));
    assert_eq!(answer, used, "{access:?} beside {other:?}");
    process.execute("expect", *steps)?;
    if access.writes() {
        process.execute("write", *steps)?;
        *steps += 1;
    }
    Ok(Some(process))
}

fn pair(left: Left, [first, second]: [Access; 2], kills_first: bool, third: Access) -> TestResult {
    // Kills need no disk.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let path = dir.path();
    let mut steps = 0;
    let maker = if left == Left::Full { Access::Full } else { Access::Journal };
    let mut before = Process::start(path, maker)?;
    assert_eq!(before.answer(), format!("opened {maker:?}"));
    for _ in 0..2 {
        before.execute("write", steps)?;
        steps += 1;
    }
    if left == Left::Killed {
        drop(before);
    } else {
        before.end()?;
    }

    let mut one = Process::start(path, first)?;
    let first = first.beside(Access::Read);
    assert_eq!(one.answer(), format!("opened {first:?}"), "of {left:?}");
    one.execute("expect", steps)?;
    if first.writes() {
        one.execute("write", steps)?;
        steps += 1;
    }
    let id = one.child.id();
    let other = open_beside(path, second, (first, id), &mut steps)?;
    let second = second.beside(if other.is_some() { first } else { Access::Read });
    let (rest, (mut one, killed)) = match other {
        Some(other) if kills_first => ((second, other.child.id()), (other, one)),
        Some(other) => ((first, id), (one, other)),
        // Nothing is refused forever.
        None => {
            drop(one);
            let mut two = Process::start(path, second)?;
            assert_eq!(two.answer(), format!("opened {second:?}"), "after {first:?}");
            let closed = Process::start(dir.path(), Access::Read)?;
            ((second, two.child.id()), (two, closed))
        }
    };
    drop(killed);
    one.execute("expect", steps)?;
    if rest.0.writes() {
        one.execute("write", steps)?;
        steps += 1;
    }
    let third = open_beside(path, third, rest, &mut steps)?;
    one.execute("expect", steps)?;
    drop((one, third));

    // The writers were killed.
    let store = Access::Read.options().open(path)?;
    expect(&store, steps)?;
    drop(store);
    let store = Access::Full.options().open(path)?;
    assert!(!store.was_recovered());
    expect(&store, steps)
}

fn pairs_of(left: Left) -> TestResult {
    for (number, first) in ALL.into_iter().enumerate() {
        for (at, second) in ALL.into_iter().enumerate() {
            for kills_first in [true, false] {
                // After a kill, both processes of a pair are killed in turn; otherwise, one of them.
                let is_first = (number + at).is_multiple_of(2) == kills_first;
                if !is_first && (left != Left::Killed || !second.is_possible_beside(first)) {
                    continue;
                }
                // Each of the accesses is the third of some pairs.
                let third = ALL[(at + usize::from(kills_first)) % ALL.len()];
                pair(left, [first, second], kills_first, third).map_err(|error| {
                    format!("{first:?}, {second:?}, {third:?}, {kills_first}: {error}")
                })?;
            }
        }
    }
    Ok(())
}

#[test]
fn pairs_open_a_store_without_a_journal() -> TestResult {
    pairs_of(Left::Full)
}

#[test]
fn pairs_open_a_store_whose_journal_was_closed() -> TestResult {
    pairs_of(Left::Closed)
}

#[test]
fn pairs_open_a_store_whose_writer_was_killed() -> TestResult {
    pairs_of(Left::Killed)
}
