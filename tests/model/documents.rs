//! A table with a composite primary key of variable length, whose indexes are not packed.

use std::collections::BTreeMap;

use index_table::{Error, IndexTable, ReadTxn, Result, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{assert_clean, fail, on_both_engines, pairs, scans::assert_scan, text};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "docs", repository = Documents)]
#[index(author)]
#[index(author, path, include = [body])]
#[index(each(words), strategy = "full")]
#[index(each(links), unique)]
struct Document {
    #[primary_key]
    folder: String,
    #[primary_key]
    path: String,
    author: Option<u8>,
    body: Vec<u8>,
    words: Vec<String>,
    links: Vec<u32>,
}

pub(crate) const MODEL: pairs::Model = pairs::Model::of::<Document>();

type Model = BTreeMap<(String, String), Document>;

fn document() -> impl Strategy<Value = Document> {
    let links = prop::collection::vec(0..60_u32, 0..3);
    let body = prop::collection::vec(any::<u8>(), 0..4);
    let words = prop::collection::vec(text(), 0..3);
    (text(), text(), prop::option::of(0..3_u8), body, words, links).prop_map(
        |(folder, path, author, body, words, links)| Document {
            folder,
            path,
            author,
            body,
            words,
            links,
        },
    )
}

fn key(document: &Document) -> (String, String) {
    (document.folder.clone(), document.path.clone())
}

fn free(model: &Model, document: &Document) -> bool {
    model
        .values()
        .filter(|other| key(other) != key(document))
        .all(|other| other.links.iter().all(|link| !document.links.contains(link)))
}

fn compare(documents: &Documents, txn: &ReadTxn<'_>, model: &Model) -> Result<(), TestCaseError> {
    // Returns rows with their index keys, in the order of key and primary key.
    fn sorted<K: Ord>(model: &Model, keys: impl Fn(&Document) -> Vec<K>) -> Vec<(K, Document)> {
        let mut rows: Vec<_> = model
            .values()
            .flat_map(|document| {
                let mut keys = keys(document);
                keys.sort();
                keys.dedup();
                keys.into_iter().map(move |k| (k, document.clone()))
            })
            .collect();
        rows.sort_by(|(a, x), (b, y)| (a, key(x)).cmp(&(b, key(y))));
        rows
    }
    fn rows<K>(sorted: Vec<(K, Document)>, keep: impl Fn(&K) -> bool) -> Vec<Document> {
        sorted.into_iter().filter(|(k, _)| keep(k)).map(|(_, document)| document).collect()
    }
    macro_rules! assert_query {
        ($scan:expr, $keys:expr, $keep:expr) => {
            assert_scan(
                || $scan,
                &rows(sorted(model, $keys), $keep),
                |scan| scan.keys().collect::<Result<Vec<(String, String)>>>(),
                key,
            )?
        };
    }
    assert_query!(documents.all(txn), |_| vec![()], |()| true);
    assert_query!(documents.by_author(txn), |d| vec![d.author], |_| true);
    assert_query!(documents.find_by_author(txn, None), |d| vec![d.author], Option::is_none);
    assert_query!(documents.by_author_path(txn), |d| vec![(d.author, d.path.clone())], |_| true);
    assert_query!(documents.by_words(txn), |d| d.words.clone(), |_| true);
    assert_query!(documents.by_links(txn), |d| d.links.clone(), |_| true);
    assert_query!(documents.find_by_links_range(txn, 5..30), |d| d.links.clone(), |l| (5..30)
        .contains(l));
    for part in ["", "a", "ab", "a\0", "\u{1}"] {
        assert_query!(documents.find_by_folder(txn, part), |d| vec![d.folder.clone()], |f| f
            == part);
        assert_query!(
            documents.find_by_folder_path_starting_with(txn, part, "a"),
            |d| vec![key(d)],
            |(folder, path)| folder == part && path.starts_with('a')
        );
        assert_query!(
            documents.find_by_author_path(txn, Some(1), part),
            |d| vec![(d.author, d.path.clone())],
            |(author, path)| *author == Some(1) && path == part
        );
        assert_query!(documents.find_by_words(txn, part), |d| d.words.clone(), |word| word == part);
    }
    for entry in documents.by_author_path(txn).entries() {
        let entry = entry.map_err(fail)?;
        let document = &model[&(entry.folder.to_owned(), entry.path.to_owned())];
        prop_assert_eq!((entry.author, entry.body), (document.author, document.body.as_slice()));
    }
    for entry in documents.by_words(txn).entries() {
        let entry = entry.map_err(fail)?;
        let document = &model[&(entry.folder.to_owned(), entry.path.to_owned())];
        prop_assert!(document.words.iter().any(|word| word == entry.words));
        prop_assert_eq!((&entry.all_words, &entry.links), (&document.words, &document.links));
    }
    assert_clean(documents.verify(txn))
}

fn run(store: &Store, batches: &[Vec<(Document, u8)>]) -> Result<(), TestCaseError> {
    let documents = Documents::open(store).map_err(fail)?;
    let mut model = Model::new();
    for batch in batches {
        let mut txn = store.write().map_err(fail)?;
        for (document, action) in batch {
            let key = key(document);
            let (folder, path) = (key.0.as_str(), key.1.as_str());
            match action {
                0..=5 => match documents.put(&mut txn, document) {
                    Ok(()) => {
                        prop_assert!(free(&model, document));
                        model.insert(key, document.clone());
                    }
                    Err(Error::UniqueViolation { index: "links", .. }) => {
                        prop_assert!(!free(&model, document));
                    }
                    Err(error) => return Err(fail(error)),
                },
                6 => {
                    let deleted = documents.delete(&mut txn, folder, path).map_err(fail)?;
                    prop_assert_eq!(deleted, model.remove(&key).is_some());
                }
                _ => {
                    let expected = model.get(&key).cloned();
                    prop_assert_eq!(documents.get(&txn, folder, path).map_err(fail)?, expected);
                }
            }
        }
        compare(&documents, &txn, &model)?;
        txn.commit().map_err(fail)?;
        compare(&documents, &store.read().map_err(fail)?, &model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(48)))]

    #[test]
    fn queries_after_a_variable_primary_key_match_the_model(
        batches in prop::collection::vec(prop::collection::vec((document(), 0..9_u8), 1..25), 1..5),
    ) {
        on_both_engines(|open| run(&open()?, &batches))?;
    }
}
