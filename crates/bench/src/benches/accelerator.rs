//! `salus bench accelerator`: what only a device with memory of its own pays: copies each way.
//!
//! It runs on the stand-in for CUDA (`crates/standin`), whose link has a stated bandwidth: the figures
//! say how much of that link Salus uses and what a change of jobs costs on it, not how fast a GPU is.
//! Each row is measured with the service registering host memory for direct copies (`DmaMap`) and with a
//! plugin that cannot.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use salus_units::{Bytes, parse_bytes};
use serde_json::{Value, json};

use super::paging::{Moved, moves};
use crate::Common;
use crate::contenders::jobs::{Jobs, PREPARE_TIME, RUN_TIME};
use crate::contenders::setup::Setup;
use crate::json_text;
use crate::measure::machine;
use crate::measure::statistics::median;
use crate::report::{self, number};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// The stand-in's library, `libsalus_standin.so`
    #[arg(long, value_name = "PATH")]
    plugin: PathBuf,
    /// What the stand-in's link moves in a second, each way
    #[arg(long, value_name = "BYTES", default_value = "1GiB")]
    bandwidth: String,
}

/// How much faster the link is from and to memory that is registered with the device: what copying
/// through a staging buffer costs on real links, about.
const REGISTERED_FACTOR: u64 = 3;
/// What the row `transfer` of the worker moves.
const TRANSFER_BYTES: f64 = (64 << 20) as f64;
/// Two jobs of 236 MiB each take turns on this.
const SHARED: &str = "256MiB";
const STEPS: u32 = 60;
/// Where the stand-in counts how long its first device ran programs, in nanoseconds.
const BUSY_NS: u64 = (64 + 14) * 8;

/// A device with or without registered host memory.
struct Link {
    registers: bool,
    bytes_per_second: f64,
    state: PathBuf,
}

pub(crate) fn accelerator(arguments: &Arguments) -> Outcome {
    let bandwidth = parse_bytes(&arguments.bandwidth).filter(|bytes| *bytes > 0);
    let bandwidth = bandwidth.ok_or_else(|| {
        let found = &arguments.bandwidth;
        Problem::new(format!("--bandwidth: expected a size, found `{found}`"))
            .hint("such as 1GiB, of which the link moves as many in a second")
    })?;
    let mut setup = arguments.common.setup()?;
    let plugin = salus_daemon::paths::absolute(&arguments.plugin);
    let cpu_plugin = std::mem::replace(&mut setup.plugin, plugin);
    let mut found = json!({
        "machine": machine::description(&setup),
        "bandwidth_bytes_per_second": bandwidth,
        "registered_factor": REGISTERED_FACTOR,
    });
    for registers in [false, true] {
        let key = if registers { "registered" } else { "staged" };
        output::say(&format!("host memory {key}"));
        let state = setup.scratch.path().join(key);
        let standin = format!(
            "plugin={},state={},memory=1GiB,bandwidth={bandwidth},dma={},dma_factor={REGISTERED_FACTOR}",
            cpu_plugin.display(),
            state.display(),
            u8::from(registers),
        );
        setup.service_variables = vec![(salus_wire::env::STANDIN, standin.into())];
        let link = Link {
            registers,
            bytes_per_second: (bandwidth * if registers { REGISTERED_FACTOR } else { 1 }) as f64,
            state,
        };
        found[key] = link.measure(&setup, arguments.common.quick)?;
    }
    arguments
        .common
        .print(|| json_text(&found), || table(&found));
    Ok(ExitCode::SUCCESS)
}

impl Link {
    fn measure(&self, setup: &Setup, quick: bool) -> Result<Value, Problem> {
        Ok(json!({
            "registers": self.registers,
            "transfer": self.transfer(setup, quick)?,
            // New arrays are copied out; those that did not change are still in their pages.
            "paging_new": moves(setup, "replace_240", self.bytes_per_second)?[2],
            "paging_unchanged": moves(setup, "hold_240", self.bytes_per_second)?[2],
            "turns": self.turns(setup, quick)?,
        }))
    }

    /// 64 MiB until a program has read them, and back, in times of what the link takes.
    fn transfer(&self, setup: &Setup, quick: bool) -> Result<Value, Problem> {
        let mut jobs = Jobs::start(setup, &[])?;
        jobs.add(setup, &[])?
            .ask(&json!({ "do": "prepare", "row": "transfer" }), PREPARE_TIME)?;
        let seconds = if quick { 0.5 } else { 5.0 };
        let block = json!({ "do": "block", "row": "transfer", "seconds": seconds });
        let answer = jobs.all[0].ask(&block, RUN_TIME)?;
        let link_us = TRANSFER_BYTES / self.bytes_per_second * 1e6;
        let price = |key: &str| number(&answer[key]) / link_us;
        Ok(json!({ "to_program": price("to_program_us"), "to_host": price("to_host_us") }))
    }

    /// Two jobs that do not fit the device together: all at once against one after the other, and how
    /// long the device ran nothing meanwhile.
    fn turns(&self, setup: &Setup, quick: bool) -> Result<Value, Problem> {
        let mut jobs = Jobs::start(setup, &["--memory", SHARED])?;
        for _ in 0..2 {
            jobs.add(setup, &[])?;
        }
        let row = "hold_240";
        jobs.each(&json!({ "do": "prepare", "row": row }), PREPARE_TIME)?;
        let steps = json!({ "do": "block", "row": row, "seconds": STEPS });
        let mut rounds = Vec::new();
        for _ in 0..if quick { 1 } else { 3 } {
            let begun = Instant::now();
            for job in &mut jobs.all {
                job.ask(&steps, RUN_TIME)?;
            }
            let serial = begun.elapsed().as_secs_f64();
            let (before, busy) = (Moved::of(&jobs.report()?), self.busy_seconds()?);
            let begun = Instant::now();
            jobs.each(&steps, RUN_TIME)?;
            let together = begun.elapsed().as_secs_f64();
            let after = Moved::of(&jobs.report()?);
            let idle = together - (self.busy_seconds()? - busy);
            let moved = after.in_bytes - before.in_bytes + after.out_bytes - before.out_bytes;
            rounds.push((together / serial, idle / together, moved));
        }
        let column = |of: fn(&(f64, f64, f64)) -> f64| median(rounds.iter().map(of));
        Ok(json!({
            "ratio": column(|round| round.0),
            "idle_part": column(|round| round.1),
            "moved_bytes": column(|round| round.2),
            "moved_link_seconds": column(|round| round.2) / self.bytes_per_second,
        }))
    }

    fn busy_seconds(&self) -> Result<f64, Problem> {
        let mut word = [0; 8];
        let read = File::open(&self.state).and_then(|file| file.read_exact_at(&mut word, BUSY_NS));
        read.map_err(|e| Problem::new(format!("the stand-in's counts cannot be read: {e}")))?;
        Ok(u64::from_le_bytes(word) as f64 / 1e9)
    }
}

fn table(found: &Value) -> String {
    let bandwidth = Bytes(number(&found["bandwidth_bytes_per_second"]) as u64);
    let mut out = format!(
        "{}the stand-in for CUDA; its link moves {bandwidth}/s each way, {REGISTERED_FACTOR} times that \
         from and to registered memory (stated, not measured)\n\n{:<58}{:>10}{:>12}\n",
        report::header(&found["machine"]),
        "in times of what the link takes",
        "staged",
        "registered"
    );
    // Page-ins are handed to the device and not waited for: what they cost is in the last two rows.
    let rows = [
        (
            "64 MiB until a program has read them",
            "/transfer/to_program",
        ),
        ("64 MiB back to the host", "/transfer/to_host"),
        ("paging out arrays that are new", "/paging_new/out"),
        (
            "paging out arrays of which a part is unchanged",
            "/paging_unchanged/out",
        ),
        (
            "two jobs that take turns: all at once / one after another",
            "/turns/ratio",
        ),
        (
            "part of that time in which the device ran nothing",
            "/turns/idle_part",
        ),
    ];
    for (what, at) in rows {
        let value = |key: &str| match found[key].pointer(at).and_then(Value::as_f64) {
            Some(value) => format!("{value:.2}"),
            None => "-".into(),
        };
        let (staged, registered) = (value("staged"), value("registered"));
        out.push_str(&format!("{what:<58}{staged:>10}{registered:>12}\n"));
    }
    out
}
