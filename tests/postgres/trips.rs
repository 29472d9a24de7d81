//! The round trips of operations, counted by a proxy between the store and the server.

use std::{
    collections::VecDeque,
    env,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "people")]
#[index(town)]
#[index(town, name, include = [phone])]
#[index(email, unique)]
#[aggregate(town)]
struct Person {
    #[primary_key]
    id: u64,
    town: String,
    name: String,
    phone: String,
    email: String,
}

fn person(id: u64) -> Person {
    Person {
        id,
        town: match id {
            2_000..2_200 => "Oslo",
            3_000..29_000 => "Wien",
            _ => "Graz",
        }
        .to_owned(),
        name: format!("name {id}"),
        phone: format!("555-{id:04}"),
        email: format!("p{id}@example.com"),
    }
}

/// The time by which the proxy delays responses, so that all messages that a client sends before it waits arrive first.
const DELAY: Duration = Duration::from_millis(15);

/// The requests of a connection that the client waits for.
#[derive(Default)]
struct Requests {
    /// Whether each request without a response counts. A client does not wait for the end of a rollback.
    open: VecDeque<bool>,
    /// The number of times that the client has started to wait.
    trips: u64,
}

impl Requests {
    fn send(&mut self, counts: bool) {
        self.trips += u64::from(counts && !self.open.contains(&true));
        self.open.push_back(counts);
    }
}

/// Copies the messages of a client to the server.
fn forward(mut from: TcpStream, mut to: TcpStream, requests: &Mutex<Requests>) -> io::Result<()> {
    // The first message has no kind.
    let mut kind = None;
    to.set_nodelay(true)?;
    loop {
        let mut head = [0; 4];
        from.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes(head) as usize - 4];
        from.read_exact(&mut body)?;
        if kind.is_none() || matches!(kind, Some(b'Q' | b'S')) {
            let counts = kind.is_some() && !body.starts_with(b"ROLLBACK\0");
            requests.lock().expect("the requests").send(counts);
        }
        to.write_all(&[kind.as_slice(), &head, &body].concat())?;
        let mut next = [0];
        from.read_exact(&mut next)?;
        kind = Some(next[0]);
    }
}

/// Copies the messages of the server to a client.
fn respond(mut from: TcpStream, mut to: TcpStream, requests: &Mutex<Requests>) -> io::Result<()> {
    to.set_nodelay(true)?;
    loop {
        let mut head = [0; 5];
        from.read_exact(&mut head)?;
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; len - 4];
        from.read_exact(&mut body)?;
        // The server is ready for the next request, or for data: then, it ignores the `Sync` of the request.
        if matches!(head[0], b'Z' | b'G') {
            thread::sleep(DELAY);
            requests.lock().expect("the requests").open.pop_front();
        }
        to.write_all(&[&head[..], &body].concat())?;
    }
}

/// Starts a proxy, and returns the URL of the server through it, with the requests of its connection.
fn proxy(url: &str) -> io::Result<(String, Arc<Mutex<Requests>>)> {
    let server = url.split('@').nth(1).and_then(|rest| rest.split('/').next());
    let server = server.ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let through = url.replace(&server, &listener.local_addr()?.to_string());
    let all = Arc::new(Mutex::new(Requests::default()));
    let requests = Arc::clone(&all);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { return };
            let (Ok(from), Ok(to)) = (server.try_clone(), client.try_clone()) else { return };
            requests.lock().expect("the requests").open.clear();
            for way in [true, false] {
                let requests = Arc::clone(&requests);
                let (Ok(client), Ok(server)) = (client.try_clone(), server.try_clone()) else {
                    return;
                };
                let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
                thread::spawn(move || {
                    // The end of the connection is an error here.
                    let _ = if way {
                        forward(client, server, &requests)
                    } else {
                        respond(from, to, &requests)
                    };
                });
            }
        }
    });
    Ok((through, all))
}

/// A name, the expected number of round trips, and the operation.
type Operation<'a> = (&'a str, u64, &'a dyn Fn(&Store, u64) -> Result<()>);

#[test]
fn operations_take_their_documented_round_trips() -> TestResult {
    let (Some(schema), Ok(url)) = (Schema::new(), env::var("INDEX_TABLE_POSTGRES_URL")) else {
        return Ok(());
    };
    let (url, requests) = proxy(&url)?;
    let trips = || requests.lock().expect("the requests").trips;
    let store = schema.options().connections(1).connect(&url)?;
    // Keeps the separate client of the schema, which removes the schema.
    schema.open()?;
    let people = PersonRepository::open(&store)?;
    people.bulk_load(&store, (0..30_000).map(person)).run()?;

    // The numbers of round trips of the fastest known layout are 1 for a query of any size: all rows are in one response.
    // A scan has parts instead, so that a transaction can run other queries during the scan.
    let operations: [Operation<'_>; 24] = [
        ("a read transaction alone", 0, &|store, _| store.read().map(drop)),
        ("get", 1, &|store, id| people.get(&store.read()?, id).map(drop)),
        ("get_many of 100", 1, &|store, id| {
            let txn = store.read()?;
            people.get_many(&txn, id..id + 100).try_for_each(|row| row.map(drop))
        }),
        ("get by a unique index", 1, &|store, id| {
            people.get_by_email(&store.read()?, &format!("p{id}@example.com")).map(drop)
        }),
        ("200 rows of a key", 1, &|store, _| {
            let txn = store.read()?;
            people.find_by_town(&txn, "Oslo").rows().try_for_each(|row| row.map(drop))
        }),
        // 256, 1,024, 4,096, and then about 1 MB each.
        ("26,000 rows of a key", 5, &|store, _| {
            let txn = store.read()?;
            people.find_by_town(&txn, "Wien").rows().try_for_each(|row| row.map(drop))
        }),
        ("200 covered entries", 1, &|store, _| {
            let txn = store.read()?;
            let entries = people.find_by_town_name_starting_with(&txn, "Oslo", "name");
            entries.entries().try_for_each(|it| it.map(drop))
        }),
        ("a page of 20", 1, &|store, _| {
            let txn = store.read()?;
            people.find_by_town(&txn, "Graz").page(20).map(drop)
        }),
        ("a count", 1, &|store, _| {
            let txn = store.read()?;
            people.find_by_town_name_starting_with(&txn, "Wien", "name").count().map(drop)
        }),
        ("the count of a group", 1, &|store, _| {
            people.find_by_town(&store.read()?, "Wien").count().map(drop)
        }),
        ("the totals of a group", 1, &|store, _| {
            people.aggregate_by_town(&store.read()?, "Wien").map(drop)
        }),
        ("all 30,000 rows", 5, &|store, _| {
            let txn = store.read()?;
            people.all(&txn).rows().try_for_each(|row| row.map(drop))
        }),
        ("a write transaction alone", 0, &|store, _| store.write()?.commit()),
        // The row with its entries and a stripe of its group, and the commit.
        ("insert", 2, &|store, id| {
            store.transaction(|txn| people.insert(txn, &person(40_000 + id)))
        }),
        ("insert with autocommit", 1, &|store, id| {
            people.insert(&mut store.autocommit()?, &person(50_000 + id))
        }),
        // The old row; the changes with the commit.
        ("put with autocommit", 2, &|store, id| {
            let row = Person { town: "Bonn".to_owned(), ..person(400 + id) };
            people.put(&mut store.autocommit()?, &row)
        }),
        ("update", 2, &|store, id| {
            let change = |it: &mut Person| it.town = "Ulm".to_owned();
            store.transaction(|txn| people.update(txn, 300 + id, change).map(drop))
        }),
        // The old row, the look-up of the new key, and the changes with the commit.
        ("update of a unique field", 3, &|store, id| {
            let change = |it: &mut Person| it.email = format!("{id}@example.com");
            store.transaction(|txn| people.update(txn, 100 + id, change).map(drop))
        }),
        ("delete with autocommit", 2, &|store, id| {
            people.delete(&mut store.autocommit()?, 500 + id).map(drop)
        }),
        ("delete", 2, &|store, id| store.transaction(|txn| people.delete(txn, 200 + id).map(drop))),
        ("a nested transaction alone", 0, &|store, _| {
            store.transaction(|txn| txn.nested(|_| Ok(())))
        }),
        // The row with the savepoint, the release, and the commit.
        ("insert in a nested transaction", 3, &|store, id| {
            store.transaction(|txn| txn.nested(|txn| people.insert(txn, &person(60_000 + id))))
        }),
        // The block of numbers was taken before.
        ("insert_with with autocommit", 1, &|store, _| {
            people.insert_with(&mut store.autocommit()?, person).map(drop)
        }),
        ("insert_with", 2, &|store, _| {
            store.transaction(|txn| people.insert_with(txn, person).map(drop))
        }),
    ];
    let mut counted = Vec::new();
    for (name, _, operation) in &operations {
        // The statements are prepared.
        operation(&store, 1)?;
        // A thread that has to wait for a core sends late, so the least of several runs counts.
        let mut least = u64::MAX;
        for id in 2..5 {
            let before = trips();
            operation(&store, id)?;
            least = least.min(trips() - before);
        }
        counted.push((*name, least));
    }
    assert_eq!(counted, operations.map(|(name, trips, _)| (name, trips)));
    Ok(())
}
