//! Rows that are written without their type: they have the entries of the struct, or they are refused.

#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod postgres;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as StdError,
    time::{Duration, SystemTime},
};

use index_table::{
    __private::admin::UntypedRange, ChangeKind, Error, Event, IndexKey, IndexTable, ShardMap, Store,
};
use index_table_runtime::json::{self, JsonTable};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

type TestResult<T = ()> = Result<T, Box<dyn StdError>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Part {
    Unit,
    One(Option<u8>),
    Two(i8, String),
    Named { width: f32, name: char },
}

#[allow(clippy::duplicated_attributes, reason = "several indexes have the same options and fields")]
#[allow(clippy::option_option, reason = "each depth of options is tried")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "items", shard_by = tenant, changes)]
#[index(town, desc(amount))]
#[index(each(tags))]
#[index(owner, sparse)]
#[index(title, strategy = "full")]
#[index(flag, town, include = [owner, parts])]
#[index(hash(link), include = [link])]
#[index(tenant, code, unique)]
#[index(tenant, hash(link), unique, name = "by_link")]
#[index(due, sparse, consistency = "eventual")]
#[index(town, ratio, took, scope = "global", name = "everywhere")]
#[serde(rename_all = "camelCase")]
struct Item {
    #[primary_key]
    tenant: u16,
    #[primary_key]
    number: i64,
    code: u32,
    town: String,
    amount: i32,
    count: Option<u16>,
    tags: Vec<String>,
    owner: Option<String>,
    title: String,
    flag: bool,
    link: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<SystemTime>,
    ratio: f64,
    took: Duration,
    parts: Vec<Part>,
    wide: (u128, i128),
    names: BTreeMap<String, u64>,
    pairs: BTreeMap<(u8, bool), Option<Option<f32>>>,
    bytes: [u8; 4],
    extra: Value,
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(Item),
    Put(Item),
    Delete(u16, i64),
}

fn text() -> impl Strategy<Value = String> {
    proptest::sample::select(vec!["", "a", "b", "ab", "a\0", "é\"\\\n", "$map"])
        .prop_map(str::to_owned)
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), Just(-0.0), Just(f64::INFINITY), Just(0.1), Just(2.0)]
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
        Just(json!({ "a": [1, -2, 0.5, null, "x"], "b": {}, "$c": 1 })),
        any::<u64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ]
}

fn item() -> impl Strategy<Value = Item> {
    let due = proptest::option::of(0_u64..5).prop_map(|seconds| {
        seconds.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    });
    let keys = (0_u16..4, -3_i64..3, 0_u32..6, text(), -2..2_i32, any::<Option<u16>>());
    let texts = (
        proptest::collection::vec(text(), 0..3),
        proptest::option::of(text()),
        text(),
        any::<bool>(),
        text(),
        due,
    );
    let inside = (
        float(),
        any::<u32>(),
        proptest::collection::vec(part(), 0..3),
        any::<(u128, i128)>(),
        proptest::collection::btree_map(text(), any::<u64>(), 0..3),
        proptest::collection::btree_map(
            any::<(u8, bool)>(),
            proptest::option::of(proptest::option::of(-1.5_f32..1.5)),
            0..3,
        ),
        any::<[u8; 4]>(),
        extra(),
    );
    (keys, texts, inside).prop_map(|(keys, texts, inside)| Item {
        tenant: keys.0,
        number: keys.1,
        code: keys.2,
        town: keys.3,
        amount: keys.4,
        count: keys.5,
        tags: texts.0,
        owner: texts.1,
        title: texts.2,
        flag: texts.3,
        link: texts.4,
        due: texts.5,
        ratio: inside.0,
        took: Duration::from_millis(inside.1.into()),
        parts: inside.2,
        wide: inside.3,
        names: inside.4,
        pairs: inside.5,
        bytes: inside.6,
        extra: inside.7,
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => item().prop_map(Operation::Insert),
        3 => item().prop_map(Operation::Put),
        1 => (0_u16..4, -3_i64..3).prop_map(|(tenant, number)| Operation::Delete(tenant, number)),
    ]
}

/// Rows after which everything that a row can have is recorded.
fn seeds() -> [Item; 2] {
    let full = Item {
        tenant: 3,
        number: 1_000,
        code: 1_000,
        town: "seed".into(),
        amount: -1,
        count: Some(1),
        tags: vec!["seed".into()],
        owner: Some("seed".into()),
        title: "seed".into(),
        flag: true,
        link: "seed".into(),
        due: Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(7)),
        ratio: 0.5,
        took: Duration::from_millis(1),
        parts: vec![
            Part::Unit,
            Part::One(Some(1)),
            Part::Two(1, "x".into()),
            Part::Named { width: 0.5, name: 'x' },
        ],
        wide: (1, 1),
        names: BTreeMap::from([("x".into(), 1)]),
        pairs: BTreeMap::from([((1, true), Some(Some(0.5)))]),
        bytes: [1, 2, 3, 4],
        extra: json!({ "a": 1 }),
    };
    let other = Item {
        number: 1_001,
        code: 1_001,
        link: "other".into(),
        due: None,
        extra: json!(7),
        ..full.clone()
    };
    [full, other]
}

fn in_json<R: Serialize>(row: &R) -> Value {
    let text = json::to_string(row).expect("the exact form");
    serde_json::from_str(&text).expect("JSON")
}

/// The outcome of an operation, without what differs in the texts of errors.
fn outcome<T>(outcome: index_table::Result<T>) -> Result<T, String> {
    outcome.map_err(|error| error.to_string())
}

fn typed(store: &Store, items: &ItemRepository, operation: &Operation) -> Result<bool, String> {
    outcome(store.transaction(|txn| match operation {
        Operation::Insert(item) => items.insert(txn, item).map(|()| true),
        Operation::Put(item) => items.put(txn, item).map(|()| true),
        Operation::Delete(tenant, number) => items.delete(txn, *tenant, *number),
    }))
}

fn untyped(store: &Store, items: &JsonTable, operation: &Operation) -> Result<bool, String> {
    outcome(store.transaction(|txn| match operation {
        Operation::Insert(item) => items.insert(txn, &in_json(item)).map(|()| true),
        Operation::Put(item) => items.put(txn, &in_json(item)).map(|()| true),
        Operation::Delete(tenant, number) => items.delete(txn, json!([tenant, number])),
    }))
}

type Entry = (Vec<u8>, Vec<u8>, Vec<u8>);

/// Returns the bytes of all entries of the table, and of each of its indexes.
fn contents(store: &Store, items: &ItemRepository) -> TestResult<Vec<Vec<Entry>>> {
    let txn = store.read()?;
    let tables = store.untyped_tables();
    let table = tables.iter().find(|table| table.name() == "items").ok_or("the table")?;
    let indexes = store.table("items")?;
    let indexes = indexes.indexes().filter(|name| *name != "due").map(|name| Some(name.to_owned()));
    let mut all = Vec::new();
    for index in [None].into_iter().chain(indexes) {
        let mut entries = Vec::new();
        let range = UntypedRange { index, ..UntypedRange::default() };
        table.each_entry::<Error>(&txn, &range, |entry| {
            entries.push((entry.key.into(), entry.primary_key.into(), entry.data.into()));
            Ok(true)
        })?;
        all.push(entries);
    }
    assert_eq!(items.all(&txn).count()?, all.first().map_or(0, Vec::len) as u64);
    Ok(all)
}

/// How the table without the struct is opened.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Handle {
    /// Once.
    Kept,
    /// For each operation.
    Again,
    /// Again after each third operation, which is one with the struct.
    Mixed,
}

/// Returns the changes of the table.
fn changes(store: &Store, items: &ItemRepository) -> TestResult<Vec<(ChangeKind, Item)>> {
    let batch = items.changes(store, "test")?.next_batch(1000)?;
    assert!(batch.windows(2).all(|pair| pair[0].number < pair[1].number), "the numbers ascend");
    Ok(batch.iter().map(|change| (change.kind, change.row.clone())).collect())
}

/// Runs the same operations with and without the struct, and compares the two stores.
fn same(with: &Store, without: &Store, operations: &[Operation], handle: Handle) -> TestResult {
    for store in [with, without] {
        let items = ItemRepository::open(store)?;
        items.changes(store, "test")?;
        store.transaction(|txn| seeds().iter().try_for_each(|seed| items.insert(txn, seed)))?;
        while items.drain(store, u64::MAX)?.left > 0 {}
    }
    let items = ItemRepository::open(with)?;
    let mut table = without.table("items")?;
    for (at, operation) in operations.iter().enumerate() {
        let expected = typed(with, &items, operation);
        if handle == Handle::Mixed && at % 3 == 2 {
            let own = ItemRepository::open(without)?;
            assert_eq!(typed(without, &own, operation), expected, "{operation:?}");
            drop(own);
            let refused = without.transaction(|txn| table.delete(txn, json!([9, 9])));
            let refused = refused.expect_err("a table opened before the repository");
            assert!(matches!(refused, Error::SchemaMismatch { .. }), "{refused}");
            table = without.table("items")?;
            continue;
        }
        assert_eq!(untyped(without, &table, operation), expected, "{operation:?}");
        if handle == Handle::Again {
            drop(table);
            table = without.table("items")?;
        }
    }
    drop(table);
    let own = ItemRepository::open(without)?;
    assert_eq!(contents(without, &own)?, contents(with, &items)?);
    assert_eq!(changes(without, &own)?, changes(with, &items)?);
    for (store, items) in [(with, &items), (without, &own)] {
        while items.drain(store, u64::MAX)?.left > 0 {}
        let report = items.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{:?}", report.findings);
    }
    let (one, other) = (with.read()?, without.read()?);
    let rows = |items: &ItemRepository, txn| items.all(txn).rows().collect::<Result<Vec<_>, _>>();
    assert_eq!(rows(&own, &other)?, rows(&items, &one)?);
    let due = |items: &ItemRepository, txn| {
        items.by_due(txn).stale().rows().collect::<Result<Vec<_>, _>>()
    };
    assert_eq!(due(&own, &other)?, due(&items, &one)?);
    Ok(())
}

fn sharded(path: &std::path::Path) -> TestResult<Store> {
    let map = ShardMap::ranges().to("north", ..2_u16).to("south", 2_u16..);
    let options = Store::options().shard("north", "north").shard("south", "south");
    Ok(options.map("items", map).open(path)?)
}

proptest! {
    #[test]
    fn rows_have_the_entries_of_their_struct(all in proptest::collection::vec(operation(), 1..20)) {
        let dir = tempfile::tempdir().expect("a directory");
        for handle in [Handle::Kept, Handle::Again, Handle::Mixed] {
            let store = |name: &str| {
                Store::open(dir.path().join(format!("{name} {handle:?}"))).expect("a store")
            };
            same(&store("with"), &store("without"), &all, handle).expect("in one file");
            let store = |name: &str| {
                sharded(&dir.path().join(format!("{name} shards {handle:?}"))).expect("a store")
            };
            same(&store("with"), &store("without"), &all, handle).expect("in two files");
            same(&Store::in_memory(), &Store::in_memory(), &all, handle).expect("in memory");
        }
    }
}

#[cfg(feature = "postgres")]
#[test]
fn rows_on_a_server_have_the_entries_of_their_struct() -> TestResult {
    let (Some(with), Some(without)) = (postgres::Schema::new(), postgres::Schema::new()) else {
        return Ok(());
    };
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let tree = proptest::collection::vec(operation(), 60..80).new_tree(&mut runner);
    let tree = tree.map_err(|reason| reason.to_string())?;
    let all = proptest::strategy::ValueTree::current(&tree);
    same(&with.open()?, &without.open()?, &all, Handle::Mixed)
}

#[test]
fn values_of_other_kinds_are_refused_with_the_table_and_the_field() -> TestResult {
    let store = Store::in_memory();
    let [seed, other] = seeds();
    {
        let items = ItemRepository::open(&store)?;
        store.transaction(|txn| {
            items.insert(txn, &seed)?;
            items.insert(txn, &other)
        })?;
        while items.drain(&store, u64::MAX)?.left > 0 {}
    }
    let items = store.table("items")?;
    let before: Vec<_> = items.rows(&store.read()?).collect::<Result<_, _>>()?;
    for (pointer, value, message) in [
        ("/town", json!(1), "table `items`, field `town`: 1 is not text"),
        (
            "/tenant",
            json!(65_536),
            "table `items`, field `tenant`: 65536 is not an unsigned integer of 16 bits",
        ),
        (
            "/code",
            json!(-1),
            "table `items`, field `code`: -1 is not an unsigned integer of 32 bits",
        ),
        (
            "/count",
            json!("x"),
            "table `items`, field `count`: \"x\" is not an unsigned integer of 16 bits",
        ),
        ("/flag", json!(null), "table `items`, field `flag`: null is not true or false"),
        (
            "/parts",
            json!(["None"]),
            "table `items`, field `parts`: \"None\" is not one of the recorded variants: `Unit`, `One`, `Two`, `Named`",
        ),
        (
            "/parts",
            json!([{ "Named": { "width": 1 } }]),
            "table `items`, field `parts`: it lacks the field `name`",
        ),
        (
            "/parts",
            json!([{ "Named": { "width": 1, "name": "xy" } }]),
            "table `items`, field `parts.name`: \"xy\" is not text of one character",
        ),
        ("/wide", json!([1]), "table `items`, field `wide`: [1] is not an array of 2 values"),
        (
            "/bytes",
            json!([1, 2, 3, 256]),
            "table `items`, field `bytes`: 256 is not an unsigned integer of 8 bits",
        ),
        (
            "/ratio",
            json!({ "$float": "x" }),
            "table `items`, field `ratio`: {\"$float\":\"x\"} is not a float of 64 bits",
        ),
        (
            "/extra",
            json!({ "$int": "7" }),
            "table `items`, field `extra`: {\"$int\":\"7\"} is not JSON; a key that begins with `$` is written as `$map`",
        ),
    ] {
        let mut row = in_json(&seed);
        *row.pointer_mut(pointer).ok_or("the field")? = value;
        for is_insert in [true, false] {
            let refused = store.transaction(|txn| {
                if is_insert { items.insert(txn, &row) } else { items.put(txn, &row) }
            });
            assert_eq!(refused.expect_err("refused").to_string(), message);
        }
    }
    let mut row = in_json(&seed);
    let fields = row.as_object_mut().ok_or("an object")?;
    fields.insert("twon".into(), json!("x"));
    let refused = store.transaction(|txn| items.put(txn, &row)).expect_err("refused");
    assert_eq!(refused.to_string(), "table `items`: it has the unknown field `twon`");
    let fields = row.as_object_mut().ok_or("an object")?;
    fields.remove("twon");
    fields.remove("town");
    let refused = store.transaction(|txn| items.put(txn, &row)).expect_err("refused");
    assert_eq!(refused.to_string(), "table `items`: it lacks the field `town`");
    let refused = store.transaction(|txn| items.put(txn, &json!([1]))).expect_err("refused");
    assert!(matches!(refused, Error::InvalidJson { .. }), "{refused}");
    let after: Vec<_> = items.rows(&store.read()?).collect::<Result<_, _>>()?;
    assert_eq!(after, before);
    Ok(())
}

/// Writes a row with the struct, and then tries to write it without.
macro_rules! refused {
    ($repository:ident, $row:expr, $table:literal) => {{
        let store = Store::in_memory();
        let row = $row;
        {
            let repository = $repository::open(&store)?;
            store.transaction(|txn| repository.insert(txn, &row))?;
        }
        let table = store.table($table)?;
        let refused = store.transaction(|txn| table.put(txn, &in_json(&row))).expect_err("refused");
        assert!(matches!(refused, Error::NotOffered { .. }), "{refused}");
        let deleted = store.transaction(|txn| table.delete(txn, json!(1))).expect_err("refused");
        assert_eq!(deleted.to_string(), refused.to_string());
        // While the repository is in use, the struct gives the entries.
        let repository = $repository::open(&store)?;
        store.transaction(|txn| table.put(txn, &in_json(&row)))?;
        assert!(repository.verify(&store.read()?).run()?.is_clean());
        assert!(store.transaction(|txn| table.delete(txn, json!(1)))?);
        assert!(repository.verify(&store.read()?).run()?.is_clean());
        refused.to_string()
    }};
}

#[test]
#[allow(clippy::items_after_statements, reason = "a struct stands beside its case")]
#[allow(clippy::too_many_lines, reason = "one case after another")]
fn what_only_the_struct_computes_is_refused_with_its_name() -> TestResult {
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, IndexKey)]
    enum State {
        Open,
    }
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IndexKey)]
    struct Code(u32);
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "by_state")]
    #[index(state)]
    struct ByState {
        #[primary_key]
        id: u8,
        state: State,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "by_code")]
    #[index(code)]
    struct ByCode {
        #[primary_key]
        id: u8,
        code: Code,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "computed")]
    #[index(computed(initial: char))]
    struct Computed {
        #[primary_key]
        id: u8,
        name: String,
    }
    impl Computed {
        fn initial(&self) -> char {
            self.name.chars().next().unwrap_or(' ')
        }
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "filtered")]
    #[index(name, filter = is_long, name = "long")]
    struct Filtered {
        #[primary_key]
        id: u8,
        name: String,
    }
    impl Filtered {
        fn is_long(&self) -> bool {
            self.name.len() > 3
        }
    }
    mod negated {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
        pub(super) fn serialize<S: Serializer>(value: &i64, to: S) -> Result<S::Ok, S::Error> {
            (-value).serialize(to)
        }

        pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
            i64::deserialize(from).map(|value| -value)
        }
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "negated")]
    #[index(value)]
    struct Negated {
        #[primary_key]
        id: u8,
        #[serde(with = "negated")]
        value: i64,
    }
    let way_out = "; write it with the program that declares it, or while its repository is open in this process";
    let message = |table: &str, reason: &str| {
        format!(
            "this store does not offer writing table `{table}` without its struct: {reason}{way_out}"
        )
    };
    assert_eq!(
        refused!(ByStateRepository, ByState { id: 1, state: State::Open }, "by_state"),
        message(
            "by_state",
            "field `state` of index `state` has the type `State`, whose form in keys (`enum[Open=0]`) only the struct has"
        )
    );
    assert_eq!(
        refused!(ByCodeRepository, ByCode { id: 1, code: Code(7) }, "by_code"),
        message(
            "by_code",
            "field `code` of index `code` has the type `Code`, whose form in keys (`u32`) only the struct has"
        )
    );
    assert_eq!(
        refused!(ComputedRepository, Computed { id: 1, name: "Ann".into() }, "computed"),
        message(
            "computed",
            "field `initial` of index `initial` is computed by a method of the struct"
        )
    );
    assert_eq!(
        refused!(FilteredRepository, Filtered { id: 1, name: "Anna".into() }, "filtered"),
        message("filtered", "index `long` has the filter `is_long`, a method of the struct")
    );
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "totals")]
    #[aggregate(sum = [value])]
    struct Totals {
        #[primary_key]
        id: u8,
        value: i64,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "later")]
    #[index(value, consistency = "eventual")]
    struct NegatedLater {
        #[primary_key]
        id: u8,
        #[serde(with = "negated")]
        value: i64,
    }
    let totals = refused!(TotalsRepository, Totals { id: 1, value: 7 }, "totals");
    assert!(totals.contains("has totals that can't be compared with rows"), "{totals}");
    let later = refused!(NegatedLaterRepository, NegatedLater { id: 1, value: 7 }, "later");
    assert!(
        later.contains("the queue of index `value` has the entries of all sampled rows"),
        "{later}"
    );
    let store = Store::in_memory();
    {
        let repository = NegatedLaterRepository::open(&store)?;
        store.transaction(|txn| repository.insert(txn, &NegatedLater { id: 1, value: 7 }))?;
        while repository.drain(&store, u64::MAX)?.left > 0 {}
    }
    let table = store.table("later")?;
    let later = store.transaction(|txn| table.delete(txn, json!(1))).expect_err("refused");
    let later = later.to_string();
    assert!(later.contains("its index `value` has other keys than those"), "{later}");
    let negated = refused!(NegatedRepository, Negated { id: 1, value: 7 }, "negated");
    assert!(
        negated.contains("its index `value` has other keys than those of the recorded types"),
        "{negated}"
    );
    Ok(())
}

#[test]
fn a_table_without_recorded_rows_and_one_with_a_reference_are_refused() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "customers")]
    struct Customer {
        #[primary_key]
        id: u8,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "orders")]
    #[index(customer)]
    struct Order {
        #[primary_key]
        id: u8,
        #[references(Customer)]
        customer: u8,
    }
    let store = Store::in_memory();
    let (customers, orders) = (CustomerRepository::open(&store)?, OrderRepository::open(&store)?);
    drop((customers, orders));
    let customer = json!({ "id": 1 });
    let table = store.table("customers")?;
    let refused = store.transaction(|txn| table.insert(txn, &customer)).expect_err("refused");
    assert!(
        refused.to_string().contains("no list of the fields of its rows is recorded"),
        "{refused}"
    );
    {
        let customers = CustomerRepository::open(&store)?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| {
            customers.insert(txn, &Customer { id: 1 })?;
            orders.insert(txn, &Order { id: 1, customer: 1 })
        })?;
    }
    let order = json!({ "id": 2, "customer": 2 });
    let orders = store.table("orders")?;
    let refused = store.transaction(|txn| orders.insert(txn, &order)).expect_err("refused");
    let message = refused.to_string();
    assert!(
        message.contains("its reference `customer` to `customers` needs the struct"),
        "{message}"
    );
    let table = store.table("customers")?;
    // A row to which another may refer is replaced, and not deleted.
    store.transaction(|txn| table.insert(txn, &json!({ "id": 2 })))?;
    store.transaction(|txn| table.put(txn, &json!({ "id": 1 })))?;
    for id in [1, 2] {
        let refused = store.transaction(|txn| table.delete(txn, json!(id))).expect_err("refused");
        assert!(refused.to_string().contains("other tables refer to its rows"), "{refused}");
    }
    let (customers, orders) = (CustomerRepository::open(&store)?, OrderRepository::open(&store)?);
    let refused = store.transaction(|txn| table.delete(txn, json!(1))).expect_err("refused");
    assert!(matches!(refused, Error::Referenced { .. }), "{refused}");
    assert!(store.transaction(|txn| table.delete(txn, json!(2)))?);
    assert!(customers.verify(&store.read()?).run()?.is_clean());
    assert!(orders.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[test]
fn a_row_of_an_earlier_release_is_replaced_after_the_build_of_its_index() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = Before)]
    struct Note {
        #[primary_key]
        id: u64,
        text: String,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = After)]
    #[index(stars)]
    struct Later {
        #[primary_key]
        id: u64,
        #[serde(default)]
        stars: u8,
        text: String,
    }
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let notes = Before::open(&store)?;
    store.transaction(|txn| {
        (1..=5000).try_for_each(|id| notes.insert(txn, &Note { id, text: "a".into() }))
    })?;
    drop(notes);
    let notes = After::open(&store)?;
    store.transaction(|txn| notes.insert(txn, &Later { id: 0, stars: 5, text: "b".into() }))?;
    drop(notes);
    let (table, row) = (store.table("notes")?, json!({ "id": 7, "stars": 1, "text": "c" }));
    // The build of the index has written the rows again.
    store.transaction(|txn| table.put(txn, &row))?;
    // A row that lacks a field of the newest list is refused.
    let row = json!({ "id": 7000, "text": "c" });
    let refused = store.transaction(|txn| table.insert(txn, &row)).expect_err("refused");
    assert_eq!(refused.to_string(), "table `notes`: it lacks the field `stars`");
    let notes = After::open(&store)?;
    assert!(notes.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[test]
fn an_open_repository_gets_the_changes_and_counts_the_revision() -> TestResult {
    #[derive(Debug, PartialEq, Clone, Serialize, Deserialize, IndexTable)]
    #[table(name = "notes")]
    #[index(text)]
    struct Note {
        #[primary_key]
        id: u32,
        #[revision]
        revision: u64,
        text: String,
    }
    let store = Store::in_memory();
    let notes = NoteRepository::open(&store)?;
    store.transaction(|txn| notes.insert(txn, &Note { id: 1, revision: 0, text: "a".into() }))?;
    let watcher = notes.watch(&store).start()?;
    let table = store.table("notes")?;
    store.transaction(|txn| table.put(txn, &json!({ "id": 1, "revision": 1, "text": "b" })))?;
    let old = json!({ "id": 1, "revision": 1, "text": "c" });
    let refused = store.transaction(|txn| table.put(txn, &old)).expect_err("refused");
    assert!(matches!(refused, Error::Conflict { expected: 1, found: Some(2), .. }), "{refused}");
    let note = notes.get(&store.read()?, 1)?;
    assert_eq!(note, Some(Note { id: 1, revision: 2, text: "b".into() }));
    let Ok(Event::Change(change)) = watcher.try_recv() else { panic!("no change") };
    assert_eq!(change.kind(), ChangeKind::Updated);
    Ok(())
}

/// Opens stores of all kinds in this directory, with the map of a table.
fn stores(dir: &std::path::Path, table: &str) -> TestResult<Vec<Store>> {
    let map = || ShardMap::ranges().to("north", ..100_u64).to("south", 100_u64..);
    let options = || Store::options().shard("north", "north").shard("south", "south");
    Ok(vec![
        Store::open(dir.join("one"))?,
        Store::in_memory(),
        options().map(table, map()).open(dir.join("shards"))?,
    ])
}

#[test]
fn a_table_that_another_declaration_has_changed_is_not_written() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = Before, shard_by = id, changes)]
    struct Note {
        #[primary_key]
        id: u64,
        text: String,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = After, shard_by = id, changes)]
    #[index(text)]
    struct Later {
        #[primary_key]
        id: u64,
        text: String,
    }
    let dir = tempfile::tempdir()?;
    for store in stores(dir.path(), "notes")? {
        let notes = Before::open(&store)?;
        notes.changes(&store, "test")?;
        store.transaction(|txn| notes.insert(txn, &Note { id: 1, text: "a".into() }))?;
        drop(notes);
        let table = store.table("notes")?;
        let row = |id: u64| json!({ "id": id, "text": "b" });
        store.transaction(|txn| table.insert(txn, &row(2)))?;
        let notes = After::open(&store)?;
        store.transaction(|txn| table.insert(txn, &row(3)))?;
        drop(notes);
        let refused = |written: index_table::Result<()>| {
            let refused = written.expect_err("refused");
            let message = refused.to_string();
            assert!(matches!(refused, Error::SchemaMismatch { .. }), "{message}");
            assert!(message.contains("open it again: call `store.table`"), "{message}");
        };
        refused(store.transaction(|txn| table.insert(txn, &row(4))));
        // The other value is still alive.
        let again = store.table("notes")?;
        store.transaction(|txn| again.insert(txn, &row(4)))?;
        // The same declaration writes changes, too, whose places are not known here.
        let notes = After::open(&store)?;
        store.transaction(|txn| {
            (5..=9).try_for_each(|id| notes.insert(txn, &Later { id, text: "c".into() }))
        })?;
        drop(notes);
        refused(store.transaction(|txn| again.insert(txn, &row(10))));
        let again = store.table("notes")?;
        store.transaction(|txn| again.insert(txn, &row(10)))?;
        let notes = After::open(&store)?;
        assert!(notes.verify(&store.read()?).run()?.is_clean());
        let ids: BTreeSet<u64> =
            notes.find_by_text(&store.read()?, "b").keys().collect::<Result<_, _>>()?;
        assert_eq!(ids, BTreeSet::from([2, 3, 4, 10]));
        let changed = notes.changes(&store, "test")?.next_batch(100)?;
        let keys: Vec<_> = changed.iter().map(|change| change.key).collect();
        assert_eq!(keys, (1..=10).collect::<Vec<u64>>());
        assert!(changed.windows(2).all(|pair| pair[0].number < pair[1].number));
    }
    // A store with one data file grows.
    let store = Store::open(dir.path().join("one"))?;
    let table = store.table("notes")?;
    store.transaction(|txn| table.put(txn, &json!({ "id": 10, "text": "d" })))?;
    store.add_shard("south", "south")?;
    let row = json!({ "id": 11, "text": "d" });
    let refused = store.transaction(|txn| table.insert(txn, &row)).expect_err("refused");
    assert!(matches!(refused, Error::SchemaMismatch { .. }), "{refused}");
    let again = store.table("notes")?;
    store.transaction(|txn| again.insert(txn, &row))?;
    assert!(After::open(&store)?.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[test]
fn a_row_of_another_version_than_the_newest_list_is_not_written() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = First, shard_by = id)]
    struct NoteV1 {
        #[primary_key]
        id: u64,
        text: String,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = Second, version = 2, previous = NoteV1, shard_by = id)]
    struct NoteV2 {
        #[primary_key]
        id: u64,
        words: u32,
    }
    impl From<NoteV1> for NoteV2 {
        fn from(note: NoteV1) -> Self {
            Self { id: note.id, words: note.text.split(' ').count().try_into().unwrap_or(0) }
        }
    }
    let dir = tempfile::tempdir()?;
    for store in stores(dir.path(), "notes")? {
        let notes = First::open(&store)?;
        store.transaction(|txn| notes.insert(txn, &NoteV1 { id: 1, text: "a b".into() }))?;
        drop(notes);
        drop(Second::open(&store)?);
        let (table, row) = (store.table("notes")?, json!({ "id": 2, "text": "c" }));
        let refused = store.transaction(|txn| table.insert(txn, &row)).expect_err("refused");
        assert!(matches!(refused, Error::NotOffered { .. }), "{refused}");
        let notes = Second::open(&store)?;
        store.transaction(|txn| notes.insert(txn, &NoteV2 { id: 3, words: 3 }))?;
        drop(notes);
        let (table, row) = (store.table("notes")?, json!({ "id": 4, "words": 4 }));
        store.transaction(|txn| table.insert(txn, &row))?;
        // The stored row of the first version is not replaced.
        let row = json!({ "id": 1, "words": 9 });
        let refused = store.transaction(|txn| table.put(txn, &row)).expect_err("refused");
        assert!(matches!(refused, Error::NotOffered { .. }), "{refused}");
        let message = refused.to_string();
        assert!(message.contains("the keys of the stored row are not known"), "{message}");
        assert!(message.contains("version 1") && message.contains("`upgrade`"), "{message}");
        let deleted = store.transaction(|txn| table.delete(txn, json!(1))).expect_err("refused");
        assert_eq!(deleted.to_string(), message);
        let notes = Second::open(&store)?;
        let txn = store.read()?;
        let words = notes.all(&txn).rows().map(|note| note.map(|note| note.words));
        assert_eq!(words.collect::<Result<Vec<_>, _>>()?, [2, 3, 4]);
    }
    Ok(())
}

#[test]
fn a_list_without_a_declared_field_is_not_written() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = Before)]
    struct Note {
        #[primary_key]
        id: u64,
        text: String,
        #[serde(skip)]
        seen: bool,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = After)]
    struct Later {
        #[primary_key]
        id: u64,
        text: String,
        stars: u8,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = WithDefault)]
    struct Starred {
        #[primary_key]
        id: u64,
        text: String,
        #[serde(default)]
        stars: u8,
    }
    let row = |id: u64| json!({ "id": id, "text": "a" });
    let store = Store::in_memory();
    let notes = Before::open(&store)?;
    let note = Note { id: 1, text: "a".into(), seen: true };
    store.transaction(|txn| notes.insert(txn, &note))?;
    assert!(note.seen);
    drop(notes);
    // A field that serde skips is in no list.
    let table = store.table("notes")?;
    store.transaction(|txn| table.insert(txn, &row(2)))?;
    assert!(store.transaction(|txn| table.delete(txn, json!(1)))?);
    assert!(store.transaction(|txn| table.delete(txn, json!(2)))?);
    drop(table);
    drop(After::open(&store)?);
    let table = store.table("notes")?;
    let refused = store.transaction(|txn| table.insert(txn, &row(3))).expect_err("refused");
    assert!(matches!(refused, Error::NotOffered { .. }), "{refused}");
    let notes = After::open(&store)?;
    store.transaction(|txn| notes.insert(txn, &Later { id: 4, text: "a".into(), stars: 4 }))?;
    drop(notes);
    let table = store.table("notes")?;
    let refused = store.transaction(|txn| table.insert(txn, &row(5))).expect_err("refused");
    assert!(refused.to_string().contains("it lacks the field `stars`"), "{refused}");
    let notes = WithDefault::open(&store)?;
    let rows = notes.all(&store.read()?).rows().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(rows.iter().map(|note| (note.id, note.stars)).collect::<Vec<_>>(), [(4, 4)]);
    assert_eq!(rows.first().map(|note| note.text.as_str()), Some("a"));
    Ok(())
}
