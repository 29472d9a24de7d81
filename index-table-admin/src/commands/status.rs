//! The health of a store, and how it is written.

use std::path::Path;

use index_table::DurabilityReason;
use serde_json::json;

use crate::{failure::Failure, health::health, open::Opened, output::Output, value::printable};

/// Shows why a store needs attention, its durability, and why that is not the journal.
pub(crate) fn status(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(out, dir)?;
    // The tables whose queues and consumers are read.
    let tables = opened.store.open_recorded();
    let mut health = health(&opened.store);
    health.note_unopened(&tables);
    let (reason, recovered) = (opened.store.durability_reason(), opened.store.was_recovered());
    // Without a journal, only the processes that write know their durability.
    let is_known = reason != Some(DurabilityReason::ReadOnly);
    let durability = is_known.then(|| format!("{:?}", opened.store.durability()));
    let reason = reason.map(|reason| reason.to_string());
    let value = json!({
        "healthy": health.is_healthy(),
        "reasons": health.reasons,
        "durability": durability,
        "reason": reason,
        "recovered": recovered,
    });
    out.put(&value, |text| {
        for own in &health.reasons {
            writeln!(text, "{}: {}", own.kind, printable(&own.message))?;
        }
        if health.is_healthy() {
            writeln!(text, "healthy")?;
        }
        write!(text, "durability: {}", durability.as_deref().unwrap_or("not known"))?;
        match &reason {
            Some(reason) => writeln!(text, "; {reason}")?,
            None => writeln!(text)?,
        }
        if recovered {
            writeln!(text, "the store was not closed, and has been recovered")?;
        }
        Ok(())
    })?;
    match health.reasons.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(Failure::damage(format!(
            "the store needs attention, for {} reasons; the first: {}",
            health.reasons.len(),
            first.message
        ))),
    }
}
