//! The methods of shards, as the guide's table has them for PostgreSQL.

use index_table::Result;

use crate::{
    methods::{METHODS, Shop, cell, column},
    postgres::Schema,
};

#[test]
fn each_method_of_shards_does_what_the_guide_says() -> Result<()> {
    let mut wrong = Vec::new();
    for ((name, call), (_, expected)) in METHODS.into_iter().zip(column("PostgreSQL")) {
        let Some(schema) = Schema::new() else { return Ok(()) };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (is_offered, found) = cell(call, Shop::of(schema.open()?, dir.path())?);
        if is_offered != (expected == "yes") {
            wrong.push(format!("{name}: {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
