//! A journal in memory, for tests and the fuzz target.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a panic is a failed test")]

use super::{
    block::{Block, HEAD, META, Saved},
    frame::{self, Body, Header, Kind, Place, Salt, Section},
    tail::{self, Fault, Tail, file_of},
};

pub(super) const FILES: usize = 3;

/// Returns bytes in hex, as in the documentation.
#[cfg(test)]
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Returns a checkpoint block.
pub(super) fn block() -> Block {
    let saved = Saved {
        shard: 0,
        page_size: 4096,
        number: 33,
        map_size: 1 << 20,
        metas: [[1; META], [2; META]],
        roots: [[3; 16], [4; 16]],
    };
    Block {
        salt: Salt { identity: [7; 16], epoch: 2, sequence: 5 },
        record: 9,
        link: 11,
        time: 1_700_000_000_000,
        shards: vec![saved],
    }
}

/// A journal in memory, in the format of the runtime.
pub(super) struct Written {
    pub(super) files: Vec<Vec<u8>>,
    pub(super) at: Place,
    pub(super) durable: Place,
    pub(super) checkpoint: u64,
    pub(super) record: u64,
    pub(super) link: u64,
    /// The position and the length of each frame.
    pub(super) frames: Vec<(Place, usize)>,
}

impl Written {
    pub(super) fn new() -> Self {
        let Block { salt, record, link, .. } = block();
        let at = Place { sequence: salt.sequence, offset: HEAD };
        let files = vec![vec![0xAA; HEAD as usize]; FILES];
        let mut written = Self {
            files,
            at,
            durable: at,
            checkpoint: salt.sequence,
            record,
            link,
            frames: Vec::new(),
        };
        written.put_block(&block());
        written
    }

    pub(super) fn put_block(&mut self, block: &Block) {
        let bytes = block.bytes().expect("few shards");
        let at = file_of(block.salt.sequence, FILES);
        self.files[at][..HEAD as usize].copy_from_slice(&bytes);
    }

    pub(super) fn append(&mut self, kind: Kind, body: Body<'_>) {
        let header = Header {
            kind,
            record: self.record,
            time: 5,
            durable: self.durable,
            checkpoint: self.checkpoint,
            link: self.link,
        };
        let salt = Salt { sequence: self.at.sequence, ..block().salt };
        let mut bytes = Vec::new();
        let link = frame::write(&mut bytes, &salt, self.at.offset, &header, body);
        self.link = link.expect("short enough");
        let file = &mut self.files[file_of(self.at.sequence, FILES)];
        let start = self.at.offset as usize;
        file.resize(file.len().max(start + bytes.len()), 0);
        file[start..start + bytes.len()].copy_from_slice(&bytes);
        self.frames.push((self.at, bytes.len()));
        self.at.offset += bytes.len() as u64;
        if kind != Kind::Part {
            self.record += 1;
            self.durable = self.at;
        }
    }

    pub(super) fn commit(&mut self, changes: &[u8]) {
        let section = Section { shard: 0, number: self.record + 24, changes };
        self.append(Kind::Commit, Body::Sections(&[section]));
    }

    /// Appends a record of several shards.
    pub(super) fn commit_of(&mut self, shards: &[u32], changes: &[u8]) {
        let number = self.record + 24;
        let sections = shards.iter().map(|shard| Section { shard: *shard, number, changes });
        self.append(Kind::Commit, Body::Sections(&sections.collect::<Vec<_>>()));
    }

    pub(super) fn part(&mut self, changes: &[u8]) {
        let section = Section { shard: 0, number: self.record + 24, changes };
        self.append(Kind::Part, Body::Sections(&[section]));
    }

    pub(super) fn switch(&mut self) {
        self.at = Place { sequence: self.at.sequence + 1, offset: HEAD };
    }

    pub(super) fn tail(&self) -> Result<Tail, Fault> {
        let files: Vec<&[u8]> = self.files.iter().map(Vec::as_slice).collect();
        tail::read(&files, &block())
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        self.tail().expect("in order").records.iter().map(|record| record.number).collect()
    }

    /// Flips a bit of a frame.
    #[cfg(test)]
    pub(super) fn damage(&mut self, frame: usize) {
        let (place, length) = self.frames[frame];
        let file = &mut self.files[file_of(place.sequence, FILES)];
        file[place.offset as usize + length / 2] ^= 1;
    }
}
