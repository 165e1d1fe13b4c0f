//! The supervisor: lets jobs in, starts the other processes, and outlives them.
//!
//! One thread, one loop: it waits for the listening socket, for connections whose first frame is not
//! complete, for the device host's control socket and for signals, with the nearest deadline as its
//! time limit. A job's connection is handed to the device host as soon as its first frame has been
//! checked; from then on the supervisor is not in its way.
//!
//! Promise: nothing that a job or a command sends, or leaves unsent, makes it panic, wait or grow
//! beyond named limits. No child outlives it. After a clean end its socket is gone.
//! Cost: asleep unless a connection comes or goes.
//! Not here: vendor code, programs, arrays, turns.

mod access;
mod blame;
mod children;
mod closing;
mod commands;
mod connections;
mod endpoint;
mod greeting;
mod jobs;
mod report;
mod signals;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use salus_wire::{Error, ErrorCode, limits};
use serde_json::Value;

use self::access::Access;
use self::blame::Blame;
use self::closing::Closer;
use self::connections::Connections;
use self::endpoint::Endpoint;
use self::report::Sessions;
use self::signals::Signals;
use crate::config::{AllowUsers, HostSettings, Problem};
use crate::log;
use crate::supervisor::children::compilers::Compilers;
use crate::supervisor::children::device_host_process::{Deaths, Host};

pub use self::access::name_of;
pub use self::endpoint::is_locked;
pub(crate) use crate::supervisor::children::child_entry::is_first_compiler;
pub use crate::supervisor::children::child_entry::{COMPILER, compiler, device_host, enter};
pub use crate::supervisor::children::process::Launcher;

/// What a service needs to start.
pub struct Service {
    pub socket: PathBuf,
    pub allow_users: AllowUsers,
    /// How long it stays without a session; `None` is forever.
    pub idle_exit: Option<Duration>,
    pub host: HostSettings,
    pub launcher: Launcher,
    /// Called once when the device is open, with the device's part of `salus ps`.
    pub when_ready: Box<dyn FnMut(&Value)>,
}

/// Why a service ended that ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Asked { by: String },
    Signal,
    Idle { after: Duration },
}

/// Serves until it is asked to end, or until the device cannot be served.
///
/// To be called on the main thread (see `process.rs`).
pub fn serve(service: Service) -> Result<End, Problem> {
    Supervisor::new(service)?.run()
}

/// After a failure to accept for want of descriptors or memory: until some may be free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For children to end by themselves before they are killed.
const ENDING: Duration = Duration::from_secs(2);

/// Lines a minute: jobs cause them, and must not fill a disk. A session may last a few milliseconds.
const REFUSALS_LOGGED: u32 = 20;
const ACTIVITY_LOGGED: u32 = 240;

struct Supervisor {
    service: Service,
    access: Access,
    endpoint: Endpoint,
    to_end: Signals,
    of_children: Signals,
    connections: Connections,
    closer: Closer,
    /// As many as descriptors allow, and no more than the device host serves.
    sessions_max: usize,
    sessions_per_user: usize,
    /// Sessions that were handed to the device host and are not known to have ended.
    sessions: Sessions,
    last_session: u64,
    last_request: u64,
    host: Option<Host>,
    /// When to start the next device host; set while there is none.
    start_host_at: Option<Instant>,
    deaths: Deaths,
    blame: Blame,
    /// Why sessions were lost, and whose they were.
    fates: BTreeMap<u64, (u32, String)>,
    /// Why the device host is being killed on request: the reason that its sessions get.
    kill_now: Option<String>,
    was_ready: bool,
    compilers: Compilers,
    started: Instant,
    accept_after: Option<Instant>,
    /// Since when no job has used the service.
    idle_since: Instant,
    /// Lines in the log about connections that were refused.
    refusals: log::Quota,
    /// Lines about what jobs and commands do: sessions that open, close and are changed, and compilers
    /// that a program ended.
    activity: log::Quota,
    /// Set when it is time to go.
    end: Option<Result<End, Problem>>,
}

/// What the loop waits for.
#[derive(Debug, Clone, Copy)]
enum Source {
    ToEnd,
    OfChildren,
    Listener,
    Control,
    Connection(u64),
}

impl Supervisor {
    fn new(service: Service) -> Result<Self, Problem> {
        let signals = |e: io::Error| Problem::new(format!("signals cannot be received: {e}"));
        let owner = rustix::process::geteuid().as_raw();
        let access = Access::new(owner, &service.allow_users)?;
        let now = Instant::now();
        let closer = Closer::default();
        let sessions_max = sessions_allowed(raise_descriptor_limit());
        Ok(Self {
            endpoint: Endpoint::open(&service.socket, service.allow_users.several())?,
            to_end: Signals::to_end().map_err(signals)?,
            of_children: Signals::of_children().map_err(signals)?,
            compilers: Compilers::new(service.host.compilers_max()),
            blame: Blame::open(&service.host.cache.directory),
            access,
            sessions_per_user: service.host.user_sessions(sessions_max),
            service,
            connections: Connections::new(closer.clone()),
            closer,
            sessions_max,
            sessions: Sessions::new(),
            last_session: 0,
            last_request: 0,
            host: None,
            start_host_at: Some(now),
            deaths: Deaths::default(),
            fates: BTreeMap::new(),
            kill_now: None,
            was_ready: false,
            started: now,
            accept_after: None,
            idle_since: now,
            refusals: log::Quota::of(REFUSALS_LOGGED),
            activity: log::Quota::of(ACTIVITY_LOGGED),
            end: None,
        })
    }

    fn run(mut self) -> Result<End, Problem> {
        let end = loop {
            let now = Instant::now();
            self.on_time(now);
            if let Some(end) = self.end.take() {
                break end;
            }
            match self.wait(now) {
                Ok(ready) => self.on_ready(&ready),
                Err(e) => break Err(Problem::new(format!("the supervisor cannot wait: {e}"))),
            }
        };
        self.close(&end);
        end
    }

    /// Sleeps until something is ready or the nearest deadline has passed.
    fn wait(&self, now: Instant) -> io::Result<Vec<(Source, PollFlags)>> {
        let mut sources = vec![Source::ToEnd, Source::OfChildren];
        let mut fds = vec![
            PollFd::new(&self.to_end, PollFlags::IN),
            PollFd::new(&self.of_children, PollFlags::IN),
        ];
        if self.accept_after.is_none() {
            sources.push(Source::Listener);
            fds.push(PollFd::new(&self.endpoint, PollFlags::IN));
        }
        if let Some((control, writes)) = self.host.as_ref().and_then(Host::waits_for) {
            let out = if writes {
                PollFlags::OUT
            } else {
                PollFlags::empty()
            };
            sources.push(Source::Control);
            fds.push(PollFd::new(control, PollFlags::IN | out));
        }
        for (id, connection, events) in self.connections.iter() {
            sources.push(Source::Connection(id));
            fds.push(PollFd::from_borrowed_fd(connection.stream.as_fd(), events));
        }
        // Longer than a `Timespec` can say is forever.
        let timeout = self
            .next_deadline(now)
            .and_then(|at| Timespec::try_from(at.saturating_duration_since(now)).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(e) => return Err(e.into()),
        }
        let ready = sources.iter().zip(&fds).map(|(s, fd)| (*s, fd.revents()));
        Ok(ready.filter(|(_, events)| !events.is_empty()).collect())
    }

    fn on_ready(&mut self, ready: &[(Source, PollFlags)]) {
        let now = Instant::now();
        for &(source, events) in ready {
            match source {
                Source::ToEnd => {
                    if self.to_end.take() {
                        self.end = Some(Ok(End::Signal));
                    }
                }
                Source::OfChildren => {
                    self.of_children.take();
                    // What a child said before it ended is heard first.
                    self.on_control(now);
                    self.on_children(now);
                }
                Source::Listener => self.on_listener(now),
                Source::Control => self.on_control(now),
                Source::Connection(id) => self.on_connection(id, events, now),
            }
        }
    }

    fn on_time(&mut self, now: Instant) {
        if self.accept_after.is_some_and(|at| at <= now) {
            self.accept_after = None;
        }
        for id in self.connections.overdue(now) {
            self.on_overdue(id, now);
        }
        if let Some(host) = &mut self.host {
            host.on_time(now);
        }
        if self.start_host_at.is_some_and(|at| at <= now) {
            self.start_host(now);
        }
        self.start_compilers(now);
        self.send_policy();
        self.adopt_waiting(now);
        if let (Some(at), Some(after)) = (self.idle_deadline(), self.service.idle_exit)
            && at <= now
        {
            self.end = Some(Ok(End::Idle { after }));
        }
    }

    fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let host = self.host.as_ref().and_then(Host::deadline);
        let open = self.host.as_ref().is_some_and(Host::is_open);
        let compilers = self.compilers.due(now).filter(|_| open);
        [
            self.connections.next_deadline(),
            self.accept_after,
            self.start_host_at,
            host,
            compilers,
            self.idle_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When the service ends because no job uses it; a connection that is being opened postpones it.
    fn idle_deadline(&self) -> Option<Instant> {
        let nobody = self.sessions.is_empty()
            && self.connections.greetings() == 0
            && self.connections.waiting().is_empty()
            && self.connections.holding() == 0;
        let after = self.service.idle_exit.filter(|_| nobody)?;
        self.idle_since.checked_add(after)
    }

    /// Ends the children and says goodbye. The socket goes first, so that nobody comes any more.
    fn close(self, end: &Result<End, Problem>) {
        let Self {
            endpoint,
            of_children,
            mut host,
            mut compilers,
            mut connections,
            ..
        } = self;
        let why = match end {
            Ok(End::Asked { by }) => format!("asked by {by}"),
            Ok(End::Signal) => "asked by a signal".into(),
            Ok(End::Idle { after }) => format!("no job for {} s", after.as_secs()),
            Err(problem) => problem.what.clone(),
        };
        log::info(format_args!("ends: {why}"));
        let gone = Error::new(ErrorCode::Unavailable, format!("the service ends: {why}"));
        let waiting: Vec<u64> = [connections.waiting(), connections.reporting(None)].concat();
        connections.refuse_all(&waiting, &gone);
        drop(endpoint);
        let mut running: Vec<_> = host.iter_mut().map(Host::process).collect();
        running.extend(compilers.processes());
        for process in &running {
            process.signal(rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + ENDING;
        loop {
            running.retain_mut(|process| process.ended().is_none());
            let left = deadline.saturating_duration_since(Instant::now());
            if running.is_empty() || left.is_zero() {
                break;
            }
            let mut ended = [PollFd::new(&of_children, PollFlags::IN)];
            let _ = poll(&mut ended, Timespec::try_from(left).ok().as_ref());
            of_children.take();
        }
        // A process that is left is killed as it is dropped; a `salus stop` that waits sees the end of its
        // stream after that.
        drop((host, compilers));
        drop(connections);
    }
}

/// Raises the limit of open files to the highest that this user may have; the other processes of the
/// service inherit it. Returns it.
fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let highest = limit.maximum.or(limit.current).unwrap_or(u64::MAX);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => highest,
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// Sessions that a service of this user serves at the most.
pub fn sessions_max() -> usize {
    let highest = getrlimit(Resource::Nofile).maximum;
    sessions_allowed(highest.unwrap_or(u64::MAX))
}

/// Sessions that the device host can serve with this many descriptors.
fn sessions_allowed(descriptors: u64) -> usize {
    /// What it needs for itself: the plugin, the compilers, the cache.
    const OWN: u64 = 128;
    /// A session's connection, what wakes its thread, and a callback's channel.
    const EACH: u64 = 4;
    let allowed = descriptors.saturating_sub(OWN) / EACH;
    usize::try_from(allowed).map_or(limits::SESSIONS, |n| n.clamp(1, limits::SESSIONS))
}
