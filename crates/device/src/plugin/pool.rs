//! The memory of a device that has its own: how much a client takes of it, and what came of that.
//!
//! The GPU plugins' allocator takes its pool with the first allocation, and if others hold memory, a
//! smaller one than it was allowed, without a word: its limit stays what it was. So the pool is taken when
//! the device is opened, and what it really is decides what may be given away.
//!
//! Not here: a device in the machine's memory, whose plugin has no pool (`describe.rs`).

use salus_pjrt::{Client, Device, DeviceMemoryStats, Plugin, Value};

use super::open::{Options, PjrtConfig, Purpose, create_client};
use super::upload::Transfers;
use crate::Error;
use crate::failure::{INVALID_ARGUMENT, RESOURCE_EXHAUSTED, error, optional, vendor};

/// Platforms whose plugins take the options here.
pub(super) const PLATFORMS: &[&str] = &["cuda", "rocm"];

const PREALLOCATE: &str = "preallocate";
const FRACTION: &str = "memory_fraction";
const VISIBLE: &str = "visible_devices";

/// The part of a device that is taken unless the operator says otherwise. The rest is for what drivers
/// and libraries take outside the pool: contexts, code, their own scratch.
const RUN_FRACTION: f32 = 0.9;
/// The part that a client may use which only tries things out.
const TRY_FRACTION: f32 = 0.05;
/// Of what was wanted, the pool must have this part: the allocator takes nine tenths, and nine tenths of
/// that, until it fits, and a first step down is no surprise.
const LEAST_PART: (u64, u64) = (3, 4);

/// Opens a client of a GPU's plugin with a pool of the size that `config` asks for.
pub(super) fn open(
    plugin: &Plugin,
    config: &PjrtConfig,
    given: Options,
) -> Result<(Client, Options), Error> {
    let (preallocate, fraction) = match config.purpose {
        Purpose::Run => (true, RUN_FRACTION),
        Purpose::Try => (false, TRY_FRACTION),
    };
    let mut options = vec![
        (PREALLOCATE.to_owned(), Value::Bool(preallocate)),
        (FRACTION.to_owned(), Value::Float(fraction)),
        (VISIBLE.to_owned(), Value::Ints(vec![0])),
    ];
    options.retain(|(name, _)| given.iter().all(|(other, _)| other != name));
    let decided = options.iter().any(|(name, _)| name == FRACTION);
    options.extend(given);
    let client = create_client(plugin, &options)?;
    let (Some(asked), true, Purpose::Run) = (config.capacity_bytes, decided, config.purpose) else {
        return Ok((client, options));
    };
    // Nothing is allocated yet. The limit says how much the device has, of which the right part is
    // taken by a second client.
    let devices = client.addressable_devices().map_err(vendor)?;
    let stats = devices
        .first()
        .map(|device| optional(device.memory_stats()));
    let Some(limit) = stats.transpose()?.flatten().and_then(limit_bytes) else {
        return Ok((client, options));
    };
    let total = limit as f64 / f64::from(fraction);
    if asked as f64 > total {
        return Err(error(
            INVALID_ARGUMENT,
            format!(
                "{} of memory are asked for (`--memory`), and the device has {}",
                gib(asked),
                gib(total as u64)
            ),
        )
        .hint("ask for less, or leave `--memory` out: nine tenths of the device are taken then"));
    }
    drop((devices, client));
    let taken = with_gaps(asked).min(limit.max(asked));
    for (name, value) in &mut options {
        if name == FRACTION {
            // Rounded up, so that the pool is not some bytes too small.
            *value = Value::Float(((taken as f64 / total) as f32).next_up().min(1.0));
        }
    }
    Ok((create_client(plugin, &options)?, options))
}

/// Takes the pool of a device that has memory of its own. Returns how much of it may be given away: the
/// least of what was asked for, what the allocator allows and what it has got.
pub(super) fn take(
    device: &Device,
    transfers: &Transfers,
    config: &PjrtConfig,
    options: &Options,
) -> Result<u64, Error> {
    let preallocates = options
        .iter()
        .any(|(name, value)| name == PREALLOCATE && *value == Value::Bool(true));
    if preallocates {
        transfers.touch(&device.default_memory().map_err(vendor)?)?;
    }
    let stats = optional(device.memory_stats())?;
    let Some(limit) = stats.and_then(limit_bytes) else {
        return config.capacity_bytes.ok_or_else(|| {
            error(
                INVALID_ARGUMENT,
                "the plugin does not say how much memory its device has, or how much is in use \
                 (its allocators `platform` and `vmm` do not)",
            )
            .hint(
                "say how much Salus may use (`--memory 16GiB`, or `[device] memory`), or choose \
                 another allocator in `[device.options]`",
            )
        });
    };
    let wanted = config
        .capacity_bytes
        .map_or(limit, |asked| asked.min(limit));
    let pool = stats.and_then(|stats| u64::try_from(stats.pool_bytes?).ok());
    let pool = pool.filter(|_| preallocates).unwrap_or(wanted);
    let (part, of) = LEAST_PART;
    if pool < wanted / of * part {
        return Err(error(
            RESOURCE_EXHAUSTED,
            format!(
                "{} of the device's memory are wanted, and only {} could be had: somebody else \
                 holds the rest",
                gib(wanted),
                gib(pool)
            ),
        )
        .hint(
            "end the other processes on this device (`nvidia-smi` lists them), or ask for less \
             memory with `--memory`",
        ));
    }
    Ok(wanted.min(pool))
}

/// What an allocator that cannot move arrays loses to gaps, beyond what was asked for: XLA's gives a
/// whole free block away if less than 128 MiB of it would be left.
fn with_gaps(asked: u64) -> u64 {
    asked.saturating_add(asked / 16).saturating_add(256 << 20)
}

fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30))
}

fn limit_bytes(stats: DeviceMemoryStats) -> Option<u64> {
    u64::try_from(stats.bytes_limit?)
        .ok()
        .filter(|&bytes| bytes > 0)
}

/// Options for further clients beside one that has its pool: they take what they need when they need
/// it.
pub(super) fn beside(mut options: Options) -> Options {
    for (name, value) in &mut options {
        match name.as_str() {
            PREALLOCATE => *value = Value::Bool(false),
            FRACTION => *value = Value::Float(TRY_FRACTION),
            _ => {}
        }
    }
    options
}
