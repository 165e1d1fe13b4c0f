//! `salus bench`: what Salus costs on this machine.
//!
//! `overhead` compares the same work directly on the vendor's plugin and through Salus. Its parts
//! in the order in which a run meets them: `setup` finds Python, plugin and library; `process`,
//! `side` and `daemon` start what is compared; `rounds` lets the sides take turns; one file per
//! kind of row (`blocks`, `reads`, `transfers`, `start`, `idle`, …) turns numbers into findings;
//! `stats` judges them; `report` prints. `callbacks` is another table of such rows.
//!
//! Promise: whatever it starts ends with it, and nothing of the user's services, caches or
//! configuration is used or touched.

mod blocks;
mod burst;
mod callbacks;
mod daemon;
mod idle;
mod jobs;
mod lines;
mod loads;
mod machine;
mod neighbour;
mod overhead;
mod packing;
mod paging;
mod peers;
mod policies;
mod process;
mod progress;
mod reads;
mod report;
mod rounds;
mod rows;
mod sessions;
mod setup;
mod side;
mod start;
mod stats;
mod switch;
mod transfers;
mod wakeups;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{Format, Outcome};

/// What most benches take.
#[derive(Args)]
struct Common {
    /// How to print it; `json` has every number
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Short and small: shows that everything runs, resolves nothing
    #[arg(long)]
    quick: bool,
    /// A Python with jax, flax, optax and xla-cpu-pjrt [default: SALUS_PYTHON, else the one beside
    /// this program, else python3]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Compare the same work directly on the plugin and through Salus
    Overhead(overhead::Arguments),

    /// Measure what callbacks cost, against JAX's own CPU backend, and what they cost other jobs
    Callbacks(overhead::Arguments),

    /// Let jobs that do not fit the device together run one after another and at once
    Paging(paging::Arguments),

    /// Let two jobs run side by side, against two processes without Salus
    Packing(packing::Arguments),

    /// Hold shares, latencies and completion times of real jobs against what policies promise
    Policies(policies::Arguments),

    /// Measure what it costs the device to change jobs
    Switch(switch::Arguments),

    /// A part of `salus bench`
    #[command(hide = true)]
    Peer(peers::Arguments),
}

pub(crate) fn bench(arguments: &Arguments) -> Outcome {
    match &arguments.what {
        What::Overhead(arguments) => overhead::overhead(arguments),
        What::Callbacks(arguments) => callbacks::callbacks(arguments),
        What::Paging(arguments) => paging::paging(arguments),
        What::Packing(arguments) => packing::packing(arguments),
        What::Policies(arguments) => policies::policies(arguments),
        What::Switch(arguments) => switch::switch(arguments),
        What::Peer(arguments) => peers::peer(arguments),
    }
}
