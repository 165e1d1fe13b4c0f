//! Those who come: jobs, which are handed to the device host, and commands, which are answered.

use std::time::Instant;

use rustix::event::PollFlags;
use salus_engine::Policy;
use salus_wire::{
    Adopt, Answer, AskTrace, Change, Changed, Command, FromService, Hello, Ordered, Report,
    Request, ToHost,
};

use serde_json::json;

use super::closing::{Link, let_descriptors_in};
use super::connections::{self, COMMANDS, REPORT_TIME, Stage, WAITING, Wanted};
use super::greeting::{Peer, Progress, Wish, code, refusal};
use super::report::{Card, ServicePart, answer, farewell, hide_names, merge};
use super::{ACCEPT_PAUSE, End, Supervisor, name_of};
use crate::log::{self, tame_name};

/// Connections taken in one turn of the loop, so that the rest of it has its turn too.
const ACCEPTS_A_TURN: usize = 64;

impl Supervisor {
    pub(super) fn on_listener(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_A_TURN {
            match self.endpoint.accept() {
                Ok(Some(stream)) => match Peer::of(&stream) {
                    Ok(peer) if self.gate.admits(peer.uid) => {
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
        let owner = name_of(self.gate.owner());
        refusal(
            code::PERMISSION_DENIED,
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
                    Progress::Ready(Wish::Session { hello, protocol }) => {
                        self.on_hello(id, hello, protocol, now);
                    }
                    Progress::Ready(Wish::Command(command)) => self.on_command(id, &command, now),
                }
            }
            Stage::Answering { .. } if !events.intersects(PollFlags::HUP | PollFlags::ERR) => {
                self.connections.write(id);
            }
            Stage::Holding { .. } => {
                self.idle_since = now;
                self.connections.remove(id);
            }
            // Whoever waits and hangs up wants nothing any more.
            Stage::Waiting { .. } | Stage::Reporting { .. } | Stage::Answering { .. } => {
                self.connections.remove(id);
            }
        }
    }

    fn on_hello(&mut self, id: u64, hello: Hello, protocol: u32, now: Instant) {
        let Hello {
            mut name,
            terms,
            run,
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
                .refuse(id, refusal(code::RESOURCE_EXHAUSTED, why));
        }
        if let Some(connection) = self.connections.get(id) {
            let waiting = Stage::Waiting {
                protocol,
                name,
                terms,
                run,
            };
            connection.enter(waiting, now);
        }
        self.adopt_waiting(now);
    }

    /// Hands the jobs that wait to the device host, as many as it takes now.
    pub(super) fn adopt_waiting(&mut self, now: Instant) {
        if self.connections.waiting().is_empty() {
            return;
        }
        // A device host that has just died would take them with it.
        self.on_control(now);
        for id in self.connections.waiting() {
            let Some(host) = self.host.as_mut().filter(|host| host.is_open()) else {
                return;
            };
            let Some(connection) = self.connections.remove(id) else {
                continue;
            };
            let Stage::Waiting {
                protocol,
                name,
                terms,
                run,
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
                    terms,
                },
                Some(stream.into()),
            );
            self.idle_since = now;
            let card = Card {
                name,
                pid,
                uid,
                user,
            };
            self.comings
                .info(now, format_args!("{} is open", card.label(session)));
            self.sessions.insert(session, card);
            self.connections.tell_run(run, uid, session);
        }
    }

    fn on_command(&mut self, id: u64, command: &Command, now: Instant) {
        if self.connections.commands() >= COMMANDS {
            let why = format!("{COMMANDS} commands are being answered; try again");
            return self
                .connections
                .refuse(id, refusal(code::RESOURCE_EXHAUSTED, why));
        }
        match &command.request {
            Request::Report => {
                let message = |request| ToHost::from(Report { request });
                self.have_host(id, Wanted::Report, now, message);
            }
            Request::Trace { seconds } => {
                let seconds = *seconds;
                let names_of = self.reader(id);
                let message = |request| {
                    ToHost::from(AskTrace {
                        request,
                        seconds,
                        names_of,
                    })
                };
                self.have_host(id, Wanted::Trace, now, message);
            }
            Request::Stop => self.on_stop(id, now),
            Request::Hold => self.on_hold(id, now),
            Request::Change { session, change } => self.on_change(id, *session, *change, now),
            Request::Policy { name } => self.on_policy(id, name, now),
            Request::Fate { session } => self.on_fate(id, *session, now),
        }
    }

    /// The user of a command who is told only what his own jobs are called; `None` for those who rule
    /// the service.
    fn reader(&mut self, id: u64) -> Option<u32> {
        let uid = self.connections.get(id).map(|c| c.peer.uid)?;
        (!self.gate.rules(uid)).then_some(uid)
    }

    /// Answers a command with the device host's JSON, or with why there is none.
    pub(super) fn report(&mut self, id: u64, from_host: Result<&str, &str>, now: Instant) {
        let service = ServicePart {
            socket: self.endpoint.path(),
            started: self.started,
            host_pid: self.host.as_ref().map(|host| host.pid()),
            restarts: self.deaths.restarts,
            convicted: self.blame.report(),
            waiting_jobs: self.connections.waiting().len(),
            policy: &self.service.host.policy,
            limits: self.service.host.limits(self.sessions_max),
        };
        let mut report = merge(from_host, &self.sessions, &service, now);
        if let Some(uid) = self.reader(id) {
            hide_names(&mut report, &self.sessions, uid);
        }
        match answer(&report) {
            Ok((report, blob)) => self.connections.answer(id, report, blob, false, now),
            Err(error) => self.connections.refuse(id, error),
        }
    }

    /// Answers a command that the device host does not answer; `state` is why.
    pub(super) fn no_answer(&mut self, id: u64, state: &str, now: Instant) {
        let stage = self.connections.get(id).map(|c| &c.stage);
        match stage {
            Some(Stage::Reporting {
                wanted: Wanted::Trace,
                ..
            }) => {
                let why = format!("there is no trace: the device is {state}");
                self.connections.refuse(id, refusal(code::UNAVAILABLE, why));
            }
            Some(Stage::Reporting {
                wanted: Wanted::Change,
                ..
            }) => {
                let why = format!(
                    "the change is not confirmed: the device is {state}; `salus ps -o json` shows \
                     how sessions are treated"
                );
                self.connections.refuse(id, refusal(code::UNAVAILABLE, why));
            }
            _ => self.report(id, Err(state), now),
        }
    }

    /// Its owner and those who rule the service may change how a session is treated.
    fn on_change(&mut self, id: u64, session: u64, change: Change, now: Instant) {
        let Some(Peer { pid, uid }) = self.connections.get(id).map(|c| c.peer) else {
            return;
        };
        let refused = match self.sessions.get(&session) {
            None => Some(refusal(
                code::INVALID_ARGUMENT,
                format!("there is no session {session}; `salus ps` shows those that are open"),
            )),
            Some(card) if !self.gate.may_change(uid, card.uid) => Some(refusal(
                code::PERMISSION_DENIED,
                format!("{} is not {}'s", card.whose(session), name_of(uid)),
            )),
            Some(_) if change == Change::Weight(0) => Some(refusal(
                code::INVALID_ARGUMENT,
                "a weight of 0 would never run; the least is 1",
            )),
            Some(card) => {
                let by = format!("{} (pid {pid})", name_of(uid));
                let label = card.label(session);
                let line = format_args!("{label} is changed by {by}: {change:?}");
                self.comings.info(now, line);
                None
            }
        };
        if let Some(error) = refused {
            return self.connections.refuse(id, error);
        }
        if change == Change::KillNow {
            return self.on_kill_now(id, session, now);
        }
        self.have_host(id, Wanted::Change, now, |request| {
            ToHost::from(Changed {
                request,
                session,
                change,
            })
        });
    }

    /// Ends a session whose iteration does not end, and with it the device host. Whoever does that to
    /// others' sessions must rule the service.
    fn on_kill_now(&mut self, id: u64, session: u64, now: Instant) {
        let Some(Peer { uid, .. }) = self.connections.get(id).map(|c| c.peer) else {
            return;
        };
        let others = self.sessions.values().filter(|card| card.uid != uid);
        let others = others.count();
        if others > 0 && !self.gate.rules(uid) {
            let owner = name_of(self.gate.owner());
            let why = format!(
                "{others} sessions of other users would be lost; only {owner} and root may do that"
            );
            let error = refusal(code::PERMISSION_DENIED, why);
            return self.connections.refuse(id, error);
        }
        let by = name_of(uid);
        if let Some(host) = &mut self.host {
            self.kill_now = Some(format!(
                "{by} has ended session {session} with `salus job {session} kill --now`, which starts \
                 the device host again"
            ));
            host.process().signal(rustix::process::Signal::KILL);
        }
        self.report(id, Err("starting again"), now);
    }

    /// Tells a job's library why its session is gone.
    fn on_fate(&mut self, id: u64, session: u64, now: Instant) {
        // It may know before us.
        self.on_control(now);
        self.on_children(now);
        let Some(Peer { uid, .. }) = self.connections.get(id).map(|c| c.peer) else {
            return;
        };
        let own = self.fates.get(&session).filter(|(owner, _)| *owner == uid);
        match own.map(|(_, fate)| fate.clone()) {
            Some(fate) => self
                .connections
                .refuse(id, refusal(code::UNAVAILABLE, fate)),
            None => {
                let json = "{}".into();
                self.connections
                    .answer(id, Answer { json }, None, false, now);
            }
        }
    }

    /// Those who rule the service may change the order for all.
    fn on_policy(&mut self, id: u64, name: &str, now: Instant) {
        let Some(Peer { pid, uid }) = self.connections.get(id).map(|c| c.peer) else {
            return;
        };
        if Policy::named(name).is_none() {
            let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
            let why = format!(
                "there is no policy `{name}`; there are {}",
                names.join(", ")
            );
            return self
                .connections
                .refuse(id, refusal(code::INVALID_ARGUMENT, why));
        }
        if !self.gate.rules(uid) {
            let owner = name_of(self.gate.owner());
            let why = format!("only {owner} and root may change the policy of this service");
            return self
                .connections
                .refuse(id, refusal(code::PERMISSION_DENIED, why));
        }
        let by = format!("{} (pid {pid})", name_of(uid));
        log::info(format_args!("the policy is {name} from now on, says {by}"));
        // A device host that does not listen now is told when it does (`tell_policy`), and one that
        // has to be started again goes on with it.
        self.service.host.policy = name.to_owned();
        if let Some(host) = self.host.as_mut().filter(|host| host.is_open()) {
            host.policy = name.to_owned();
        }
        let policy = name.to_owned();
        let message = |request| ToHost::from(Ordered { request, policy });
        self.have_host(id, Wanted::Report, now, message);
    }

    /// Sends the device host something that it answers with a report or a trace.
    fn have_host(
        &mut self,
        id: u64,
        wanted: Wanted,
        now: Instant,
        message: impl FnOnce(u64) -> ToHost,
    ) {
        self.last_request += 1;
        let request = self.last_request;
        if let Some(connection) = self.connections.get(id) {
            connection.enter(Stage::Reporting { request, wanted }, now);
        }
        match &mut self.host {
            Some(host) if host.is_open() => host.send(message(request), None),
            Some(host) if host.description().is_some() => {
                self.no_answer(id, "not answering", now);
            }
            Some(_) => self.no_answer(id, "starting", now),
            None => self.no_answer(id, "starting again", now),
        }
    }

    fn on_hold(&mut self, id: u64, now: Instant) {
        let Some(uid) = self.connections.get(id).map(|c| c.peer.uid) else {
            return;
        };
        let own = self.connections.holding_of(uid);
        if own >= self.sessions_per_user {
            let why = format!(
                "{own} `salus run` of {} wait for their jobs, and the limit for a user is {} \
                 (`[limits] sessions_per_user` of salus.toml); start it again when one has ended",
                name_of(uid),
                self.sessions_per_user
            );
            return self
                .connections
                .refuse(id, refusal(code::RESOURCE_EXHAUSTED, why));
        }
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let json = json!({ "run": id }).to_string();
        let held = FromService::from(Answer { json });
        // A first answer always fits into the socket.
        let _ = salus_channel::send_all(&*connection.stream, &held, None);
        connection.enter(Stage::Holding { told: false }, now);
    }

    fn on_stop(&mut self, id: u64, now: Instant) {
        let Some(Peer { pid, uid }) = self.connections.get(id).map(|c| c.peer) else {
            return;
        };
        if !self.gate.rules(uid) {
            let owner = name_of(self.gate.owner());
            let why = format!("only {owner} and root may end this service");
            return self
                .connections
                .refuse(id, refusal(code::PERMISSION_DENIED, why));
        }
        match answer(&farewell(&self.sessions)) {
            Ok((farewell, blob)) => self.connections.answer(id, farewell, blob, true, now),
            Err(error) => self.connections.refuse(id, error),
        }
        let by = format!("{} (pid {pid})", name_of(uid));
        self.end = Some(Ok(End::Asked { by }));
    }

    pub(super) fn on_overdue(&mut self, id: u64, now: Instant) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        match connection.stage {
            Stage::Greeting(_) => {
                let why = "the first message did not come in time";
                self.connections
                    .refuse(id, refusal(code::DEADLINE_EXCEEDED, why));
            }
            Stage::Reporting { .. } => {
                let seconds = REPORT_TIME.as_secs();
                self.refusals.warn(
                    now,
                    format_args!("the device host did not answer within {seconds} s"),
                );
                self.no_answer(id, "not answering", now);
            }
            Stage::Waiting { .. } | Stage::Answering { .. } | Stage::Holding { .. } => {
                self.connections.remove(id);
            }
        }
    }
}
