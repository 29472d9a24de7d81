//! Plans as text.

use std::fmt;

use super::{PlannedMove, PlannedShard, Rebalance, RebalancePlan, Unit};

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for PlannedMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, end, from, to, rows, bytes, .. } = self;
        let (start, end) = (start.as_deref().unwrap_or(""), end.as_deref().unwrap_or(""));
        write!(f, "{start}..{end} from `{from}` to `{to}`: {rows} rows, {bytes} bytes")
    }
}

impl fmt::Display for PlannedShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard, before, after, is_over, heaviest } = self;
        write!(f, "shard `{shard}`: {before}, then {after}")?;
        match heaviest {
            Some((key, load)) => write!(
                f,
                "; more than its share: the shard key {key} alone has {load}, and only a longer shard key can split its rows"
            ),
            None if *is_over => {
                f.write_str("; more than its share, but no move makes the loads more even")
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for RebalancePlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { map, unit, tolerance, moves, shards, weight, least, sampled, .. } = self;
        write!(f, "shard map `{map}`, {unit} within {tolerance} %")?;
        if let Some(rows) = sampled {
            write!(f, ", estimated from {rows} sampled rows")?;
        }
        writeln!(f, ":")?;
        for shard in shards {
            writeln!(f, "  {shard}")?;
        }
        if moves.is_empty() {
            return f.write_str("no moves");
        }
        writeln!(
            f,
            "moves: {}, with {weight} {unit}; the tolerance requires at least {least}:",
            moves.len()
        )?;
        for (at, planned) in moves.iter().enumerate() {
            let end = if at + 1 < moves.len() { "\n" } else { "" };
            write!(f, "  {planned}{end}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Rebalance<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { map, unit, tolerance, onto, .. } = self;
        let mut shown = f.debug_struct("Rebalance");
        shown.field("map", map).field("unit", unit).field("tolerance", tolerance);
        shown.field("onto", onto).finish_non_exhaustive()
    }
}

impl fmt::Debug for RebalancePlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { map, moves, shards, .. } = self;
        let mut shown = f.debug_struct("RebalancePlan");
        shown.field("map", map).field("moves", moves).field("shards", shards);
        shown.finish_non_exhaustive()
    }
}
