//! How an entry is serialized.

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Serializes a struct, in the form that serde's own derive gives it: a field for each call.
///
/// An error is kept to the end, so that generated code is one expression without a branch, which
/// takes the compiler about a quarter of what serde's derive does.
#[must_use = "it ends with `end`"]
pub struct StructFields<S: Serializer>(Result<S::SerializeStruct, S::Error>);

impl<S: Serializer> StructFields<S> {
    /// Begins a struct of so many fields.
    #[inline]
    pub fn new(serializer: S, name: &'static str, fields: usize) -> Self {
        Self(serializer.serialize_struct(name, fields))
    }

    /// The next field.
    #[inline]
    pub fn field<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Self {
        Self(self.0.and_then(|mut fields| fields.serialize_field(name, value).map(|()| fields)))
    }

    /// Ends the struct.
    ///
    /// # Errors
    ///
    /// The first error of the serializer.
    #[inline]
    pub fn end(self) -> Result<S::Ok, S::Error> {
        self.0.and_then(SerializeStruct::end)
    }
}
