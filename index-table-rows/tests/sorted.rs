//! Unordered collections are stored in a canonical order.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, DefaultHasher, Hash},
    mem::offset_of,
};

use index_table_rows::{Catalog, Collection, CollectionField, Sorted};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The order of a set with this hasher depends on its elements, its capacity and the order in which they came.
type Set<T> = HashSet<T, BuildHasherDefault<DefaultHasher>>;
type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

const SET: Collection = Collection { sorted: true, inside: &[] };

#[derive(Serialize, Deserialize, PartialEq, Eq, Hash, Debug, Clone)]
enum Tag {
    None,
    Text(String),
    Point { x: i32, y: Option<u8> },
}

type Pair = (Vec<Set<u8>>, u8, Option<Map<u16, Option<String>>>);

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone, Default)]
struct Row {
    id: u64,
    tags: Set<Tag>,
    texts: Set<String>,
    map: Map<String, Set<u32>>,
    pair: Pair,
    #[serde(skip_serializing_if = "Option::is_none")]
    maybe: Option<Set<String>>,
    #[serde(with = "as_is")]
    other: Set<u32>,
    last: Option<Tag>,
}

/// A form of the field that is written at another address.
mod as_is {
    use super::{Deserialize, Serialize, Set};

    pub(super) fn serialize<S: serde::Serializer>(
        set: &Set<u32>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        set.iter().copied().collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Set<u32>, D::Error> {
        Set::deserialize(from)
    }
}

const FIELDS: &[CollectionField] = &[
    CollectionField { offset: offset_of!(Row, tags), collection: SET },
    CollectionField { offset: offset_of!(Row, texts), collection: SET },
    CollectionField {
        offset: offset_of!(Row, map),
        collection: Collection { sorted: true, inside: &[SET] },
    },
    CollectionField {
        offset: offset_of!(Row, pair),
        collection: Collection {
            sorted: false,
            inside: &[
                Collection { sorted: false, inside: &[SET] },
                Collection { sorted: false, inside: &[] },
                Collection { sorted: false, inside: &[SET] },
            ],
        },
    },
    CollectionField {
        offset: offset_of!(Row, maybe),
        collection: Collection { sorted: false, inside: &[SET] },
    },
    CollectionField { offset: offset_of!(Row, other), collection: SET },
];

/// Returns the same set, with another order of its elements.
fn backward<T: Hash + Eq + Clone>(set: &Set<T>) -> Set<T> {
    let mut elements: Vec<T> = set.iter().cloned().collect();
    elements.reverse();
    let mut set = Set::with_capacity_and_hasher(4096, BuildHasherDefault::default());
    set.extend(elements);
    set
}

fn backward_map<K: Hash + Eq + Clone, V>(map: &Map<K, V>, value: impl Fn(&V) -> V) -> Map<K, V> {
    let mut pairs: Vec<_> = map.iter().map(|(key, it)| (key.clone(), value(it))).collect();
    pairs.reverse();
    let mut map = Map::with_capacity_and_hasher(4096, BuildHasherDefault::default());
    map.extend(pairs);
    map
}

fn row(count: u32) -> Row {
    let texts: Set<String> =
        (0..count).map(|it| "x".repeat(it as usize * 7 % 11) + &it.to_string()).collect();
    let tags = (0..count).map(|it| match it % 3 {
        0 => Tag::Text(it.to_string()),
        1 => Tag::Point { x: it.cast_signed(), y: Some(1) },
        _ => Tag::None,
    });
    Row {
        id: 1,
        tags: tags.collect(),
        texts: texts.clone(),
        map: (0..count).map(|it| (it.to_string(), (0..it).collect())).collect(),
        pair: (
            vec![(0..9).collect(), Set::default()],
            2,
            Some((0..count as u16).map(|it| (it, (it > 3).then(|| "é".into()))).collect()),
        ),
        maybe: (count > 10).then_some(texts),
        other: [1].into_iter().collect(),
        last: Some(Tag::Text("last".into())),
    }
}

fn other_order(row: &Row) -> Row {
    let Row { id, tags, texts, map, pair, maybe, other, last } = row;
    Row {
        id: *id,
        tags: backward(tags),
        texts: backward(texts),
        map: backward_map(map, backward),
        pair: (
            pair.0.iter().map(backward).collect(),
            pair.1,
            pair.2.as_ref().map(|map| backward_map(map, Clone::clone)),
        ),
        maybe: maybe.as_ref().map(backward),
        other: backward(other),
        last: last.clone(),
    }
}

fn recorded(catalog: &mut Catalog, row: &Row) -> Vec<u8> {
    let mut bytes = Vec::new();
    catalog.record_sorted(row, FIELDS, &mut bytes).unwrap();
    bytes
}

fn encoded(catalog: &Catalog, row: &Row) -> Vec<u8> {
    let mut bytes = Vec::new();
    catalog.encode_sorted(row, FIELDS, &mut bytes).unwrap();
    bytes
}

#[test]
fn equal_collections_have_equal_rows() {
    let mut catalog = Catalog::new();
    for count in [0, 5, 12, 40] {
        let (row, other) = (row(count), other_order(&row(count)));
        assert_eq!(row, other);
        let bytes = recorded(&mut catalog, &row);
        assert_eq!(encoded(&catalog, &row), bytes);
        assert_eq!(encoded(&catalog, &other), bytes);
        assert_eq!(recorded(&mut catalog, &other), bytes);
        assert!(catalog.is_same_sorted(&bytes, &other, FIELDS));
        assert!(catalog.is_same_sorted(&bytes, &row, FIELDS));
        assert_eq!(catalog.decode::<Row>(&bytes).unwrap(), row);

        let mut plain = [Vec::new(), Vec::new()];
        catalog.encode(&row, &mut plain[0]).unwrap();
        catalog.encode(&other, &mut plain[1]).unwrap();
        assert_ne!(plain[0], plain[1], "the test has two orders");
        assert_eq!(plain[0].len(), bytes.len());
    }
}

#[test]
fn a_changed_element_is_noticed() {
    let mut catalog = Catalog::new();
    let row = row(12);
    let bytes = recorded(&mut catalog, &row);
    let mut changed = row.clone();
    changed.texts.remove("0");
    changed.texts.insert("1x".into());
    assert!(!catalog.is_same_sorted(&bytes, &changed, FIELDS));
    let mut changed = row.clone();
    changed.map.get_mut("3").unwrap().insert(77);
    assert!(!catalog.is_same_sorted(&bytes, &changed, FIELDS));
    let changed = Row { last: Some(Tag::Text("lost".into())), ..row };
    assert!(!catalog.is_same_sorted(&bytes, &changed, FIELDS));
}

/// An older list stays the list of its rows, with the order of its bytes.
#[test]
fn rows_of_an_older_list_are_recognized() {
    let mut catalog = Catalog::new();
    let small = Row { texts: ["a".into(), "b".into()].into_iter().collect(), ..Row::default() };
    let large = Row { maybe: Some(Set::default()), ..row(5) };
    let old = recorded(&mut catalog, &large);
    let new = recorded(&mut catalog, &small);
    assert_ne!(old.first(), new.first(), "the lists are two");
    for (bytes, row) in [(&old, &large), (&new, &small)] {
        assert!(catalog.is_same_sorted(bytes, &other_order(row), FIELDS));
        assert_eq!(catalog.decode::<Row>(bytes).unwrap(), *row);
    }
}

#[test]
fn a_form_of_another_address_keeps_its_order() {
    let mut catalog = Catalog::new();
    let row = Row { other: (0..40).collect(), ..Row::default() };
    let bytes = recorded(&mut catalog, &row);
    let order: Vec<u32> = row.other.iter().copied().collect();
    let mut fields = catalog.fields(&bytes).unwrap();
    assert_eq!(fields.field::<Vec<u32>>(&["other"]).unwrap(), Some(order.clone()));
    assert!(!order.is_sorted());
}

#[test]
fn a_field_alone_is_sorted_as_in_its_row() {
    fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
        row: &Row,
        field: &T,
        other: &T,
    ) {
        let sorted = Sorted::in_field(FIELDS, row, field);
        let mut catalog = Catalog::new();
        let (mut bytes, mut again) = (Vec::new(), Vec::new());
        catalog.record_sorted(field, sorted, &mut bytes).unwrap();
        catalog.encode_sorted(other, sorted, &mut again).unwrap();
        assert_eq!(bytes, again);
        assert!(catalog.is_same_sorted(&bytes, other, sorted));
        assert_eq!(catalog.decode::<T>(&bytes).unwrap(), *field);
    }
    let row = row(20);
    let other = other_order(&row);
    check(&row, &row.tags, &other.tags);
    check(&row, &row.map, &other.map);
    check(&row, &row.pair, &other.pair);
    check(&row, &row.last, &other.last);
}

#[test]
fn a_flattened_struct_has_its_collections_sorted() {
    #[derive(Serialize)]
    struct Flat {
        #[serde(flatten)]
        point: Point,
        set: Set<u32>,
    }
    #[derive(Serialize)]
    struct Point {
        x: u8,
    }
    const FIELDS: &[CollectionField] =
        &[CollectionField { offset: offset_of!(Flat, set), collection: SET }];
    let set: Set<u32> = (0..40).collect();
    let other = Flat { point: Point { x: 1 }, set: backward(&set) };
    let mut catalog = Catalog::new();
    let (mut bytes, mut again) = (Vec::new(), Vec::new());
    catalog.record_sorted(&Flat { point: Point { x: 1 }, set }, FIELDS, &mut bytes).unwrap();
    catalog.encode_sorted(&other, FIELDS, &mut again).unwrap();
    assert_eq!(bytes, again);
}

/// Two releases write different structs into one set.
#[test]
fn sets_of_structs_of_two_releases_have_an_order_each() {
    #[derive(Serialize, Hash, PartialEq, Eq, Clone)]
    struct One {
        a: u8,
    }
    #[derive(Serialize, Hash, PartialEq, Eq, Clone)]
    struct Two {
        a: u8,
        b: String,
    }
    #[derive(Serialize)]
    struct Rows<T: Hash + Eq> {
        set: Set<T>,
    }
    const FIELDS: &[CollectionField] =
        &[CollectionField { offset: offset_of!(Rows<One>, set), collection: SET }];
    let one: Set<One> = (0..30).map(|a| One { a }).collect();
    let two: Set<Two> = (0..30).map(|a| Two { a, b: a.to_string() }).collect();
    let mut catalog = Catalog::new();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let other = (Rows { set: backward(&one) }, Rows { set: backward(&two) });
    catalog.record_sorted(&Rows { set: one }, FIELDS, &mut first).unwrap();
    catalog.record_sorted(&Rows { set: two.clone() }, FIELDS, &mut second).unwrap();
    assert!(catalog.is_same_sorted(&first, &other.0, FIELDS));
    assert!(catalog.is_same_sorted(&second, &other.1, FIELDS));
    let mut again = Vec::new();
    catalog.encode_sorted(&other.1, FIELDS, &mut again).unwrap();
    assert_eq!(again, second);
}
