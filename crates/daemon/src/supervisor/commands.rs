//! Commands such as `salus ps` and `salus policy set`: who may ask for what, and the answers.

use std::time::Instant;

use salus_engine::Policy;
use salus_wire::{
    Answer, AskTrace, Change, ChangePolicy, ChangeSession, Command, Error, ErrorCode, FromService,
    Report, Request, ToHost,
};
use serde_json::json;

use super::connections::{Awaited, COMMANDS, Stage};
use super::greeting::Peer;
use super::report::{ServicePart, answer, farewell, hide_names, merge};
use super::{End, Supervisor, name_of};
use crate::log;

impl Supervisor {
    pub(super) fn on_command(&mut self, id: u64, command: &Command, now: Instant) {
        if self.connections.commands() >= COMMANDS {
            let why = format!("{COMMANDS} commands are being answered; retry in a moment");
            return self
                .connections
                .refuse(id, Error::new(ErrorCode::ResourceExhausted, why));
        }
        match &command.request {
            Request::Report => {
                let message = |request| ToHost::from(Report { request });
                self.ask_host(id, Awaited::Report, now, message);
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
                self.ask_host(id, Awaited::Trace, now, message);
            }
            Request::Stop => self.on_stop(id, now),
            Request::Hold => self.on_hold(id, now),
            Request::Change { session, change } => self.on_change(id, *session, *change, now),
            Request::Policy { name } => self.on_policy(id, name, now),
            Request::Fate { session } => self.on_fate(id, *session, now),
        }
    }

    /// The user of a command who may see the names of their own jobs only; `None` for operators.
    fn reader(&mut self, id: u64) -> Option<u32> {
        let uid = self.connections.get(id).map(|c| c.peer.uid)?;
        (!self.access.is_operator(uid)).then_some(uid)
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
            policy: self.service.host.scheduling.policy,
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
                awaited: Awaited::Trace,
                ..
            }) => {
                let why = format!("there is no trace: the device is {state}");
                self.connections
                    .refuse(id, Error::new(ErrorCode::Unavailable, why));
            }
            Some(Stage::Reporting {
                awaited: Awaited::Change,
                ..
            }) => {
                let why = format!(
                    "the change is not confirmed: the device is {state}; `salus ps -o json` shows \
                     how sessions are treated"
                );
                self.connections
                    .refuse(id, Error::new(ErrorCode::Unavailable, why));
            }
            _ => self.report(id, Err(state), now),
        }
    }

    /// Its owner and operators may change a session.
    fn on_change(&mut self, id: u64, session: u64, change: Change, now: Instant) {
        let Some(Peer { pid, uid }) = self.connections.get(id).map(|c| c.peer) else {
            return;
        };
        let refused = match self.sessions.get(&session) {
            None => Some(Error::new(
                ErrorCode::InvalidArgument,
                format!("there is no session {session}; `salus ps` shows those that are open"),
            )),
            Some(card) if !self.access.may_change(uid, card.uid) => Some(Error::new(
                ErrorCode::PermissionDenied,
                format!("{} is not {}'s", card.whose(session), name_of(uid)),
            )),
            Some(card) => {
                let by = format!("{} (pid {pid})", name_of(uid));
                let label = card.label(session);
                let line = format_args!("{label} is changed by {by}: {change:?}");
                self.activity.info(now, line);
                None
            }
        };
        if let Some(error) = refused {
            return self.connections.refuse(id, error);
        }
        if change == Change::KillNow {
            return self.on_kill_now(id, session, now);
        }
        self.ask_host(id, Awaited::Change, now, |request| {
            ToHost::from(ChangeSession {
                request,
                session,
                change,
            })
        });
    }

    /// Ends a session whose iteration does not end, and with it the device host. Only operators may do
    /// that to others' sessions.
    fn on_kill_now(&mut self, id: u64, session: u64, now: Instant) {
        let Some(Peer { uid, .. }) = self.connections.get(id).map(|c| c.peer) else {
            return;
        };
        let others = self.sessions.values().filter(|card| card.uid != uid);
        let others = others.count();
        if others > 0 && !self.access.is_operator(uid) {
            let owner = name_of(self.access.owner());
            let why = format!(
                "{others} sessions of other users would be lost; only {owner} and root may do that"
            );
            let error = Error::new(ErrorCode::PermissionDenied, why);
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
                .refuse(id, Error::new(ErrorCode::Unavailable, fate)),
            None => {
                let json = "{}".into();
                self.connections
                    .answer(id, Answer { json }, None, false, now);
            }
        }
    }

    /// Operators may change the policy.
    fn on_policy(&mut self, id: u64, name: &str, now: Instant) {
        let Some(Peer { pid, uid }) = self.connections.get(id).map(|c| c.peer) else {
            return;
        };
        let Some(policy) = Policy::named(name) else {
            let names = Policy::ALL.map(Policy::name).join(", ");
            let why = format!("there is no policy `{name}`; there are {names}");
            let error = Error::new(ErrorCode::InvalidArgument, why);
            return self.connections.refuse(id, error);
        };
        if !self.access.is_operator(uid) {
            let owner = name_of(self.access.owner());
            let why = format!("only {owner} and root may change the policy of this service");
            return self
                .connections
                .refuse(id, Error::new(ErrorCode::PermissionDenied, why));
        }
        let by = format!("{} (pid {pid})", name_of(uid));
        log::info(format_args!(
            "the policy is {name} from now on, set by {by}"
        ));
        // A device host that does not listen now gets it when it does (`send_policy`), and one that
        // has to be started again goes on with it.
        self.service.host.scheduling.policy = policy;
        if let Some(host) = self.host.as_mut().filter(|host| host.is_open()) {
            host.policy = policy;
        }
        let policy = policy.name().into();
        let message = |request| ToHost::from(ChangePolicy { request, policy });
        self.ask_host(id, Awaited::Report, now, message);
    }

    /// Asks the device host something that it answers with a report or a trace.
    fn ask_host(
        &mut self,
        id: u64,
        awaited: Awaited,
        now: Instant,
        message: impl FnOnce(u64) -> ToHost,
    ) {
        self.last_request += 1;
        let request = self.last_request;
        if let Some(connection) = self.connections.get(id) {
            connection.enter(Stage::Reporting { request, awaited }, now);
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
                .refuse(id, Error::new(ErrorCode::ResourceExhausted, why));
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
        if !self.access.is_operator(uid) {
            let owner = name_of(self.access.owner());
            let why = format!("only {owner} and root may end this service");
            return self
                .connections
                .refuse(id, Error::new(ErrorCode::PermissionDenied, why));
        }
        match answer(&farewell(&self.sessions)) {
            Ok((farewell, blob)) => self.connections.answer(id, farewell, blob, true, now),
            Err(error) => self.connections.refuse(id, error),
        }
        let by = format!("{} (pid {pid})", name_of(uid));
        self.end = Some(Ok(End::Asked { by }));
    }
}
