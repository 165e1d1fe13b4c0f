//! `salus trace`: what ran where and when, as a file for the Perfetto UI or as a picture.
//!
//! The service remembers the last some ten thousand iterations, so the question may come after the
//! fact. What it tells is put in order in `timeline.rs`; `perfetto.rs` and `svg.rs` write it down.
//! `record.rs` follows a service instead, for a replay.

mod devices;
mod follower;
mod perfetto;
mod record;
mod svg;
mod timeline;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use salus_daemon::config::Problem;
use salus_daemon::log::tame;
use salus_daemon::paths::Places;

use crate::arguments::parse_time;
use crate::{NO, Outcome, Where, ask, output};
use devices::Devices;
use salus_units::show_ms;

/// Where it goes if nobody says where.
const DEFAULT_FILE: &str = "salus-trace.json";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    place: Where,
    /// The file to write, `-` for standard output [default: salus-trace.json]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How far back it goes, such as 10s or 5m [default: as far as the service remembers]
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    last: Option<Duration>,
    /// Draw it as a picture; the other file is then written only if it is named
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Write down what happens from now on, for `salus sim` to replay
    Record(record::Arguments),
}

pub(crate) fn trace(arguments: &Arguments) -> Outcome {
    if let Some(Command::Record(arguments)) = &arguments.command {
        return record::record(arguments);
    }
    let places = Places::of_this_process();
    let named = arguments.place.socket.as_deref();
    let traces = match ask::find(&places, named)? {
        Some(socket) => ask::ask_trace(&socket, whole_seconds(arguments.last))?,
        None => None,
    };
    let Some(traces) = traces else {
        output::failure(&ask::nobody(&places, named));
        return Ok(NO);
    };
    let mut recordings = Vec::new();
    for trace in traces {
        let device = tame(&trace.device);
        match trace.recording {
            Ok(recording) => recordings.push((device, recording)),
            Err(state) => {
                let state = tame(&state);
                output::note(&format!(
                    "there is no trace of {device}: the device is {state}"
                ));
            }
        }
    }
    let devices = Devices::of(recordings, arguments.last);
    let mut written = Vec::new();
    if arguments.output.is_some() || arguments.svg.is_none() {
        let file = arguments.output.as_deref();
        let file = file.unwrap_or(Path::new(DEFAULT_FILE));
        let opens = "opens in https://ui.perfetto.dev";
        written.push(format!(
            "{} {opens}",
            write(file, &perfetto::json(&devices))?
        ));
    }
    if let Some(file) = &arguments.svg {
        let shown = write(file, &svg::picture(&devices))?;
        written.push(format!("{shown} opens in a browser"));
    }
    output::say(&summary(&devices, &written));
    Ok(ExitCode::SUCCESS)
}

/// The service counts in whole seconds; what is too much is cut off here.
fn whole_seconds(last: Option<Duration>) -> u32 {
    let seconds = last.map_or(0, |last| last.as_millis().div_ceil(1000).max(1));
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// Writes a file, and says how it is called.
fn write(file: &Path, text: &str) -> Result<String, Problem> {
    if file == Path::new("-") {
        output::data(text);
        return Ok("it".into());
    }
    let shown = file.display();
    std::fs::write(file, text)
        .map_err(|e| Problem::new(format!("`{shown}` cannot be written: {e}")))?;
    Ok(format!("`{shown}`"))
}

/// `1204 iterations of 3 jobs in 12.3 s: …`.
fn summary(devices: &Devices, written: &[String]) -> String {
    let count = |n: usize, what: &str| match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    };
    format!(
        "{} of {} in {}: {}",
        count(devices.iterations(), "iteration"),
        count(devices.jobs(), "job"),
        show_ms(devices.length_ns as f64 / 1e6),
        written.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_what_was_written() {
        let devices = devices::tests::one();
        let written = ["`t.json` opens in https://ui.perfetto.dev".to_owned()];
        assert_eq!(
            summary(&devices, &written),
            "5 iterations of 3 jobs in 100 ms: `t.json` opens in https://ui.perfetto.dev"
        );
    }

    #[test]
    fn times_are_asked_for_in_whole_seconds() {
        for (ms, seconds) in [(1, 1), (1000, 1), (1001, 2), (u64::MAX, u32::MAX)] {
            assert_eq!(whole_seconds(Some(Duration::from_millis(ms))), seconds);
        }
        assert_eq!(whole_seconds(None), 0);
    }
}
