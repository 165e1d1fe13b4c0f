//! Parses a scenario's text, line by line: settings, jobs, and what happens at a time.
//!
//! Promise: whatever the text, the answer is a scenario that can be run or the first problem in it.

use salus_engine::{Duration, Policy, Room, Time};

use crate::scenario::job_items::{self, ITERATIONS_MAX};
use crate::scenario::quantity;
use crate::scenario::tokens::{Line, Problem, Token};
use crate::scenario::{Command, Job, Scenario};

/// A picture with more rows says nothing.
const JOBS_MAX: usize = 100;
const COMMANDS_MAX: usize = 1000;
const NAME_MAX: usize = 20;
/// The picture has a digit for each.
const LANES_MAX: u64 = 9;

const SETTINGS: &[&str] = &[
    "policy", "lanes", "width", "device", "host", "link", "step", "until",
];
const COMMANDS: &[&str] = &["pause", "resume", "kill", "change", "policy"];

/// What was read so far.
#[derive(Debug, Default)]
struct Draft<'a> {
    policy: Option<Policy>,
    lanes: Option<u64>,
    width: Option<(Token<'a>, u64)>,
    device_bytes: Option<u64>,
    host_bytes: Option<u64>,
    link_bytes: Option<u64>,
    step: Option<Duration>,
    until: Option<Duration>,
    jobs: Vec<Job>,
    iterations: u64,
    commands: Vec<Given<'a>>,
}

/// A command whose job may stand further down.
#[derive(Debug)]
struct Given<'a> {
    at: Time,
    job: Option<Token<'a>>,
    /// Of job 0, where it is about a job.
    command: Command,
}

pub(crate) fn scenario(text: &str) -> Result<Scenario, Problem> {
    let mut draft = Draft::default();
    let mut last = 1;
    for (number, text) in (1..).zip(text.lines()) {
        let mut line = Line::new(number, text);
        if !line.is_empty() {
            draft.line(&mut line)?;
        }
        last = number;
    }
    draft.finish(last)
}

impl<'a> Draft<'a> {
    fn line(&mut self, line: &mut Line<'a>) -> Result<(), Problem> {
        let word = line.next("a name")?;
        if SETTINGS.contains(&word.text) {
            if line.peek().is_some_and(|next| next.text == ":") {
                let what = format!("{} is a setting, and cannot be a job's name", word.quoted());
                return Err(word.problem(what));
            }
            self.setting(&word, line)?;
            return line.ends();
        }
        if word.text == "at" {
            return self.command(line);
        }
        if !line.takes(":") {
            let hint = "a job's line begins with its name and a colon, a command's with `at`; \
                        settings are";
            return Err(word.unknown("a setting", hint, SETTINGS));
        }
        self.job(&word, line)
    }

    fn setting(&mut self, word: &Token<'a>, line: &mut Line<'a>) -> Result<(), Problem> {
        match word.text {
            "policy" => {
                let policy = policy(&line.next("a policy")?)?;
                word.once(&mut self.policy, policy)
            }
            "lanes" => {
                let lanes = quantity::count(&line.next("a number")?, 1, LANES_MAX)?;
                word.once(&mut self.lanes, lanes)
            }
            "width" => {
                let value = line.next("a number")?;
                let width = quantity::count(&value, 1, LANES_MAX)?;
                word.once(&mut self.width, (value, width))
            }
            "device" => {
                let bytes = quantity::size(&line.next("a size")?)?;
                word.once(&mut self.device_bytes, bytes)
            }
            "host" => {
                let bytes = quantity::size(&line.next("a size")?)?;
                word.once(&mut self.host_bytes, bytes)
            }
            "link" => {
                let bytes = quantity::rate(&line.next("a rate")?)?;
                word.once(&mut self.link_bytes, bytes)
            }
            "step" => {
                let step = quantity::some_time(&line.next("a time")?)?;
                word.once(&mut self.step, step)
            }
            _ => {
                let until = quantity::some_time(&line.next("a time")?)?;
                word.once(&mut self.until, until)
            }
        }
    }

    fn job(&mut self, name: &Token<'a>, line: &mut Line<'a>) -> Result<(), Problem> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !name.text.chars().all(plain) || name.text.len() > NAME_MAX {
            let what = format!("{} is not a name", name.quoted());
            return Err(name.problem(what).hint(format!(
                "names have letters, digits, `-`, `_` and `.`, at most {NAME_MAX} of them"
            )));
        }
        if self.find(name).is_some() {
            return Err(name.problem(format!("there are two jobs {}", name.quoted())));
        }
        if self.jobs.len() == JOBS_MAX {
            return Err(name.problem(format!("there are more than {JOBS_MAX} jobs")));
        }
        let program = self.jobs.len() as u64;
        let job = job_items::job(name, line, program)?;
        self.iterations += job.iterations;
        if self.iterations > ITERATIONS_MAX {
            return Err(name.problem(format!(
                "with {} the jobs have {} iterations together, {ITERATIONS_MAX} are the most",
                name.quoted(),
                self.iterations
            )));
        }
        self.jobs.push(job);
        Ok(())
    }

    /// `at 100ms: pause a`; the `at` was read.
    fn command(&mut self, line: &mut Line<'a>) -> Result<(), Problem> {
        let at = Time(quantity::time(&line.next("a time")?)?.0);
        if !line.takes(":") {
            let word = line.next("a colon")?;
            let what = format!("expected a colon, found {}", word.quoted());
            return Err(word.problem(what).hint("`at 100ms: pause a`"));
        }
        let verb = line.next("a command")?;
        if !COMMANDS.contains(&verb.text) {
            return Err(verb.unknown("a command", "commands are", COMMANDS));
        }
        if self.commands.len() == COMMANDS_MAX {
            return Err(verb.problem(format!("there are more than {COMMANDS_MAX} commands")));
        }
        let (job, command) = if verb.text == "policy" {
            (None, Command::Policy(policy(&line.next("a policy")?)?))
        } else {
            let name = line.next("a job's name")?;
            let command = match verb.text {
                "pause" => Command::Pause { job: 0 },
                "resume" => Command::Resume { job: 0 },
                "kill" => Command::Kill { job: 0 },
                _ => Command::Change {
                    job: 0,
                    settings: job_items::settings(line)?,
                },
            };
            (Some(name), command)
        };
        line.ends()?;
        self.commands.push(Given { at, job, command });
        Ok(())
    }

    fn find(&self, name: &Token<'_>) -> Option<usize> {
        self.jobs.iter().position(|job| job.name == name.text)
    }

    fn finish(self, last: usize) -> Result<Scenario, Problem> {
        if self.jobs.is_empty() {
            return Err(Problem {
                line: last,
                column: 1,
                what: "the scenario has no jobs".into(),
                hint: Some("a job is a line such as `a: 5 x 10ms`".into()),
            });
        }
        let lanes = self.lanes.unwrap_or(1);
        if let Some((word, width)) = self.width.filter(|(_, width)| *width > lanes) {
            let what = format!("a width of {width} is more than there are lanes, {lanes}");
            return Err(word
                .problem(what)
                .hint("`lanes 2` gives the device two lanes"));
        }
        let width = self.width.map_or(lanes, |(_, width)| width);
        let commands: Result<Vec<_>, _> = self.commands.iter().map(|c| self.named(c)).collect();
        let mut commands = commands?;
        commands.sort_by_key(|(at, _)| *at);
        Ok(Scenario {
            policy: self.policy.unwrap_or(Policy::Fair),
            lanes: lanes as u32,
            width: width as u32,
            room: Room {
                device_bytes: self.device_bytes.unwrap_or(16 << 30),
                host_bytes: self.host_bytes.unwrap_or(64 << 30),
                user_max: None,
            },
            link_bytes: self.link_bytes.unwrap_or(10 << 30),
            step: self.step,
            until: self.until.map(|until| Time(until.0)),
            jobs: self.jobs,
            commands,
        })
    }

    /// The command with its job, which must be there by then.
    fn named(&self, given: &Given<'_>) -> Result<(Time, Command), Problem> {
        let Given { at, job, command } = given;
        let Some(name) = job else {
            return Ok((*at, *command));
        };
        let Some(job) = self.find(name) else {
            let names: Vec<&str> = self.jobs.iter().map(|job| job.name.as_str()).collect();
            return Err(name.unknown("a job", "jobs are", &names));
        };
        let from = self.jobs[job].from;
        if *at < from {
            let (at, from) = (Duration(at.0), Duration(from.0));
            return Err(name.problem(format!(
                "{} arrives at {}, after {}",
                name.quoted(),
                quantity::show_time(from),
                quantity::show_time(at)
            )));
        }
        let command = match *command {
            Command::Pause { .. } => Command::Pause { job },
            Command::Resume { .. } => Command::Resume { job },
            Command::Kill { .. } => Command::Kill { job },
            Command::Change { settings, .. } => Command::Change { job, settings },
            Command::Policy(policy) => Command::Policy(policy),
        };
        Ok((*at, command))
    }
}

fn policy(word: &Token<'_>) -> Result<Policy, Problem> {
    Policy::named(word.text).ok_or_else(|| {
        let names = Policy::ALL.map(Policy::name);
        word.unknown("a policy", "policies are", &names)
    })
}
