//! The record of the releases of a program that have added indexes to a table, for errors.
//!
//! It names those that were added to a table that existed. Its bytes are postcard's encoding of pairs: the name in the table's
//! record, and the release.

use std::fmt;

use super::TableRecord;

/// The name of the record among the records of a table.
pub(crate) const ADDED: &str = "@added";

/// A release of a program: the name and the version of the package that declares the rows, if Cargo has compiled it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Release {
    name: Option<&'static str>,
    version: Option<&'static str>,
}

impl Release {
    /// A release without a name.
    pub const UNKNOWN: Self = Self::new(None, None);

    /// Returns the release of a package.
    #[must_use]
    pub const fn new(name: Option<&'static str>, version: Option<&'static str>) -> Self {
        Self { name, version }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name, self.version) {
            (Some(name), Some(version)) => write!(f, "`{name} {version}`"),
            _ => f.write_str("another release"),
        }
    }
}

/// The indexes of a table that were added, each with the release.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Added(Vec<(String, String)>);

impl Added {
    /// Reads the record. A damaged record names no release.
    pub(crate) fn read(record: Option<&[u8]>) -> Self {
        record.and_then(|record| postcard::from_bytes(record).ok()).map(Self).unwrap_or_default()
    }

    /// Returns the release that has added the index with this name.
    pub(crate) fn by(&self, index: &str) -> &str {
        let added = self.0.iter().find(|(name, _)| name == index);
        added.map_or("another release", |(_, release)| release)
    }

    /// Notes the indexes of `new` that `file`, the record before, lacks or declares otherwise.
    pub(crate) fn note(&mut self, file: &TableRecord, new: &TableRecord, release: Release) {
        self.0.retain(|(name, _)| new.indexes.iter().any(|index| index.name == *name));
        for index in new.indexes.iter().filter(|index| !file.indexes.contains(index)) {
            self.0.retain(|(name, _)| *name != index.name);
            self.0.push((index.name.clone(), release.to_string()));
        }
    }

    /// Returns the record; `None` if it has no index.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        if self.0.is_empty() { None } else { postcard::to_stdvec(&self.0).ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_documented_bytes() {
        let added = Added(vec![(
            "owner".to_owned(),
            Release::new(Some("shop"), Some("2.0.0")).to_string(),
        )]);
        let bytes = added.encode().unwrap();
        assert_eq!(bytes, b"\x01\x05owner\x0c`shop 2.0.0`");
        assert_eq!(Added::read(Some(&bytes)), added);
        assert_eq!((added.by("owner"), added.by("town")), ("`shop 2.0.0`", "another release"));
        for damaged in [&bytes[..4], &[255; 3], &[]] {
            assert_eq!(Added::read(Some(damaged)), Added::default());
        }
        assert_eq!(Added::default().encode(), None);
    }
}
