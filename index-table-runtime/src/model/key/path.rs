//! Paths, by their text.

use std::path::{Path, PathBuf};

use super::{
    DecodeError, Key, KeyBuf, KeyReader, KeyShape,
    bytes::{END, escape},
};

/// The encoding of its text: `a/` and `a` are different keys, though they are equal as paths. serde stores no path that is not
/// UTF-8, so a query with such a path finds nothing.
impl Key for PathBuf {
    type Arg<'a> = &'a Path;
    type Present<'a> = &'a Path;
    type Ref<'a> = &'a Path;
    const SHAPE: KeyShape = KeyShape::Named("path", &String::SHAPE);

    fn arg(&self) -> &Path {
        self
    }

    fn encode(value: &Path, out: &mut KeyBuf) {
        escape(value.as_os_str().as_encoded_bytes(), out);
        out.extend(&[END]);
    }

    fn decode<'a>(reader: &mut KeyReader<'a>) -> Result<&'a Path, DecodeError> {
        String::decode(reader).map(Path::new)
    }

    fn decode_owned(reader: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        String::decode_owned(reader).map(Self::from)
    }
}
