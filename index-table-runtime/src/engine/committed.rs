//! The rows that past commits have changed.

/// A row that a commit has written or deleted.
#[derive(Debug, Clone, Copy)]
pub struct CommittedRow<'r> {
    /// The number of the commit.
    pub commit: u64,
    /// The encoded primary key.
    pub primary_key: &'r [u8],
    /// The row before the commit.
    pub old: Option<&'r [u8]>,
    /// The row that was written.
    pub new: Option<&'r [u8]>,
}
