//! The names in rows that are written without their type.

use std::collections::BTreeSet;

use crate::locks::{Mutex, OfProcess};

static NAMES: OfProcess<Mutex<BTreeSet<&'static str>>> = OfProcess::new(Mutex::default);

/// Returns a name of a catalog as serde needs it. Each name is kept once, as long as the process lives.
pub(super) fn kept_name(name: &str) -> &'static str {
    let mut names = NAMES.lock();
    if let Some(kept) = names.get(name) {
        return kept;
    }
    let kept: &'static str = Box::leak(name.into());
    names.insert(kept);
    kept
}
