//! Links to chapters of the guide lead to files in the repository and to modules in the documentation. Each
//! link is defined twice: in the text, and in the module that includes the text.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// Returns the links `[label]: target` that a text or the documentation of a module defines.
fn definitions(text: &str) -> BTreeSet<(&str, &str)> {
    text.lines()
        .map(|line| line.trim_start_matches(['/', '!', ' ']))
        .filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
        .collect()
}

/// Returns the names of the chapters and their texts.
fn chapters() -> io::Result<Vec<(String, String)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    let chapter = |entry: io::Result<fs::DirEntry>| {
        let path = entry?.path();
        let name = path.file_stem().expect("a file name").to_string_lossy().into_owned();
        Ok((name, fs::read_to_string(path)?))
    };
    fs::read_dir(folder)?.map(chapter).collect()
}

#[test]
fn the_readme_links_every_chapter() -> io::Result<()> {
    let readme = include_str!("../README.md");
    let of_readme = definitions(readme);
    let of_crate = definitions(include_str!("../src/lib.rs"));
    let chapters = chapters()?;
    for (name, _) in &chapters {
        let file = format!("src/guide/{name}.md");
        let defined = of_readme.iter().find(|(_, target)| *target == file);
        let (label, _) = defined.unwrap_or_else(|| panic!("README.md has no link to {file}"));
        assert!(of_crate.contains(&(*label, format!("guide::{name}").as_str())), "{label}");
    }
    assert_eq!((of_readme.len(), of_crate.len()), (chapters.len(), chapters.len()));
    assert!(!readme.contains("](src/guide/"));
    Ok(())
}

/// Returns the fragments that link to the headings of a chapter.
fn headings(text: &str) -> Vec<String> {
    let fragment_char = |c: char| (c.is_alphanumeric() || "_- ".contains(c)).then_some(c);
    let fragment = |line: &str| {
        line.to_lowercase().chars().filter_map(fragment_char).collect::<String>().replace(' ', "-")
    };
    text.lines().filter_map(|line| line.strip_prefix("## ")).map(fragment).collect()
}

#[test]
fn links_between_chapters_lead_to_sections_that_exist() -> io::Result<()> {
    let of_module = definitions(include_str!("../src/guide.rs"));
    let chapters = chapters()?;
    let links: usize = chapters.iter().map(|(_, text)| definitions(text).len()).sum();
    assert!(links > 0, "the chapters have no links");
    for (name, text) in &chapters {
        for (label, target) in definitions(text) {
            let (file, section) = target.split_once('#').unwrap_or((target, ""));
            let linked = chapters.iter().find(|(name, _)| format!("{name}.md") == file);
            let (module, linked) = linked.unwrap_or_else(|| panic!("{name}.md links {target}"));
            let known = section.is_empty() || headings(linked).iter().any(|found| found == section);
            assert!(known, "{name}.md links {target}");
            let target = target.replacen(file, module, 1);
            assert!(of_module.contains(&(label, target.as_str())), "{name}.md: {label}");
        }
        assert!(!text.contains(".md)"), "{name}.md has a link without a definition");
    }
    Ok(())
}
