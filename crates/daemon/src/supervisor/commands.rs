//! Commands such as `salus ps` and `salus policy set`: who may ask for what, and the answers.

use std::time::Instant;

use salus_engine::Policy;
use salus_wire::{
    Answer, AskTrace, Change, ChangePolicy, ChangeSession, Command, Error, ErrorCode, FromService,
    Report, Request, ToHost, Trace,
};
use serde_json::json;

use super::connections::{Awaited, COMMANDS, Part, Stage};
use super::greeting::Peer;
use super::report::{DevicePart, ServicePart, answer, farewell, hide_names, merge};
use super::{End, Supervisor, name_of};
use crate::log::{self, tame_name};

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
                self.ask_hosts(id, Awaited::Report, now, |_, request| {
                    Some(Report { request }.into())
                });
            }
            Request::Trace { seconds } => {
                let seconds = *seconds;
                let names_of = self.reader(id);
                let message = |_, request| {
                    let asked = AskTrace {
                        request,
                        seconds,
                        names_of,
                    };
                    Some(asked.into())
                };
                self.ask_hosts(id, Awaited::Trace, now, message);
            }
            Request::Stop => self.on_stop(id, now),
            Request::Hold => self.on_hold(id, now),
            Request::Change { session, change } => self.on_change(id, *session, *change, now),
            Request::Policy { name, device } => self.on_policy(id, name, device, now),
            Request::Fate { session } => self.on_fate(id, *session, now),
        }
    }

    /// The user of a command who may see the names of their own jobs only; `None` for operators.
    fn reader(&mut self, id: u64) -> Option<u32> {
        let uid = self.connections.get(id).map(|c| c.peer.uid)?;
        (!self.access.is_operator(uid)).then_some(uid)
    }

    /// A device host has answered this request.
    pub(super) fn on_answer(&mut self, device: usize, request: u64, part: Part, now: Instant) {
        let waiting = self.connections.reporting(Some(request));
        if let Some(&id) = waiting.first() {
            self.set_part(id, device, part);
            self.answer_if_complete(id, now);
        }
    }

    /// A device host answers nothing that it was asked; `state` is why.
    pub(super) fn no_answer(&mut self, device: usize, state: &'static str, now: Instant) {
        for id in self.connections.reporting(None) {
            self.set_part(id, device, Part::None(state));
            self.answer_if_complete(id, now);
        }
    }

    /// The time for a command's answers is over: those that are there are given.
    pub(super) fn give_up_waiting(&mut self, id: u64, now: Instant) {
        for device in 0..self.devices.len() {
            self.set_part(id, device, Part::None("not answering"));
        }
        self.answer_if_complete(id, now);
    }

    /// What one device answers to a command, if nothing is known of that yet.
    fn set_part(&mut self, id: u64, device: usize, part: Part) {
        let stage = self.connections.get(id).map(|c| &mut c.stage);
        if let Some(Stage::Reporting { parts, .. }) = stage
            && let Some(awaited @ Part::Awaited) = parts.get_mut(device)
        {
            *awaited = part;
        }
    }

    /// Answers a command as soon as every device has answered, or never will.
    fn answer_if_complete(&mut self, id: u64, now: Instant) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let Stage::Reporting { awaited, parts, .. } = &mut connection.stage else {
            return;
        };
        if parts.iter().any(|part| matches!(part, Part::Awaited)) {
            return;
        }
        let (awaited, parts) = (*awaited, std::mem::take(parts));
        match awaited {
            Awaited::Trace => self.answer_trace(id, parts, now),
            Awaited::Report => self.answer_report(id, &parts, now),
            Awaited::Change { device } => match parts.get(device) {
                Some(Part::None(state)) => {
                    let why = format!(
                        "the change is not confirmed: the device is {state}; `salus ps -o json` \
                         shows how sessions are treated"
                    );
                    self.connections
                        .refuse(id, Error::new(ErrorCode::Unavailable, why));
                }
                _ => self.answer_report(id, &parts, now),
            },
        }
    }

    fn answer_report(&mut self, id: u64, parts: &[Part], now: Instant) {
        let devices = self.devices.iter().zip(parts);
        let devices = devices.map(|(device, part)| DevicePart {
            name: device.name(),
            answer: match part {
                Part::Report(json) => Ok(json.as_str()),
                Part::None(state) => Err(*state),
                Part::Awaited | Part::Trace(..) => Err("not answering"),
            },
            host_pid: device.host.as_ref().map(|host| host.pid()),
            restarts: device.deaths.restarts,
            policy: device.settings.scheduling.policy,
            given_up: device.given_up.as_ref().map(|problem| problem.what.clone()),
        });
        let devices: Vec<DevicePart<'_>> = devices.collect();
        let service = ServicePart {
            socket: self.endpoint.path(),
            started: self.started,
            convicted: self.blame.report(),
            waiting_jobs: self.connections.waiting().len(),
            limits: self.service.host.limits(self.sessions_max),
        };
        let mut report = merge(&devices, &self.sessions, &service, now);
        if let Some(uid) = self.reader(id) {
            hide_names(&mut report, &self.sessions, uid);
        }
        match answer(&report) {
            Ok((report, blob)) => self.connections.answer(id, report, blob, false, now),
            Err(error) => self.connections.refuse(id, error),
        }
    }

    /// The recordings that there are, each in a message of its own.
    fn answer_trace(&mut self, id: u64, parts: Vec<Part>, now: Instant) {
        let missing = |part: &Part| match part {
            Part::None(state) => Some(*state),
            _ => None,
        };
        if let Some(states) = parts.iter().map(missing).collect::<Option<Vec<_>>>() {
            let state = states.first().copied().unwrap_or_default();
            let why = format!("there is no trace: the device is {state}");
            return self
                .connections
                .refuse(id, Error::new(ErrorCode::Unavailable, why));
        }
        let messages = parts.into_iter().enumerate().map(|(device, part)| {
            let missing = missing(&part).map(str::to_owned);
            let (blob, bytes) = match part {
                Part::Trace(blob, bytes) => (Some(blob), bytes),
                _ => (None, 0),
            };
            let trace = Trace {
                device: self.devices[device].name(),
                bytes,
                missing,
                more: (self.devices.len() - 1 - device) as u32,
            };
            (trace.into(), blob)
        });
        let messages = messages.collect();
        self.connections.answer_all(id, messages, false, now);
    }

    /// Its owner and operators may change a session.
    fn on_change(&mut self, id: u64, session: u64, change: Change, now: Instant) {
        let Some(Peer { pid, uid }) = self.connections.get(id).map(|c| c.peer) else {
            return;
        };
        let device = self.sessions.get(&session).map_or(0, |card| card.device);
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
            return self.on_kill_now(id, session, device, now);
        }
        let message = |asked, request| {
            if asked != device {
                return Some(Report { request }.into());
            }
            let change = ChangeSession {
                request,
                session,
                change,
            };
            Some(change.into())
        };
        self.ask_hosts(id, Awaited::Change { device }, now, message);
    }

    /// Ends a session whose iteration does not end, and with it its device host. Only operators may do
    /// that to others' sessions.
    fn on_kill_now(&mut self, id: u64, session: u64, device: usize, now: Instant) {
        let Some(Peer { uid, .. }) = self.connections.get(id).map(|c| c.peer) else {
            return;
        };
        let lost = self.sessions.values().filter(|card| card.device == device);
        let others = lost.filter(|card| card.uid != uid).count();
        if others > 0 && !self.access.is_operator(uid) {
            let owner = name_of(self.access.owner());
            let why = format!(
                "{others} sessions of other users would be lost; only {owner} and root may do that"
            );
            let error = Error::new(ErrorCode::PermissionDenied, why);
            return self.connections.refuse(id, error);
        }
        let by = name_of(uid);
        self.devices[device].kill(format!(
            "{by} has ended session {session} with `salus job {session} kill --now`, which starts the \
             device host again"
        ));
        let message = |asked, request| (asked != device).then(|| ToHost::from(Report { request }));
        self.ask_hosts(id, Awaited::Report, now, message);
    }

    /// Tells a job's library why its session is gone.
    fn on_fate(&mut self, id: u64, session: u64, now: Instant) {
        // It may know before us.
        self.on_controls(now);
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

    /// Operators may change the policy, of all devices or of some.
    fn on_policy(&mut self, id: u64, name: &str, wanted: &str, now: Instant) {
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
        let devices = match self.meant(&tame_name(wanted)) {
            Ok(Some(devices)) => devices,
            Ok(None) => {
                let why = "the devices are being opened; set the policy when they are";
                let error = Error::new(ErrorCode::Unavailable, why);
                return self.connections.refuse(id, error);
            }
            Err(error) => return self.connections.refuse(id, error),
        };
        let by = format!("{} (pid {pid})", name_of(uid));
        for &device in &devices {
            let of = self.of_device(device);
            log::info(format_args!(
                "the policy{of} is {name} from now on, set by {by}"
            ));
            // A device host that does not listen now gets it when it does (`send_policy`), and one that
            // has to be started again goes on with it.
            let served = &mut self.devices[device];
            served.settings.scheduling.policy = policy;
            if let Some(host) = served.host.as_mut().filter(|host| host.is_open()) {
                host.policy = policy;
            }
        }
        let message = |device, request| {
            let policy = policy.name().into();
            Some(match devices.contains(&device) {
                true => ToHost::from(ChangePolicy { request, policy }),
                false => ToHost::from(Report { request }),
            })
        };
        self.ask_hosts(id, Awaited::Report, now, message);
    }

    /// Asks the device hosts something that each answers with a report or a trace. Without a message
    /// for it, a device host is starting again.
    fn ask_hosts(
        &mut self,
        id: u64,
        awaited: Awaited,
        now: Instant,
        message: impl Fn(usize, u64) -> Option<ToHost>,
    ) {
        self.last_request += 1;
        let request = self.last_request;
        let mut parts = Vec::new();
        for (place, device) in self.devices.iter_mut().enumerate() {
            let message = message(place, request);
            parts.push(match (&mut device.host, message) {
                _ if device.given_up.is_some() => Part::None("given up"),
                (Some(host), Some(message)) if host.is_open() => {
                    host.send(message, None);
                    Part::Awaited
                }
                (Some(host), Some(_)) if host.description().is_some() => {
                    Part::None("not answering")
                }
                (Some(_), Some(_)) => Part::None("starting"),
                (None, _) | (_, None) => Part::None("starting again"),
            });
        }
        if let Some(connection) = self.connections.get(id) {
            let reporting = Stage::Reporting {
                request,
                awaited,
                parts,
            };
            connection.enter(reporting, now);
        }
        self.answer_if_complete(id, now);
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
