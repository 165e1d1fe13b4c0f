//! New connections: their first frame, and jobs on their way to a device host.
//!
//! Not here: commands (`commands.rs`).

use std::time::Instant;

use rustix::event::PollFlags;
use salus_wire::{Adopt, Error, ErrorCode, Hello};

use super::closing::{Link, let_descriptors_in};
use super::connections::{self, REPORT_TIME, Stage, WAITING};
use super::devices::Choice;
use super::greeting::{FirstRequest, Peer, Progress};
use super::report::Card;
use super::{ACCEPT_PAUSE, Supervisor, name_of};
use crate::log::{self, tame_name};

/// Connections taken in one turn of the loop, so that the rest of it has its turn too.
const ACCEPTS_A_TURN: usize = 64;

impl Supervisor {
    pub(super) fn on_listener(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_A_TURN {
            match self.endpoint.accept() {
                Ok(Some(stream)) => match Peer::of(&stream) {
                    Ok(peer) if self.access.admits(peer.uid) => {
                        // Also a mere connection counts: `salus run` looks whether somebody is
                        // there, and its job comes a moment later.
                        self.idle_since = now;
                        let id = self.connections.add(stream, peer, now);
                        self.on_connection(id, PollFlags::IN, now);
                    }
                    Ok(peer) => {
                        let stream = Link::new(stream, &self.closer);
                        connections::refuse(&stream, self.stranger(peer));
                    }
                    Err(e) => {
                        self.closer.close(stream);
                        log::warn(format_args!("a connection without credentials: {e}"));
                    }
                },
                Ok(None) => return,
                Err(e) => {
                    self.refusals
                        .warn(now, format_args!("no connection can be taken now: {e}"));
                    self.accept_after = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn stranger(&self, peer: Peer) -> salus_wire::Error {
        let owner = name_of(self.access.owner());
        Error::new(
            ErrorCode::PermissionDenied,
            format!(
                "this service is {owner}'s and not open to {}; start one of your own (`salus run` \
                 does), or ask {owner} to name you in `allow_users` of salus.toml",
                name_of(peer.uid)
            ),
        )
    }

    pub(super) fn on_connection(&mut self, id: u64, events: PollFlags, now: Instant) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        match &mut connection.stage {
            Stage::Greeting(greeting) => {
                match greeting.advance(&*connection.stream, &self.closer) {
                    Progress::More => {}
                    Progress::Closed => {
                        self.connections.remove(id);
                    }
                    Progress::Refuse(error) => {
                        let Peer { pid, uid } = connection.peer;
                        let why = &error.message;
                        self.refusals
                            .warn(now, format_args!("refused pid {pid} of user {uid}: {why}"));
                        self.connections.refuse(id, error);
                    }
                    Progress::Ready(FirstRequest::Session { hello, protocol }) => {
                        self.on_hello(id, hello, protocol, now);
                    }
                    Progress::Ready(FirstRequest::Command(command)) => {
                        self.on_command(id, &command, now)
                    }
                }
            }
            Stage::Answering { .. } if !events.intersects(PollFlags::HUP | PollFlags::ERR) => {
                self.connections.write(id);
            }
            Stage::Holding { .. } => {
                self.idle_since = now;
                self.connections.remove(id);
            }
            // A peer that hangs up while it waits wants nothing any more.
            Stage::Waiting { .. } | Stage::Reporting { .. } | Stage::Answering { .. } => {
                self.connections.remove(id);
            }
        }
    }

    fn on_hello(&mut self, id: u64, hello: Hello, protocol: u32, now: Instant) {
        let Hello {
            mut name,
            settings,
            run,
            device,
            ..
        } = hello;
        if name.trim().is_empty() {
            name = "unnamed".into();
        }
        // From here on it is shown by commands, errors, logs and traces.
        name = tame_name(&name);
        let Some(uid) = self.connections.get(id).map(|c| c.peer.uid) else {
            return;
        };
        let waiting = self.connections.waiting().len();
        let open = self.sessions.len() + waiting;
        let own = self.sessions.values().filter(|card| card.uid == uid);
        let own = own.count() + self.connections.waiting_of(uid);
        let full = if open >= self.sessions_max {
            Some(format!(
                "{open} sessions are open, and {} is the limit",
                self.sessions_max
            ))
        } else if own >= self.sessions_per_user {
            Some(format!(
                "{} has {own} sessions open, and the limit for a user is {} \
                 (`[limits] sessions_per_user` of salus.toml)",
                name_of(uid),
                self.sessions_per_user
            ))
        } else if waiting >= WAITING {
            Some(format!(
                "{waiting} jobs wait for the device already, and {WAITING} is the limit"
            ))
        } else {
            None
        };
        if let Some(why) = full {
            let why = format!("{why}; start it again when one has ended (`salus ps` shows them)");
            return self
                .connections
                .refuse(id, Error::new(ErrorCode::ResourceExhausted, why));
        }
        if let Some(connection) = self.connections.get(id) {
            let waiting = Stage::Waiting {
                protocol,
                name,
                settings,
                run,
                device: tame_name(device.trim()),
            };
            connection.enter(waiting, now);
        }
        self.adopt_waiting(now);
    }

    /// Hands the jobs that wait to device hosts, as many as these take now.
    pub(super) fn adopt_waiting(&mut self, now: Instant) {
        if self.connections.waiting().is_empty() {
            return;
        }
        // A device host that has just died would take them with it.
        self.on_controls(now);
        for id in self.connections.waiting() {
            let wanted = match self.connections.get(id).map(|c| &c.stage) {
                Some(Stage::Waiting { device, .. }) => device.clone(),
                _ => continue,
            };
            let device = match self.choose(&wanted) {
                Choice::Device(device) => device,
                Choice::Wait => continue,
                Choice::Refuse(error) => {
                    self.connections.refuse(id, error);
                    continue;
                }
            };
            let host = self.devices[device].host.as_mut();
            let (Some(host), Some(connection)) = (host, self.connections.remove(id)) else {
                continue;
            };
            let Stage::Waiting {
                protocol,
                name,
                settings,
                run,
                ..
            } = connection.stage
            else {
                continue;
            };
            let Peer { pid, uid } = connection.peer;
            let user = name_of(uid);
            let stream = connection.stream.into_stream();
            let_descriptors_in(&stream);
            self.last_session += 1;
            let session = self.last_session;
            host.send(
                Adopt {
                    session,
                    protocol,
                    pid,
                    uid,
                    user: user.clone(),
                    name: name.clone(),
                    settings,
                },
                Some(stream.into()),
            );
            self.idle_since = now;
            let card = Card {
                name,
                pid,
                uid,
                user,
                device,
            };
            let on = match self.devices.len() {
                1 => String::new(),
                _ => format!(" on {}", self.devices[device].name()),
            };
            self.activity
                .info(now, format_args!("{} is open{on}", card.label(session)));
            self.sessions.insert(session, card);
            self.connections.tell_run(run, uid, session);
        }
    }

    pub(super) fn on_overdue(&mut self, id: u64, now: Instant) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        match connection.stage {
            Stage::Greeting(_) => {
                let why = "the first message did not come in time";
                self.connections
                    .refuse(id, Error::new(ErrorCode::DeadlineExceeded, why));
            }
            Stage::Reporting { .. } => {
                let seconds = REPORT_TIME.as_secs();
                self.refusals.warn(
                    now,
                    format_args!("the device host did not answer within {seconds} s"),
                );
                self.give_up_waiting(id, now);
            }
            Stage::Waiting { .. } | Stage::Answering { .. } | Stage::Holding { .. } => {
                self.connections.remove(id);
            }
        }
    }
}
