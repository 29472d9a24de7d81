//! Tests of the bytes of an archive.

use std::path::Path;

use super::{
    format::{
        Base, Head, Known, Manifest, START, ShardBase, base_name, is_base, number_of, part_name,
        segment_name, shard_base_name,
    },
    known,
    records::Records,
};
use crate::engine::lmdb::journal::{
    frame::{self, Body, Header, Kind, Place, Section},
    written::hex,
};

const MANIFEST: Manifest = Manifest {
    identity: [7; 16],
    origin: [8; 16],
    epoch: 1,
    generation: 2,
    journal: 3,
    segment: 4,
    commit: 33,
    link: 11,
    time: 1_700_000_000_000,
    at: Place { sequence: 5, offset: 4096 },
};

const BASE: Base = Base {
    identity: [7; 16],
    generation: 2,
    segment: 5,
    commit: 33,
    time: 1_700_000_000_000,
    length: 8192,
    hash: [9; 32],
    shard: None,
};

const SHARD_BASE: Base = Base { shard: Some(ShardBase { number: 2, manager: [10; 32] }), ..BASE };

/// The key `k` of the database `t` is deleted. With these 8 bytes, frames have no padding.
const CHANGES: [u8; 8] = [1, 1, 0, b't', 3, 1, 0, b'k'];

/// Returns a segment with records, each with this number of parts.
fn segment(parts: &[usize]) -> Vec<u8> {
    let head = MANIFEST.head();
    let (mut bytes, mut link) = (head.bytes(), head.link);
    for (commit, count) in (34..).zip(parts) {
        for part in 1..=*count {
            let kind = if part == *count { Kind::Commit } else { Kind::Part };
            let (durable, time) = (Place { sequence: 5, offset: commit }, head.time);
            let header = Header { kind, record: commit, time, durable, checkpoint: 3, link };
            let sections = [Section { shard: 0, number: commit, changes: &CHANGES }];
            let (mut frame, offset) = (Vec::new(), bytes.len() as u64);
            let body = Body::Sections(&sections);
            link = frame::write(&mut frame, &head.salt(), offset, &header, body).expect("short");
            bytes.extend_from_slice(&frame);
        }
    }
    bytes
}

/// Returns the numbers of the complete records.
fn read(bytes: &[u8]) -> Option<Vec<u64>> {
    let mut records = Records::open(&bytes).expect("bytes can be read")?;
    let mut numbers = Vec::new();
    while let Some(record) = records.next().expect("bytes can be read") {
        numbers.push(record.commit);
    }
    Some(numbers)
}

#[test]
fn the_record_of_an_archive_round_trips_and_damage_is_detected() {
    let known = Known { is_given_up: false, has_begun: false, place: Some(b"/a".to_vec()) };
    let begun = Known { has_begun: true, ..known.clone() };
    let function = Known { is_given_up: true, has_begun: false, place: None };
    for known in [&known, &begun, &function] {
        let bytes = known.bytes();
        assert_eq!(Known::read(&bytes).as_ref(), Some(known));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Known::read(&damaged), None);
            assert_eq!(Known::read(&bytes[..at]), None);
        }
    }
}

#[test]
fn a_directory_is_the_same_by_a_relative_path() {
    let here = std::env::current_dir().expect("a directory");
    assert!(known::is_same(Path::new("src"), &here.join("src")));
    assert!(known::is_same(Path::new("missing"), &here.join("missing")));
    assert!(known::is_same(&here.join("src/../src"), &here.join("src")));
    assert!(!known::is_same(Path::new("src"), &here));
}

#[test]
fn manifests_heads_and_bases_round_trip_and_damage_is_detected() {
    let (manifest, head, base) = (MANIFEST.bytes(), MANIFEST.head().bytes(), BASE.bytes());
    assert_eq!(Manifest::read(&manifest), Some(MANIFEST));
    assert_eq!(head.len() as u64, START);
    assert_eq!(Head::read(&head), Some(MANIFEST.head()));
    assert_eq!(Base::read(&base), Some(BASE));
    let shard = SHARD_BASE.bytes();
    assert_eq!(Base::read(&shard), Some(SHARD_BASE));
    for bytes in [&manifest, &head, &base, &shard] {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            for bytes in [&damaged[..], &bytes[..at]] {
                assert_eq!(Manifest::read(bytes), None, "byte {at}");
                assert_eq!(Head::read(bytes), None, "byte {at}");
                assert_eq!(Base::read(bytes), None, "byte {at}");
            }
        }
    }
}

#[test]
fn the_format_has_the_documented_bytes() {
    let documented = include_str!("../../../../../../docs/FORMAT.md");
    let known = Known { is_given_up: false, has_begun: false, place: Some(b"/a".to_vec()) };
    let begun = Known { has_begun: true, ..known.clone() };
    let bytes = [
        known.bytes(),
        begun.bytes(),
        MANIFEST.bytes(),
        BASE.bytes(),
        SHARD_BASE.bytes(),
        segment(&[1]),
    ];
    let missing = bytes.iter().map(|bytes| hex(bytes)).filter(|hex| !documented.contains(hex));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn names_of_files_have_their_numbers() {
    assert_eq!(segment_name(3), "segment.0000000003");
    assert_eq!(part_name(3), "segment.0000000003.part");
    assert_eq!(base_name(1 << 40), "base.1099511627776");
    assert_eq!(number_of("base.0000000012", "base"), Some(12));
    assert_eq!(BASE.name(), base_name(5));
    assert_eq!(SHARD_BASE.name(), shard_base_name(5, 2));
    for base in ["base.0000000005", "base.0000000005.2", "base.10000000005.4095"] {
        assert!(is_base(base), "{base}");
    }
    for other in ["base.5.2", "base.0000000005.", "base.0000000005.x", ".base.0000000005.2.partial"]
    {
        assert!(!is_base(other), "{other}");
    }
    for other in ["base.12", "base.000000001x", "base0000000012", "segment.0000000012", "base."] {
        assert_eq!(number_of(other, "base"), None, "{other}");
    }
    assert_eq!(number_of("segment.0000000003.part", "segment"), None);
}

#[test]
fn a_truncated_or_damaged_segment_has_the_records_before_the_damage() {
    let parts = [1, 2, 1, 3];
    let whole = segment(&parts);
    assert_eq!(read(&whole), Some(vec![34, 35, 36, 37]));
    let ends: Vec<usize> = (0..=parts.len()).map(|count| segment(&parts[..count]).len()).collect();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        let intact = ends.iter().filter(|end| **end <= at).count();
        let expected: Option<Vec<u64>> =
            intact.checked_sub(1).map(|it| (34..34 + it as u64).collect());
        assert_eq!(read(&whole[..at]).unwrap_or_default(), expected.clone().unwrap_or_default());
        assert_eq!(read(&damaged), expected, "byte {at}");
    }
}

#[test]
fn a_segment_of_any_bytes_is_read_or_refused() {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    let whole = segment(&[2, 1, 1]);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..random() % 4 {
            let (from, to, count) = (random() % bytes.len(), random() % bytes.len(), random() % 64);
            let piece = bytes[from..(from + count).min(bytes.len())].to_vec();
            bytes.splice(to..(to + piece.len()).min(bytes.len()), piece);
        }
        bytes.truncate(random() % (2 * bytes.len()));
        let _ = (Manifest::read(&bytes), Base::read(&bytes));
        let found = read(&bytes).unwrap_or_default();
        assert!([34, 35, 36].starts_with(&found), "{found:?}");
    }
}

#[test]
fn times_are_shown_as_dates() {
    for (seconds, date) in [
        (951_782_400, "2000-02-29T00:00:00.250Z"),
        (951_868_799, "2000-02-29T23:59:59.250Z"),
        (1_709_210_096, "2024-02-29T12:34:56.250Z"),
        (1_735_689_599, "2024-12-31T23:59:59.250Z"),
        (1_735_689_600, "2025-01-01T00:00:00.250Z"),
        (4_107_456_000, "2100-02-28T00:00:00.250Z"),
        (4_107_542_400, "2100-03-01T00:00:00.250Z"),
    ] {
        assert_eq!(super::restore::utc(seconds * 1_000_000_000 + 250_000_000), date);
    }
}
