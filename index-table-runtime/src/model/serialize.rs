//! The serialization of entries.

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Serializes a struct in the form of serde's derive, one field per call.
///
/// An error is returned at the end, so the generated code is one expression without branches. It compiles in
/// about a quarter of the time of serde's derive.
#[must_use = "it ends with `end`"]
pub struct StructFields<S: Serializer>(Result<S::SerializeStruct, S::Error>);

impl<S: Serializer> StructFields<S> {
    /// Begins a struct with this number of fields.
    #[inline]
    pub fn new(serializer: S, name: &'static str, fields: usize) -> Self {
        Self(serializer.serialize_struct(name, fields))
    }

    /// Serializes the next field.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde::{Serialize, Serializer, ser::Error as _};

    use super::StructFields;

    #[derive(Serialize)]
    struct Derived {
        id: u64,
        town: &'static str,
    }

    struct Chained(Derived);

    impl Serialize for Chained {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let Derived { id, town } = &self.0;
            StructFields::new(serializer, "Derived", 2).field("id", id).field("town", town).end()
        }
    }

    /// A value that fails to serialize, and counts the attempts.
    struct Failing<'a>(&'a Cell<u32>);

    impl Serialize for Failing<'_> {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            self.0.set(self.0.get() + 1);
            Err(S::Error::custom("failing"))
        }
    }

    struct WithFailing<'a>(&'a Cell<u32>);

    impl Serialize for WithFailing<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let fields = StructFields::new(serializer, "WithFailing", 3).field("id", &7_u64);
            fields.field("first", &Failing(self.0)).field("second", &Failing(self.0)).end()
        }
    }

    #[test]
    fn entries_serialize_like_a_derive() {
        let row = || Derived { id: 300, town: "Redmond" };
        let derived = postcard::to_stdvec(&row()).unwrap();
        assert_eq!(postcard::to_stdvec(&Chained(row())).unwrap(), derived);
        assert_eq!(derived, b"\xAC\x02\x07Redmond");
    }

    #[test]
    fn no_field_is_serialized_after_an_error() {
        let attempts = Cell::new(0);
        assert!(postcard::to_stdvec(&WithFailing(&attempts)).is_err());
        assert_eq!(attempts.get(), 1);
    }
}
