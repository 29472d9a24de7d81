//! The options as a record keeps them, their limits, and their differences.

use std::{fmt::Debug, io, time::Duration};

use super::{
    durability::Durability,
    files::is_same,
    options::{DIRECTORY_MODE, FILE_MODE, MOST, Options, WhenFull},
};

impl Options {
    /// Returns the options that a shard keeps, by name and as numbers.
    pub(crate) fn numbers(&self) -> [(&'static str, u64); 10] {
        let (when_full, wait) = match self.index_queue.when_full {
            WhenFull::ApplyInLine => (0, 0),
            WhenFull::Wait(wait) => (1, u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            WhenFull::Disable => (2, 0),
        };
        [
            ("map_size", self.map_size as u64),
            ("max_map_size", self.max_map_size as u64),
            // A shard without a durability has the journal, as one with `Full`.
            ("durability", self.durability.unwrap_or(Durability::Full).number()),
            ("max_databases", u64::from(self.max_databases)),
            ("max_readers", u64::from(self.max_readers)),
            ("reserve", self.reserve as u64),
            ("index_queue", self.index_queue.messages),
            ("index_queue_when_full", when_full | wait << 2),
            ("file_mode", u64::from(self.file_mode)),
            ("directory_mode", u64::from(self.directory_mode)),
        ]
    }

    /// Returns the options with one of the [`numbers`](Options::numbers) changed.
    pub(crate) fn with_number(mut self, name: &str, number: u64) -> Self {
        let (size, count) = (usize::try_from(number), u32::try_from(number));
        match name {
            "map_size" => self.map_size = size.unwrap_or(usize::MAX),
            "max_map_size" => self.max_map_size = size.unwrap_or(usize::MAX),
            "durability" => {
                use Durability::{Full, Journal, None, Relaxed};
                self.durability =
                    [Full, Relaxed, None, Journal].into_iter().find(|it| it.number() == number);
            }
            "max_databases" => self.max_databases = count.unwrap_or(MOST),
            "max_readers" => self.max_readers = count.unwrap_or(MOST),
            "file_mode" => self.file_mode = count.unwrap_or(FILE_MODE),
            "directory_mode" => self.directory_mode = count.unwrap_or(DIRECTORY_MODE),
            "reserve" => self.reserve = size.unwrap_or(usize::MAX),
            "index_queue" => self.index_queue.messages = number,
            "index_queue_when_full" => {
                self.index_queue.when_full = match number & 3 {
                    1 => WhenFull::Wait(Duration::from_millis(number >> 2)),
                    2 => WhenFull::Disable,
                    _ => WhenFull::ApplyInLine,
                };
            }
            _ => {}
        }
        self
    }

    /// Refuses options that can't work.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.has_archive() && !self.read_only && self.used_durability() != Durability::Journal {
            let reason = "`archive` needs `Durability::Journal`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let numbers =
            [("max_readers", self.max_readers, 1), ("max_databases", self.max_databases, 0)];
        for (option, number, least) in numbers {
            if number < least || number > MOST {
                let reason = format!("`{option}` is {number}, and must be from {least} to {MOST}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
        }
        let modes = [
            ("file_mode", self.file_mode, FILE_MODE, 0o777),
            ("directory_mode", self.directory_mode, DIRECTORY_MODE, 0o7777),
        ];
        for (option, mode, least, most) in modes {
            if mode & least != least || mode & !most != 0 {
                let reason = format!(
                    "`{option}` is {mode:#o}, and must have {least:#o} and nothing outside of {most:#o}"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
        }
        Ok(())
    }

    /// Returns the first option that differs in `other`: its name, and both values.
    pub(crate) fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let Self {
            map_size,
            max_map_size,
            durability,
            max_databases,
            max_readers,
            reserve,
            index_queue,
            // These options have no effect on an open store.
            create: _,
            file_mode: _,
            directory_mode: _,
            refuses_shards: _,
            without_recovery: _,
            read_only,
            checkpoint,
            archive,
            hand_over,
            without_archive: _,
            declared: _,
            manager: _,
            follower,
            #[cfg(feature = "async")]
            async_threads,
            #[cfg(feature = "postgres")]
            schema,
            #[cfg(feature = "postgres")]
            connections,
            #[cfg(feature = "postgres")]
            retry_for,
            #[cfg(feature = "postgres")]
            connect_timeout,
            #[cfg(feature = "postgres")]
            response_timeout,
            #[cfg(feature = "postgres")]
            commit_timeout,
            #[cfg(feature = "postgres")]
            root_certificates,
        } = self;
        let archive = match (archive, &other.archive) {
            (Some(own), Some(named)) if is_same(own, named) => &other.archive,
            _ => archive,
        };
        let options: [(_, &dyn Debug, &dyn Debug); _] = [
            ("map_size", map_size, &other.map_size),
            ("max_map_size", max_map_size, &other.max_map_size),
            ("durability", &Durability::or_default(*durability), &other.used_durability()),
            ("max_databases", max_databases, &other.max_databases),
            ("max_readers", max_readers, &other.max_readers),
            ("reserve", reserve, &other.reserve),
            ("index_queue", index_queue, &other.index_queue),
            ("read_only", read_only, &other.read_only),
            ("checkpoint", checkpoint, &other.checkpoint),
            ("archive", archive, &other.archive),
            ("archive_with", hand_over, &other.hand_over),
            ("follower", follower, &other.follower),
            #[cfg(feature = "async")]
            ("async_threads", async_threads, &other.async_threads),
            #[cfg(feature = "postgres")]
            ("schema", schema, &other.schema),
            #[cfg(feature = "postgres")]
            ("connections", connections, &other.connections),
            #[cfg(feature = "postgres")]
            ("retry_for", retry_for, &other.retry_for),
            #[cfg(feature = "postgres")]
            ("connect_timeout", connect_timeout, &other.connect_timeout),
            #[cfg(feature = "postgres")]
            ("response_timeout", response_timeout, &other.response_timeout),
            #[cfg(feature = "postgres")]
            ("commit_timeout", commit_timeout, &other.commit_timeout),
            #[cfg(feature = "postgres")]
            ("root_certificates", root_certificates, &other.root_certificates),
        ];
        options
            .into_iter()
            .map(|(name, own, other)| (name, format!("{own:?}"), format!("{other:?}")))
            .find(|(_, own, other)| own != other)
    }

    /// Returns an option for the modes of files that is not the default.
    #[cfg(feature = "postgres")]
    pub(crate) fn other_mode(&self) -> Option<&'static str> {
        let modes = [
            ("file_mode", self.file_mode == FILE_MODE),
            ("directory_mode", self.directory_mode == DIRECTORY_MODE),
        ];
        modes.into_iter().find(|(_, is_usual)| !is_usual).map(|(option, _)| option)
    }

    /// Returns why a server does not offer an option of files.
    #[cfg(feature = "postgres")]
    pub(crate) fn not_on_servers(option: &str) -> &'static str {
        macro_rules! reason {
            ($($option:literal),*) => {
                match option {
                    $($option => concat!("`", $option, "`, because a server has its own settings"),)*
                    _ => "an option of files, because a server has its own settings",
                }
            };
        }
        reason!(
            "map_size",
            "max_map_size",
            "durability",
            "max_databases",
            "max_readers",
            "reserve",
            "checkpoint",
            "archive",
            "archive_with",
            "file_mode",
            "directory_mode"
        )
    }
}
