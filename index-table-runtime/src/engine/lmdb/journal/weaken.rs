//! Weakened variants of the journal, which leave a step out or change the order of steps. `index-table-proof` shows that
//! power failures then lose commits.
//!
//! Only builds with `--cfg index_table_weaken` have the variants. In other builds, the functions are constants.

/// Returns true if `INDEX_TABLE_WEAKEN` names this variant.
#[cfg(index_table_weaken)]
pub(in crate::engine::lmdb) fn is(variant: &str) -> bool {
    chosen() == variant
}

/// Returns true if any variant is active. Checks that would detect its effects are then left out.
#[cfg(index_table_weaken)]
pub(in crate::engine::lmdb) fn any() -> bool {
    !chosen().is_empty()
}

/// Delays a checkpoint, so that writers commit while it runs.
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
