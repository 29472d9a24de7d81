//! Tables without the type of their rows.

#![allow(clippy::option_option, reason = "the values to test")]

#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod postgres;

use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    fmt::Debug,
    net::IpAddr,
    time::{Duration, SystemTime},
};

use index_table::{IndexKey, IndexTable, ShardMap, Store};
// The crate `index-table` re-exports it with its feature.
use index_table_runtime::json::{self, JsonTable};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

type TestResult<T = ()> = Result<T, Box<dyn Error>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IndexKey)]
#[serde(rename_all = "snake_case")]
enum State {
    Open,
    InWork,
    Closed,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Part {
    Unit,
    One(Option<u8>),
    Two(i8, String),
    Named { width: f32, name: char },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "tickets")]
#[index(state, desc(priority))]
#[index(each(tags))]
#[index(owner, strategy = "full")]
#[index(hash(title), include = [state])]
#[index(due, sparse)]
#[serde(rename_all = "camelCase")]
struct Ticket {
    #[primary_key]
    tenant: u16,
    #[primary_key]
    number: i64,
    state: State,
    priority: i32,
    tags: Vec<String>,
    owner: Option<String>,
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<SystemTime>,
    parts: Vec<Part>,
    wide: (u128, i128),
    places: HashMap<(u8, bool), Option<Option<f64>>>,
    names: BTreeMap<String, u64>,
    extra: Value,
    took: Duration,
}

fn text() -> impl Strategy<Value = String> {
    proptest::sample::select(vec!["", "a", "b", "ab", "a\0", "é\"\\\n", "$map"])
        .prop_map(str::to_owned)
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), Just(-0.0), Just(f64::INFINITY), Just(0.1)]
        .prop_filter("a NaN is not equal to itself", |it| !it.is_nan())
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        Just(Part::Unit),
        any::<Option<u8>>().prop_map(Part::One),
        (any::<i8>(), text()).prop_map(|(a, b)| Part::Two(a, b)),
        (-1e9_f32..1e9, any::<char>()).prop_map(|(width, name)| Part::Named { width, name }),
    ]
}

fn extra() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!({ "a": [1, -2, 0.5, null, "x"], "b": {} })),
        any::<u64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ]
}

fn ticket() -> impl Strategy<Value = Ticket> {
    let state = proptest::sample::select(vec![State::Open, State::InWork, State::Closed]);
    let due = proptest::option::of(0_u64..5).prop_map(|seconds| {
        seconds.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    });
    let keys = (0_u16..4, -20_i64..20, state, -2..2_i32);
    let texts =
        (proptest::collection::vec(text(), 0..3), proptest::option::of(text()), text(), due);
    let places = proptest::collection::hash_map(
        any::<(u8, bool)>(),
        proptest::option::of(proptest::option::of(float())),
        0..3,
    );
    let inside = (
        proptest::collection::vec(part(), 0..3),
        any::<(u128, i128)>(),
        places,
        proptest::collection::btree_map(text(), any::<u64>(), 0..3),
        extra(),
        any::<u32>(),
    );
    (keys, texts, inside).prop_map(|(keys, texts, inside)| Ticket {
        tenant: keys.0,
        number: keys.1,
        state: keys.2,
        priority: keys.3,
        tags: texts.0,
        owner: texts.1,
        title: texts.2,
        due: texts.3,
        parts: inside.0,
        wide: inside.1,
        places: inside.2,
        names: inside.3,
        extra: inside.4,
        took: Duration::from_millis(inside.5.into()),
    })
}

/// Returns the rows, whose JSON must be that of their type.
fn read<R>(rows: impl Iterator<Item = index_table::Result<(Value, Value)>>) -> TestResult<Vec<R>>
where
    R: Serialize + for<'de> Deserialize<'de>,
{
    let read = rows.map(|pair| {
        let (_, row) = pair?;
        let typed: R = json::from_value(&row)?;
        let own: Value = serde_json::from_str(&json::to_string(&typed)?)?;
        // Maps without an order have another one in each value.
        assert_eq!(own.to_string().len(), row.to_string().len(), "{own}\n{row}");
        Ok(typed)
    });
    read.collect()
}

fn rows<R, E: Into<Box<dyn Error>>>(
    rows: impl Iterator<Item = Result<R, E>>,
) -> TestResult<Vec<R>> {
    rows.map(|row| row.map_err(Into::into)).collect()
}

#[track_caller]
fn same<R: PartialEq + Debug>(untyped: TestResult<Vec<R>>, typed: TestResult<Vec<R>>) {
    assert_eq!(untyped.expect("rows without their type"), typed.expect("rows"));
}

/// Compares everything that can be asked with the typed queries.
fn compare(store: &Store, tickets: &TicketRepository, all: &[Ticket]) -> TestResult {
    let (table, txn) = (store.table("tickets")?, store.read()?);
    same(read(table.rows(&txn)), rows(tickets.all(&txn).rows()));
    same(read(table.rows(&txn).rev().limit(3)), rows(tickets.all(&txn).rev().limit(3).rows()));
    assert_eq!(table.rows(&txn).count()?, tickets.all(&txn).count()?);
    for row in all.iter().take(5) {
        let key = json!([row.tenant, row.number]);
        let found = table.get(&txn, &key)?.ok_or("the row")?;
        let typed = tickets.get(&txn, row.tenant, row.number)?.ok_or("the row")?;
        assert_eq!(json::from_value::<Ticket>(&found)?, typed);
    }
    let index = table.index("state_priority")?;
    for (name, state) in
        [("open", State::Open), ("in_work", State::InWork), ("Closed", State::Closed)]
    {
        same(
            read(index.find(&txn, [json!(name)])?),
            rows(tickets.find_by_state(&txn, state).rows()),
        );
        same(
            read(index.find_range(&txn, [json!(name)], json!(-1)..json!(1))?),
            rows(tickets.find_by_state_priority_range(&txn, state, -1..1).rows()),
        );
        same(
            read(index.find_range(&txn, [json!(name)], ..=json!(0))?),
            rows(tickets.find_by_state_priority_range(&txn, state, ..=0).rows()),
        );
    }
    for word in ["", "a", "ab", "a\0"] {
        let word_json = || [json!(word)];
        same(
            read(table.index("tags")?.find(&txn, word_json())?),
            rows(tickets.find_by_tags(&txn, word).rows()),
        );
        same(
            read(table.index("tags")?.find_starting_with(&txn, [], word)?),
            rows(tickets.find_by_tags_starting_with(&txn, word).rows()),
        );
        same(
            read(table.index("owner")?.find(&txn, word_json())?),
            rows(tickets.find_by_owner(&txn, Some(word)).rows()),
        );
        same(
            read(table.index("title")?.find(&txn, word_json())?),
            rows(tickets.find_by_title(&txn, word).rows()),
        );
    }
    same(
        read(table.index("owner")?.find(&txn, [json!(null)])?),
        rows(tickets.find_by_owner(&txn, None).rows()),
    );
    let due = SystemTime::UNIX_EPOCH + Duration::from_secs(2);
    let due_json = json!("1970-01-01T00:00:02Z");
    same(
        read(table.index("due")?.find(&txn, [due_json])?),
        rows(tickets.find_by_due(&txn, due).rows()),
    );
    let of_tenant = table.index("primary_key")?;
    same(read(of_tenant.find(&txn, [json!(1)])?), rows(tickets.find_by_tenant(&txn, 1).rows()));
    pages(&table, store)
}

/// Pages have each row once, forward and backward, with the cursors as text.
fn pages(table: &JsonTable, store: &Store) -> TestResult {
    let txn = store.read()?;
    let index = table.index("state_priority")?;
    let all: Vec<_> = index.rows(&txn).collect::<Result<_, _>>()?;
    let (mut found, mut last) = (Vec::new(), None);
    loop {
        let rows = index.rows(&txn);
        let page = match &last {
            Some(cursor) => rows.after(cursor).page(2)?,
            None => rows.page(2)?,
        };
        found.extend(page.items);
        let Some(next) = page.next else { break };
        if let (Some(previous), true) = (page.previous, found.len() > 2) {
            let back = index.rows(&txn).before(&previous).page(2)?.items;
            assert_eq!(back, found[found.len() - 4..found.len() - 2]);
        }
        last = Some(next.to_string().parse()?);
    }
    assert_eq!(found, all);
    Ok(())
}

fn write(store: &Store, tickets: &TicketRepository, all: &[Ticket]) -> TestResult {
    store.transaction(|txn| all.iter().try_for_each(|row| tickets.put(txn, row)))?;
    Ok(())
}

fn in_all(store: &Store, all: &[Ticket]) -> TestResult {
    let tickets = TicketRepository::open(store)?;
    write(store, &tickets, all)?;
    compare(store, &tickets, all)?;
    // Without the repository, the table is opened from the catalog, and the repository after it.
    drop(tickets);
    let table = store.table("tickets")?;
    let untyped = read::<Ticket>(table.rows(&store.read()?))?;
    let tickets = TicketRepository::open(store)?;
    same(Ok(untyped), rows(tickets.all(&store.read()?).rows()));
    same(read(table.rows(&store.read()?)), rows(tickets.all(&store.read()?).rows()));
    compare(store, &tickets, all)
}

fn sharded(path: &std::path::Path) -> TestResult<Store> {
    let map = ShardMap::ranges().to("north", ..2_u16).to("south", 2_u16..);
    let options = Store::options().shard("north", "north").shard("south", "south");
    Ok(options.map("orders", map).open(path)?)
}

mod by_tenant {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "orders", shard_by = tenant)]
    #[index(town, scope = "global")]
    #[index(amount)]
    pub(crate) struct Order {
        #[primary_key]
        pub(crate) tenant: u16,
        #[primary_key]
        pub(crate) number: u32,
        pub(crate) town: String,
        pub(crate) amount: i64,
    }
}

mod without_amount {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "orders", shard_by = tenant)]
    #[index(town, scope = "global")]
    pub(crate) struct Order {
        #[primary_key]
        pub(crate) tenant: u16,
        #[primary_key]
        pub(crate) number: u32,
        pub(crate) town: String,
        pub(crate) amount: i64,
    }
}

/// Adds orders of four tenants.
fn fill_orders(store: &Store) -> TestResult {
    use by_tenant::{Order, OrderRepository};
    let orders = OrderRepository::open(store)?;
    let order = |n: u32| Order {
        tenant: (n % 4) as u16,
        number: n,
        town: "Oslo".to_owned(),
        amount: i64::from(n),
    };
    store.transaction(|txn| (0..40).try_for_each(|n| orders.insert(txn, &order(n))))?;
    Ok(())
}

proptest! {
    #[test]
    fn random_rows_are_those_of_their_type(all in proptest::collection::vec(ticket(), 1..12)) {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("a store");
        in_all(&store, &all).expect("in one file");
        drop(store);
        let store = Store::options().read_only(true).open(dir.path()).expect("a store");
        let table = store.table("tickets").expect("the table");
        let untyped = read::<Ticket>(table.rows(&store.read().expect("a snapshot")));
        let tickets = TicketRepository::open(&store).expect("the repository");
        compare(&store, &tickets, &all).expect("read-only");
        same(untyped, rows(tickets.all(&store.read().expect("a snapshot")).rows()));
        in_all(&Store::in_memory(), &all).expect("in memory");
    }
}

#[cfg(feature = "postgres")]
#[test]
fn rows_on_a_server_are_those_of_their_type() -> TestResult {
    let Some(schema) = postgres::Schema::new() else { return Ok(()) };
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let tree = proptest::collection::vec(ticket(), 20..40).new_tree(&mut runner);
    let tree = tree.map_err(|reason| reason.to_string())?;
    in_all(&schema.open()?, &proptest::strategy::ValueTree::current(&tree))
}

#[test]
fn rows_of_several_shards_are_merged() -> TestResult {
    use by_tenant::{Order, OrderRepository};
    let dir = tempfile::tempdir()?;
    let store = sharded(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let order = |n: u32| Order {
        tenant: (n % 4) as u16,
        number: n,
        town: ["Oslo", "Rome"][(n % 2) as usize].to_owned(),
        amount: i64::from(n % 5),
    };
    store.transaction(|txn| (0..40).try_for_each(|n| orders.insert(txn, &order(n))))?;
    let check = |orders: &OrderRepository| -> TestResult {
        let (table, txn) = (store.table("orders")?, store.read()?);
        same(read(table.rows(&txn)), rows(orders.all(&txn).rows()));
        for town in ["Oslo", "Rome"] {
            same(
                read(table.index("town")?.find(&txn, [json!(town)])?),
                rows(orders.find_by_town(&txn, town).rows()),
            );
        }
        same(
            read(table.index("amount")?.rows(&txn).rev()),
            rows(orders.by_amount(&txn).rev().rows()),
        );
        assert_eq!(table.get(&txn, json!([3, 7]))?, Some(serde_json::to_value(order(7))?));
        Ok(())
    };
    check(&orders)?;
    drop(orders);
    let table = store.table("orders")?;
    let untyped = read::<Order>(table.index("town")?.rows(&store.read()?))?;
    let orders = OrderRepository::open(&store)?;
    same(Ok(untyped), rows(orders.by_town(&store.read()?).rows()));
    check(&orders)?;
    store.transaction(|txn| orders.insert(txn, &order(40)))?;
    assert_eq!(table.rows(&store.read()?).count()?, 41);
    assert!(orders.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

mod contract {
    pub(crate) mod one {
        use super::super::*;
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IndexKey)]
        pub(crate) enum State {
            Open,
            Closed,
        }
        #[derive(Serialize, Deserialize)]
        pub(crate) struct Line {
            pub(crate) sku: String,
            pub(crate) count: u16,
        }
        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "tickets")]
        #[index(state)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct Ticket {
            #[primary_key]
            pub(crate) id: u64,
            pub(crate) state: State,
            pub(crate) lines: Vec<Line>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) note: Option<String>,
            pub(crate) extra: Value,
        }
    }
    pub(crate) mod two {
        use super::super::*;
        pub(crate) use super::one::State;
        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "tickets")]
        #[index(state)]
        #[index(owner)]
        pub(crate) struct Ticket {
            #[primary_key]
            pub(crate) id: u64,
            #[serde(default)]
            pub(crate) owner: String,
            pub(crate) state: State,
            #[serde(alias = "note")]
            pub(crate) remark: Option<String>,
            pub(crate) extra: Value,
        }
    }
}

#[test]
fn the_tickets_of_two_releases_are_read_without_their_structs() -> TestResult {
    use contract::{one, two};
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let tickets = one::TicketRepository::open(&store)?;
    let lines = vec![one::Line { sku: "a".into(), count: 2 }];
    let first =
        one::Ticket { id: 1, state: one::State::Open, lines, note: None, extra: json!({ "n": 1 }) };
    store.transaction(|txn| tickets.insert(txn, &first))?;
    drop(tickets);
    let tickets = two::TicketRepository::open(&store)?;
    let second = two::Ticket {
        id: 2,
        owner: "Lie".into(),
        state: two::State::Open,
        remark: Some("x".into()),
        extra: Value::Null,
    };
    store.transaction(|txn| tickets.insert(txn, &second))?;

    let txn = store.read()?;
    let tickets = store.table("tickets")?;
    let mut all = Vec::new();
    for row in tickets.rows(&txn) {
        let (key, row): (Value, Value) = row?;
        all.push((key, row));
    }
    // The build of the index has written the row again.
    let row = json!({ "id": 1, "owner": "", "state": "Open", "remark": null, "extra": { "n": 1 } });
    let later = json!({ "id": 2, "owner": "Lie", "state": "Open", "remark": "x", "extra": null });
    assert_eq!(all, [(json!(1), row), (json!(2), later)]);
    let open = tickets.index("state")?.find(&txn, [json!("Open")])?;
    assert_eq!(open.collect::<Result<Vec<_>, _>>()?, all);
    assert_eq!(tickets.index("owner")?.find(&txn, [json!("Lie")])?.count()?, 1);
    Ok(())
}

#[test]
fn rows_of_earlier_releases_have_the_fields_of_their_own_lists() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = Before)]
    struct Note {
        #[primary_key]
        id: u64,
        text: String,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = After)]
    struct Later {
        #[serde(default)]
        stars: u8,
        #[serde(alias = "text")]
        title: String,
        #[primary_key]
        id: u64,
    }
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let notes = Before::open(&store)?;
    store.transaction(|txn| notes.insert(txn, &Note { id: 1, text: "a".into() }))?;
    drop(notes);
    let notes = After::open(&store)?;
    let later = Later { id: 2, stars: 5, title: "b".into() };
    store.transaction(|txn| notes.insert(txn, &later))?;
    let table = store.table("notes")?;
    let all: Vec<_> = table.rows(&store.read()?).collect::<Result<_, _>>()?;
    let second = json!({ "stars": 5, "title": "b", "id": 2 });
    assert_eq!(all, [(json!(1), json!({ "id": 1, "text": "a" })), (json!(2), second)]);
    Ok(())
}

#[test]
fn a_row_is_written_in_any_format() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "readings")]
    struct Reading {
        #[primary_key]
        id: u32,
        value: f64,
        wide: u128,
        #[serde(rename = "$ref")]
        other: Option<Option<u8>>,
        from: IpAddr,
    }
    let store = Store::in_memory();
    let readings = ReadingRepository::open(&store)?;
    let from = IpAddr::from([127, 0, 0, 1]);
    let row = Reading { id: 1, value: f64::NAN, wide: 1 << 70, other: Some(None), from };
    store.transaction(|txn| readings.insert(txn, &row))?;
    let (table, txn) = (store.table("readings")?, store.read()?);
    let mut rows = table.rows(&txn);
    let row = rows.next_row()?.ok_or("a row")?;
    assert_eq!(
        serde_json::to_string(&row)?,
        r#"{"id":1,"value":null,"wide":1180591620717411303424,"$ref":null,"from":{"V4":[127,0,0,1]}}"#
    );
    let mut text = String::new();
    row.append_to(&mut text)?;
    assert_eq!(
        text,
        r#"{"id":1,"value":{"$float":"0x7ff8000000000000"},"wide":{"$int":"1180591620717411303424"},"$ref":{"$some":null},"from":{"V4":[127,0,0,1]}}"#
    );
    let read: Reading = json::from_value(&row.value()?)?;
    assert_eq!((read.from, read.other, read.wide), (from, Some(None), 1 << 70));
    assert!(read.value.is_nan());
    // Without names, only the order counts.
    let bytes = postcard::to_stdvec(&row)?;
    assert_eq!(postcard::take_from_bytes::<u64>(&bytes)?.0, 1);
    assert!(rows.next_row()?.is_none());
    Ok(())
}

#[test]
fn errors_name_the_table_the_index_and_the_field() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let tickets = TicketRepository::open(&store)?;
    let error = |outcome: index_table::Result<()>| outcome.expect_err("refused").to_string();
    assert_eq!(
        error(store.table("ticket").map(drop)),
        "the store has no table `ticket`; it has `tickets`"
    );
    let (table, txn) = (store.table("tickets")?, store.read()?);
    assert_eq!(
        error(table.index("status").map(drop)),
        "table `tickets` has no index `status`; it has `state_priority`, `tags`, `owner`, `title`, `due`, `primary_key`"
    );
    let index = table.index("state_priority")?;
    let find = |values: &[Value]| error(index.find(&txn, values.to_vec()).map(drop));
    let place = "table `tickets`, index `state_priority`";
    assert_eq!(
        find(&[json!("new")]),
        format!("{place}, field `state`: \"new\" is not one of \"Open\", \"InWork\", \"Closed\"")
    );
    assert_eq!(
        find(&[json!("open"), json!(1.5)]),
        format!("{place}, field `priority`: 1.5 is not an integer of 32 bits")
    );
    assert_eq!(
        find(&[json!("open"), json!(1), json!(1)]),
        format!(
            "{place}: a value is given for each of its fields (state, priority), so there is no further field"
        )
    );
    assert_eq!(
        error(table.get(&txn, json!(1)).map(drop)),
        "table `tickets`, primary key: 1 is not an array with values of tenant, number"
    );
    let title = table.index("title")?;
    let hashed = title.find_range(&txn, [], json!("a")..).map(drop);
    assert_eq!(
        error(hashed),
        "table `tickets`, index `title`, field `title`: the index has a hash of it, which has no order"
    );
    drop(tickets);
    Ok(())
}

#[test]
fn a_table_that_is_not_in_use_is_not_opened_inside_of_a_write() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    drop(TicketRepository::open(&store)?);
    let before = store.read()?;
    let txn = store.write()?;
    assert!(matches!(store.table("tickets"), Err(index_table::Error::WriteInProgress)));
    drop(txn);
    let table = store.table("tickets")?;
    assert_eq!(table.rows(&before).count()?, 0);
    Ok(())
}

#[test]
fn an_index_that_is_no_longer_maintained_is_not_read_in_shards() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = sharded(dir.path())?;
    fill_orders(&store)?;
    let table = store.table("orders")?;
    assert_eq!(table.index("amount")?.rows(&store.read()?).count()?, 40);
    let orders = without_amount::OrderRepository::open(&store)?;
    let order = without_amount::Order { tenant: 3, number: 41, town: "Rome".into(), amount: 7 };
    store.transaction(|txn| orders.insert(txn, &order))?;
    let read = table.index("amount")?.rows(&store.read()?).count();
    assert!(matches!(read, Err(index_table::Error::IndexNotReadable { .. })), "{read:?}");
    assert_eq!(table.index("town")?.rows(&store.read()?).count()?, 41);
    Ok(())
}

#[test]
fn a_table_is_opened_again_after_its_keys_have_moved() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = sharded(dir.path())?;
    fill_orders(&store)?;
    let before = store.table("orders")?;
    assert_eq!(before.rows(&store.read()?).count()?, 40);
    store.add_shard("east", "east")?;
    let orders = by_tenant::OrderRepository::open(&store)?;
    store.move_range("orders", 1_u16..2, "east").run()?;
    drop(orders);
    let table = store.table("orders")?;
    assert_eq!(table.rows(&store.read()?).count()?, 40);
    assert_eq!(table.index("amount")?.rows(&store.read()?).count()?, 40);
    drop(before);
    Ok(())
}

#[test]
fn a_table_that_is_read_without_its_struct_is_not_renamed() -> TestResult {
    mod renamed {
        use super::*;
        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "purchases", was = "orders", shard_by = tenant, shard_map = "orders")]
        #[index(town, scope = "global")]
        #[index(amount)]
        pub(super) struct Purchase {
            #[primary_key]
            tenant: u16,
            #[primary_key]
            number: u32,
            town: String,
            amount: i64,
        }
    }
    let check = |store: &Store| -> TestResult {
        fill_orders(store)?;
        let table = store.table("orders")?;
        let error = renamed::PurchaseRepository::open(store).map(drop).expect_err("refused");
        let text = error.to_string();
        assert!(text.contains("`orders` is in use in this process by `JsonTable`"), "{text}");
        assert_eq!(table.rows(&store.read()?).count()?, 40);
        drop(table);
        let purchases = renamed::PurchaseRepository::open(store)?;
        assert_eq!(purchases.all(&store.read()?).count()?, 40);
        Ok(())
    };
    let dir = tempfile::tempdir()?;
    check(&Store::open(dir.path())?)?;
    let dir = tempfile::tempdir()?;
    check(&sharded(dir.path())?)
}

#[test]
fn names_are_those_of_serde_with_and_without_a_struct() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "bills")]
    #[index(due_on)]
    #[serde(rename_all = "camelCase")]
    struct Bill {
        #[primary_key]
        bill_id: u32,
        due_on: u32,
    }
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let bills = BillRepository::open(&store)?;
    let check = || -> TestResult {
        let (table, txn) = (store.table("bills")?, store.read()?);
        assert_eq!(table.primary_key().collect::<Vec<_>>(), ["billId"]);
        let index = table.index("due_on")?;
        assert_eq!(index.fields().collect::<Vec<_>>(), ["dueOn"]);
        let error = index.find(&txn, [json!("x")]).map(drop).expect_err("refused").to_string();
        assert!(error.contains("field `dueOn`"), "{error}");
        Ok(())
    };
    check()?;
    drop(bills);
    check()
}

#[test]
fn an_index_in_use_is_not_dropped_when_the_store_has_grown() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    fill_orders(&store)?;
    let before = store.table("orders")?;
    drop(without_amount::OrderRepository::open(&store)?);
    assert!(store.drop_retired()?.is_empty());
    let txn = store.read()?;
    store.add_shard("east", "east")?;
    assert_eq!(before.rows(&txn).count()?, 40);
    drop(txn);
    assert!(store.drop_retired()?.is_empty());
    let read = before.rows(&store.read()?).count();
    assert!(read.is_err(), "{read:?}");
    let table = store.table("orders")?;
    assert_eq!(table.rows(&store.read()?).count()?, 40);
    drop((before, table));
    assert_eq!(store.drop_retired()?, ["orders.amount"]);
    Ok(())
}
