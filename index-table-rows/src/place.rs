//! The kinds that a catalog expects, for values that are written without their type.

use crate::{
    catalog::{Catalog, ROOT},
    kind::{Enum, Form, Kind, List},
};

/// The kind that is recorded for one place of a row. From [`Catalog::row_kind`].
#[derive(Clone, Copy, Debug)]
pub struct RecordedKind<'c> {
    catalog: &'c Catalog,
    kind: &'c Kind,
    keep: fn(&str) -> &'static str,
}

/// The form of the values of a [`RecordedKind`].
#[derive(Clone, Debug)]
pub enum RecordedForm<'c> {
    /// No value was written here.
    Unseen,
    /// `u8`.
    U8,
    /// `i8`.
    I8,
    /// An unsigned integer of 16 to 64 bits.
    Unsigned,
    /// A signed integer of 16 to 64 bits.
    Signed,
    /// `u128`.
    U128,
    /// `i128`.
    I128,
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// `bool`.
    Bool,
    /// `char`.
    Char,
    /// Text.
    Text,
    /// Bytes; with this number of them, if it is always the same.
    Bytes(Option<usize>),
    /// A unit.
    Unit,
    /// Values of several kinds.
    Any,
    /// An option.
    Option(RecordedKind<'c>),
    /// A sequence.
    Seq(RecordedKind<'c>),
    /// This number of elements of one kind.
    Array(usize, RecordedKind<'c>),
    /// A map.
    Map(RecordedKind<'c>, RecordedKind<'c>),
    /// A tuple, with the kinds of its elements.
    Tuple(Vec<RecordedKind<'c>>),
    /// A struct.
    Struct(RecordedStruct<'c>),
    /// An enum.
    Enum(RecordedEnum<'c>),
    /// One of several kinds, as they are written now.
    OneOf(Vec<RecordedKind<'c>>),
}

/// A struct of a [`RecordedForm`].
#[derive(Clone, Copy, Debug)]
pub struct RecordedStruct<'c> {
    /// Its name, a hint.
    pub name: &'static str,
    kind: RecordedKind<'c>,
    list: &'c List,
}

/// A field of a [`RecordedStruct`].
#[derive(Clone, Copy, Debug)]
pub struct RecordedField<'c> {
    /// Its name in rows.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: RecordedKind<'c>,
    /// Whether a row may lack it.
    pub absent: bool,
}

/// An enum of a [`RecordedForm`].
#[derive(Clone, Copy, Debug)]
pub struct RecordedEnum<'c> {
    /// Its name, a hint.
    pub name: &'static str,
    kind: RecordedKind<'c>,
    of: &'c Enum,
}

/// A variant of a [`RecordedEnum`].
#[derive(Clone, Copy, Debug)]
pub struct RecordedVariant<'c> {
    /// Its position.
    pub at: u32,
    /// Its name in rows.
    pub name: &'static str,
    /// The form of its payload.
    pub form: VariantForm,
    /// The kind of its payload.
    pub payload: RecordedKind<'c>,
}

/// The form of the payload of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariantForm {
    /// No payload.
    Unit,
    /// One value.
    Newtype,
    /// Values without names.
    Tuple,
    /// Values with names.
    Struct,
}

impl Catalog {
    /// Returns the kind of the rows of the list that was recorded last; `None` if there is none, or if rows are not structs, because of
    /// `flatten` or `transparent`. `keep` returns names for `Serialize`, and for equal names the same text.
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table_rows::{Catalog, RecordedForm};
    /// #[derive(serde::Serialize)]
    /// struct Town {
    ///     id: u64,
    ///     name: String,
    /// }
    ///
    /// # fn main() -> Result<(), index_table_rows::Error> {
    /// let (mut catalog, mut row) = (Catalog::new(), Vec::new());
    /// catalog.record(&Town { id: 7, name: "Oslo".into() }, &mut row)?;
    /// let kind = catalog.row_kind(|name| name.to_owned().leak()).unwrap();
    /// let RecordedForm::Struct(town) = kind.form() else { panic!("a struct") };
    /// let names: Vec<_> = town.fields().map(|field| field.name).collect();
    /// assert_eq!(names, ["id", "name"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn row_kind(&self, keep: fn(&str) -> &'static str) -> Option<RecordedKind<'_>> {
        let root = self.unions.get(ROOT as usize).filter(|root| root.other.is_none())?;
        let kind = root.kinds.get(*root.current.iter().max()? as usize)?;
        matches!(kind, Kind::Struct(_)).then_some(RecordedKind { catalog: self, kind, keep })
    }
}

impl<'c> RecordedKind<'c> {
    const fn of(self, kind: &'c Kind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the form of the values.
    #[must_use]
    pub fn form(self) -> RecordedForm<'c> {
        match self.kind {
            Kind::Hole => RecordedForm::Unseen,
            Kind::U8 => RecordedForm::U8,
            Kind::I8 => RecordedForm::I8,
            Kind::Unsigned => RecordedForm::Unsigned,
            Kind::Signed => RecordedForm::Signed,
            Kind::U128 => RecordedForm::U128,
            Kind::I128 => RecordedForm::I128,
            Kind::F32 => RecordedForm::F32,
            Kind::F64 => RecordedForm::F64,
            Kind::Bool => RecordedForm::Bool,
            Kind::Char => RecordedForm::Char,
            Kind::Text => RecordedForm::Text,
            Kind::Bytes => RecordedForm::Bytes(None),
            Kind::Bytes16 => RecordedForm::Bytes(Some(16)),
            Kind::Unit => RecordedForm::Unit,
            Kind::Any => RecordedForm::Any,
            Kind::Option(inner) => RecordedForm::Option(self.of(inner)),
            Kind::Seq(element) => RecordedForm::Seq(self.of(element)),
            Kind::Array(len, element) => RecordedForm::Array(*len as usize, self.of(element)),
            Kind::Map(kinds) => RecordedForm::Map(self.of(&kinds.0), self.of(&kinds.1)),
            Kind::Tuple(list) => match self.catalog.list(*list) {
                Ok(list) => {
                    let elements = list.fields.iter().map(|field| self.of(&field.kind));
                    RecordedForm::Tuple(elements.collect())
                }
                Err(_) => RecordedForm::Unseen,
            },
            Kind::Struct(list) => match self.catalog.list(*list) {
                Ok(list) => {
                    let name = list.name.kept(self.keep);
                    RecordedForm::Struct(RecordedStruct { name, kind: self, list })
                }
                Err(_) => RecordedForm::Unseen,
            },
            Kind::Enum(number) => match self.catalog.enumeration(*number) {
                Ok(of) => {
                    let name = of.name.kept(self.keep);
                    RecordedForm::Enum(RecordedEnum { name, kind: self, of })
                }
                Err(_) => RecordedForm::Unseen,
            },
            Kind::Union(number) => {
                let union = self.catalog.union(*number).ok();
                let current = union.iter().flat_map(|it| it.current.iter().chain(&it.other));
                let kinds = current.filter_map(|at| union?.kinds.get(*at as usize));
                RecordedForm::OneOf(kinds.map(|kind| self.of(kind)).collect())
            }
        }
    }
}

impl<'c> RecordedStruct<'c> {
    /// Returns the fields, in their order.
    #[must_use]
    pub fn fields(self) -> impl ExactSizeIterator<Item = RecordedField<'c>> {
        self.list.fields.iter().map(move |field| RecordedField {
            name: field.name.kept(self.kind.keep),
            kind: self.kind.of(&field.kind),
            absent: field.absent,
        })
    }
}

impl<'c> RecordedEnum<'c> {
    /// Returns the variants as they are written now.
    pub fn variants(self) -> impl Iterator<Item = RecordedVariant<'c>> {
        let all = (0..).zip(&self.of.variants).filter(|(_, variant)| variant.current);
        all.map(move |(at, variant)| RecordedVariant {
            at,
            name: variant.name.kept(self.kind.keep),
            form: match variant.form {
                Form::Unit => VariantForm::Unit,
                Form::Newtype => VariantForm::Newtype,
                Form::Tuple => VariantForm::Tuple,
                Form::Struct => VariantForm::Struct,
            },
            payload: self.kind.of(&variant.payload),
        })
    }
}
