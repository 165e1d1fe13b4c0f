//! `salus job ID …` and `salus explain JOB`: one session, by its number or its name.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use salus_daemon::config::Problem;
use salus_daemon::log::tame;
use salus_daemon::paths::Places;
use salus_units::{Bytes, show_ms};
use salus_wire::{NonZeroDuration, Priority, Request, Weight};
use serde_json::Value;

use crate::arguments::{parse_bytes, parse_time};
use crate::{Format, NO, Outcome, Where, ask, output};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Where,
    /// The session's number or name, as `salus ps` shows them
    #[arg(value_name = "JOB")]
    job: String,
    #[command(subcommand)]
    change: Change,
}

#[derive(Subcommand)]
enum Change {
    /// The most that it may hold from now on, on the device and paged out: 3GiB, 800MiB, `none`
    MemoryMax {
        #[arg(value_name = "BYTES", value_parser = limit)]
        bytes: Limit,
    },
    /// Its share of the device relative to others, under `fair` and `pack`
    Weight {
        #[arg(value_name = "N")]
        weight: Weight,
    },
    /// `high`, `normal` or `low`, under `priority`
    Priority {
        #[arg(value_name = "CLASS")]
        priority: Priority,
    },
    /// How soon an iteration should be done, under `deadline`: 20ms, 1.5s, `none`
    Deadline {
        #[arg(value_name = "TIME", value_parser = deadline, allow_hyphen_values = true)]
        time: Deadline,
    },
    /// Start nothing more of it; its memory may be paged out
    Pause,
    /// Let it go on
    Resume,
    /// End it
    Kill {
        /// Now, whatever it runs: starts its device host again, which ends all sessions of the device
        #[arg(long)]
        now: bool,
        /// Also where others lose their sessions
        #[arg(long, requires = "now")]
        yes: bool,
    },
}

impl Change {
    /// What is asked of the service, and what to say when it was done.
    fn ask(&self) -> (salus_wire::Change, String) {
        use salus_wire::Change as Asked;
        match self {
            Self::MemoryMax { bytes } => {
                let done = bytes.0.map_or("may hold what fits".into(), |bytes| {
                    format!("may hold at most {}", Bytes(bytes.get()))
                });
                (Asked::MemoryMax(bytes.0), done)
            }
            Self::Weight { weight } => (Asked::Weight(*weight), format!("has weight {weight}")),
            Self::Priority { priority } => (
                Asked::Priority(*priority),
                format!("has priority {}", priority.name()),
            ),
            Self::Deadline { time } => {
                let done = time.0.map_or("has no deadline".into(), |time| {
                    let shown = show_ms(Duration::from(time).as_secs_f64() * 1e3);
                    format!("has a deadline of {shown}")
                });
                (Asked::Deadline(time.0), done)
            }
            Self::Pause => (
                Asked::Pause,
                "is paused at the next boundary; `salus job` … `resume` lets it go on".into(),
            ),
            Self::Resume => (Asked::Resume, "goes on".into()),
            Self::Kill { now: false, .. } => (Asked::Kill, "ends at the next boundary".into()),
            Self::Kill { now: true, .. } => (
                Asked::KillNow,
                "is ended: the device host starts again".into(),
            ),
        }
    }
}

/// A deadline, or `none`.
#[derive(Clone, Copy)]
struct Deadline(Option<NonZeroDuration>);

fn deadline(text: &str) -> Result<Deadline, String> {
    if text == "none" {
        return Ok(Deadline(None));
    }
    let time = NonZeroDuration::try_from(parse_time(text)?).map_err(|e| e.to_string())?;
    Ok(Deadline(Some(time)))
}

#[derive(Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    place: Where,
    /// The session's number or name, as `salus ps` shows them
    #[arg(value_name = "JOB")]
    job: String,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// A limit in bytes, or `none`.
#[derive(Clone, Copy)]
struct Limit(Option<NonZeroU64>);

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        text => parse_bytes(text).map(|bytes| Limit(Some(bytes))),
    }
}

pub(crate) fn job(arguments: &Arguments) -> Outcome {
    let Some(Found {
        socket, session, ..
    }) = find(&arguments.place, &arguments.job)?
    else {
        return Ok(NO);
    };
    let id = session["id"].as_u64().unwrap_or(0);
    if let Change::Kill {
        now: true,
        yes: false,
    } = arguments.change
        && let Some(lost) = others(&socket, id, &session["device"])?
    {
        return Err(lost);
    }
    let (change, done) = arguments.change.ask();
    ask::ask(
        &socket,
        Request::Change {
            session: id,
            change,
        },
    )?;
    output::say(&format!("session {id} {done}"));
    Ok(ExitCode::SUCCESS)
}

/// What ending this session at once would cost others, if there are any.
fn others(socket: &Path, id: u64, device: &Value) -> Result<Option<Problem>, Problem> {
    let Some(report) = ask::ask(socket, Request::Report)? else {
        return Ok(None);
    };
    let sessions = report.json["sessions"].as_array().cloned();
    let sessions = sessions.unwrap_or_default();
    let others: Vec<String> = sessions
        .iter()
        .filter(|session| session["id"].as_u64() != Some(id) && session["device"] == *device)
        .map(|session| {
            let iterations = session["iterations"].as_u64().unwrap_or(0);
            let time = session["device_time_ms"].as_f64().unwrap_or(0.0);
            format!(
                "  session {} (`{}`, {}): {iterations} iterations, {} of device time",
                session["id"],
                tame(session["name"].as_str().unwrap_or("?")),
                tame(session["user"].as_str().unwrap_or("?")),
                show_ms(time),
            )
        })
        .collect();
    if others.is_empty() {
        return Ok(None);
    }
    let problem = Problem::new(format!(
        "the device host must start again for that, and these sessions would lose all that they have \
         on the device:\n{}",
        others.join("\n")
    ));
    Ok(Some(problem.hint(
        "`salus job JOB kill` waits for its iteration to end; `--now --yes` does not",
    )))
}

pub(crate) fn explain(arguments: &ExplainArguments) -> Outcome {
    let Some(found) = find(&arguments.place, &arguments.job)? else {
        return Ok(NO);
    };
    output::data(&match arguments.output {
        Format::Json => format!("{:#}\n", found.session),
        Format::Table => account(&found.session, found.several),
    });
    Ok(ExitCode::SUCCESS)
}

/// Where a session's time goes: the report's key, and what a person is shown.
const TIMES: [(&str, &str); 8] = [
    ("running_ms", "running: the device worked for it"),
    (
        "callback_ms",
        "callbacks: its iterations waited for its own process",
    ),
    ("turn_ms", "turn: others were before it, by the policy"),
    ("memory_ms", "memory: it waited for room on the device"),
    (
        "paging_ms",
        "paging: its arrays were paged out for others, or back in",
    ),
    (
        "compile_ms",
        "compiling: its programs were compiled or loaded",
    ),
    ("paused_ms", "paused: by `salus job`"),
    ("host_ms", "idle: the job was running on its host"),
];

/// Why it waits, what it holds, and where its time went; the parts add up. `several`: the service has
/// several devices.
fn account(session: &Value, several: bool) -> String {
    let text = |key: &str| tame(session[key].as_str().unwrap_or("?"));
    let size = |key: &str| Bytes(session[key].as_u64().unwrap_or(0)).to_string();
    let time = |key: &str| session["times"][key].as_f64().unwrap_or(0.0);
    let total: f64 = TIMES.iter().map(|(key, _)| time(key)).sum();
    let mut out = format!(
        "session {} (`{}`{}): {}\nit holds {} on the device and {} in host memory\n",
        session["id"],
        text("name"),
        match several {
            true => format!(", {}", text("device")),
            false => String::new(),
        },
        text("why"),
        size("resident_bytes"),
        size("paged_bytes"),
    );
    if let Some(remaining) = session["remaining_ms"].as_f64() {
        out.push_str(&format!(
            "it will need about {} more of the device\n",
            show_ms(remaining)
        ));
    }
    out.push_str(&format!("in {}:\n", show_ms(total)));
    for (key, what) in TIMES.iter().filter(|(key, _)| time(key) > 0.0) {
        let part = 100.0 * time(key) / total;
        let shown = show_ms(time(key));
        out.push_str(&format!("  {shown:>12}  {part:>5.1} %  {what}\n"));
    }
    out
}

/// The service and the session that is meant.
struct Found {
    socket: PathBuf,
    session: Value,
    /// The service has several devices.
    several: bool,
}

/// `None`: there is none, and that was said.
fn find(place: &Where, job: &str) -> Result<Option<Found>, Problem> {
    let places = Places::of_this_process();
    let named = place.socket.as_deref();
    let Some(socket) = ask::find(&places, named)? else {
        output::failure(&ask::nobody(&places, named));
        return Ok(None);
    };
    let Some(answered) = ask::ask(&socket, Request::Report)? else {
        output::failure(&ask::nobody(&places, named));
        return Ok(None);
    };
    let none = Vec::new();
    let sessions = answered.json["sessions"].as_array().unwrap_or(&none);
    let number: Option<u64> = job.parse().ok();
    let meant = |s: &&Value| {
        s["name"] == job || number.is_some_and(|number| s["id"].as_u64() == Some(number))
    };
    let mut found = sessions.iter().filter(meant);
    match (found.next(), found.next()) {
        (Some(session), None) => Ok(Some(Found {
            socket,
            session: session.clone(),
            several: answered.json["devices"].as_array().map_or(0, Vec::len) > 1,
        })),
        (Some(_), Some(_)) => Err(Problem::new(format!("several sessions are called `{job}`"))
            .hint("name one by its number, which `salus ps` shows")),
        (None, _) => {
            let problem = Problem::new(format!("no session has the number or the name `{job}`"));
            output::failure(&problem.hint("`salus ps` shows those that are open"));
            Ok(None)
        }
    }
}
