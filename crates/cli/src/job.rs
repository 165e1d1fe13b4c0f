//! `salus job ID …` and `salus explain JOB`: one session, by its number or its name.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use salus_daemon::config::Problem;
use salus_daemon::paths::Places;
use salus_wire::Request;
use serde_json::Value;

use crate::units::parse_bytes;
use crate::{NO, Outcome, Where, ask, output, units};

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
        bytes: u64,
    },
}

#[derive(Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    place: Where,
    /// The session's number or name, as `salus ps` shows them
    #[arg(value_name = "JOB")]
    job: String,
}

fn limit(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        text => parse_bytes(text),
    }
}

pub(crate) fn job(arguments: &Arguments) -> Outcome {
    let Some((socket, session)) = find(&arguments.place, &arguments.job)? else {
        return Ok(NO);
    };
    let Change::MemoryMax { bytes } = arguments.change;
    let id = session["id"].as_u64().unwrap_or(0);
    let request = Request::Limit {
        session: id,
        memory_max: bytes,
    };
    ask::ask(&socket, request)?;
    let limit = match bytes {
        0 => "no limit".into(),
        bytes => format!("at most {}", units::bytes(bytes)),
    };
    output::say(&format!("session {id} may hold {limit}"));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn explain(arguments: &ExplainArguments) -> Outcome {
    let Some((_, session)) = find(&arguments.place, &arguments.job)? else {
        return Ok(NO);
    };
    let text = |key: &str| session[key].as_str().unwrap_or("?").to_owned();
    let size = |key: &str| units::bytes(session[key].as_u64().unwrap_or(0));
    output::data(&format!(
        "session {} (`{}`): {}\nit holds {} on the device and {} in host memory\n",
        session["id"],
        text("name"),
        text("why"),
        size("resident_bytes"),
        size("paged_bytes"),
    ));
    Ok(ExitCode::SUCCESS)
}

/// The service and the session that is meant. `None`: there is none, and that was said.
fn find(place: &Where, job: &str) -> Result<Option<(PathBuf, Value)>, Problem> {
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
        (Some(session), None) => Ok(Some((socket, session.clone()))),
        (Some(_), Some(_)) => Err(Problem::new(format!("several sessions are called `{job}`"))
            .hint("name one by its number, which `salus ps` shows")),
        (None, _) => {
            let problem = Problem::new(format!("no session has the number or the name `{job}`"));
            output::failure(&problem.hint("`salus ps` shows those that are open"));
            Ok(None)
        }
    }
}
