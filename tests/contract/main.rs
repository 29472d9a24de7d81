//! The API that programs rely on, from opening a store to the last page of a result. Each module has the programs of one
//! part of it.

mod daily;
mod journal;
mod over_time;
mod rows;
mod shards;

use index_table::{Cursor, Durability, Error, IndexTable, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[index(town)]
#[index(town, last_name, strategy = "partial", include = [phone])]
#[index(last_name, strategy = "full")]
#[index(email, unique)]
struct Customer {
    #[primary_key]
    id: u64,
    first_name: String,
    last_name: String,
    town: String,
    phone: String,
    email: String,
}

fn customer(id: u64, first_name: &str, last_name: &str, town: &str) -> Customer {
    Customer {
        id,
        first_name: first_name.to_owned(),
        last_name: last_name.to_owned(),
        town: town.to_owned(),
        phone: format!("555-{id:04}"),
        email: format!("{first_name}{id}@example.com").to_lowercase(),
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "films")]
#[index(each(cast), strategy = "partial", include = [cast])]
#[index(year)]
struct Film {
    #[primary_key]
    genre: String,
    #[primary_key]
    title: String,
    year: u16,
    cast: Vec<String>,
}

#[test]
fn documented_writes_are_visible_to_reads() -> TestResult {
    let dir = tempfile::tempdir()?;
    let alice = customer(7, "Alice", "Smith", "Chicago");
    let bob = customer(8, "Bob", "Jones", "Redmond");

    {
        let store = Store::open(dir.path().join("data/shop"))?;
        let customers = CustomerRepository::open(&store)?;
        customers.insert(&mut store.write()?, &alice)?;
        let txn = store.read()?;
        assert_eq!(customers.all(&txn).count()?, 0, "a dropped transaction was committed");
    }
    let store = Store::options()
        .map_size(1 << 30)
        .durability(Durability::Full)
        .open(dir.path().join("data/shop"))?;
    let customers = CustomerRepository::open(&store)?;

    let mut txn = store.write()?;
    customers.insert(&mut txn, &alice)?;
    assert!(matches!(
        customers.insert(&mut txn, &alice),
        Err(Error::DuplicateKey { table: "customers", key }) if key == "7"
    ));
    customers.put(&mut txn, &alice)?;
    let changed: bool = customers.update(&mut txn, 7, |c| c.town = "Redmond".into())?;
    assert!(changed);
    assert!(!customers.update(&mut txn, 9, |c| c.town = "Redmond".into())?);
    let deleted: bool = customers.delete(&mut txn, 7)?;
    assert!(deleted);
    assert!(!customers.delete(&mut txn, 7)?);
    customers.insert(&mut txn, &alice)?;
    txn.commit()?;

    store.transaction(|txn| customers.insert(txn, &bob))?;
    let failed = store.transaction(|txn| {
        customers.delete(txn, 8)?;
        customers.insert(txn, &alice)
    });
    assert!(failed.is_err());
    assert_eq!(customers.get(&store.read()?, 8)?.as_ref(), Some(&bob), "rolled back");

    let result: Result<(), Box<dyn std::error::Error>> = store.try_transaction(|txn| {
        customers.delete(txn, 8)?;
        Err("changed my mind".into())
    });
    assert_eq!(result.map_err(|error| error.to_string()), Err("changed my mind".to_owned()));
    assert_eq!(customers.get(&store.read()?, 8)?, Some(bob), "rolled back");
    Ok(())
}

#[test]
fn documented_queries_return_the_documented_rows() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    let people = [
        customer(7, "Alice", "Smith", "Redmond"),
        customer(8, "Bob", "Smith", "Redmond"),
        customer(9, "Carol", "Jones", "Redmond"),
        customer(10, "Dave", "Smythe", "Redmond"),
        customer(11, "Eve", "Smith", "Portland"),
    ];
    store.transaction(|txn| people.iter().try_for_each(|person| customers.insert(txn, person)))?;

    let txn = store.read()?;
    let row: Option<Customer> = customers.get(&txn, 7)?;
    assert_eq!(row.as_ref(), Some(&people[0]));
    let row: Option<Customer> = customers.get_by_email(&txn, "bob8@example.com")?;
    assert_eq!(row.as_ref(), Some(&people[1]));

    let mut rows = Vec::new();
    for row in customers.find_by_town(&txn, "Redmond").rows() {
        let row: Customer = row?;
        rows.push(row);
    }
    assert_eq!(rows, people[..4]);

    let mut lines = Vec::new();
    for entry in customers.find_by_town_last_name(&txn, "Redmond", "Smith").entries() {
        let entry = entry?;
        let CustomerByTownLastName { .. } = entry;
        lines.push(format!("{} {} {} {}", entry.id, entry.town, entry.last_name, entry.phone));
    }
    assert_eq!(lines, ["7 Redmond Smith 555-0007", "8 Redmond Smith 555-0008"]);

    let ids = |scan: index_table::Scan<'_, CustomerByTownLastName<'_>>| {
        scan.rows().map(|row| row.map(|row| row.id)).collect::<Result<Vec<_>, _>>()
    };
    assert_eq!(ids(customers.find_by_town_last_name_range(&txn, "Redmond", "A".."N"))?, [9]);
    assert_eq!(
        ids(customers.find_by_town_last_name_starting_with(&txn, "Redmond", "Sm"))?,
        [7, 8, 10]
    );
    let last: Vec<Customer> =
        customers.by_last_name(&txn).rev().limit(2).rows().collect::<Result<_, _>>()?;
    assert_eq!(last, [people[3].clone(), people[4].clone()]);
    assert_eq!(customers.all(&txn).rows().collect::<Result<Vec<_>, _>>()?, people);
    let n: u64 = customers.find_by_town(&txn, "Redmond").count()?;
    assert_eq!(n, 4);
    let ids = customers.find_by_town(&txn, "Redmond").keys().collect::<Result<Vec<u64>, _>>()?;
    assert_eq!(ids, [7, 8, 9, 10]);

    let last = customers
        .by_last_name(&txn) // a whole index, in key order
        .rev()
        .limit(10)
        .rows();
    assert_eq!(last.count(), 5);
    let page = customers.find_by_town(&txn, "Redmond").page(20)?;
    assert_eq!((page.items.as_slice(), page.next), (&people[..4], None));
    let page = customers.find_by_town(&txn, "Redmond").page(2)?;
    let next = customers.find_by_town(&txn, "Redmond").after(&page.next.unwrap()).page(20)?;
    assert_eq!(next.items, people[2..4]);

    let page = customers.find_by_town(&txn, "Redmond").page(3)?;
    assert_eq!(page.items, people[..3]);
    let cursor: Cursor = page.next.unwrap().to_string().parse()?;
    let next = customers.find_by_town(&txn, "Redmond").after(&cursor).page(20)?;
    assert_eq!(next.items, people[3..4]);
    assert_eq!(next.next, None);
    let result = customers.find_by_town(&txn, "Portland").after(&cursor).page(20);
    assert!(matches!(result, Err(Error::InvalidCursor { .. })));
    Ok(())
}

#[test]
fn documented_composite_primary_keys_find_their_rows() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let films = FilmRepository::open(&store)?;
    let casablanca = Film {
        genre: "Drama".into(),
        title: "Casablanca".into(),
        year: 1942,
        cast: vec!["Humphrey Bogart".into(), "Ingrid Bergman".into()],
    };
    store.transaction(|txn| films.insert(txn, &casablanca))?;

    let mut txn = store.write()?;
    assert_eq!(films.get(&txn, "Drama", "Casablanca")?, Some(casablanca.clone()));
    assert_eq!(films.find_by_cast(&txn, "Ingrid Bergman").count()?, 1);
    for entry in films.find_by_cast(&txn, "Ingrid Bergman").entries() {
        let entry = entry?;
        assert_eq!(entry.cast, "Ingrid Bergman");
        assert_eq!((entry.genre, entry.title), ("Drama", "Casablanca"));
        assert_eq!(entry.all_cast, ["Humphrey Bogart", "Ingrid Bergman"]);
    }
    let keys: Vec<(String, String)> =
        films.find_by_year(&txn, 1942).keys().collect::<Result<_, _>>()?;
    assert_eq!(keys, [("Drama".to_owned(), "Casablanca".to_owned())]);
    assert!(films.update(&mut txn, "Drama", "Casablanca", |f| f.genre = "Romance".into())?);
    assert_eq!(films.get(&txn, "Drama", "Casablanca")?, None);
    assert_eq!(films.find_by_genre(&txn, "Romance").count()?, 1);

    films.insert(&mut txn, &casablanca)?;
    let moved = films.update(&mut txn, "Drama", "Casablanca", |f| f.genre = "Romance".into());
    assert!(matches!(moved, Err(Error::DuplicateKey { .. })));
    assert!(films.delete(&mut txn, "Drama", "Casablanca")?);
    Ok(())
}
