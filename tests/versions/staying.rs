//! Indexes that stay readable when the version of the rows changes, and indexes that are rebuilt.

use index_table::{Error, FindingKind, IndexState, IndexTable, RowVersion, Store};
use serde::{Deserialize, Serialize};

use crate::{TestResult, on_both_engines};

/// One less than the number of rows of a table.
const MANY: u32 = 300;

/// The first release: an index of each kind.
mod first {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "people")]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[index(town)]
    #[index(name, strategy = "full")]
    #[index(town, name, include = [phone])]
    #[index(email, unique)]
    #[index(desc(age))]
    #[index(each(tags))]
    #[index(nick, sparse, name = "nicked")]
    #[index(hash(url), unique, name = "once")]
    #[index(phone, consistency = "eventual")]
    #[index(age, filter = is_adult, name = "adults")]
    #[index(computed(initial: String), name = "initial")]
    pub(crate) struct Person {
        #[primary_key]
        pub(crate) id: u32,
        pub(crate) town: String,
        pub(crate) name: String,
        pub(crate) phone: String,
        pub(crate) email: String,
        pub(crate) age: u8,
        pub(crate) tags: Vec<String>,
        pub(crate) nick: Option<String>,
        pub(crate) url: String,
    }

    impl Person {
        fn is_adult(&self) -> bool {
            self.age >= 18
        }

        fn initial(&self) -> String {
            self.name.chars().take(1).collect()
        }
    }
}

/// Declares a module with a second release: a new field, and the given changes.
macro_rules! second {
    ($name:ident, [$($changed:ident),*], |$old:ident| $change:expr) => {
        mod $name {
            use super::{Deserialize, IndexTable, RowVersion, Serialize};

            #[derive(Deserialize, RowVersion)]
            struct PersonV1 {
                id: u32,
                town: String,
                name: String,
                phone: String,
                email: String,
                age: u8,
                tags: Vec<String>,
                nick: Option<String>,
                url: String,
            }

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "people", version = 2, previous = PersonV1)]
            $(#[table(changed = [$changed])])*
            #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
            #[index(town)]
            #[index(name, strategy = "full")]
            #[index(town, name, include = [phone])]
            #[index(email, unique)]
            #[index(desc(age))]
            #[index(each(tags))]
            #[index(nick, sparse, name = "nicked")]
            #[index(hash(url), unique, name = "once")]
            #[index(phone, consistency = "eventual")]
            #[index(age, filter = is_adult, name = "adults")]
            #[index(computed(initial: String), name = "initial")]
            pub(crate) struct Person {
                /// The new field, in front of all others.
                pub(crate) stars: u64,
                #[primary_key]
                pub(crate) id: u32,
                pub(crate) name: String,
                pub(crate) town: String,
                pub(crate) phone: String,
                pub(crate) email: String,
                pub(crate) age: u8,
                pub(crate) tags: Vec<String>,
                pub(crate) nick: Option<String>,
                pub(crate) url: String,
            }

            impl From<PersonV1> for Person {
                fn from(mut $old: PersonV1) -> Self {
                    $change;
                    let PersonV1 { id, town, name, phone, email, age, tags, nick, url } = $old;
                    Self { stars: 5, id, name, town, phone, email, age, tags, nick, url }
                }
            }

            impl Person {
                fn is_adult(&self) -> bool {
                    self.age >= 18
                }

                fn initial(&self) -> String {
                    self.name.chars().take(1).collect()
                }
            }
        }
    };
}

second!(unchanged, [], |old| old.url.shrink_to_fit());
second!(town_changed, [town], |old| old.town = old.town.to_uppercase());
second!(phone_changed, [phone], |old| old.phone.insert(0, '+'));
second!(undeclared, [], |old| old.town = old.town.to_uppercase());

fn person(id: u32) -> first::Person {
    let name = |names: [&str; 3]| names[id as usize % 3].to_owned();
    first::Person {
        id,
        town: name(["Oz", "Rome", "Oslo"]),
        name: name(["Li", "Smith", "S\0"]),
        phone: format!("555-{}", id % 10),
        email: format!("{id}@x"),
        age: (id % 40) as u8,
        tags: vec![name(["a", "b", "c"]), "all".to_owned()],
        nick: id.is_multiple_of(2).then(|| format!("nick {id}")),
        url: format!("https://example.com/{id}"),
    }
}

fn fill(store: &Store, rows: u32) -> TestResult {
    let people = first::PersonRepository::open(store)?;
    store.transaction(|txn| (0..rows).try_for_each(|id| people.insert(txn, &person(id))))?;
    people.drain(store, u64::MAX)?;
    // The eventual index gets this row from its queue after the version has changed.
    store.transaction(|txn| people.insert(txn, &person(rows)))?;
    Ok(())
}

/// Returns the names of the indexes that are not readable.
fn unreadable(store: &Store) -> index_table::Result<Vec<String>> {
    let catalog = store.catalog()?;
    let indexes = catalog.tables.into_iter().flat_map(|table| table.indexes);
    let unreadable = indexes.filter(|index| index.state != IndexState::Readable);
    Ok(unreadable.map(|index| index.name).collect())
}

/// New indexes, and indexes with methods, are built; all others stay readable.
#[test]
fn indexes_of_unchanged_fields_stay_readable() -> TestResult {
    on_both_engines(|store| {
        fill(store, MANY)?;
        let people = unchanged::PersonRepository::open_online(store)?;
        assert_eq!(unreadable(store)?, ["adults", "initial"]);
        let all = u64::from(MANY) + 1;
        let txn = store.read()?;
        assert_eq!(people.by_town(&txn).count()?, all);
        let rows = people.find_by_town(&txn, "Oz").rows().collect::<Result<Vec<_>, _>>()?;
        assert!(rows.len() == 101 && rows.iter().all(|row| row.stars == 5));
        let row = people.find_by_name(&txn, "S\0").first()?.ok_or("no row")?;
        assert_eq!((row.id, row.stars, row.town.as_str()), (2, 5, "Oslo"));
        let entry = people.find_by_name(&txn, "Li").entries().next().ok_or("no entry")??;
        assert_eq!((entry.id, entry.stars, entry.town), (0, 5, "Oz"));
        let entry = people
            .find_by_town_name(&txn, "Rome", "Smith")
            .entries()
            .next()
            .ok_or("no entry")??;
        assert_eq!((entry.id, entry.phone), (1, "555-1"));
        assert_eq!(people.get_by_email(&txn, "77@x")?.map(|row| row.id), Some(77));
        assert_eq!(people.by_age(&txn).first()?.map(|row| row.id), Some(39));
        assert_eq!(people.find_by_tags(&txn, "all").count()?, all);
        assert_eq!(people.by_nicked(&txn).count()?, all / 2 + 1);
        let url = "https://example.com/9";
        assert_eq!(people.find_by_once(&txn, url).keys().collect::<Result<Vec<_>, _>>()?, [9]);
        assert_eq!(people.find_by_phone(&txn, "555-0").verified().rows().count(), 30);
        let result = people.find_by_initial(&txn, "L").count();
        assert!(matches!(result, Err(Error::IndexNotReadable { index: "initial", .. })));
        drop(txn);

        // Writers now maintain the indexes with rows of both versions.
        store.transaction(|txn| {
            people.update(txn, 3, |row| row.town = "Bonn".into())?;
            people.update(txn, 4, |row| row.stars = 6)?;
            people.delete(txn, 5)
        })?;
        assert_eq!(people.drain(store, u64::MAX)?.applied, 2);
        let report = people.build(store).run()?;
        assert!(report.is_readable() && report.indexes.len() == 2, "{report}");
        let report = people.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
        assert_eq!(people.find_by_phone(&store.read()?, "555-0").verified().rows().count(), 31);
        assert_eq!(people.upgrade(store).run()?.upgraded, all - 3);
        let report = people.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
        Ok(())
    })
}

#[test]
fn changed_fields_have_their_indexes_rebuilt() -> TestResult {
    on_both_engines(|store| {
        fill(store, MANY)?;
        let people = town_changed::PersonRepository::open_online(store)?;
        assert_eq!(unreadable(store)?, ["town", "town_name", "adults", "initial"]);
        assert!(people.build(store).run()?.is_readable());
        assert_eq!(people.find_by_town(&store.read()?, "OZ").count()?, 101);
        let report = people.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
        Ok(())
    })?;
    on_both_engines(|store| {
        fill(store, MANY)?;
        let people = phone_changed::PersonRepository::open_online(store)?;
        assert_eq!(unreadable(store)?, ["town_name", "phone", "adults", "initial"]);
        assert!(people.build(store).run()?.is_readable());
        let txn = store.read()?;
        let entry = people.find_by_town_name(&txn, "Oz", "Li").entries().next().ok_or("none")??;
        assert_eq!(entry.phone, "+555-0");
        let report = people.verify(&txn).run()?;
        assert!(report.is_clean(), "{report}");
        Ok(())
    })
}

/// With debug assertions, as in tests, such a row can't be read. `verify` finds the wrong entries, and
/// `repair` rewrites them from the converted rows.
#[test]
fn a_change_of_an_undeclared_field_is_a_conversion_error() -> TestResult {
    on_both_engines(|store| {
        fill(store, 3)?;
        let people = undeclared::PersonRepository::open(store).map(drop);
        let assert_conversion_error = |result: index_table::Result<()>| {
            let Err(Error::Conversion { table: "people", version: 1, reason, .. }) = result else {
                panic!("{result:?}");
            };
            assert_eq!(
                reason,
                "its conversion changes `town`, a field that `changed` does not name"
            );
        };
        // The build of the indexes on methods fails.
        assert_conversion_error(people);
        Ok(())
    })?;
    on_both_engines(|store| {
        fill(store, MANY)?;
        let people = undeclared::PersonRepository::open_online(store)?;
        let assert_conversion_error = |result: index_table::Result<()>| {
            assert!(matches!(result, Err(Error::Conversion { version: 1, .. })), "{result:?}");
        };
        let txn = store.read()?;
        assert_conversion_error(people.get(&txn, 1).map(drop));
        assert_conversion_error(people.find_by_town(&txn, "Oz").first().map(drop));
        assert_conversion_error(
            people.find_by_name(&txn, "Li").entries().next().ok_or("none")?.map(drop),
        );
        assert_eq!(
            people.find_by_town(&txn, "Oz").count()?,
            101,
            "the entries of the index were changed"
        );
        let report = people.verify(&txn).run()?;
        assert_eq!(report.count(FindingKind::WrongConversion), u64::from(MANY) + 1);
        let conversion = |finding: &index_table::Result<index_table::Finding>| matches!(finding, Ok(finding) if finding.kind == FindingKind::WrongConversion);
        let shown = people.verify(&txn).find(conversion).ok_or("none")??.to_string();
        assert_eq!(
            shown,
            "table `people`, row 0: its conversion from version 1 changes `town`, a \
             field that `changed` does not name; correct the `From` or `TryFrom` of a later version"
        );
        drop(txn);
        assert_conversion_error(
            store.transaction(|txn| people.update(txn, 1, |row| row.stars = 1)).map(drop),
        );
        assert_conversion_error(people.upgrade(store).run().map(drop));
        Ok(())
    })
}

#[test]
fn entries_of_a_field_that_was_not_declared_are_repaired() -> TestResult {
    on_both_engines(|store| {
        fill(store, MANY)?;
        let people = undeclared::PersonRepository::open_online(store)?;
        let rows = u64::from(MANY) + 1;
        let report = people.verify(&store.read()?).run()?;
        // The stale entries are in `town` and `town_name`.
        assert_eq!(report.count(FindingKind::Stale), 2 * rows);
        assert_eq!(report.count(FindingKind::Missing), 2 * rows);
        let report = store.transaction(|txn| people.repair(txn).run())?;
        assert_eq!((report.count(FindingKind::Stale), report.left), (2 * rows, rows));
        assert_eq!(people.find_by_town(&store.read()?, "OZ").count()?, 101);
        drop(people);
        // In a release that declares the changed field, rows and indexes match.
        let people = town_changed::PersonRepository::open(store)?;
        let report = people.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
        Ok(())
    })
}

/// An enum with a new first variant. The text of the field's type is the same.
mod states {
    use super::{Deserialize, IndexTable, Serialize};

    pub(crate) mod first {
        use super::{Deserialize, IndexTable, Serialize};

        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub(crate) enum State {
            Open,
            Done,
        }

        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "tasks")]
        #[index(owner, include = [state])]
        #[index(due)]
        pub(crate) struct Task {
            #[primary_key]
            pub(crate) id: u32,
            pub(crate) owner: String,
            pub(crate) due: u32,
            pub(crate) state: State,
        }
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(crate) enum State {
        New,
        Open,
        Done,
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "tasks", version = 2, previous = first::Task)]
    #[index(owner, include = [state])]
    #[index(due)]
    pub(crate) struct Task {
        #[primary_key]
        pub(crate) id: u32,
        pub(crate) owner: String,
        pub(crate) due: u32,
        pub(crate) state: State,
    }

    impl From<first::Task> for Task {
        fn from(first::Task { id, owner, due, state }: first::Task) -> Self {
            let state = match state {
                _ if due == 0 => State::New,
                first::State::Open => State::Open,
                first::State::Done => State::Done,
            };
            Self { id, owner, due, state }
        }
    }
}

#[test]
fn an_index_on_another_type_of_the_same_name_is_rebuilt() -> TestResult {
    on_both_engines(|store| {
        let tasks = states::first::TaskRepository::open(store)?;
        let task = |id, state| states::first::Task { id, owner: "Ada".into(), due: id, state };
        store.transaction(|txn| {
            tasks.insert(txn, &task(1, states::first::State::Open))?;
            tasks.insert(txn, &task(2, states::first::State::Done))
        })?;
        drop(tasks);
        let tasks = states::TaskRepository::open_online(store)?;
        assert_eq!(unreadable(store)?, ["owner"]);
        assert_eq!(tasks.find_by_due(&store.read()?, 2).count()?, 1);
        tasks.build(store).run()?;
        let txn = store.read()?;
        let states = tasks.find_by_owner(&txn, "Ada").entries();
        let states =
            states.map(|entry| entry.map(|entry| entry.state)).collect::<Result<Vec<_>, _>>();
        assert_eq!(states?, [states::State::Open, states::State::Done]);
        Ok(())
    })
}

/// A build that was interrupted continues from its position in the next version.
#[test]
fn a_build_continues_in_the_next_version() -> TestResult {
    mod before {
        use super::{Deserialize, IndexTable, Serialize};

        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "notes")]
        pub(crate) struct Note {
            #[primary_key]
            pub(crate) id: u32,
            pub(crate) text: String,
        }
    }
    mod first {
        use super::{Deserialize, IndexTable, Serialize};

        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "notes")]
        #[index(text)]
        pub(crate) struct Note {
            #[primary_key]
            pub(crate) id: u32,
            pub(crate) text: String,
        }
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", version = 2, previous = first::Note)]
    #[index(text)]
    struct Note {
        #[primary_key]
        id: u32,
        text: String,
        stars: u8,
    }
    impl From<first::Note> for Note {
        fn from(first::Note { id, text }: first::Note) -> Self {
            Self { id, text, stars: 0 }
        }
    }
    on_both_engines(|store| {
        let notes = before::NoteRepository::open(store)?;
        let note = |id| before::Note { id, text: format!("{}", id % 7) };
        store.transaction(|txn| (0..100).try_for_each(|id| notes.insert(txn, &note(id))))?;
        drop(notes);
        let notes = first::NoteRepository::open_online(store)?;
        notes.build(store).batch_bytes(100).limit(1).run()?;
        drop(notes);
        let notes = NoteRepository::open_online(store)?;
        let report = notes.build(store).run()?;
        assert!(report.is_readable() && (1..100).contains(&report.rows), "{report}");
        let report = notes.verify(&store.read()?).run()?;
        assert!(report.is_clean() && report.entries == 100, "{report}");
        Ok(())
    })
}
