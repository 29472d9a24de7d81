//! Stores on the server in `INDEX_TABLE_POSTGRES_URL`; see `scripts/postgres`.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    env, process,
    sync::{
        Once,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use index_table::{__private::run_sql, Options, Result, Store};

/// A schema of a test, which is removed at the end.
pub(crate) struct Schema {
    url: String,
    name: String,
    is_used: AtomicBool,
}

impl Schema {
    /// Returns a new schema. Without a server, returns `None`, and prints once that tests are not run.
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static PRINTED: Once = Once::new();
        let Ok(url) = env::var("INDEX_TABLE_POSTGRES_URL") else {
            PRINTED.call_once(|| {
                eprintln!("not run on PostgreSQL: INDEX_TABLE_POSTGRES_URL is not set");
            });
            return None;
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Some(Self {
            url,
            name: format!("index-table tests {} {number}", process::id()),
            is_used: AtomicBool::new(false),
        })
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns options for the schema.
    pub(crate) fn options(&self) -> Options {
        Store::options().schema(&self.name)
    }

    /// Returns the URL with another user.
    pub(crate) fn url_of(&self, user: &str) -> String {
        let mark = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{mark}user={}", self.url, user.replace(' ', "%20"))
    }

    /// Opens the store. Each call opens a further client.
    pub(crate) fn open(&self) -> Result<Store> {
        self.open_with(&self.options())
    }

    pub(crate) fn open_with(&self, options: &Options) -> Result<Store> {
        self.is_used.store(true, Ordering::Relaxed);
        options.connect(&self.url)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        let sql = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.name);
        let dropped = self.open().and_then(|store| run_sql(&store, &sql));
        assert!(std::thread::panicking() || dropped.is_ok(), "{dropped:?}");
    }
}
