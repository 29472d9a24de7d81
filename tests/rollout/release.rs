//! The releases of the program.

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

/// A table that is open with a release.
pub(crate) trait Table {
    /// Runs a command, and returns its result as text.
    fn run(&self, store: &Store, command: &str, rest: &str) -> Result<String>;
}

/// Opens the table with the release of this name.
pub(crate) fn open_release(store: &Store, name: &str) -> Result<Box<dyn Table>> {
    fn boxed(table: impl Table + 'static) -> Box<dyn Table> {
        Box::new(table)
    }
    match name {
        "first" => first::UserRepository::open(store).map(boxed),
        "second" => second::UserRepository::open(store).map(boxed),
        "computed" => computed::UserRepository::open(store).map(boxed),
        "changed" => changed::UserRepository::open(store).map(boxed),
        "without" => without::UserRepository::open(store).map(boxed),
        "summed" => summed::UserRepository::open(store).map(boxed),
        "by_age" => by_age::UserRepository::open(store).map(boxed),
        other => unreachable!("{other}"),
    }
}

/// Returns the owner of a user.
pub(crate) fn owner_of(id: u32) -> String {
    format!("o{}", id % 7)
}

/// Defines a release of the program. Its rows keep the fields of later releases.
macro_rules! release {
    (
        $(#[$attribute:meta])*
        $module:ident { $($(#[$field_attribute:meta])* $field:ident: $ty:ty = $value:expr),* $(,)? }
        $(find { $($name:literal => |$users:ident, $txn:ident, $key:ident| $found:expr),* $(,)? })?
        $(impl { $($method:item)* })?
    ) => {
        pub(crate) mod $module {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "users", keep_unknown)]
            $(#[$attribute])*
            pub(crate) struct User {
                #[primary_key]
                pub(crate) id: u32,
                pub(crate) town: String,
                pub(crate) age: u64,
                $($(#[$field_attribute])* #[serde(default)] pub(crate) $field: $ty,)*
            }

            $(impl User { $($method)* })?

            pub(crate) fn user(id: u32) -> User {
                User { id, town: format!("t{}", id % 5), age: u64::from(id), $($field: $value(id)),* }
            }

            impl Table for UserRepository {
                fn run(&self, store: &Store, command: &str, rest: &str) -> Result<String> {
                    match command {
                        "put" => {
                            let (from, to) = rest.split_once(' ').unwrap_or((rest, rest));
                            let (from, to): (u32, u32) = (from.parse().unwrap_or(0), to.parse().unwrap_or(0));
                            store.transaction(|txn| {
                                (from..=to).try_for_each(|id| self.put(txn, &user(id)).map(drop))
                            })?;
                        }
                        "delete" => {
                            let id = rest.parse().unwrap_or(0);
                            store.transaction(|txn| self.delete(txn, id).map(drop))?;
                        }
                        "age" => {
                            let id = rest.parse().unwrap_or(0);
                            store.transaction(|txn| self.update(txn, id, |user| user.age += 100).map(drop))?;
                        }
                        "build" => return Ok(self.build(store).run()?.to_string()),
                        "verify" => {
                            let report = self.verify(&store.read()?).run()?;
                            return Ok(if report.is_clean() { "ok".to_owned() } else { report.to_string() });
                        }
                        "count" => return Ok(self.all(&store.read()?).keys().count().to_string()),
                        $($($name => {
                            let ($users, $key, $txn) = (self, rest, &store.read()?);
                            return $found.map(|found| found.to_string());
                        })*)?
                        other => unreachable!("{other}"),
                    }
                    Ok("ok".to_owned())
                }
            }
        }
    };
}

release!(
    #[index(town)]
    first {}
    find { "town" => |users, txn, town| users.find_by_town(txn, town).count() }
);
release!(
    #[index(town)]
    #[index(owner, include = [age])]
    second { owner: String = owner_of }
    find {
        "town" => |users, txn, town| users.find_by_town(txn, town).count(),
        "owner" => |users, txn, owner| users.find_by_owner(txn, owner).count(),
    }
);
release!(
    /// Its computed index can depend on the new field.
    #[index(town)]
    #[index(computed(label: String))]
    computed { owner: String = owner_of }
    find {
        "town" => |users, txn, town| users.find_by_town(txn, town).count(),
        "label" => |users, txn, label| users.find_by_label(txn, label).count(),
    }
    impl {
        fn label(&self) -> String {
            format!("{}/{}", self.town, self.owner)
        }
    }
);
release!(
    /// It has another definition of the index on the town.
    #[index(town, strategy = "full")]
    changed {}
    find { "town" => |users, txn, town| users.find_by_town(txn, town).count() }
);
release!(without { owner: String = owner_of });
release!(
    #[index(town)]
    #[aggregate(town, sum = [age])]
    summed {}
    find {
        "town" => |users, txn, town| users.find_by_town(txn, town).count(),
        "sum" => |users, txn, town| users.aggregate_by_town(txn, town).map(|totals| totals.sum_age),
    }
);
release!(
    /// The unique index has the name of another one in `by_town`.
    #[index(age, unique, name = "key")]
    by_age {}
    find { "key" => |users, txn, _all| users.by_key(txn).count() }
);
release!(
    #[index(town, unique, name = "key")]
    by_town {}
);

/// A table that refers to the users of the first release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "posts")]
#[index(user)]
pub(crate) struct Post {
    #[primary_key]
    id: u32,
    #[references(first::User)]
    user: u32,
}
