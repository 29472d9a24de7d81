//! Serde attributes on the struct of a row and on its fields. Each row is read as serde reads it.

use index_table::{Error, IndexTable, Result, RowVersion, Store};
use serde::{Deserialize, Serialize};

/// Writes texts in upper case.
mod upper {
    pub(super) fn serialize<S: serde::Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&text.to_uppercase())
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<String, D::Error> {
        serde::Deserialize::deserialize(from)
    }
}

/// Writes a number as text.
mod as_text {
    use serde::{Deserialize as _, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature of serde")]
    pub(super) fn serialize<S: serde::Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(number)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("no error")
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[serde(tag = "kind")]
#[table(view)]
#[index(town)]
#[index(last_name, strategy = "full")]
struct Tagged {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
    tags: Vec<String>,
}

#[test]
fn a_tagged_row_is_found_and_viewed() -> Result<()> {
    let store = Store::in_memory();
    let table = TaggedRepository::open(&store)?;
    let row = |id| Tagged {
        id,
        town: "Redmond".into(),
        last_name: format!("name {id}"),
        tags: vec!["a".into(); id as usize],
    };
    store.transaction(|txn| (0..4).try_for_each(|id| table.insert(txn, &row(id))))?;
    let txn = store.read()?;
    assert_eq!(table.find_by_town(&txn, "Redmond").rows().count(), 4);
    for id in 0..4 {
        assert_eq!(table.get(&txn, id)?, Some(row(id)));
        let view = table.get_view(&txn, id)?.expect("a row");
        assert_eq!((view.town, &view.tags), ("Redmond", &row(id).tags));
        assert_eq!(json(&view), json(&row(id)));
        assert!(json(&view).starts_with(r#"{"kind":"Tagged","id":"#), "{}", json(&view));
    }
    for entry in table.by_last_name(&txn).entries() {
        let entry = entry?;
        assert_eq!(entry.tags, row(entry.id).tags);
    }
    assert!(table.verify(&txn).run()?.is_clean());
    Ok(())
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", with = "text_or_none", default)]
    fax: Option<u64>,
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    email: String,
    #[serde(skip_serializing, default)]
    secret: String,
    #[serde(skip_deserializing)]
    level: u8,
    #[serde(flatten)]
    address: Address,
}

/// Writes an optional number as text.
mod text_or_none {
    use serde::{Deserialize as _, de::Error as _};

    #[expect(clippy::ref_option, reason = "the signature of serde")]
    pub(super) fn serialize<S: serde::Serializer>(
        number: &Option<u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(&number.unwrap_or_default())
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Option<u64>, D::Error> {
        String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
    }
}

fn unknown() -> String {
    "unknown".into()
}

fn is_unknown(email: &str) -> bool {
    email == "unknown"
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Address {
    street: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    floors: Vec<u8>,
}

#[test]
fn rows_without_some_fields_and_with_those_of_a_field_are_read_back() -> Result<()> {
    let store = Store::in_memory();
    let table = CustomerRepository::open(&store)?;
    let row = |id: u64| Customer {
        id,
        town: ["Rome", "Oslo"][id as usize % 2].into(),
        phone: (id & 1 != 0).then(|| "12".into()),
        fax: (id & 2 != 0).then_some(34),
        email: if id & 4 == 0 { unknown() } else { "a@b".into() },
        secret: String::new(),
        level: 0,
        address: Address { street: "Main".into(), floors: vec![1; (id >> 3) as usize] },
    };
    let written = |id| Customer { secret: "s".into(), level: 7, ..row(id) };
    store.transaction(|txn| {
        (0..32).try_for_each(|id| table.insert(txn, &written(id)))?;
        // Each row takes the fields of another one.
        (0..32).try_for_each(|id| table.put(txn, &Customer { id, ..written(id ^ 31) }))?;
        let back = |old: &mut Customer| old.clone_from(&written(old.id));
        (0..32).try_for_each(|id| table.update(txn, id, back).map(drop))
    })?;
    let txn = store.read()?;
    for id in 0..32 {
        assert_eq!(table.get(&txn, id)?, Some(row(id)));
    }
    let found: Vec<_> = table.find_by_town(&txn, "Oslo").rows().collect::<Result<_>>()?;
    assert_eq!(found, (0..32).filter(|id| id % 2 == 1).map(row).collect::<Vec<_>>());
    assert!(table.verify(&txn).run()?.is_clean());
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view)]
#[index(town, strategy = "full")]
struct Sparse {
    #[primary_key]
    id: u8,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    town: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    last: String,
}

/// A row can lack any of its fields in a view and in an entry of a full index.
#[test]
fn a_view_and_a_full_index_have_the_default_of_a_field_that_is_left_out() -> Result<()> {
    let store = Store::in_memory();
    let table = SparseRepository::open(&store)?;
    let row = |id: u8| Sparse {
        id,
        town: if id & 1 == 0 { String::new() } else { "Rome".into() },
        phone: (id & 2 != 0).then(|| "12".into()),
        tags: vec!["a".into(); usize::from(id >> 2)],
        last: "last".into(),
    };
    store.transaction(|txn| (0..8).try_for_each(|id| table.insert(txn, &row(id))))?;
    let txn = store.read()?;
    for id in 0..8 {
        let row = row(id);
        let view = table.get_view(&txn, id)?.expect("a row");
        // `String::is_empty` takes no `&str`, so the view has a `String`.
        let town: &String = &view.town;
        let phone: Option<&str> = view.phone;
        assert_eq!((town, phone), (&row.town, row.phone.as_deref()));
        assert_eq!((&view.tags, view.last), (&row.tags, "last"));
        assert_eq!(json(&view), json(&row));
    }
    let mut entries = 0;
    for entry in table.by_town(&txn).entries() {
        let entry = entry?;
        let row = row(entry.id);
        assert_eq!((entry.town, entry.phone), (&*row.town, row.phone.as_deref()));
        assert_eq!((entry.tags, entry.last), (row.tags, "last"));
        entries += 1;
    }
    assert_eq!(entries, 8);
    for view in table.by_town(&txn).views() {
        let view = view?;
        assert_eq!(view.tags, row(view.id).tags);
    }
    assert!(table.verify(&txn).run()?.is_clean());
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view)]
struct Unwritten {
    #[primary_key]
    id: u8,
    #[serde(skip_serializing, default)]
    secret: String,
    last: String,
}

#[test]
fn a_view_has_the_default_of_a_field_that_is_never_written() -> Result<()> {
    let store = Store::in_memory();
    let table = UnwrittenRepository::open(&store)?;
    let row = Unwritten { id: 1, secret: "s".into(), last: "last".into() };
    store.transaction(|txn| table.insert(txn, &row))?;
    let txn = store.read()?;
    assert_eq!(table.get(&txn, 1)?, Some(Unwritten { secret: String::new(), ..row }));
    let view = table.get_view(&txn, 1)?.expect("a row");
    assert_eq!((view.secret, view.last), ("", "last"));
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(url)]
#[index(hash(text))]
struct Page {
    #[primary_key]
    #[serde(with = "as_text")]
    id: u64,
    #[serde(with = "upper")]
    url: String,
    #[serde(serialize_with = "upper::serialize")]
    text: String,
}

/// A key is the value that is read back.
#[test]
fn a_key_with_a_form_of_its_own_must_be_read_back_unchanged() -> Result<()> {
    let store = Store::in_memory();
    let table = PageRepository::open(&store)?;
    let page = Page { id: 7, url: "A".into(), text: "B".into() };
    let mut txn = store.write()?;
    table.insert(&mut txn, &page)?;
    for changed in
        [Page { id: 8, url: "a".into(), ..page.clone() }, Page { text: "b".into(), ..page.clone() }]
    {
        let outcome = table.put(&mut txn, &changed);
        let Err(Error::Codec { table: "page", reason }) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(reason.contains("has other keys when it is read back"), "{reason}");
    }
    let found = table.find_by_url(&txn, "A").rows().chain(table.find_by_text(&txn, "B").rows());
    assert_eq!(found.collect::<Result<Vec<_>>>()?, [page.clone(), page]);
    assert_eq!(table.all(&txn).count()?, 1);
    assert!(table.verify(&txn).run()?.is_clean());
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(title, filter = is_shown, name = "shown")]
#[index(computed(stars: u8))]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
    #[serde(skip)]
    rating: Option<u8>,
}

impl Film {
    fn is_shown(&self) -> bool {
        self.rating.is_none_or(|rating| rating > 2)
    }

    fn stars(&self) -> u8 {
        self.rating.unwrap_or(9)
    }
}

/// A method is called for the row that is read back, which lacks the field.
#[test]
fn a_method_must_return_the_same_without_a_skipped_field() -> Result<()> {
    let store = Store::in_memory();
    let table = FilmRepository::open(&store)?;
    let film = |id, rating| Film { id, title: "Brazil".into(), rating };
    let mut txn = store.write()?;
    table.insert(&mut txn, &film(1, None))?;
    table.insert(&mut txn, &film(2, Some(9)))?;
    for rating in [1, 3] {
        let outcome = table.insert(&mut txn, &film(3, Some(rating)));
        assert!(matches!(outcome, Err(Error::Codec { .. })), "{rating}: {outcome:?}");
    }
    let shown = table.find_by_shown(&txn, "Brazil").rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(shown, [film(1, None), film(2, None)]);
    assert_eq!(table.find_by_stars(&txn, 9).count()?, 2);
    assert!(table.verify(&txn).run()?.is_clean());
    Ok(())
}

mod first {
    use super::{Address, Deserialize, IndexTable, Serialize};

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "people")]
    pub(super) struct Person {
        #[primary_key]
        pub(super) id: u64,
        #[serde(flatten)]
        pub(super) address: Address,
        #[serde(skip_deserializing)]
        pub(super) phone: String,
    }
}

/// The struct of the first release without its table.
#[derive(Deserialize, RowVersion)]
struct PersonV1 {
    id: u64,
    #[serde(flatten)]
    address: Address,
    #[serde(skip_deserializing)]
    phone: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "people", version = 2, previous = PersonV1, view)]
#[index(street, strategy = "full")]
struct Person {
    #[primary_key]
    id: u64,
    street: String,
    floors: Vec<u8>,
    phone: String,
}

impl From<PersonV1> for Person {
    fn from(PersonV1 { id, address, phone }: PersonV1) -> Self {
        Self { id, street: address.street, floors: address.floors, phone }
    }
}

#[test]
fn an_older_version_has_the_fields_of_a_field() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || Store::options().map_size(1 << 22).open(dir.path());
    {
        let store = open()?;
        let table = first::PersonRepository::open(&store)?;
        let address = Address { street: "Main".into(), floors: vec![1, 2] };
        let person = first::Person { id: 1, address, phone: "12".into() };
        store.transaction(|txn| table.insert(txn, &person))?;
    }
    let store = open()?;
    let table = PersonRepository::open(&store)?;
    let person = Person { id: 1, street: "Main".into(), floors: vec![1, 2], phone: String::new() };
    for _ in 0..2 {
        let txn = store.read()?;
        assert_eq!(table.get(&txn, 1)?, Some(person.clone()));
        let view = table.get_view(&txn, 1)?.expect("a row");
        assert_eq!((view.street, view.phone, view.floors), ("Main", "", &*person.floors));
        let rows = table.find_by_street(&txn, "Main").rows();
        assert_eq!(rows.collect::<Result<Vec<_>>>()?, std::slice::from_ref(&person));
        assert!(table.verify(&txn).run()?.is_clean());
        drop(txn);
        table.upgrade(&store).run()?;
    }
    Ok(())
}
