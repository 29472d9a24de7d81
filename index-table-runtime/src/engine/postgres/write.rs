//! Writing one table.

use std::collections::BTreeMap;

use super::{
    batch::Kind,
    connection::column,
    copy::Copied,
    names::{Form, Relation},
    read::Reader,
    sql,
    tables::Tables,
    txn::Txn,
};
use crate::{
    engine::{Ascending, Read as _, Space, Write},
    model::{
        aggregate::Totals,
        entry::RawEntry,
        error::{Error, Result},
        key::MAX_KEY_LEN,
        maintain::{Change, Sink},
        numbering::Numbering,
        schema::{IndexSchema, Source},
        stream::Place,
    },
};

/// The layout of all indexes.
pub(crate) const LAYOUT: &str = "postgres";

/// The number of entries, and about the number of bytes, that are appended with one statement.
const APPENDED: (usize, usize) = (1024, 1 << 20);

impl Txn<'_> {
    /// Returns a writer of a table; `None` for a read transaction.
    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables) -> Option<Writer<'t>> {
        let session = self.session();
        session.writes.then(|| {
            session.note_written(tables.schema.name);
            Writer { txn: self, tables }
        })
    }
}

/// A writer of one table in one transaction.
pub(crate) struct Writer<'t> {
    pub(super) txn: &'t Txn<'t>,
    pub(super) tables: &'t Tables,
}

/// The last primary key and data for each entry: for a unique index, by the index key and nothing, and otherwise by the
/// index key and the primary key.
type Batch = BTreeMap<(Vec<u8>, Vec<u8>), (Vec<u8>, Vec<u8>)>;

impl Writer<'_> {
    /// Returns a reader that sees the transaction's own writes.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { txn: self.txn, tables: self.tables }
    }

    /// Returns the number of the transaction, and a random number plus the number of earlier calls.
    pub(crate) fn numbered(&self) -> (u64, u64) {
        self.txn.numbered()
    }

    /// Returns the next number of `insert_with`; `None` if the record of the sequence assigns it.
    pub(crate) fn next_number(&self, numbering: &Numbering<'_>) -> Result<Option<u128>> {
        self.txn.session().next_number(self.tables, numbering)
    }

    /// Ends the blocks of numbers, because another client has used one of them as an explicit key.
    pub(crate) fn end_numbers(&self) {
        self.txn.session().blocks.end(self.tables.schema.name);
    }

    /// Ends the blocks of numbers, and returns the error after which the transaction runs again.
    pub(crate) fn number_is_taken(&self) -> Error {
        self.txn.number_is_taken(self.tables.schema.name)
    }

    /// Notes that a row has a new primary key.
    pub(crate) fn note_key(&self, primary_key: &[u8]) {
        self.txn.session().note_new(self.tables, Some(primary_key));
    }

    /// Adds a change of the totals of a group.
    pub(crate) fn add_totals(&self, aggregate: usize, group: &[u8], change: &Totals) -> Result<()> {
        let totals = self.reader().totals(Space::Aggregate(aggregate));
        totals.map_or(Ok(()), |totals| totals.add(group, change))
    }

    fn relation(&self, source: Source) -> Result<&Relation> {
        let missing = || Error::internal("an index that the table doesn't have");
        self.tables.relation(source).ok_or_else(missing)
    }

    fn index(&self, index: usize) -> Result<&Relation> {
        self.relation(Source::Index(index))
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
                "INSERT INTO {table} (k, s, p, v) SELECT k, '', p, v \
                 FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS n (k, p, v) \
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

impl Writer<'_> {
    /// Whether a table has no rows.
    fn is_empty(&self, relation: &Relation) -> Result<bool> {
        let sql = format!("SELECT k FROM {} LIMIT 1", relation.sql);
        Ok(self.txn.query(&sql, &[])?.is_empty())
    }

    /// Loads entries into an empty table, up to the first entry that is out of order, which is added to `rest`. Returns
    /// their number without the `first` ones.
    fn copy(
        &self,
        relation: &Relation,
        first: &Batch,
        entries: &mut dyn Ascending,
        rest: &mut Batch,
    ) -> Result<u64> {
        let (mut copied, mut count, mut failure) = (Copied::new(relation.form), 0, None);
        let mut last = first.last_key_value().map(|(place, _)| place.clone());
        for ((key, _), (primary_key, data)) in first {
            copied.push(key, primary_key, data);
        }
        let mut is_complete = false;
        let mut piece = || {
            while !is_complete && !copied.is_full() {
                match entries.next() {
                    Ok(Some(entry)) => {
                        count += 1;
                        let place = place(relation.form, entry);
                        if last.as_ref() < Some(&place) {
                            copied.push(entry.key, entry.primary_key, entry.data);
                            last = Some(place);
                            continue;
                        }
                        let (primary_key, data) = (entry.primary_key.to_vec(), entry.data.to_vec());
                        rest.insert(place, (primary_key, data));
                    }
                    Ok(None) => {}
                    Err(error) => failure = Some(error),
                }
                is_complete = true;
                copied.end();
            }
            Some(copied.piece()).filter(|piece| !piece.is_empty())
        };
        let sql = sql::copy(relation);
        self.txn.copy(&sql, &mut piece)?;
        match failure {
            // The caller's transaction has some of the entries.
            Some(error) => Err(self.txn.spoil(error)),
            None => Ok(count),
        }
    }
}

/// Returns the key and the primary key that identify an entry of a table.
fn place(form: Form, entry: RawEntry<'_>) -> (Vec<u8>, Vec<u8>) {
    let primary_key = if form == Form::Unique { Vec::new() } else { entry.primary_key.to_vec() };
    (entry.key.to_vec(), primary_key)
}

impl Sink for Writer<'_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        let facts = &self.tables.facts;
        match change {
            Change::PutFact { primary_key, row } => {
                self.txn.change(facts, Kind::Put, &[primary_key, row])
            }
            Change::DeleteFact { primary_key } => {
                self.txn.change(facts, Kind::Delete, &[primary_key])
            }
            Change::PutEntry { index, key, primary_key, data } => {
                self.txn.change(self.index(index)?, Kind::Put, &[key, primary_key, data])
            }
            Change::DeleteEntry { index, key, primary_key } => {
                self.txn.change(self.index(index)?, Kind::Delete, &[key, primary_key])
            }
        }
    }
}

impl Write for Writer<'_> {
    fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64> {
        let relation = self.relation(source)?.clone();
        if source == Source::Facts {
            self.txn.session().note_new(self.tables, None);
        }
        let (mut count, mut bytes, mut batch) = (0, 0, Batch::new());
        let mut can_copy = true;
        let mut next = entries.next()?;
        while let Some(entry) = next {
            count += 1;
            bytes += entry.key.len() + entry.primary_key.len() + entry.data.len();
            batch.insert(
                place(relation.form, entry),
                (entry.primary_key.to_vec(), entry.data.to_vec()),
            );
            if batch.len() >= APPENDED.0 || bytes >= APPENDED.1 {
                let full = std::mem::take(&mut batch);
                bytes = 0;
                // Only many entries are worth the question whether the table is empty.
                if std::mem::take(&mut can_copy) && self.is_empty(&relation)? {
                    count += self.copy(&relation, &full, entries, &mut batch)?;
                } else {
                    self.put_all(source, full)?;
                }
            }
            next = entries.next()?;
        }
        if !batch.is_empty() {
            self.put_all(source, batch)?;
        }
        Ok(count)
    }

    fn defer_new(&mut self) -> bool {
        // The place of a change in the stream has the number of the transaction, which has to be known.
        let can_wait = !self.tables.has_changes();
        if can_wait {
            self.txn.defer_new();
        }
        can_wait
    }

    fn settle_new(&mut self) -> Result<bool> {
        self.txn.settle_new()
    }

    fn abandon_new(&mut self) {
        self.txn.abandon_new();
    }

    fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool> {
        let facts = &self.tables.facts;
        self.note_key(primary_key);
        if self.txn.is_deferring() {
            return self.txn.change(facts, Kind::New, &[primary_key, row]).map(|()| true);
        }
        let table = &facts.sql;
        // The order of the changes of a row requires that a transaction reads the row before it writes it.
        if self.tables.has_changes() {
            let sql = format!("SELECT 1 FROM {table} WHERE k = $1");
            if !self.txn.query(&sql, &[&primary_key])?.is_empty() {
                return Ok(false);
            }
        }
        let sql = format!("INSERT INTO {table} (k, v) VALUES ($1, $2) ON CONFLICT (k) DO NOTHING");
        Ok(self.txn.execute(&sql, &[&primary_key, &row])? == 1)
    }

    fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<bool> {
        let relation = self.index(index)?;
        if self.txn.is_deferring() {
            let columns = &[key, primary_key, data];
            return self.txn.change(relation, Kind::New, columns).map(|()| true);
        }
        let sql = format!(
            "INSERT INTO {} (k, s, p, v) VALUES ($1, '', $2, $3) ON CONFLICT (k, s) DO NOTHING",
            relation.sql
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
        let first = self.reader().unique(index, key)?.map(|first| first.primary_key.to_vec());
        if let Some(first) = first.filter(|first| first != primary_key) {
            let len = key.len() + first.as_slice().max(primary_key).len();
            if len > MAX_KEY_LEN {
                let (source, row) = (Source::Index(index), Some(primary_key));
                return Err(self.tables.schema.too_long(source, key, row, len));
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
        let table = &self.index(index)?.sql;
        let delete = format!("DELETE FROM {table} WHERE k = $1 AND p = $2 RETURNING s");
        let deleted = self.txn.query(&delete, &[&key, &primary_key])?;
        let marker = deleted.first().map(|row| column::<&[u8]>(row, 0)).transpose()?;
        if marker.is_some_and(<[u8]>::is_empty) {
            // An entry of the key has an empty marker as long as there is one, so that an insertion needs no read.
            let sql = format!(
                "UPDATE {table} SET s = '' WHERE k = $1 AND p = \
                 (SELECT p FROM {table} WHERE k = $1 ORDER BY p LIMIT 1)"
            );
            self.txn.execute(&sql, &[&key])?;
        }
        Ok(())
    }

    fn clear(&mut self, index: usize) -> Result<()> {
        let sql = format!("DELETE FROM {}", self.relation(Source::Index(index))?.sql);
        self.txn.simple(&sql).map(drop)
    }

    fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        if let Some(totals) = self.reader().totals(space) {
            totals.remove(key)?;
        }
        let Some((relation, prefix)) = self.tables.space(space) else { return Ok(()) };
        self.txn.change(relation, Kind::Put, &[&[&prefix, key].concat(), record])?;
        if space.is_catalog() {
            self.txn.catalog_changed()?;
        }
        Ok(())
    }

    fn put_new(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        if space.is_catalog() || matches!(space, Space::Aggregate(_)) {
            return self.put(space, key, record);
        }
        let Some((relation, prefix)) = self.tables.space(space) else { return Ok(()) };
        self.txn.change(relation, Kind::Add, &[&[&prefix, key].concat(), record])
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<()> {
        if let Some(totals) = self.reader().totals(space) {
            return totals.remove(key);
        }
        let Some((relation, prefix)) = self.tables.space(space) else { return Ok(()) };
        self.txn.change(relation, Kind::Delete, &[&[&prefix, key].concat()])?;
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
        for key in removed {
            self.txn.change(relation, Kind::Delete, &[&full(key)])?;
        }
        for (key, record) in written {
            self.txn.change(relation, Kind::Put, &[&full(key), record])?;
        }
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
