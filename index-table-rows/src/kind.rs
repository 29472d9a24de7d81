//! Kinds of values, and the lists, enums and unions that kinds refer to.

use std::sync::{
    OnceLock,
    atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed},
};

/// How a value is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No value has been seen: the inside of an option that was always `None`, of a sequence that was always empty.
    /// No row has a byte of it, so it is filled in place.
    Hole,
    /// One byte.
    U8,
    /// One byte, in two's complement.
    I8,
    /// A varint.
    Unsigned,
    /// A zigzag varint.
    Signed,
    /// A varint.
    U128,
    /// A zigzag varint.
    I128,
    /// 4 and 8 bytes, the lowest first.
    F32,
    F64,
    /// One byte, 0 or 1.
    Bool,
    /// UTF-8.
    Char,
    /// A varint with the number of bytes, and UTF-8.
    Text,
    /// A varint with the number of bytes, and the bytes.
    Bytes,
    /// 16 bytes.
    Bytes16,
    /// Nothing.
    Unit,
    /// A tag, and a value of the tag's kind: see `tag`.
    Any,
    /// One byte: 0 for `None`, 1 in front of a value, 2 for a field that was skipped.
    Option(Box<Kind>),
    /// A varint with the number of elements, and the elements.
    Seq(Box<Kind>),
    /// Always this number of elements.
    Array(u32, Box<Kind>),
    /// A varint with the number of pairs; keys and values in turn.
    Map(Box<(Kind, Kind)>),
    /// The fields of this list.
    Struct(u32),
    /// The fields of this list, which have no names.
    Tuple(u32),
    /// A varint with the entry in this enum, and its payload.
    Enum(u32),
    /// A varint with the alternative of this union, and a value of that kind.
    Union(u32),
}

/// A name, and where a `&'static str` with this text was seen last.
#[derive(Debug)]
pub(crate) struct Name {
    text: Box<str>,
    /// In a value that was written.
    seen: AtomicPtr<u8>,
    /// As the name of a field to read. The literals of `Serialize` are often others.
    asked: AtomicPtr<u8>,
    /// The text for `Serialize`, if a row was written without its type.
    kept: OnceLock<&'static str>,
}

impl Name {
    pub(crate) fn new(text: &str) -> Self {
        let (seen, asked) = (AtomicPtr::default(), AtomicPtr::default());
        Self { text: text.into(), seen, asked, kept: OnceLock::new() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text for `Serialize`. `keep` returns the same text each time.
    #[inline]
    pub(crate) fn kept(&self, keep: fn(&str) -> &'static str) -> &'static str {
        self.kept.get_or_init(|| keep(&self.text))
    }

    /// Whether `other`, of a value that is written, has this text. The same literal is recognized by its address.
    #[inline]
    pub(crate) fn is(&self, other: &'static str) -> bool {
        self.is_at(&self.seen, other)
    }

    /// Whether `other`, of a value that is written, is the literal that was seen last. Otherwise it may have this text too.
    #[inline]
    pub(crate) fn is_literal(&self, other: &'static str) -> bool {
        self.text.len() == other.len() && std::ptr::eq(self.seen.load(Relaxed), other.as_ptr())
    }

    /// Like [`is_literal`](Self::is_literal), for the name of a field to read.
    #[inline]
    pub(crate) fn is_asked_literal(&self, other: &'static str) -> bool {
        self.text.len() == other.len() && std::ptr::eq(self.asked.load(Relaxed), other.as_ptr())
    }

    /// Whether `other`, the name of a field to read, has this text.
    #[inline]
    pub(crate) fn is_asked(&self, other: &'static str) -> bool {
        self.is_at(&self.asked, other)
    }

    #[inline]
    fn is_at(&self, place: &AtomicPtr<u8>, other: &'static str) -> bool {
        self.text.len() == other.len()
            && (std::ptr::eq(place.load(Relaxed), other.as_ptr()) || self.has_text(place, other))
    }

    #[cold]
    fn has_text(&self, place: &AtomicPtr<u8>, other: &'static str) -> bool {
        let is_same = *self.text == *other;
        if is_same {
            place.store(other.as_ptr().cast_mut(), Relaxed);
        }
        is_same
    }
}

impl Clone for Name {
    fn clone(&self) -> Self {
        let copy = |it: &AtomicPtr<u8>| AtomicPtr::new(it.load(Relaxed));
        Self {
            text: self.text.clone(),
            seen: copy(&self.seen),
            asked: copy(&self.asked),
            kept: self.kept.clone(),
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: Name,
    pub(crate) kind: Kind,
    /// Whether a row may lack the field, because `Serialize` skipped it. Its kind is an option or any.
    pub(crate) absent: bool,
}

/// The fields of a struct or tuple in the order in which `Serialize` emits them.
#[derive(Debug)]
pub(crate) struct List {
    /// The name of the struct. A hint: nothing rests on it.
    pub(crate) name: Name,
    pub(crate) fields: Vec<Field>,
    /// Whether a field may be absent, so that rows are read by names.
    pub(crate) absent: bool,
    /// The `FIELDS` that were found to need names, as in [`List::key`].
    by_names: AtomicUsize,
    /// The `FIELDS` that were found to have the fields of this list in its order.
    by_position: AtomicUsize,
}

impl List {
    pub(crate) fn new(name: &str, fields: Vec<Field>) -> Self {
        let absent = fields.iter().any(|field| field.absent);
        Self {
            name: Name::new(name),
            fields,
            absent,
            by_names: AtomicUsize::new(0),
            by_position: AtomicUsize::new(0),
        }
    }

    /// Whether a struct with these `FIELDS` may be read by position. The reader checks it once more, because `FIELDS` may
    /// hold aliases.
    #[inline]
    pub(crate) fn has_positions(&self, names: &'static [&'static str]) -> bool {
        self.by_position.load(Relaxed) == Self::key(names) || self.compare(names)
    }

    #[cold]
    #[inline(never)]
    fn compare(&self, names: &'static [&'static str]) -> bool {
        if self.by_names.load(Relaxed) == Self::key(names) {
            return false;
        }
        let fits = !self.absent
            && self.fields.len() <= names.len()
            && self.fields.iter().zip(names).all(|(field, name)| field.name.text() == *name);
        if fits { &self.by_position } else { &self.by_names }.store(Self::key(names), Relaxed);
        fits
    }

    /// Notes that the positions are not those of these `FIELDS`.
    #[cold]
    pub(crate) fn set_by_names(&self, names: &'static [&'static str]) {
        self.by_names.store(Self::key(names), Relaxed);
        self.by_position.store(0, Relaxed);
    }

    /// A slice as one number. A shorter slice may have the same address; 16 bits of an address are unused.
    #[inline]
    fn key(names: &'static [&'static str]) -> usize {
        names.as_ptr().addr() ^ names.len() << (usize::BITS - 16)
    }

    pub(crate) fn has_names(&self, names: &[&'static str]) -> bool {
        self.fields.len() == names.len()
            && self.fields.iter().zip(names).all(|(field, name)| field.name.is(name))
    }
}

impl Clone for List {
    fn clone(&self) -> Self {
        let copy = |it: &AtomicUsize| AtomicUsize::new(it.load(Relaxed));
        Self {
            name: self.name.clone(),
            fields: self.fields.clone(),
            absent: self.absent,
            by_names: copy(&self.by_names),
            by_position: copy(&self.by_position),
        }
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.fields == other.fields
    }
}

/// The form of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Unit,
    Newtype,
    Tuple,
    Struct,
}

/// A variant as it was emitted. A variant whose form or kind changes is another entry with the same name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variant {
    pub(crate) name: Name,
    pub(crate) form: Form,
    pub(crate) payload: Kind,
    /// Whether no later entry took its place.
    pub(crate) current: bool,
}

/// The variants at one or more places.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Enum {
    /// The type's name when the enum was recorded.
    pub(crate) name: Name,
    /// The kind of this enum, to refer to.
    pub(crate) kind: Kind,
    pub(crate) variants: Vec<Variant>,
}

/// The kinds at one place: structs with different names, and one kind for everything else.
#[derive(Clone, Default, Debug, PartialEq)]
pub(crate) struct Union {
    pub(crate) kinds: Vec<Kind>,
    /// The structs that are written: for each set of names the last one.
    pub(crate) current: Vec<u32>,
    /// The kind of what is no struct.
    pub(crate) other: Option<u32>,
}
