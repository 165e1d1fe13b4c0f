//! What is new in a service's trace since it was last asked, as the lines of a recording.
//!
//! A trace is complete up to the moment at which it was copied, and what goes on then ends there. So each
//! time those records are taken that ended from that moment of the trace before up to that of this one,
//! without what ends there: each is taken once.
//!
//! Not here: asking (`record.rs`), what the lines mean (`salus-sim`).

use std::collections::{BTreeMap, BTreeSet};

use salus_sim::recording::{
    Changed, Closed, End, Header, Iteration, Line, Lost, Moved, Opened, PolicyChange, Program,
    Refused, Settings, Span, VERSION, Waited,
};
use salus_wire::{JobSettings, RecordedSession, Recording};

/// The session under which the service itself takes turns; it is nobody's job.
const OWN: u64 = 0;

pub(super) struct Follower {
    /// Up to here all is written down.
    until_ns: u64,
    /// Records that the service had made by then.
    made: u64,
    sessions: BTreeMap<u64, Known>,
    programs: BTreeSet<u64>,
    iterations: u64,
    lost: u64,
}

/// A session that was written down.
struct Known {
    settings: JobSettings,
    /// What is said of it at its end.
    closed: Closed,
    is_open: bool,
}

/// The service's device host has begun anew, and with it the clock.
#[derive(Debug)]
pub(super) struct Restarted;

impl Follower {
    /// Begins with the present; returns the first lines, too.
    pub(super) fn new(device: &str, now: &Recording) -> (Self, String) {
        let header = Header {
            salus_recording: VERSION,
            device: device.into(),
            kind: now.kind.clone(),
            policy: now.policy.clone(),
            memory_bytes: now.room_bytes,
            host_bytes: now.host_room_bytes,
            lanes: now.lanes,
            width: now.width,
            began_unix_ns: now.began_unix_ns,
            at_ns: now.until_ns,
        };
        let mut follower = Self {
            until_ns: now.until_ns,
            made: now.records_made,
            sessions: BTreeMap::new(),
            programs: BTreeSet::new(),
            iterations: 0,
            lost: 0,
        };
        let mut text = header.to_text();
        let open = now.sessions.iter().filter(|one| one.closed_ns.is_none());
        for session in open {
            follower.session(session, &mut text);
        }
        (follower, text)
    }

    /// The lines for what is new.
    pub(super) fn take(&mut self, now: &Recording) -> Result<String, Restarted> {
        if now.until_ns < self.until_ns || now.records_made < self.made {
            return Err(Restarted);
        }
        let mut text = String::new();
        let lost = now.records_forgotten.saturating_sub(self.made);
        if lost > 0 {
            self.lost += lost;
            let line = Line::Lost(Lost {
                records: lost,
                from_ns: self.until_ns,
                until_ns: now.from_ns.max(self.until_ns),
            });
            text.push_str(&line.to_text());
        }
        // One that was closed before this time was taken by then, or is older than the recording.
        let since = self.until_ns;
        let sessions = now
            .sessions
            .iter()
            .filter(|one| one.session != OWN && one.closed_ns.is_none_or(|closed| closed >= since));
        for session in sessions.clone() {
            self.session(session, &mut text);
        }
        let programs = now.programs.iter();
        for (program, name) in programs {
            if self.programs.insert(*program) {
                let (program, name) = (*program, name.clone());
                text.push_str(&Line::Program(Program { program, name }).to_text());
            }
        }
        for (_, line) in self.events(now) {
            text.push_str(&line.to_text());
        }
        for session in sessions {
            self.closed(session, now.until_ns, &mut text);
        }
        (self.until_ns, self.made) = (now.until_ns, now.records_made);
        Ok(text)
    }

    /// The last lines.
    pub(super) fn end(&mut self, why: &str) -> String {
        let mut text = String::new();
        for known in self.sessions.values().filter(|known| known.is_open) {
            let closed = Closed {
                at_ns: self.until_ns,
                ..known.closed.clone()
            };
            text.push_str(&Line::StillOpen(closed).to_text());
        }
        let end = End {
            at_ns: self.until_ns,
            why: why.into(),
            sessions: self.sessions() as u64,
            iterations: self.iterations,
            lost_records: self.lost,
        };
        text.push_str(&Line::End(end).to_text());
        text
    }

    /// Whether there were sessions, and all have ended.
    pub(super) fn is_idle(&self) -> bool {
        !self.sessions.is_empty() && self.sessions.values().all(|known| !known.is_open)
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn iterations(&self) -> u64 {
        self.iterations
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// A session that is there: new, or perhaps with other settings.
    fn session(&mut self, one: &RecordedSession, text: &mut String) {
        if one.session == OWN {
            return;
        }
        let closed = Closed {
            session: one.session,
            at_ns: one.closed_ns.unwrap_or(self.until_ns),
            memory_bytes: one.peak_bytes,
            scratch_bytes: one.scratch_bytes,
            recalled_ns: one.recalled_ns,
        };
        let settings = Settings::of(&one.settings);
        let Some(known) = self.sessions.get_mut(&one.session) else {
            let opened = Opened {
                session: one.session,
                name: one.name.clone(),
                at_ns: one.opened_ns,
                settings,
            };
            text.push_str(&Line::Opened(opened).to_text());
            let known = Known {
                settings: one.settings,
                closed,
                is_open: true,
            };
            self.sessions.insert(one.session, known);
            return;
        };
        known.closed = closed;
        if known.settings != one.settings {
            known.settings = one.settings;
            let changed = Changed {
                session: one.session,
                at_ns: self.until_ns,
                settings,
            };
            text.push_str(&Line::Changed(changed).to_text());
        }
    }

    /// Says that a session has ended, behind all that it did.
    fn closed(&mut self, one: &RecordedSession, until_ns: u64, text: &mut String) {
        let is_over = one.closed_ns.is_some_and(|closed| closed < until_ns);
        if let Some(known) = self.sessions.get_mut(&one.session)
            && is_over
            && known.is_open
        {
            known.is_open = false;
            text.push_str(&Line::Closed(known.closed.clone()).to_text());
        }
    }

    /// What ended since, by when.
    fn events(&mut self, now: &Recording) -> Vec<(u64, Line)> {
        let since = self.until_ns..now.until_ns;
        let mut events: Vec<(u64, Line)> = Vec::new();
        let mut add = |session: u64, at: u64, line: Line| {
            if since.contains(&at) && session != OWN {
                events.push((at, line));
            }
        };
        for i in now.iterations.iter().filter(|i| !i.runs) {
            let line = Iteration {
                session: i.session,
                program: i.program,
                lane: i.lane,
                ready_ns: i.ready_ns,
                started_ns: i.started_ns,
                memory_ns: i.memory_ns,
                began_ns: i.began_ns,
                ended_ns: i.ended_ns,
                reads: i.reads,
            };
            add(i.session, i.ended_ns, Line::Iteration(line));
        }
        for w in &now.waits {
            let line = Waited {
                session: w.session,
                ready_ns: w.ready_ns,
                until_ns: w.until_ns,
                memory_ns: w.memory_ns,
            };
            add(w.session, w.until_ns, Line::Waited(line));
        }
        for m in &now.moves {
            let line = Moved {
                session: m.session,
                out: m.out,
                bytes: m.bytes,
                began_ns: m.began_ns,
                ended_ns: m.ended_ns,
            };
            add(m.session, m.ended_ns, Line::Moved(line));
        }
        let spans = now.pauses.iter().map(|span| (span, true));
        for (s, paused) in spans.chain(now.compilations.iter().map(|span| (span, false))) {
            let line = Span {
                session: s.session,
                began_ns: s.began_ns,
                ended_ns: s.ended_ns,
            };
            let line = match paused {
                true => Line::Paused(line),
                false => Line::Compiled(line),
            };
            add(s.session, s.ended_ns, line);
        }
        for r in &now.refusals {
            let line = Refused {
                session: r.session,
                at_ns: r.at_ns,
                why: r.why.clone(),
            };
            add(r.session, r.at_ns, Line::Refused(line));
        }
        for (at_ns, name) in &now.policies {
            let (at_ns, name) = (*at_ns, name.clone());
            let line = Line::Policy(PolicyChange { at_ns, name });
            add(u64::MAX, at_ns, line);
        }
        events.sort_by_key(|(at, _)| *at);
        let iterations = events.iter();
        let iterations = iterations.filter(|(_, line)| matches!(line, Line::Iteration(_)));
        self.iterations += iterations.count() as u64;
        events
    }
}
