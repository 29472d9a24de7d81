//! The body of the fuzz target for journals: it writes, damages and reads a journal.

use super::{
    block::Block,
    changes::Operations,
    frame::{Body, Kind},
    marker::Marker,
    tail::{Fault, file_of},
    written::Written,
};

/// Writes a journal by a script in the first half of the bytes, damages it as the second half describes, and reads it.
pub(crate) fn journal(bytes: &[u8]) {
    let _ = (Block::read(bytes), Marker::read(bytes));
    let _ = Operations::of(bytes).count();

    let (script, damage) = bytes.split_at(bytes.len() / 2);
    let mut written = Written::new();
    let mut kept = Vec::new();
    // The number of records that are durable even if the last frame is damaged, and the number of segments.
    let (mut durable, mut segments) = (0, 1);
    // The position and link before the first part of the open transaction.
    let mut began = None;
    for step in script {
        let record = written.record;
        let changes = vec![*step; usize::from(step >> 2)];
        match step & 7 {
            0 | 1 if segments < 3 && began.is_none() => {
                written.switch();
                segments += 1;
            }
            2 => {
                began = began.or(Some((written.at, written.link)));
                written.part(&changes);
            }
            3 if kept.last() == Some(&(record - 1)) && began.is_none() => {
                durable = kept.len() - 1;
                written.append(Kind::TakeBack, Body::Record(record - 1));
                kept.pop();
            }
            5 if began.is_none() => {
                // A commit of several shards.
                durable = kept.len();
                written.commit_of(&[u32::from(step >> 3), 1], &changes);
                kept.push(record);
            }
            4 => {
                // A transaction is rolled back.
                let before = began.take().unwrap_or((written.at, written.link));
                written.part(&changes);
                (written.at, written.link) = before;
            }
            _ => {
                durable = kept.len();
                written.commit(&changes);
                kept.push(record);
                began = None;
            }
        }
    }
    assert_eq!(written.numbers(), kept);

    // A single damaged frame before an intact frame is detected. If several frames are damaged, all of the last frames
    // may be among them, and no intact frame shows that they were durable.
    let is_single = damage.first().is_some_and(|first| first.is_multiple_of(2));
    for change in damage.chunks_exact(4).take(if is_single { 1 } else { usize::MAX }) {
        let [file, high, low, bits] = change else { continue };
        let at = usize::from(u16::from_be_bytes([*high, *low]));
        let file = file_of(u64::from(*file), written.files.len());
        if let Some(byte) = written.files.get_mut(file).and_then(|file| file.get_mut(at)) {
            *byte ^= bits;
        }
    }
    match written.tail() {
        Ok(tail) => {
            let read: Vec<u64> = tail.records.iter().map(|record| record.number).collect();
            // The damage may be in the notice that takes the record back.
            let is_prefix = kept.starts_with(&read)
                || read.split_last().is_some_and(|(_, read)| kept.starts_with(read));
            assert!(is_prefix, "{read:?} of {kept:?}");
            assert!(
                read.len() >= durable || !is_single,
                "{read:?} of {kept:?}, {durable} are durable"
            );
        }
        Err(fault) => assert!(matches!(fault, Fault::Damaged(_)), "{fault:?}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn single_damage_loses_no_durable_record() {
        let mut state = 1_u64;
        for length in 0..600 {
            let bytes = (0..length % 97).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            });
            super::journal(&bytes.collect::<Vec<_>>());
        }
    }
}
