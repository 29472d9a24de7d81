//! The stored data after the service was stopped or killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use index_table::Store;
use index_table_service_example::model::{Customer, CustomerRepository};
use serde_json::{Value, json};

use crate::server::{Client, Result, Server};

const TOWNS: [&str; 3] = ["Chicago", "Portland", "Redmond"];
const NAMES: [&str; 4] = ["Brown", "Jones", "O'Neil & Söhne", "Smith"];

/// The number of clients that write at the same time. Client `n` writes the customers `n`, `n + CLIENTS`, and
/// so on.
const CLIENTS: u64 = 6;
/// The maximum number of customers that a client creates in a round.
const MOST: u64 = 500;

type Customers = BTreeMap<u64, Customer>;

fn customer(id: u64, version: u64) -> Customer {
    let pick =
        |from: &[&str], by: u64| from[((id * 7 + by) % from.len() as u64) as usize].to_owned();
    Customer {
        id,
        revision: 0,
        first_name: format!("First{id}"),
        last_name: pick(&NAMES, version),
        town: pick(&TOWNS, version),
        phone: format!("555-{version}"),
        email: format!("{id}.{version}@example.com"),
    }
}

/// A client's expectation: the customers of acknowledged requests, and the customer of the request without a
/// response, for which both the previous and the new state are valid.
#[derive(Default)]
struct Known {
    customers: Customers,
    without_response: Option<(u64, Option<Customer>)>,
}

impl Known {
    /// Sends a request that changes a customer to the given value; `false` without a response.
    fn request(&mut self, client: &Client, id: u64, wanted: Option<Customer>) -> Result<bool> {
        let path = format!("/customers/{id}");
        let response = match (&wanted, self.customers.contains_key(&id)) {
            (None, _) => client.delete(&path),
            (Some(customer), false) => client.post("/customers", customer),
            (Some(customer), true) if id.is_multiple_of(2) => client.put(&path, customer),
            (Some(customer), true) => {
                let Customer { last_name, town, phone, email, .. } = customer;
                let changes = json!({
                    "last_name": last_name, "town": town, "phone": phone, "email": email,
                });
                client.patch(&path, &changes)
            }
        };
        let Ok((status, body)) = response else {
            self.without_response = Some((id, wanted));
            return Ok(false);
        };
        if !(200..300).contains(&status) {
            return Err(format!("{status}: {body}").into());
        }
        self.set(id, wanted);
        Ok(true)
    }

    fn set(&mut self, id: u64, customer: Option<Customer>) {
        match customer {
            Some(customer) => self.customers.insert(id, customer),
            None => self.customers.remove(&id),
        };
    }
}

/// Creates customers, changes every second one and deletes every fifth, until there is no response.
fn write_until_stopped(client: &Client, first: u64, acknowledged: &AtomicU64) -> Result<Known> {
    let mut known = Known::default();
    for n in 0..MOST {
        let id = first + n * CLIENTS;
        let mut requests = vec![(id, Some(customer(id, 0)))];
        if n % 2 == 1 {
            requests.push((id - CLIENTS, Some(customer(id - CLIENTS, n))));
        }
        if n % 5 == 4 {
            requests.push((id - 2 * CLIENTS, None));
        }
        for (id, wanted) in requests {
            if !known.request(client, id, wanted)? {
                return Ok(known);
            }
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(known)
}

#[test]
fn acknowledged_changes_survive_a_kill() -> Result {
    let directory = tempfile::tempdir()?;
    let mut customers = Customers::new();
    let mut without_response = 0;
    for round in 0..4 {
        without_response += write_and_stop(directory.path(), &mut customers, round, Server::kill)?;
    }
    assert!(without_response > 0, "the service was killed between requests");
    assert_stored(directory.path(), &customers)
}

#[cfg(unix)]
#[test]
fn a_graceful_stop_loses_nothing() -> Result {
    let directory = tempfile::tempdir()?;
    let mut customers = Customers::new();
    write_and_stop(directory.path(), &mut customers, 0, |server| {
        let status = server.terminate()?;
        assert!(status.success(), "{status}");
        Ok(())
    })?;
    assert_stored(directory.path(), &customers)
}

/// Starts the service, stops it while all clients write, starts it again, and compares it with the clients'
/// expectations, which become `customers`. Returns the number of requests without a response.
fn write_and_stop(
    directory: &Path,
    customers: &mut Customers,
    round: u64,
    stop: impl FnOnce(&mut Server) -> Result,
) -> Result<u64> {
    let mut server = Server::start(directory)?;
    let client = server.client.clone();
    let acknowledged = AtomicU64::new(0);
    let known = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let first = round * CLIENTS * MOST + number;
                let (client, acknowledged) = (&client, &acknowledged);
                scope.spawn(move || write_until_stopped(client, first, acknowledged))
            })
            .collect();
        // The service is stopped after a different number of requests in each round.
        let deadline = Instant::now() + Duration::from_secs(20);
        while acknowledged.load(Ordering::Relaxed) < 150 + 37 * round && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        stop(&mut server)?;
        let known =
            clients.into_iter().map(|client| client.join().map_err(|_| "a client panicked")?);
        known.collect::<Result<Vec<_>>>()
    })?;

    let server = Server::start(directory)?;
    let mut without_response = 0;
    for mut known in known {
        if let Some((id, wanted)) = known.without_response.take() {
            without_response += 1;
            let before = known.customers.get(&id).cloned();
            let found = get(&server.client, id)?;
            assert!(found == wanted || found == before, "{found:?}, not {before:?} or {wanted:?}");
            known.set(id, found);
        }
        customers.extend(known.customers);
    }
    assert_matches(&server.client, customers)?;
    Ok(without_response)
}

/// Checks that the customers equal the stored rows, and that no index has further entries.
fn assert_stored(directory: &Path, customers: &Customers) -> Result {
    let store = Store::open(directory)?;
    let repository = CustomerRepository::open(&store)?;
    let txn = store.read()?;
    let stored = repository.all(&txn).rows().map(|row| row.map(|row| (row.id, plain(row))));
    assert_eq!(&stored.collect::<Result<Customers, _>>()?, customers);
    assert_eq!(repository.by_town_last_name(&txn).count()?, customers.len() as u64);
    assert_eq!(repository.by_email(&txn).count()?, customers.len() as u64);
    Ok(())
}

/// Returns a customer without its revision, which the tests ignore.
fn plain(customer: Customer) -> Customer {
    Customer { revision: 0, ..customer }
}

fn get(client: &Client, id: u64) -> Result<Option<Customer>> {
    match client.get(&format!("/customers/{id}"))? {
        (200, customer) => Ok(Some(plain(serde_json::from_value(customer)?))),
        (404, _) => Ok(None),
        (status, error) => Err(format!("{status}: {error}").into()),
    }
}

/// Checks that the customers are found by their id and through each index, and that there are no others.
fn assert_matches(client: &Client, customers: &Customers) -> Result {
    assert_eq!(client.get("/health")?, (200, json!({ "customers": customers.len() })));
    for (id, customer) in customers {
        assert_eq!(get(client, *id)?.as_ref(), Some(customer));
        let path = format!("/customers/by-email/{}", customer.email);
        let (status, found) = client.get(&path)?;
        assert_eq!((status, plain(serde_json::from_value(found)?)), (200, customer.clone()));
    }
    for town in TOWNS {
        let mut expected: Vec<_> =
            customers.values().filter(|customer| customer.town == town).cloned().collect();
        expected.sort_by(|a, b| (&a.last_name, a.id).cmp(&(&b.last_name, b.id)));
        assert_eq!(all_in(client, town)?, expected);
        for name in NAMES {
            let ids = expected.iter().filter(|customer| customer.last_name == name).take(100);
            let ids: Vec<_> = ids.map(|customer| (customer.id, customer.phone.clone())).collect();
            assert_eq!(phone_book(client, town, name)?, ids);
        }
    }
    Ok(())
}

/// Returns the customers of all pages of a town.
fn all_in(client: &Client, town: &str) -> Result<Vec<Customer>> {
    let (mut all, mut after, mut cursors) = (Vec::new(), String::new(), BTreeSet::new());
    loop {
        let path = format!("/customers?town={town}&limit=17{after}");
        let (status, mut page) = client.get(&path)?;
        assert_eq!(status, 200, "{page}");
        let items = serde_json::from_value::<Vec<_>>(page["items"].take())?;
        all.extend(items.into_iter().map(plain));
        let Some(next) = page["next"].as_str() else { return Ok(all) };
        assert!(cursors.insert(next.to_owned()), "a cursor occurs twice");
        after = format!("&after={next}");
    }
}

/// Returns the ids and phone numbers of the first hundred customers with a name, which is escaped in the
/// request.
fn phone_book(client: &Client, town: &str, name: &str) -> Result<Vec<(u64, String)>> {
    let name = name.replace(' ', "%20").replace('&', "%26").replace('ö', "%C3%B6");
    let (status, entries) =
        client.get(&format!("/phone-book?town={town}&last_name={name}&limit=100"))?;
    assert_eq!(status, 200, "{entries}");
    let entry = |entry: &Value| Some((entry["id"].as_u64()?, entry["phone"].as_str()?.to_owned()));
    let entries = entries.as_array().ok_or("the phone book is not a list")?.iter().map(entry);
    Ok(entries.collect::<Option<_>>().ok_or("an entry has no id or no phone number")?)
}
