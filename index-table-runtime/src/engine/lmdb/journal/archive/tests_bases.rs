//! Tests of the bases that a restore of a sharded store uses.

use std::{fs, path::Path};

use super::{
    super::marker::Journalled,
    Bound,
    format::{
        BASE_FILE, Base, Head, MANAGER_FILE, MANIFEST_FILE, Manifest, START, ShardBase, part_name,
    },
    outbox::Outbox,
    restore::{Archive, Step, Until, Walked},
};
use crate::{
    engine::lmdb::{
        journal::{
            archive::format::segment_name,
            frame::{self, Body, Header, Kind, Place, Section},
        },
        names::FILE,
    },
    model::error::Error,
};

/// The last complete segment.
const LAST: u64 = 5;

const MANIFEST: Manifest = Manifest {
    identity: [7; 16],
    origin: [8; 16],
    epoch: 0,
    generation: 2,
    journal: 3,
    segment: LAST,
    commit: 40,
    link: 0,
    time: 1_700_000_000_000,
    at: Place { sequence: 5, offset: 4096 },
};

/// The key `k` of the database `t` is deleted. With these 8 bytes, frames have no padding.
const CHANGES: [u8; 8] = [1, 1, 0, b't', 3, 1, 0, b'k'];

/// Writes a base of a shard.
fn base(archive: &Path, segment: u64, shard: u32, commit: u64) {
    let Manifest { identity, generation, time, .. } = MANIFEST;
    let shard = Some(ShardBase { number: shard, manager: *blake3::hash(b"").as_bytes() });
    let base =
        Base { identity, generation, segment, commit, time, length: 0, hash: [0; 32], shard };
    let directory = archive.join(base.name());
    fs::create_dir(&directory).expect("created");
    fs::write(directory.join(MANAGER_FILE), "").expect("written");
    fs::write(directory.join(BASE_FILE), base.bytes()).expect("written");
}

/// Writes a segment with these commits of shards.
fn segment(archive: &Path, segment: u64, commits: &[(u32, u64)]) {
    segment_after(archive, segment, 0, commits);
}

/// Writes a segment after a record with this link. Returns the link of its last record.
fn segment_after(archive: &Path, segment: u64, mut link: u64, commits: &[(u32, u64)]) -> u64 {
    let Manifest { identity, generation, commit, time, .. } = MANIFEST;
    let head = Head { identity, generation, segment, commit, link, time };
    let mut bytes = head.bytes();
    for (shard, number) in commits {
        let durable = Place { sequence: 5, offset: *number };
        let header =
            Header { kind: Kind::Commit, record: commit, time, durable, checkpoint: 3, link };
        let sections = [Section { shard: *shard, number: *number, changes: &CHANGES }];
        let (mut frame, offset) = (Vec::new(), bytes.len() as u64);
        let body = Body::Sections(&sections);
        link = frame::write(&mut frame, &head.salt(), offset, &header, body).expect("short");
        bytes.extend_from_slice(&frame);
    }
    let name = if segment > LAST { part_name(segment) } else { segment_name(segment) };
    fs::write(archive.join(name), bytes).expect("written");
    link
}

/// Returns the commit of the base of shard 1 in an archive with these files, or the error. Shard 0 has a base before the last
/// complete segment.
fn commit_of_base(fill: impl Fn(&Path)) -> Result<u64, Error> {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join(MANIFEST_FILE), MANIFEST.bytes()).expect("written");
    base(dir.path(), LAST, 0, 33);
    fill(dir.path());
    let archive = Archive::open(dir.path())?;
    let bases = archive.shard_bases(&Until::End, &|_| Ok(vec![0, 1]))?;
    assert_eq!(bases.len(), 2);
    Ok(bases[1].commit)
}

#[test]
fn a_base_whose_segments_were_lost_is_not_used() {
    let earlier = |path: &Path| base(path, LAST, 1, 7);
    let later = |path: &Path| base(path, LAST + 1, 1, 9);
    // Its commits are neither in the last complete segment nor in a later one.
    let found = commit_of_base(|path| {
        earlier(path);
        later(path);
        segment(path, LAST, &[(0, 34), (1, 8), (0, 35)]);
    });
    assert_eq!(found.expect("an earlier base"), 7);
    let found = commit_of_base(|path| {
        earlier(path);
        later(path);
        segment(path, LAST, &[(1, 8)]);
        segment(path, LAST + 1, &[(0, 34)]);
    });
    assert_eq!(found.expect("an earlier base"), 7);
    let found = commit_of_base(|path| {
        earlier(path);
        later(path);
        segment(path, LAST, &[(0, 34)]);
    });
    assert_eq!(found.expect("an earlier base"), 7);
    for commits in [&[(0, 34)][..], &[(1, 8)]] {
        let found = commit_of_base(|path| {
            later(path);
            segment(path, LAST, commits);
        });
        assert!(
            matches!(&found, Err(Error::NotInArchive { reason, .. })
                if reason.contains("no base of shard number 1")),
            "{found:?}"
        );
    }
}

#[test]
fn a_base_whose_commits_are_in_segments_is_used() {
    // In the last complete segment, or in the incomplete segment.
    let found = commit_of_base(|path| {
        base(path, LAST, 1, 7);
        base(path, LAST + 1, 1, 9);
        segment(path, LAST, &[(1, 8), (0, 34), (1, 9), (0, 35)]);
    });
    assert_eq!(found.expect("a base"), 9);
    let found = commit_of_base(|path| {
        base(path, LAST, 1, 7);
        base(path, LAST + 1, 1, 9);
        segment(path, LAST, &[(1, 8)]);
        segment(path, LAST + 1, &[(1, 9), (1, 10)]);
    });
    assert_eq!(found.expect("a base"), 9);
    // The shard has not changed.
    let found = commit_of_base(|path| {
        base(path, LAST, 1, 7);
        base(path, LAST + 1, 1, 7);
        segment(path, LAST, &[(0, 34)]);
    });
    assert_eq!(found.expect("a base"), 7);
}

/// Opens the outbox of a store with shards, and returns its generation.
fn resumed(store: &Path) -> (Outbox, u64) {
    let known = Journalled::own(MANIFEST.origin, 0);
    let outbox = Outbox::resume(store, &known, None, 40, Some(Vec::new()));
    let outbox = outbox.ok().expect("an outbox");
    let generation = outbox.manifest().generation;
    (outbox, generation)
}

#[test]
fn a_generation_starts_if_the_process_ends_while_a_shard_joins() {
    let store = tempfile::tempdir().expect("a directory");
    let store = store.path();
    let (mut outbox, generation) = resumed(store);
    assert_eq!(generation, 1);
    outbox.suspend().expect("written");
    outbox.resume_generation();
    let (mut outbox, generation) = resumed(store);
    assert_eq!(generation, 1);
    outbox.suspend().expect("written");
    let (_, generation) = resumed(store);
    assert_eq!(generation, 2);
}

#[test]
fn records_of_an_incomplete_segment_stay_if_the_process_ends_after_a_shard_could_not_join() {
    for (is_joining, found) in [(true, (2, 1, false)), (false, (1, 0, true))] {
        let store = tempfile::tempdir().expect("a directory");
        let store = store.path();
        fs::write(store.join(FILE), "").expect("written");
        let (mut outbox, _) = resumed(store);
        outbox.set_manager(CHANGES.to_vec());
        let bound = Bound { committed: Place::default(), ends: Vec::new(), taken_back: Vec::new() };
        assert!(outbox.collect(&[] as &[fs::File], &bound).is_ok());
        outbox.suspend().expect("written");
        if !is_joining {
            outbox.resume_generation();
        }
        let (next, generation) = resumed(store);
        let (complete, is_growing) = (next.work().complete.len(), next.work().growing > START);
        assert_eq!((generation, complete, is_growing), found);
    }
}

#[test]
fn each_base_that_a_restore_uses_has_intact_records_of_the_shard_map_manager() {
    for until in [Until::End, Until::Time(u64::MAX), Until::Commit(vec![33, 9])] {
        for damaged in [None, Some(0), Some(1)] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path();
            fs::write(path.join(MANIFEST_FILE), MANIFEST.bytes()).expect("written");
            base(path, LAST, 0, 33);
            base(path, LAST, 1, 7);
            base(path, LAST + 1, 1, 9);
            segment(path, LAST, &[(1, 8), (0, 34), (1, 9), (0, 35)]);
            let archive = Archive::open(path).expect("an archive");
            let bases = || archive.shard_bases(&until, &|_| Ok(vec![0, 1]));
            let used = bases().expect("two bases");
            assert_eq!(used.len(), 2);
            if let Some(damaged) = damaged {
                fs::write(path.join(used[damaged].name()).join(MANAGER_FILE), "damage")
                    .expect("written");
                let refused = bases();
                assert!(matches!(refused, Err(Error::DamagedArchive { .. })), "{refused:?}");
            }
        }
    }
}

#[test]
fn a_segment_that_is_completed_meanwhile_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join(MANIFEST_FILE), MANIFEST.bytes()).expect("written");
    base(dir.path(), LAST, 0, 33);
    let link = segment_after(dir.path(), LAST, 0, &[(0, 34)]);
    segment_after(dir.path(), LAST + 1, link, &[(0, 35)]);
    let archive = Archive::open(dir.path()).expect("an archive");
    let mut found = 0;
    let mut step = |_: &Walked<'_>| {
        if found == 0 {
            let path = |name: String| dir.path().join(name);
            fs::rename(path(part_name(LAST + 1)), path(segment_name(LAST + 1))).expect("renamed");
        }
        found += 1;
        Ok(Step::Next)
    };
    archive.walk(&archive.bases[0], &mut step, &mut |_| ()).expect("all segments");
    assert_eq!(found, 2);
}

/// A restore and the verification of an archive read a base by this function.
#[test]
fn each_file_of_a_base_is_compared_with_its_checksum() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join(MANIFEST_FILE), MANIFEST.bytes()).expect("written");
    let data = b"the data file of a shard";
    let shard = Some(ShardBase { number: 0, manager: *blake3::hash(b"").as_bytes() });
    let Manifest { identity, generation, commit, time, .. } = MANIFEST;
    let (length, hash) = (data.len() as u64, *blake3::hash(data).as_bytes());
    let base = Base { identity, generation, segment: LAST, commit, time, length, hash, shard };
    let directory = dir.path().join(base.name());
    fs::create_dir(&directory).expect("created");
    fs::write(directory.join(BASE_FILE), base.bytes()).expect("written");
    let files = [(FILE, &data[..]), (MANAGER_FILE, b"")];
    for (name, bytes) in files {
        fs::write(directory.join(name), bytes).expect("written");
    }
    let archive = Archive::open(dir.path()).expect("an archive");
    let read = || {
        let mut bytes = Vec::new();
        let outcome = archive.read_base(&base, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        });
        outcome.map(|()| bytes)
    };
    assert_eq!(read().expect("an intact base"), data);
    for (name, bytes) in files {
        for damaged in [&b"the data file of a SHARD"[..], b"more"] {
            fs::write(directory.join(name), damaged).expect("written");
            let outcome = read();
            assert!(matches!(outcome, Err(Error::DamagedArchive { .. })), "{name}: {outcome:?}");
        }
        fs::write(directory.join(name), bytes).expect("written");
    }
}
