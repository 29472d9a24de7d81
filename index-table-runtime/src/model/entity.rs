//! The traits that the derive implements for rows and index entries.

use std::{fmt::Display, marker::PhantomData};

use serde::{Serialize, de::DeserializeOwned};

pub(crate) use crate::model::reader::{EntryContext, Form};
pub use crate::model::reader::{EntryReader, RowReader};
use crate::model::{
    error::EncodeError,
    expiry::Expiry,
    key::{DecodeError, Key, KeyBuf},
    lists::Lists,
    maintain::EntryBuffer,
    reference::ReferenceSchema,
    revision::Revision,
    row::{self, CollectionField, RowBody, RowOutput},
    schema::{AggregateSchema, PreviousRow, Release, RowSchema, Source, TableSchema},
    shard::Distribution,
    stream::ChangeStream,
};

/// A type that serde can write and read. A struct without serde's traits gives this single error, because
/// [`RowFormat`] does not require them.
#[diagnostic::on_unimplemented(
    message = "rows of `{Self}` can't be stored: serde can't write and read them",
    label = "lacks serde's `Serialize` or `Deserialize`",
    note = "put both on the struct: `#[derive(serde::Serialize, serde::Deserialize)]`"
)]
pub trait Stored {}

#[diagnostic::do_not_recommend]
impl<R: Serialize + DeserializeOwned> Stored for R {}

/// A type that compiles only if a row of type `R` can be stored.
#[derive(Debug)]
pub struct IsStored<R: Stored>(PhantomData<R>);

/// A type that serde can read, like [`Stored`] for a struct with `#[derive(RowVersion)]`.
#[diagnostic::on_unimplemented(
    message = "rows of `{Self}` can't be read: serde can't read them",
    label = "lacks serde's `Deserialize`",
    note = "put it on the struct: `#[derive(serde::Deserialize)]`"
)]
pub trait Read {}

#[diagnostic::do_not_recommend]
impl<R: DeserializeOwned> Read for R {}

/// A type that compiles only if a row of type `R` can be read.
#[derive(Debug)]
pub struct IsRead<R: Read>(PhantomData<R>);

/// Encodes and decodes rows of type `R` with serde. [`NoRowFormat`] has the functions for types without
/// serde's traits.
#[derive(Debug)]
pub struct RowFormat<R>(PhantomData<R>);

impl<R: Serialize> RowFormat<R> {
    /// Appends the bytes of the struct.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] when its `Serialize` fails.
    #[inline]
    pub fn encode(row: &R, out: RowOutput<'_>) -> Result<(), EncodeError> {
        let RowOutput { lists, is_private, bytes } = out;
        if is_private { lists.encode_private(row, &[], bytes) } else { lists.encode(row, bytes) }
    }
}

impl<R: Serialize + Entity> RowFormat<R> {
    /// Like [`encode`](Self::encode), for a row with [`Entity::COLLECTIONS`].
    ///
    /// # Errors
    ///
    /// [`EncodeError`] when its `Serialize` fails.
    pub fn encode_sorted(row: &R, out: RowOutput<'_>) -> Result<(), EncodeError> {
        let RowOutput { lists, is_private, bytes } = out;
        let encode = if is_private { Lists::encode_private } else { Lists::encode_sorted };
        encode(lists, row, R::COLLECTIONS, bytes)
    }
}

impl<R: DeserializeOwned> RowFormat<R> {
    /// Reads a struct from all of the bytes.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not an encoding of the struct.
    #[inline]
    pub fn decode(body: RowBody<'_>) -> Result<R, DecodeError> {
        row::whole(body)
    }
}

/// The functions of [`RowFormat`] for a type without serde's traits. They never run, because [`IsStored`]
/// doesn't compile for such a type.
pub trait NoRowFormat<R> {
    /// Replaces [`RowFormat::encode`].
    ///
    /// # Errors
    ///
    /// None.
    fn encode(_: &R, _: RowOutput<'_>) -> Result<(), EncodeError> {
        Ok(())
    }

    /// Replaces [`RowFormat::encode_sorted`].
    ///
    /// # Errors
    ///
    /// None.
    fn encode_sorted(_: &R, _: RowOutput<'_>) -> Result<(), EncodeError> {
        Ok(())
    }

    /// Replaces [`RowFormat::decode`].
    ///
    /// # Errors
    ///
    /// [`DecodeError`], always.
    fn decode(_: RowBody<'_>) -> Result<R, DecodeError> {
        Err(DecodeError::Short)
    }
}

impl<R> NoRowFormat<R> for RowFormat<R> {}

/// A row type with `#[derive(IndexTable)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an entity",
    note = "put `#[derive(IndexTable)]` on the struct"
)]
pub trait Entity: Sized + 'static {
    /// The primary key: the field's type, or the tuple of the fields' types.
    type Key: Key;

    /// The declared table.
    const TABLE: &'static TableSchema;

    /// The release of the program that declares the table, for errors.
    const RELEASE: Release = Release::UNKNOWN;

    /// The distribution of the rows among shards.
    const DISTRIBUTION: Distribution = Distribution::Whole;

    /// The fields with collections that are stored in a canonical order.
    const COLLECTIONS: &'static [CollectionField] = &[];

    /// Whether a row can have other entries when it is read back, so that each row is read back before it is written.
    const READS_BACK: bool = false;

    /// Whether a row keeps its fields that a later release of the program has added, when it is written.
    const KEEPS_UNKNOWN: bool = false;

    /// The index that orders the rows by the time of `#[table(expires = …)]`.
    const EXPIRY: Option<Expiry> = None;

    /// The functions for the field with `#[revision]`.
    const REVISION: Option<Revision> = None;

    /// The aggregates. Their groups follow the entries of the indexes, in [`entries`](Self::entries).
    const AGGREGATES: &'static [AggregateSchema] = &[];

    /// The change stream of `#[table(changes)]`.
    const CHANGES: Option<ChangeStream> = None;

    /// The references to rows of other tables. Their keys follow the groups, in [`entries`](Self::entries).
    const REFERENCES: &'static [ReferenceSchema] = &[];

    /// Appends the bytes of the struct, without the leading version.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] when the row can't be encoded.
    fn encode(&self, out: RowOutput<'_>) -> Result<(), EncodeError>;

    /// Reads the bytes of a struct, without the version in front.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a row.
    fn decode(body: RowBody<'_>) -> Result<Self, DecodeError>;

    /// Appends the primary key.
    fn primary_key(&self, key: &mut KeyBuf);

    /// Adds the row's entries in the index at position `index`, or its group and summands in an aggregate, or the
    /// primary key of the referenced row.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] when an included field can't be encoded.
    fn entries(&self, index: usize, entries: &mut EntryBuffer) -> Result<(), EncodeError>;

    /// Appends the encodings of the hashed fields in the key of the index at position `index`, in the order
    /// of the key.
    fn hashed(&self, index: usize, values: &mut KeyBuf) {
        let _ = (index, values);
    }

    /// Like [`hashed`](Self::hashed), from an entry of an index that carries all of these fields.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not an entry of this index.
    fn hashed_in_entry(
        index: usize,
        entry: EntryReader<'_>,
        values: &mut KeyBuf,
    ) -> Result<(), DecodeError> {
        let _ = (index, entry, values);
        Ok(())
    }

    /// Reads a row of a version before this one, without the version in front, and converts it.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a row.
    fn older(version: u32, body: RowBody<'_>) -> Result<Self, DecodeError> {
        let _ = body;
        Err(DecodeError::Version { found: version, expected: Self::TABLE.version })
    }
}

/// The struct of a table's rows in any version: with `#[derive(IndexTable)]` or `#[derive(RowVersion)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a version of a row",
    label = "is not a version of a row",
    note = "put `#[derive(RowVersion)]` on the struct, with `#[table(version = …)]` as it was"
)]
pub trait RowVersion: Sized {
    /// The schema of the rows in this version.
    const ROW: &'static RowSchema;

    /// Reads the bytes of a struct, without the version in front.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a row.
    fn decode(body: RowBody<'_>) -> Result<Self, DecodeError>;

    /// Reads a row of a version before this one, without the version in front, and converts it.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a row.
    fn older(version: u32, body: RowBody<'_>) -> Result<Self, DecodeError> {
        let _ = body;
        Err(DecodeError::Version { found: version, expected: Self::ROW.version })
    }
}

#[diagnostic::do_not_recommend]
impl<R: Entity> RowVersion for R {
    const ROW: &'static RowSchema = &RowSchema {
        version: R::TABLE.version,
        fields: R::TABLE.fields,
        previous: R::TABLE.previous,
        changed: R::TABLE.changed,
    };

    fn decode(body: RowBody<'_>) -> Result<Self, DecodeError> {
        <R as Entity>::decode(body)
    }

    fn older(version: u32, body: RowBody<'_>) -> Result<Self, DecodeError> {
        <R as Entity>::older(version, body)
    }
}

/// A struct whose rows are converted into rows of the next version, `Next`.
#[diagnostic::on_unimplemented(
    message = "rows of `{Self}` can't be converted into `{Next}`",
    label = "the next version, `{Next}`, has no `From` for it, and no `TryFrom` whose `Error` has `Display`",
    note = "write `impl From<{Self}> for {Next}`, or `impl TryFrom<{Self}> for {Next}` if it can fail"
)]
pub trait Precedes<Next> {
    /// Converts a row. A `From` never fails.
    ///
    /// # Errors
    ///
    /// The text of the error of `TryFrom`.
    fn convert(self) -> Result<Next, String>;
}

#[diagnostic::do_not_recommend]
impl<Old, Next: TryFrom<Old, Error: Display>> Precedes<Next> for Old {
    #[inline]
    fn convert(self) -> Result<Next, String> {
        self.try_into().map_err(|error: Next::Error| error.to_string())
    }
}

/// The version before `Next`; [`NoVersion`] provides values for types that are not a version.
#[derive(Debug)]
pub struct VersionOf<T, Next>(PhantomData<(T, Next)>);

impl<T: RowVersion, Next> VersionOf<T, Next> {
    /// The schema of `T`.
    pub const ROW: Option<PreviousRow> = Some(PreviousRow { schema: T::ROW });
}

impl<T: RowVersion, Next> VersionOf<T, Next> {
    /// The number of the version.
    pub const NUMBER: u32 = T::ROW.version;
}

/// The values for a type that is not a version of a row, so that it causes no further errors. [`VersionOf`]
/// has precedence.
pub trait NoVersion {
    /// Replaces [`VersionOf::ROW`].
    const ROW: Option<PreviousRow> = None;
    /// Replaces [`VersionOf::NUMBER`].
    const NUMBER: u32 = 0;
}

impl<T, Next> NoVersion for VersionOf<T, Next> {}

/// The items of [`Scan::entries`](crate::Scan::entries): the entry struct of an index, or the row itself for
/// the fact table.
///
/// Use this trait as the bound of functions that take any scan. Only the derive implements it, and its items
/// may change with any release.
///
/// # Examples
///
/// ```
/// use index_table::{IndexEntry, IndexTable, Result, Scan, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[index(town)]
/// struct Customer {
///     #[primary_key]
///     id: u32,
///     town: String,
/// }
///
/// /// Returns the rows of a page, and the cursor for the link to the next page.
/// fn page<'txn, E: IndexEntry<'txn>>(
///     scan: Scan<'txn, E>,
///     after: Option<&str>,
/// ) -> Result<(Vec<E::Row>, Option<String>)> {
///     let scan = match after {
///         Some(text) => scan.after(&text.parse()?),
///         None => scan,
///     };
///     let page = scan.page(20)?;
///     Ok((page.items, page.next.map(|cursor| cursor.to_string())))
/// }
///
/// # fn main() -> Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory"); let store = Store::open(dir.path())?;
/// # let customers = CustomerRepository::open(&store)?;
/// store.transaction(|txn| {
///     (0..30).try_for_each(|id| customers.insert(txn, &Customer { id, town: "Oslo".into() }))
/// })?;
/// let txn = store.read()?;
/// let (first, next) = page(customers.find_by_town(&txn, "Oslo"), None)?;
/// let (last, end) = page(customers.find_by_town(&txn, "Oslo"), next.as_deref())?;
/// assert_eq!((first.len(), last.len(), end), (20, 10, None));
/// assert_eq!(page(customers.all(&txn), None)?.0.len(), 20);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither an entry of an index nor a row",
    label = "is neither an entry of an index nor a row",
    note = "if this type has the name of an index's entry, give the index another name: `#[index(…, name = \"…\")]`"
)]
pub trait IndexEntry<'txn>: Sized {
    /// The row type.
    type Row: Entity;

    /// The source of the entries.
    #[doc(hidden)]
    const SOURCE: Source;

    /// Reads one entry.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not an entry of this index.
    #[doc(hidden)]
    fn decode(entry: EntryReader<'txn>) -> Result<Self, DecodeError>;
}

#[diagnostic::do_not_recommend]
impl<R: Entity> IndexEntry<'_> for R {
    type Row = R;
    const SOURCE: Source = Source::Facts;

    fn decode(entry: EntryReader<'_>) -> Result<Self, DecodeError> {
        entry.fact()
    }
}

/// A row type with `#[table(view)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no view",
    note = "put `#[table(view)]` on the struct"
)]
pub trait Viewed: Entity {
    /// The borrowed form of the row.
    type View<'txn>;

    /// Reads the fields of one row, in stored order.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not an encoding of these fields.
    fn view<'txn>(row: &mut RowReader<'txn>) -> Result<Self::View<'txn>, DecodeError>;
}

/// `T`, with a lifetime, so that a view always has a lifetime, even if it borrows nothing.
pub trait Within<'txn> {
    /// The type itself.
    type Value;
}

impl<T> Within<'_> for T {
    type Value = T;
}
