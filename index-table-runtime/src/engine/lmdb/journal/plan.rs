//! What opening a store does with its journal: a function of what is found.

use super::marker::Marker;

/// How a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::lmdb) enum Wanted {
    /// For reading alone.
    Read,
    /// With a durability of LMDB's own.
    Plain,
    /// With a journal.
    Journal,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::lmdb) enum Plan {
    /// Nothing: the store is opened as if there was no journal.
    Open,
    /// The records of the journal are applied, nobody else has the store open; then another plan is made.
    Recover,
    /// The journal is not needed and is given up.
    GiveUp,
    /// The journal is started, if no other process writes it. Records that LMDB lacks are applied.
    Start,
    /// The store is opened, and this process can't write.
    ReadOnly,
    /// It can't be read before it is recovered.
    Refuse,
}

/// `alone`: no other process has the store open.
pub(in crate::engine::lmdb) const fn plan(wanted: Wanted, marker: &Marker, alone: bool) -> Plan {
    match (wanted, marker, alone) {
        // Those who have it open read the same state, and no power has failed.
        (Wanted::Read, Marker::Needed(_), true) => Plan::Refuse,
        (Wanted::Plain | Wanted::Journal, Marker::Needed(_), true) => Plan::Recover,
        (Wanted::Read, ..) | (Wanted::Plain, Marker::None, _) => Plan::Open,
        (Wanted::Plain, Marker::Clean(_), true) => Plan::GiveUp,
        // Others write with a journal, or may begin to; or they may write without one.
        (Wanted::Plain, _, false) | (Wanted::Journal, Marker::None, false) => Plan::ReadOnly,
        (Wanted::Journal, ..) => Plan::Start,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::marker::Journalled, *};

    #[test]
    fn a_plan_for_whatever_is_found() {
        let journalled = Journalled { identity: [1; 16], epoch: 1 };
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
