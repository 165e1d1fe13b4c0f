//! Recordings of a real service: what `salus trace record` writes and `salus sim` replays.
//!
//! A text of JSON lines. The first is a [`Header`] with the version of the format, the last says that the
//! recording is whole ([`End`]); between them each [`Line`] is one thing that happened, in the order in
//! which it was noticed. Times are nanoseconds of the service's own clock.
//!
//! Promise: what is written is read again as it was; a text that is cut off, damaged or of another
//! version is an error that names the line, and whatever the text, nothing panics.
//! Not here: following a service (`cli`), what becomes of the jobs in a simulation (`replay.rs`).

mod replay;
mod report;

use std::num::{NonZeroU32, NonZeroU64};

use salus_engine::{Duration, JobSettings, NonZeroDuration, Policy, Priority, Weight, Work};
use serde::{Deserialize, Serialize};

pub use report::{Replay, ReplayedJob, replays_shown};

use crate::scenario::tokens::Problem;

/// The version of the format that is written and read.
pub const VERSION: u32 = 1;

/// The first line: what was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub salus_recording: u32,
    pub device: String,
    pub kind: String,
    /// At the beginning.
    pub policy: String,
    pub memory_bytes: u64,
    /// For what is paged out.
    pub host_bytes: u64,
    pub lanes: u32,
    /// How many of the lanes are open, unless the policy opens all.
    pub width: u32,
    /// When the service's clock was 0, in nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// When the recording began.
    pub at_ns: u64,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Opened(Opened),
    Changed(Changed),
    Closed(Closed),
    /// It was still open at the end of the recording.
    StillOpen(Closed),
    Program(Program),
    Iteration(Iteration),
    /// A wait that led to no iteration: for an array's room, or it was given up.
    Waited(Waited),
    Moved(Moved),
    Paused(Span),
    Compiled(Span),
    Refused(Refused),
    Policy(PolicyChange),
    Lost(Lost),
    End(End),
}

/// A session was opened, or was there when the recording began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub session: u64,
    pub name: String,
    pub at_ns: u64,
    #[serde(flatten)]
    pub settings: Settings,
}

/// Other settings hold from then on; the time is when that was noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    pub session: u64,
    pub at_ns: u64,
    #[serde(flatten)]
    pub settings: Settings,
}

/// What a job's user asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub weight: NonZeroU32,
    pub priority: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<NonZeroU64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<NonZeroU64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_ns: Option<NonZeroU64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max_bytes: Option<NonZeroU64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    pub session: u64,
    pub at_ns: u64,
    /// The most that its arrays took, on the device and paged out.
    pub memory_bytes: u64,
    /// The most that one of its iterations took while it ran.
    pub scratch_bytes: u64,
    /// Device time of earlier sessions like it, if the service knew some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalled_ns: Option<u64>,
}

/// What a program is called. Its number is in hexadecimal digits, because many readers of JSON round
/// large numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    #[serde(with = "hexadecimal")]
    pub program: u64,
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iteration {
    pub session: u64,
    #[serde(with = "hexadecimal")]
    pub program: u64,
    pub lane: u32,
    /// When its session asked for it, and when it was handed to its lane.
    pub ready_ns: u64,
    pub started_ns: u64,
    /// Of the time between these, how long memory was lacking.
    pub memory_ns: u64,
    /// When the lane had come to it, and when it ended.
    pub began_ns: u64,
    pub ended_ns: u64,
    /// Since the launch before, the job has read an array or waited for an operation.
    pub reads: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    pub session: u64,
    pub ready_ns: u64,
    pub until_ns: u64,
    pub memory_ns: u64,
}

/// Arrays went to host memory (`out`) or came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub session: u64,
    pub out: bool,
    pub bytes: u64,
    pub began_ns: u64,
    pub ended_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub session: u64,
    pub began_ns: u64,
    pub ended_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub session: u64,
    pub at_ns: u64,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChange {
    pub at_ns: u64,
    pub name: String,
}

/// The service forgot records before they were written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    pub records: u64,
    pub from_ns: u64,
    pub until_ns: u64,
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub at_ns: u64,
    /// `stopped`, `idle`, `time`, or what cut the recording short.
    pub why: String,
    pub sessions: u64,
    pub iterations: u64,
    pub lost_records: u64,
}

/// A recording that was read.
#[derive(Debug, Clone)]
pub struct Recording {
    pub header: Header,
    /// With their numbers in the text.
    pub(crate) lines: Vec<(usize, Line)>,
    /// Of the header.
    pub(crate) policy: Policy,
}

impl Recording {
    /// Whether a text is a recording, or the beginning of one.
    pub fn is_recording(text: &str) -> bool {
        let first = text.lines().next().unwrap_or_default();
        first.starts_with('{') && first.contains("\"salus_recording\"")
    }

    /// Reads one. With `partial`, what is missing is not asked for: its end, and what the service forgot.
    pub fn parse(text: &str, partial: bool) -> Result<Self, Problem> {
        let mut texts = (1..).zip(text.split_inclusive('\n'));
        let (_, first) = texts.next().unwrap_or((1, ""));
        let header = header(first)?;
        let policy = policy(1, &header.policy)?;
        let mut lines: Vec<(usize, Line)> = Vec::new();
        for (number, text) in texts {
            if !text.ends_with('\n') {
                // Lines are written whole, so this one was cut.
                if partial {
                    break;
                }
                return Err(cut_off(number));
            }
            let line = serde_json::from_str(text).map_err(|e| damaged(number, &e))?;
            check(number, &line)?;
            if let (Line::Lost(lost), false) = (&line, partial) {
                return Err(lacks(number, lost));
            }
            lines.push((number, line));
        }
        let ended = matches!(lines.last(), Some((_, Line::End(_))));
        if !ended && !partial {
            let last = lines.last().map_or(1, |(number, _)| *number);
            return Err(cut_off(last));
        }
        Ok(Self {
            header,
            lines,
            policy,
        })
    }

    /// The policy under which it was recorded, at its beginning.
    pub fn policy(&self) -> Policy {
        self.policy
    }
}

impl Header {
    pub fn to_text(&self) -> String {
        text_of(self)
    }
}

impl Line {
    /// With its newline.
    pub fn to_text(&self) -> String {
        text_of(self)
    }
}

fn text_of(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("its keys are text, and it has no other values");
    format!("{text}\n")
}

fn header(text: &str) -> Result<Header, Problem> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| damaged(1, &e))?;
    let version = value["salus_recording"].as_u64();
    if version != Some(VERSION.into()) {
        let version = version.map_or_else(|| "no version".into(), |n| format!("version {n}"));
        return Err(at(
            1,
            1,
            format!("this recording has {version}, and version {VERSION} is read here"),
        )
        .hint("replay it with the `salus` that recorded it"));
    }
    if !text.ends_with('\n') {
        return Err(cut_off(1));
    }
    serde_json::from_value(value).map_err(|e| damaged(1, &e))
}

fn at(line: usize, column: usize, what: String) -> Problem {
    Problem {
        line,
        column,
        what,
        hint: None,
    }
}

fn cut_off(line: usize) -> Problem {
    let what = "the recording is cut off here: its end line is missing";
    at(line, 1, what.into()).hint("`--partial` replays what is there")
}

fn damaged(line: usize, why: &serde_json::Error) -> Problem {
    // It names a line of its own, which is always the first.
    let why = why.to_string();
    let what = why.split(" at line ").next().unwrap_or_default();
    at(line, 1, format!("the line is damaged: {what}"))
}

fn lacks(line: usize, lost: &Lost) -> Problem {
    let Lost { records, .. } = lost;
    let ms = lost.until_ns.saturating_sub(lost.from_ns) / 1_000_000;
    let what = format!("{records} records of {ms} ms were lost before they were written down");
    at(line, 1, what).hint("`--partial` replays what is there")
}

/// What the types do not say: names that must be known, and times that must be in order.
fn check(number: usize, line: &Line) -> Result<(), Problem> {
    let in_order = |times: &[u64]| match times.is_sorted() {
        true => Ok(()),
        false => {
            let what = "the times of this line are not in order";
            Err(at(number, 1, what.into()))
        }
    };
    match line {
        Line::Opened(Opened { settings, .. }) | Line::Changed(Changed { settings, .. }) => {
            settings.read(number).map(drop)
        }
        Line::Policy(change) => policy(number, &change.name).map(drop),
        Line::Iteration(i) => in_order(&[i.ready_ns, i.started_ns, i.began_ns, i.ended_ns]),
        Line::Waited(w) => in_order(&[w.ready_ns, w.until_ns]),
        Line::Moved(m) => in_order(&[m.began_ns, m.ended_ns]),
        Line::Paused(s) | Line::Compiled(s) => in_order(&[s.began_ns, s.ended_ns]),
        _ => Ok(()),
    }
}

fn policy(number: usize, name: &str) -> Result<Policy, Problem> {
    let found = Policy::ALL.into_iter().find(|policy| policy.name() == name);
    found.ok_or_else(|| {
        at(
            number,
            1,
            format!("`{}` is not a policy", name.escape_debug()),
        )
    })
}

impl Settings {
    pub fn of(settings: &JobSettings) -> Self {
        let (iterations, expect_ns) = match settings.work {
            Some(Work::Iterations(count)) => (Some(count), None),
            Some(Work::DeviceTime(time)) => (None, NonZeroU64::new(time.as_nanos())),
            None => (None, None),
        };
        let deadline = settings.deadline;
        Self {
            weight: settings.weight.0,
            priority: settings.priority.name().into(),
            deadline_ns: deadline.and_then(|time| NonZeroU64::new(time.as_nanos())),
            iterations,
            expect_ns,
            memory_max_bytes: settings.memory_max,
        }
    }

    fn read(&self, line: usize) -> Result<JobSettings, Problem> {
        let priority = Priority::ALL
            .into_iter()
            .find(|one| one.name() == self.priority);
        let time = |ns: NonZeroU64| NonZeroDuration::from_nanos(ns.get());
        Ok(JobSettings {
            weight: Weight(self.weight),
            priority: priority.ok_or_else(|| {
                let name = self.priority.escape_debug();
                at(line, 1, format!("`{name}` is not a priority"))
            })?,
            deadline: self.deadline_ns.and_then(time),
            work: match (self.iterations, self.expect_ns) {
                (Some(count), _) => Some(Work::Iterations(count)),
                (None, expect) => expect.and_then(time).map(Work::DeviceTime),
            },
            memory_max: self.memory_max_bytes,
        })
    }
}

/// How long a span was.
fn length(from_ns: u64, until_ns: u64) -> Duration {
    Duration(until_ns.saturating_sub(from_ns))
}

mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{number:016x}"))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
    }
}
