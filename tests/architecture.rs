//! Whether the modules in docs/ARCHITECTURE.md are those that there are.

use std::{collections::BTreeSet, fs, io, path::Path};

/// `key/` and `entity` for each module of this crate but its root and its tests.
fn modules(package: &str) -> io::Result<BTreeSet<String>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(package).join("src");
    let mut modules = BTreeSet::new();
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let folder = if entry.file_type()?.is_dir() { "/" } else { "" };
        modules.insert(format!("{}{folder}", name.trim_end_matches(".rs")));
    }
    modules.retain(|module| !matches!(module.as_str(), "lib" | "tests/"));
    Ok(modules)
}

/// The first word of each line in the first block of code behind this title.
fn listed(title: &str) -> BTreeSet<String> {
    let text = include_str!("../docs/ARCHITECTURE.md");
    let block = text.split_once(title).and_then(|(_, text)| text.split("```\n").nth(1));
    let lines = block.unwrap_or_default().lines();
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_module_is_listed() -> io::Result<()> {
    assert_eq!(listed("\n## The derive\n"), modules("index-table-derive")?);
    assert_eq!(listed("\n## The runtime\n"), modules("index-table-runtime")?);
    Ok(())
}
