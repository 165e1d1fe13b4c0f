//! The three sides of a comparison: processes that live for the whole run and take turns.
//!
//! Two of them are equal and run without Salus, because the ratio between two equals is what the
//! machine's noise alone makes of 1. While one works, the others sleep in `read`.

pub(crate) mod helper_processes;
pub(crate) mod jobs;
pub(crate) mod queue;
pub(crate) mod service;
pub(crate) mod sessions;
pub(crate) mod setup;

use std::io::Write;
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use salus_daemon::config::Problem;
use salus_harness::{LineReader, Process};
use serde_json::{Value, json};

use crate::contenders::service::PrivateService;
use crate::contenders::setup::{Route, Setup};

/// Import, compilation and first steps of a model, on a machine that is busy with other things.
const PREPARE_TIME: Duration = Duration::from_secs(300);
/// What a block may take beyond the time it was given: its last steps, and a slow machine.
const BLOCK_TIME: Duration = Duration::from_secs(120);
/// Before a block: lets the threads of the side that worked last go to sleep.
const SETTLE: Duration = Duration::from_millis(20);

/// Positions in [`Sides::all`] and in the samples of a round.
pub(crate) const DIRECT: usize = 0;
pub(crate) const SALUS: usize = 1;
pub(crate) const AGAIN: usize = 2;
pub(crate) const SIDES: usize = 3;

/// What Salus is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    /// The same plugin, used directly.
    Plugin,
    /// JAX's own CPU backend, for what the plugin alone cannot do.
    JaxCpu,
}

impl Reference {
    fn route(self) -> Route {
        match self {
            Self::Plugin => Route::Direct,
            Self::JaxCpu => Route::JaxCpu,
        }
    }

    /// `direct 84 µs, Salus …`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plugin => "direct",
            Self::JaxCpu => "JAX's own",
        }
    }

    /// `two processes that both use …`.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Plugin => "the plugin directly",
            Self::JaxCpu => "JAX's own CPU backend",
        }
    }
}

pub(crate) struct Sides {
    all: [Side; SIDES],
    /// After the sides, so that it outlives them: a job whose service ends first complains.
    daemon: PrivateService,
}

pub(crate) struct Side {
    name: &'static str,
    process: Process,
    commands: ChildStdin,
    answers: LineReader<ChildStdout>,
}

impl Sides {
    pub(crate) fn start(setup: &Setup, reference: Reference) -> Result<Self, Problem> {
        let daemon = PrivateService::start(setup)?;
        let through = Route::Salus(daemon.socket().to_owned(), Vec::new());
        let without = reference.route();
        Ok(Self {
            all: [
                Side::start(setup, "direct", &without)?,
                Side::start(setup, "salus", &through)?,
                Side::start(setup, "again", &without)?,
            ],
            daemon,
        })
    }

    /// Lets every side compile the row and run it for a while. Returns what the first side says.
    pub(crate) fn prepare(&mut self, row: &str, warm: Duration) -> Result<Value, Problem> {
        let command = json!({ "do": "prepare", "row": row });
        let sides = self.all.iter_mut().map(|side| (side, command.clone()));
        let said = ask_at_once(sides, PREPARE_TIME)?;
        for side in 0..SIDES {
            self.block(side, row, warm)?;
        }
        Ok(said.into_iter().next().unwrap_or_default())
    }

    pub(crate) fn block(
        &mut self,
        side: usize,
        row: &str,
        time: Duration,
    ) -> Result<Value, Problem> {
        std::thread::sleep(SETTLE);
        let command = json!({ "do": "block", "row": row, "seconds": time.as_secs_f64() });
        self.all[side].ask(&command, time + BLOCK_TIME)
    }

    /// The process of a side.
    pub(crate) fn job(&self, side: usize) -> u32 {
        self.all[side].process.pid()
    }

    /// The processes of the service that one of the sides uses.
    pub(crate) fn service(&self) -> Vec<u32> {
        self.daemon.processes()
    }

    /// Frees what the row held, so that rows do not disturb each other.
    pub(crate) fn drop_row(&mut self, row: &str) -> Result<(), Problem> {
        for side in &mut self.all {
            side.ask(&json!({ "do": "drop", "row": row }), BLOCK_TIME)?;
        }
        Ok(())
    }
}

/// Asks each side its own and waits for all: while one traces its program, another's is compiled.
pub(crate) fn ask_at_once<'a>(
    asked: impl Iterator<Item = (&'a mut Side, Value)>,
    time: Duration,
) -> Result<Vec<Value>, Problem> {
    let mut asked: Vec<_> = asked.collect();
    for (side, command) in &mut asked {
        side.tell(command)?;
    }
    let answers = asked
        .into_iter()
        .map(|(side, command)| side.hear(&command, time));
    answers.collect()
}

impl Side {
    pub(crate) fn start(setup: &Setup, name: &'static str, route: &Route) -> Result<Self, Problem> {
        let mut process = setup.start(name, route, &["serve"])?;
        let (Some(commands), Some(answers)) = (process.input(), process.output()) else {
            return Err(Problem::new(format!("the side `{name}` has no pipes")));
        };
        Ok(Self {
            name,
            process,
            commands,
            answers: LineReader::new(answers),
        })
    }

    pub(crate) fn ask(&mut self, command: &Value, time: Duration) -> Result<Value, Problem> {
        self.tell(command)?;
        self.hear(command, time)
    }

    pub(crate) fn tell(&mut self, command: &Value) -> Result<(), Problem> {
        let told = writeln!(self.commands, "{command}").and_then(|()| self.commands.flush());
        told.map_err(|e| self.failed(command, &e.to_string()))
    }

    /// The answer to the command that was told.
    pub(crate) fn hear(&mut self, command: &Value, time: Duration) -> Result<Value, Problem> {
        let what = match self.answers.next(time) {
            Ok(line) => match serde_json::from_str::<Value>(&line) {
                Ok(answer) if answer.get("error").is_none() => return Ok(answer),
                Ok(answer) => answer["error"].as_str().unwrap_or("?").to_owned(),
                Err(_) => format!("it answered `{line}`"),
            },
            Err(e) => e.to_string(),
        };
        Err(self.failed(command, &what))
    }

    /// The answer to what was told last, if it is there.
    pub(crate) fn try_hear(&mut self) -> Result<Option<Value>, Problem> {
        match self.answers.is_there() {
            true => self.hear(&Value::Null, BLOCK_TIME).map(Some),
            false => Ok(None),
        }
    }

    fn failed(&mut self, command: &Value, what: &str) -> Problem {
        let side = self.name;
        self.process
            .problem(&format!("the side `{side}` did not do {command}: {what}"))
    }
}
