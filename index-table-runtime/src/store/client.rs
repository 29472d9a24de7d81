//! This process as a client of a table, as other clients see it.

use std::sync::{Arc, Weak};

use crate::{
    engine::Engine,
    model::{error::Result, schema::TableRecord},
};

/// A table that this process has open for writing. Other clients see it until this is dropped.
pub(crate) struct Client {
    engine: Weak<Engine>,
    table: &'static str,
    parts: Vec<u64>,
}

impl Client {
    /// Tells other clients that this process has the table open with this declaration.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        table: &'static str,
        declared: &TableRecord,
    ) -> Result<Self> {
        let client = Self { engine: Arc::downgrade(engine), table, parts: declared.hashes() };
        engine.note_client(table, &client.parts, true)?;
        Ok(client)
    }

    /// Returns the positions of the parts that another client with the table does not maintain.
    pub(crate) fn lacked_elsewhere(&self) -> Result<Vec<usize>> {
        let Some(engine) = self.engine.upgrade() else { return Ok(Vec::new()) };
        let lack = engine.others_lack(self.table, &self.parts)?;
        Ok(lack.iter().enumerate().filter(|(_, lack)| **lack).map(|(at, _)| at).collect())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            // A server sees its end later.
            let _ = engine.note_client(self.table, &self.parts, false);
        }
    }
}
