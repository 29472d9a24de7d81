//! Random operations on a table, on disk and in memory, have the same results as on a map, and the indexes
//! match the rows.
#![no_main]

use std::{collections::BTreeMap, sync::LazyLock};

use index_table::{Durability, Error, IndexTable, Store, WriteTxn};
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
#[index(town, code, include = [tags])]
#[index(code, unique)]
#[index(each(tags))]
#[index(desc(code), sparse, filter = is_even, name = "even")]
#[index(hash(text), unique, name = "once")]
struct Row {
    #[primary_key]
    id: u8,
    town: String,
    code: Option<u8>,
    tags: Vec<String>,
    text: String,
}

impl Row {
    fn is_even(&self) -> bool {
        self.id.is_multiple_of(2)
    }
}

struct Table {
    store: Store,
    rows: RowRepository,
    _dir: Option<tempfile::TempDir>,
}

static TABLES: LazyLock<[Table; 2]> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Store::options().durability(Durability::None).map_size(1 << 28);
    let file = options.open(dir.path()).expect("a store");
    [(file, Some(dir)), (Store::in_memory(), None)].map(|(store, _dir)| {
        let rows = RowRepository::open(&store).expect("a table");
        Table { store, rows, _dir }
    })
});

type Model = BTreeMap<u8, Row>;

fn row(from: &mut impl Iterator<Item = u8>) -> Row {
    let mut next = || from.next().unwrap_or_default();
    let (id, shape, code) = (next() % 64, next(), next() % 32);
    let strings = ["", "a", "a\0", "ab", "\u{1}", "é"];
    let string = |n: u8| strings[usize::from(n) % strings.len()].to_owned();
    Row {
        id,
        town: string(shape),
        code: (code < 30).then_some(code),
        tags: (0..shape >> 6).map(|n| string(n * code)).collect(),
        text: string(shape).repeat(usize::from(shape)) + &format!("{}", next() % 40),
    }
}

fn is_taken(model: &Model, row: &Row, own: u8) -> bool {
    let others = model.values().filter(|other| other.id != own);
    let mut codes = others.clone().map(|other| other.code);
    codes.any(|code| code == row.code) || others.clone().any(|other| other.text == row.text)
}

/// The result of an operation: `None` if a key is taken.
type Outcome = Option<bool>;

fn run(rows: &RowRepository, txn: &mut WriteTxn<'_>, kind: u8, row: &Row) -> Outcome {
    let done = match kind {
        0 => rows.insert(txn, row).map(|()| true),
        1 => rows.put(txn, row).map(|()| true),
        2 => rows.update(txn, row.id, |old| row.town.clone_into(&mut old.town)),
        3 => rows.update(txn, row.id, |old| old.id = row.code.unwrap_or(old.id)),
        _ => rows.delete(txn, row.id),
    };
    match done {
        Ok(done) => Some(done),
        Err(Error::DuplicateKey { .. } | Error::UniqueViolation { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

fn expect(model: &mut Model, kind: u8, row: &Row) -> Outcome {
    let id = row.id;
    match kind {
        0 if model.contains_key(&id) => None,
        0 | 1 if is_taken(model, row, id) => None,
        0 | 1 => Some(model.insert(id, row.clone()).is_some() || true),
        2 => Some(model.get_mut(&id).map(|old| row.town.clone_into(&mut old.town)).is_some()),
        3 => {
            let to = row.code.unwrap_or(id);
            if !model.contains_key(&id) || to == id {
                return Some(model.contains_key(&id));
            }
            if model.contains_key(&to) {
                return None;
            }
            model.remove(&id).map(|old| model.insert(to, Row { id: to, ..old }).is_none())
        }
        _ => Some(model.remove(&id).is_some()),
    }
}

fuzz_target!(|data: &[u8]| {
    for Table { store, rows, .. } in &*TABLES {
        // The transaction is never committed, so each input starts with an empty table.
        let mut txn = store.write().expect("a transaction");
        let mut model = Model::new();
        let mut bytes = data.iter().copied();
        while let Some(kind) = bytes.next() {
            let (kind, row) = (kind % 5, row(&mut bytes));
            assert_eq!(run(rows, &mut txn, kind, &row), expect(&mut model, kind, &row), "{row:?}");
        }
        let found = rows.all(&txn).rows().collect::<Result<Vec<_>, _>>().expect("rows");
        assert!(found.iter().eq(model.values()));
        let report = rows.verify(&txn).run().expect("a report");
        assert!(report.is_clean(), "{report}");
        for row in model.values() {
            let of_town = rows.find_by_town(&txn, &row.town).keys();
            let expected = model.values().filter(|other| other.town == row.town).map(|it| it.id);
            assert!(of_town.map(|key| key.expect("a key")).eq(expected));
            assert_eq!(rows.get_by_once(&txn, &row.text).expect("a row").as_ref(), Some(row));
        }
    }
});
