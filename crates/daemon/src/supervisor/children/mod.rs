//! The processes that the supervisor started: what the device host says, and how they end.

pub(crate) mod child_entry;
pub(crate) mod compilers;
pub(crate) mod device_host_process;
pub(crate) mod process;
mod python;

use std::time::Instant;

use rustix::process::Signal;
use salus_channel::{Received, text_of};
use salus_wire::{
    ChangePolicy, CompilerEnded, CompilerJoined, Error, ErrorCode, FromHost, Trace, Up, limits,
};
use serde_json::Value;

use crate::board::{Accusation, Board, Running};
use crate::config::Problem;
use crate::log;
use crate::supervisor::children::device_host_process::{Deaths, Heard, Host};
use crate::supervisor::children::process::Role;
use crate::supervisor::{Service, Supervisor, blame};

/// Lost sessions whose fate is kept: their libraries ask within a moment.
const FATES: usize = 4096;

/// How a device host ends that finds its device broken.
const DEVICE_FAILED: &str = "the device failed";

impl Supervisor {
    pub(crate) fn start_host(&mut self, now: Instant) {
        self.start_host_at = None;
        let Service { launcher, host, .. } = &self.service;
        let started = launcher.start(Role::DeviceHost, host);
        match started.and_then(|started| Ok((started, Board::create()?))) {
            Ok((started, (board, descriptor))) => {
                let mut host = Host::new(started, host.scheduling.policy, board);
                log::info(format_args!("device host started (pid {})", host.pid()));
                let bytes = Board::BYTES;
                host.send(salus_wire::Board { bytes }, Some(descriptor));
                for convicted in self.blame.messages() {
                    host.send(convicted, None);
                }
                self.host = Some(host);
            }
            Err(e) => self.host_lost(&format!("it cannot be started: {e}"), None, &[], now),
        }
    }

    /// Hears what the device host has to say.
    pub(crate) fn on_control(&mut self, now: Instant) {
        let Some(host) = self.host.as_mut().filter(|host| host.waits_for().is_some()) else {
            return;
        };
        host.flush();
        let messages = match host.hear(now) {
            Heard::Messages(messages) => messages,
            Heard::Broken(messages, why) => {
                if let Some(why) = why {
                    log::error(format_args!("the device host's messages are broken: {why}"));
                }
                messages
            }
        };
        for message in messages {
            self.on_message(message, now);
        }
    }

    fn on_message(&mut self, received: Received<FromHost>, now: Instant) {
        match received.message {
            FromHost::Up(up) => self.on_up(up, now),
            FromHost::Failed(failed) => {
                let error = failed.error.message;
                let hint = failed.error.hint.unwrap_or_else(|| {
                    "`salus doctor` shows what is found and what is missing".into()
                });
                log::error(format_args!("the device cannot be opened: {error}"));
                // A device that was there may come back; one that never was is the user's to see.
                if !self.was_ready {
                    let device = &self.service.host.device.name;
                    self.give_up(
                        Problem::new(format!("the device `{device}` cannot be opened: {error}"))
                            .hint(hint),
                    );
                }
            }
            FromHost::Reported(reported) => {
                let limit = limits::REPORT_BYTES;
                let json = match text_of(reported.json, received.descriptor, limit) {
                    Ok(json) => json,
                    // The command that waits is answered when its time is over.
                    Err(e) => {
                        log::warn(format_args!(
                            "a report of the device host cannot be read: {e}"
                        ));
                        return;
                    }
                };
                for id in self.connections.reporting(Some(reported.request)) {
                    self.report(id, Ok(&json), now);
                }
            }
            FromHost::Traced(traced) => {
                let waiting = self.connections.reporting(Some(traced.request));
                if let (Some(&id), Some(blob)) = (waiting.first(), received.descriptor) {
                    let trace = Trace {
                        bytes: traced.bytes,
                    };
                    self.connections.answer(id, trace, Some(blob), false, now);
                }
            }
            FromHost::CompilerWanted(wanted) => self.compilers.want(wanted.count),
            FromHost::Endless(endless) => {
                log::error(format_args!("{}", endless.why));
                if let Some(host) = &mut self.host {
                    self.kill_now = Some(endless.why);
                    host.process().signal(Signal::KILL);
                }
            }
            FromHost::CompilerUnwanted(unwanted) => self.compilers.end(unwanted.compiler),
            FromHost::SessionClosed(closed) => {
                if let Some(card) = self.sessions.remove(&closed.session) {
                    let line = format_args!("{} is closed", card.label(closed.session));
                    self.activity.info(now, line);
                    self.idle_since = now;
                }
            }
        }
    }

    fn on_up(&mut self, up: Up, now: Instant) {
        if let Some(host) = &mut self.host {
            host.set_up(up.description);
        }
        if self.was_ready {
            log::info("the device is open again");
        } else {
            self.was_ready = true;
            // Opening a device may take long; the idle time begins with what a job could use.
            self.idle_since = now;
            let mut report: Value = serde_json::from_str(&up.json).unwrap_or_default();
            // It may have been changed meanwhile, which the device host gets next.
            let device = &mut report["device"];
            device["policy"] = self.service.host.scheduling.policy.name().into();
            (self.service.when_ready)(device);
        }
        self.send_policy();
        self.adopt_waiting(now);
    }

    /// Sends the device host a policy that was chosen while it did not listen.
    pub(crate) fn send_policy(&mut self) {
        let policy = self.service.host.scheduling.policy;
        let listens = |host: &&mut Host| host.is_open() && host.policy != policy;
        if let Some(host) = self.host.as_mut().filter(listens) {
            host.policy = policy;
            // Nobody waits for the answer: no request has the number 0.
            let (request, policy) = (0, policy.name().into());
            host.send(ChangePolicy { request, policy }, None);
        }
    }

    /// Looks which children ended.
    pub(crate) fn on_children(&mut self, now: Instant) {
        for ended in self.compilers.reap(now) {
            let line = format_args!("compiler {} ended: {}", ended.id, ended.how);
            self.activity.warn(now, line);
            if let Some(host) = &mut self.host {
                let compiler = ended.id;
                let how = ended.how;
                host.send(CompilerEnded { compiler, how }, None);
            }
        }
        if let Some(how) = self.host.as_mut().and_then(|host| host.process().ended()) {
            let board = self.host.take().map(|host| host.board);
            if let Some(accusation) = board.as_ref().and_then(Board::accusation) {
                return self.device_failed(&accusation, now);
            }
            let running = board.as_ref().map_or_else(Vec::new, Board::running);
            let judged = self.blame.judge(&how, &running, &self.sessions);
            let by = match board.and_then(|board| board.killer()) {
                Some(pid) => format!(", sent by process {pid}"),
                None => String::new(),
            };
            self.host_lost(&format!("it ended: {how}{by}"), None, &judged, now);
        }
    }

    /// The device host ended because its device does not work any more, or died of asking it.
    fn device_failed(&mut self, accusation: &Accusation, now: Instant) {
        let how = format!("{DEVICE_FAILED}: {}", accusation.why);
        let suspect = accusation.program.iter();
        let judge = |suspect: &Running| {
            let convicted = self.blame.judge_by_device(&how, suspect, &self.sessions);
            (suspect.clone(), convicted)
        };
        let judged: Vec<_> = suspect.map(judge).collect();
        self.host_lost(&how, Some(accusation.session), &judged, now);
    }

    /// The device host is gone. Its sessions end by themselves, because their sockets were its own.
    /// `judged`: the programs that it was running, if they may be why, and whether one is convicted.
    /// `told_by`: the session whose launch the vendor's words in `how` are about.
    fn host_lost(
        &mut self,
        how: &str,
        told_by: Option<u64>,
        judged: &[(Running, bool)],
        now: Instant,
    ) {
        self.compilers.clear();
        let sessions = std::mem::take(&mut self.sessions);
        let label = |session: u64| match sessions.get(&session) {
            Some(card) => card.label(session),
            None => format!("session {session}"),
        };
        log_suspects(judged, label);
        let wanted = self.kill_now.take();
        let told_by = told_by.map(|session| sessions.get(&session).map(|card| card.uid));
        for (session, card) in &sessions {
            log::warn(format_args!("{} is lost", card.label(*session)));
            // The vendor's words may name what is in the program.
            let is_own = told_by.is_none_or(|uid| uid == Some(card.uid));
            let how = match is_own || self.access.is_operator(card.uid) {
                true => how,
                false => DEVICE_FAILED,
            };
            let fate = match &wanted {
                Some(why) => why.clone(),
                None => blame::fate(*session, how, judged, |suspect| {
                    let name = log::tame_name(&suspect.name);
                    match sessions.get(&suspect.session) {
                        // What others' jobs and programs are called is theirs.
                        Some(other)
                            if other.uid != card.uid && !self.access.is_operator(card.uid) =>
                        {
                            format!("a program of {}", other.whose(suspect.session))
                        }
                        _ => format!("the program `{name}` of {}", label(suspect.session)),
                    }
                }),
            };
            self.fates.insert(*session, (card.uid, fate));
        }
        while self.fates.len() > FATES {
            self.fates.pop_first();
        }
        self.idle_since = now;
        for id in self.connections.reporting(None) {
            self.no_answer(id, "starting again", now);
        }
        if self.end.is_some() {
            return;
        }
        let explained = wanted.is_some() || judged.iter().any(|(_, convicted)| *convicted);
        let pause = match explained {
            true => Some(self.deaths.record_explained()),
            false => self.deaths.record(now),
        };
        match pause {
            Some(pause) => {
                log::error(format_args!(
                    "device host: {how}; it starts again in {} ms",
                    pause.as_millis()
                ));
                self.start_host_at = Some(now + pause);
            }
            None => self.give_up(
                Problem::new(format!(
                    "the device host cannot be kept running: {}, the last time: {how}",
                    Deaths::given_up()
                ))
                .hint("the lines above say what happened before; `salus doctor` checks the device"),
            ),
        }
    }

    /// Ends the service; jobs and commands that wait are refused with the reason.
    fn give_up(&mut self, problem: Problem) {
        let waiting = self.connections.waiting();
        self.connections.refuse_all(
            &waiting,
            &Error::new(ErrorCode::Unavailable, problem.what.clone()),
        );
        self.end = Some(Err(problem));
    }

    pub(crate) fn start_compilers(&mut self, now: Instant) {
        let Some(host) = self.host.as_mut().filter(|host| host.is_open()) else {
            return;
        };
        while self.compilers.due(now).is_some_and(|at| at <= now) {
            let Service {
                launcher,
                host: settings,
                ..
            } = &self.service;
            let first = self.compilers.is_first();
            match launcher.start(Role::Compiler { first }, settings) {
                Ok(started) => {
                    let (compiler, pid, socket) = self.compilers.joined(started, now);
                    let line = format_args!("compiler {compiler} started (pid {pid})");
                    self.activity.info(now, line);
                    host.send(CompilerJoined { compiler, pid }, Some(socket.into()));
                }
                Err(e) => {
                    log::error(format_args!("a compiler cannot be started: {e}"));
                    self.compilers.failed(now);
                }
            }
        }
    }
}

fn log_suspects(judged: &[(Running, bool)], label: impl Fn(u64) -> String) {
    for (suspect, convicted) in judged {
        let (name, session) = (log::tame_name(&suspect.name), label(suspect.session));
        let follows = match convicted {
            true => "which is refused from now on",
            false => "which is refused if it happens again",
        };
        log::error(format_args!(
            "device host: it ended while it ran the program `{name}` of {session}, {follows}"
        ));
    }
}
