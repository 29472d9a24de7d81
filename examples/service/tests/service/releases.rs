//! Two releases of the program on the store of the first: the second has one more field in a row.

#[path = "../../src/release_2/model.rs"]
#[allow(unreachable_pub, reason = "the file is a public module of the program")]
mod release_2;

use std::path::Path;

use index_table::Store;
use serde_json::{Value, json};

use crate::server::{Client, Result, Server};

/// A customer of the first release, as it is sent.
fn customer(id: u64, town: &str) -> Value {
    json!({
        "id": id,
        "revision": 1,
        "first_name": format!("First{id}"),
        "last_name": "Smith",
        "town": town,
        "phone": format!("555-{id:04}"),
        "email": format!("{id}@example.com"),
    })
}

/// A customer of the second release.
fn with_company(mut customer: Value, company: Option<&str>) -> Value {
    customer["company"] = json!(company);
    customer
}

/// Returns a customer with this revision.
fn revised(mut customer: Value, revision: u64) -> Value {
    customer["revision"] = json!(revision);
    customer
}

/// Returns the customers of a town, which are read from the index by town and last name.
fn in_town(client: &Client, town: &str) -> Result<Value> {
    Ok(client.get(&format!("/customers?town={town}"))?.1["items"].take())
}

fn stop(server: Server) -> Result {
    let mut server = server;
    #[cfg(unix)]
    assert!(server.terminate()?.success());
    #[cfg(not(unix))]
    server.kill()?;
    Ok(())
}

/// Verifies the store with the model of the second release, and returns the companies in the order of the ids.
fn verified(directory: &Path) -> Result<Vec<Option<String>>> {
    let store = Store::open(directory)?;
    let customers = release_2::CustomerRepository::open(&store)?;
    let txn = store.read()?;
    let report = customers.verify(&txn).run()?;
    assert!(report.is_clean(), "{report:?}");
    customers.all(&txn).into_iter().map(|row| Ok(row?.company)).collect()
}

#[test]
fn the_second_release_and_then_the_first_open_the_store() -> Result {
    let directory = tempfile::tempdir()?;
    let acme = Some("Acme");

    let first = Server::start(directory.path())?;
    for id in 1..=3 {
        assert_eq!(first.client.post("/customers", &customer(id, "Redmond"))?.0, 201);
    }
    stop(first)?;

    let second = Server::start_release_2(directory.path())?;
    let client = &second.client;
    let [one, two, three] = [1, 2, 3].map(|id| with_company(customer(id, "Redmond"), None));
    assert_eq!(client.get("/customers/1")?, (200, one.clone()));
    assert_eq!(in_town(client, "Redmond")?, json!([one, two, three]));
    let two = with_company(revised(two, 2), acme);
    assert_eq!(client.put("/customers/2", &two)?, (200, two.clone()));
    let four = with_company(customer(4, "Redmond"), acme);
    assert_eq!(client.post("/customers", &four)?, (201, four.clone()));
    assert_eq!(client.get("/customers/by-email/4@example.com")?, (200, four.clone()));
    assert_eq!(in_town(client, "Redmond")?, json!([one, two, three, four]));
    stop(second)?;
    let acme = acme.map(str::to_owned);
    assert_eq!(verified(directory.path())?, [None, acme.clone(), None, acme.clone()]);

    // The first release does not know the company, and keeps that of a customer that it writes.
    let first = Server::start(directory.path())?;
    let client = &first.client;
    assert_eq!(client.get("/customers/4")?, (200, customer(4, "Redmond")));
    let moved = json!({ "town": "Seattle" });
    let two = revised(customer(2, "Seattle"), 3);
    assert_eq!(client.patch("/customers/2", &moved)?, (200, two.clone()));
    assert_eq!(in_town(client, "Seattle")?, json!([two]));
    stop(first)?;
    assert_eq!(verified(directory.path())?, [None, acme.clone(), None, acme.clone()]);

    let second = Server::start_release_2(directory.path())?;
    assert_eq!(second.client.get("/customers/2")?, (200, with_company(two, acme.as_deref())));
    assert_eq!(second.client.get("/customers/4")?, (200, four));
    stop(second)
}

#[test]
fn the_models_differ_in_one_line_and_its_comment() {
    let first: Vec<_> = include_str!("../../src/model.rs").lines().collect();
    let second: Vec<_> = include_str!("../../src/release_2/model.rs").lines().collect();
    let new: Vec<_> =
        second.iter().filter(|line| !first.contains(line)).map(|line| line.trim()).collect();
    let comment = "/// The company, if the customer has one.";
    assert_eq!(new, [comment, "pub company: Option<String>,"]);
    assert_eq!(second.len(), first.len() + new.len());
}
