//! The program on the server in `INDEX_TABLE_POSTGRES_URL`; see `scripts/postgres`.

use std::{env, thread};

use index_table_service_example::model::Customer;
use serde_json::json;

use crate::server::{Result, Server};

fn customer(id: u64) -> Customer {
    Customer {
        id,
        revision: 1,
        first_name: format!("First{id}"),
        last_name: "Smith".to_owned(),
        town: "Redmond".to_owned(),
        phone: format!("555-{id:04}"),
        email: format!("{id}@example.com"),
    }
}

#[test]
fn two_instances_serve_the_same_customers() -> Result {
    let Ok(url) = env::var("INDEX_TABLE_POSTGRES_URL") else {
        eprintln!("not run on PostgreSQL: INDEX_TABLE_POSTGRES_URL is not set");
        return Ok(());
    };
    let start = || Server::start_with(&["--postgres".as_ref(), url.as_ref()]);
    let servers = [start()?, start()?];
    let [one, other] = servers.each_ref().map(|server| &server.client);
    assert_eq!(one.post("/customers", &customer(1))?, (201, json!(customer(1))));
    assert_eq!(other.get("/customers/1")?, (200, json!(customer(1))));
    assert_eq!(other.post("/customers", &customer(1))?.0, 409);
    let taken = Customer { email: customer(1).email, ..customer(2) };
    assert_eq!(other.post("/customers", &taken)?.0, 409);

    // Both instances create customers and change the same one.
    thread::scope(|scope| {
        for (client, first) in [(one, 100), (other, 200)] {
            scope.spawn(move || {
                for id in first..first + 20 {
                    let created = client.post("/customers", &customer(id)).expect("a response");
                    assert_eq!(created.0, 201, "{created:?}");
                    let phone = json!({ "phone": format!("555-{id}") });
                    let changed = client.patch("/customers/1", &phone).expect("a response");
                    assert_eq!(changed.0, 200, "{changed:?}");
                }
            });
        }
    });
    assert_eq!(one.get("/health")?, (200, json!({ "customers": 41 })));
    assert_eq!(other.get("/customers/1")?.1["revision"], 41);
    let (status, page) = one.get("/customers?town=Redmond&limit=30")?;
    assert_eq!((status, page["items"].as_array().map(Vec::len)), (200, Some(30)));
    let next = page["next"].as_str().ok_or("another page")?;
    let rest = other.get(&format!("/customers?town=Redmond&limit=30&after={next}"))?.1;
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(11));

    #[cfg(unix)]
    for mut server in servers {
        assert!(server.terminate()?.success());
    }
    Ok(())
}
