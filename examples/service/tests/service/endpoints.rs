//! Requests to each endpoint.

use std::thread;

use crate::server::{Result, Server};
use index_table_service_example::model::Customer;
use serde_json::{Value, json};

fn customer(id: u64, last_name: &str, town: &str) -> Customer {
    Customer {
        id,
        revision: 1,
        first_name: format!("First{id}"),
        last_name: last_name.to_owned(),
        town: town.to_owned(),
        phone: format!("555-{id:04}"),
        email: format!("{id}@example.com"),
    }
}

#[test]
fn a_customer_is_created_changed_and_deleted() -> Result {
    let directory = tempfile::tempdir()?;
    let server = Server::start(directory.path())?;
    let client = &server.client;
    let mut alice = customer(7, "Smith", "Redmond");

    assert_eq!(client.get("/customers/7")?, (404, json!({ "error": "there is no such customer" })));
    assert_eq!(client.post("/customers", &alice)?, (201, json!(alice)));
    assert_eq!(client.get("/customers/7")?, (200, json!(alice)));
    assert_eq!(client.get("/customers/by-email/7@example.com")?, (200, json!(alice)));
    assert_eq!(client.get("/health")?, (200, json!({ "customers": 1 })));

    alice.town = "Seattle".to_owned();
    alice.revision = 2;
    assert_eq!(client.put("/customers/7", &alice)?, (200, json!(alice)));
    alice.phone = "555-0199".to_owned();
    alice.email = "alice@example.com".to_owned();
    alice.revision = 3;
    let changes = json!({ "phone": alice.phone, "email": alice.email, "town": null });
    assert_eq!(client.patch("/customers/7", &changes)?, (200, json!(alice)));
    assert_eq!(client.get("/customers/by-email/alice@example.com")?, (200, json!(alice)));
    assert_eq!(client.get("/customers/by-email/7@example.com")?.0, 404);
    assert_eq!(client.get("/customers?town=Redmond")?, (200, json!({ "items": [], "next": null })));
    assert_eq!(
        client.get("/customers?town=Seattle")?,
        (200, json!({ "items": [alice], "next": null }))
    );

    let (status, usage) = client.get("/usage")?;
    assert_eq!((status, &usage["inserts"]), (200, &json!(1)));
    assert_eq!(usage["indexes"][1]["name"], "email");
    assert_eq!(usage["indexes"][1]["queries"], 3);

    // Replacing a missing customer creates it.
    let bruno = customer(8, "Jones", "Seattle");
    assert_eq!(client.put("/customers/8", &bruno)?, (201, json!(bruno)));

    assert_eq!(client.delete("/customers/7")?, (204, Value::Null));
    assert_eq!(client.delete("/customers/7")?.0, 404);
    assert_eq!(client.patch("/customers/7", &changes)?.0, 404);
    assert_eq!(
        client.get("/customers?town=Seattle")?,
        (200, json!({ "items": [bruno], "next": null }))
    );
    Ok(())
}

#[test]
fn an_edit_of_a_changed_customer_is_refused() -> Result {
    let directory = tempfile::tempdir()?;
    let server = Server::start(directory.path())?;
    let client = &server.client;
    let alice = customer(7, "Smith", "Redmond");
    let edit = |method: &str, tag: &str, body: &Value| {
        client.send_if("/customers/7", (method, tag), body.to_string())
    };
    let changed = json!({ "error": "the customer has been changed since it was read" });

    assert_eq!(edit("PUT", "\"3\"", &json!(alice))?, (412, changed.clone()));
    assert_eq!(client.post("/customers", &alice)?.0, 201);
    assert_eq!(client.etag("/customers/7")?, "\"1\"");
    let phone = json!({ "phone": "555-0199" });
    assert_eq!(edit("PATCH", "\"1\"", &phone)?.0, 200);
    assert_eq!(client.etag("/customers/7")?, "\"2\"");

    // A client that read the first revision.
    assert_eq!(edit("PATCH", "\"1\"", &phone)?, (412, changed.clone()));
    assert_eq!(edit("PUT", "\"1\"", &json!(alice))?, (412, changed.clone()));
    assert_eq!(edit("DELETE", "\"1\"", &Value::Null)?, (412, changed));
    assert_eq!(edit("PUT", "W/\"2\"", &json!(alice))?.0, 412);
    assert_eq!(client.get("/customers/7")?.1["phone"], "555-0199");

    assert_eq!(edit("PUT", "\"2\"", &json!(alice))?.0, 200);
    assert_eq!(edit("DELETE", "\"3\"", &Value::Null)?.0, 204);
    assert_eq!(edit("DELETE", "\"3\"", &Value::Null)?.0, 404);
    Ok(())
}

#[test]
fn a_conflict_names_the_field() -> Result {
    let directory = tempfile::tempdir()?;
    let server = Server::start(directory.path())?;
    let client = &server.client;
    let [alice, bruno] = [customer(1, "Smith", "Redmond"), customer(2, "Jones", "Redmond")];
    for customer in [&alice, &bruno] {
        assert_eq!(client.post("/customers", customer)?.0, 201);
    }
    let id = json!({ "error": "there is a customer with this id already", "field": "id" });
    let email = json!({ "error": "another customer has this email", "field": "email" });

    let same_id = Customer { id: 1, ..customer(3, "Green", "Chicago") };
    assert_eq!(client.post("/customers", &same_id)?, (409, id));
    let same_email = Customer { email: alice.email.clone(), ..customer(3, "Green", "Chicago") };
    assert_eq!(client.post("/customers", &same_email)?, (409, email.clone()));
    let bruno_as_alice = Customer { email: alice.email.clone(), ..bruno.clone() };
    assert_eq!(client.put("/customers/2", &bruno_as_alice)?, (409, email.clone()));
    assert_eq!(client.patch("/customers/2", &json!({ "email": alice.email }))?, (409, email));

    // Nothing has changed.
    assert_eq!(client.get("/customers/1")?, (200, json!(alice)));
    assert_eq!(client.get("/customers/2")?, (200, json!(bruno)));
    assert_eq!(client.get("/health")?, (200, json!({ "customers": 2 })));
    Ok(())
}

#[test]
fn a_town_is_read_in_pages() -> Result {
    let directory = tempfile::tempdir()?;
    let server = Server::start(directory.path())?;
    let client = &server.client;
    let names = ["Brown", "Clarke", "Green", "Jones", "Smith"];
    let mut town: Vec<_> =
        (1..).zip(names.repeat(9)).map(|(id, name)| customer(id, name, "Redmond")).collect();
    for customer in town.iter().chain([&customer(99, "Smith", "Redmond Ridge")]) {
        assert_eq!(client.post("/customers", customer)?.0, 201);
    }
    town.sort_by(|a, b| (&a.last_name, a.id).cmp(&(&b.last_name, b.id)));

    let page = |query: &str| -> Result<(Vec<Customer>, Option<String>)> {
        let (status, mut page) = client.get(&format!("/customers?town=Redmond{query}"))?;
        assert_eq!(status, 200, "{page}");
        let next = page["next"].as_str().map(str::to_owned);
        Ok((serde_json::from_value(page["items"].take())?, next))
    };
    let (first, next) = page("")?;
    assert_eq!(first, town[..20]);
    let next = next.ok_or("no next page")?;
    // A new customer before the cursor doesn't move the customers after it.
    assert_eq!(client.post("/customers", &customer(46, "Adams", "Redmond"))?.0, 201);
    let (second, next) = page(&format!("&limit=20&after={next}"))?;
    assert_eq!(second, town[20..40]);
    let next = next.ok_or("no next page")?;
    assert_eq!(page(&format!("&after={next}"))?, (town[40..].to_vec(), None));
    assert_eq!(page("&limit=65535")?.0.len(), 46);

    // A cursor is valid for its town; other text is not a cursor.
    for query in [format!("Chicago&after={next}"), "Redmond&after=page2".to_owned()] {
        let (status, error) = client.get(&format!("/customers?town={query}"))?;
        assert_eq!(status, 400, "{error}");
        assert!(error["error"].is_string(), "{error}");
    }
    Ok(())
}

#[test]
fn the_phone_book_has_the_entries_of_the_index() -> Result {
    let directory = tempfile::tempdir()?;
    let server = Server::start(directory.path())?;
    let client = &server.client;
    for (id, name, town) in
        [(1, "Smith", "Redmond"), (2, "Smithson", "Redmond"), (3, "Smith", "Chicago")]
    {
        assert_eq!(client.post("/customers", &customer(id, name, town))?.0, 201);
    }
    let odd = Customer { first_name: "\0\"é".to_owned(), ..customer(4, "Smith", "Redmond") };
    assert_eq!(client.post("/customers", &odd)?.0, 201);

    let entry = |id: u64, first_name: &str| {
        json!({
            "town": "Redmond", "last_name": "Smith", "id": id,
            "first_name": first_name, "phone": format!("555-{id:04}"),
        })
    };
    let path = "/phone-book?town=Redmond&last_name=Smith";
    let both = json!([entry(1, "First1"), entry(4, "\0\"é")]);
    assert_eq!(client.get(path)?, (200, both));
    assert_eq!(client.get(&format!("{path}&limit=1"))?, (200, json!([entry(1, "First1")])));
    assert_eq!(client.get("/phone-book?town=Redmond&last_name=Sm")?, (200, json!([])));
    Ok(())
}

#[test]
fn errors_of_a_request_are_json() -> Result {
    let directory = tempfile::tempdir()?;
    let server = Server::start(directory.path())?;
    let client = &server.client;
    let alice = customer(1, "Smith", "Redmond");
    let long = |field: &str, len| json!({ field: "x".repeat(len) });
    assert_eq!(client.post("/customers", &alice)?.0, 201);
    let requests = [
        (400, client.send("POST", "/customers", "{".to_owned())?),
        (422, client.post("/customers", &json!({ "id": 2 }))?),
        (422, client.post("/customers", &json!({ "id": -2 }))?),
        (422, client.put("/customers/2", &alice)?),
        (422, client.patch("/customers/1", &json!({ "id": 2 }))?),
        (422, client.patch("/customers/1", &json!({ "town": 7 }))?),
        (422, client.patch("/customers/1", &long("town", 512))?),
        (413, client.patch("/customers/1", &long("phone", 1 << 15))?),
        (400, client.get("/customers/alice")?),
        (400, client.get("/customers")?),
        (400, client.get("/customers?town=Redmond&limit=0")?),
        (400, client.get("/customers?town=Redmond&limit=-1")?),
        (400, client.get("/customers?town=Redmond&cursor=01")?),
        (400, client.get("/phone-book?town=Redmond")?),
        (404, client.get("/clients")?),
        (405, client.delete("/customers")?),
    ];
    for (expected, (status, error)) in requests {
        assert_eq!(status, expected, "{error}");
        assert!(error["error"].as_str().is_some_and(|error| !error.is_empty()), "{error}");
    }
    assert_eq!(client.get("/customers/1")?, (200, json!(alice)));
    assert_eq!(client.get("/health")?, (200, json!({ "customers": 1 })));
    Ok(())
}

#[test]
fn one_of_several_concurrent_requests_gets_an_email_or_id() -> Result {
    const CLIENTS: u64 = 8;
    const EACH: u64 = 20;
    let directory = tempfile::tempdir()?;
    let server = Server::start(directory.path())?;
    let run = |number: u64| -> Result<(u64, u64)> {
        let (mut emails, mut ids) = (0, 0);
        for n in 0..EACH {
            let own = customer(CLIENTS * n + number, "Smith", "Redmond");
            let same_email = Customer { email: format!("{n}@example.org"), ..own };
            let same_id = Customer {
                email: format!("{n}-{number}@example.net"),
                ..customer(1_000_000 + n, "Jones", "Redmond")
            };
            for (customer, field, won) in
                [(same_email, "email", &mut emails), (same_id, "id", &mut ids)]
            {
                let (status, body) = server.client.post("/customers", &customer)?;
                match status {
                    201 => *won += 1,
                    409 => assert_eq!(body["field"], field),
                    _ => return Err(format!("{status}: {body}").into()),
                }
            }
        }
        Ok((emails, ids))
    };
    let won = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || run(number))).collect();
        let joined =
            clients.into_iter().map(|client| client.join().map_err(|_| "a client panicked")?);
        joined.collect::<Result<Vec<_>>>()
    })?;
    assert_eq!(won.iter().map(|(emails, _)| emails).sum::<u64>(), EACH);
    assert_eq!(won.iter().map(|(_, ids)| ids).sum::<u64>(), EACH);
    assert_eq!(server.client.get("/health")?, (200, json!({ "customers": 2 * EACH })));
    Ok(())
}
