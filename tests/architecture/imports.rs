//! The modules that a file of a package uses: each path that begins with `crate`, `self` or `super` is followed through
//! re-exports to the module that defines the item.

use std::collections::{BTreeMap, BTreeSet};

/// A path without `::`, such as `["engine", "lmdb"]`. A module's path begins below the root of its package.
type Segments = Vec<String>;

/// The modules of a package, and the items that they re-export.
pub(crate) struct Modules<'a> {
    code: BTreeMap<Segments, &'a str>,
    /// For a module and a name: the path that is re-exported under this name.
    exports: BTreeMap<(Segments, String), Segments>,
}

impl<'a> Modules<'a> {
    /// Reads the modules from files: the path, such as `engine/lmdb/mod.rs`, and the text without comments.
    pub(crate) fn new(files: &'a [(String, String)]) -> Self {
        let code: BTreeMap<_, _> =
            files.iter().map(|(path, code)| (module(path), code.as_str())).collect();
        let mut exports = BTreeMap::new();
        for (module, code) in &code {
            for path in re_exported(code).filter_map(|path| absolute(module, &path)) {
                if let Some(name) = path.last() {
                    exports.insert((module.clone(), name.clone()), path);
                }
            }
        }
        Self { code, exports }
    }

    /// Returns the modules that a file uses.
    pub(crate) fn used(&self, file: &str) -> BTreeSet<Segments> {
        let module = module(file);
        let code = self.code.get(&module).copied().unwrap_or_default();
        let paths = named(code).into_iter().filter_map(|path| absolute(&module, &path));
        paths.filter_map(|path| self.definition(&path, 0)).collect()
    }

    /// Returns the module that defines the item at a path. Re-exports that form a circle end the search.
    fn definition(&self, path: &[String], followed: usize) -> Option<Segments> {
        let end = (1..=path.len()).rev().find(|end| self.code.contains_key(&path[..*end]));
        let (module, rest) = path.split_at(end.unwrap_or_default());
        if let Some((name, rest)) = rest.split_first()
            && let Some(exported) = self.exports.get(&(module.to_vec(), name.clone()))
            && followed < 8
        {
            return self.definition(&[exported.as_slice(), rest].concat(), followed + 1);
        }
        (!module.is_empty()).then(|| module.to_vec())
    }
}

/// Returns the module of a file: `engine::lmdb` for `engine/lmdb/mod.rs`, and the root for `lib.rs`.
pub(crate) fn module(file: &str) -> Segments {
    let file = file.trim_end_matches(".rs");
    let mut module: Segments = file.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    module
}

/// Resolves `crate`, `self` and `super` at the start of a path in a module. Returns `None` for paths of other crates and of
/// items in scope.
fn absolute(module: &[String], path: &[String]) -> Option<Segments> {
    let (first, rest) = path.split_first()?;
    let supers = path.iter().take_while(|segment| *segment == "super").count();
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => Some([&module[..module.len().checked_sub(supers)?], &path[supers..]].concat()),
        // `mod child; pub use child::Item;`
        _ => None,
    }
}

/// Returns the paths that the code names after `crate`, `self` and `super`, in `use` and elsewhere.
fn named(code: &str) -> Vec<Segments> {
    let (mut found, mut next) = (Vec::new(), 0);
    while let Some(at) = start(code, next) {
        let rest = branch(&code[at..], &[], &mut found);
        next = code.len() - rest.len();
    }
    found
}

/// Returns the position of the next path that begins with `crate`, `self` or `super`.
fn start(code: &str, from: usize) -> Option<usize> {
    let positions = ["crate::", "self::", "super::"].into_iter().filter_map(|word| {
        let mut positions = code[from..].match_indices(word).map(|(at, _)| from + at);
        positions.find(|at| {
            let before = code[..*at].chars().next_back();
            !before.is_some_and(|it| it.is_alphanumeric() || matches!(it, '_' | ':'))
        })
    });
    positions.min()
}

/// Returns the re-exported paths of a module. Paths that begin with a child begin with `self` here.
fn re_exported(code: &str) -> impl Iterator<Item = Segments> + '_ {
    let uses = code.split("pub").skip(1).filter_map(|item| {
        let item = item.trim_start();
        let item = match item.strip_prefix('(') {
            Some(visibility) => visibility.split_once(')')?.1.trim_start(),
            None => item,
        };
        item.strip_prefix("use ")
    });
    uses.flat_map(tree).map(|mut path| {
        if !matches!(path.first().map(String::as_str), Some("crate" | "self" | "super")) {
            path.insert(0, "self".to_owned());
        }
        path
    })
}

/// Returns the paths of a `use` tree, such as `a::{b, c::d}`.
fn tree(code: &str) -> Vec<Segments> {
    let mut paths = Vec::new();
    branch(code, &[], &mut paths);
    paths
}

/// Adds the paths of the branch that begins the code, and returns the code after it.
fn branch<'a>(mut code: &'a str, prefix: &[String], paths: &mut Vec<Segments>) -> &'a str {
    let mut path = prefix.to_vec();
    loop {
        let end = code.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(code.len());
        let (segment, rest) = code.split_at(end);
        if (path.is_empty() || segment != "self") && !segment.is_empty() {
            path.push(segment.to_owned());
        }
        let Some(next) = rest.strip_prefix("::") else {
            paths.push(path);
            return rest;
        };
        let Some(group) = next.strip_prefix('{') else {
            code = next;
            continue;
        };
        let mut group = group.trim_start();
        while !group.is_empty() && !group.starts_with('}') {
            let rest = branch(group, &path, paths);
            // An alias, or `*`, is behind the branch.
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            group = rest[end..].trim_start_matches(',').trim_start();
        }
        return group.strip_prefix('}').unwrap_or(group);
    }
}

/// Returns the pair of siblings through which a module uses another: `engine::lmdb` and `engine::memory` for
/// `engine::lmdb::read` and `engine::memory::scan`. Returns `None` if one of the two contains the other.
pub(crate) fn siblings(module: &[String], used: &[String]) -> Option<(Segments, Segments)> {
    let common = module.iter().zip(used).take_while(|(left, right)| left == right).count();
    let end = common + 1;
    Some((module.get(..end)?.to_vec(), used.get(..end)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(file: &str, code: &str) -> Vec<String> {
        let files = [
            ("lib.rs", "pub use model::{error::Error, shard::{self, Map}}; pub use store::Store;"),
            ("model/mod.rs", ""),
            ("model/error.rs", ""),
            ("model/shard.rs", ""),
            ("store/mod.rs", "pub(crate) use inner::Inner; pub use self::inner::Store;"),
            ("store/inner.rs", ""),
            (file, code),
        ];
        let files = files.map(|(path, code)| (path.to_owned(), code.to_owned()));
        let modules = Modules::new(&files);
        modules.used(file).into_iter().map(|module| module.join("::")).collect()
    }

    #[test]
    fn re_exports_of_the_root_and_of_folders_are_followed() {
        assert_eq!(used("model/row.rs", "use crate::Store;"), ["store::inner"]);
        assert_eq!(used("model/row.rs", "fn f(inner: &crate::store::Inner) {}"), ["store::inner"]);
        assert_eq!(used("query.rs", "use crate::{Map, shard::Hash};"), ["model::shard"]);
    }

    #[test]
    fn groups_and_relative_paths_are_resolved() {
        assert_eq!(
            used("store/open.rs", "use super::{super::model::{self, error as failed}, inner::A};"),
            ["model", "model::error", "store::inner"]
        );
        assert_eq!(used("store/open.rs", "let all = super::inner::*;"), ["store::inner"]);
        assert_eq!(
            used("store/open.rs", "use std::{fs, store::Map}; let it = a::super_::b;"),
            [""; 0]
        );
    }
}
