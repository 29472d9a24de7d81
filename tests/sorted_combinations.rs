//! `and` and `or` of scans in another order than the primary key's, whose primary keys are sorted in memory,
//! or in temporary files if there are many.

#[path = "support/stores.rs"]
mod stores;

use index_table::{Combined, Error, IndexTable, ReadTxn, Result};
use serde::{Deserialize, Serialize};

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view, shard_by = hash(name))]
#[indexes((town, allow(redundant)), (age), (each(tags)), (town, age, name = "placed"), (hash(town), age, name = "hashed"))]
struct Person {
    /// A long name, so that the primary keys of a few thousand rows exceed the memory for sorting.
    #[primary_key]
    name: String,
    town: String,
    age: u32,
    tags: Vec<String>,
}

fn person(n: u32) -> Person {
    Person {
        name: format!("{:0>300}", n.wrapping_mul(2_654_435_761)),
        town: format!("town {}", n % 7),
        age: n % 100,
        tags: vec![format!("tag {}", n % 3), format!("tag {}", n % 5)],
    }
}

/// Runs `test` on plain and on sharded stores.
fn on_all_stores(
    count: u32,
    test: impl Fn(&PersonRepository, &ReadTxn<'_>, &[Person]) -> TestResult,
) -> TestResult {
    let mut rows: Vec<Person> = (0..count).map(person).collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    for store in stores::stores("person")? {
        let people = PersonRepository::open(&store)?;
        if store.is_sharded {
            store.fill(rows.iter(), |txn, row| people.insert(txn, row))?;
        } else {
            people.bulk_load(&store, rows.iter().cloned()).run()?;
        }
        test(&people, &store.read()?, &rows)?;
    }
    Ok(())
}

fn assert_finds<'txn>(
    combination: impl Fn() -> Combined<'txn, Person>,
    rows: &[Person],
    keep: impl Fn(&Person) -> bool,
) -> TestResult {
    let mut expected: Vec<&Person> = rows.iter().filter(|row| keep(row)).collect();
    for reverse in [false, true] {
        let combination = || if reverse { combination().rev() } else { combination() };
        assert!(
            combination()
                .rows()
                .map(Result::ok)
                .eq(expected.iter().map(|row| Some((*row).clone())))
        );
        assert_eq!(combination().count()?, expected.len() as u64);
        let page = combination().page(5)?;
        assert!(page.items.iter().eq(expected.iter().copied().take(5)));
        let cursor = page.next.as_ref().ok_or("no next page")?;
        let second = combination().after(cursor).page_views(5)?;
        let names: Vec<_> = second.items.iter().map(|view| view.name).collect();
        assert!(names.iter().eq(expected[5..10].iter().map(|row| &row.name)));
        let back = second.previous.ok_or("the first page")?;
        assert_eq!(combination().before(&back).page(5)?, page);
        assert_eq!(combination().before(&back).limit(2).keys().count(), 2);
        expected.reverse();
    }
    Ok(())
}

#[test]
fn ranges_prefixes_and_whole_indexes_are_combined() -> TestResult {
    on_all_stores(700, |people, txn, rows| {
        let young = || people.find_by_age_range(txn, 10..30);
        let is_young = |row: &Person| (10..30).contains(&row.age);
        assert_finds(
            || people.find_by_town(txn, "town 3").and(young()),
            rows,
            |row| row.town == "town 3" && is_young(row),
        )?;
        assert_finds(
            || young().or(people.find_by_town(txn, "town 3")),
            rows,
            |row| row.town == "town 3" || is_young(row),
        )?;
        let tagged = || people.find_by_tags_starting_with(txn, "tag");
        assert_finds(|| tagged().and(people.by_placed(txn)), rows, |_| true)?;
        assert_finds(
            || tagged().and(people.find_by_placed_town(txn, "town 1")),
            rows,
            |row| row.town == "town 1",
        )?;
        assert_finds(
            || people.find_by_hashed_town(txn, "town 1").or(young()),
            rows,
            |row| row.town == "town 1" || is_young(row),
        )?;
        let listed = || people.find_by_placed_town_in(txn, ["town 2", "town 5"]);
        assert_finds(
            || listed().and(young()),
            rows,
            |row| ["town 2", "town 5"].contains(&row.town.as_str()) && is_young(row),
        )?;
        assert_finds(
            || young().boxed().filter(|row| row.age > 20).into(),
            rows,
            |row| is_young(row) && row.age > 20,
        )?;
        let some = || young().and(tagged()).filter(|row| row.age % 2 == 0);
        assert_finds(
            || some().or(people.find_by_age(txn, 50)),
            rows,
            |row| is_young(row) && row.age % 2 == 0 || row.age == 50,
        )
    })
}

/// More primary keys than fit into memory are sorted in temporary files.
#[test]
fn many_primary_keys_are_sorted_on_disk() -> TestResult {
    on_all_stores(11_000, |people, txn, rows| {
        let combination =
            || people.by_age(txn).and(people.find_by_town_range(txn, "town 2".."town 6"));
        let keep = |row: &Person| ("town 2".."town 6").contains(&row.town.as_str());
        assert_finds(combination, rows, keep)
    })
}

#[test]
fn a_combination_refuses_cursors_of_other_combinations() -> TestResult {
    on_all_stores(200, |people, txn, _| {
        let combination =
            || people.find_by_town(txn, "town 3").and(people.find_by_age_range(txn, ..60));
        let cursor = combination().page(3)?.next.ok_or("no next page")?;
        assert_eq!(combination().after(&cursor).page(3)?.items.len(), 3);
        let town = || people.find_by_town(txn, "town 3");
        let result = [
            combination().rev().after(&cursor).page(3),
            town().and(people.find_by_age_range(txn, ..61)).after(&cursor).page(3),
            town().or(people.find_by_age_range(txn, ..60)).before(&cursor).page(3),
            town().after(&cursor).page(3),
            people.all(txn).before(&cursor).page(3),
        ];
        for page in result {
            assert!(matches!(page, Err(Error::InvalidCursor { .. })), "{page:?}");
        }
        assert!(matches!(
            combination().rev().after(&cursor).count(),
            Err(Error::InvalidCursor { .. })
        ));
        let result = combination().rev().before(&cursor).keys().next();
        assert!(matches!(result, Some(Err(Error::InvalidCursor { .. }))), "{result:?}");
        // The text of a cursor may have been changed.
        let text = cursor.to_string();
        for changed in [format!("{text}00"), format!("{}ff", &text[..22])] {
            let Ok(cursor) = changed.parse() else { continue };
            let page = combination().after(&cursor).page(3);
            assert!(matches!(page, Err(Error::InvalidCursor { .. })), "{page:?}");
        }
        Ok(())
    })
}

/// In either direction, a scan that ends before the position of the other scan has no entries there.
#[test]
fn a_scan_is_not_read_past_its_end() -> TestResult {
    on_all_stores(100, |people, txn, rows| {
        let none = || people.find_by_age_in(txn, [0; 0]);
        let some = || people.find_by_age(txn, 7);
        let (first, last) = (rows[0].name.as_str(), rows[99].name.as_str());
        for reverse in [false, true] {
            let count = |combination: Combined<'_, Person>| {
                if reverse { combination.rev() } else { combination }.count()
            };
            assert_eq!(count(some().and(none()))?, 0);
            assert_eq!(count(none().and(some()))?, 0);
            assert_eq!(count(people.by_town(txn).and(none()))?, 0);
            assert_eq!(
                count(people.by_town(txn).and(people.find_by_name_range(txn, ..=first)))?,
                1
            );
            assert_eq!(count(people.by_town(txn).and(people.find_by_name_range(txn, last..)))?, 1);
            assert_eq!(count(people.by_town(txn).and(people.find_by_name_range(txn, ..first)))?, 0);
        }
        Ok(())
    })
}
