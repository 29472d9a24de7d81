//! The tables of `docs/FORMAT.md`, to hold the code to them.

/// The rows of the tables under the heading `heading`, as far as the next heading.
pub(super) fn documented(heading: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FORMAT.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.lines().skip_while(|line| *line != heading).skip(1);
    // `#[…]` in an example is no heading.
    let is_heading =
        |line: &str| line.starts_with('#') && line.trim_start_matches('#').starts_with(' ');
    let section = section.take_while(|line| !is_heading(line));
    section.filter(|line| line.starts_with("| `")).map(str::to_owned).collect()
}

/// Bytes as the tables have them.
pub(super) fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}
