//! Errors of encoding and decoding.

use std::fmt;

/// A value that can't be encoded, or bytes that can't be decoded.
///
/// It has one word, so results stay in registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    reason: Reason,
    /// The fields around the value, the innermost first.
    path: Vec<String>,
}

/// The reason of an [`Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The value, or the row, has something that this catalog has not recorded. A later catalog may have it.
    Unrecorded,
    /// The bytes end too early, are too many, or are not what their kind says.
    Damaged,
    /// The value has more than [`MAX_DEPTH`](crate::MAX_DEPTH) containers inside of each other.
    TooDeep,
    /// A struct writes this field twice, so a later release could not tell them apart.
    SameName(String),
    /// The value has a form that only one text format understands, such as `serde_json`'s `RawValue`.
    Private(String),
    /// The catalog has more lists, or larger ones, than its limits allow.
    TooLarge,
    /// What the type's `Serialize` or `Deserialize` says.
    Serde(String),
}

impl Error {
    /// Returns the reason.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// Whether a later catalog may have what this one lacks.
    #[must_use]
    pub fn is_unrecorded(&self) -> bool {
        self.0.reason == Reason::Unrecorded
    }

    /// Returns the field in which the error is, with the fields around it: `lines.price`. Empty if it is not known.
    #[must_use]
    pub fn field(&self) -> String {
        let fields: Vec<&str> = self.0.path.iter().rev().map(String::as_str).collect();
        fields.join(".")
    }

    /// Adds the name of a field around the value.
    #[cold]
    #[inline(never)]
    pub(crate) fn within(mut self, field: &str) -> Self {
        if !field.is_empty() {
            self.0.path.push(field.to_owned());
        }
        self
    }
}

#[cold]
pub(crate) fn damaged() -> Error {
    Reason::Damaged.into()
}

#[cold]
pub(crate) fn unrecorded() -> Error {
    Reason::Unrecorded.into()
}

impl From<Reason> for Error {
    #[cold]
    fn from(reason: Reason) -> Self {
        Self(Box::new(Inner { reason, path: Vec::new() }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.is_empty() {
            write!(f, "field `{}`: ", self.field())?;
        }
        match &self.0.reason {
            Reason::Unrecorded => f.write_str("its names and kinds are not recorded"),
            Reason::Damaged => f.write_str("the bytes are damaged"),
            Reason::TooDeep => {
                write!(f, "more than {} values inside of each other", crate::MAX_DEPTH)
            }
            Reason::SameName(name) => write!(f, "the struct has two fields with the name `{name}`"),
            Reason::Private(name) => write!(f, "`{name}` can't be read back from a row"),
            Reason::TooLarge => f.write_str("its types have too many fields"),
            Reason::Serde(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl serde::ser::Error for Error {
    #[cold]
    fn custom<T: fmt::Display>(text: T) -> Self {
        Reason::Serde(text.to_string()).into()
    }
}

impl serde::de::Error for Error {
    #[cold]
    fn custom<T: fmt::Display>(text: T) -> Self {
        Reason::Serde(text.to_string()).into()
    }
}

pub(crate) type Result<T = ()> = std::result::Result<T, Error>;
