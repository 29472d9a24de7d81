//! Types that the derive recognizes by name.

use std::{borrow::Cow, collections::BTreeSet};

use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

type Id = u64;
type Name = String;
type Blob = Vec<u8>;
type Names = BTreeSet<Name>;
type Place = (i8, Name);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(name, include = [blob])]
#[index(blob, place)]
#[index(each(names), nick, strategy = "full")]
#[index(nick, unique)]
struct Account {
    #[primary_key]
    id: Id,
    #[primary_key]
    name: Name,
    blob: Blob,
    names: Names,
    nick: Option<Name>,
    place: Place,
}

#[test]
fn aliases_behave_like_their_types() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::in_memory();
    let accounts = AccountRepository::open(&store)?;
    let account = Account {
        id: 3,
        name: "x".into(),
        blob: vec![0, 9],
        names: ["a".to_owned(), "b".to_owned()].into(),
        nick: Some("n".into()),
        place: (-1, "here".into()),
    };
    store.transaction(|txn| accounts.insert(txn, &account))?;

    let txn = store.read()?;
    assert_eq!(accounts.get(&txn, 3, "x")?.as_ref(), Some(&account));
    assert_eq!(accounts.get_by_nick(&txn, Some("n"))?.as_ref(), Some(&account));
    assert_eq!(accounts.find_by_blob_place(&txn, &[0, 9], (-1, "here")).count()?, 1);
    assert_eq!(accounts.find_by_blob_range(&txn, [0].as_slice()..[1].as_slice()).count()?, 1);
    assert_eq!(accounts.find_by_names_nick(&txn, "b", Some("n")).count()?, 1);
    let keys: Vec<(u64, String)> = accounts.by_blob_place(&txn).keys().collect::<Result<_, _>>()?;
    assert_eq!(keys, [(3, "x".to_owned())]);

    let entry: AccountByName<'_> = accounts.by_name(&txn).entries().next().ok_or("none")??;
    assert_eq!((entry.name, entry.id, entry.blob), ("x", 3, account.blob.clone()));
    let entry: AccountByBlobPlace<'_> =
        accounts.by_blob_place(&txn).entries().next().ok_or("none")??;
    let blob: Cow<'_, [u8]> = entry.blob;
    assert_eq!((blob.as_ref(), entry.place), ([0, 9].as_slice(), (-1, "here")));
    let entry: AccountByNamesNick<'_> =
        accounts.by_names_nick(&txn).rev().entries().next().ok_or("none")??;
    assert_eq!((entry.names, entry.all_names), ("b", account.names));
    Ok(())
}
