//! Speaks to a service: finds its socket, asks one thing, reads the answer.
//!
//! Promise: no call waits longer than its deadline; what a service answers is checked before it is
//! believed.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use salus_channel::{Inbox, Received, open_blob, send_all, text_of};
use salus_daemon::config::Problem;
use salus_daemon::paths::{Places, check_socket_length};
use salus_wire::{
    Command, FromService, Reader, Recording, Request, ToService, Wire, limits, version,
};
use serde_json::Value;

/// The service answers at once, or after 2 s if its device host does not; this is for one that is
/// stuck.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A service that answered; its stream ends when it does.
pub(crate) struct Answered {
    pub(crate) json: Value,
    pub(crate) stream: UnixStream,
}

/// The socket of a running service: the one that was named, or the first that somebody listens at.
pub(crate) fn find(places: &Places, named: Option<&Path>) -> Result<Option<PathBuf>, Problem> {
    if let Some(path) = named.or(places.socket.as_deref()) {
        return Ok(listens(path)?.then(|| path.to_owned()));
    }
    for path in places.candidates() {
        // Passed over if it is a stranger's, and if it cannot be used: the next one may do.
        if places.is_ours(&path) && listens(&path).unwrap_or(false) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn listens(path: &Path) -> Result<bool, Problem> {
    match connect(path) {
        Ok(_) => Ok(true),
        Err(Unreachable::Nobody) => Ok(false),
        Err(Unreachable::Problem(problem)) => Err(problem),
    }
}

enum Unreachable {
    /// No socket, or one that nobody listens at.
    Nobody,
    Problem(Problem),
}

fn connect(path: &Path) -> Result<UnixStream, Unreachable> {
    check_socket_length(path).map_err(Unreachable::Problem)?;
    UnixStream::connect(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Unreachable::Nobody,
        io::ErrorKind::PermissionDenied => Unreachable::Problem(
            Problem::new(format!(
                "you may not connect to the service at `{}`",
                path.display()
            ))
            .hint(
                "its owner may name you in `allow_users` of salus.toml; `--socket` or \
                 SALUS_SOCKET chooses another service",
            ),
        ),
        _ => Unreachable::Problem(Problem::new(format!(
            "cannot connect to `{}`: {e}",
            path.display()
        ))),
    })
}

/// Asks the service at `path`. `None`: nobody listens there.
pub(crate) fn ask(path: &Path, request: Request) -> Result<Option<Answered>, Problem> {
    let Some((received, stream)) = converse(path, request)? else {
        return Ok(None);
    };
    let FromService::Answer(answer) = received.message else {
        return Err(something_else(path));
    };
    let no_json = |e: String| {
        let at = path.display();
        Problem::new(format!("the service at `{at}` answered in no JSON: {e}"))
    };
    let text = text_of(answer.json, received.descriptor, limits::REPORT_BYTES);
    let text = text.map_err(|e| no_json(e.to_string()))?;
    let json = serde_json::from_str(&text).map_err(|e| no_json(e.to_string()))?;
    Ok(Some(Answered { json, stream }))
}

/// Asks the service at `path` what happened in the last `seconds`, 0 being all that it knows.
pub(crate) fn ask_trace(path: &Path, seconds: u32) -> Result<Option<Recording>, Problem> {
    let Some((received, _)) = converse(path, Request::Trace { seconds })? else {
        return Ok(None);
    };
    let (FromService::Trace(trace), Some(descriptor)) = (received.message, received.descriptor)
    else {
        return Err(something_else(path));
    };
    let broken = |e: String| {
        let at = path.display();
        Problem::new(format!("the trace of the service at `{at}` is broken: {e}"))
    };
    if trace.bytes > limits::BLOB_BYTES as u64 {
        return Err(broken(format!("it has {} bytes", trace.bytes)));
    }
    let data = open_blob(descriptor, trace.bytes).map_err(|e| broken(e.to_string()))?;
    let recording = Recording::take(&mut Reader::new(&data), 0).map_err(|e| broken(e.0))?;
    Ok(Some(recording))
}

fn something_else(path: &Path) -> Problem {
    let at = path.display();
    Problem::new(format!("the service at `{at}` answered something else"))
}

/// Sends the command and receives its answer. `None`: nobody listens there.
fn converse(
    path: &Path,
    request: Request,
) -> Result<Option<(Received<FromService>, UnixStream)>, Problem> {
    let stream = match connect(path) {
        Ok(stream) => stream,
        Err(Unreachable::Nobody) => return Ok(None),
        Err(Unreachable::Problem(problem)) => return Err(problem),
    };
    let command = Command {
        protocol_min: version::MIN,
        protocol_max: version::MAX,
        request,
    };
    let at = path.display();
    let broken = |e: io::Error| {
        let why = match e.kind() {
            io::ErrorKind::WouldBlock => {
                format!("no answer within {} s", ANSWER_TIME.as_secs())
            }
            _ => e.to_string(),
        };
        Problem::new(format!("the service at `{at}` did not answer: {why}"))
    };
    stream
        .set_read_timeout(Some(ANSWER_TIME))
        .and_then(|()| stream.set_write_timeout(Some(ANSWER_TIME)))
        .map_err(broken)?;
    match send_all(&stream, &ToService::from(command), None) {
        // Whom it does not let in it may have refused, with a reason, and hung up already.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(broken(e)),
        _ => {}
    }
    let received = receive(&stream).map_err(broken)?;
    if let FromService::Refused(refused) = received.message {
        return Err(Problem::new(format!(
            "the service at `{at}` refused: {}",
            refused.error.message
        )));
    }
    Ok(Some((received, stream)))
}

fn receive(stream: &UnixStream) -> io::Result<Received<FromService>> {
    let mut inbox = Inbox::default();
    loop {
        if let Some(received) = inbox.take().map_err(io::Error::other)? {
            return Ok(received);
        }
        if inbox.fill(stream, true)? == 0 {
            return Err(io::Error::other("it closed the connection"));
        }
    }
}

/// What to print where a service is needed and none runs. Exit status 1: it is an answer.
pub(crate) fn nobody(places: &Places, named: Option<&Path>) -> Problem {
    let looked = match named {
        Some(path) => vec![path.to_owned()],
        None => places.candidates(),
    };
    let looked: Vec<_> = looked
        .iter()
        .map(|p| format!("`{}`", p.display()))
        .collect();
    Problem::new(format!("no service runs at {}", looked.join(", ")))
        .hint("`salus serve` starts one, and so does `salus run -- CMD`")
}
