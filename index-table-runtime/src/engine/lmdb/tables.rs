//! The databases of one table.

use std::{borrow::Cow, path::Path};

use heed::{CommitToken, OnCommit};

use super::{
    blocks::Forecast,
    error::damaged,
    layout::Layout,
    named::Named,
    names::{CATALOG, SEQUENCES, index_of, queue_of},
    pages::BadPage,
};
use crate::{
    engine::{Links, Space},
    model::{
        error::{Error, Result, damaged_page},
        reference::Referrer,
        schema::{Parts, Source, TableSchema},
        stream::STREAM,
    },
};

/// The databases of one table.
pub(crate) struct Tables<'d> {
    pub(super) schema: &'static TableSchema,
    pub(super) catalog: Named<'d>,
    pub(super) sequences: Named<'d>,
    /// The second copies of the records of lists; `None` if the file has none, or their pages are damaged.
    pub(super) copies: Option<Named<'d>>,
    pub(super) facts: Named<'d>,
    /// The queue, if an index is eventual.
    pub(super) queue: Option<Named<'d>>,
    pub(super) indexes: Box<[Index<'d>]>,
    pub(super) aggregates: Box<[Named<'d>]>,
    parts: Parts,
    /// The change stream, if the table has one.
    changes: Option<Named<'d>>,
    /// The facts to which the references of the table refer.
    referred: Box<[Named<'d>]>,
    /// The references to the table that were recorded when it was opened.
    recorded: Vec<(Referrer, Named<'d>)>,
    /// The references to the table, after the commit.
    pub(super) referrers: Links<Named<'static>>,
    /// Whether this process had handles to all databases of the table before.
    were_known: bool,
}

impl<'d> Tables<'d> {
    /// Opens the databases, by calling `open` with the name of each.
    pub(super) fn new(
        schema: &'static TableSchema,
        parts: Parts,
        referrers: Vec<Referrer>,
        mut open: impl FnMut(&str) -> Result<Named<'d>>,
    ) -> Result<Self> {
        Ok(Self {
            schema,
            catalog: open(CATALOG)?,
            sequences: open(SEQUENCES)?,
            copies: None,
            facts: open(schema.name)?,
            queue: if schema.has_eventual() { Some(open(&queue_of(schema.name))?) } else { None },
            indexes: schema
                .indexes
                .iter()
                .map(|index| {
                    Ok(Index {
                        database: open(&index_of(schema.name, index.name))?,
                        layout: Layout::of(schema, index),
                        forecast: Forecast::default(),
                    })
                })
                .collect::<Result<_>>()?,
            aggregates: parts
                .aggregates
                .iter()
                .map(|aggregate| open(&index_of(schema.name, aggregate.name)))
                .collect::<Result<_>>()?,
            parts,
            changes: if parts.has_changes {
                Some(open(&index_of(schema.name, STREAM))?)
            } else {
                None
            },
            referred: parts
                .references
                .iter()
                .map(|reference| open(reference.to.name))
                .collect::<Result<_>>()?,
            recorded: referrers
                .into_iter()
                .map(|by| Ok((by, open(&by.database())?)))
                .collect::<Result<_>>()?,
            referrers: Links::default(),
            were_known: false,
        })
    }

    /// Sets whether this process had handles to all databases before.
    pub(super) fn with_known(self, were_known: bool) -> Self {
        Self { were_known, ..self }
    }

    /// Adds the second copies of the records of lists.
    pub(super) fn with_copies(self, copies: Option<Named<'d>>) -> Self {
        Self { copies, ..self }
    }

    /// Returns the databases that belong to the table alone.
    pub(super) fn own(&self) -> impl Iterator<Item = &Named<'d>> {
        let indexes = self.indexes.iter().map(|index| &index.database);
        let own = [&self.facts].into_iter().chain(&self.queue).chain(indexes);
        own.chain(&self.aggregates).chain(&self.changes)
    }

    /// Returns the names of these databases in the file.
    pub(crate) fn names(&self) -> Vec<String> {
        self.own().map(|own| own.name().to_owned()).collect()
    }

    /// Returns the error of a damaged page of a database.
    #[cold]
    pub(super) fn bad_page(&self, path: &Path, database: &str, bad: BadPage) -> Error {
        let (page, reason) = match bad {
            BadPage::Io(source) => return Error::io(path, source),
            BadPage::Damaged { page, reason } => (page, reason),
        };
        let table = self.schema.name;
        let is = |own: &Named<'_>| own.name() == database;
        if is(&self.facts) {
            return damaged_page(table, None, page, reason);
        }
        let indexes = self.indexes.iter().map(|index| &index.database);
        let indexes = indexes.zip(self.schema.indexes.iter().map(|index| index.name));
        let aggregates = self.aggregates.iter().zip(self.parts.aggregates.iter().map(|it| it.name));
        match indexes.chain(aggregates).find(|(own, _)| is(own)) {
            Some((_, index)) => damaged_page(table, Some(index), page, reason),
            None => damaged(path, format!("database `{database}`, page {page}: {reason}")),
        }
    }

    /// Returns the facts to which the references of the table refer.
    pub(super) fn referred(&self) -> impl Iterator<Item = &Named<'d>> {
        self.referred.iter()
    }

    pub(crate) const fn were_known(&self) -> bool {
        self.were_known
    }
}

/// The database of one index.
pub(super) struct Index<'d> {
    pub(super) database: Named<'d>,
    pub(super) layout: Layout,
    pub(super) forecast: Forecast,
}

/// The database and the key prefix of a space of small records.
pub(super) struct Small<'t> {
    pub(super) database: &'t Named<'t>,
    /// The prefix of the physical keys of the table: its name, if tables share a database.
    pub(super) prefix: &'static str,
}

impl Small<'_> {
    /// Returns a record of the database with its key in the space; `None` if it belongs to another table.
    pub(super) fn own<'r>(
        &self,
        found: Option<(&'r [u8], &'r [u8])>,
    ) -> Option<(&'r [u8], &'r [u8])> {
        let (key, record) = found?;
        let rest = key.strip_prefix(self.prefix.as_bytes())?;
        match rest.split_first() {
            _ if self.prefix.is_empty() => Some((key, record)),
            None => Some((rest, record)),
            Some((b'.', part)) => Some((part, record)),
            Some(_) => None,
        }
    }
}

impl Tables<'_> {
    /// Returns the location of a space; `None` if the table has no such space.
    pub(super) fn small(&self, space: Space) -> Option<Small<'_>> {
        let name = self.schema.name;
        Some(match space {
            Space::Catalog => Small { database: &self.catalog, prefix: name },
            Space::Sequence => Small { database: &self.sequences, prefix: name },
            Space::Queue => Small { database: self.queue.as_ref()?, prefix: "" },
            Space::Aggregate(aggregate) => {
                Small { database: self.aggregates.get(aggregate)?, prefix: "" }
            }
            Space::ListCopies => Small { database: self.copies.as_ref()?, prefix: "" },
            Space::Changes => Small { database: self.changes.as_ref()?, prefix: "" },
            Space::Referred(at) => Small { database: self.referred.get(at)?, prefix: "" },
            Space::Referring(at) => {
                Small { database: &self.referrers.get(at)?.database, prefix: "" }
            }
            Space::CatalogOf(table) => Small { database: &self.catalog, prefix: table },
        })
    }

    /// Returns the physical key of a record. Names of tables have no dot.
    pub(super) fn small_key<'k>(&self, space: Space, key: &'k [u8]) -> Cow<'k, [u8]> {
        let name: &'static [u8] = self.schema.name.as_bytes();
        match space {
            Space::Queue
            | Space::Aggregate(_)
            | Space::Changes
            | Space::ListCopies
            | Space::Referred(_)
            | Space::Referring(_) => key.into(),
            Space::CatalogOf(table) if key.is_empty() => table.as_bytes().into(),
            Space::CatalogOf(table) => [table.as_bytes(), b".", key].concat().into(),
            // Each write transaction reads the record of the table, so its key is not allocated.
            Space::Catalog | Space::Sequence if key.is_empty() => name.into(),
            Space::Catalog | Space::Sequence => [name, b".", key].concat().into(),
        }
    }
}

/// A handle that a transaction creates is valid in other transactions after the commit.
impl OnCommit for Tables<'_> {
    type Committed = Tables<'static>;

    fn on_commit(self, token: &CommitToken) -> Tables<'static> {
        Tables {
            schema: self.schema,
            catalog: self.catalog.on_commit(token),
            sequences: self.sequences.on_commit(token),
            copies: self.copies.map(|copies| copies.on_commit(token)),
            facts: self.facts.on_commit(token),
            queue: self.queue.map(|queue| queue.on_commit(token)),
            changes: self.changes.map(|changes| changes.on_commit(token)),
            were_known: self.were_known,
            parts: self.parts,
            referred: self.referred.into_iter().map(|facts| facts.on_commit(token)).collect(),
            recorded: Vec::new(),
            referrers: Links::of(
                self.recorded.into_iter().map(|(by, index)| (by, index.on_commit(token))),
            ),
            aggregates: self
                .aggregates
                .into_iter()
                .map(|aggregate| aggregate.on_commit(token))
                .collect(),
            indexes: self
                .indexes
                .into_iter()
                .map(|index| Index {
                    database: index.database.on_commit(token),
                    layout: index.layout,
                    forecast: index.forecast,
                })
                .collect(),
        }
    }
}

impl Tables<'static> {
    /// Adds a reference of the table `of` to this table.
    pub(crate) fn link(&self, by: Referrer, of: &Self, source: Source) {
        let database = match source {
            Source::Facts => Some(&of.facts),
            Source::Index(index) => of.indexes.get(index).map(|index| &index.database),
        };
        if let Some(database) = database {
            self.referrers.add(by, database.again());
        }
    }
}
