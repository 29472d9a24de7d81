//! Decides how a store with or without a journal is opened.

use super::marker::Marker;

/// The request of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::lmdb) enum Wanted {
    /// Read-only.
    Read,
    /// For writing, without a journal.
    Plain,
    /// For writing, with a journal.
    Journal,
}

/// The next step of opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::lmdb) enum Plan {
    /// Open the store without regard to a journal.
    Open,
    /// Apply the records of the journal, and plan again. No other process has the store open.
    Recover,
    /// Remove the journal, which is not needed.
    GiveUp,
    /// Start the journal, unless another process is its writer. Records that LMDB lacks are applied.
    Start,
    /// Open the store, but refuse writes in this process.
    ReadOnly,
    /// Refuse to open the store, which needs recovery.
    Refuse,
}

/// Returns the next step. `alone` is true if no other process has the store open.
pub(in crate::engine::lmdb) const fn plan(wanted: Wanted, marker: &Marker, alone: bool) -> Plan {
    match (wanted, marker, alone) {
        // If other processes have the store open, no power has failed, and its state is readable.
        (Wanted::Read, Marker::Needed(_), true) => Plan::Refuse,
        (Wanted::Plain | Wanted::Journal, Marker::Needed(_), true) => Plan::Recover,
        (Wanted::Read, ..) | (Wanted::Plain, Marker::None, _) => Plan::Open,
        (Wanted::Plain, Marker::Clean(_), true) => Plan::GiveUp,
        // Another process writes with a journal, or may start one, or may write without one.
        (Wanted::Plain, _, false) | (Wanted::Journal, Marker::None, false) => Plan::ReadOnly,
        (Wanted::Journal, ..) => Plan::Start,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::marker::Journalled, *};

    #[test]
    fn each_combination_has_its_plan() {
        let journalled = Journalled::own([1; 16], 1);
        let (none, clean, needed) =
            (Marker::None, Marker::Clean(journalled), Marker::Needed(journalled));
        let expected = [
            (Wanted::Read, none, [Plan::Open, Plan::Open]),
            (Wanted::Read, clean, [Plan::Open, Plan::Open]),
            (Wanted::Read, needed, [Plan::Refuse, Plan::Open]),
            (Wanted::Plain, none, [Plan::Open, Plan::Open]),
            (Wanted::Plain, clean, [Plan::GiveUp, Plan::ReadOnly]),
            (Wanted::Plain, needed, [Plan::Recover, Plan::ReadOnly]),
            (Wanted::Journal, none, [Plan::Start, Plan::ReadOnly]),
            (Wanted::Journal, clean, [Plan::Start, Plan::Start]),
            (Wanted::Journal, needed, [Plan::Recover, Plan::Start]),
        ];
        for (wanted, marker, [alone, beside]) in expected {
            assert_eq!(plan(wanted, &marker, true), alone, "{wanted:?} {marker:?}");
            assert_eq!(plan(wanted, &marker, false), beside, "{wanted:?} {marker:?}");
        }
    }
}
