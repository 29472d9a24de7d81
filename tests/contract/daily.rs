//! The features of daily work: changes that can fail, old rows, deletion by query, savepoints, `IN` lists and pages.

use index_table::{Error, IndexTable, Store};
use serde::{Deserialize, Serialize};

use super::{Customer, CustomerRepository, TestResult, customer};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Ticket {
    #[primary_key]
    id: u64,
    minutes: u32,
    closed: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(each(computed(words: Vec<String>)))]
struct Note {
    #[primary_key]
    id: u64,
    text: String,
}

impl Note {
    fn words(&self) -> Vec<String> {
        self.text.split_whitespace().map(str::to_lowercase).collect()
    }
}

#[derive(Debug)]
enum AppError {
    Closed,
    Store(Error),
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

fn people() -> [Customer; 4] {
    [
        customer(1, "Alice", "Smith", "Redmond"),
        customer(2, "Bob", "Jones", "Redmond"),
        customer(3, "Carol", "Brown", "Seattle"),
        customer(4, "Dave", "Smith", "Chicago"),
    ]
}

#[test]
fn documented_changes_return_the_documented_rows() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let (tickets, customers) = (TicketRepository::open(&store)?, CustomerRepository::open(&store)?);
    let mut txn = store.write()?;
    tickets.insert(&mut txn, &Ticket { id: 7, minutes: 10, closed: false })?;
    tickets.insert(&mut txn, &Ticket { id: 8, minutes: 0, closed: true })?;
    people().iter().try_for_each(|row| customers.insert(&mut txn, row))?;

    let mut add = |id: u64| -> Result<Option<u32>, AppError> {
        tickets.try_update(&mut txn, id, |t| {
            if t.closed {
                return Err(AppError::Closed);
            }
            t.minutes += 5;
            Ok(t.minutes)
        })
    };
    assert!(matches!(add(7), Ok(Some(15))));
    assert!(matches!(add(8), Err(AppError::Closed)));
    assert!(matches!(add(9), Ok(None)));
    let taken = Ticket { id: 7, minutes: 0, closed: false };
    let error = tickets.insert(&mut txn, &taken).map_err(AppError::from);
    assert!(matches!(error, Err(AppError::Store(Error::DuplicateKey { .. }))));

    let ticket = Ticket { id: 7, minutes: 20, closed: true };
    let old: Option<Ticket> = tickets.replace(&mut txn, &ticket)?;
    assert_eq!(old, Some(Ticket { id: 7, minutes: 15, closed: false }));
    let old: Option<Ticket> = tickets.remove(&mut txn, 7)?;
    assert_eq!(old, Some(ticket));

    let row = Customer { id: 20, email: people()[0].email.clone(), ..people()[0].clone() };
    customers.put_by_email(&mut txn, &row)?;
    assert_eq!((customers.get(&txn, 1)?, customers.get(&txn, 20)?), (None, Some(row.clone())));
    let third = Customer { id: 2, ..row };
    let refused = customers.put_by_email(&mut txn, &third);
    assert!(matches!(refused, Err(Error::DuplicateKey { .. })));
    let gone: bool = customers.delete_by_email(&mut txn, &people()[2].email)?;
    assert!(gone);

    let outcome = txn.nested(|txn| {
        customers.insert(txn, &customer(30, "Eve", "White", "Redmond"))?;
        customers.insert(txn, &third)
    });
    assert!(outcome.is_err());
    assert_eq!(customers.get(&txn, 30)?, None);
    let n: u64 = customers.find_by_town(&txn, "Redmond").query().delete(&mut txn)?;
    assert_eq!((n, customers.all(&txn).count()?), (2, 1));
    Ok(())
}

#[test]
fn documented_lists_and_pages_return_the_documented_rows() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let (customers, notes) = (CustomerRepository::open(&store)?, NoteRepository::open(&store)?);
    store.transaction(|txn| {
        people().iter().try_for_each(|row| customers.insert(txn, row))?;
        notes.insert(txn, &Note { id: 1, text: "Red apples".into() })
    })?;

    let txn = store.read()?;
    let rows = customers.find_by_town_in(&txn, ["Redmond", "Seattle"]).rows();
    let ids = rows.map(|row| row.map(|row| row.id)).collect::<Result<Vec<_>, _>>()?;
    assert_eq!(ids, [1, 2, 3]);
    for (town, matching) in [(Some("Redmond"), vec![1, 2]), (None, vec![2, 4])] {
        let scan = match town {
            Some(town) => customers.find_by_town(&txn, town).boxed(),
            None => customers.by_last_name(&txn).boxed(),
        };
        let page = scan.filter(|row| row.id != 3 && (town.is_some() || row.id != 1)).page(20)?;
        assert_eq!(page.items.iter().map(|row| row.id).collect::<Vec<_>>(), matching);
        assert!(page.next.is_none() && page.previous.is_none());
    }
    let page = customers.find_by_town(&txn, "Redmond").page(1)?;
    let cursor = page.next.unwrap();
    let back = customers.find_by_town(&txn, "Redmond").before(&cursor).page(20)?;
    assert_eq!(back.items, people()[..1]);
    let entries = customers.find_by_town_last_name(&txn, "Redmond", "Smith").page_entries(20)?;
    assert_eq!(entries.items.len(), 1);
    assert_eq!(notes.find_by_words(&txn, "red").count()?, 1);
    Ok(())
}

#[test]
fn documented_calls_open_verify_and_measure_a_store() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("shop");
    let created = Store::options().create(false).open(&path);
    assert!(matches!(created, Err(Error::StoreNotFound { .. })));
    {
        let store = Store::open(&path)?;
        let customers = CustomerRepository::open(&store)?;
        store.transaction(|txn| people().iter().try_for_each(|row| customers.insert(txn, row)))?;
        let report = store.verify()?;
        assert!(report.is_clean());
        let sizes = store.sizes()?;
        assert_eq!(sizes.iter().map(|size| size.rows).collect::<Vec<_>>(), [4]);
    }
    let store = Store::options().read_only(true).open(&path)?;
    let customers = CustomerRepository::open(&store)?;
    assert_eq!(customers.all(&store.read()?).count()?, 4);
    Ok(())
}
