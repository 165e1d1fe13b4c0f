//! `salus bench overhead`: the same work directly on the plugin and through Salus.

use salus_console::Outcome;

use crate::contenders::Reference;
use crate::rows::reads::RoundTrip;
use crate::rows::row_table::{Measure, Row};
use crate::rows::run::{self, Arguments, Table};

pub(crate) const OVERHEAD: Table = Table {
    name: "overhead",
    rows: ROWS,
    reference: Reference::Plugin,
};

const STEP: &str = "step_us";

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "step_10ms_mlp",
        what: "training step of about 10 ms, MLP, loss read every 10 steps",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.02,
        },
        rounds: 60,
    },
    Row {
        name: "step_10ms_transformer",
        what: "training step of about 10 ms, transformer, loss read every 10 steps",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.02,
        },
        rounds: 60,
    },
    Row {
        name: "step_1ms",
        what: "step of about 1 ms, loss read every 100 steps",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.03,
        },
        rounds: 60,
    },
    Row {
        name: "step_100us",
        what: "step of about 0.1 ms, loss read every 100 steps",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.2,
        },
        rounds: 40,
    },
    Row {
        name: "step_100ms",
        what: "training step of about 100 ms with 60 MiB of scratch or more",
        measure: Measure::Blocks {
            key: STEP,
            target: 0.85,
        },
        rounds: 20,
    },
    Row {
        name: "unread_1ms",
        what: "loop with donation whose loss is never read, 1 ms",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.0,
        },
        rounds: 60,
    },
    Row {
        name: "unread_10ms",
        what: "loop with donation whose loss is never read, 10 ms",
        measure: Measure::Blocks {
            key: STEP,
            target: 1.0,
        },
        rounds: 60,
    },
    Row {
        name: "read_100us",
        what: "result read each step, 0.1 ms: added time in socket round trips",
        measure: Measure::Reads {
            target: 1.5,
            unit: RoundTrip::AsPlaced,
        },
        rounds: 40,
    },
    Row {
        name: "read_1ms",
        what: "result read each step, 1 ms: added time in socket round trips",
        measure: Measure::Reads {
            target: 1.5,
            unit: RoundTrip::AsPlaced,
        },
        rounds: 60,
    },
    Row {
        name: "execute",
        what: "time in the job's thread for one asynchronous Execute, transformer",
        measure: Measure::Blocks {
            key: "call_us",
            target: 1.0,
        },
        rounds: 40,
    },
    Row {
        name: "transfer",
        what: "64 MiB against one warm memcpy",
        measure: Measure::Transfers { target: 1.5 },
        rounds: 30,
    },
    Row {
        name: "start_mlp",
        what: "time to first step, MLP",
        measure: Measure::Start { model: "mlp_1ms" },
        rounds: 8,
    },
    Row {
        name: "start_transformer",
        what: "time to first step, transformer",
        measure: Measure::Start {
            model: "transformer_10ms",
        },
        rounds: 8,
    },
    Row {
        name: "load_mlp",
        what: "time to have a program that another session has loaded, MLP",
        measure: Measure::Load,
        rounds: 9,
    },
    Row {
        name: "load_transformer",
        what: "time to have a program that another session has loaded, transformer",
        measure: Measure::Load,
        rounds: 9,
    },
    Row {
        name: "wakeups_unread",
        what: "wake-ups a step of job and service, 1 ms, loss never read",
        measure: Measure::WakeUps {
            steps: "unread_1ms",
        },
        rounds: 10,
    },
    Row {
        name: "wakeups_read",
        what: "wake-ups a step of job and service, 1 ms, result read each step",
        measure: Measure::WakeUps { steps: "read_1ms" },
        rounds: 10,
    },
    Row {
        name: "idle_cpu",
        what: "CPU of an idle service with ten idle sessions over 10 s",
        measure: Measure::Idle,
        rounds: 1,
    },
    Row {
        name: "session_memory",
        what: "memory of the service for one more session",
        measure: Measure::Memory,
        rounds: 1,
    },
];

pub(crate) fn overhead(arguments: &Arguments) -> Outcome {
    run::run(&OVERHEAD, arguments)
}
