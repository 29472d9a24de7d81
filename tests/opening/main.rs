//! Opening stores and tables: existing files, other declarations, other processes and limits.

mod directories;
#[cfg(target_os = "linux")]
mod killed;
mod limits;
#[cfg(target_os = "linux")]
mod many;
mod misuse;
#[cfg(target_os = "linux")]
#[path = "../support/nobody.rs"]
mod nobody;
mod other_declarations;
#[cfg(target_os = "linux")]
#[path = "../support/privileges.rs"]
mod privileges;
mod read_only;
mod rebuilt;
mod snapshots;
#[cfg(target_os = "linux")]
#[path = "../support/threads.rs"]
mod support;

use std::path::{Path, PathBuf};

use index_table::Store;

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Declares a module with the table `people`.
macro_rules! declaration {
    ($name:ident, $(#[$attribute:meta])* { $($field:ident: $ty:ty = $value:expr),* }) => {
        mod $name {
            #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
            #[derive(index_table::IndexTable)]
            #[table(name = "people")]
            $(#[$attribute])*
            pub(crate) struct Person {
                #[primary_key]
                pub(crate) id: u32,
                $(pub(crate) $field: $ty,)*
            }

            #[allow(dead_code)]
            pub(crate) fn person(id: u32) -> Person {
                Person { id, $($field: $value),* }
            }
        }
    };
}

declaration!(plain, { town: String = "Rome".into(), age: u8 = 40 });
declaration!(same, { town: String = "Oslo".into(), age: u8 = 20 });
declaration!(indexed, #[index(town)] #[index(age, strategy = "full")] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(unique, #[index(age, unique)] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(covering, #[index(town, include = [age])] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(descending, #[index(desc(age))] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(computing, #[index(computed(age: u8))] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(filtered, #[index(age, filter = is_even, name = "age")] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(otherwise, #[index(age, filter = is_odd, name = "age")] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(nicked, #[index(nick)] { nick: Option<String> = None });
declaration!(sparse, #[index(nick, sparse)] { nick: Option<String> = None });
declaration!(newer, #[table(version = 2)] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(retyped, { town: String = "Rome".into(), age: u16 = 40 });
declaration!(longer, { town: String = "Rome".into(), age: u8 = 40, email: String = String::new() });
declaration!(both, #[index(town)] #[index(id, unique, name = "same", allow(redundant))] { town: String = "Rome".into(), age: u8 = 40 });
declaration!(one, #[index(id, unique, name = "same", allow(redundant))] { town: String = "Rome".into(), age: u8 = 40 });

mod other {
    #[derive(serde::Serialize, serde::Deserialize, index_table::IndexTable)]
    pub(crate) struct Other {
        #[primary_key]
        pub(crate) id: u32,
    }
}

fn fill(path: &Path) -> index_table::Result<()> {
    let store = Store::open(path)?;
    let people = plain::PersonRepository::open(&store)?;
    store.transaction(|txn| (0..3000).try_for_each(|id| people.insert(txn, &plain::person(id))))
}

/// Runs the test of this name in another process with this role.
fn in_another_process(name: &str, role: &str, path: &Path) -> TestResult {
    let child = std::process::Command::new(std::env::current_exe()?)
        .args(["--exact", name])
        .env("INDEX_TABLE_OTHER_PROCESS", path)
        .env("INDEX_TABLE_ROLE", role)
        .output()?;
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    Ok(())
}

/// Returns the path and the role in such a process.
fn role() -> Option<(PathBuf, String)> {
    let path = std::env::var_os("INDEX_TABLE_OTHER_PROCESS")?;
    Some((path.into(), std::env::var("INDEX_TABLE_ROLE").ok()?))
}

impl computing::Person {
    fn age(&self) -> u8 {
        100 - self.age
    }
}

impl filtered::Person {
    fn is_even(&self) -> bool {
        self.id.is_multiple_of(2)
    }
}

impl otherwise::Person {
    fn is_odd(&self) -> bool {
        !self.id.is_multiple_of(2)
    }
}
