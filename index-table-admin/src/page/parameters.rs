//! The parameters of a view.

use std::collections::HashMap;

use super::frame::url;

/// The maximum number of columns that a view shows.
pub(super) const COLUMNS: usize = 32;

/// The parameters in the query of a path.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    single: HashMap<String, String>,
    /// The chosen columns, which the parameter `c` has once for each.
    columns: Vec<String>,
}

impl From<Vec<(String, String)>> for Parameters {
    fn from(pairs: Vec<(String, String)>) -> Self {
        let mut own = Self::default();
        for (name, value) in pairs {
            if name != "c" {
                own.single.insert(name, value);
            } else if !own.columns.contains(&value) && own.columns.len() < COLUMNS {
                own.columns.push(value);
            }
        }
        own
    }
}

impl Parameters {
    /// Returns a parameter; `None` if it is absent or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.single.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns these parameters, and the columns, as the query of a path.
    pub(super) fn query<'p>(&self, own: impl IntoIterator<Item = (&'p str, &'p str)>) -> String {
        let columns = self.columns.iter().map(|column| ("c", column.as_str()));
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        let all = own.chain(columns.map(|(name, value)| (name.to_owned(), value)));
        let all = all.map(|(name, value)| format!("{name}={}", url(value)));
        all.collect::<Vec<_>>().join("&")
    }
}
