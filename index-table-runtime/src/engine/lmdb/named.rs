//! A database with its name. Every change goes through its methods, which record it for the journal.

use std::ops::Deref;

use heed::{CommitToken, MdbError, OnCommit, PutFlags, RwTxn};

use super::{
    journal::{changes::Operation, recorder::Recorder},
    names::Database,
};

/// A database of a table.
pub(super) struct Named<'d> {
    database: Database<'d>,
    name: Box<str>,
}

impl<'d> Deref for Named<'d> {
    type Target = Database<'d>;

    #[inline]
    fn deref(&self) -> &Database<'d> {
        &self.database
    }
}

impl OnCommit for Named<'_> {
    type Committed = Named<'static>;

    fn on_commit(self, token: &CommitToken) -> Named<'static> {
        Named { database: self.database.on_commit(token), name: self.name }
    }
}

impl<'d> Named<'d> {
    pub(super) fn new(database: Database<'d>, name: &str) -> Self {
        Self { database, name: name.into() }
    }

    /// Returns another handle of the database.
    pub(super) fn again(&self) -> Self {
        Self { database: self.database, name: self.name.clone() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    pub(super) fn put(
        &self,
        txn: &mut RwTxn<'_>,
        recorder: &mut Recorder,
        key: &[u8],
        value: &[u8],
    ) -> heed::Result<()> {
        self.database.put(txn, key, value)?;
        recorder.put(&self.name, key, value)
    }

    /// Deletes a key. Returns false if the key does not exist.
    #[inline]
    pub(super) fn delete(
        &self,
        txn: &mut RwTxn<'_>,
        recorder: &mut Recorder,
        key: &[u8],
    ) -> heed::Result<bool> {
        let deleted = self.database.delete(txn, key)?;
        if deleted {
            recorder.delete(&self.name, key)?;
        }
        Ok(deleted)
    }

    pub(super) fn clear(&self, txn: &mut RwTxn<'_>, recorder: &mut Recorder) -> heed::Result<()> {
        self.database.clear(txn)?;
        recorder.add(&self.name, Operation::Clear)
    }

    /// Inserts a key and its value. Returns false and changes nothing if the key exists.
    #[inline]
    pub(super) fn insert(
        &self,
        txn: &mut RwTxn<'_>,
        recorder: &mut Recorder,
        key: &[u8],
        value: &[u8],
    ) -> heed::Result<bool> {
        self.put_with(txn, recorder, PutFlags::NO_OVERWRITE, key, value)
    }

    /// Appends a key. Returns false if the database has this key or a greater one, and nothing has changed.
    #[inline]
    pub(super) fn append(
        &self,
        txn: &mut RwTxn<'_>,
        recorder: &mut Recorder,
        key: &[u8],
        value: &[u8],
    ) -> heed::Result<bool> {
        self.put_with(txn, recorder, PutFlags::APPEND, key, value)
    }

    #[inline]
    fn put_with(
        &self,
        txn: &mut RwTxn<'_>,
        recorder: &mut Recorder,
        flags: PutFlags,
        key: &[u8],
        value: &[u8],
    ) -> heed::Result<bool> {
        match self.database.put_with_flags(txn, flags, key, value) {
            Ok(()) => recorder.put(&self.name, key, value).map(|()| true),
            Err(heed::Error::Mdb(MdbError::KeyExist)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Inserts a key and its value. Returns false and changes nothing if the key exists.
    #[inline]
    pub(super) fn put_if_missing(
        &self,
        txn: &mut RwTxn<'_>,
        recorder: &mut Recorder,
        key: &[u8],
        value: &[u8],
    ) -> heed::Result<bool> {
        if self.database.get_or_put(txn, key, value)?.is_some() {
            return Ok(false);
        }
        recorder.put(&self.name, key, value).map(|()| true)
    }
}
