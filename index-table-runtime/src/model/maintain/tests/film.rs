//! The entity, and its expected entries, computed without an [`Image`](super::Image).

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*, sample::select};
use serde::{Deserialize, Serialize};

use crate::model::{
    entity::Entity,
    error::EncodeError,
    key::{Each, Key, KeyBuf},
    maintain::EntryBuffer,
    row::{RowBody, RowOutput},
    schema::{FieldSchema, IndexSchema, KeyField, Strategy as Carried, TableSchema},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Film {
    pub(super) country: String,
    pub(super) id: u16,
    pub(super) title: String,
    pub(super) genre: String,
    pub(super) year: Option<i16>,
    pub(super) cast: Vec<String>,
    pub(super) codes: Vec<u8>,
    pub(super) rating: f32,
}

/// The indexes by position.
pub(super) const GENRE_YEAR: usize = 0;
pub(super) const GENRE: usize = 1;
pub(super) const TITLE: usize = 2;
pub(super) const UNIQUE_TITLE: usize = 3;
pub(super) const CAST: usize = 4;
pub(super) const UNIQUE_CODES: usize = 5;
pub(super) const SPARSE_YEAR: usize = 6;
pub(super) const CAST_GENRE: usize = 7;

const fn index(
    name: &'static str,
    key: &'static [KeyField],
    strategy: Carried,
    unique: bool,
) -> IndexSchema {
    IndexSchema { name, key, strategy, unique, eventual: false, conditions: &[], findings: &[] }
}

impl Entity for Film {
    type Key = (String, u16);

    const TABLE: &'static TableSchema = &TableSchema {
        name: "films",
        was: &[],
        version: 300,
        fields: &[
            FieldSchema::new::<String>("country", "String"),
            FieldSchema::new::<u16>("id", "u16"),
            FieldSchema::new::<String>("title", "String"),
            FieldSchema::new::<String>("genre", "String"),
            FieldSchema::new::<Option<i16>>("year", "Option<i16>"),
            FieldSchema::new::<Vec<String>>("cast", "Vec<String>"),
            FieldSchema::new::<Vec<u8>>("codes", "Vec<u8>"),
            FieldSchema::new::<f32>("rating", "f32"),
        ],
        previous: None,
        changed: &[],
        aggregates: &[],
        primary_key: &[KeyField::new::<String>("country"), KeyField::new::<u16>("id")],
        indexes: &[
            index(
                "genre_year",
                &[KeyField::new::<String>("genre"), KeyField::new::<Option<i16>>("year")],
                Carried::Partial(&["title", "rating"]),
                false,
            ),
            index("genre", &[KeyField::new::<String>("genre")], Carried::Normalized, false),
            index("title", &[KeyField::new::<String>("title")], Carried::Full, false),
            index("unique_title", &[KeyField::new::<String>("title")], Carried::Normalized, true),
            index("cast", &[KeyField::each::<Vec<String>>("cast")], Carried::Normalized, false),
            index(
                "codes",
                &[KeyField::each::<Vec<u8>>("codes")],
                Carried::Partial(&["rating"]),
                true,
            ),
            index("year", &[KeyField::new::<i16>("year")], Carried::Full, false),
            index(
                "cast_genre",
                &[KeyField::each::<Vec<String>>("cast"), KeyField::new::<String>("genre")],
                Carried::Partial(&["year"]),
                false,
            ),
        ],
    };

    fn encode(&self, out: RowOutput<'_>) -> Result<(), EncodeError> {
        crate::private::RowFormat::<Self>::encode(self, out)
    }

    fn decode(body: RowBody<'_>) -> Result<Self, crate::private::DecodeError> {
        crate::private::RowFormat::<Self>::decode(body)
    }

    fn primary_key(&self, key: &mut KeyBuf) {
        key.push(&self.country).push(&self.id);
    }

    fn entries(&self, index: usize, entries: &mut EntryBuffer) -> Result<(), EncodeError> {
        match index {
            GENRE_YEAR => {
                entries.key().push(&self.genre).push(&self.year);
                entries.include(&["title"]);
                entries.include(&["rating"]);
            }
            GENRE => {
                entries.key().push(&self.genre);
            }
            TITLE | UNIQUE_TITLE => {
                entries.key().push(&self.title);
            }
            CAST => self.cast.elements().for_each(|name| {
                entries.key().push(name);
            }),
            UNIQUE_CODES => {
                for code in self.codes.elements() {
                    entries.key().push(code);
                }
                entries.include(&["rating"]);
            }
            SPARSE_YEAR => {
                if let Some(year) = &self.year {
                    entries.key().push(year);
                }
            }
            CAST_GENRE => {
                for name in self.cast.elements() {
                    entries.key().push(name).push(&self.genre);
                }
                entries.include(&["year"]);
            }
            _ => panic!("there is no index {index}"),
        }
        Ok(())
    }
}

/// Returns a copy of fields of a row: the number of the first list, and the values.
fn copied(values: &impl Serialize) -> Vec<u8> {
    [vec![0], postcard::to_stdvec(values).unwrap()].concat()
}

/// The location of an entry: the index, its key and, unless the index is unique, the primary key.
pub(super) type EntryKey = (usize, Vec<u8>, Option<Vec<u8>>);

/// The entries: the primary key and the data at each location.
pub(super) type Entries = BTreeMap<EntryKey, (Vec<u8>, Vec<u8>)>;

fn bytes<T: Key>(value: &T) -> Vec<u8> {
    let mut key = KeyBuf::new();
    T::encode(value.arg(), &mut key);
    key.as_bytes().to_vec()
}

impl Film {
    pub(super) fn primary_key_bytes(&self) -> Vec<u8> {
        bytes(&(self.country.clone(), self.id))
    }

    /// Returns 8192 + version 300 as a varint, the number of the first list, and the values. postcard writes these kinds
    /// alike.
    pub(super) fn row_bytes(&self) -> Vec<u8> {
        [vec![0xAC, 0x42, 0], postcard::to_stdvec(self).unwrap()].concat()
    }

    pub(super) fn keys(&self, index: usize) -> BTreeSet<Vec<u8>> {
        let cast = self.cast.iter();
        match index {
            GENRE_YEAR => [bytes(&(self.genre.clone(), self.year))].into(),
            GENRE => [bytes(&self.genre)].into(),
            TITLE | UNIQUE_TITLE => [bytes(&self.title)].into(),
            CAST => cast.map(bytes).collect(),
            UNIQUE_CODES => self.codes.iter().map(bytes).collect(),
            SPARSE_YEAR => self.year.iter().map(bytes).collect(),
            CAST_GENRE => cast.map(|name| bytes(&(name.clone(), self.genre.clone()))).collect(),
            _ => panic!("there is no index {index}"),
        }
    }

    fn data(&self, index: usize) -> Vec<u8> {
        match index {
            GENRE_YEAR => copied(&(&self.title, self.rating)),
            TITLE | SPARSE_YEAR => self.row_bytes(),
            UNIQUE_CODES => copied(&self.rating),
            CAST_GENRE => copied(&self.year),
            _ => Vec::new(),
        }
    }

    pub(super) fn expected(&self) -> Entries {
        let primary_key = self.primary_key_bytes();
        let mut entries = Entries::new();
        for (index, declared) in Self::TABLE.indexes.iter().enumerate() {
            let suffix = (!declared.unique).then(|| primary_key.clone());
            for key in self.keys(index) {
                let entry = (primary_key.clone(), self.data(index));
                entries.insert((index, key, suffix.clone()), entry);
            }
        }
        entries
    }
}

/// Returns random films with many equal values.
pub(super) fn films() -> impl Strategy<Value = Film> {
    let texts = || select(vec!["", "\0", "a", "ab", "b"]).prop_map(str::to_owned);
    let years = prop::option::of(select(vec![i16::MIN, -1, 1942]));
    let codes = vec(select(vec![0, 1, 0xFF]), 0..5);
    (
        (select(vec!["US", "UK"]).prop_map(str::to_owned), 0..2_u16),
        (texts(), texts(), years),
        (vec(texts(), 0..5), codes, select(vec![0.0, -0.0, 7.5])),
    )
        .prop_map(|((country, id), (title, genre, year), (cast, codes, rating))| Film {
            country,
            id,
            title,
            genre,
            year,
            cast,
            codes,
            rating,
        })
}

/// Returns two films: any two films, or a film before and after a change of one field.
pub(super) fn changed() -> impl Strategy<Value = (Film, Film)> {
    (films(), films(), 0..10_usize).prop_map(|(old, other, field)| {
        let mut new = old.clone();
        match field {
            0 => new.country = other.country,
            1 => new.id = other.id,
            2 => new.title = other.title,
            3 => new.genre = other.genre,
            4 => new.year = other.year,
            5 => new.cast = other.cast,
            6 => new.codes = other.codes,
            7 => new.rating = other.rating,
            // The same elements in another order, and repeated.
            8 => new.cast.extend(old.cast.iter().rev().cloned()),
            _ => new = other,
        }
        (old, new)
    })
}

/// Returns a film to change in a test.
pub(super) fn casablanca() -> Film {
    Film {
        country: "US".to_owned(),
        id: 7,
        title: "Casablanca".to_owned(),
        genre: "Drama".to_owned(),
        year: Some(1942),
        cast: ["Bogart", "Bergman", "Bogart"].map(str::to_owned).to_vec(),
        codes: vec![3, 1, 3],
        rating: 8.5,
    }
}
