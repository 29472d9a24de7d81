//! The statements, as text. After a deliberate change, `INDEX_TABLE_GOLDEN=write` writes the file.

use std::{env, fmt::Write as _, fs, path::Path, time::Duration};

use super::{
    batch::{Batch, Kind, Mode},
    catalog::Catalog,
    names::{Form, Relation},
    select::{self, Conditions, Place},
    sql,
    token::{self, Token},
};
use crate::{
    engine::Query,
    model::{KeyRange, schema::Source},
};

fn relations() -> [Relation; 4] {
    let relation = |name, form| Relation::new("shop", name, form);
    [
        relation("people", Form::Pairs),
        relation("people.town", Form::Entries),
        relation("people.email", Form::Unique),
        relation("people.total", Form::Pairs),
    ]
}

/// The insertion of a row with an aggregate.
fn insertion() -> Batch {
    let ([facts, town, email, total], mut batch) = (relations(), Batch::default());
    assert!(batch.push(&email, Kind::New, &[b"mail", b"id", b""]));
    assert!(batch.push(&facts, Kind::New, &[b"id", b"row"]));
    assert!(batch.push(&town, Kind::Put, &[b"Oslo", b"id", b""]));
    assert!(batch.push(&total, Kind::Add, &[b"group and more", b"stripe"]));
    batch
}

/// A change of a row whose keys change, with two entries of one index.
fn change() -> Batch {
    let ([facts, town, email, _], mut batch) = (relations(), Batch::default());
    assert!(batch.push(&facts, Kind::Put, &[b"id", b"row"]));
    assert!(batch.push(&email, Kind::Delete, &[b"mail", b"id"]));
    assert!(batch.push(&email, Kind::Put, &[b"new", b"id", b""]));
    for key in [b"a", b"b"] {
        assert!(batch.push(&town, Kind::Delete, &[key, b"id"]));
    }
    for key in [b"c", b"d"] {
        assert!(batch.push(&town, Kind::Put, &[key, b"id", b""]));
    }
    batch
}

fn statements() -> String {
    let [facts, town, email, _] = relations();
    let catalog = Catalog::new("shop");
    let mut all = String::new();
    let mut add = |what: &str, sql: &str| {
        let _ = writeln!(all, "-- {what}\n{sql}\n");
    };
    let settings = sql::SETTINGS.iter();
    let settings: Vec<_> =
        settings.map(|(name, value)| format!("SET {name} = '{value}'; ")).collect();
    let settings = settings.concat();
    add("settings", settings.trim_end());
    for (kind, writes) in [("read", false), ("write", true)] {
        add(&format!("begin to {kind}"), sql::begin(writes));
        add(&format!("the number of a {kind} transaction"), sql::number(writes));
    }
    add("lock", sql::LOCK);
    add("create the table of tokens", &sql::create(&catalog.commits));
    for relation in [&facts, &town, &email] {
        add("create", &sql::create(relation));
        add("load", &sql::copy(relation));
    }
    let alone = Mode::Alone { changes: Some(7), commits: &catalog.commits };
    for (batch, name, mode, is_strict) in [
        (insertion(), "insert, as a transaction of its own", alone, true),
        (insertion(), "insert, in a transaction", Mode::Confirmed, false),
        (change(), "change, in a transaction", Mode::Confirmed, false),
    ] {
        add(name, &batch.statement(mode, is_strict, &catalog.changes()).sql);
    }
    add("the token of a commit", &token::insert(&catalog.commits));
    let fence = Token::with([7; 16]).fence(&catalog.commits, Duration::from_secs(5));
    add("the fence of a commit", &fence);
    add("remove old tokens", &token::remove_old(&catalog.commits));
    add("get by a unique index", &select::unique_row(&email, false, &facts));
    let query = Query::new(Source::Index(0), KeyRange::beginning_with(b"Oslo"));
    let entries = Conditions::new(&query, &Place::Start).entries(&town, false, Some(&facts));
    let _ = writeln!(all, "-- rows of a key\n{entries}");
    all
}

#[test]
fn the_statements_stay_as_recorded() {
    let (found, path) = (statements(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let path = path.join("src/engine/postgres/statements.sql");
    if env::var("INDEX_TABLE_GOLDEN").is_ok_and(|it| it == "write") {
        fs::write(&path, &found).expect("the file");
    }
    let expected = fs::read_to_string(&path).expect("the file");
    assert!(found == expected, "{found}");
}

#[test]
fn servers_that_are_not_supported_are_refused() {
    let refused = |version| super::pool::refused(version).unwrap_or_default();
    assert_eq!(
        refused("150018 PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu"),
        ""
    );
    assert_eq!(refused("130000 PostgreSQL 13.0"), "");
    let old = "the server has version \"PostgreSQL 12.1\", and 13 is the oldest that is supported";
    assert_eq!(refused("120001 PostgreSQL 12.1"), old);
    let other = |name| format!("the server is {name}, and only PostgreSQL is supported");
    let version = "150002 PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang";
    assert_eq!(refused(version), other("YugabyteDB"));
    let version = "130000 CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27)";
    assert_eq!(refused(version), other("CockroachDB"));
}

#[test]
fn a_batch_changes_a_row_once() {
    let ([facts, town, email, total], mut batch) = (relations(), Batch::default());
    assert!(batch.push(&facts, Kind::Put, &[b"id", b"row"]));
    assert!(!batch.push(&facts, Kind::Delete, &[b"id"]));
    assert!(batch.push(&total, Kind::Add, &[b"id", b"row"]));
    assert!(batch.push(&town, Kind::Put, &[b"a", b"bc", b""]));
    assert!(batch.push(&town, Kind::Put, &[b"ab", b"c", b""]));
    assert!(!batch.push(&town, Kind::Delete, &[b"a", b"bc"]));
    // A unique key has one entry, so both changes concern the same entry, despite their different primary keys.
    assert!(batch.push(&email, Kind::Delete, &[b"mail", b"id"]));
    assert!(!batch.push(&email, Kind::Put, &[b"mail", b"other", b""]));
}
