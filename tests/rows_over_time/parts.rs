//! Vertical partitioning: `#[table(part_of = …)]`.

use index_table::{Error, FindingKind, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::plain_engines;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "products")]
#[index(name)]
struct Product {
    #[primary_key]
    shop: String,
    #[primary_key]
    id: u32,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "pictures", part_of = Product)]
struct Picture {
    #[primary_key]
    shop: String,
    #[primary_key]
    id: u32,
    png: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "texts", part_of = Product)]
#[index(language)]
struct Text {
    #[primary_key]
    shop: String,
    #[primary_key]
    id: u32,
    language: String,
}

/// A part of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "thumbnails", part_of = Picture)]
struct Thumbnail {
    #[primary_key]
    shop: String,
    #[primary_key]
    id: u32,
}

fn product(id: u32) -> Product {
    Product { shop: "a".into(), id, name: format!("product {id}") }
}

fn picture(id: u32) -> Picture {
    Picture { shop: "a".into(), id, png: vec![1; 100] }
}

fn text(id: u32) -> Text {
    Text { shop: "a".into(), id, language: "no".into() }
}

struct Repositories {
    products: ProductRepository,
    pictures: PictureRepository,
    texts: TextRepository,
    thumbnails: ThumbnailRepository,
}

impl Repositories {
    fn filled(store: &Store) -> Result<Self> {
        let all = Self {
            products: ProductRepository::open(store)?,
            pictures: PictureRepository::open(store)?,
            texts: TextRepository::open(store)?,
            thumbnails: ThumbnailRepository::open(store)?,
        };
        store.transaction(|txn| {
            for id in [1, 2, 3] {
                all.products.insert(txn, &product(id))?;
            }
            all.pictures.insert(txn, &picture(1))?;
            all.thumbnails.insert(txn, &Thumbnail { shop: "a".into(), id: 1 })?;
            all.texts.insert(txn, &text(1))?;
            all.texts.insert(txn, &text(2))
        })?;
        Ok(all)
    }
}

#[test]
fn a_row_is_read_with_its_parts() -> Result<()> {
    for store in plain_engines()? {
        let Repositories { products, pictures, texts, .. } = Repositories::filled(&store)?;
        let txn = store.read()?;
        let key = |id| ("a".to_owned(), id);
        let found = products.get_with_parts(&txn, key(1), &pictures)?;
        assert_eq!(found, Some((product(1), Some(picture(1)))));
        let found = products.get_with_parts(&txn, key(2), (&pictures, &texts))?;
        assert_eq!(found, Some((product(2), (None, Some(text(2))))));
        assert_eq!(products.get_with_parts(&txn, key(9), (&texts,))?, None);
    }
    Ok(())
}

#[test]
fn a_part_needs_its_main_row_and_is_deleted_with_it() -> Result<()> {
    for store in plain_engines()? {
        let Repositories { products, pictures, texts, thumbnails } = Repositories::filled(&store)?;
        let mut txn = store.write()?;
        let alone = texts.insert(&mut txn, &text(9));
        assert!(matches!(
            alone,
            Err(Error::MissingReference { reference: "part_of", to: "products", .. })
        ));
        let other = texts.update(&mut txn, "a", 2, |row| row.id = 8);
        assert!(matches!(other, Err(Error::MissingReference { .. })));
        let renamed = products.update(&mut txn, "a", 1, |row| row.id = 7);
        assert!(matches!(renamed, Err(Error::Referenced { .. })));
        assert!(pictures.delete(&mut txn, "a", 1)?);
        assert_eq!(thumbnails.all(&txn).count()?, 0);
        assert!(products.delete(&mut txn, "a", 1)?);
        assert_eq!(texts.all(&txn).rows().collect::<Result<Vec<_>>>()?, [text(2)]);
        assert!(products.delete(&mut txn, "a", 3)?);
        txn.commit()?;
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn parts_are_loaded_after_their_main_rows() -> Result<()> {
    for store in plain_engines()? {
        let Repositories { texts, .. } = Repositories::filled(&store)?;
        let missing = texts.bulk_load(&store, &[text(3), text(4)]).run();
        assert!(matches!(missing, Err(Error::MissingReference { .. })));
        texts.bulk_load(&store, &[text(3)]).run()?;
        assert_eq!(texts.all(&store.read()?).count()?, 3);
    }
    Ok(())
}

#[test]
fn a_program_without_the_parts_cannot_delete_a_main_row_with_parts() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    drop(Repositories::filled(&Store::open(dir.path())?)?);
    let store = Store::open(dir.path())?;
    let products = ProductRepository::open(&store)?;
    let refused = store.transaction(|txn| products.delete(txn, "a", 2));
    assert!(matches!(
        refused,
        Err(Error::RepositoryNeeded { by: "texts", repository: "TextRepository", .. })
    ));
    assert!(store.transaction(|txn| products.delete(txn, "a", 3))?);
    Ok(())
}

#[test]
fn verify_lists_parts_without_their_main_row() -> Result<()> {
    /// The table of the texts as it was before it had parts.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "texts", repository = LooseTexts)]
    #[index(language)]
    struct LooseText {
        #[primary_key]
        shop: String,
        #[primary_key]
        id: u32,
        language: String,
    }
    for store in plain_engines()? {
        let loose = LooseTexts::open(&store)?;
        let row = LooseText { shop: "a".into(), id: 5, language: "no".into() };
        store.transaction(|txn| loose.insert(txn, &row))?;
        drop(loose);
        let refused = TextRepository::open(&store);
        assert!(matches!(refused, Err(Error::MissingReference { reference: "part_of", .. })));
        let report = store.verify()?;
        let mut findings = report.tables.iter().flat_map(|table| &table.findings);
        assert!(!findings.any(|found| found.kind == FindingKind::Orphan));
    }
    Ok(())
}
