//! A script: the configuration of a store, and steps. It can be printed and read.

use std::{fmt, str::FromStr};

use index_table::{Options, ShardMap};

use crate::{random::Random, tables::PLACED};

/// The configuration of a lifecycle. The shard maps follow from the seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) seed: u64,
    pub(crate) tenants: u32,
    /// The number of rows of each tenant that never change.
    pub(crate) fillers: u32,
    /// 0: a store with one data file, which can grow.
    pub(crate) shards: u32,
    pub(crate) archive: u32,
    pub(crate) writers: u32,
    pub(crate) readers: u32,
    /// The workers of eventual indexes and of expiry, and a thread for the consumers.
    pub(crate) workers: u32,
    /// The pause after each batch of a long operation, in milliseconds.
    pub(crate) pause: u32,
}

/// A step, with its words. A step beside others does not wait for its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) beside: bool,
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) config: Config,
    pub(crate) steps: Vec<Step>,
}

/// Returns the name of a shard: a, b, c, ….
pub(crate) fn shard_name(number: u32) -> String {
    char::from(b'a' + (number % 26) as u8).to_string()
}

impl Config {
    const FIELDS: [&'static str; 9] = [
        "seed", "tenants", "fillers", "shards", "archive", "writers", "readers", "workers", "pause",
    ];

    fn values(&self) -> [u64; 9] {
        let Self { tenants, fillers, shards, archive, writers, readers, workers, pause, .. } =
            *self;
        let [tenants, fillers, shards, archive, writers, readers, workers, pause] =
            [tenants, fillers, shards, archive, writers, readers, workers, pause].map(u64::from);
        [self.seed, tenants, fillers, shards, archive, writers, readers, workers, pause]
    }

    const fn of(values: [u64; 9]) -> Self {
        let [seed, tenants, fillers, shards, archive, writers, readers, workers, pause] = values;
        Self {
            seed,
            tenants: tenants as u32,
            fillers: fillers as u32,
            shards: shards as u32,
            archive: archive as u32,
            writers: writers as u32,
            readers: readers as u32,
            workers: workers as u32,
            pause: pause as u32,
        }
    }

    /// Returns the options that create the store. Each map assigns its keys to some of the shards, and one has the placed tables.
    pub(crate) fn sharded(&self, options: Options) -> Options {
        let mut random = Random::new(&[self.seed, 2]);
        let names: Vec<_> = (0..self.shards).map(shard_name).collect();
        let mut some = || {
            let many = 1 + random.below(names.len() as u64) as usize;
            (0..many).filter_map(|_| random.pick(names.clone())).collect::<Vec<_>>()
        };
        let mut options = names.iter().fold(options, |all, name| all.shard(name, name));
        let slots = some();
        for name in ["tenants", "tickets"] {
            let (shards, mut map) = (some(), ShardMap::ranges());
            for tenant in 0..self.tenants {
                let shard = shards.get(tenant as usize % shards.len().max(1));
                let Some(shard) = shard else { continue };
                map = if tenant + 1 == self.tenants {
                    map.to(shard, tenant..)
                } else {
                    map.to(shard, tenant..=tenant)
                };
            }
            options = options.map(name, map);
        }
        let mut slots = slots;
        slots.sort();
        slots.dedup();
        let options = options.map("events", ShardMap::hashed(slots));
        match random.pick(names) {
            Some(shard) => PLACED.iter().fold(options, |all, table| all.place(*table, &shard)),
            None => options,
        }
    }
}

impl Step {
    pub(crate) fn new(text: &str) -> Self {
        let (beside, text) = text.strip_prefix('&').map_or((false, text), |text| (true, text));
        Self { beside, words: text.split_whitespace().map(str::to_owned).collect() }
    }

    pub(crate) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(crate) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// Returns the number at this position; 0 if there is none.
    pub(crate) fn number(&self, at: usize) -> u64 {
        self.word(at).parse().unwrap_or_default()
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().skip(1).any(|it| it == word)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = if self.beside { "&" } else { "" };
        write!(f, "{beside}{}", self.words.join(" "))
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "config")?;
        let mut fields = Self::FIELDS.iter().zip(self.values());
        fields.try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.config)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl FromStr for Config {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut values = [0; 9];
        for word in text.split_whitespace().filter(|word| *word != "config") {
            let (name, value) =
                word.split_once('=').ok_or_else(|| format!("`{word}` has no value"))?;
            let at = Self::FIELDS.iter().position(|it| *it == name);
            let at =
                at.and_then(|at| values.get_mut(at)).ok_or_else(|| format!("no field `{name}`"))?;
            *at = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
        }
        Ok(Self::of(values))
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().filter(|it| !it.trim().is_empty() && !it.starts_with('#'));
        let config = lines.next().ok_or("an empty script")?.parse()?;
        Ok(Self { config, steps: lines.map(Step::new).collect() })
    }
}
