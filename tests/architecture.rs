//! The layers of docs/ARCHITECTURE.md: it lists every module, modules use lower layers only, and only an
//! engine's folder names its client library.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// The top modules of the runtime, from the lowest layer to the highest.
const LAYERS: [&str; 13] = [
    "locks",
    "background",
    "model",
    "engine",
    "sort",
    "usage",
    "query",
    "write",
    "store",
    "upkeep",
    "table",
    "private",
    "fuzzing",
];

/// Client libraries, and the folders that may name them.
const CLIENTS: [(&str, &str); 5] = [
    ("heed", "engine/lmdb/"),
    ("tokio_postgres", "engine/postgres/"),
    ("tokio", "engine/postgres/"),
    ("mio", "engine/postgres/"),
    ("socket2", "engine/postgres/"),
];

fn source(package: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(package).join("src")
}

/// Returns the modules of a package except its root and its tests, as `key/` or `entity`.
fn modules(package: &str) -> io::Result<BTreeSet<String>> {
    let mut modules = BTreeSet::new();
    for entry in fs::read_dir(source(package))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let folder = if entry.file_type()?.is_dir() { "/" } else { "" };
        modules.insert(format!("{}{folder}", name.trim_end_matches(".rs")));
    }
    modules.retain(|module| !matches!(module.as_str(), "lib" | "tests/"));
    Ok(modules)
}

/// Returns the first word of each line in the first block of code after this title.
fn listed(title: &str) -> BTreeSet<String> {
    let text = include_str!("../docs/ARCHITECTURE.md");
    let block = text.split_once(title).and_then(|(_, text)| text.split("```\n").nth(1));
    let lines = block.unwrap_or_default().lines();
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Returns all source files below a folder: the relative path, with `/`, and the text without comments.
fn files(folder: &Path) -> io::Result<Vec<(String, String)>> {
    fn walk(folder: &Path, prefix: &str, files: &mut Vec<(String, String)>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                walk(&entry.path(), &format!("{path}/"), files)?;
            } else if entry.path().extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(entry.path())?;
                let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
                files.push((path, text.lines().map(code).collect::<Vec<_>>().join("\n")));
            }
        }
        Ok(())
    }
    let mut all = Vec::new();
    walk(folder, "", &mut all)?;
    Ok(all)
}

/// Returns the top-level modules that a file names: the identifiers after `crate::`, and after the number of
/// `super::` that leads from the module at `path` to the root.
fn top_modules_named(path: &str, code: &str) -> BTreeSet<String> {
    let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let root = "super::".repeat(module.split('/').count());
    let mut named = BTreeSet::new();
    for start in ["crate::", root.as_str()] {
        for (at, _) in code.match_indices(start) {
            named.extend(first_identifiers(&code[at + start.len()..]));
        }
    }
    named
}

/// Returns the first identifier of a path, or of each path of a group in braces.
fn first_identifiers(path: &str) -> Vec<String> {
    let identifier = |text: &str| -> String {
        text.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect()
    };
    let Some(group) = path.strip_prefix('{') else { return vec![identifier(path)] };
    let (mut depth, mut found, mut begins) = (0_usize, Vec::new(), true);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if character.is_whitespace() => {}
            _ if begins => {
                found.push(identifier(&group[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    found
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == module)
}

/// Returns the modules of higher layers that a file names.
fn upward(path: &str, code: &str) -> Vec<String> {
    let own_module = path.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    let named = top_modules_named(path, code).into_iter();
    named.filter(|named| layer(named) > layer(own_module)).collect()
}

/// Whether a file has unit tests only, which may use every layer.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part.trim_end_matches(".rs") == "tests")
}

/// Whether a file names a crate.
fn names(code: &str, library: &str) -> bool {
    code.match_indices(library).any(|(at, _)| {
        let word = |it: char| it.is_alphanumeric() || it == '_';
        let before = code[..at].chars().next_back();
        let after = &code[at + library.len()..];
        !before.is_some_and(word)
            && (after.starts_with("::") || code[..at].trim_end().ends_with("use"))
    })
}

#[test]
fn every_module_is_listed() -> io::Result<()> {
    assert_eq!(listed("\n## The derive\n"), modules("index-table-derive")?);
    assert_eq!(listed("\n## The runtime\n"), modules("index-table-runtime")?);
    Ok(())
}

#[test]
fn every_module_has_a_layer() -> io::Result<()> {
    let modules = modules("index-table-runtime")?;
    let modules: BTreeSet<_> = modules.iter().map(|module| module.trim_end_matches('/')).collect();
    assert_eq!(modules, BTreeSet::from(LAYERS));
    Ok(())
}

#[test]
fn modules_use_lower_layers_only() -> io::Result<()> {
    let mut arrows = Vec::new();
    for (path, code) in files(&source("index-table-runtime"))? {
        if path != "lib.rs" && !is_test(&path) {
            arrows
                .extend(upward(&path, &code).into_iter().map(|named| format!("{path} -> {named}")));
        }
    }
    assert!(arrows.is_empty(), "arrows that point up:\n{}", arrows.join("\n"));
    Ok(())
}

#[test]
fn only_an_engines_folder_names_its_client_library() -> io::Result<()> {
    let (mut inside, mut outside) = (0, Vec::new());
    for (path, code) in files(&source("index-table-runtime"))? {
        for (library, folder) in CLIENTS {
            match (names(&code, library), path.starts_with(folder)) {
                (true, true) => inside += 1,
                (true, false) => outside.push(format!("{path} names {library}")),
                (false, _) => {}
            }
        }
    }
    assert!(outside.is_empty(), "{}", outside.join("\n"));
    assert!(inside > 0, "no file of an engine was found");
    Ok(())
}

#[test]
fn contributing_lists_the_tests_that_name_full() -> io::Result<()> {
    let folders =
        ["tests", "index-table-admin/tests", "index-table-lifecycle/src", "index-table-proof/src"];
    let mut named = BTreeSet::new();
    for folder in folders {
        let all = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))?;
        let has_full =
            |code: &str| code.contains("Durability::Full") || code.contains("Durability::{Full");
        let own =
            all.into_iter().filter(|(path, code)| path != "architecture.rs" && has_full(code));
        named.extend(own.map(|(path, _)| format!("{folder}/{path}")));
    }
    let text = include_str!("../CONTRIBUTING.md");
    let part = text.split_once("### Tests that name `Durability::Full`").map(|(_, part)| part);
    let table = part.and_then(|part| part.split("|---|---|").nth(1)).unwrap_or_default();
    let table = table.split("###").next().unwrap_or_default();
    let listed = table
        .split('`')
        .filter(|word| Path::new(word).extension().is_some_and(|it| it == "rs"))
        .map(str::to_owned);
    assert_eq!(listed.collect::<BTreeSet<_>>(), named);
    Ok(())
}

#[test]
fn uses_of_higher_layers_are_detected() {
    let up = |path, code| upward(path, code);
    assert_eq!(up("model/row.rs", "use crate::store::Store;"), ["store"]);
    assert_eq!(
        up("model/key/mod.rs", "use crate::{\n    model::{row, store},\n    write::rows,\n};"),
        ["write"]
    );
    assert_eq!(up("engine/mod.rs", "use super::upkeep::build;"), ["upkeep"]);
    assert_eq!(up("engine/lmdb/read.rs", "super::super::super::query::Scan"), ["query"]);
    assert_eq!(up("store/mod.rs", "use crate::{engine::Engine, write::Scratch};"), [""; 0]);
    assert!(names("type Env = heed::Env;", "heed") && names("use heed as lmdb;", "heed"));
    assert!(!names("let unheeded = heed_count;", "heed"));
}
