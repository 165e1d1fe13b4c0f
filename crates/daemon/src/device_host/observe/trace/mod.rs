//! The trace, for `salus trace`: the last tens of thousands of iterations, waits and moves.
//!
//! Always on, so that a user can find out afterwards why a job was slow. The recorder sees every event
//! and the engine's decisions, under the engine's lock, and writes a record when something ends.
//!
//! Promise: it changes nothing, and nothing grows without bound: the ring has a size, and so have
//! the lists of sessions that ended and of programs' names.
//! Cost: tens of nanoseconds per event, O(log n) in the sessions.
//! Not here: how a trace is shown (`crates/cli/src/commands/trace`).

mod lanes;
mod memory;
mod own;
mod recording;
mod ring;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use salus_engine::{
    Calling, Decision, Demand, Duration, Engine, Event, JobSettings, Lane, Program, SessionId,
    State, Time,
};

use crate::device_host::session::Identity;
use lanes::Lanes;
use memory::Thinned;
pub(crate) use own::Own;
pub(crate) use recording::Copied;
use ring::{Iteration, RECORDS, Record, Ring};

/// Sessions that ended and whose names are kept: more than fit into one picture.
const ENDED_MAX: usize = 4096;
/// Programs whose names are kept; a job has a few that matter.
const PROGRAMS_MAX: usize = 1024;
/// Characters of a name that are kept; a picture has no room for more.
const NAME_CHARS_MAX: usize = 64;

pub(crate) struct Recorder {
    ring: Ring,
    lanes: Lanes,
    open: BTreeMap<SessionId, Open>,
    /// Oldest first.
    ended: VecDeque<Card>,
    programs: VecDeque<(Program, String)>,
    memory: Thinned,
}

/// What identifies a session in a picture, and what a replay must know of it.
#[derive(Debug, Clone)]
struct Card {
    session: SessionId,
    name: String,
    pid: i32,
    uid: u32,
    user: String,
    opened: Time,
    closed: Option<Time>,
    settings: JobSettings,
    /// Device time of earlier sessions like it.
    recalled: Option<Duration>,
    /// The most that its arrays took, as of when it was last looked at.
    peak_bytes: u64,
    /// The largest of its launches.
    scratch_bytes: u64,
}

impl Card {
    fn note_peak(&mut self, engine: &Engine) {
        if let Some(holding) = engine.ledger().holding(self.session) {
            self.peak_bytes = holding.peak_bytes;
        }
    }
}

/// An open session and what it is in the middle of.
struct Open {
    card: Card,
    request: Option<PendingRequest>,
    /// How many bytes it was asked to page out, and when.
    paging_out: Option<(u64, Time)>,
    paused: Option<Time>,
    /// How many programs of it are being compiled, and since when there are any.
    compiling: (u32, Time),
    /// Since its last launch, its host has waited for something.
    reads: bool,
}

/// What a session waits for: memory or its turn.
struct PendingRequest {
    at: Time,
    /// `None` if no iteration follows.
    program: Option<Program>,
    calling: Option<Calling>,
    reads: bool,
    /// How long the session had ever waited for memory until then.
    memory_before: Duration,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::holding(RECORDS)
    }
}

impl Recorder {
    fn holding(records: usize) -> Self {
        Self {
            ring: Ring::new(records),
            lanes: Lanes::default(),
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            programs: VecDeque::new(),
            memory: Thinned::default(),
        }
    }

    pub(crate) fn opened(&mut self, now: Time, session: SessionId, who: &Identity) {
        let card = Card {
            session,
            name: who.name.chars().take(NAME_CHARS_MAX).collect(),
            pid: who.pid,
            uid: who.uid,
            user: who.user.clone(),
            opened: now,
            closed: None,
            settings: JobSettings::default(),
            recalled: None,
            peak_bytes: 0,
            scratch_bytes: 0,
        };
        let open = Open {
            card,
            request: None,
            paging_out: None,
            paused: None,
            compiling: (0, now),
            reads: false,
        };
        self.open.insert(session, open);
    }

    pub(crate) fn named(&mut self, program: Program, name: &str) {
        if self.programs.iter().any(|(known, _)| *known == program) {
            return;
        }
        if self.programs.len() == PROGRAMS_MAX {
            self.programs.pop_front();
        }
        let name = name.chars().take(NAME_CHARS_MAX).collect();
        self.programs.push_back((program, name));
    }

    /// The session's host waits for something: the next launch that it makes may depend on that.
    pub(crate) fn reads(&mut self, session: SessionId) {
        if let Some(open) = self.open.get_mut(&session) {
            open.reads = true;
        }
    }

    /// Arrays of the session were paged in.
    pub(crate) fn paged_in(&mut self, now: Time, session: SessionId, bytes: u64, began: Time) {
        self.ring.push(Record::Moved {
            session,
            out: false,
            asked_bytes: 0,
            bytes,
            began,
            ended: now,
        });
    }

    /// An event, the decisions about it, and the engine after it.
    pub(crate) fn note(
        &mut self,
        now: Time,
        event: &Event,
        decisions: &[Decision],
        engine: &Engine,
    ) {
        match *event {
            Event::Ready { session, demand } => self.ready(now, session, &demand, engine),
            Event::Ran { session, calling } => self.ran(now, session, calling),
            Event::DidNotRun { session, calling } => self.lanes.did_not_run(session, calling),
            Event::CallbackBegan { session, calling } => self.callback_began(now, session, calling),
            Event::CallbackEnded { session, calling } => {
                self.lanes.callback_ended(now, session, calling);
            }
            Event::Opened {
                session, settings, ..
            }
            | Event::SettingsChanged { session, settings } => {
                self.update(session, |card| card.settings = settings);
            }
            Event::EstimatedFromHistory { session, total } => {
                self.update(session, |card| card.recalled = Some(total));
            }
            Event::Withdrew { session } => self.withdrew(now, session, engine),
            Event::PagedOut { session, bytes, .. } => self.paged_out(now, session, bytes),
            Event::Paused { session } => {
                if let Some(open) = self.open.get_mut(&session) {
                    open.paused.get_or_insert(now);
                }
            }
            Event::Resumed { session } => self.resumed(now, session),
            Event::CompileStarted { session } => self.compiles(now, session, true),
            Event::CompileEnded { session } => self.compiles(now, session, false),
            Event::PolicyChanged { policy } => {
                self.ring.push(Record::PolicyChanged { at: now, policy })
            }
            Event::Closed { session } => self.closed(now, session),
            _ => {}
        }
        for decision in decisions {
            match *decision {
                Decision::Start { session, lane } => self.started(now, session, lane, engine),
                Decision::PageOut { session, bytes } => {
                    if let Some(open) = self.open.get_mut(&session) {
                        open.paging_out = Some((bytes, now));
                    }
                }
                // It is noted when it was carried out.
                Decision::PageIn { .. } => {}
                Decision::Refuse { session, why } => {
                    self.gave_up(now, session, engine);
                    let at = now;
                    self.ring.push(Record::Refused { session, at, why });
                }
            }
        }
        let noted = self.memory.look(now, engine.ledger());
        for memory in noted.into_iter().flatten() {
            self.ring.push(Record::Memory(memory));
        }
    }

    fn update(&mut self, session: SessionId, change: impl FnOnce(&mut Card)) {
        if let Some(open) = self.open.get_mut(&session) {
            change(&mut open.card);
        }
    }

    /// A session that ends withdraws first, while the ledger still knows what it held.
    fn withdrew(&mut self, now: Time, session: SessionId, engine: &Engine) {
        self.update(session, |card| card.note_peak(engine));
        self.gave_up(now, session, engine);
    }

    fn ready(&mut self, now: Time, session: SessionId, demand: &Demand, engine: &Engine) {
        if let Some(open) = self.open.get_mut(&session) {
            let scratch = open.card.scratch_bytes.max(demand.scratch_bytes());
            open.card.scratch_bytes = scratch;
            open.request = Some(PendingRequest {
                at: now,
                program: demand.program(),
                calling: demand.calling(),
                // Room for an array is no launch.
                reads: demand.program().is_some() && std::mem::take(&mut open.reads),
                memory_before: waited_for_memory(now, session, engine),
            });
        }
    }

    fn started(&mut self, now: Time, session: SessionId, lane: Lane, engine: &Engine) {
        let open = self.open.get_mut(&session);
        let Some(request) = open.and_then(|open| open.request.take()) else {
            return;
        };
        let Some(program) = request.program else {
            return self.waited(now, session, &request, engine);
        };
        let iteration = Iteration {
            session,
            program,
            lane,
            runs: true,
            reads: request.reads,
            ready: request.at,
            started: now,
            memory: request.waited_for_memory(now, session, engine),
            began: now,
            ended: now,
        };
        self.lanes.started(iteration, request.calling);
    }

    fn ran(&mut self, now: Time, session: SessionId, calling: Option<Calling>) {
        if let Some(iteration) = self.lanes.ran(now, session, calling) {
            self.ring.push(Record::Iteration(iteration));
        }
    }

    fn callback_began(&mut self, now: Time, session: SessionId, calling: Calling) {
        if let Some(iteration) = self.lanes.callback_began(now, session, calling) {
            self.ring.push(Record::Iteration(iteration));
        }
    }

    /// What the session waits for will not be done.
    fn gave_up(&mut self, now: Time, session: SessionId, engine: &Engine) {
        let open = self.open.get_mut(&session);
        if let Some(request) = open.and_then(|open| open.request.take()) {
            self.waited(now, session, &request, engine);
        }
    }

    /// A wait without an iteration has ended; one that took no time is not recorded.
    fn waited(&mut self, now: Time, session: SessionId, request: &PendingRequest, engine: &Engine) {
        if request.at < now {
            self.ring.push(Record::Waited {
                session,
                ready: request.at,
                until: now,
                memory: request.waited_for_memory(now, session, engine),
            });
        }
    }

    fn paged_out(&mut self, now: Time, session: SessionId, bytes: u64) {
        let open = self.open.get_mut(&session);
        if let Some((asked_bytes, began)) = open.and_then(|open| open.paging_out.take()) {
            self.ring.push(Record::Moved {
                session,
                out: true,
                asked_bytes,
                bytes,
                began,
                ended: now,
            });
        }
    }

    fn resumed(&mut self, now: Time, session: SessionId) {
        let open = self.open.get_mut(&session);
        if let Some(began) = open.and_then(|open| open.paused.take()) {
            let ended = now;
            self.ring.push(Record::Paused {
                session,
                began,
                ended,
            });
        }
    }

    fn compiles(&mut self, now: Time, session: SessionId, begins: bool) {
        let Some(open) = self.open.get_mut(&session) else {
            return;
        };
        let (count, began) = open.compiling;
        open.compiling = match (count, begins) {
            (0, true) => (1, now),
            (_, true) => (count + 1, began),
            (_, false) => (count.saturating_sub(1), began),
        };
        if count == 1 && !begins {
            let ended = now;
            self.ring.push(Record::Compiled {
                session,
                began,
                ended,
            });
        }
    }

    fn closed(&mut self, now: Time, session: SessionId) {
        self.resumed(now, session);
        if let Some(mut open) = self.open.remove(&session) {
            open.card.closed = Some(now);
            if self.ended.len() == ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back(open.card);
        }
    }
}

impl PendingRequest {
    /// How long it waited for memory.
    fn waited_for_memory(&self, now: Time, session: SessionId, engine: &Engine) -> Duration {
        if self.at == now {
            return Duration(0);
        }
        Duration(
            waited_for_memory(now, session, engine)
                .0
                .saturating_sub(self.memory_before.0),
        )
    }
}

/// How long the session has ever waited for memory.
fn waited_for_memory(now: Time, session: SessionId, engine: &Engine) -> Duration {
    let account = engine.account(session);
    account.map_or(Duration(0), |account| account.time_in(State::Memory, now))
}
