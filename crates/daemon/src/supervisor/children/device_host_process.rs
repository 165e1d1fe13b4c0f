//! The device host's process: started, listened to, and started again when it dies.
//!
//! Promise: writing to it never waits. One that dies is started again after a pause that grows; one
//! that keeps dying is given up.
//! Not here: what is in a session, a program or a report.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use salus_channel::{Inbox, Outbox, Received};
use salus_engine::Policy;
use salus_wire::{Description, FromHost, ToHost};

use crate::board::Board;
use crate::supervisor::children::process::Process;

/// After its first death it starts again almost at once, because most deaths are one job's doing;
/// each further pause is twice as long, so that a broken device does not keep a core busy.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// This many deaths within [`GIVE_UP_WITHIN`] mean that starting again does not help.
const GIVE_UP_DEATHS: usize = 5;
const GIVE_UP_WITHIN: Duration = Duration::from_secs(60);
/// What may wait to be written before jobs are kept back; its socket holds about 200 kB besides.
const OUTBOX_BYTES: usize = 64 << 10;
/// From the end of its control socket to its own: time for a crash to write its core file.
const ENDING: Duration = Duration::from_secs(2);

/// A running device host.
#[derive(Debug)]
pub(crate) struct Host {
    process: Process,
    control: UnixStream,
    inbox: Inbox,
    outbox: Outbox,
    /// Its device; `None` while it opens it.
    description: Option<Description>,
    /// What it says that it runs.
    pub(crate) board: Board,
    /// The policy that it was started with, or was sent since.
    pub(crate) policy: Policy,
    /// Set when its control socket broke: it is over, and is killed at this time if need be.
    ending: Option<Instant>,
}

/// What came of reading its control socket.
#[derive(Debug)]
pub(crate) enum Heard {
    Messages(Vec<Received<FromHost>>),
    /// It will say no more; why, if it was not simply its end.
    Broken(Vec<Received<FromHost>>, Option<String>),
}

impl Host {
    pub(crate) fn new(
        (process, control): (Process, UnixStream),
        policy: Policy,
        board: Board,
    ) -> Self {
        Self {
            process,
            board,
            control,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            description: None,
            policy,
            ending: None,
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.process.pid()
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    pub(crate) fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    pub(crate) fn set_up(&mut self, description: Description) {
        self.description = Some(description);
    }

    /// Whether it takes sessions now.
    pub(crate) fn is_open(&self) -> bool {
        self.description.is_some() && self.ending.is_none() && self.outbox.len() < OUTBOX_BYTES
    }

    /// The socket to wait for, and whether there is something to write.
    pub(crate) fn waits_for(&self) -> Option<(&UnixStream, bool)> {
        match self.ending {
            None => Some((&self.control, !self.outbox.is_empty())),
            Some(_) => None,
        }
    }

    pub(crate) fn send(&mut self, message: impl Into<ToHost>, descriptor: Option<OwnedFd>) {
        if self.ending.is_none() {
            self.outbox.push(&message.into(), descriptor);
            self.flush();
        }
    }

    /// Writes what the socket takes. A broken socket is noticed by the next read.
    pub(crate) fn flush(&mut self) {
        let _ = self.outbox.flush(&self.control, false);
    }

    pub(crate) fn hear(&mut self, now: Instant) -> Heard {
        let mut messages = Vec::new();
        let why = loop {
            match self.inbox.fill(&self.control, false) {
                Ok(0) => break None,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Heard::Messages(messages);
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => break None,
                Err(e) => break Some(e.to_string()),
            }
            match self.take_all(&mut messages) {
                Ok(()) => {}
                Err(why) => break Some(why),
            }
        };
        self.ending = Some(now + ENDING);
        if why.is_some() {
            // It is not what we take it for: nothing more of it is wanted.
            self.process.signal(Signal::KILL);
        }
        Heard::Broken(messages, why)
    }

    fn take_all(&mut self, messages: &mut Vec<Received<FromHost>>) -> Result<(), String> {
        while let Some(received) = self.inbox.take().map_err(|e| e.0)? {
            messages.push(received);
        }
        Ok(())
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.ending
    }

    /// Kills it if it did not end in time after its socket broke.
    pub(crate) fn on_time(&mut self, now: Instant) {
        if self.ending.is_some_and(|end| end <= now) {
            self.process.signal(Signal::KILL);
            // It ends as soon as the kernel can; looking again now and then costs nothing.
            self.ending = Some(now + ENDING);
        }
    }
}

/// When device hosts died, and what follows from it.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    recent: VecDeque<Instant>,
    pub(crate) restarts: u64,
}

impl Deaths {
    /// A death that will not happen again, because its cause is refused or was wanted.
    pub(crate) fn record_explained(&mut self) -> Duration {
        self.restarts += 1;
        FIRST_PAUSE
    }

    /// The pause before the next start, or `None`: it is to be given up.
    pub(crate) fn record(&mut self, now: Instant) -> Option<Duration> {
        while self
            .recent
            .front()
            .is_some_and(|&then| now.duration_since(then) > GIVE_UP_WITHIN)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        if self.recent.len() >= GIVE_UP_DEATHS {
            return None;
        }
        self.restarts += 1;
        Some(FIRST_PAUSE * 2u32.pow(self.recent.len() as u32 - 1))
    }

    pub(crate) fn given_up() -> String {
        format!(
            "it ended {GIVE_UP_DEATHS} times within {} s",
            GIVE_UP_WITHIN.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_the_fifth_death_in_a_minute_is_the_last() {
        let start = Instant::now();
        let mut deaths = Deaths::default();
        let pauses: Vec<_> = (0..5)
            .map(|i| deaths.record(start + Duration::from_secs(10 * i)))
            .map(|pause| pause.map(|p| p.as_millis()))
            .collect();
        assert_eq!(pauses, [Some(100), Some(200), Some(400), Some(800), None]);
    }

    #[test]
    fn deaths_far_apart_are_forgiven() {
        let start = Instant::now();
        let mut deaths = Deaths::default();
        for i in 0..100 {
            let pause = deaths.record(start + Duration::from_secs(61 * i));
            assert_eq!(pause, Some(FIRST_PAUSE));
        }
        assert_eq!(deaths.restarts, 100);
    }
}
