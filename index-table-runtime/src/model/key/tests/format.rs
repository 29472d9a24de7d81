//! The tables of `docs/FORMAT.md`, for comparison with the code.

/// Returns the rows of the tables from `heading` up to the next heading.
pub(super) fn documented(heading: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FORMAT.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.lines().skip_while(|line| *line != heading).skip(1);
    // `#[…]` in an example is not a heading.
    let is_heading =
        |line: &str| line.starts_with('#') && line.trim_start_matches('#').starts_with(' ');
    let section = section.take_while(|line| !is_heading(line));
    section.filter(|line| line.starts_with("| `")).map(str::to_owned).collect()
}

/// Formats bytes as in the tables.
pub(super) fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}
