//! Asynchronous calls under the executors that programs use.
#![cfg(feature = "async")]

use std::time::Duration;

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(changes)]
#[index(text, unique)]
struct Note {
    #[primary_key]
    id: u64,
    text: String,
}

/// Uses each kind of call, with tasks that `spawn` starts and waits for.
async fn calls<J, F>(
    spawn: impl Fn(index_table::Call<()>) -> J,
    join: impl Fn(J) -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    let note = |id: u64| Note { id, text: format!("note {id}") };
    let changes = notes.changes(&store, "consumer")?;
    assert!(!changes.wait_async(Duration::from_millis(5)).await?);
    let tasks: Vec<_> = (0..100).map(|id| spawn(notes.insert_async(&store, &note(id)))).collect();
    for task in tasks {
        join(task).await?;
    }
    assert!(changes.wait_async(Duration::from_mins(1)).await?);
    assert_eq!(notes.get_async(&store, 7).await?, Some(note(7)));
    assert_eq!(notes.get_by_text_async(&store, "note 9").await?, Some(note(9)));
    let own = notes.clone();
    assert_eq!(store.read_async(move |txn| own.all(txn).count()).await?, 100);
    let own = notes.clone();
    store.transaction_async(move |txn| own.delete(txn, 7).map(drop)).await?;
    assert_eq!(notes.get_async(&store, 7).await?, None);
    store.close_async().await
}

#[test]
fn tokio_with_many_threads() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    runtime.block_on(calls(
        |call| tokio::spawn(call),
        |task| async move { task.await.expect("no panic") },
    ))
}

#[test]
fn tokio_with_one_thread() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(calls(
        |call| tokio::spawn(call),
        |task| async move { task.await.expect("no panic") },
    ))
}

#[test]
fn smol() -> Result<()> {
    ::smol::block_on(calls(::smol::spawn, |task| task))
}

#[test]
fn futures() -> Result<()> {
    futures_executor::block_on(calls(|call| call, |call| call))
}
