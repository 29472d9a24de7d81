//! The command `schema`: the tables as a document and as a picture, and what a release would do to a store.

#[path = "support/process.rs"]
mod process;
mod support;

use std::path::{Path, PathBuf};

use index_table::{IndexTable, Store, report::StoreSchema};
use process::{admin, fails, json_of, text_of, typed};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use support::{Customer, Order, PostalCode, other, plain, sharded};
use tempfile::TempDir;

/// A later release of the customers, with an index and a field more.
mod later {
    use super::support::Kind;
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "customers")]
    #[index(town)]
    #[index(email, unique)]
    #[index(kind, name = "by_kind")]
    pub(crate) struct Customer {
        #[primary_key]
        id: u64,
        town: String,
        since: jiff::civil::Date,
        kind: Kind,
        score: f64,
        email: Option<String>,
        #[serde(default)]
        note: String,
    }

    /// A row can't be read: old rows lack a field.
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "customers", repository = RefusedRepository)]
    pub(crate) struct Refused {
        #[primary_key]
        id: u64,
        level: u8,
    }
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "visits")]
#[index(customer)]
struct Visit {
    #[primary_key]
    number: u64,
    #[references(Customer)]
    customer: u64,
}

/// Writes declarations to a file.
fn file(dir: &TempDir, schema: &StoreSchema) -> PathBuf {
    let file = dir.path().join("declared.json");
    std::fs::write(&file, serde_json::to_string(schema).expect("JSON")).expect("a file");
    file
}

/// Checks declarations. Returns the exit code, and the output as JSON.
fn check(store: &Path, schema: &StoreSchema, rest: &[&str]) -> (i32, Value, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = file(&dir, schema);
    let run = |json: &[&str]| {
        let mut command = admin();
        command.args(json).arg("schema").arg(store).arg("--check").arg(&file).args(rest);
        command.output().expect("a process")
    };
    let (output, text) = (run(&["--json"]), run(&[]));
    let value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = String::from_utf8(text.stdout).expect("text");
    (output.status.code().expect("a code"), value, text)
}

#[test]
fn the_document_of_a_store_has_its_tables_and_is_accepted_by_a_check() {
    for (store, table) in [(plain(3), "customers"), (sharded(), "orders")] {
        let document = json_of(&["schema"], store.path(), &[]);
        // JSON is the default.
        assert_eq!(
            serde_json::from_str::<Value>(&text_of(&["schema"], store.path(), &[])).expect("JSON"),
            document
        );
        let tables = document["tables"].as_array().expect("tables");
        let own = tables.iter().find(|it| it["table"] == table).expect("the table");
        assert!(own["stored"]["rows"].as_u64().expect("rows") >= 3, "{own}");
        assert!(own["stored"]["bytes"].as_u64().expect("bytes") > 0, "{own}");
        let fields = own["lists"][0]["fields"].as_array().expect("fields");
        assert_eq!(fields.len(), own["fields"].as_array().expect("fields").len());
        let schema: StoreSchema = serde_json::from_value(document).expect("a schema");
        let (code, changes, text) = check(store.path(), &schema, &["--rows"]);
        assert_eq!(code, 0, "{changes}");
        assert!(text.lines().all(|line| line.contains(": same")), "{text}");
    }
}

#[test]
fn the_declarations_of_a_program_are_those_of_its_store() {
    let store = plain(3);
    let (code, changes, _) = check(store.path(), &index_table::schema::<Customer>(), &[]);
    assert_eq!((code, &changes["tables"][0]["built"]), (0, &serde_json::json!([])));
    let store = sharded();
    let declared = index_table::schema::<(Order, PostalCode)>();
    let (code, changes, text) = check(store.path(), &declared, &[]);
    assert_eq!(code, 0, "{changes}");
    assert!(text.lines().all(|line| line.contains(": same")), "{text}");
}

#[test]
fn a_check_shows_what_a_release_does_and_its_exit_code_what_is_lost() {
    let store = plain(2000);
    let (code, changes, text) = check(store.path(), &index_table::schema::<later::Customer>(), &[]);
    assert_eq!(code, 0, "{text}");
    for line in [
        "table `customers`: changed (2000 rows",
        "index `by_kind`: built",
        "index `since_id`: retired",
        "field `note`: added",
        "estimated time",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(changes["tables"][0]["seconds"].as_f64().expect("a time") > 0.0, "{changes}");

    let (code, _, text) = check(store.path(), &index_table::schema::<other::Customer>(), &[]);
    assert_eq!(code, 5);
    assert!(text.contains("lost: field `town`"), "{text}");
    let (code, _, text) =
        check(store.path(), &index_table::schema::<later::Refused>(), &["--rows"]);
    assert_eq!(code, 5);
    assert!(text.contains("refused: table `customers`"), "{text}");
    assert!(text.contains("unreadable: row 1: missing field `level`"), "{text}");
    assert!(text.contains("unreadable: 1980 other rows"), "{text}");
    let (code, changes, text) = check(store.path(), &index_table::schema::<Visit>(), &[]);
    assert_eq!((code, &changes["tables"][0]["created"]), (5, &true.into()));
    assert!(text.contains("table `customers`: lost: no declaration names it"), "{text}");
}

#[test]
fn a_file_that_is_no_schema_is_an_error_and_so_is_none() {
    let store = plain(1);
    let error = fails(2, &["schema"], store.path(), &["--check"]);
    assert!(error.contains("needs a FILE"), "{error}");
    let cargo = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(fails(2, &["schema"], store.path(), &["--check", cargo]).contains("can't be read"));
    let missing = fails(5, &["schema"], store.path(), &["--check", "missing.json"]);
    assert!(missing.contains("missing.json"), "{missing}");
}

#[test]
fn a_program_with_types_checks_its_own_declarations_or_a_file() {
    let store = plain(3);
    assert!(typed("", &["schema", "--check"], store.path(), &[]).status.success());
    assert!(typed("", &["schema"], store.path(), &["--check"]).status.success());
    let dir = tempfile::tempdir().expect("a directory");
    let file = file(&dir, &index_table::schema::<other::Customer>());
    let file = file.to_str().expect("text");
    assert_eq!(typed("", &["schema"], store.path(), &["--check", file]).status.code(), Some(5));
}

#[test]
fn the_picture_has_tables_keys_and_references() {
    let store = plain(1);
    {
        let store = Store::open(store.path()).expect("a store");
        support::CustomerRepository::open(&store).expect("a table");
        VisitRepository::open(&store).expect("a table");
    }
    let picture = text_of(&["schema"], store.path(), &["--format", "mermaid"]);
    for line in [
        "erDiagram\n",
        "    \"customers\" {\n        u64 id PK \"since_id\"\n",
        "        Option[String] email \"email\"\n",
        "        u64 customer FK \"customer\"\n",
        "    \"visits\" }o--|| \"customers\" : \"customer\"\n",
    ] {
        assert!(picture.contains(line), "{line}: {picture}");
    }
}
