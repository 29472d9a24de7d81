//! Steps of the journal that `index-table-proof` leaves out or makes in another order, to show that power failures
//! then lose commits.
//!
//! Only builds with `--cfg index_table_weaken` have these variants. In all others, the functions are constant, and
//! nothing of them remains.

/// Whether this variant was chosen by `INDEX_TABLE_WEAKEN`.
#[cfg(index_table_weaken)]
pub(in crate::engine::lmdb) fn is(variant: &str) -> bool {
    chosen() == variant
}

/// Whether any variant was chosen. The checks that would refuse its effects are left out then.
#[cfg(index_table_weaken)]
pub(in crate::engine::lmdb) fn any() -> bool {
    !chosen().is_empty()
}

/// Gives writers the time to commit while a checkpoint is made.
#[cfg(index_table_weaken)]
pub(in crate::engine::lmdb) fn pause() {
    if any() {
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
}

#[cfg(index_table_weaken)]
fn chosen() -> &'static str {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("INDEX_TABLE_WEAKEN").unwrap_or_default())
}

#[cfg(not(index_table_weaken))]
pub(in crate::engine::lmdb) const fn is(_: &str) -> bool {
    false
}

#[cfg(not(index_table_weaken))]
pub(in crate::engine::lmdb) const fn any() -> bool {
    false
}

#[cfg(not(index_table_weaken))]
pub(in crate::engine::lmdb) const fn pause() {}
