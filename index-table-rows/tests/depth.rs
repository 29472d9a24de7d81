//! Depth that bytes claim doesn't overflow the stack of a thread, also without optimization.

use std::{collections::BTreeMap, thread};

use index_table_rows::{Catalog, Error, Reason};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

/// The stack of a thread by default.
const STACK: usize = 2 << 20;

/// The number of containers inside of each other.
const DEEP: usize = 1000;

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(STACK).spawn(test).unwrap().join().unwrap();
}

/// A list without a name, with a field for each kind.
fn list(kinds: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0, kinds.len() as u8];
    for (position, kind) in kinds.iter().enumerate() {
        bytes.extend([1, b'a' + position as u8, 0]);
        bytes.extend_from_slice(kind);
    }
    bytes
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A catalog whose rows have the kinds, in turn.
fn catalog(lists: &[Vec<u8>], root: &[&[u8]]) -> Result<Catalog, Error> {
    let mut bytes = vec![1, 1];
    bytes.extend(varint(lists.len()));
    bytes.extend(lists.concat());
    bytes.extend([0, 2, root.len() as u8]);
    bytes.extend(root.concat());
    // The other kind is the first. No loose structs.
    bytes.extend([0, 1, 0, 0, 0]);
    Catalog::from_bytes(&bytes)
}

fn nested(code: &[u8], times: usize, inner: &[u8]) -> Vec<u8> {
    [code.repeat(times), inner.to_vec()].concat()
}

const U8: u8 = 1;
const OPTION: u8 = 16;
const SEQ: u8 = 17;
const MAP: u8 = 19;
const STRUCT: u8 = 20;

/// A value of any depth.
#[derive(Serialize, Deserialize, Debug)]
struct Chain {
    a: Option<Box<Chain>>,
}

#[derive(Serialize, Deserialize, Debug)]
struct Many(Vec<Many>);

#[derive(Serialize)]
#[serde(untagged)]
enum Loose {
    Number(u8),
    Text(String),
    Chain(Chain),
    Shape(Shape),
}
#[derive(Serialize)]
enum Shape {
    Chain(Chain),
}

fn read_all(catalog: &Catalog, row: &[u8]) {
    let _ = catalog.decode::<IgnoredAny>(row);
    let _ = catalog.decode::<serde_json::Value>(row);
    let _ = catalog.decode::<Chain>(row);
    let _ = catalog.decode::<Many>(row);
    let _ = catalog.decode_noting::<Chain>(row);
    let _ = catalog.decode_noting::<BTreeMap<String, u8>>(row);
    if let Ok(mut fields) = catalog.fields(row) {
        let _ = fields.field::<serde_json::Value>(&["a"]);
        let _ = fields.end();
    }
}

fn two() -> Chain {
    Chain { a: Some(Chain { a: None }.into()) }
}

/// Uses a catalog from bytes in all ways.
fn use_all(mut catalog: Catalog) {
    for byte in 0..3 {
        read_all(&catalog, &[&[0][..], &vec![byte; 3 * DEEP][..]].concat());
    }
    let _ = catalog.clone() == catalog;
    let _ = catalog.to_bytes();
    let _ = catalog.encode(&two(), &mut Vec::new());
    let _ = catalog.is_same(&[0; DEEP], &two());
    let _ = catalog.record(&vec![two()], &mut Vec::new());
    let _ = catalog.record(&Vec::<u8>::new(), &mut Vec::new());
    let _ = catalog.record(&two(), &mut Vec::new());
}

#[test]
fn kinds_inside_of_each_other_are_bounded() {
    on_a_small_stack(|| {
        let mut accepted = 0;
        for code in [&[OPTION][..], &[SEQ], &[MAP, U8]] {
            for times in [24, 90, 95, 96, 97, 128, DEEP, 100_000] {
                let kind = nested(code, times, &[U8]);
                let both = [catalog(&[], &[&kind]), catalog(&[list(&[&kind])], &[&[STRUCT, 0]])];
                for catalog in both.into_iter().flatten() {
                    assert!(times < 128);
                    use_all(catalog);
                    accepted += 1;
                }
            }
        }
        assert!(accepted >= 12, "{accepted}");
    });
}

/// Each list has the one before, or the one behind, inside.
#[test]
fn lists_inside_of_each_other_are_bounded() {
    on_a_small_stack(|| {
        for count in [2, 100, 120, 1000, 4096_usize] {
            let lists = |is_forward: bool| -> Vec<Vec<u8>> {
                let inner = |at: usize| {
                    if is_forward {
                        Some(at + 1).filter(|at| *at < count)
                    } else {
                        at.checked_sub(1)
                    }
                };
                let kind = |at: usize| match inner(at) {
                    Some(inner) => [&[STRUCT][..], &varint(inner)].concat(),
                    None => vec![U8],
                };
                (0..count).map(|at| list(&[&kind(at)])).collect()
            };
            for (lists, outer) in [(lists(false), count - 1), (lists(true), 0)] {
                let outer = [&[SEQ, STRUCT][..], &varint(outer)].concat();
                match catalog(&lists, &[&outer]) {
                    Ok(catalog) => {
                        assert!(count < 128, "{count}");
                        use_all(catalog);
                    }
                    Err(error) => {
                        assert!(count > 120, "{count}: {error}");
                        assert_eq!(*error.reason(), Reason::Damaged);
                    }
                }
            }
        }
    });
}

fn is_too_deep<T: DeserializeOwned>(catalog: &Catalog, row: &[u8]) -> bool {
    catalog.decode::<T>(row).is_err_and(|error| *error.reason() == Reason::TooDeep)
}

#[test]
fn tags_inside_of_each_other_are_bounded() {
    on_a_small_stack(|| {
        let mut catalog = Catalog::new();
        let mut row = Vec::new();
        // A loose struct and an enum, inside of values with tags.
        let json = serde_json::json!([{ "k": [1, "x"] }, 1]);
        catalog.record(&json, &mut row).unwrap();
        let values = [
            Loose::Number(1),
            Loose::Text("x".into()),
            Loose::Chain(two()),
            Loose::Shape(Shape::Chain(two())),
        ];
        catalog.record(&values, &mut row).unwrap();
        let tags: [&[u8]; 6] =
            [&[0x8f, 1], &[0x90, 1, 0x41, b'a'], &[0x8e], &[0x91, 0], &[0x91, 0, 1], &[0x92, 0, 0]];
        for root in 0..3 {
            for tag in tags {
                let row = nested(tag, DEEP, &[1]);
                let row = [&[root][..], &row].concat();
                read_all(&catalog, &row);
            }
        }
        let any = Catalog::from_bytes(b"\x01\x01\0\0\x02\x01\x0f\0\x01\0\0\0").unwrap();
        for tag in [&tags[0], &tags[1]] {
            let row = [&[0][..], &nested(tag, DEEP, &[1])].concat();
            read_all(&any, &row);
            assert!(is_too_deep::<IgnoredAny>(&any, &row));
            assert!(is_too_deep::<serde_json::Value>(&any, &row));
        }
        let row = [&[0][..], &nested(tags[0], DEEP, &[0x8f, 0])].concat();
        assert!(is_too_deep::<Many>(&any, &row));
    });
}

#[test]
fn a_deep_value_is_refused() {
    on_a_small_stack(|| {
        let mut many = Many(Vec::new());
        let mut chain = Chain { a: None };
        for _ in 0..DEEP {
            many = Many(vec![many]);
            chain = Chain { a: Some(chain.into()) };
        }
        let mut catalog = Catalog::new();
        let error = catalog.record(&many, &mut Vec::new()).unwrap_err();
        assert_eq!(*error.reason(), Reason::TooDeep);
        let error = catalog.record(&chain, &mut Vec::new()).unwrap_err();
        assert_eq!(*error.reason(), Reason::TooDeep);
    });
}
