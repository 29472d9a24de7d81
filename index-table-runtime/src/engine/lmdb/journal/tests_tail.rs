use std::io;

use super::{
    block::{Block, HEAD},
    frame::{self, Body, Header, Kind, Place, Salt, Section},
    marker::Journalled,
    tail::{self, Fault, Source, Tail, file_of, load},
    written::{FILES, Written, block},
};

fn is_damaged(outcome: Result<Tail, Fault>, place: Place) -> bool {
    let Place { sequence, offset } = place;
    let at = format!("segment {sequence} at byte {offset}");
    matches!(outcome, Err(Fault::Damaged(reason)) if reason.contains(&at))
}

#[test]
fn records_are_read_across_segments() {
    let mut written = Written::new();
    assert_eq!(written.numbers(), [0; 0]);
    for _ in 0..3 {
        written.commit(&[6; 100]);
        written.switch();
    }
    assert_eq!(written.numbers(), [9, 10, 11]);
    let mut written = Written::new();
    written.part(&[6; 9]);
    written.switch();
    written.part(&[6; 9]);
    written.commit(&[]);
    written.commit(&[6]);
    let tail = written.tail().expect("in order");
    assert_eq!(tail.records.iter().map(|record| record.frames.len()).collect::<Vec<_>>(), [3, 1]);
    assert_eq!((tail.next, tail.last), (11, 6));
}

#[test]
fn a_record_without_its_last_part_is_ignored() {
    let mut written = Written::new();
    written.commit(&[6]);
    written.part(&[6]);
    written.part(&[6]);
    assert_eq!(written.numbers(), [9]);
}

#[test]
fn a_record_that_is_taken_back_is_left_out() {
    let mut written = Written::new();
    written.commit(&[6]);
    written.commit(&[6]);
    written.append(Kind::TakeBack, Body::Record(10));
    written.commit(&[6]);
    assert_eq!(written.numbers(), [9, 12]);
    written.append(Kind::TakeBack, Body::Record(9));
    assert!(matches!(written.tail(), Err(Fault::Damaged(_))));
}

#[test]
fn a_direct_record_is_the_last_record() {
    let direct = |written: &mut Written| {
        let section = Section { shard: 0, number: written.record + 24, changes: &[] };
        written.append(Kind::Direct, Body::Sections(&[section]));
    };
    let found = |written: &Written| {
        let tail = written.tail().expect("in order");
        (tail.direct.map(|direct| (direct.number, direct.is_taken_back)), tail.next)
    };
    let mut written = Written::new();
    written.commit(&[6]);
    assert_eq!(found(&written), (None, 10));
    // Parts of the record were removed.
    direct(&mut written);
    assert_eq!((found(&written), written.numbers()), ((Some((34, false)), 11), vec![9]));
    let place = written.at;
    for kind in [Kind::Commit, Kind::Direct] {
        let mut written = Written::new();
        written.commit(&[6]);
        direct(&mut written);
        match kind {
            Kind::Commit => written.commit(&[6]),
            _ => direct(&mut written),
        }
        assert!(is_damaged(written.tail(), place), "{kind:?}");
    }
    written.append(Kind::TakeBack, Body::Record(10));
    written.commit(&[6]);
    assert_eq!((found(&written), written.numbers()), ((Some((34, true)), 13), vec![9, 12]));
    direct(&mut written);
    assert_eq!(found(&written), (Some((37, false)), 14));
    // Without its transaction.
    let mut written = Written::new();
    written.append(Kind::Direct, Body::Sections(&[]));
    assert!(matches!(written.tail(), Err(Fault::Damaged(_))));
}

#[test]
fn a_torn_tail_ends_the_journal() {
    let mut written = Written::new();
    (0..4).for_each(|_| written.commit(&[6; 50]));
    let (last, length) = written.frames[3];
    assert!(length.is_multiple_of(8));
    // The last bytes are padding.
    for cut in 0..length - 6 {
        let end = last.offset as usize + cut;
        let whole = written.files[file_of(last.sequence, FILES)].split_off(end);
        assert_eq!(written.numbers(), [9, 10, 11], "cut at {cut}");
        written.files[file_of(last.sequence, FILES)].extend_from_slice(&whole);
    }
    assert_eq!(written.numbers(), [9, 10, 11, 12]);
    written.damage(3);
    assert_eq!(written.numbers(), [9, 10, 11]);
}

#[test]
fn damage_before_durable_frames_is_found_with_its_place() {
    for frame in 0..3 {
        let mut written = Written::new();
        (0..4).for_each(|_| written.commit(&[6; 50]));
        written.damage(frame);
        let place = written.frames[frame].0;
        assert!(is_damaged(written.tail(), place), "{:?}", written.tail());
    }
    // Over the end of a segment: the last frame of one, and the first of the next.
    for frame in [1, 2] {
        let mut written = Written::new();
        written.commit(&[6; 50]);
        written.commit(&[6; 50]);
        written.switch();
        written.commit(&[6; 50]);
        written.commit(&[6; 50]);
        written.damage(frame);
        assert!(is_damaged(written.tail(), written.frames[frame].0), "{:?}", written.tail());
    }
}

#[test]
fn parts_in_any_order_on_the_disk_are_no_damage() {
    let mut written = Written::new();
    written.commit(&[6]);
    for _ in 0..3 {
        written.part(&[6; 50]);
    }
    written.commit(&[6]);
    for lost in 1..4 {
        let mut image = Written { files: written.files.clone(), ..Written::new() };
        image.frames.clone_from(&written.frames);
        image.damage(lost);
        assert_eq!(image.numbers(), [9]);
    }
}

#[test]
fn frames_of_a_transaction_that_was_rolled_back_do_not_follow() {
    let mut written = Written::new();
    written.commit(&[6; 50]);
    let before = (written.at, written.link);
    written.part(&[6; 50]);
    written.part(&[6; 50]);
    (written.at, written.link) = before;
    // The record has the length of the overwritten part, so the second part directly follows it.
    written.commit(&[5; 50]);
    assert_eq!(written.numbers(), [9, 10]);
    written.damage(3);
    assert_eq!(written.numbers(), [9]);
}

#[test]
fn a_transaction_that_was_rolled_back_before_a_checkpoint_hides_nothing() {
    let mut written = Written::new();
    written.commit(&[6; 50]);
    let before = (written.at, written.link);
    written.part(&[6; 50]);
    written.part(&[6; 50]);
    (written.at, written.link) = before;
    written.switch();
    written.commit(&[6; 50]);
    written.commit(&[6; 50]);
    assert_eq!(written.numbers(), [9, 10, 11]);
}

#[test]
fn a_damaged_checkpoint_is_detected_by_later_frames() {
    let mut written = Written::new();
    written.commit(&[6]);
    written.switch();
    written.commit(&[6]);
    // The next checkpoint is written and then damaged.
    written.checkpoint = 6;
    assert_eq!(written.numbers(), [9, 10]);
    written.commit(&[6]);
    assert!(is_damaged(written.tail(), Place { sequence: 6, offset: 0 }), "{:?}", written.tail());
}

#[test]
fn the_newest_checkpoint_of_the_data_file_is_taken() {
    let own = block();
    let marked = Journalled::own(own.salt.identity, own.salt.epoch);
    let at = |epoch, sequence| Block { salt: Salt { epoch, sequence, ..own.salt }, ..own.clone() };
    let heads = |blocks: &[Block]| {
        let mut heads = vec![vec![0; HEAD as usize]; FILES];
        for block in blocks {
            heads[file_of(block.salt.sequence, FILES)] = block.bytes().expect("few shards");
        }
        heads
    };
    let newest = |heads: &[Vec<u8>]| tail::newest(heads, &marked).map(|block| block.salt);
    let salt = |block: Block| block.salt;
    let blocks = [at(2, 5), at(2, 6)];
    assert!(newest(&heads(&blocks)).is_ok_and(|found| found == salt(at(2, 6))));
    // After a start whose marker may not be written yet.
    let blocks = [at(2, 5), at(2, 6), at(3, 7)];
    assert!(newest(&heads(&blocks)).is_ok_and(|found| found == salt(at(3, 7))));
    // A block that was copied to another file is invalid.
    let mut swapped = heads(&[at(2, 6)]);
    swapped.rotate_left(1);
    assert!(matches!(newest(&swapped), Err(Fault::Damaged(reason)) if reason.contains("missing")));
    let other = Block { salt: Salt { identity: [9; 16], ..own.salt }, ..own.clone() };
    for none in [vec![], vec![other]] {
        assert!(matches!(newest(&heads(&none)), Err(Fault::Damaged(_))));
    }
    let outcome = newest(&heads(&[at(1, 5)]));
    assert!(matches!(outcome, Err(Fault::Damaged(reason)) if reason.contains("older")));
}

#[test]
fn a_record_before_the_checkpoint_is_taken_back_after_it() {
    let mut written = Written::new();
    // The checkpoint is after record 8, whose notice was appended before its shards were pinned.
    written.append(Kind::TakeBack, Body::Record(8));
    written.commit(&[6]);
    assert_eq!(written.numbers(), [10]);
}

#[test]
fn a_record_is_taken_back_after_records_of_other_shards() {
    let mut written = Written::new();
    written.commit_of(&[1], &[6]);
    written.commit_of(&[2], &[6]);
    written.switch();
    written.commit_of(&[3, 4], &[6]);
    written.append(Kind::TakeBack, Body::Record(9));
    assert_eq!(written.numbers(), [10, 11]);
    let tail = written.tail().expect("in order");
    assert_eq!(tail.records[1].shards, [3, 4]);
    // A later record of one of its shards depends on it.
    written.commit_of(&[2, 5], &[6]);
    written.append(Kind::TakeBack, Body::Record(10));
    assert!(matches!(written.tail(), Err(Fault::Damaged(reason)) if reason.contains("takes back")));
}

/// A file that is made shorter after its length was read.
struct Shrinking<'b>(&'b [u8]);

impl Source for Shrinking<'_> {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.get(..self.0.len() / 2).unwrap_or_default().read_at(offset, into)
    }
}

#[test]
fn a_frame_in_a_file_that_becomes_shorter_is_no_error() {
    let salt = Salt { identity: [7; 16], epoch: 2, sequence: 5 };
    let place = Place { sequence: 5, offset: 0 };
    let header =
        Header { kind: Kind::TakeBack, record: 9, time: 1, durable: place, checkpoint: 5, link: 0 };
    let mut bytes = Vec::new();
    frame::write(&mut bytes, &salt, 0, &header, Body::Record(8)).expect("short");
    let mut buffer = Vec::new();
    assert!(load(&&bytes[..], 0, &mut buffer).expect("a frame"));
    assert!(!load(&Shrinking(&bytes), 0, &mut buffer).expect("no error"));
}
