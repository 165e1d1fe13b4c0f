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
    ChangePolicy, CompilerEnded, CompilerJoined, Error, ErrorCode, FromHost, Up, limits,
};
use serde_json::Value;

use crate::board::{Accusation, Board, Running};
use crate::config::Problem;
use crate::log;
use crate::supervisor::children::device_host_process::{Deaths, Heard, Host};
use crate::supervisor::children::process::Role;
use crate::supervisor::connections::Part;
use crate::supervisor::devices::ServedDevice;
use crate::supervisor::report::{Card, Sessions};
use crate::supervisor::{Supervisor, blame};

/// Lost sessions whose fate is kept: their libraries ask within a moment.
const FATES: usize = 4096;

/// How a device host ends that finds its device broken.
const DEVICE_FAILED: &str = "the device failed";

impl Supervisor {
    pub(crate) fn start_host(&mut self, device: usize, now: Instant) {
        let of = self.of_device(device);
        let served = &mut self.devices[device];
        served.start_host_at = None;
        let settings = &served.settings;
        let started = self.service.launcher.start(Role::DeviceHost, settings);
        match started.and_then(|started| Ok((started, Board::create()?))) {
            Ok((started, (board, descriptor))) => {
                let mut host = Host::new(started, settings.scheduling.policy, board);
                let pid = host.pid();
                log::info(format_args!("device host{of} started (pid {pid})"));
                let bytes = Board::BYTES;
                host.send(salus_wire::Board { bytes }, Some(descriptor));
                for convicted in self.blame.messages() {
                    host.send(convicted, None);
                }
                served.host = Some(host);
            }
            Err(e) => {
                let how = format!("it cannot be started: {e}");
                self.host_lost(device, &how, None, &[], now);
            }
        }
    }

    /// Hears what the device hosts have to say.
    pub(crate) fn on_controls(&mut self, now: Instant) {
        for device in 0..self.devices.len() {
            self.on_control(device, now);
        }
    }

    pub(crate) fn on_control(&mut self, device: usize, now: Instant) {
        let host = self.devices[device].host.as_mut();
        let Some(host) = host.filter(|host| host.waits_for().is_some()) else {
            return;
        };
        host.flush();
        let messages = match host.hear(now) {
            Heard::Messages(messages) => messages,
            Heard::Broken(messages, why) => {
                if let Some(why) = why {
                    let of = self.of_device(device);
                    log::error(format_args!(
                        "the messages of the device host{of} are broken: {why}"
                    ));
                }
                messages
            }
        };
        for message in messages {
            self.on_message(device, message, now);
        }
    }

    fn on_message(&mut self, device: usize, received: Received<FromHost>, now: Instant) {
        match received.message {
            FromHost::Up(up) => self.on_up(device, up, now),
            FromHost::Failed(failed) => self.on_failed(device, failed.error, now),
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
                self.on_answer(device, reported.request, Part::Report(json), now);
            }
            FromHost::Traced(traced) => {
                if let Some(blob) = received.descriptor {
                    let trace = Part::Trace(blob, traced.bytes);
                    self.on_answer(device, traced.request, trace, now);
                }
            }
            FromHost::Load(load) => self.devices[device].set_load(load),
            FromHost::CompilerWanted(wanted) => self.devices[device].compilers.want(wanted.count),
            FromHost::Endless(endless) => {
                log::error(format_args!("{}", endless.why));
                self.devices[device].kill(endless.why);
            }
            FromHost::CompilerUnwanted(unwanted) => {
                self.devices[device].compilers.end(unwanted.compiler);
            }
            FromHost::SessionClosed(closed) => {
                let own = |card: &Card| card.device == device;
                let session = closed.session;
                if self.sessions.get(&session).is_some_and(own)
                    && let Some(card) = self.sessions.remove(&session)
                {
                    let line = format_args!("{} is closed", card.label(session));
                    self.activity.info(now, line);
                    self.idle_since = now;
                }
            }
        }
    }

    fn on_up(&mut self, device: usize, up: Up, now: Instant) {
        let served = &mut self.devices[device];
        served.set_up(up.description);
        if std::mem::replace(&mut served.was_ready, true) {
            let of = self.of_device(device);
            log::info(format_args!("the device{of} is open again"));
        } else {
            let mut report: Value = serde_json::from_str(&up.json).unwrap_or_default();
            let mut opened = report["device"].take();
            opened["name"] = served.name().into();
            self.opened.resize(self.devices.len(), Value::Null);
            self.opened[device] = opened;
        }
        self.say_ready(now);
        self.devices[device].send_policy();
        self.adopt_waiting(now);
    }

    /// The device host cannot open its device. One that was there may come back; one that never was is
    /// the user's to see.
    fn on_failed(&mut self, device: usize, error: Error, now: Instant) {
        let of = self.of_device(device);
        let why = error.message;
        log::error(format_args!("the device{of} cannot be opened: {why}"));
        if self.devices[device].was_ready {
            return;
        }
        let hint = error
            .hint
            .unwrap_or_else(|| "`salus doctor` shows what is found and what is missing".into());
        let name = self.devices[device].name();
        let what = format!("the device `{name}` cannot be opened: {why}");
        self.give_up(device, Problem::new(what).hint(hint), now);
    }

    /// Tells whoever started the service that it serves, once every device is open or given up.
    fn say_ready(&mut self, now: Instant) {
        if self.was_ready || !self.all_settled() || self.end.is_some() {
            return;
        }
        self.was_ready = true;
        // Opening a device may take long; the idle time begins with what a job could use.
        self.idle_since = now;
        let mut opened = std::mem::take(&mut self.opened);
        for (value, device) in opened.iter_mut().zip(&self.devices) {
            // It may have been changed meanwhile, which the device host gets next.
            if value.is_object() {
                value["policy"] = device.settings.scheduling.policy.name().into();
            }
        }
        opened.retain(Value::is_object);
        (self.service.when_ready)(&opened);
    }

    /// Looks which children ended.
    pub(crate) fn on_children(&mut self, now: Instant) {
        for device in 0..self.devices.len() {
            for ended in self.devices[device].compilers.reap(now) {
                let of = self.of_device(device);
                let line = format_args!("compiler {}{of} ended: {}", ended.id, ended.how);
                self.activity.warn(now, line);
                if let Some(host) = &mut self.devices[device].host {
                    let compiler = ended.id;
                    let how = ended.how;
                    host.send(CompilerEnded { compiler, how }, None);
                }
            }
            let host = self.devices[device].host.as_mut();
            if let Some(how) = host.and_then(|host| host.process().ended()) {
                self.host_ended(device, &how, now);
            }
        }
    }

    /// A device host's process has ended: who is to blame?
    fn host_ended(&mut self, device: usize, how: &str, now: Instant) {
        let board = self.devices[device].host.take().map(|host| host.board);
        if let Some(accusation) = board.as_ref().and_then(Board::accusation) {
            return self.device_failed(device, &accusation, now);
        }
        let running = board.as_ref().map_or_else(Vec::new, Board::running);
        let judged = self.blame.judge(how, &running, &self.sessions);
        let by = match board.and_then(|board| board.killer()) {
            Some(pid) => format!(", sent by process {pid}"),
            None => String::new(),
        };
        self.host_lost(device, &format!("it ended: {how}{by}"), None, &judged, now);
    }

    /// The device host ended because its device does not work any more, or died of asking it.
    fn device_failed(&mut self, device: usize, accusation: &Accusation, now: Instant) {
        let how = format!("{DEVICE_FAILED}: {}", accusation.why);
        let suspect = accusation.program.iter();
        let judge = |suspect: &Running| {
            let convicted = self.blame.judge_by_device(&how, suspect, &self.sessions);
            (suspect.clone(), convicted)
        };
        let judged: Vec<_> = suspect.map(judge).collect();
        self.host_lost(device, &how, Some(accusation.session), &judged, now);
    }

    /// The device host is gone. Its sessions end by themselves, because their sockets were its own.
    /// `judged`: the programs that it was running, if they may be why, and whether one is convicted.
    /// `told_by`: the session whose launch the vendor's words in `how` are about.
    fn host_lost(
        &mut self,
        device: usize,
        how: &str,
        told_by: Option<u64>,
        judged: &[(Running, bool)],
        now: Instant,
    ) {
        let of = self.of_device(device);
        self.tell_convicted(judged);
        self.devices[device].compilers.clear();
        let sessions = self.take_sessions(device);
        let label = |session: u64| match sessions.get(&session) {
            Some(card) => card.label(session),
            None => format!("session {session}"),
        };
        log_suspects(&of, judged, label);
        let wanted = self.devices[device].kill_now.take();
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
        self.no_answer(device, "starting again", now);
        if self.end.is_some() || self.devices[device].given_up.is_some() {
            return;
        }
        let explained = wanted.is_some() || judged.iter().any(|(_, convicted)| *convicted);
        self.start_again(device, how, explained, now);
    }

    /// Starts the device's next host after a pause, unless too many have ended without a reason that is
    /// known.
    fn start_again(&mut self, device: usize, how: &str, explained: bool, now: Instant) {
        let of = self.of_device(device);
        let deaths = &mut self.devices[device].deaths;
        let pause = match explained {
            true => Some(deaths.record_explained()),
            false => deaths.record(now),
        };
        match pause {
            Some(pause) => {
                log::error(format_args!(
                    "device host{of}: {how}; it starts again in {} ms",
                    pause.as_millis()
                ));
                self.devices[device].start_host_at = Some(now + pause);
            }
            None => {
                let what = format!(
                    "the device host{of} cannot be kept running: {}, the last time: {how}",
                    Deaths::given_up()
                );
                let hint =
                    "the lines above say what happened before; `salus doctor` checks the device";
                self.give_up(device, Problem::new(what).hint(hint), now);
            }
        }
    }

    /// What ended one device host would end the others, too.
    fn tell_convicted(&mut self, judged: &[(Running, bool)]) {
        if !judged.iter().any(|(_, convicted)| *convicted) {
            return;
        }
        let hosts = self.devices.iter_mut();
        for host in hosts.filter_map(|device| device.host.as_mut()) {
            for convicted in self.blame.messages() {
                host.send(convicted, None);
            }
        }
    }

    /// The sessions of a device, which are no longer open.
    fn take_sessions(&mut self, device: usize) -> Sessions {
        let all = std::mem::take(&mut self.sessions);
        let (own, others) = all.into_iter().partition(|(_, card)| card.device == device);
        self.sessions = others;
        own
    }

    /// A device is not served any more; the service ends with the last. Jobs and commands that wait
    /// for it are refused with the reason.
    fn give_up(&mut self, device: usize, problem: Problem, now: Instant) {
        let served = &mut self.devices[device];
        served.given_up = Some(problem.clone());
        served.start_host_at = None;
        if self.devices.iter().any(|device| device.given_up.is_none()) {
            log::error(format_args!("{problem}; the other devices are served"));
            self.say_ready(now);
            return self.adopt_waiting(now);
        }
        let waiting = self.connections.waiting();
        self.connections.refuse_all(
            &waiting,
            &Error::new(ErrorCode::Unavailable, problem.what.clone()),
        );
        self.end = Some(Err(problem));
    }

    pub(crate) fn start_compilers(&mut self, device: usize, now: Instant) {
        let of = self.of_device(device);
        let served = &mut self.devices[device];
        let Some(host) = served.host.as_mut().filter(|host| host.is_open()) else {
            return;
        };
        while served.compilers.due(now).is_some_and(|at| at <= now) {
            let first = device == 0 && served.compilers.is_first();
            let launcher = &self.service.launcher;
            match launcher.start(Role::Compiler { first }, &served.settings) {
                Ok(started) => {
                    let (compiler, pid, socket) = served.compilers.joined(started, now);
                    let line = format_args!("compiler {compiler}{of} started (pid {pid})");
                    self.activity.info(now, line);
                    host.send(CompilerJoined { compiler, pid }, Some(socket.into()));
                }
                Err(e) => {
                    log::error(format_args!("a compiler cannot be started: {e}"));
                    served.compilers.failed(now);
                }
            }
        }
    }
}

/// `of`: ` of cuda:1` where there are several devices.
fn log_suspects(of: &str, judged: &[(Running, bool)], label: impl Fn(u64) -> String) {
    for (suspect, convicted) in judged {
        let (name, session) = (log::tame_name(&suspect.name), label(suspect.session));
        let follows = match convicted {
            true => "which is refused from now on",
            false => "which is refused if it happens again",
        };
        log::error(format_args!(
            "device host{of}: it ended while it ran the program `{name}` of {session}, {follows}"
        ));
    }
}

impl ServedDevice {
    /// Sends the device host a policy that was chosen while it did not listen.
    pub(crate) fn send_policy(&mut self) {
        let policy = self.settings.scheduling.policy;
        let listens = |host: &&mut Host| host.is_open() && host.policy != policy;
        if let Some(host) = self.host.as_mut().filter(listens) {
            host.policy = policy;
            // Nobody waits for the answer: no request has the number 0.
            let (request, policy) = (0, policy.name().into());
            host.send(ChangePolicy { request, policy }, None);
        }
    }

    /// Ends the device host, and tells its sessions why.
    pub(crate) fn kill(&mut self, why: String) {
        if let Some(host) = &mut self.host {
            self.kill_now = Some(why);
            host.process().signal(Signal::KILL);
        }
    }
}
