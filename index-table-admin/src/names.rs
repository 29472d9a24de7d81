//! Errors for names and paths that don't exist, with the nearest existing names and paths.

use std::{fs, io, path::Path};

use index_table::{Error, Store};

use crate::{
    failure::{Failure, OTHER_USER},
    open::DATA,
    server,
};

/// The maximum number of names in an error.
const MOST: usize = 20;

/// Returns the error for a name that does not exist.
pub(crate) fn unknown<'n>(what: &str, name: &str, names: impl Iterator<Item = &'n str>) -> Failure {
    let names: Vec<_> = names.collect();
    let near = nearest(name, names.iter().copied());
    let listed: Vec<_> = names.iter().take(MOST).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > MOST { ", …" } else { "" };
    let known = match (listed.as_slice(), near) {
        ([], _) => "there is none".to_owned(),
        ([_], Some(near)) => format!("did you mean `{near}`?"),
        (names, Some(near)) => {
            format!("did you mean `{near}`? There is {}{more}", names.join(", "))
        }
        (names, None) => format!("there is {}{more}", names.join(", ")),
    };
    Failure::not_found(format!("there is no {what} `{name}`; {known}"))
}

/// Returns the error for a directory without a store. The error names stores nearby.
pub(crate) fn no_store(path: &Path) -> Failure {
    let shown = server::shown(path);
    if shown.starts_with("http://") {
        return Failure::arguments(format!(
            "`{shown}` is the address of a service, and not a store; `--url {shown} COMMAND` lets the service do the work of a command"
        ));
    }
    if let Err(error) = fs::metadata(path.join(DATA))
        && error.kind() == io::ErrorKind::PermissionDenied
    {
        return Failure::other(format!("`{shown}` can't be read: {error}; {OTHER_USER}"));
    }
    if path.is_file() {
        let way_out = match path.file_name() {
            Some(name) if name == DATA => "; give its directory",
            _ => "",
        };
        return Failure::not_found(format!(
            "`{shown}` is a file, not the directory of a store{way_out}"
        ));
    }
    if path.is_dir() {
        // Other files can show that the store had a data file.
        let opened = Store::options().read_only(true).create(false).open(path);
        if let Err(error @ Error::DamagedFile { .. }) = opened {
            return error.into();
        }
        let inside = stores_in(path);
        let inside: Vec<_> =
            inside.iter().map(|name| format!("`{}`", path.join(name).display())).collect();
        let advice = match inside.as_slice() {
            [] => "check the path".to_owned(),
            stores => format!("there are stores at {}", stores.join(", ")),
        };
        return Failure::not_found(format!("there is no store at `{shown}`; {advice}"));
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    };
    let stores = stores_in(parent);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let near = nearest(&name, stores.iter().map(String::as_str));
    let advice = match near {
        Some(near) => format!("did you mean `{}`?", path.with_file_name(near).display()),
        None => "give the directory of a store".to_owned(),
    };
    Failure::not_found(format!("there is no directory `{shown}`; {advice}"))
}

/// Returns the names of the stores in a directory, in order.
fn stores_in(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let stores = entries.filter(|entry| entry.path().join(DATA).is_file());
    let names = stores.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names.truncate(MOST);
    names
}

/// Returns the name with the fewest changed characters; `None` if too many characters differ.
fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let most = name.chars().count().div_ceil(3).min(3);
    let near = names.map(|other| (changes(name, other), other));
    near.filter(|(changes, _)| *changes <= most).min().map(|(_, other)| other)
}

/// Returns the number of characters to insert, remove, replace or swap.
fn changes(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    // The last two rows of the table of distances between the prefixes of both texts.
    let mut above: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    let mut previous = None;
    for (at, character) in one.to_lowercase().chars().enumerate() {
        let mut next = vec![at + 1];
        for (column, own) in other.iter().enumerate() {
            let before =
                |row: &[usize], column: usize| row.get(column).copied().unwrap_or(at + column);
            let replaced = before(&row, column) + usize::from(*own != character);
            let least = replaced.min(before(&row, column + 1) + 1).min(before(&next, column) + 1);
            let is_swapped = column > 0
                && previous == Some(*own)
                && other.get(column - 1) == Some(&character)
                && !above.is_empty();
            next.push(if is_swapped { least.min(before(&above, column - 1) + 1) } else { least });
        }
        above = std::mem::replace(&mut row, next);
        previous = Some(character);
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["customers", "orders", "town", "last_name"];
        let near = |name| nearest(name, names.into_iter());
        assert_eq!(near("custmers"), Some("customers"));
        assert_eq!(near("Customer"), Some("customers"));
        assert_eq!(near("odrers"), Some("orders"));
        assert_eq!(near("twon"), Some("town"));
        assert_eq!(near("lastname"), Some("last_name"));
        assert_eq!((near("city"), near("x"), near("")), (None, None, None));
    }

    #[test]
    fn each_changed_character_adds_one_to_the_distance() {
        assert_eq!(changes("kitten", "sitting"), 3);
        assert_eq!((changes("", "abc"), changes("abc", ""), changes("ab", "ba")), (3, 3, 1));
    }
}
