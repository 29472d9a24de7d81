//! The disk of a recorded process, and the images of it that a power failure could leave.
//!
//! A file has durable contents and pending changes: the writes and changes of length since its last completed sync. Each
//! pending change may be on the disk or not, in any order, and a write may be torn between sectors. A directory has
//! durable names and pending changes of names. A sync covers the changes that were made before it began.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use super::record::Event;
use crate::random::Random;

type Failure = String;

/// The unit that a disk writes completely or not at all.
const SECTOR: u64 = 512;

/// The name of LMDB's lock file.
const LOCK: &str = "lock.mdb";

pub(super) struct Disk {
    /// The path of the root directory in the record.
    path: String,
    root: u64,
    nodes: HashMap<u64, Node>,
    /// The syncs and durable writes that have not returned, by their numbers.
    started: HashMap<u64, Started>,
    /// The number of changes so far.
    changes: u64,
}

struct Started {
    inode: u64,
    /// A write covers the change with this number, and a sync covers all changes with smaller numbers.
    change: u64,
    is_write: bool,
}

enum Node {
    File { durable: Vec<u8>, pending: Vec<(u64, Change)> },
    Directory { durable: Names, now: Names, pending: Vec<(u64, Naming)> },
}

type Names = BTreeMap<String, u64>;

#[derive(Clone)]
enum Change {
    Write { at: u64, data: Vec<u8> },
    Length(u64),
}

#[derive(Clone)]
enum Naming {
    Add(String, u64),
    Remove(String),
    Rename(String, String),
}

impl Naming {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Add(name, inode) => _ = names.insert(name.clone(), *inode),
            Self::Remove(name) => _ = names.remove(name),
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

impl Change {
    /// Applies the change to the contents of a file. `has` decides for each sector whether it is written.
    fn apply(&self, content: &mut Vec<u8>, mut has: impl FnMut() -> bool) {
        match self {
            Self::Length(length) => content.resize(*length as usize, 0),
            Self::Write { at, data } => {
                let mut from = 0;
                while from < data.len() as u64 {
                    let place = at + from;
                    let to = (from + SECTOR - place % SECTOR).min(data.len() as u64);
                    if has() {
                        let end = (at + to) as usize;
                        if content.len() < end {
                            content.resize(end, 0);
                        }
                        content[place as usize..end]
                            .copy_from_slice(&data[from as usize..to as usize]);
                    }
                    from = to;
                }
            }
        }
    }
}

/// Decides which pending changes an image has.
struct Policy {
    /// The number of applied changes among 8.
    share: u64,
    /// Whether the decision is made for each sector, or for each write.
    torn: bool,
    shuffled: bool,
    /// Whether the applied changes of names are a prefix of all.
    ordered: bool,
}

impl Policy {
    fn draw(random: &mut Random) -> Self {
        let share = [0, 1, 4, 4, 7, 8][random.below(6) as usize];
        Self {
            share,
            torn: random.below(2) == 0,
            shuffled: random.below(2) == 0,
            ordered: random.below(2) == 0,
        }
    }

    fn has(&self, random: &mut Random) -> bool {
        random.below(8) < self.share
    }
}

impl Disk {
    /// Loads a directory. All of it is durable.
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let mut disk = Self {
            path: path.to_string_lossy().into_owned(),
            root: 0,
            nodes: HashMap::new(),
            started: HashMap::new(),
            changes: 0,
        };
        disk.root = disk.load_node(path).map_err(|error| error.to_string())?;
        Ok(disk)
    }

    fn load_node(&mut self, path: &Path) -> std::io::Result<u64> {
        let found = fs::metadata(path)?;
        let node = if found.is_dir() {
            let mut names = Names::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                names.insert(name, self.load_node(&entry.path())?);
            }
            Node::Directory { durable: names.clone(), now: names, pending: Vec::new() }
        } else {
            // This process may have the store open, and would lose its locks if it closed LMDB's lock file. A process that
            // opens an image alone initializes the lock file.
            let is_lock = path.file_name().is_some_and(|name| name == LOCK);
            let durable = if is_lock { Vec::new() } else { fs::read(path)? };
            Node::File { durable, pending: Vec::new() }
        };
        self.nodes.insert(found.ino(), node);
        Ok(found.ino())
    }

    /// Applies the next event. The syncs of files for which `ignored` returns true do nothing.
    pub(super) fn take(
        &mut self,
        event: &Event,
        ignored: &dyn Fn(&str) -> bool,
    ) -> Result<(), Failure> {
        self.changes += 1;
        match event {
            Event::CreateFile { inode, path } => {
                self.nodes.insert(*inode, Node::File { durable: Vec::new(), pending: Vec::new() });
                let name = name_of(path);
                self.name(path, Naming::Add(name, *inode))?;
            }
            Event::CreateDirectory { inode, path } => {
                let (durable, now) = (Names::new(), Names::new());
                self.nodes.insert(*inode, Node::Directory { durable, now, pending: Vec::new() });
                let name = name_of(path);
                self.name(path, Naming::Add(name, *inode))?;
            }
            Event::Write { inode, at, number, data } => {
                self.change(*inode, Change::Write { at: *at, data: data.clone() })?;
                if *number != 0 {
                    let started = Started { inode: *inode, change: self.changes, is_write: true };
                    self.started.insert(*number, started);
                }
            }
            Event::SetLength { inode, length } => self.change(*inode, Change::Length(*length))?,
            Event::SyncBegan { inode, number, path } => {
                if !ignored(path) {
                    let started = Started { inode: *inode, change: self.changes, is_write: false };
                    self.started.insert(*number, started);
                }
            }
            Event::SyncReturned { number } | Event::WriteReturned { number } => {
                if let Some(started) = self.started.remove(number) {
                    self.settle(&started);
                }
            }
            Event::Rename { from, to } => {
                if parent(from) != parent(to) {
                    return Err(format!("{from} has become {to}, in another directory"));
                }
                self.name(from, Naming::Rename(name_of(from), name_of(to)))?;
            }
            Event::Remove { path } => self.name(path, Naming::Remove(name_of(path)))?,
            Event::Output(_) => {}
        }
        Ok(())
    }

    fn change(&mut self, inode: u64, change: Change) -> Result<(), Failure> {
        match self.nodes.get_mut(&inode) {
            Some(Node::File { pending, .. }) => {
                pending.push((self.changes, change));
                Ok(())
            }
            _ => Err(format!("a write to {inode}, which is no file of the record")),
        }
    }

    fn name(&mut self, path: &str, naming: Naming) -> Result<(), Failure> {
        let directory = self.find(parent(path))?;
        let Some(Node::Directory { now, pending, .. }) = self.nodes.get_mut(&directory) else {
            return Err(format!("{path} is in no directory"));
        };
        naming.apply(now);
        pending.push((self.changes, naming));
        Ok(())
    }

    /// Returns the inode at a path, with all changes of names.
    fn find(&self, path: &str) -> Result<u64, Failure> {
        let rest = path.strip_prefix(&self.path).ok_or_else(|| format!("{path} is elsewhere"))?;
        let mut at = self.root;
        for name in rest.split('/').filter(|name| !name.is_empty()) {
            let Some(Node::Directory { now, .. }) = self.nodes.get(&at) else {
                return Err(format!("{path} is in no directory"));
            };
            at = *now.get(name).ok_or_else(|| format!("{path} has not been created"))?;
        }
        Ok(at)
    }

    /// Makes the changes durable that a sync or a durable write covers.
    fn settle(&mut self, started: &Started) {
        let covers = |change: u64| {
            if started.is_write { change == started.change } else { change < started.change }
        };
        match self.nodes.get_mut(&started.inode) {
            Some(Node::File { durable, pending }) => pending.retain(|(number, change)| {
                let covered = covers(*number);
                if covered {
                    change.apply(durable, || true);
                }
                !covered
            }),
            Some(Node::Directory { durable, pending, .. }) => pending.retain(|(number, naming)| {
                let covered = covers(*number);
                if covered {
                    naming.apply(durable);
                }
                !covered
            }),
            None => {}
        }
    }

    /// Writes an image that a power failure at this point could leave to an empty directory.
    pub(super) fn image(&self, random: &mut Random, to: &Path) -> std::io::Result<()> {
        let policy = Policy::draw(random);
        self.image_of(self.root, &policy, random, to)
    }

    fn image_of(
        &self,
        inode: u64,
        policy: &Policy,
        random: &mut Random,
        to: &Path,
    ) -> std::io::Result<()> {
        match self.nodes.get(&inode) {
            Some(Node::File { durable, pending }) => {
                let mut content = durable.clone();
                let mut pending: Vec<&Change> = pending.iter().map(|(_, change)| change).collect();
                if policy.shuffled {
                    for at in (1..pending.len()).rev() {
                        pending.swap(at, random.below(at as u64 + 1) as usize);
                    }
                }
                for change in pending {
                    if policy.torn && matches!(change, Change::Write { .. }) {
                        change.apply(&mut content, || policy.has(random));
                    } else if policy.has(random) {
                        change.apply(&mut content, || true);
                    }
                }
                fs::File::create(to)?.write_all(&content)
            }
            Some(Node::Directory { durable, pending, .. }) => {
                if !to.is_dir() {
                    fs::create_dir(to)?;
                }
                let mut names = durable.clone();
                for (_, naming) in pending {
                    if policy.has(random) {
                        naming.apply(&mut names);
                    } else if policy.ordered {
                        break;
                    }
                }
                for (name, inode) in names {
                    self.image_of(inode, policy, random, &to.join(name))?;
                }
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn parent(path: &str) -> &str {
    path.trim_end_matches('/').rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn name_of(path: &str) -> String {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned()
}
