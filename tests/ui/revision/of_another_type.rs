use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Article {
    #[primary_key]
    id: u64,
    #[revision]
    revision: String,
    title: String,
}

fn edit(
    articles: &ArticleRepository,
    txn: &mut index_table::WriteTxn<'_>,
) -> index_table::Result<()> {
    if let Some(article) = articles.get(txn, 7)? {
        articles.put(txn, &article)?;
    }
    Ok(())
}

fn main() {}
