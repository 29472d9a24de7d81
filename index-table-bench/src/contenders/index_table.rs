//! `index-table` with `Durability::Full`, two syncs for every commit as in the hand-written code, and with a journal, the
//! default. The maximum number of databases is their actual number, because each transaction of LMDB allocates space for the
//! maximum.

use std::{collections::HashMap, path::Path, sync::mpsc, thread};

use index_table::{Cursor, Durability, Options, Store};

use crate::{
    contender::{Contender, Digest, Outcome},
    workload::{Customer, CustomerRepository, NameRange, PAGE, Position},
    writers::Insert,
};

struct IndexTable {
    store: Store,
    customers: CustomerRepository,
    /// The cursors that previous pages returned, by the last row of the page.
    cursors: HashMap<u64, Cursor>,
}

fn options() -> Options {
    Store::options().max_databases(4).durability(Durability::Full)
}

pub(crate) fn open(directory: &Path) -> Outcome<Box<dyn Contender>> {
    let store = options().open(directory)?;
    let customers = CustomerRepository::open(&store)?;
    Ok(Box::new(IndexTable { store, customers, cursors: HashMap::new() }))
}

/// Returns a function for each thread, which submits a closure to the group writer.
pub(crate) fn together(directory: &Path, threads: usize) -> Outcome<Vec<Insert>> {
    grouped(&options(), directory, threads)
}

/// Does the same as [`together`], with a journal.
pub(crate) fn together_in_journal(directory: &Path, threads: usize) -> Outcome<Vec<Insert>> {
    grouped(&options().durability(Durability::Journal), directory, threads)
}

/// Does the same as [`alone`], with a journal.
pub(crate) fn alone_in_journal(directory: &Path, threads: usize) -> Outcome<Vec<Insert>> {
    transactions(&options().durability(Durability::Journal).open(directory)?, threads)
}

fn grouped(options: &Options, directory: &Path, threads: usize) -> Outcome<Vec<Insert>> {
    let store = options.open(directory)?;
    let customers = CustomerRepository::open(&store)?;
    let writer = store.writer()?;
    let insert = || -> Insert {
        let (writer, customers) = (writer.clone(), customers.clone());
        Box::new(move |row| {
            let (customers, row) = (customers.clone(), row.clone());
            let submitted = writer.submit(move |txn| customers.insert(txn, &row));
            submitted.wait().map_err(|error| error.to_string())
        })
    };
    Ok((0..threads).map(|_| insert()).collect())
}

/// Returns a function for each thread, which inserts a row in its own transaction.
pub(crate) fn alone(directory: &Path, threads: usize) -> Outcome<Vec<Insert>> {
    transactions(&options().open(directory)?, threads)
}

/// Does the same without reserved space.
pub(crate) fn alone_without_reserve(directory: &Path, threads: usize) -> Outcome<Vec<Insert>> {
    transactions(&options().reserve(0).open(directory)?, threads)
}

/// Does the same as [`alone`], while a reader prevents the reuse of pages.
pub(crate) fn held(directory: &Path, threads: usize) -> Outcome<Vec<Insert>> {
    held_in(&options().open(directory)?, threads)
}

/// Does the same without reserved space.
pub(crate) fn held_without_reserve(directory: &Path, threads: usize) -> Outcome<Vec<Insert>> {
    held_in(&options().reserve(0).open(directory)?, threads)
}

fn held_in(store: &Store, threads: usize) -> Outcome<Vec<Insert>> {
    let inserts = transactions(store, threads)?;
    let (start, has_started) = mpsc::channel();
    let (over, is_over) = mpsc::channel::<()>();
    let store = store.clone();
    thread::spawn(move || {
        let txn = store.read();
        let _ = start.send(());
        let _ = is_over.recv();
        drop(txn);
    });
    has_started.recv()?;
    let with_reader = inserts.into_iter().map(|mut insert| -> Insert {
        let over = over.clone();
        Box::new(move |row| {
            let _reader = &over;
            insert(row)
        })
    });
    Ok(with_reader.collect())
}

fn transactions(store: &Store, threads: usize) -> Outcome<Vec<Insert>> {
    let customers = CustomerRepository::open(store)?;
    let insert = || -> Insert {
        let (store, customers) = (store.clone(), customers.clone());
        Box::new(move |row| {
            store.transaction(|txn| customers.insert(txn, row)).map_err(|error| error.to_string())
        })
    };
    Ok((0..threads).map(|_| insert()).collect())
}

impl Contender for IndexTable {
    fn insert(&mut self, rows: &[Customer]) -> Outcome {
        self.store
            .transaction(|txn| rows.iter().try_for_each(|row| self.customers.insert(txn, row)))?;
        Ok(())
    }

    fn bulk_load(&mut self, rows: &[Customer]) -> Outcome {
        self.customers.bulk_load(&self.store, rows).run()?;
        Ok(())
    }

    fn insert_one_by_one(&mut self, rows: &[Customer]) -> Outcome {
        for row in rows {
            self.store.transaction(|txn| self.customers.insert(txn, row))?;
        }
        Ok(())
    }

    fn get(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for id in ids {
            digest.row(self.customers.get(&txn, *id)?.as_ref());
        }
        Ok(())
    }

    fn get_by_email(&mut self, emails: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for email in emails {
            digest.row(self.customers.get_by_email(&txn, email)?.as_ref());
        }
        Ok(())
    }

    fn rows_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for town in towns {
            for row in self.customers.find_by_town(&txn, town).rows() {
                digest.row(Some(&row?));
            }
        }
        Ok(())
    }

    fn entries_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for town in towns {
            for entry in self.customers.find_by_town_last_name_range(&txn, town, ..).entries() {
                let entry = entry?;
                digest.entry(entry.id, entry.last_name, entry.phone);
            }
        }
        Ok(())
    }

    fn rows_in_range(&mut self, ranges: &[NameRange], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for NameRange { town, from, to } in ranges {
            let names = from.as_str()..to.as_str();
            for row in self.customers.find_by_town_last_name_range(&txn, town, names).rows() {
                digest.row(Some(&row?));
            }
        }
        Ok(())
    }

    fn prepare_pages(&mut self, positions: &[Position]) -> Outcome {
        self.cursors.clear();
        let txn = self.store.read()?;
        let mut positions: Vec<&Position> = positions.iter().collect();
        positions.sort_by_key(|position| (&position.town, position.depth));
        for positions in positions.chunk_by(|one, other| one.town == other.town) {
            // Reads from each position to the next.
            let (mut depth, mut cursor) = (0, None);
            for position in positions {
                let rest = self.customers.find_by_town(&txn, &position.town);
                let rest = match &cursor {
                    Some(cursor) => rest.after(cursor),
                    None => rest,
                };
                if position.depth > depth {
                    cursor = rest.page(position.depth - depth)?.next;
                    depth = position.depth;
                }
                self.cursors.extend(cursor.clone().map(|cursor| (position.after, cursor)));
            }
        }
        Ok(())
    }

    fn page(&mut self, positions: &[Position], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for Position { town, after, .. } in positions {
            let cursor = self.cursors.get(after).ok_or("no such page")?;
            let page = self.customers.find_by_town(&txn, town).after(cursor).page(PAGE)?;
            page.items.iter().for_each(|row| digest.row(Some(row)));
        }
        Ok(())
    }

    fn count(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let txn = self.store.read()?;
        for town in towns {
            digest.number(self.customers.find_by_town(&txn, town).count()?);
        }
        Ok(())
    }

    fn set_first_name(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        let mut txn = self.store.write()?;
        for (id, name) in changes {
            let found =
                self.customers.update(&mut txn, *id, |row| row.first_name.clone_from(name))?;
            digest.found += u64::from(found);
        }
        Ok(txn.commit()?)
    }

    fn set_town(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        let mut txn = self.store.write()?;
        for (id, town) in changes {
            let found = self.customers.update(&mut txn, *id, |row| row.town.clone_from(town))?;
            digest.found += u64::from(found);
        }
        Ok(txn.commit()?)
    }

    fn delete(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        let mut txn = self.store.write()?;
        for id in ids {
            digest.found += u64::from(self.customers.delete(&mut txn, *id)?);
        }
        Ok(txn.commit()?)
    }
}
