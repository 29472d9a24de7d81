//! The record of the releases of a program that have opened a table for writing.
//!
//! A release is known by the names that its type of the rows reads, at every depth. The record has the number of lists that the
//! table had when the release first opened it, though the release may have written no row. So a field that the type of a release
//! does not know, in a list that was recorded since, was added by a later release; in an earlier list, it was removed.
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | the format, 1 |
//! | rest | postcard's encoding of pairs: a hash of the names (`u64`), and the number of lists (`u32`) |

/// The name of the record among the records of a table.
pub(crate) const RELEASES: &str = "@releases";

const FORMAT: u8 = 1;

/// The maximum number of releases. Those that first opened the table the longest time ago are forgotten.
const MOST: usize = 256;

/// The releases that have opened a table for writing, the first one first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Releases(Vec<(u64, u32)>);

impl Releases {
    /// Reads a record; `None` if it is damaged or has a later format.
    pub(crate) fn read(record: Option<&[u8]>) -> Option<Self> {
        let Some(record) = record else { return Some(Self::default()) };
        postcard::from_bytes(record.strip_prefix(&[FORMAT])?).ok().map(Self)
    }

    /// Returns the number of lists when the release with these names first opened the table.
    pub(crate) fn since(&self, names: u64) -> Option<usize> {
        let own = self.0.iter().find(|(own, _)| *own == names);
        own.map(|(_, lists)| *lists as usize)
    }

    /// Sets the number of lists of a release.
    pub(crate) fn set(&mut self, names: u64, lists: usize) {
        let lists = u32::try_from(lists).unwrap_or(u32::MAX);
        match self.0.iter_mut().find(|(own, _)| *own == names) {
            Some((_, own)) => *own = lists,
            None => self.0.push((names, lists)),
        }
        let most = self.0.len().saturating_sub(MOST);
        self.0.drain(..most);
    }

    /// Returns the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(&self.0, vec![FORMAT]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_latest_releases() {
        let mut releases = Releases::default();
        for number in 0..300 {
            releases.set(number, 7);
        }
        releases.set(299, 9);
        let read = Releases::read(Some(&releases.encode())).unwrap();
        assert_eq!(read, releases);
        assert_eq!([43, 44, 299].map(|names| read.since(names)), [None, Some(7), Some(9)]);
    }

    #[test]
    fn a_record_has_these_bytes() {
        let mut releases = Releases::default();
        releases.set(300, 2);
        assert_eq!(releases.encode(), [1, 1, 0xac, 2, 2]);
        for damaged in [&[][..], &[2], &[1, 1, 0xac], &[9, 9]] {
            assert_eq!(Releases::read(Some(damaged)), None);
        }
        assert_eq!(Releases::read(None), Some(Releases::default()));
    }
}
