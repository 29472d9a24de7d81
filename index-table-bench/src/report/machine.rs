//! The machine in general terms, without identifying it.

use std::{env::consts, fs, thread};

use serde::{Deserialize, Serialize};

/// The properties that the figures depend on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The number of threads that can run at the same time.
    pub cores: usize,
    /// The size of the memory in GiB, if it is known.
    pub memory: Option<u64>,
    /// The kind of CPU.
    pub cpu: String,
    /// The kernel's family.
    pub kernel: String,
    /// Whether the machine is virtual.
    pub virtual_machine: bool,
}

impl Machine {
    /// Returns the properties of this machine.
    #[must_use]
    pub fn this() -> Self {
        // Other systems than Linux lack these files.
        let [cpuinfo, meminfo] = ["/proc/cpuinfo", "/proc/meminfo"]
            .map(|file| fs::read_to_string(file).unwrap_or_default());
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = value(&meminfo, "MemTotal").and_then(|value| {
            value.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib.div_ceil(1 << 20))
        });
        let vendor = match value(&cpuinfo, "vendor_id").as_deref() {
            Some("GenuineIntel") => "Intel, ",
            Some("AuthenticAMD") => "AMD, ",
            _ => "",
        };
        let flags = value(&cpuinfo, "flags").unwrap_or_default();
        Self {
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory,
            cpu: format!("{vendor}{}", consts::ARCH),
            kernel: consts::OS.to_owned(),
            virtual_machine: flags.split(' ').any(|flag| flag == "hypervisor"),
        }
    }

    /// Returns a description for a sentence.
    pub(super) fn describe(&self) -> String {
        let memory = self.memory.map_or_else(String::new, |gib| format!("{gib} GiB of memory, "));
        let machine = if self.virtual_machine { "virtual machine" } else { "machine" };
        let cores = if self.cores == 1 { "core" } else { "cores" };
        format!(
            "a {machine} with {} {cores} ({}), {memory}kernel family {}",
            self.cores, self.cpu, self.kernel
        )
    }
}
