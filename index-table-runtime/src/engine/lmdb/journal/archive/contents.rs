//! What an archive has, and whether its files are intact.

use std::{fs::File, io::Read as _};

use super::{
    format::{Base, nanoseconds_of},
    records::Records,
    restore::{Archive, Segment, Step, Walked, damaged},
};
use crate::{
    engine::files::DATA_FILE,
    model::error::{Error, Result},
};

/// The number of bytes that are read at once.
const PIECE: usize = 1 << 20;

/// A part of an archive without a gap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Generation {
    /// The first of its bases.
    pub(crate) first: Base,
    pub(crate) bases: u64,
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    /// The times of the first state and of the last commit that can be restored, in nanoseconds since 1970.
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Archive {
    /// Returns the generations, in order, each with its error if it could not be measured, for example because a segment is missing.
    /// Each segment's head is read, and the records of each generation's last segment.
    pub(crate) fn generations(&self) -> Vec<(Generation, Result<()>)> {
        let mut all: Vec<Generation> = Vec::new();
        for base in &self.bases {
            let (time, bytes) = (nanoseconds_of(base.time), base.length);
            match all.last_mut().filter(|own| own.first.generation == base.generation) {
                Some(own) => {
                    own.bases += 1;
                    own.bytes += bytes;
                    own.from = own.from.min(time);
                    own.until = own.until.max(time);
                    if base.segment < own.first.segment {
                        own.first = *base;
                    }
                }
                None => all.push(Generation {
                    first: *base,
                    bases: 1,
                    segments: 0,
                    bytes,
                    from: time,
                    until: time,
                }),
            }
        }
        let measured = all.into_iter().map(|mut own| {
            let outcome = self.measure(&mut own);
            (own, outcome)
        });
        measured.collect()
    }

    /// Returns the times of the bases of shards in a generation, in nanoseconds since 1970; none if its store had one data file.
    pub(crate) fn times_of_shards(&self, generation: u64) -> Vec<u64> {
        let own = self.bases.iter().filter(|base| base.generation == generation);
        own.filter(|base| base.shard.is_some()).map(|base| nanoseconds_of(base.time)).collect()
    }

    fn measure(&self, own: &mut Generation) -> Result<()> {
        let mut last = None;
        for segment in self.chain(&own.first)?.segments {
            let Segment { path, file, .. } = self.segment(segment)?;
            let io = |source| Error::io(&path, source);
            let length = file.metadata().map_err(io)?.len();
            let Some(records) = Records::open(&file).map_err(io)? else { continue };
            let head = records.head;
            if head.generation != own.first.generation || head.identity != own.first.identity {
                break;
            }
            own.segments += 1;
            own.bytes += length;
            if head.time > 0 {
                own.until = own.until.max(nanoseconds_of(head.time));
            }
            last = Some((path, file));
        }
        let Some((path, file)) = last else { return Ok(()) };
        let io = |source| Error::io(&path, source);
        let Some(mut records) = Records::open(&file).map_err(io)? else { return Ok(()) };
        while let Some(record) = records.next().map_err(io)? {
            own.until = own.until.max(nanoseconds_of(record.time));
        }
        Ok(())
    }

    /// Reads the bases and the segments of a generation, and compares all checksums. Calls `read` with the number of bytes of each
    /// piece. Returns the number of commits.
    pub(crate) fn verify(&self, own: &Generation, read: &mut dyn FnMut(u64)) -> Result<u64> {
        let first = own.first;
        for base in self.bases.iter().filter(|base| base.generation == first.generation) {
            self.read_base(base, &mut |piece| {
                read(piece.len() as u64);
                Ok(())
            })?;
        }
        let mut commits = 0;
        let mut step = |_: &Walked<'_>| {
            commits += 1;
            Ok(Step::Next)
        };
        self.walk(&first, &mut step, read)?;
        Ok(commits)
    }

    /// Reads the data file of a base, calls `each` with its pieces in order, and then compares all files with their checksums.
    ///
    /// # Errors
    ///
    /// The errors of `each`; [`Error::DamagedArchive`] if a file differs from its checksum; [`Error::Io`].
    pub(super) fn read_base(
        &self,
        base: &Base,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let path = self.base_directory(base).join(DATA_FILE);
        let io = |source| Error::io(&path, source);
        let mut from = File::open(&path).map_err(io)?;
        let (mut hasher, mut piece) = (blake3::Hasher::new(), vec![0; PIECE]);
        let mut length = 0;
        loop {
            let read = from.read(&mut piece).map_err(io)?;
            let Some(piece) = piece.get(..read).filter(|piece| !piece.is_empty()) else { break };
            hasher.update(piece);
            each(piece)?;
            length += read as u64;
        }
        if length != base.length || *hasher.finalize().as_bytes() != base.hash {
            return Err(damaged(&self.directory, format!("the base {} is damaged", base.name())));
        }
        if base.shard.is_some() {
            self.manager_of(base)?;
        }
        Ok(())
    }
}
