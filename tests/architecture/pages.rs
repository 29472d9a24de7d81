//! The pages of docs/internals: each layer and each engine has one, and they name files that exist.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::{ENGINES, LAYERS};

/// The limit of a page in lines.
const LONGEST: usize = 300;

/// Folders without sources of this repository.
const SKIPPED: [&str; 2] = ["target", "node_modules"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the name and the text of each page.
fn pages() -> io::Result<Vec<(String, String)>> {
    let pages = fs::read_dir(root().join("docs/internals"))?.map(|entry| {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, fs::read_to_string(path)?))
    });
    pages.collect()
}

/// Adds all files and folders below a folder, from the root of the repository. Files of Rust have their path without the
/// ending too, and modules that are folders have the path of the folder.
fn add(folder: &Path, paths: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root().join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        if SKIPPED.iter().any(|skipped| name == *skipped) || name.to_string_lossy().starts_with('.')
        {
            continue;
        }
        let path = folder.join(name);
        if entry.file_type()?.is_dir() {
            add(&path, paths)?;
        }
        paths.insert(path.with_extension(""));
        paths.insert(path);
    }
    Ok(())
}

/// Returns the words of a text that are paths: in backquotes, without a space, with a slash or the ending of Rust.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```").step_by(2);
    let words = blocks.flat_map(|block| block.split('`').skip(1).step_by(2));
    words.filter(|word| {
        let is_file = Path::new(word).extension().is_some_and(|it| it == "rs");
        !word.contains([' ', '\n']) && (word.contains('/') || is_file)
    })
}

#[test]
fn every_layer_and_engine_has_a_page() -> io::Result<()> {
    let pages = pages()?;
    let names: BTreeSet<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
    // These are files with a page in common, and the page of the engines' folder has another name.
    let page = |layer: &'static str| match layer {
        "private" | "fuzzing" => "table",
        "engine" => "seam",
        layer => layer,
    };
    let expected: BTreeSet<_> = LAYERS.map(page).into_iter().chain(ENGINES).collect();
    assert_eq!(expected.difference(&names).collect::<Vec<_>>(), [&""; 0]);
    let index = include_str!("../../docs/internals/README.md");
    for (name, text) in pages.iter().filter(|(name, _)| name != "README") {
        assert!(text.contains("\n## What it may touch\n"), "{name}: what it may touch");
        assert!(text.lines().count() <= LONGEST, "{name} has more than {LONGEST} lines");
        assert!(index.contains(&format!("({name}.md)")), "README.md does not list {name}");
    }
    Ok(())
}

#[test]
fn pages_name_files_that_exist() -> io::Result<()> {
    let mut paths = BTreeSet::new();
    add(Path::new(""), &mut paths)?;
    let mut missing = Vec::new();
    for (name, text) in pages()? {
        let ends = |word: &str| {
            let word = Path::new(word.trim_end_matches('/'));
            paths.iter().any(|path| path.ends_with(word))
        };
        missing.extend(
            named(&text).filter(|word| !ends(word)).map(|word| format!("{name}.md: {word}")),
        );
    }
    assert_eq!(missing, [""; 0]);
    Ok(())
}

#[test]
fn paths_are_recognized() {
    let text = "`engine/lmdb` and `a b/c`\n```\n`x/y`\n```\n`scan.rs`, `Scan`";
    assert_eq!(named(text).collect::<Vec<_>>(), ["engine/lmdb", "scan.rs"]);
}
