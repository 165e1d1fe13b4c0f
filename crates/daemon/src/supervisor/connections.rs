//! Connections that the supervisor holds, each in one of five stages.
//!
//! A job's connection is here from its acceptance to its adoption by the device host; a command's
//! until its answer is written.
//!
//! Promise: nothing here waits for a peer, and each stage has a limit on how many may be in it and,
//! but for those that wait for the device, on how long.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use salus_channel::Outbox;
use salus_wire::{Answer, Error, ErrorCode, FromService, JobSettings, Refused};
use serde_json::json;

use super::closing::{Closer, Link};
use super::greeting::{Greeting, Peer};

/// A job sends its first frame as soon as it is connected; this is for a machine under load.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// The device host answers within milliseconds unless it is stuck, and then a person waits.
pub(super) const REPORT_TIME: Duration = Duration::from_secs(2);
/// For a command to read its answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Connections whose first frame is not complete. Of more, those are closed that have been silent
/// longest, of the user who has most of them: a peer that sends its frame at once is always served.
const GREETINGS: usize = 256;
/// The same of one user.
const GREETINGS_A_USER: usize = 64;
/// Jobs that wait for the device host to start; its start takes seconds.
pub(super) const WAITING: usize = 256;
/// Commands at once: people type them.
pub(super) const COMMANDS: usize = 64;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Link,
    pub(super) peer: Peer,
    pub(super) stage: Stage,
    deadline: Option<Instant>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The first frame is not complete yet.
    Greeting(Greeting),
    /// A job that was let in, and the device host is not ready for it.
    Waiting {
        protocol: u32,
        name: String,
        settings: JobSettings,
        run: u64,
        /// The device that it wants; empty is any.
        device: String,
    },
    /// A command that waits for the device hosts' answers; one part for each device.
    Reporting {
        request: u64,
        awaited: Awaited,
        parts: Vec<Part>,
    },
    /// An answer is being written. `stays`: it then stays open until the service has ended, so that
    /// the end of the stream tells `salus stop` that it has.
    Answering { outbox: Outbox, stays: bool },
    /// `salus run` has started a job, which has this connection until it ends. `told`: that the job
    /// has opened a session.
    Holding { told: bool },
}

/// What a command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    Report,
    /// That a session of this device is treated differently; shown by a report.
    Change {
        device: usize,
    },
    Trace,
}

/// What one device has answered.
#[derive(Debug)]
pub(super) enum Part {
    Awaited,
    Report(String),
    Trace(OwnedFd, u64),
    /// There is no answer; the state of the device says why.
    None(&'static str),
}

impl Connection {
    /// What to wait for; a hang-up is always noticed.
    fn events(&self) -> PollFlags {
        match &self.stage {
            Stage::Greeting(_) => PollFlags::IN,
            Stage::Answering { outbox, .. } if !outbox.is_empty() => PollFlags::OUT,
            Stage::Waiting { .. }
            | Stage::Reporting { .. }
            | Stage::Answering { .. }
            | Stage::Holding { .. } => PollFlags::empty(),
        }
    }

    /// Changes the stage, and with it the deadline.
    pub(super) fn enter(&mut self, stage: Stage, now: Instant) {
        self.deadline = match &stage {
            Stage::Greeting(_) => Some(now + GREETING_TIME),
            Stage::Reporting { .. } => Some(now + REPORT_TIME),
            Stage::Answering { stays: false, .. } => Some(now + ANSWER_TIME),
            Stage::Answering { stays: true, .. }
            | Stage::Waiting { .. }
            | Stage::Holding { .. } => None,
        };
        self.stage = stage;
    }
}

/// All of them, by a number that is never used twice, nor by the service before this one: a job may
/// still name the `salus run` that it came from.
#[derive(Debug)]
pub(super) struct Connections {
    all: BTreeMap<u64, Connection>,
    next: u64,
    closer: Closer,
}

impl Connections {
    pub(super) fn new(closer: Closer) -> Self {
        Self {
            all: BTreeMap::new(),
            next: u64::from(std::process::id()) << 32,
            closer,
        }
    }

    pub(super) fn add(&mut self, stream: UnixStream, peer: Peer, now: Instant) -> u64 {
        self.make_room(peer.uid);
        self.next += 1;
        let connection = Connection {
            stream: Link::new(stream, &self.closer),
            peer,
            stage: Stage::Greeting(Greeting::default()),
            deadline: Some(now + GREETING_TIME),
        };
        self.all.insert(self.next, connection);
        self.next
    }

    /// Closes the longest silent connection where one more would be too many.
    fn make_room(&mut self, uid: u32) {
        let mut silent: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (id, connection) in &self.all {
            if matches!(connection.stage, Stage::Greeting(_)) {
                silent.entry(connection.peer.uid).or_default().push(*id);
            }
        }
        let own = silent.get(&uid).map_or(0, Vec::len);
        let all: usize = silent.values().map(Vec::len).sum();
        let of = match own >= GREETINGS_A_USER {
            true => silent.get(&uid),
            false if all >= GREETINGS => silent.values().max_by_key(|ids| ids.len()),
            false => None,
        };
        if let Some(oldest) = of.and_then(|ids| ids.first()) {
            let why = format!(
                "{} connections of this user have sent no first message, the most that may",
                of.map_or(0, Vec::len)
            );
            self.refuse(*oldest, Error::new(ErrorCode::ResourceExhausted, why));
        }
    }

    pub(super) fn get(&mut self, id: u64) -> Option<&mut Connection> {
        self.all.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Connection> {
        self.all.remove(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Connection, PollFlags)> {
        self.all.iter().map(|(id, c)| (*id, c, c.events()))
    }

    fn ids(&self, matches: impl Fn(&Connection) -> bool) -> Vec<u64> {
        let found = self.all.iter().filter(|(_, c)| matches(c));
        found.map(|(id, _)| *id).collect()
    }

    pub(super) fn greetings(&self) -> usize {
        self.ids(|c| matches!(c.stage, Stage::Greeting(_))).len()
    }

    /// Jobs that wait for the device host, the first come first.
    pub(super) fn waiting(&self) -> Vec<u64> {
        self.ids(|c| matches!(c.stage, Stage::Waiting { .. }))
    }

    /// The same of one user.
    pub(super) fn waiting_of(&self, uid: u32) -> usize {
        let own = |c: &Connection| c.peer.uid == uid && matches!(c.stage, Stage::Waiting { .. });
        self.ids(own).len()
    }

    /// Those of one user that were started by `salus run`, whether they have come yet or not.
    pub(super) fn holding_of(&self, uid: u32) -> usize {
        let own = |c: &Connection| c.peer.uid == uid && matches!(c.stage, Stage::Holding { .. });
        self.ids(own).len()
    }

    /// Jobs that have been started and may not have come yet.
    pub(super) fn holding(&self) -> usize {
        self.ids(|c| matches!(c.stage, Stage::Holding { .. })).len()
    }

    /// Tells the `salus run` that a job says it comes from of its first session.
    pub(super) fn tell_run(&mut self, run: u64, user: u32, session: u64) {
        let Some(connection) = self.all.get_mut(&run) else {
            return;
        };
        let own = connection.peer.uid == user;
        if let Stage::Holding { told } = &mut connection.stage
            && own
            && !std::mem::replace(told, true)
        {
            let json = json!({ "session": session }).to_string();
            let mut outbox = Outbox::default();
            outbox.push(&FromService::from(Answer { json }), None);
            // It is small and the second of two, so the socket takes it.
            let _ = outbox.flush(&*connection.stream, false);
        }
    }

    pub(super) fn commands(&self) -> usize {
        self.ids(|c| matches!(c.stage, Stage::Reporting { .. } | Stage::Answering { .. }))
            .len()
    }

    /// Commands that wait for device hosts: for this answer, or for any.
    pub(super) fn reporting(&self, which: Option<u64>) -> Vec<u64> {
        self.ids(|c| match c.stage {
            Stage::Reporting { request, .. } => which.is_none_or(|wanted| wanted == request),
            _ => false,
        })
    }

    pub(super) fn overdue(&self, now: Instant) -> Vec<u64> {
        self.ids(|c| c.deadline.is_some_and(|deadline| deadline <= now))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.all.values().filter_map(|c| c.deadline).min()
    }

    /// Sends a refusal and closes: as much as the socket takes, which is all of it for a peer that
    /// has been sent nothing yet.
    pub(super) fn refuse(&mut self, id: u64, error: Error) {
        if let Some(connection) = self.remove(id) {
            refuse(&connection.stream, error);
        }
    }

    pub(super) fn refuse_all(&mut self, ids: &[u64], error: &Error) {
        for id in ids {
            self.refuse(*id, error.clone());
        }
    }

    /// Begins to write an answer.
    pub(super) fn answer(
        &mut self,
        id: u64,
        message: impl Into<FromService>,
        descriptor: Option<OwnedFd>,
        stays: bool,
        now: Instant,
    ) {
        self.answer_all(id, vec![(message.into(), descriptor)], stays, now);
    }

    /// The same with an answer of several messages.
    pub(super) fn answer_all(
        &mut self,
        id: u64,
        messages: Vec<(FromService, Option<OwnedFd>)>,
        stays: bool,
        now: Instant,
    ) {
        let Some(connection) = self.get(id) else {
            return;
        };
        let mut outbox = Outbox::default();
        for (message, descriptor) in messages {
            outbox.push(&message, descriptor);
        }
        connection.enter(Stage::Answering { outbox, stays }, now);
        self.write(id);
    }

    /// Writes on; closes when it is done, or broken.
    pub(super) fn write(&mut self, id: u64) {
        let Some(connection) = self.all.get_mut(&id) else {
            return;
        };
        if let Stage::Answering { outbox, stays } = &mut connection.stage {
            match outbox.flush(&*connection.stream, false) {
                Ok(done) if done && !*stays => {}
                Ok(_) => return,
                Err(_) => {}
            }
            self.remove(id);
        }
    }
}

pub(super) fn refuse(stream: &UnixStream, error: Error) {
    let mut outbox = Outbox::default();
    outbox.push(&FromService::from(Refused { error }), None);
    let _ = outbox.flush(stream, false);
}
