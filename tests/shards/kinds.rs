//! The methods of shards on each kind of store, as the guide's table has them.

use index_table::{Result, Store};

use crate::methods::{METHODS, Shop, cell, column, two_shards};

type Open = fn(&std::path::Path) -> Result<Store>;

#[test]
fn each_method_does_what_the_guide_says_on_each_kind_of_store() -> Result<()> {
    let kinds: [(&str, Open); 4] = [
        ("one file", |path| Store::open(path.join("store"))),
        ("several", |path| two_shards().open(path.join("store"))),
        ("memory", |_| Ok(Store::in_memory())),
        ("memory with shards", |_| two_shards().in_memory()),
    ];
    let mut wrong = Vec::new();
    for (kind, open) in kinds {
        let in_guide = column(kind);
        let names: Vec<_> = METHODS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let of_guide: Vec<_> = in_guide.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(of_guide, names, "the rows of the guide's table");
        for ((name, call), (_, expected)) in METHODS.into_iter().zip(in_guide) {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let (is_offered, found) = cell(call, Shop::of(open(dir.path())?, dir.path())?);
            if is_offered != (expected == "yes") {
                wrong.push(format!("{name} on {kind}: {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
