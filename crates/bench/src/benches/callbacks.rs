//! `salus bench callbacks`: what it costs that a program calls a function of its job
//! (`jax.pure_callback`), and what a job that does so a thousand times a second costs another.
//!
//! The plugin by itself cannot call back, so JAX's own CPU backend stands in for the direct side: it
//! runs the function in the thread that runs the program.
//!
//! The job and the service run on two cores and both sleep while the other works, so that each wakes a
//! core that has halted. The round trip that the cost is counted in does the same ([`RoundTrip`]).

use crate::contenders::Reference;
use crate::rows::reads::RoundTrip;
use crate::rows::row_table::{Measure, Row};
use crate::rows::run::{self, Arguments, Table};
use salus_console::Outcome;

const CALLBACKS: Table = Table {
    name: "callbacks",
    rows: ROWS,
    reference: Reference::JaxCpu,
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "callback_launch",
        what: "launch with one callback, result read: added time in socket round trips",
        measure: Measure::Reads {
            target: 3.0,
            unit: RoundTrip::AcrossCores,
        },
        rounds: 40,
    },
    Row {
        name: "callback_loop",
        what: "one callback of a hundred in a launch: added time in socket round trips",
        measure: Measure::Reads {
            target: 3.0,
            unit: RoundTrip::AcrossCores,
        },
        rounds: 40,
    },
    Row {
        name: "neighbour_loop",
        what: "training step of about 10 ms beside 1,000 callbacks a second, a hundred in a launch",
        measure: Measure::Neighbour {
            calls: "calls_in_loop",
            target: 1.05,
        },
        rounds: 40,
    },
    Row {
        name: "neighbour_launch",
        what: "training step of about 10 ms beside 1,000 callbacks a second, each in a launch",
        measure: Measure::Neighbour {
            calls: "calls_each_launch",
            target: 1.05,
        },
        rounds: 40,
    },
];

pub(crate) fn callbacks(arguments: &Arguments) -> Outcome {
    run::run(&CALLBACKS, arguments)
}
