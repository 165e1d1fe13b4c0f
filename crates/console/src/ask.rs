//! Speaks to a service: finds its socket, asks one thing, reads the answer.
//!
//! Promise: no call waits longer than its deadline; what a service answers is checked before it is
//! believed.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use salus_channel::endpoint::{self, NotFound, Unusable};
use salus_channel::{Inbox, Received, open_blob, send_all, text_of};
use salus_daemon::config::Problem;
use salus_daemon::paths::Places;
use salus_wire::{
    Command, FromService, Reader, Recording, Request, ToService, Wire, limits, version,
};
use serde_json::Value;

/// The service answers at once, or after 2 s if its device host does not; this is for one that is
/// stuck.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A service that runs accepts at once; this is for one that is stuck.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// A service that answered; its stream ends when it does.
pub struct Answered {
    pub json: Value,
    pub stream: UnixStream,
}

/// The socket of a running service. `None`: nobody listens at the one that was named, or at any of the
/// usual places.
pub fn find(places: &Places, named: Option<&Path>) -> Result<Option<PathBuf>, Problem> {
    let deadline = Instant::now() + CONNECT_TIME;
    match places.sockets.connect(named, deadline) {
        Ok(found) => Ok(Some(found.path)),
        Err(NotFound::Nowhere(_)) => Ok(None),
        Err(NotFound::At(path, why)) => unusable(&path, why).map(|()| None),
    }
}

/// What to say of a socket that cannot be used; nothing if simply nobody listens there.
fn unusable(path: &Path, why: Unusable) -> Result<(), Problem> {
    let at = path.display();
    let problem = match why {
        Unusable::Missing | Unusable::Abandoned => return Ok(()),
        Unusable::Denied(_) => {
            Problem::new(format!("you may not connect to the service at `{at}`")).hint(
                "its operator may name you in `allow_users` of salus.toml; `--socket` or \
                 SALUS_SOCKET chooses another service",
            )
        }
        Unusable::Impostor { .. } => Problem::new(format!("`{at}` is not used: {why}"))
            .hint("`--socket` or SALUS_SOCKET uses it all the same, if you trust that user"),
        Unusable::TooLong { .. } => Problem::new(format!("no socket can be at `{at}`: {why}"))
            .hint("name a shorter one with `--socket` or SALUS_SOCKET"),
        _ => Problem::new(format!("cannot connect to `{at}`: {why}")),
    };
    Err(problem)
}

/// Asks the service at `path`. `None`: nobody listens there.
pub fn ask(path: &Path, request: Request) -> Result<Option<Answered>, Problem> {
    ask_within(path, request, ANSWER_TIME)
}

/// The same with another time for the answer.
pub fn ask_within(
    path: &Path,
    request: Request,
    time: Duration,
) -> Result<Option<Answered>, Problem> {
    let mut inbox = Inbox::default();
    let Some((received, stream)) = converse(path, request, time, &mut inbox)? else {
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

/// What one device has recorded.
pub struct DeviceTrace {
    pub device: String,
    /// Or the state of the device, which is why there is none.
    pub recording: Result<Recording, String>,
}

/// Asks the service at `path` what happened in the last `seconds`, 0 being all that it knows: of each
/// device.
pub fn ask_trace(path: &Path, seconds: u32) -> Result<Option<Vec<DeviceTrace>>, Problem> {
    let mut inbox = Inbox::default();
    let request = Request::Trace { seconds };
    let Some((mut received, stream)) = converse(path, request, ANSWER_TIME, &mut inbox)? else {
        return Ok(None);
    };
    let mut traces = Vec::new();
    loop {
        let FromService::Trace(trace) = received.message else {
            return Err(something_else(path));
        };
        let recording = match (trace.missing, received.descriptor) {
            (Some(state), _) => Err(state),
            (None, Some(descriptor)) => Ok(read_recording(path, descriptor, trace.bytes)?),
            (None, None) => return Err(something_else(path)),
        };
        traces.push(DeviceTrace {
            device: trace.device,
            recording,
        });
        // Not as many as a service may say, but as many as it sends.
        if trace.more == 0 {
            return Ok(Some(traces));
        }
        received = receive(&stream, &mut inbox).map_err(|e| {
            let at = path.display();
            Problem::new(format!(
                "the service at `{at}` sent only a part of the trace: {e}"
            ))
        })?;
    }
}

fn read_recording(path: &Path, descriptor: OwnedFd, bytes: u64) -> Result<Recording, Problem> {
    let broken = |e: String| {
        let at = path.display();
        Problem::new(format!("the trace of the service at `{at}` is broken: {e}"))
    };
    if bytes > limits::BLOB_BYTES as u64 {
        return Err(broken(format!("it has {bytes} bytes")));
    }
    let data = open_blob(descriptor, bytes).map_err(|e| broken(e.to_string()))?;
    Recording::take(&mut Reader::new(&data), 0).map_err(|e| broken(e.0))
}

fn something_else(path: &Path) -> Problem {
    let at = path.display();
    Problem::new(format!("the service at `{at}` answered something else"))
}

/// Sends the command and receives its answer. `None`: nobody listens there.
fn converse(
    path: &Path,
    request: Request,
    time: Duration,
    inbox: &mut Inbox,
) -> Result<Option<(Received<FromService>, UnixStream)>, Problem> {
    let stream = match endpoint::connect(path, Instant::now() + CONNECT_TIME) {
        Ok(socket) => UnixStream::from(socket),
        Err(why) => return unusable(path, why).map(|()| None),
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
                format!("no answer within {} s", time.as_secs())
            }
            _ => e.to_string(),
        };
        Problem::new(format!("the service at `{at}` did not answer: {why}"))
    };
    stream
        .set_read_timeout(Some(time))
        .and_then(|()| stream.set_write_timeout(Some(time)))
        .map_err(broken)?;
    match send_all(&stream, &ToService::from(command), None) {
        // Whom it does not let in it may have refused, with a reason, and hung up already.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(broken(e)),
        _ => {}
    }
    let received = receive(&stream, inbox).map_err(broken)?;
    if let FromService::Refused(refused) = received.message {
        let mut problem = Problem::from(refused.error);
        problem.what = format!("the service at `{at}` refused: {}", problem.what);
        return Err(problem);
    }
    Ok(Some((received, stream)))
}

fn receive(stream: &UnixStream, inbox: &mut Inbox) -> io::Result<Received<FromService>> {
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
pub fn nobody(places: &Places, named: Option<&Path>) -> Problem {
    let looked = places.sockets.places(named);
    let looked: Vec<_> = looked
        .iter()
        .map(|p| format!("`{}`", p.display()))
        .collect();
    Problem::new(format!("no service runs at {}", looked.join(", ")))
        .hint("`salus serve` starts one, and so does `salus run -- CMD`")
}
