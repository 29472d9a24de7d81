use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Article {
    #[primary_key]
    id: u64,
    #[revision(start = 5)]
    revision: u64,
    title: String,
}

fn edit(
    articles: &ArticleRepository,
    txn: &mut index_table::WriteTxn<'_>,
) -> index_table::Result<()> {
    if let Some(article) = articles.get(txn, 7)? {
        articles.delete_if(txn, &article)?;
    }
    Ok(())
}

fn main() {}
