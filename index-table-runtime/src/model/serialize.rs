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

    /// Is never serialized, and counts how often that was tried.
    struct Refused<'a>(&'a Cell<u32>);

    impl Serialize for Refused<'_> {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            self.0.set(self.0.get() + 1);
            Err(S::Error::custom("refused"))
        }
    }

    struct Refusing<'a>(&'a Cell<u32>);

    impl Serialize for Refusing<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let fields = StructFields::new(serializer, "Refusing", 3).field("id", &7_u64);
            fields.field("first", &Refused(self.0)).field("second", &Refused(self.0)).end()
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
    fn nothing_comes_behind_an_error() {
        let tried = Cell::new(0);
        assert!(postcard::to_stdvec(&Refusing(&tried)).is_err());
        assert_eq!(tried.get(), 1);
    }
}
