//! Several releases of a program that have a store open at the same time, each in a process of its own.
//!
//! The store has one data file, beside that of the script. Each process writes the rows of one client, in transactions that also count
//! them. What the first release that wrote a row has given it follows from its number. A later release adds a
//! field whose default is another value each time, and an index over it.

use std::{
    env,
    fs::File,
    io::{self, Read as _},
    path::Path,
    process::{Child, Command, Stdio, exit},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::{
    app::App,
    failure::{Failure, Outcome, same, wrong},
    random::Random,
    script::Step,
    tables::next_number,
};

/// The number of clients with rows of their own.
const CLIENTS: u32 = 4;

/// The names of the releases, the first one first.
const RELEASES: [&str; 3] = ["first", "second", "third"];

/// The time within which the last client sees the end of the others.
const SEEN: Duration = Duration::from_secs(10);

/// The rows of a client: the number of the next one, and how many there are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, IndexTable)]
#[table(name = "clients")]
struct Written {
    #[primary_key]
    client: u32,
    next: u32,
    rows: u64,
}

fn owner_of(number: u32) -> String {
    format!("o{}", number % 5)
}

fn owner_by(release: u8, number: u32) -> String {
    if release >= 2 { owner_of(number) } else { String::new() }
}

/// A release of the program, open on a store.
trait Release {
    fn step(&self, store: &Store, client: u32, random: &mut Random) -> Outcome;
    fn check(&self, store: &Store, client: u32) -> Outcome;
    /// Builds all indexes, and verifies the table.
    fn finish(&self, store: &Store) -> Outcome;
}

macro_rules! release {
    (
        $(#[$attribute:meta])* $module:ident $number:literal
        { $($(#[$field_attribute:meta])* $field:ident: $ty:ty = $value:expr),* $(,)? }
        right { $row:ident => $right:expr }
        indexes { $repository:ident, $txn:ident, $one:ident => $($found:expr),* $(,)? }
    ) => {
        mod $module {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "users", keep_unknown)]
            #[index(client, town)]
            $(#[$attribute])*
            pub(super) struct User {
                #[primary_key]
                pub(super) client: u32,
                #[primary_key]
                pub(super) number: u32,
                /// The release that wrote it first.
                pub(super) by: u8,
                pub(super) town: u8,
                $($(#[$field_attribute])* pub(super) $field: $ty,)*
            }

            impl User {
                fn new(client: u32, number: u32, town: u8) -> Self {
                    Self { client, number, by: $number, town, $($field: $value(number)),* }
                }

                /// Whether it has what the release has given it that wrote it first.
                fn is_right(&self) -> bool {
                    let $row = self;
                    $right
                }
            }

            pub(super) struct Opened {
                users: UserRepository,
                clients: WrittenRepository,
            }

            impl Opened {
                pub(super) fn of(store: &Store) -> Result<Self> {
                    Ok(Self { users: UserRepository::open(store)?, clients: WrittenRepository::open(store)? })
                }
            }

            impl Release for Opened {
                fn finish(&self, store: &Store) -> Outcome {
                    let begun = Instant::now();
                    while !self.users.build(store).run()?.is_readable() {
                        if begun.elapsed() > SEEN {
                            return wrong("the end of the other releases is not seen");
                        }
                        thread::sleep(Duration::from_millis(20));
                    }
                    let report = store.verify()?;
                    if !report.is_clean() {
                        return wrong(format!("verify of several releases: {report}"));
                    }
                    (0..CLIENTS).try_for_each(|client| self.check(store, client))
                }

                fn step(&self, store: &Store, client: u32, random: &mut Random) -> Outcome {
                    let (kind, town) = (random.below(6), random.below(4) as u8);
                    store.try_transaction(|txn| {
                        let mut own = self.clients.get(txn, client)?.unwrap_or(Written { client, ..Written::default() });
                        let at = random.below(u64::from(own.next)) as u32;
                        match kind {
                            0..3 => {
                                self.users.insert(txn, &User::new(client, own.next, town))?;
                                (own.next, own.rows) = (own.next + 1, own.rows + 1);
                            }
                            3 if own.rows > 0 => own.rows -= u64::from(self.users.delete(txn, client, at)?),
                            _ => drop(self.users.update(txn, client, at, |user| user.town = town)?),
                        }
                        self.clients.put(txn, &own)?;
                        Ok::<_, Failure>(())
                    })
                }

                fn check(&self, store: &Store, client: u32) -> Outcome {
                    let $txn = &store.read()?;
                    let own = self.clients.get($txn, client)?.unwrap_or_default();
                    let rows = self.users.find_by_client($txn, client).rows().collect::<Result<Vec<_>>>()?;
                    same(|| format!("the rows of client {client}"), &(rows.len() as u64), &own.rows)?;
                    if let Some(row) = rows.iter().find(|row| !row.is_right() || row.number >= own.next) {
                        return wrong(format!("a row of several releases: {row:?}"));
                    }
                    for town in 0..4 {
                        let found = self.users.find_by_client_town($txn, client, town).count()?;
                        let expected = rows.iter().filter(|row| row.town == town).count() as u64;
                        same(|| format!("town {town} of client {client}"), &found, &expected)?;
                    }
                    let $repository = &self.users;
                    for $one in &rows {
                        $(is_found($one, $found)?;)*
                    }
                    Ok(())
                }
            }
        }
    };
}

/// Checks that the index has the row, if it is readable.
fn is_found<R: PartialEq + std::fmt::Debug>(row: &R, found: Result<Vec<R>>) -> Outcome {
    match found {
        Ok(found) if found.contains(row) => Ok(()),
        Ok(found) => wrong(format!("the entries of several releases for {row:?}: {found:?}")),
        Err(Error::IndexNotReadable { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

release!(
    first 1 {}
    right { row => row.by >= 1 }
    indexes { _users, txn, _row => }
);
release!(
    #[index(client, owner, include = [town])]
    second 2 { #[serde(default)] owner: String = owner_of }
    right { row => row.owner == owner_by(row.by, row.number) }
    indexes {
        users, txn, row => users.find_by_client_owner(txn, row.client, &row.owner).rows().collect()
    }
);
release!(
    #[index(client, owner, strategy = "full")]
    #[index(token)]
    third 3 {
        #[serde(default)] owner: String = owner_of,
        #[serde(default = "next_number")] token: u64 = |_| next_number(),
    }
    right { row => row.owner == owner_by(row.by, row.number) }
    indexes {
        users, txn, row =>
            users.find_by_client_owner(txn, row.client, &row.owner).rows().collect(),
            users.find_by_token(txn, row.token).rows().collect(),
    }
);

fn open_store(dir: &Path) -> Result<Store> {
    Store::options().durability(Durability::Full).map_size(1 << 24).open(dir)
}

fn open_release(store: &Store, release: &str) -> Result<Box<dyn Release>> {
    match release {
        "first" => Ok(Box::new(first::Opened::of(store)?)),
        "second" => Ok(Box::new(second::Opened::of(store)?)),
        _ => Ok(Box::new(third::Opened::of(store)?)),
    }
}

/// Locks the rows of a client: a process whose parent was killed can still write them.
fn lock_client(dir: &Path, client: u32) -> io::Result<File> {
    let file = File::create(dir.with_extension(format!("client.{client}")))?;
    file.lock()?;
    Ok(file)
}

/// Runs several releases for a while, kills one of them, and checks the store with the latest: `releases SEED MILLIS`.
pub(crate) fn releases(app: &App, step: &Step) -> Outcome {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (dir, mut random) = (app.dir.join("releases"), Random::new(&[step.number(1), 11]));
    let start = |client: u32, random: &mut Random| -> io::Result<Child> {
        let release = random.pick(RELEASES).unwrap_or_default();
        let mut process = Command::new(env::current_exe()?);
        process.arg("release").arg(&dir).arg(release).arg(client.to_string());
        process.arg(random.draw().to_string()).arg(step.word(2));
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    };
    let count = 2 + random.below(u64::from(CLIENTS) - 1) as u32;
    let mut processes = Vec::new();
    for client in 0..count {
        processes.push(start(client, &mut random)?);
        thread::sleep(Duration::from_millis(random.below(60)));
    }
    if random.one_in(2)
        && let Some(mut killed) = processes.pop()
    {
        thread::sleep(Duration::from_millis(random.below(step.number(2).max(1))));
        killed.kill()?;
        killed.wait()?;
    }
    for mut process in processes {
        // The process ends when this is closed.
        let _input = process.stdin.take();
        let output = process.wait_with_output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            return wrong(format!("a release: {} {}", output.status, text.trim()));
        }
    }
    let locks =
        (0..CLIENTS).map(|client| lock_client(&dir, client)).collect::<io::Result<Vec<_>>>();
    let _locks = locks?;
    let store = open_store(&dir)?;
    third::Opened::of(&store)?.finish(&store)
}

/// A process of a release.
pub(crate) fn run(dir: &Path, release: &str, [client, seed, millis]: [u64; 3]) -> Outcome {
    // It ends with its parent.
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        exit(0);
    });
    let client = client as u32;
    let _lock = lock_client(dir, client)?;
    let (begun, mut random) = (Instant::now(), Random::new(&[seed, 12]));
    let store = open_store(dir)?;
    let mut open = open_release(&store, release)?;
    while begun.elapsed() < Duration::from_millis(millis) {
        match open.step(&store, client, &mut random) {
            // A client that others have not seen yet has to open the table again.
            Err(Failure::Store(Error::SchemaMismatch { .. })) => {
                drop(open);
                open = open_release(&store, release)?;
            }
            outcome => outcome?,
        }
        if random.one_in(5) {
            open.check(&store, client)?;
        }
    }
    open.check(&store, client)
}
