//! A shard that is attached while a global index is built.

use std::{
    path::Path,
    sync::{Condvar, Mutex},
    thread,
};

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

/// The order of the steps of two threads, which meet in computed keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Computed keys don't wait.
    Free,
    /// The build reads its last row next.
    BuildBegins,
    /// The build has read the last row, and is not committed.
    LastRow,
    /// The attaching thread compares the keys of its rows.
    Compared,
    Built,
    /// The attaching thread builds the index.
    BuildsAgain,
    Over,
}

static STEP: Mutex<Step> = Mutex::new(Step::Free);
static CHANGED: Condvar = Condvar::new();

fn set(step: Step) {
    *STEP.lock().expect("no panic") = step;
    CHANGED.notify_all();
}

fn wait_for(step: Step) {
    let reached = STEP.lock().expect("no panic");
    drop(CHANGED.wait_while(reached, |reached| *reached < step).expect("no panic"));
}

/// Goes from one step to the next, and then waits.
fn pass(at: Step, next: Step, until: Step) {
    let is_at = *STEP.lock().expect("no panic") == at;
    if is_at {
        set(next);
        wait_for(until);
    }
}

mod before {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "parcels", shard_by = part)]
    #[index(computed(label: String), unique, scope = "global", name = "label")]
    pub(super) struct Parcel {
        #[primary_key]
        pub(super) part: u32,
        #[primary_key]
        pub(super) id: u32,
    }

    impl Parcel {
        fn label(&self) -> String {
            format!("label {}.{}", self.part, self.id)
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "several indexes may be global")]
#[table(name = "parcels", shard_by = part)]
#[index(computed(label: String), unique, scope = "global", name = "label")]
#[index(computed(code: String), unique, scope = "global", name = "code")]
struct Parcel {
    #[primary_key]
    part: u32,
    #[primary_key]
    id: u32,
}

const LAST: u32 = 19;

impl Parcel {
    fn label(&self) -> String {
        if self.part == 11 {
            pass(Step::LastRow, Step::Compared, Step::Built);
        }
        format!("label {}.{}", self.part, self.id)
    }

    fn code(&self) -> String {
        if (self.part, self.id) == (1, LAST) {
            pass(Step::BuildBegins, Step::LastRow, Step::Compared);
            pass(Step::Built, Step::BuildsAgain, Step::Over);
        }
        format!("code {}.{}", self.part, self.id)
    }
}

fn filled(path: &Path) -> Result<Store> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").map("parcels", map);
    let store = options.open(path)?;
    let parcels = before::ParcelRepository::open(&store)?;
    store.transaction(|txn| {
        [1, 11].into_iter().try_for_each(|part| {
            (0..=LAST).try_for_each(|id| parcels.insert(txn, &before::Parcel { part, id }))
        })
    })?;
    store.detach_shard("b")?;
    drop((store, parcels));
    Store::open(path)
}

#[test]
fn an_index_that_becomes_readable_while_a_shard_is_attached_keeps_its_entries() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = filled(&dir.path().join("shop"))?;
    let parcels = ParcelRepository::open_online(&store)?;
    set(Step::BuildBegins);
    let attached = thread::scope(|scope| -> Result<_> {
        let (store, parcels) = (&store, &parcels);
        let build = scope.spawn(|| {
            let built = parcels.build(store).run();
            set(Step::Built);
            built
        });
        wait_for(Step::LastRow);
        let attaching = scope.spawn(|| {
            let attached = store.attach_shard("b", "b");
            set(Step::Over);
            attached
        });
        wait_for(Step::BuildsAgain);
        let txn = store.read()?;
        let found = parcels.get_by_code(&txn, &format!("code 1.{LAST}"));
        drop(txn);
        set(Step::Over);
        assert!(build.join().expect("no panic")?.is_readable());
        let attached = attaching.join().expect("no panic");
        assert_eq!(found?, Some(Parcel { part: 1, id: LAST }));
        Ok(attached)
    })?;
    match attached {
        Ok(_) => {}
        Err(Error::ShardRefused { reason, .. }) => {
            assert!(reason.contains("attach it again"), "{reason}");
            store.attach_shard("b", "b")?;
        }
        Err(error) => return Err(error),
    }
    let txn = store.read()?;
    for part in [1, 11] {
        for id in 0..=LAST {
            let found = parcels.get_by_code(&txn, &format!("code {part}.{id}"))?;
            assert_eq!(found, Some(Parcel { part, id }));
        }
    }
    drop(txn);
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}
