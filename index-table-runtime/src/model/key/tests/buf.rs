//! Comparison of [`KeyBuf`] with a `Vec`.

use proptest::{collection::vec, prelude::*};

use super::{KeyBuf, arrange::for_all};

/// The capacity without the heap.
const INLINE: usize = 64;

#[derive(Debug, Clone)]
enum Edit {
    Extend(Vec<u8>),
    Push(String),
    Clear,
    Clone,
}

fn steps() -> impl Strategy<Value = Vec<Edit>> {
    let len = prop_oneof![4 => 0..12_usize, 1 => INLINE - 2..INLINE + 3, 1 => 100..300_usize];
    let bytes = len.prop_flat_map(|len| vec(any::<u8>(), len));
    let step = prop_oneof![
        6 => bytes.prop_map(Edit::Extend),
        2 => vec(any::<char>(), 0..8).prop_map(|text| Edit::Push(text.into_iter().collect())),
        1 => Just(Edit::Clear),
        1 => Just(Edit::Clone),
    ];
    vec(step, 0..24)
}

fn assert_same(key: &KeyBuf, model: &[u8]) {
    assert_eq!(key.as_bytes(), model);
    assert_eq!(key.len(), model.len());
    assert_eq!(key.is_empty(), model.is_empty());
    assert_eq!(format!("{key:?}"), format!("{model:?}"));
}

#[test]
fn a_key_buf_behaves_like_a_vec() {
    for start in [KeyBuf::new, KeyBuf::on_heap, KeyBuf::default] {
        for_all(steps(), |steps| {
            let (mut key, mut model) = (start(), Vec::new());
            for step in steps {
                match step {
                    Edit::Extend(bytes) => {
                        key.extend(&bytes);
                        model.extend(bytes);
                    }
                    Edit::Push(text) => {
                        key.push(&text);
                        model.extend(super::encoded(&text));
                    }
                    Edit::Clear => {
                        key.clear();
                        model.clear();
                    }
                    Edit::Clone => {
                        let before = key.clone();
                        key.extend(b"more");
                        assert_same(&before, &model);
                        assert_ne!(before, key);
                        key = before;
                    }
                }
                assert_same(&key, &model);
            }
        });
    }
}

#[test]
fn a_key_buf_spills_at_the_inline_size() {
    for len in INLINE - 2..INLINE + 3 {
        let bytes: Vec<u8> = (0_u8..).take(len).collect();
        let mut at_once = KeyBuf::new();
        at_once.extend(&bytes);
        let mut one_by_one = KeyBuf::new();
        for &byte in &bytes {
            one_by_one.extend(&[byte]);
        }
        let mut last = KeyBuf::new();
        last.extend(&bytes[..len - 1]);
        last.extend(&bytes[len - 1..]);
        let mut heap = KeyBuf::on_heap();
        heap.extend(&bytes);
        for key in [&at_once, &one_by_one, &last, &heap] {
            assert_same(key, &bytes);
            assert_eq!(*key, at_once);
        }

        // A cleared buffer is reused, on the heap or not.
        at_once.clear();
        assert_same(&at_once, &[]);
        at_once.extend(b"again");
        assert_same(&at_once, b"again");
        assert_ne!(at_once, one_by_one);
    }
}

#[test]
fn key_bufs_are_compared_by_bytes() {
    let (mut inline, mut heap) = (KeyBuf::new(), KeyBuf::on_heap());
    assert_eq!(inline, heap);
    inline.push(&7_u32);
    assert_ne!(inline, heap);
    heap.push(&7_u32);
    assert_eq!(inline, heap);
    heap.clear();
    heap.push(&8_u32);
    assert_ne!(inline, heap);
}
