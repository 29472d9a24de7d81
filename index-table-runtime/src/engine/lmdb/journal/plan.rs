//! Decides how a store with or without a journal is opened.

use super::{marker::Marker, presence::Others};

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
    /// Start the journal of a process that has ended, close it, and plan again. Readers have the store open.
    Settle,
    /// Remove the journal, which is not needed, and plan again.
    GiveUp,
    /// Start the journal, unless another process is its writer. Records that LMDB lacks are applied.
    Start,
    /// Refuse to open the store, because of a process that may write it.
    Elsewhere,
}

/// Returns the next step. The documentation of [`presence`](super::presence) has the reasons.
pub(in crate::engine::lmdb) const fn plan(wanted: Wanted, marker: &Marker, others: Others) -> Plan {
    match (wanted, marker, others) {
        (_, Marker::Needed(_), Others::None) => Plan::Recover,
        // If other processes have the store open, no power has failed, and its state is readable.
        (Wanted::Read, ..) | (Wanted::Plain, Marker::None, _) => Plan::Open,
        (Wanted::Plain, _, Others::Writer(_))
        | (Wanted::Journal, Marker::None, Others::Writer(_)) => Plan::Elsewhere,
        (Wanted::Plain, Marker::Clean(_), _) => Plan::GiveUp,
        (Wanted::Plain, Marker::Needed(_), _) => Plan::Settle,
        // With a marker, no process writes without a journal. The lock of the journal shows whether it has a writer.
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
        // Alone, beside readers, and beside a process that may write.
        let expected = [
            (Wanted::Read, none, [Plan::Open, Plan::Open, Plan::Open]),
            (Wanted::Read, clean, [Plan::Open, Plan::Open, Plan::Open]),
            (Wanted::Read, needed, [Plan::Recover, Plan::Open, Plan::Open]),
            (Wanted::Plain, none, [Plan::Open, Plan::Open, Plan::Open]),
            (Wanted::Plain, clean, [Plan::GiveUp, Plan::GiveUp, Plan::Elsewhere]),
            (Wanted::Plain, needed, [Plan::Recover, Plan::Settle, Plan::Elsewhere]),
            (Wanted::Journal, none, [Plan::Start, Plan::Start, Plan::Elsewhere]),
            (Wanted::Journal, clean, [Plan::Start, Plan::Start, Plan::Start]),
            (Wanted::Journal, needed, [Plan::Recover, Plan::Start, Plan::Start]),
        ];
        for (wanted, marker, plans) in expected {
            let others = [Others::None, Others::Readers, Others::Writer(Some(7))];
            assert_eq!(
                others.map(|others| plan(wanted, &marker, others)),
                plans,
                "{wanted:?} {marker:?}"
            );
        }
    }
}
