//! The round trips of operations, counted by a proxy between the store and the server.

use std::{
    env,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "people")]
#[index(town)]
#[index(town, name, include = [phone])]
#[index(email, unique)]
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
        town: if id < 40 { "Oslo" } else { "Graz" }.to_owned(),
        name: format!("name {id}"),
        phone: format!("555-{id:04}"),
        email: format!("p{id}@example.com"),
    }
}

/// Copies the messages of a client to the server, and counts those after which the client waits. A client does not
/// wait for the end of a rollback.
fn forward(mut from: TcpStream, mut to: TcpStream, trips: &AtomicU64) -> io::Result<()> {
    // The first message has no kind.
    let mut kind = None;
    to.set_nodelay(true)?;
    loop {
        let mut head = [0; 4];
        from.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes(head) as usize - 4];
        from.read_exact(&mut body)?;
        match kind {
            Some(b'Q') if body.starts_with(b"ROLLBACK\0") => {}
            Some(b'Q' | b'S') => drop(trips.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
        let message = [kind.as_slice(), &head, &body].concat();
        to.write_all(&message)?;
        let mut next = [0];
        from.read_exact(&mut next)?;
        kind = Some(next[0]);
    }
}

/// Starts a proxy, and returns the URL of the server through it, with the counter.
fn proxy(url: &str) -> io::Result<(String, Arc<AtomicU64>)> {
    let server = url.split('@').nth(1).and_then(|rest| rest.split('/').next());
    let server = server.ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let through = url.replace(&server, &listener.local_addr()?.to_string());
    let trips = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&trips);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { return };
            let (Ok(mut from), Ok(mut to)) = (server.try_clone(), client.try_clone()) else {
                return;
            };
            let _ = to.set_nodelay(true);
            thread::spawn(move || {
                io::copy(&mut from, &mut to).and_then(|_| to.shutdown(std::net::Shutdown::Both))
            });
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                let end = server.try_clone();
                // The end of the connection is an error here.
                let _ = forward(client, server, &counter);
                end.and_then(|end| end.shutdown(std::net::Shutdown::Both))
            });
        }
    });
    Ok((through, trips))
}

/// A name, the expected number of round trips, and the operation.
type Operation<'a> = (&'a str, u64, &'a dyn Fn(&Store, u64) -> Result<()>);

#[test]
fn operations_take_their_documented_round_trips() -> TestResult {
    let (Some(schema), Ok(url)) = (Schema::new(), env::var("INDEX_TABLE_POSTGRES_URL")) else {
        return Ok(());
    };
    let (url, trips) = proxy(&url)?;
    let store = schema.options().connections(1).connect(&url)?;
    // Keeps the schema's own client apart, which removes it.
    schema.open()?;
    let people = PersonRepository::open(&store)?;
    people.bulk_load(&store, (0..1_500).map(person)).run()?;

    let operations: [Operation<'_>; 14] = [
        ("a read transaction alone", 1, &|store, _| store.read().map(drop)),
        ("get", 2, &|store, id| people.get(&store.read()?, id).map(drop)),
        ("get_many of 100", 2, &|store, id| {
            let txn = store.read()?;
            people.get_many(&txn, id..id + 100).try_for_each(|row| row.map(drop))
        }),
        ("get by a unique index", 3, &|store, id| {
            people.get_by_email(&store.read()?, &format!("p{id}@example.com")).map(drop)
        }),
        ("40 rows of a key", 2, &|store, _| {
            let txn = store.read()?;
            people.find_by_town(&txn, "Oslo").rows().try_for_each(|row| row.map(drop))
        }),
        ("40 covered entries", 2, &|store, _| {
            let txn = store.read()?;
            people
                .find_by_town_name(&txn, "Oslo", "name 7")
                .entries()
                .try_for_each(|it| it.map(drop))
        }),
        ("a page of 20", 2, &|store, _| {
            let txn = store.read()?;
            people.find_by_town(&txn, "Graz").page(20).map(drop)
        }),
        ("a count", 2, &|store, _| people.find_by_town(&store.read()?, "Graz").count().map(drop)),
        // 64, 256, 1,024 and the others.
        ("1,500 rows", 5, &|store, _| {
            let txn = store.read()?;
            people.all(&txn).rows().try_for_each(|row| row.map(drop))
        }),
        ("a write transaction alone", 2, &|store, _| store.write()?.commit()),
        // The row and three entries.
        ("insert", 6, &|store, id| {
            store.transaction(|txn| people.insert(txn, &person(10_000 + id)))
        }),
        // The old row, the new row, the look-up of the new key, and both entries.
        ("update of a unique field", 7, &|store, id| {
            let change = |it: &mut Person| it.email = format!("{id}@example.com");
            store.transaction(|txn| people.update(txn, 100 + id, change).map(drop))
        }),
        // The old row, the row and three entries.
        ("delete", 7, &|store, id| store.transaction(|txn| people.delete(txn, 200 + id).map(drop))),
        ("a nested transaction", 4, &|store, _| store.transaction(|txn| txn.nested(|_| Ok(())))),
    ];
    let mut counted = Vec::new();
    for (name, _, operation) in &operations {
        // The statements are prepared.
        operation(&store, 1)?;
        let before = trips.load(Ordering::Relaxed);
        operation(&store, 2)?;
        counted.push((*name, trips.load(Ordering::Relaxed) - before));
    }
    assert_eq!(counted, operations.map(|(name, trips, _)| (name, trips)));
    Ok(())
}
