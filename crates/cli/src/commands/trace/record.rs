//! `salus trace record FILE`: follows a service and writes down what happens, for `salus sim` to replay.
//!
//! The service remembers the last tens of thousands of records; it is asked several times a second what
//! is new, so that none is forgotten before it is written down. If some were, the file says so.
//!
//! Promise: only whole lines are written, and an end line last; a recording without one was cut off.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use salus_daemon::config::Problem;
use salus_daemon::log::tame;
use salus_daemon::paths::Places;
use salus_units::show_ms;
use salus_wire::Recording;

use super::follower::{Follower, Restarted};
use crate::arguments::parse_time;
use crate::{NO, Outcome, Where, ask, output};

/// 65,536 records in this time are 260,000 in a second, of which an iteration makes one or two: ten
/// times what a service can do.
const ASK_EVERY: Duration = Duration::from_millis(250);

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Where,
    /// The file to write (docs/tracing.md)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// End when the sessions that were recorded have all ended
    #[arg(long)]
    until_idle: bool,
    /// End after this time, such as 60s [default: Ctrl-C ends it]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    time: Option<Duration>,
    /// The device to record, where the service has several
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

pub(crate) fn record(arguments: &Arguments) -> Outcome {
    let places = Places::of_this_process();
    let named = arguments.place.socket.as_deref();
    let Some(socket) = ask::find(&places, named)? else {
        output::failure(&ask::nobody(&places, named));
        return Ok(NO);
    };
    let signals = Signals::block().map_err(|e| {
        Problem::new(format!(
            "the end of the recording cannot be waited for: {e}"
        ))
    })?;
    let began = Instant::now();
    let device = arguments.device.as_deref();
    let Some((device, first)) = asked(&socket, device, 1)? else {
        output::failure(&ask::nobody(&places, named));
        return Ok(NO);
    };
    let (mut follower, text) = Follower::new(&device, &first);
    let mut file = Target::create(&arguments.file)?;
    file.write(&text)?;
    output::say(&format!("recording {} until Ctrl-C", tame(&device)));
    let mut asked_at = began;
    let why = loop {
        let left = arguments
            .time
            .map(|time| time.saturating_sub(began.elapsed()));
        let is_over = left.is_some_and(|left| left.is_zero());
        let stopped = signals.came_within(left.map_or(ASK_EVERY, |left| left.min(ASK_EVERY)));
        // A second more than has passed, because the service counts in whole ones.
        let seconds = asked_at.elapsed().as_secs().saturating_add(2);
        asked_at = Instant::now();
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        let Ok(Some((_, recording))) = asked(&socket, Some(&device), seconds) else {
            break "the service was gone";
        };
        match follower.take(&recording) {
            Ok(text) => file.write(&text)?,
            Err(Restarted) => break "the device host was started again",
        }
        if stopped || is_over {
            break if stopped { "stopped" } else { "time" };
        }
        if arguments.until_idle && follower.is_idle() {
            break "idle";
        }
    };
    file.write(&follower.end(why))?;
    Ok(said(&follower, why, began.elapsed(), &arguments.file))
}

/// Tells what was recorded, and what was not.
fn said(follower: &Follower, why: &str, took: Duration, file: &Path) -> ExitCode {
    let file = file.display();
    let (jobs, iterations) = (follower.sessions(), follower.iterations());
    let time = show_ms(took.as_secs_f64() * 1e3);
    output::say(&format!(
        "{iterations} iterations of {jobs} jobs in {time}: `salus sim {file}` replays them"
    ));
    let lost = follower.lost();
    if lost > 0 {
        output::note(&format!(
            "{lost} records were lost: the service forgot them before they were asked for"
        ));
    }
    let is_whole = matches!(why, "stopped" | "time" | "idle");
    if !is_whole {
        output::note(&format!("the recording ended early, because {why}"));
    }
    match is_whole && lost == 0 {
        true => ExitCode::SUCCESS,
        false => NO,
    }
}

/// What a device has recorded in the last `seconds`. `None`: nobody listens there.
fn asked(
    socket: &Path,
    device: Option<&str>,
    seconds: u32,
) -> Result<Option<(String, Recording)>, Problem> {
    let Some(traces) = ask::ask_trace(socket, seconds)? else {
        return Ok(None);
    };
    let names: Vec<String> = traces.iter().map(|trace| tame(&trace.device)).collect();
    let names = names.join(", ");
    let wanted = |name: &str| device.is_none_or(|device| device == name);
    let mut found = traces.into_iter().filter(|trace| wanted(&trace.device));
    let (first, second) = (found.next(), found.next());
    let Some(trace) = first else {
        let device = device.unwrap_or_default();
        let what = format!("the service has no device `{}`", tame(device));
        return Err(Problem::new(what).hint(format!("it has {names}")));
    };
    if second.is_some() {
        let what = format!("the service has several devices: {names}");
        return Err(Problem::new(what).hint("choose one with `--device`"));
    }
    let recording = trace.recording.map_err(|state| {
        let (device, state) = (tame(&trace.device), tame(&state));
        Problem::new(format!(
            "there is nothing to record on {device}: the device is {state}"
        ))
    })?;
    Ok(Some((trace.device, recording)))
}

/// Signals that end a recording.
struct Signals(SignalFd);

impl Signals {
    fn block() -> io::Result<Self> {
        let wanted: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        wanted.thread_block()?;
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC)?;
        Ok(Self(signals))
    }

    /// Waits for one of them, no longer than this.
    fn came_within(&self, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).ok();
        let mut polled = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        matches!(poll(&mut polled, timeout.as_ref()), Ok(1..))
    }
}

/// Where the lines go.
struct Target {
    out: Box<dyn Write>,
    shown: String,
}

impl Target {
    fn create(file: &Path) -> Result<Self, Problem> {
        let shown = file.display().to_string();
        let out: Box<dyn Write> = match file == Path::new("-") {
            true => Box::new(io::stdout()),
            false => Box::new(File::create(file).map_err(|e| unwritable(&shown, &e))?),
        };
        Ok(Self { out, shown })
    }

    fn write(&mut self, text: &str) -> Result<(), Problem> {
        let written = self.out.write_all(text.as_bytes());
        let written = written.and_then(|()| self.out.flush());
        written.map_err(|e| unwritable(&self.shown, &e))
    }
}

fn unwritable(file: &str, why: &io::Error) -> Problem {
    Problem::new(format!("`{file}` cannot be written: {why}"))
}
