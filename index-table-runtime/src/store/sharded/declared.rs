//! The shards, shard maps and places that options declare, compared with those of the store.

use std::path::Path;

use super::open::refused;
use crate::{
    engine::{DeclaredShard, Options},
    model::{
        error::Result,
        shard::{placed_map, placed_table},
    },
    placement::shards::{ManagerRecords, ShardRecord, ShardState, recorded},
};

/// Adds new shards, shard maps and places to the records, and compares the others with the records.
pub(super) fn declare(options: &Options, records: &mut ManagerRecords, is_new: bool) -> Result<()> {
    for declared in &options.declared.shards {
        if !is_removed(declared, records) {
            declare_shard(declared, options, records, is_new)?;
        }
    }
    for (name, place) in &options.declared.relocated {
        let what = format!("shard `{name}`");
        let own = records.number(name);
        let Some(own) = own.and_then(|number| records.shards.get_mut(number as usize)) else {
            return Err(refused(&what, "the store has no such shard"));
        };
        let Some(place) = place.to_str() else {
            return Err(refused(&what, "its directory is not UTF-8"));
        };
        if options.declared.only.as_ref().is_some_and(|only| !only.contains(name)) {
            return Err(refused(&what, "it is relocated, and left out by `only`"));
        }
        place.clone_into(&mut own.place);
    }
    for (name, map) in &options.declared.maps {
        let what = || format!("shard map `{name}`");
        if placed_table(name).is_some() {
            return Err(refused(
                &what(),
                "its name begins with `@`, as those of tables that were moved",
            ));
        }
        // A map that the store has keeps its ranges, also those of shards that were removed or detached.
        let exists = records.maps.contains_key(name);
        let removed = |shard: &str| if exists { records.removed_number(shard) } else { None };
        let map = map.declare(|shard| records.number(shard).or_else(|| removed(shard)));
        let map = map.map_err(|reason| refused(&what(), &reason))?;
        match records.maps.get(name) {
            None => {
                records.maps.insert(name.clone(), map);
            }
            Some(own) if own.kind == map.kind && own.key_type == map.key_type => {}
            Some(own) => {
                let reason = format!(
                    "the store has it with keys of type `{}`, and it is declared with `{}`",
                    own.key_type, map.key_type
                );
                return Err(refused(&what(), &reason));
            }
        }
    }
    for (table, shard) in &options.declared.places {
        let what = || format!("the place of table `{table}`");
        let Some(number) = records.number(shard) else {
            return Err(refused(&what(), &format!("the store has no shard `{shard}`")));
        };
        if let Some(map) = records.maps.get(&placed_map(table)) {
            match map.boundaries.shard_of(&[]) {
                Some(own) if own != number => {
                    let name = records.shards.get(own as usize).map(|shard| shard.name.as_str());
                    let own = name.unwrap_or_default();
                    let reason =
                        format!("it was moved to shard `{own}`: declare this shard, or none");
                    return Err(refused(&what(), &reason));
                }
                _ => continue,
            }
        }
        if records.tables.get(table).is_some_and(|own| own.place() != Some(number)) {
            return Err(refused(
                &what(),
                "the table was opened before, and its rows are elsewhere",
            ));
        }
        match records.places.get(table) {
            Some(own) if *own != number => {
                return Err(refused(&what(), "the store has placed it in another shard"));
            }
            _ => {
                records.places.insert(table.clone(), number);
            }
        }
    }
    Ok(())
}

pub(super) fn declare_shard(
    declared: &DeclaredShard,
    common: &Options,
    records: &mut ManagerRecords,
    is_new: bool,
) -> Result<()> {
    let what = format!("shard `{}`", declared.name);
    let Some(place) = declared.place.to_str() else {
        return Err(refused(&what, "its directory is not UTF-8"));
    };
    let own = records.number(&declared.name);
    match own.and_then(|number| records.shards.get(number as usize)) {
        Some(_) if is_new => Err(refused(&what, "it is declared twice")),
        Some(own) if own.place != place => {
            let reason = format!(
                "the store has it in `{0}`, and it is declared in `{place}`; declare it in `{0}`, or open the store without \
                 declaring it; if its files were moved to `{place}`, use `relocate`",
                own.place
            );
            Err(refused(&what, &reason))
        }
        Some(_) => Ok(()),
        None if !is_new && !declared.added => {
            let reason = "the store was created without it; add it with `add_shard`";
            Err(refused(&what, reason))
        }
        None => {
            let options = recorded(declared.options.as_ref().unwrap_or(common));
            let (name, place, state) = (declared.name.clone(), place.to_owned(), ShardState::New);
            records.shards.push(ShardRecord { name, place, state, options });
            Ok(())
        }
    }
}

/// Whether this shard was removed or detached. A declaration that adds a shard in another directory adds a new shard.
fn is_removed(declared: &DeclaredShard, records: &ManagerRecords) -> bool {
    if records.number(&declared.name).is_some() {
        return false;
    }
    let number = records.removed_number(&declared.name);
    let removed = number.and_then(|number| records.shards.get(number as usize));
    removed.is_some_and(|own| !declared.added || Path::new(&own.place) == declared.place)
}

/// Returns a name in `only` that no shard has.
pub(super) fn unknown<'o>(options: &'o Options, records: &ManagerRecords) -> Option<&'o String> {
    options.declared.only.iter().flatten().find(|name| records.number(name).is_none())
}
