//! Descending order: the encoding with every byte inverted.
//!
//! Inversion reverses the order of two encodings. No encoding is a prefix of another, so the first byte that
//! differs determines the order. The inverted encoding has the same length.

use std::fmt::{self, Debug};

use serde::Serialize;

use super::{DecodeError, Key, KeyBuf, KeyReader, KeyShape, PrefixKey, Unescaped};

/// A key in the descending order of `T`: the greatest value first, `None` last.
///
/// Queries take the same arguments as for `T`. Decoded values are owned, because inverted bytes can't be
/// borrowed.
///
/// For a field of a row, write `desc(field)` in the index; the type of the field stays `T`. A method of
/// `computed` returns `Desc<T>`. For the primary key, `rev()` reads rows in descending order.
///
/// # Examples
///
/// ```
/// use index_table::{Desc, IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, Serialize, Deserialize, IndexTable)]
/// #[index(genre, computed(decade: Desc<u16>))]
/// struct Film {
///     #[primary_key]
///     title: String,
///     genre: String,
///     year: u16,
/// }
///
/// impl Film {
///     fn decade(&self) -> Desc<u16> {
///         Desc(self.year / 10)
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let store = Store::open(dir.path())?;
/// let films = FilmRepository::open(&store)?;
/// store.transaction(|txn| {
///     for (title, year) in [("Alien", 1979), ("Stalker", 1979), ("Solaris", 1972), ("Dune", 1984)] {
///         films.insert(txn, &Film { title: title.into(), genre: "SF".into(), year })?;
///     }
///     Ok(())
/// })?;
/// let txn = store.read()?;
/// let newest_first = films.find_by_genre(&txn, "SF").keys().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(newest_first, ["Dune", "Alien", "Solaris", "Stalker"]);
/// assert_eq!(films.find_by_genre_decade(&txn, "SF", 198).count()?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Serialize)]
pub struct Desc<T>(pub T);

impl<T: Key + Debug + Clone + PartialEq + Serialize> Key for Desc<T> {
    type Arg<'a> = T::Arg<'a>;
    type Present<'a> = T::Present<'a>;
    type Ref<'a> = T;
    const SHAPE: KeyShape = KeyShape::Desc(&T::SHAPE);

    fn arg(&self) -> T::Arg<'_> {
        self.0.arg()
    }

    fn is_present(&self) -> bool {
        self.0.is_present()
    }

    fn encode(value: T::Arg<'_>, out: &mut KeyBuf) {
        encode::<T>(value, out);
    }

    fn decode(reader: &mut KeyReader<'_>) -> Result<T, DecodeError> {
        Self::decode_owned(reader).map(|Self(value)| value)
    }

    fn decode_owned(reader: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        let upright = upright(&Self::SHAPE, reader)?;
        let unescaped = Unescaped::default();
        T::decode_owned(&mut KeyReader::new(upright.as_bytes(), &unescaped)).map(Self)
    }
}

impl<T: PrefixKey + Debug + Clone + PartialEq + Serialize> PrefixKey for Desc<T> {
    type Prefix<'a> = T::Prefix<'a>;

    fn encode_prefix(prefix: T::Prefix<'_>, out: &mut KeyBuf) {
        inverted(out, |out| T::encode_prefix(prefix, out));
    }
}

/// Shows the value alone.
impl<T: Debug> Debug for Desc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Appends the encoding of a value in descending order.
pub(super) fn encode<T: Key>(value: T::Arg<'_>, out: &mut KeyBuf) {
    inverted(out, |out| T::encode(value, out));
}

/// Appends the inverted output of `encode`.
pub(super) fn inverted<T>(out: &mut KeyBuf, encode: impl FnOnce(&mut KeyBuf) -> T) -> T {
    let start = out.len();
    let outcome = encode(out);
    out.invert_from(start);
    outcome
}

/// Takes one value of `shape`, which is a [`KeyShape::Desc`], and returns its bytes without the inversion.
pub(super) fn upright(shape: &KeyShape, reader: &mut KeyReader<'_>) -> Result<KeyBuf, DecodeError> {
    let mut end = *reader;
    shape.skip(&mut end)?;
    let len = reader.len() - end.len();
    let mut bytes = KeyBuf::new();
    bytes.extend(reader.take(len)?);
    bytes.invert_from(0);
    Ok(bytes)
}
