//! How a store is written.

use std::path::Path;

use index_table::DurabilityReason;
use serde_json::json;

use crate::{failure::Failure, open::Opened, output::Output};

/// Shows the durability of a store, and why it is not the journal.
pub(crate) fn status(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(out, dir)?;
    let (reason, recovered) = (opened.store.durability_reason(), opened.store.was_recovered());
    // Without a journal, only the processes that write know their durability.
    let is_known = reason != Some(DurabilityReason::ReadOnly);
    let durability = is_known.then(|| format!("{:?}", opened.store.durability()));
    let reason = reason.map(|reason| reason.to_string());
    let value = json!({ "durability": durability, "reason": reason, "recovered": recovered });
    Ok(out.put(&value, |text| {
        write!(text, "durability: {}", durability.as_deref().unwrap_or("not known"))?;
        match &reason {
            Some(reason) => writeln!(text, "; {reason}")?,
            None => writeln!(text)?,
        }
        if recovered {
            writeln!(text, "the store was not closed, and has been recovered")?;
        }
        Ok(())
    })?)
}
