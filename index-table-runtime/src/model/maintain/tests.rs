//! Tests of index maintenance, with a hand-written entity that has an index of every kind.

mod changes;
mod film;
mod golden;
mod image;

use super::{Change, Image, Sink, data_changes, entry_changes, unique_keys};
use crate::model::{
    entity::Entity,
    error::{Error, Result},
    lists::Lists,
};

/// A change that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owned {
    Put { index: usize, key: Vec<u8>, primary_key: Vec<u8>, data: Vec<u8> },
    Delete { index: usize, key: Vec<u8>, primary_key: Vec<u8> },
}

/// Collects changes.
#[derive(Debug, Default)]
struct List(Vec<Owned>);

impl Sink for List {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        self.0.push(match change {
            Change::PutEntry { index, key, primary_key, data } => Owned::Put {
                index,
                key: key.to_vec(),
                primary_key: primary_key.to_vec(),
                data: data.to_vec(),
            },
            Change::DeleteEntry { index, key, primary_key } => {
                Owned::Delete { index, key: key.to_vec(), primary_key: primary_key.to_vec() }
            }
            fact => panic!("a change of a fact among those of entries: {fact:?}"),
        });
        Ok(())
    }
}

/// Loads the first row of a table.
fn image<R: Entity>(row: &R) -> Image {
    image_of(&Lists::default(), row)
}

fn image_of<R: Entity>(lists: &Lists, row: &R) -> Image {
    let mut image = Image::default();
    image.load(lists, row).unwrap();
    image
}

fn changes<R: Entity>(old: Option<&R>, new: Option<&R>) -> Vec<Owned> {
    let lists = Lists::default();
    let [old, new] = [old, new].map(|row| row.map(|row| image_of(&lists, row)));
    let mut list = List::default();
    entry_changes(R::TABLE, old.as_ref(), new.as_ref(), &mut list).unwrap();
    if let (Some(old), Some(new)) = (&old, &new)
        && old.same_key_bytes(new)
    {
        // The faster function sends the same changes.
        let mut fast = List::default();
        data_changes(R::TABLE, old, new, &mut fast).unwrap();
        assert_eq!(fast.0, list.0);
    }
    list.0
}
