//! The layers of docs/ARCHITECTURE.md: it lists every module, modules use lower layers only, folders don't use each other,
//! engines neither, and only an engine's folder names its client library. Each layer has a page in docs/internals.

mod builds;
mod imports;
mod pages;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use imports::{Modules, module, siblings};

/// The top modules of the runtime, from the lowest layer to the highest.
const LAYERS: [&str; 14] = [
    "locks",
    "background",
    "model",
    "usage",
    "engine",
    "placement",
    "sort",
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

/// The engines, which don't use each other.
const ENGINES: [&str; 3] = ["lmdb", "memory", "postgres"];

/// Folders that use each other. The list may only become shorter.
const FOLDERS_THAT_USE_EACH_OTHER: [&str; 1] = ["placement::dispatch <-> placement::shards"];

/// Files outside of `engine/lmdb/` that use it directly, and not through the traits in `engine/`. The list may only become
/// shorter.
const USERS_OF_LMDB: [&str; 24] = [
    "engine/data_file.rs",
    "engine/dispatch/mod.rs",
    "engine/dispatch/reader.rs",
    "engine/dispatch/transaction.rs",
    "engine/dispatch/writer.rs",
    "fuzzing.rs",
    "placement/dispatch/writer.rs",
    "placement/shards/follow.rs",
    "placement/shards/manager.rs",
    "placement/shards/pin.rs",
    "store/archive.rs",
    "store/engines.rs",
    "store/follower/added.rs",
    "store/follower/mod.rs",
    "store/follower/original.rs",
    "store/salvage.rs",
    "store/sharded/archive.rs",
    "store/sharded/copy.rs",
    "store/sharded/join.rs",
    "store/sharded/open.rs",
    "store/sharded/rebuild.rs",
    "store/sharded/settle.rs",
    "store/sharded/shard.rs",
    "store/sharded/shards.rs",
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

/// Returns the first word of each line in the first block of code after this title of a page.
fn listed(text: &str, title: &str) -> BTreeSet<String> {
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

fn layer(module: Option<&String>) -> Option<usize> {
    LAYERS.iter().position(|layer| Some(*layer) == module.map(String::as_str))
}

/// Returns the modules of higher layers that a file uses.
fn upward(modules: &Modules, file: &str) -> Vec<String> {
    let user = module(file);
    let higher = |used: &[String]| layer(used.first()) > layer(user.first());
    modules.used(file).into_iter().filter(|used| higher(used)).map(|it| it.join("::")).collect()
}

/// Returns the pairs of siblings, at every level, that use each other.
fn mutual(files: &[(String, String)]) -> BTreeSet<String> {
    let modules = Modules::new(files);
    let mut arrows = BTreeSet::new();
    for (file, _) in files {
        let user = module(file);
        arrows.extend(modules.used(file).iter().filter_map(|used| siblings(&user, used)));
    }
    let pairs = arrows.iter().filter(|(left, right)| left < right);
    let both = pairs.filter(|(left, right)| arrows.contains(&(right.clone(), left.clone())));
    both.map(|(left, right)| format!("{} <-> {}", left.join("::"), right.join("::"))).collect()
}

/// Returns the files of other folders that use the modules below a folder.
fn outside_users(files: &[(String, String)], folder: &[&str]) -> BTreeSet<String> {
    let modules = Modules::new(files);
    let below = |module: &[String]| {
        module.iter().zip(folder).filter(|(a, b)| a == b).count() == folder.len()
    };
    let outside = files.iter().map(|(file, _)| file).filter(|file| !below(&module(file)));
    outside.filter(|file| modules.used(file).iter().any(|used| below(used))).cloned().collect()
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
    let derive = include_str!("../../docs/internals/derive.md");
    assert_eq!(listed(derive, "\n## The stages\n"), modules("index-table-derive")?);
    let runtime = include_str!("../../docs/ARCHITECTURE.md");
    assert_eq!(listed(runtime, "\n## The runtime\n"), modules("index-table-runtime")?);
    Ok(())
}

#[test]
fn every_module_has_a_layer() -> io::Result<()> {
    let modules = modules("index-table-runtime")?;
    let modules: BTreeSet<_> = modules.iter().map(|module| module.trim_end_matches('/')).collect();
    assert_eq!(modules, BTreeSet::from(LAYERS));
    Ok(())
}

/// Returns the files that a page of an engine lists from the bottom up, by the rows of its table.
fn rows(page: &str) -> Vec<Vec<String>> {
    let table = page.split_once("\n| files | contents |\n|---|---|\n").map(|(_, table)| table);
    let lines = table.unwrap_or_default().lines().take_while(|line| line.starts_with('|'));
    let files = lines.filter_map(|line| line.split('|').nth(1));
    files.map(|files| files.split('`').skip(1).step_by(2).map(str::to_owned).collect()).collect()
}

/// Returns the files below a folder, and the files of the same row or a later row that they use.
fn out_of_order(files: &[(String, String)], folder: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let modules = Modules::new(files);
    let row = |file: &str| rows.iter().position(|row| row.iter().any(|it| it == file));
    let mut arrows = Vec::new();
    for (at, user) in
        rows.iter().enumerate().flat_map(|(at, row)| row.iter().map(move |it| (at, it)))
    {
        for used in modules.used(&format!("{}/{user}.rs", folder.join("/"))) {
            let (above, used) = used.split_at(used.len().min(folder.len()));
            let ([used], true) = (used, above == folder) else { continue };
            if used != user && row(used).is_none_or(|used| used >= at) {
                arrows.push(format!("{user} -> {used}"));
            }
        }
    }
    arrows
}

/// Returns the files of the runtime without unit tests.
fn runtime() -> io::Result<Vec<(String, String)>> {
    let mut files = files(&source("index-table-runtime"))?;
    files.retain(|(path, _)| !is_test(path));
    Ok(files)
}

#[test]
fn modules_use_lower_layers_only() -> io::Result<()> {
    let files = runtime()?;
    let modules = Modules::new(&files);
    let mut arrows = Vec::new();
    for (path, _) in files.iter().filter(|(path, _)| path != "lib.rs") {
        arrows.extend(upward(&modules, path).into_iter().map(|used| format!("{path} -> {used}")));
    }
    assert!(arrows.is_empty(), "arrows that point up:\n{}", arrows.join("\n"));
    Ok(())
}

#[test]
fn folders_do_not_use_each_other() -> io::Result<()> {
    let files = runtime()?;
    let is_folder = |module: &str| {
        let folder = format!("{}/", module.replace("::", "/"));
        files.iter().any(|(path, _)| path.starts_with(&folder))
    };
    let pairs = mutual(&files).into_iter();
    let folders = pairs.filter(|pair| pair.split(" <-> ").all(is_folder));
    assert_eq!(folders.collect::<Vec<_>>(), FOLDERS_THAT_USE_EACH_OTHER);
    Ok(())
}

/// Prints the figure of docs/internals/README.md: `cargo test --test architecture -- --ignored --nocapture`.
#[test]
#[ignore = "prints the pairs of files and folders that use each other"]
fn pairs_that_use_each_other() -> io::Result<()> {
    let pairs = mutual(&runtime()?);
    println!("{} pairs use each other:", pairs.len());
    for pair in &pairs {
        println!("  {pair}");
    }
    Ok(())
}

#[test]
fn engines_do_not_use_each_other() -> io::Result<()> {
    let files = runtime()?;
    let mut arrows = Vec::new();
    for engine in ENGINES {
        let users = outside_users(&files, &["engine", engine]).into_iter();
        let others = ENGINES.map(|other| format!("engine/{other}"));
        arrows.extend(users.filter(|user| others.iter().any(|other| user.starts_with(other))));
    }
    assert_eq!(arrows, [""; 0]);
    Ok(())
}

#[test]
fn files_of_the_server_engine_use_earlier_rows_only() -> io::Result<()> {
    let rows = rows(include_str!("../../docs/internals/postgres.md"));
    let files = runtime()?;
    let own = files.iter().filter_map(|(path, _)| path.strip_prefix("engine/postgres/"));
    // These files have unit tests only.
    let own = own.filter(|file| !matches!(*file, "faults.rs" | "golden.rs" | "traps.rs"));
    let own: BTreeSet<_> = own.map(|file| file.trim_end_matches(".rs")).collect();
    assert_eq!(rows.iter().flatten().map(String::as_str).collect::<BTreeSet<_>>(), own);
    let rows: Vec<_> = rows.into_iter().filter(|row| *row != ["mod"]).collect();
    assert_eq!(out_of_order(&files, &["engine", "postgres"], &rows), [""; 0]);
    Ok(())
}

#[test]
fn only_listed_files_use_lmdb_directly() -> io::Result<()> {
    let users = outside_users(&runtime()?, &["engine", "lmdb"]);
    assert_eq!(users.into_iter().collect::<Vec<_>>(), USERS_OF_LMDB);
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
        let own = all
            .into_iter()
            .filter(|(path, code)| !path.starts_with("architecture/") && has_full(code));
        named.extend(own.map(|(path, _)| format!("{folder}/{path}")));
    }
    let text = include_str!("../../CONTRIBUTING.md");
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
fn broken_rules_are_detected() {
    let files = [
        ("lib.rs", "pub use store::Store;"),
        ("model/mod.rs", "use crate::Store;"),
        ("store/mod.rs", "use crate::model::Row;"),
        ("engine/lmdb/mod.rs", "use super::memory::Map;"),
        ("engine/lmdb/read.rs", "use super::scan::Scan;"),
        ("engine/lmdb/scan.rs", "use crate::{engine::lmdb::read::{self, Read}, store};"),
        ("engine/memory/mod.rs", ""),
    ];
    let files = files.map(|(path, code)| (path.to_owned(), code.to_owned()));
    let modules = Modules::new(&files);
    assert_eq!(upward(&modules, "model/mod.rs"), ["store"]);
    assert_eq!(upward(&modules, "engine/lmdb/scan.rs"), ["store"]);
    assert_eq!(upward(&modules, "store/mod.rs"), [""; 0]);
    let pairs = ["engine::lmdb::read <-> engine::lmdb::scan", "model <-> store"];
    assert_eq!(mutual(&files).into_iter().collect::<Vec<_>>(), pairs);
    let users = outside_users(&files, &["engine", "memory"]);
    assert_eq!(users.into_iter().collect::<Vec<_>>(), ["engine/lmdb/mod.rs"]);
    let page = "# Page\n\n| files | contents |\n|---|---|\n| `read` | a |\n| `scan` | b |\n\n";
    let arrows = out_of_order(&files, &["engine", "lmdb"], &rows(page));
    assert_eq!(arrows, ["read -> scan"]);
    assert!(names("type Env = heed::Env;", "heed") && names("use heed as lmdb;", "heed"));
    assert!(!names("let unheeded = heed_count;", "heed"));
}
