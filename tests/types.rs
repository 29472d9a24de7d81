//! The types of fields, in each spelling.

use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(tag)]
#[index(each(marks), include = [children])]
#[index(next, strategy = "full")]
struct Node {
    #[primary_key]
    id: [u8; Self::ID],
    tag: [u8; Self::TAG],
    marks: Vec<[u8; Self::TAG]>,
    next: Option<[u8; Self::ID]>,
    children: Vec<Self>,
}

impl Node {
    const ID: usize = 2;
    const TAG: usize = 3;
}

#[test]
fn self_is_the_struct_wherever_the_type_is_repeated() -> TestResult {
    let store = Store::in_memory();
    let nodes = NodeRepository::open(&store)?;
    let leaf = Node { id: [0, 2], tag: *b"tag", marks: vec![], next: None, children: vec![] };
    let node = Node {
        id: [0, 1],
        tag: *b"top",
        marks: vec![*b"one", *b"two"],
        next: Some(leaf.id),
        children: vec![leaf.clone()],
    };
    store.transaction(|txn| nodes.insert(txn, &node))?;

    let txn = store.read()?;
    assert_eq!(nodes.get(&txn, [0, 1])?.as_ref(), Some(&node));
    assert_eq!(nodes.find_by_tag(&txn, *b"top").first()?, Some(node.clone()));
    let entry = nodes.find_by_marks(&txn, *b"two").entries().next().ok_or("none")??;
    assert_eq!((entry.marks, entry.children), (*b"two", vec![leaf]));
    let entry = nodes.find_by_next(&txn, Some([0, 2])).entries().next().ok_or("none")??;
    assert_eq!(entry.children, node.children);
    Ok(())
}

/// A row with the maximum number of fields in its primary key.
#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(text)]
struct Twelve {
    #[primary_key]
    a: u8,
    #[primary_key]
    b: u8,
    #[primary_key]
    c: u8,
    #[primary_key]
    d: u8,
    #[primary_key]
    e: u8,
    #[primary_key]
    f: u8,
    #[primary_key]
    g: u8,
    #[primary_key]
    h: u8,
    #[primary_key]
    i: u8,
    #[primary_key]
    j: u8,
    #[primary_key]
    k: String,
    #[primary_key]
    l: i8,
    text: String,
}

#[test]
fn entries_that_carry_own_types_have_the_traits_of_a_derive() -> TestResult {
    let store = Store::in_memory();
    let nodes = NodeRepository::open(&store)?;
    let leaf = Node { id: [0, 2], tag: *b"tag", marks: vec![], next: None, children: vec![] };
    let marks = vec![*b"one", *b"two"];
    let node = Node { id: [0, 1], marks, children: vec![leaf.clone()], ..leaf };
    store.transaction(|txn| nodes.insert(txn, &node))?;

    let txn = store.read()?;
    let entries = nodes.by_marks(&txn).entries().collect::<Result<Vec<_>, _>>()?;
    let [one, two] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!(one.clone(), *one);
    assert_ne!(one, two);
    let NodeByMarks { marks, id, children } = one;
    assert_eq!(
        format!("{one:?}"),
        format!("NodeByMarks {{ marks: {marks:?}, id: {id:?}, children: {children:?} }}")
    );
    Ok(())
}

#[test]
fn a_primary_key_can_have_twelve_fields() -> TestResult {
    let store = Store::in_memory();
    let table = TwelveRepository::open(&store)?;
    let row = |l| Twelve {
        a: 1,
        b: 2,
        c: 3,
        d: 4,
        e: 5,
        f: 6,
        g: 7,
        h: 8,
        i: 9,
        j: 10,
        k: "eleven".to_owned(),
        l,
        text: "x".to_owned(),
    };
    store.transaction(|txn| {
        table.insert(txn, &row(12))?;
        table.insert(txn, &row(-12))
    })?;

    let txn = store.read()?;
    let found = table.get(&txn, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, "eleven", 12)?;
    assert_eq!(found, Some(row(12)));
    let keys: Vec<_> = table.find_by_text(&txn, "x").keys().collect::<Result<_, _>>()?;
    let key = |l| (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, "eleven".to_owned(), l);
    assert_eq!(keys, [key(-12), key(12)]);
    Ok(())
}

mod before {
    use super::*;

    #[derive(Serialize, Deserialize, IndexTable)]
    pub(super) struct Span {
        #[primary_key]
        id: u64,
        name: String,
        range: (u8, Option<u16>),
    }
}

#[allow(unused_parens, reason = "it is the other spelling that counts")]
mod after {
    use super::*;

    #[derive(Serialize, Deserialize, IndexTable)]
    #[rustfmt::skip]
    pub(super) struct Span {
        #[primary_key]
        id: (u64),
        name: std::string::String,
        range: (
            u8,
            ::core::option::Option<
                u16,
            >,
        ),
    }
}

#[test]
fn another_spelling_of_the_same_types_opens_the_same_table() -> TestResult {
    let store = Store::in_memory();
    before::SpanRepository::open(&store)?;
    after::SpanRepository::open(&store)?;
    Ok(())
}
