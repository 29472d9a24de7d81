//! The records of a renamed table: its location, its place, and the shard maps that have its name.
//!
//! The data files of the shards are renamed one after another, each in a transaction of its own. The manager is changed after
//! them. So a table that the manager has by its former name may be renamed in some shards, and the next opening continues.

use std::collections::BTreeMap;

use super::{
    Engine, Identity, Manager, ManagerRecords, OwnRanges, TableRecord,
    lists::{rename_lists, replace},
    manager::{Encoded, encoded},
};
use crate::model::{
    error::{Error, Result},
    shard::{Distribution, ShardKey, map_of, placed_map},
};

/// Returns the new name of a shard map, if it has the name of a renamed table.
fn new_name(map: &str, from: &str, to: &str) -> Option<String> {
    if *map == placed_map(from) {
        return Some(placed_map(to));
    }
    let (table, index) = map.split_once('.')?;
    (table == from).then(|| map_of(to, index))
}

/// Renames a key, if the map has it.
fn rename_key<T>(all: &mut BTreeMap<String, T>, from: &str, to: &str) {
    if let Some(value) = all.remove(from) {
        all.insert(to.to_owned(), value);
    }
}

impl TableRecord {
    /// Whether this is the location of a table with this distribution.
    fn is_of(&self, distribution: Distribution) -> bool {
        match (self, distribution) {
            (Self::ByKey { fields, hashed, map }, Distribution::ByKey(key)) => {
                let ShardKey { fields: own, hashed: is_hashed, map: name, .. } = key;
                *fields as usize == own && *hashed == is_hashed && map == name
            }
            (Self::Reference, Distribution::Reference) => true,
            (_, Distribution::Whole) => self.place().is_some(),
            _ => false,
        }
    }
}

impl Engine {
    /// Checks that a table can be renamed: it keeps its shard key and its shard map, all shards are available, and none of its
    /// keys are being moved.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`], [`Error::ShardUnavailable`], [`Error::ShardRefused`]
    pub(crate) fn check_rename(
        &self,
        (from, to): (&str, &'static str),
        distribution: Distribution,
    ) -> Result<()> {
        let location = self.location_of(from);
        if let Some(location) = location.as_ref().filter(|it| !it.is_of(distribution)) {
            return Err(Error::SchemaMismatch {
                table: to,
                difference: format!(
                    "the rows of its former table `{from}` are {}, and it is declared otherwise",
                    self.shown(location)
                ),
                way_out: "declare the shard key and the shard map of the former table; its map may have the name of the former \
                          table, which `shard_map = \"…\"` gives",
            });
        }
        for (_, shard) in self.shards() {
            shard.present()?;
        }
        let maps = self.maps.now();
        let is_own = |map: &str| match &location {
            Some(TableRecord::ByKey { map: own, .. }) if map == own => true,
            _ => new_name(map, from, to).is_some(),
        };
        let is_moving = maps.moves().iter().any(|moving| is_own(&moving.record.map));
        if is_moving || maps.hidden().maps().iter().any(|map| is_own(map)) {
            let reason = "its keys are being moved, or a detached shard has left entries; open it by its former name first, and \
                          complete the move";
            let what = format!("renaming table `{from}` to `{to}`");
            return Err(Error::ShardRefused { what, reason: reason.to_owned() });
        }
        Ok(())
    }

    /// Adds a renamed table's maps to the shards' own records, which keep those of the former name until
    /// [`forget_former_maps`](Engine::forget_former_maps).
    pub(crate) fn add_renamed_maps(&self, (from, to): (&str, &str)) -> Result<()> {
        self.change_own(&|own| {
            let renamed = |own: &OwnRanges| Some((new_name(&own.map, from, to)?, own.clone()));
            let added: Vec<_> = own.maps.iter().filter_map(renamed).collect();
            own.maps.retain(|own| added.iter().all(|(map, _)| *map != own.map));
            own.maps.extend(added.into_iter().map(|(map, own)| OwnRanges { map, ..own }));
            own.maps.sort_by(|one, other| one.map.cmp(&other.map));
        })
    }

    /// Removes the parts of the former maps from the own records of the shards, after the manager has changed, and gives their
    /// lists of tables the new name.
    pub(crate) fn forget_former_maps(&self, (from, to): (&str, &str)) -> Result<()> {
        self.change_own(&|own| {
            own.maps.retain(|own| new_name(&own.map, from, to).is_none());
            for names in [Some(&mut own.places), own.checked.as_mut()] {
                names.into_iter().flatten().filter(|name| *name == from).for_each(|name| {
                    to.clone_into(name);
                });
            }
        })
    }

    fn change_own(&self, change: &dyn Fn(&mut Identity)) -> Result<()> {
        for (_, shard) in self.shards().filter(|_| self.manager.is_some()) {
            if let Some(open) = shard.current() {
                Identity::change(open, change)?;
            }
        }
        Ok(())
    }

    /// Gives the records of the manager, and those in memory, the new name of a table.
    pub(crate) fn rename_location(&self, (from, to): (&str, &str)) -> Result<()> {
        if let Some(manager) = &self.manager {
            manager.rename_table(from, to)?;
        }
        self.maps.rename(&|map| new_name(map, from, to));
        rename_key(&mut self.places.write(), from, to);
        let mut known = self.tables.lock();
        rename_key(&mut known, from, to);
        for record in known.values_mut() {
            record.refer_to(from, to);
        }
        self.parts.note(&known);
        Ok(())
    }
}

impl TableRecord {
    fn refer_to(&mut self, from: &str, to: &str) {
        if let Self::Part { main, .. } = self
            && main == from
        {
            to.clone_into(main);
        }
    }
}

impl Manager {
    fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.update(&|all: &mut Encoded| {
            let Some(mut records) = ManagerRecords::decode(all)? else { return Ok(()) };
            for map in records.maps.keys().cloned().collect::<Vec<_>>() {
                if let Some(new) = new_name(&map, from, to) {
                    rename_key(&mut records.maps, &map, &new);
                }
            }
            rename_key(&mut records.places, from, to);
            rename_key(&mut records.tables, from, to);
            records.tables.values_mut().for_each(|record| record.refer_to(from, to));
            records.own.version += 1;
            replace(all, &encoded(&records)?);
            rename_lists(all, from, to);
            Ok(())
        })
    }
}
