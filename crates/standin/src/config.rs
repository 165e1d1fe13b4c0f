//! The switches: `SALUS_STANDIN="key=value,key=value"`.
//!
//! The table is at the top of `lib.rs`. A client's create option `standin` adds to the variable, so that
//! tests of one process need not share it.

use std::path::PathBuf;
use std::time::Duration;

use salus_units::parse_bytes;

pub use salus_wire::env::STANDIN as VARIABLE;

/// When an out-of-memory of a launch is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutOfMemory {
    Event,
    Call,
}

#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) plugin: Option<PathBuf>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) devices: usize,
    pub(crate) memory: u64,
    pub(crate) kind: String,
    pub(crate) capability: String,
    pub(crate) on_cpu: bool,
    pub(crate) stats: bool,
    pub(crate) fragments: bool,
    pub(crate) options: bool,
    pub(crate) topology: bool,
    pub(crate) stream: bool,
    pub(crate) enqueue: Duration,
    pub(crate) scratch: bool,
    pub(crate) in_flight: usize,
    pub(crate) out_of_memory: OutOfMemory,
    pub(crate) sticky: bool,
    pub(crate) sticky_at: u64,
    pub(crate) upload_waits: bool,
    pub(crate) bandwidth: u64,
    pub(crate) dma: bool,
    pub(crate) dma_factor: u64,
    pub(crate) autotune: u64,
    pub(crate) context: u64,
    pub(crate) wait: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            plugin: None,
            state: None,
            devices: 1,
            memory: 1 << 30,
            kind: "Stand-in A100".to_owned(),
            capability: "8.0".to_owned(),
            on_cpu: false,
            stats: true,
            fragments: true,
            options: true,
            topology: true,
            stream: true,
            enqueue: Duration::ZERO,
            scratch: true,
            in_flight: 32,
            out_of_memory: OutOfMemory::Event,
            sticky: true,
            sticky_at: 0,
            upload_waits: true,
            bandwidth: 0,
            dma: true,
            dma_factor: 3,
            autotune: 1 << 20,
            context: 0,
            wait: Duration::ZERO,
        }
    }
}

/// As many as the state file has places for.
pub(crate) const DEVICES_MAX: usize = 16;

impl Config {
    /// From the environment, with `more` added.
    pub(crate) fn read(more: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let variable = std::env::var(VARIABLE).unwrap_or_default();
        for text in [&*variable, more] {
            let pairs = text.split(',').map(str::trim);
            for pair in pairs.filter(|pair| !pair.is_empty()) {
                config.set(pair)?;
            }
        }
        Ok(config)
    }

    fn set(&mut self, pair: &str) -> Result<(), String> {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("{VARIABLE}: `{pair}` is not key=value"))?;
        let bad = || format!("{VARIABLE}: `{value}` is no value of `{key}`");
        let bytes = || parse_bytes(value).ok_or_else(bad);
        let number = || value.parse::<u64>().map_err(|_| bad());
        let flag = || match value {
            "0" | "false" => Ok(false),
            "1" | "true" => Ok(true),
            _ => Err(bad()),
        };
        match key {
            "plugin" => self.plugin = Some(value.into()),
            "state" => self.state = Some(value.into()),
            "devices" => {
                self.devices = number()? as usize;
                if !(1..=DEVICES_MAX).contains(&self.devices) {
                    return Err(bad());
                }
            }
            "memory" => self.memory = bytes()?,
            "kind" => self.kind = value.to_owned(),
            "capability" => self.capability = value.to_owned(),
            "on_cpu" => self.on_cpu = flag()?,
            "stats" => self.stats = flag()?,
            "fragments" => self.fragments = flag()?,
            "options" => self.options = flag()?,
            "topology" => self.topology = flag()?,
            "stream" => self.stream = flag()?,
            "enqueue_us" => self.enqueue = Duration::from_micros(number()?),
            "scratch" => self.scratch = flag()?,
            "in_flight" => self.in_flight = (number()? as usize).max(1),
            "oom" => {
                self.out_of_memory = match value {
                    "event" => OutOfMemory::Event,
                    "call" => OutOfMemory::Call,
                    _ => return Err(bad()),
                }
            }
            "sticky" => self.sticky = flag()?,
            "sticky_at" => self.sticky_at = number()?,
            "upload_waits" => self.upload_waits = flag()?,
            "bandwidth" => self.bandwidth = bytes()?,
            "dma" => self.dma = flag()?,
            "dma_factor" => self.dma_factor = number()?.max(1),
            "autotune" => self.autotune = bytes()?,
            "context" => self.context = bytes()?,
            "wait_ms" => self.wait = Duration::from_millis(number()?),
            _ => return Err(format!("{VARIABLE}: there is no key `{key}`")),
        }
        Ok(())
    }
}
