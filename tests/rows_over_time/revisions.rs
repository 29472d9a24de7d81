//! `#[revision]`: a write is refused if the row has changed since it was read.

use std::collections::BTreeMap;

use index_table::{Error, IndexTable, OnDuplicate, Result, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::stores::{plain_stores, stores};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "articles", shard_by = hash(id))]
#[index(title, include = [revision])]
#[index(revision)]
#[index(id, title, strategy = "full", name = "whole")]
struct Article {
    #[primary_key]
    id: u8,
    #[revision]
    revision: u32,
    title: String,
}

fn article(id: u8, revision: u32, title: &str) -> Article {
    Article { id, revision, title: title.to_owned() }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(email, unique)]
struct User {
    #[primary_key]
    id: u8,
    #[revision]
    revision: u64,
    email: String,
}

fn user(id: u8, revision: u64, email: &str) -> User {
    User { id, revision, email: email.to_owned() }
}

#[test]
fn each_write_increments_the_revision() -> Result<()> {
    for tried in stores("articles")? {
        let articles = ArticleRepository::open(&tried)?;
        tried.transaction(|txn| {
            articles.insert(txn, &article(1, 77, "a"))?;
            assert_eq!(articles.get(txn, 1)?, Some(article(1, 1, "a")));
            articles.put(txn, &article(1, 1, "a"))?;
            assert_eq!(articles.get(txn, 1)?, Some(article(1, 2, "a")));
            assert_eq!(articles.replace(txn, &article(1, 2, "b"))?, Some(article(1, 2, "a")));
            articles.update(txn, 1, |row| row.title = "c".into())?;
            articles.update(txn, 1, |_| ())?;
            let title = articles.try_update(txn, 1, |row| Ok::<_, Error>(row.title.clone()))?;
            assert_eq!(title.as_deref(), Some("c"));
            assert_eq!(articles.get(txn, 1)?, Some(article(1, 6, "c")));
            // Entries carry the stored revision.
            let entry = articles.find_by_title(txn, "c").entries().next().expect("an entry")?;
            assert_eq!(entry.revision, 6);
            assert_eq!(articles.find_by_revision(txn, 6).rows().count(), 1);
            assert_eq!(articles.find_by_revision(txn, 1).rows().count(), 0);
            // A row that does not exist has revision 0.
            articles.put(txn, &article(2, 0, "new"))?;
            assert_eq!(articles.get(txn, 2)?.map(|row| row.revision), Some(1));
            Ok(())
        })?;
        assert!(articles.verify(&tried.read()?).run()?.is_clean());
    }
    Ok(())
}

/// Returns the expected and the found revision of a conflict.
fn conflict<T: std::fmt::Debug>(outcome: Result<T>) -> (u64, Option<u64>) {
    match outcome {
        Err(Error::Conflict { table: "articles", key, expected, found }) if key == "1" => {
            (expected, found)
        }
        other => panic!("no conflict: {other:?}"),
    }
}

#[test]
fn a_stale_write_changes_nothing() -> Result<()> {
    for tried in stores("articles")? {
        let articles = ArticleRepository::open(&tried)?;
        tried.transaction(|txn| {
            assert_eq!(conflict(articles.put(txn, &article(1, 3, "x"))), (3, None));
            assert_eq!(conflict(articles.delete_if(txn, &article(1, 3, "x"))), (3, None));
            articles.insert(txn, &article(1, 0, "a"))?;
            articles.update(txn, 1, |row| row.title = "b".into())?;
            let stale = article(1, 1, "x");
            assert_eq!(conflict(articles.put(txn, &stale)), (1, Some(2)));
            assert_eq!(conflict(articles.replace(txn, &stale)), (1, Some(2)));
            assert_eq!(conflict(articles.delete_if(txn, &stale)), (1, Some(2)));
            assert_eq!(conflict(articles.put(txn, &article(1, 0, "x"))), (0, Some(2)));
            assert_eq!(conflict(articles.put(txn, &article(1, 3, "x"))), (3, Some(2)));
            let edited = articles.update(txn, 1, |row| row.clone_from(&stale));
            assert_eq!(conflict(edited), (1, Some(2)));
            assert_eq!(articles.get(txn, 1)?, Some(article(1, 2, "b")));
            articles.delete_if(txn, &article(1, 2, "not compared"))?;
            assert_eq!(articles.get(txn, 1)?, None);
            Ok(())
        })?;
        assert!(articles.verify(&tried.read()?).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn the_later_of_two_concurrent_edits_is_refused() -> Result<()> {
    let store = Store::in_memory();
    let articles = ArticleRepository::open(&store)?;
    store.transaction(|txn| articles.insert(txn, &article(1, 0, "draft")))?;
    let read = |store: &Store| articles.get(&store.read()?, 1).map(|row| row.expect("a row"));
    let (mut mine, mut yours) = (read(&store)?, read(&store)?);
    mine.title.push_str(" of mine");
    yours.title.push_str(" of yours");
    store.transaction(|txn| articles.put(txn, &mine))?;
    let refused = store.transaction(|txn| articles.put(txn, &yours)).expect_err("a conflict");
    assert_eq!(
        refused.to_string(),
        "the row with primary key 1 of table `articles` was written with revision 1, and it has revision 2; read it \
         again, and repeat the change"
    );
    assert_eq!(read(&store)?, article(1, 2, "draft of mine"));
    Ok(())
}

#[test]
fn writes_by_a_unique_key_compare_revisions() -> Result<()> {
    for tried in plain_stores()? {
        let users = UserRepository::open(&tried)?;
        tried.transaction(|txn| {
            users.put_by_email(txn, &user(1, 0, "a"))?;
            users.put_by_email(txn, &user(1, 1, "a"))?;
            assert_eq!(users.get(txn, 1)?, Some(user(1, 2, "a")));
            // The row with the email moves to another primary key.
            users.put_by_email(txn, &user(2, 2, "a"))?;
            assert_eq!(users.get(txn, 2)?, Some(user(2, 3, "a")));
            assert_eq!(users.get(txn, 1)?, None);
            let stale = users.put_by_email(txn, &user(2, 2, "a"));
            assert!(matches!(stale, Err(Error::Conflict { expected: 2, found: Some(3), .. })));
            let unknown = users.put_by_email(txn, &user(5, 4, "new"));
            assert!(matches!(unknown, Err(Error::Conflict { expected: 4, found: None, .. })));
            let duplicate = users.put_by_email(txn, &user(2, 3, "other"));
            assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })), "{duplicate:?}");
            assert_eq!(users.all(txn).count()?, 1);
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn assigned_numbers_begin_with_revision_one() -> Result<()> {
    let store = Store::in_memory();
    let users = UserRepository::open(&store)?;
    let id = store.transaction(|txn| users.insert_with(txn, |id| user(id, 9, "a")))?;
    assert_eq!(users.get(&store.read()?, id)?.map(|row| row.revision), Some(1));
    Ok(())
}

#[test]
fn a_bulk_load_keeps_revisions() -> Result<()> {
    for tried in plain_stores()? {
        let articles = ArticleRepository::open(&tried)?;
        articles.bulk_load(&tried, [article(1, 0, "a"), article(2, 12, "b")]).run()?;
        articles
            .bulk_load(&tried, [article(2, 5, "restored")])
            .on_duplicate(OnDuplicate::Replace)
            .run()?;
        let rows: Vec<_> = articles.all(&tried.read()?).rows().collect::<Result<_>>()?;
        assert_eq!(rows, [article(1, 1, "a"), article(2, 5, "restored")]);
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Small {
    #[primary_key]
    id: u8,
    #[revision]
    revision: u8,
}

#[test]
fn the_greatest_revision_is_refused() -> Result<()> {
    let store = Store::in_memory();
    let rows = SmallRepository::open(&store)?;
    let mut txn = store.write()?;
    rows.insert(&mut txn, &Small { id: 1, revision: 0 })?;
    for _ in 1..u8::MAX {
        rows.update(&mut txn, 1, |_| ())?;
    }
    let last = Some(Small { id: 1, revision: u8::MAX });
    assert_eq!(rows.get(&txn, 1)?, last);
    let refused = rows.update(&mut txn, 1, |_| ());
    assert!(matches!(refused, Err(Error::RevisionExhausted { table: "small", .. })), "{refused:?}");
    assert_eq!(rows.get(&txn, 1)?, last);
    Ok(())
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(Article),
    /// The revision of the model's row, plus a difference.
    Put(Article, i8),
    Update(u8, String, i8),
    DeleteIf(u8, i8),
    Delete(u8),
}

fn operation() -> impl Strategy<Value = Operation> {
    let row = (0..6_u8, 0..3_u32, "[a-c]{0,2}").prop_map(|(id, revision, title)| Article {
        id,
        revision,
        title,
    });
    let away = || prop_oneof![6 => Just(0_i8), 1 => -2..3_i8];
    prop_oneof![
        2 => row.clone().prop_map(Operation::Insert),
        4 => (row, away()).prop_map(|(row, away)| Operation::Put(row, away)),
        3 => (0..6_u8, "[a-c]{0,2}", away()).prop_map(|(id, title, away)| Operation::Update(id, title, away)),
        1 => (0..6_u8, away()).prop_map(|(id, away)| Operation::DeleteIf(id, away)),
        1 => (0..6_u8).prop_map(Operation::Delete),
    ]
}

type Model = BTreeMap<u8, Article>;

/// Returns the revision of the row in the model, plus a difference.
fn near(model: &Model, id: u8, away: i8) -> u32 {
    let revision = model.get(&id).map_or(0, |row| row.revision);
    revision.saturating_add_signed(away.into())
}

/// Applies an operation to the model. Returns whether it succeeds.
fn expect(model: &mut Model, operation: &Operation) -> bool {
    match operation {
        Operation::Insert(row) => {
            let is_new = !model.contains_key(&row.id);
            model.entry(row.id).or_insert_with(|| Article { revision: 1, ..row.clone() });
            is_new
        }
        Operation::Put(row, away) => {
            let (found, given) = (near(model, row.id, 0), near(model, row.id, *away));
            if found == given {
                model.insert(row.id, Article { revision: found + 1, ..row.clone() });
            }
            found == given
        }
        Operation::Update(id, title, away) => {
            let (found, given) = (near(model, *id, 0), near(model, *id, *away));
            let Some(row) = model.get_mut(id) else { return true };
            if found == given {
                *row = article(*id, found + 1, title);
            }
            found == given
        }
        Operation::DeleteIf(id, away) => {
            let is_current = near(model, *id, 0) == near(model, *id, *away);
            is_current && model.remove(id).is_some()
        }
        Operation::Delete(id) => {
            model.remove(id);
            true
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn random_writes_equal_the_model(operations in prop::collection::vec(operation(), 1..40)) {
        for tried in stores("articles").expect("stores") {
            let articles = ArticleRepository::open(&tried).expect("a repository");
            let mut model = Model::new();
            let mut txn = tried.write().expect("a transaction");
            for operation in &operations {
                let before = model.clone();
                let outcome = match operation {
                    Operation::Insert(row) => articles.insert(&mut txn, row),
                    Operation::Put(row, away) => {
                        let revision = near(&before, row.id, *away);
                        articles.put(&mut txn, &Article { revision, ..row.clone() })
                    }
                    Operation::Update(id, title, away) => {
                        let revision = near(&before, *id, *away);
                        let edit = |row: &mut Article| *row = article(*id, revision, title);
                        articles.update(&mut txn, *id, edit).map(drop)
                    }
                    Operation::DeleteIf(id, away) => {
                        let revision = near(&before, *id, *away);
                        articles.delete_if(&mut txn, &article(*id, revision, ""))
                    }
                    Operation::Delete(id) => articles.delete(&mut txn, *id).map(drop),
                };
                let expected = expect(&mut model, operation);
                prop_assert_eq!(outcome.is_ok(), expected, "{:?}: {:?}", operation, outcome);
            }
            txn.commit().expect("committed");
            let txn = tried.read().expect("a transaction");
            let rows: Vec<_> = articles.all(&txn).rows().collect::<Result<_>>().expect("rows");
            prop_assert_eq!(rows, model.into_values().collect::<Vec<_>>());
            prop_assert!(articles.verify(&txn).run().expect("a report").is_clean());
        }
    }
}
