//! `salus stop`: asks the service to end, and waits until it has.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use salus_daemon::config::Problem;
use salus_daemon::paths::Places;
use salus_wire::Request;
use serde_json::Value;

use crate::{NO, Outcome, Where, ask, output};

/// The service gives its children 2 s, then kills them.
const END_TIME: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Where,
}

pub(crate) fn stop(arguments: &Arguments) -> Outcome {
    let places = Places::of_this_process();
    let named = arguments.place.socket.as_deref();
    let socket = ask::find(&places, named)?;
    let answered = match &socket {
        Some(socket) => ask::ask(socket, Request::Stop)?,
        None => None,
    };
    let (Some(socket), Some(mut answered)) = (socket, answered) else {
        output::failure(&ask::nobody(&places, named));
        return Ok(NO);
    };
    let pid = &answered.json["pid"];
    // The stream ends when the process has, with its children and its socket.
    let ended = answered
        .stream
        .set_read_timeout(Some(END_TIME))
        .and_then(|()| answered.stream.read(&mut [0; 1]));
    if ended.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock) {
        return Err(Problem::new(format!(
            "the service (pid {pid}) did not end within {} s",
            END_TIME.as_secs()
        ))
        .hint(format!("`kill -9 {pid}` ends it; its children end with it")));
    }
    let what = match sessions(&answered.json).as_slice() {
        [] => "no session was open".to_owned(),
        [one] => format!("one session was open: {one}"),
        several => format!(
            "{} sessions were open: {}",
            several.len(),
            several.join(", ")
        ),
    };
    output::note(&format!(
        "the service (pid {pid}) at {} has ended; {what}",
        socket.display()
    ));
    Ok(ExitCode::SUCCESS)
}

fn sessions(farewell: &Value) -> Vec<String> {
    let sessions = farewell["sessions"].as_array();
    let label = |session: &Value| {
        let name = session["name"].as_str().unwrap_or("?");
        let name = salus_daemon::log::tame(name);
        format!("{} (`{name}`, pid {})", session["id"], session["pid"])
    };
    sessions.into_iter().flatten().map(label).collect()
}
