//! Writing one table.

use std::collections::BTreeMap;

use super::{
    names::{Form, Relation},
    read::Reader,
    tables::Tables,
    txn::Txn,
};
use crate::{
    engine::{Ascending, Read as _, Space, Write},
    model::{
        error::{Error, Result},
        key::MAX_KEY_LEN,
        maintain::{Change, Sink},
        schema::{IndexSchema, Source},
        stream::Place,
    },
};

/// The layout of all indexes.
pub(crate) const LAYOUT: &str = "postgres";

/// The number of entries, and about the number of bytes, that are appended with one statement.
const APPENDED: (usize, usize) = (1024, 1 << 20);

/// A writer of one table in one transaction.
pub(crate) struct Writer<'t> {
    pub(super) txn: &'t Txn<'t>,
    pub(super) tables: &'t Tables,
}

/// The last primary key and data for each entry: for a unique index, by the index key and nothing, and otherwise by the
/// index key and the primary key.
type Batch = BTreeMap<(Vec<u8>, Vec<u8>), (Vec<u8>, Vec<u8>)>;

impl Writer<'_> {
    /// Returns a reader that sees the own writes.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { txn: self.txn, tables: self.tables }
    }

    /// Returns the number of the transaction, and the number of earlier calls.
    pub(crate) fn numbered(&self) -> (u64, u64) {
        self.txn.numbered()
    }

    fn relation(&self, source: Source) -> Result<&Relation> {
        let missing = || Error::internal("an index that the table doesn't have");
        self.tables.relation(source).ok_or_else(missing)
    }

    fn put_pair(&self, relation: &Relation, key: &[u8], value: &[u8]) -> Result<()> {
        let sql = format!(
            "INSERT INTO {} (k, v) VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v",
            relation.sql
        );
        self.txn.execute(&sql, &[&key, &value]).map(drop)
    }

    fn put_entry(&self, index: usize, key: &[u8], primary_key: &[u8], data: &[u8]) -> Result<()> {
        let relation = self.relation(Source::Index(index))?;
        let table = &relation.sql;
        let sql = if relation.form == Form::Unique {
            format!(
                "WITH others AS (DELETE FROM {table} WHERE k = $1 AND s <> '') \
                 INSERT INTO {table} (k, s, p, v) VALUES ($1, '', $2, $3) \
                 ON CONFLICT (k, s) DO UPDATE SET p = EXCLUDED.p, v = EXCLUDED.v"
            )
        } else {
            format!(
                "INSERT INTO {table} (k, p, v) VALUES ($1, $2, $3) \
                 ON CONFLICT (k, p) DO UPDATE SET v = EXCLUDED.v"
            )
        };
        self.txn.execute(&sql, &[&key, &primary_key, &data]).map(drop)
    }

    fn delete_entry(&self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<()> {
        let relation = self.relation(Source::Index(index))?;
        let sql = format!("DELETE FROM {} WHERE k = $1 AND p = $2", relation.sql);
        self.txn.execute(&sql, &[&key, &primary_key]).map(drop)
    }

    /// Writes many entries with one statement.
    fn put_all(&self, source: Source, batch: Batch) -> Result<()> {
        let relation = self.relation(source)?;
        let (table, mut columns) = (&relation.sql, [const { Vec::new() }; 3]);
        let [keys, primary_keys, data] = &mut columns;
        for ((key, _), (primary_key, value)) in batch {
            keys.push(key);
            primary_keys.push(primary_key);
            data.push(value);
        }
        if relation.form == Form::Pairs {
            let sql = format!(
                "INSERT INTO {table} (k, v) SELECT * FROM unnest($1::bytea[], $2::bytea[]) \
                 ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v"
            );
            return self.txn.execute(&sql, &[primary_keys, data]).map(drop);
        }
        if relation.form == Form::Unique {
            let sql = format!(
                "WITH n AS (SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS n (k, p, v)), \
                 others AS (DELETE FROM {table} t USING n WHERE t.k = n.k AND t.s <> '') \
                 INSERT INTO {table} (k, s, p, v) SELECT k, '', p, v FROM n \
                 ON CONFLICT (k, s) DO UPDATE SET p = EXCLUDED.p, v = EXCLUDED.v"
            );
            return self.txn.execute(&sql, &[keys, primary_keys, data]).map(drop);
        }
        let sql = format!(
            "INSERT INTO {table} (k, p, v) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) \
             ON CONFLICT (k, p) DO UPDATE SET v = EXCLUDED.v"
        );
        self.txn.execute(&sql, &[keys, primary_keys, data]).map(drop)
    }
}

impl Sink for Writer<'_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::PutFact { primary_key, row } => {
                self.put_pair(&self.tables.facts, primary_key, row)
            }
            Change::DeleteFact { primary_key } => {
                let sql = format!("DELETE FROM {} WHERE k = $1", self.tables.facts.sql);
                self.txn.execute(&sql, &[&primary_key]).map(drop)
            }
            Change::PutEntry { index, key, primary_key, data } => {
                self.put_entry(index, key, primary_key, data)
            }
            Change::DeleteEntry { index, key, primary_key } => {
                self.delete_entry(index, key, primary_key)
            }
        }
    }
}

impl Write for Writer<'_> {
    fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64> {
        let is_unique = self.relation(source)?.form == Form::Unique;
        let (mut count, mut bytes, mut batch) = (0, 0, Batch::new());
        while let Some(entry) = entries.next()? {
            count += 1;
            bytes += entry.key.len() + entry.primary_key.len() + entry.data.len();
            let primary_key = entry.primary_key.to_vec();
            let own = if is_unique { Vec::new() } else { primary_key.clone() };
            batch.insert((entry.key.to_vec(), own), (primary_key, entry.data.to_vec()));
            if batch.len() >= APPENDED.0 || bytes >= APPENDED.1 {
                self.put_all(source, std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        if !batch.is_empty() {
            self.put_all(source, batch)?;
        }
        Ok(count)
    }

    fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool> {
        // The order of the changes of a row requires that a transaction reads the row before it writes it.
        if self.tables.has_changes() {
            let sql = format!("SELECT 1 FROM {} WHERE k = $1", self.tables.facts.sql);
            if !self.txn.query(&sql, &[&primary_key])?.is_empty() {
                return Ok(false);
            }
        }
        let sql = format!(
            "INSERT INTO {} (k, v) VALUES ($1, $2) ON CONFLICT (k) DO NOTHING",
            self.tables.facts.sql
        );
        Ok(self.txn.execute(&sql, &[&primary_key, &row])? == 1)
    }

    fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<bool> {
        let relation = self.relation(Source::Index(index))?;
        let table = &relation.sql;
        let sql = format!(
            "INSERT INTO {table} (k, s, p, v) SELECT $1::bytea, '', $2::bytea, $3::bytea \
             WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE k = $1) ON CONFLICT (k, s) DO NOTHING"
        );
        Ok(self.txn.execute(&sql, &[&key, &primary_key, &data])? == 1)
    }

    fn put_shared(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<()> {
        // The limit of all engines.
        let first = self.reader().unique(index, key)?.map(|first| first.primary_key);
        if let Some(first) = first.filter(|first| *first != primary_key) {
            let len = key.len() + first.max(primary_key).len();
            if len > MAX_KEY_LEN {
                return Err(self.tables.schema.too_long(Source::Index(index), key, len));
            }
        }
        let table = &self.relation(Source::Index(index))?.sql;
        let update = format!("UPDATE {table} SET v = $3 WHERE k = $1 AND p = $2");
        if self.txn.execute(&update, &[&key, &primary_key, &data])? > 0 {
            return Ok(());
        }
        let insert = format!(
            "INSERT INTO {table} (k, s, p, v) VALUES ($1, $2, $3, $4) ON CONFLICT (k, s) DO NOTHING"
        );
        let none: &[u8] = &[];
        for marker in [none, primary_key] {
            if self.txn.execute(&insert, &[&key, &marker, &primary_key, &data])? > 0 {
                return Ok(());
            }
        }
        Err(Error::internal("an entry of a unique index was not written"))
    }

    fn remove_shared(&mut self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<()> {
        self.delete_entry(index, key, primary_key)
    }

    fn clear(&mut self, index: usize) -> Result<()> {
        let sql = format!("DELETE FROM {}", self.relation(Source::Index(index))?.sql);
        self.txn.execute(&sql, &[]).map(drop)
    }

    fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        let Some((relation, prefix)) = self.tables.space(space) else { return Ok(()) };
        self.put_pair(relation, &[&prefix, key].concat(), record)?;
        if space.is_catalog() {
            self.txn.catalog_changed()?;
        }
        Ok(())
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let Some((relation, prefix)) = self.tables.space(space) else { return Ok(()) };
        let sql = format!("DELETE FROM {} WHERE k = $1", relation.sql);
        self.txn.execute(&sql, &[&[&prefix, key].concat()])?;
        if space.is_catalog() {
            self.txn.catalog_changed()?;
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        space: Space,
        removed: &[Vec<u8>],
        written: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        let Some((relation, prefix)) = self.tables.space(space) else { return Ok(()) };
        let full = |key: &Vec<u8>| [&prefix, key.as_slice()].concat();
        let removed: Vec<_> = removed.iter().map(full).collect();
        let sql = format!("DELETE FROM {} WHERE k = ANY($1)", relation.sql);
        self.txn.execute(&sql, &[&removed])?;
        let keys: Vec<_> = written.iter().map(|(key, _)| full(key)).collect();
        let records: Vec<_> = written.iter().map(|(_, record)| record).collect();
        let sql = format!(
            "INSERT INTO {} (k, v) SELECT * FROM unnest($1::bytea[], $2::bytea[]) \
             ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v",
            relation.sql
        );
        self.txn.execute(&sql, &[&keys, &records])?;
        if space.is_catalog() {
            self.txn.catalog_changed()?;
        }
        Ok(())
    }

    fn place_of_change(&mut self) -> Option<Place> {
        Some(self.txn.place_of_change())
    }

    fn clear_space(&mut self, space: Space) -> Result<()> {
        let Some((relation, prefix)) = self.tables.space(space) else { return Ok(()) };
        // `substring` and not a range, since a prefix may have no end.
        let sql = format!(
            "DELETE FROM {} WHERE k >= $1 AND substring(k from 1 for length($1)) = $1",
            relation.sql
        );
        self.txn.execute(&sql, &[&&*prefix])?;
        if space.is_catalog() {
            self.txn.catalog_changed()?;
        }
        Ok(())
    }

    fn layout(&self, _: &IndexSchema) -> &'static str {
        LAYOUT
    }
}
