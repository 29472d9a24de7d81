//! Images of a disk after a power failure, with and without each sector written since the checkpoint.

use std::fs;

use crate::{NoteRepository, TestResult, expect, killed, options, write};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn recovery_accepts_any_sectors_written_since_the_checkpoint() -> TestResult {
    const SECTOR: usize = 512;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    drop(NoteRepository::open(&options().open(&path)?)?);
    let store = options().open(&path)?;
    let old = fs::read(path.join("data.mdb"))?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..50 {
        write(&store, &notes, step)?;
    }
    let left = killed(&path, &dir.path().join("left"))?;
    let new = fs::read(left.join("data.mdb"))?;
    let mut random = Random(7);
    for round in 0..8 {
        let image = dir.path().join(format!("image {round}"));
        killed(&left, &image)?;
        let share = random.next() % 100;
        let mut mixed = old.clone();
        mixed.resize(new.len(), 0);
        for (to, from) in mixed.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
            if random.next() % 100 < share {
                to.copy_from_slice(from);
            }
        }
        fs::write(image.join("data.mdb"), mixed)?;
        let store = options().open(&image)?;
        expect(&store, 50)?;
        let notes = NoteRepository::open(&store)?;
        write(&store, &notes, 50)?;
        expect(&store, 51)?;
        drop((store, notes));
        fs::remove_dir_all(&image)?;
    }
    Ok(())
}
