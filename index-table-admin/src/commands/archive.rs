//! The contents of an archive.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use clap::Args;
use index_table::{Progress, Store};
use serde_json::json;

use super::{
    copies::is_archive,
    streams::{seconds, shown as time},
};
use crate::{
    failure::{Code, Failure},
    output::{Align, Grid, Output, bytes},
    progress::Bar,
    server::shown,
};

/// An archive.
#[derive(Debug, Args)]
pub(crate) struct Archive {
    /// The directory of the archive.
    archive: PathBuf,
    /// Read all files, and compare their checksums.
    #[arg(long)]
    verify: bool,
}

impl Archive {
    /// Lists from when to when each part of the archive without a gap can be restored.
    pub(crate) fn run(&self, out: &Output) -> Result<(), Failure> {
        let dir: &Path = &self.archive;
        if !is_archive(dir) {
            return Err(Failure::not_found(format!(
                "there is no archive at `{}`; check the path",
                shown(dir)
            )));
        }
        let bar = Bar::new();
        let parts = Store::archive_parts(dir, self.verify, &mut |at: Progress| bar.show(at))?;
        drop(bar);
        let mut grid = Grid::new([
            ("part", Align::Right),
            ("from", Align::Left),
            ("until", Align::Left),
            ("bases", Align::Right),
            ("segments", Align::Right),
            ("bytes", Align::Right),
            ("state", Align::Left),
        ]);
        let (mut values, mut damages) = (Vec::new(), Vec::new());
        for part in &parts {
            let state = match &part.outcome {
                None => "not read".to_owned(),
                Some(Ok(commits)) => format!("intact, {commits} commits"),
                Some(Err(error)) => {
                    damages.push(error.to_string());
                    "damaged".to_owned()
                }
            };
            grid.row([
                part.generation.to_string(),
                time(part.from),
                time(part.until),
                part.bases.to_string(),
                part.segments.to_string(),
                bytes(part.bytes),
                state,
            ]);
            values.push(json!({
                "part": part.generation,
                "from": seconds(part.from),
                "until": seconds(part.until),
                "bases": part.bases,
                "segments": part.segments,
                "bytes": part.bytes,
                "commits": part.outcome.as_ref().and_then(|it| it.as_ref().ok()),
                "error": part.outcome.as_ref().and_then(|it| it.as_ref().err()).map(ToString::to_string),
            }));
        }
        let last = parts.iter().map(|part| part.until).max().unwrap_or(SystemTime::UNIX_EPOCH);
        let value = json!({ "archive": shown(dir), "parts": values });
        out.put(&value, |text| {
            out.grid(text, &mut grid)?;
            if parts.is_empty() {
                writeln!(text, "no base")
            } else {
                writeln!(text, "last commit: {}", time(last))
            }
        })?;
        match damages.first() {
            None => Ok(()),
            Some(first) => Err(Failure::new(
                Code::Damage,
                format!(
                    "the archive is damaged: {first}; restore an earlier part with `--until`, and begin another archive"
                ),
            )),
        }
    }
}
