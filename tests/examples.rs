//! The output of the examples, run as programs.

use std::{
    error::Error,
    ffi::OsStr,
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

type TestResult = Result<(), Box<dyn Error>>;

/// Builds an example, and returns the path of its program. `cargo test` has built it already, `cargo test
/// --test examples` may not have.
fn program(example: &str) -> Result<PathBuf, Box<dyn Error>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--quiet", "--message-format=json", "--example", example])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit());
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.output()?;
    for message in serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>() {
        let message = message?;
        if message["target"]["name"] == example
            && let Some(executable) = message["executable"].as_str()
        {
            return Ok(executable.into());
        }
    }
    Err(format!("cargo built no example `{example}`: {}", output.status).into())
}

fn run<A: AsRef<OsStr>>(example: &str, arguments: &[A]) -> Result<Output, Box<dyn Error>> {
    Ok(Command::new(program(example)?).args(arguments).output()?)
}

/// Returns the output of a successful run.
fn printed<A: AsRef<OsStr>>(example: &str, arguments: &[A]) -> Result<String, Box<dyn Error>> {
    let output = run(example, arguments)?;
    let errors = String::from_utf8(output.stderr)?;
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert_eq!(errors, "");
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the error output of a failed run.
fn complaint<A: AsRef<OsStr>>(example: &str, arguments: &[A]) -> Result<String, Box<dyn Error>> {
    let output = run(example, arguments)?;
    assert_eq!(output.status.code(), Some(1));
    Ok(String::from_utf8(output.stderr)?)
}

#[track_caller]
fn assert_prints(output: &str, block: &str) {
    assert!(output.contains(block), "this is not printed:\n{block}\nbut:\n{output}");
}

const NONE: [&str; 0] = [];

#[test]
fn outbox_sends_each_mail_once_although_its_worker_stops() -> TestResult {
    let output = printed("outbox", &NONE)?;
    let expected = "\
the worker stopped after 2 mails
mailer has 4 changes to go
3 mails, 2 duplicates ignored
  1 ann@example.com: order 1 for 30 is confirmed
  2 bob@example.com: order 2 for 50 is confirmed
  4 cid@example.com: order 3 for 70 is confirmed
4 changes removed
";
    assert_eq!(output, expected);
    Ok(())
}

#[test]
fn mirror_is_equal_to_its_store_when_it_is_drained() -> TestResult {
    let output = printed("mirror", &NONE)?;
    assert_prints(&output, "the mirror is behind: true\n");
    assert_prints(&output, "rows, equal in both stores: true\nverified: true\n");
    assert!(!output.contains("\n0 rows"), "{output}");
    Ok(())
}

#[test]
fn words_finds_films_by_the_words_of_their_titles() -> TestResult {
    let output = printed("words", &NONE)?;
    assert_prints(
        &output,
        "\
All words of `The Man`

  The Third Man
  The Man Who Shot Liberty Valance

Any word of `city casablanca`

  City Lights
  Casablanca

Words that begin with `m`: maltese, man, men, mockingbird, modern, movie, mr

  12 Angry Men
",
    );
    assert_prints(&output, "Genres of the films with `the`\n\n   1 Adventure\n   3 Comedy\n");
    Ok(())
}

#[test]
fn tenants_prints_the_shards_that_queries_read() -> TestResult {
    let output = printed("tenants", &NONE)?;
    assert_prints(
        &output,
        "\
  north | tenants  0 to  9 | 30 customers | 30 orders
  east  | tenants 10 to 19 | 30 customers | 30 orders
",
    );
    assert_prints(
        &output,
        "\
  orders of tenants 7 to 12         |  18 rows | shards: 2
  customers of tenants 1, 2 and 39  |   9 rows | shards: 2
  customers in Redmond              |  24 rows | shards: 4
",
    );
    assert_prints(
        &output,
        "\
  1 | Chicago | customer 7/3
  2 | Chicago | customer 8/2
",
    );
    assert_prints(&output, "  missing: south\n  found:   18\n");
    Ok(())
}

#[test]
fn customers_prints_the_tables() -> TestResult {
    let output = printed("customers", &NONE)?;
    assert_prints(
        &output,
        "\
  ID | first name | last name | town     | phone
  ---|------------|-----------|----------|---------
  1  | Alice      | Smith     | Redmond  | 555-0101
  2  | Bruno      | Jones     | Seattle  | 555-0102
",
    );
    assert_prints(
        &output,
        "\
  town     | ID | first name | last name | phone
  ---------|----|------------|-----------|---------
  Chicago  | 5  | Emma       | Smith     | 555-0105
  Chicago  | 9  | Irene      | Jones     | 555-0109
  Chicago  | 12 | Louis      | Brown     | 555-0112
  Portland | 3  | Clara      | Robinson  | 555-0103
",
    );
    assert_prints(
        &output,
        "\
  town     | IDs
  ---------|-------------------
  Chicago  | 5, 9, 12
  Portland | 3, 7, 10
  Redmond  | 1, 4, 6, 8, 11, 13
  Seattle  | 2, 14

",
    );
    assert_prints(
        &output,
        "\
  town     | ID | last name
  ---------|----|----------
  Chicago  | 5  | Smith
  Chicago  | 9  | Jones
  Chicago  | 12 | Brown
  Portland | 3  | Robinson
",
    );
    assert_prints(
        &output,
        "\
  last name | ID | first name | town     | phone
  ----------|----|------------|----------|---------
  Brown     | 4  | David      | Redmond  | 555-0104
  Brown     | 12 | Louis      | Chicago  | 555-0112
  Clarke    | 7  | Grace      | Portland | 555-0107
",
    );
    assert_prints(
        &output,
        "\
  last name | IDs
  ----------|------------
  Brown     | 4, 12
  Clarke    | 7, 11
  Green     | 6, 14
  Jones     | 2, 9, 13
  Robinson  | 3
  Smith     | 1, 5, 8, 10

",
    );
    assert_prints(
        &output,
        "\
  last name | ID | town
  ----------|----|---------
  Brown     | 4  | Redmond
  Brown     | 12 | Chicago
  Clarke    | 7  | Portland
",
    );
    assert_prints(
        &output,
        "
  Redmond, Jones     | 13
  Redmond, Smith     | 1, 8
  Seattle, Green     | 14
",
    );
    Ok(())
}

#[test]
fn customers_counts_the_look_ups() -> TestResult {
    let output = printed("customers", &NONE)?;
    let (_, table) = output.split_once("Everyone in Redmond named Smith\n").ok_or("no query")?;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(3)
        .filter(|line| !line.is_empty())
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let people = "Alice Smith 555-0101; Henry Smith 555-0108";
    assert_eq!(
        rows,
        [
            ["town", "normalized", "6", "6", people],
            ["town", "partial", "6", "2", people],
            ["town", "full", "6", "0", people],
            ["town, last name", "normalized", "2", "2", people],
            ["town, last name", "partial", "2", "0", people],
            ["town, last name", "full", "2", "0", people],
        ]
    );
    Ok(())
}

#[test]
fn movies_queries_its_built_in_films() -> TestResult {
    let output = printed("movies", &NONE)?;
    assert_prints(&output, "Loaded 63 rows in ");
    assert_prints(&output, " rows/s, in one write transaction\n");
    assert_prints(&output, "\n      3 with a title that the genre already has");
    assert_prints(&output, "\n      0 lines skipped\n");
    assert_prints(
        &output,
        "
Comedy, titles from A to C

  Annie Hall, 1977
  Arsenic and Old Lace, 1944
  Breakfast at Tiffany's, 1961
  Bringing Up Baby, 1938
  Charade, 1963
  City Lights, 1931

  films: 6, entries read: 6, facts looked up: 0
",
    );
    assert_prints(
        &output,
        "
Cary Grant's films and who else is in them

  Comedy: Arsenic and Old Lace, with Priscilla Lane, Raymond Massey, Peter Lorre
  Comedy: Bringing Up Baby, with Katharine Hepburn
  Comedy: Charade, with Audrey Hepburn, Walter Matthau
  Comedy: His Girl Friday, with Rosalind Russell, Ralph Bellamy
  Comedy: The Philadelphia Story, with Katharine Hepburn, James Stewart
  Thriller: North by Northwest, with Eva Marie Saint, James Mason
  Thriller: Notorious, with Ingrid Bergman, Claude Rains
  Thriller: To Catch a Thief, with Grace Kelly

  films: 8, entries read: 8, facts looked up: 0
",
    );
    assert_prints(
        &output,
        "
Cary Grant's films by year

  1938: Bringing Up Baby
  1940: His Girl Friday
  1940: The Philadelphia Story
  1944: Arsenic and Old Lace
  1946: Notorious
  1955: To Catch a Thief
  1959: North by Northwest
  1963: Charade

  films: 8, entries read: 8, facts looked up: 0
",
    );
    assert_prints(&output, "\n  films: 4, entries read: 4, facts looked up: 4\n");
    Ok(())
}

#[test]
fn movies_accepts_untidy_lines() -> TestResult {
    let long = format!(r#"{{"title": "{}", "year": 1920}}"#, "long ".repeat(200));
    let lines: [&[u8]; 14] = [
        b"\xEF\xBB\xBF{\"title\": \"Carmen\", \"year\": 1915, \"cast\": [\"Theda Bara\"], \"genres\": [\"Drama\"]}\r",
        br#"{"title": "Carmen", "year": 1915, "cast": ["Theda Bara"], "genres": ["Drama", "Music"]}"#,
        br#"{"title": "Carmen", "year": 1915, "cast": ["Theda Bara"], "genres": ["", "Drama"]}"#,
        br#"{"title": "Carmen", "year": 1983, "cast": [], "genres": ["Drama"]}"#,
        b"nothing",
        b"",
        br#"["Carmen", 1915, [], ["Drama"]]"#,
        br#"{"title": "Cleopatra"}"#,
        br#"{"title": "Cleopatra", "year": -30}"#,
        br#"{"title": "Cleopatra", "year": 1917, "cast": ["Theda Bara", " ", "Theda Bara", "Fritz Leiber"]}"#,
        b"{\"title\": \"Caf\xE9\", \"year\": 1920}",
        long.as_bytes(),
        br#"{"title": "Carmen", "year": 1915, "genres": null, "cast": null, "href": 7}"#,
        br#"{"title": "Cut"#,
    ];
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("untidy films.jsonl");
    fs::write(&path, lines.join(b"\n".as_slice()))?;

    let output = printed("movies", &[&path])?;
    assert_prints(&output, "Loaded 6 rows in ");
    assert_prints(
        &output,
        "
      1 with several genres: stored under the first
      2 without a genre: stored under Unclassified
      3 with a title that the genre already has: stored with the year in it
      2 without a cast: in no index by actor
      1 with an actor more than once: one entry for each actor
      1 with a blank name in the cast: left out
      7 lines skipped
        line 5: it is no JSON object
        line 7: it is no JSON object
        line 8: missing field `year` at column 22
        line 9: invalid value: integer `-30`, expected u16 at column 34
        line 11: invalid unicode code point at column 15
        line 12: the key (\"Unclassified\", \"long long ",
    );
    assert_prints(&output, "\n        line 14: EOF while parsing a string at column 14\n");
    assert_prints(
        &output,
        "
Drama, titles from A to C

  Carmen, 1915
  Carmen (1915), 1915
  Carmen (1915, 2), 1915
  Carmen (1983), 1983

  films: 4, entries read: 4, facts looked up: 0
",
    );
    assert_prints(
        &output,
        "
Theda Bara's films and who else is in them

  Drama: Carmen, with nobody
  Drama: Carmen (1915), with nobody
  Drama: Carmen (1915, 2), with nobody
  Unclassified: Cleopatra, with Fritz Leiber

  films: 4, entries read: 4, facts looked up: 0
",
    );
    Ok(())
}

#[test]
fn movies_accepts_an_empty_file() -> TestResult {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("films.jsonl");
    fs::write(&path, "")?;
    assert_prints(&printed("movies", &[&path])?, "Loaded 0 rows in ");
    Ok(())
}

#[test]
fn movies_reports_a_wrong_argument() -> TestResult {
    let directory = tempfile::tempdir()?;
    let missing = directory.path().join("missing.jsonl");
    let complaint_about = |path: &PathBuf| complaint("movies", &[path]);
    let said = complaint_about(&missing)?;
    assert!(said.starts_with(&format!("error: {}: ", missing.display())), "{said}");
    let said = complaint_about(&directory.path().to_owned())?;
    assert!(said.starts_with(&format!("error: {}: ", directory.path().display())), "{said}");
    assert_eq!(
        complaint("movies", &["one", "two"])?,
        "error: too many arguments; usage: movies [FILE.jsonl]\n"
    );
    Ok(())
}

#[test]
fn the_readme_shows_a_program_that_runs() -> TestResult {
    let readme = include_str!("../README.md");
    let (_, program) = include_str!("../examples/readme.rs")
        .split_once("\n\n")
        .ok_or("no program after the first line of documentation")?;
    assert_prints(readme, program);
    let dir = tempfile::tempdir()?;
    for _ in 0..2 {
        let output = Command::new(self::program("readme")?).current_dir(dir.path()).output()?;
        assert_eq!(String::from_utf8(output.stdout)?, "7 Smith 555-0107\n");
    }
    assert!(dir.path().join("data/shop/data.mdb").exists());
    Ok(())
}
