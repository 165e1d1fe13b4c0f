//! What happened, for `salus trace`: the last some ten thousand iterations, waits and moves.
//!
//! Always on, so that one can ask afterwards why it was slow. It sees what the engine is told and
//! what it answers, under the same lock, and keeps of each session and lane what it needs to write
//! a record when something ends.
//!
//! Promise: it changes nothing, and nothing grows without bound: the ring has a size, and so have
//! the lists of sessions that ended and of programs' names.
//! Cost: an event is some tens of nanoseconds, O(log n) in the sessions.
//! Not here: what is made of it (`crates/cli/src/trace`).

mod memory;
mod own;
mod recording;
mod ring;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use salus_engine::{
    Calling, Decision, Demand, Duration, Engine, Event, Lane, Program, SessionId, State, Time,
};

use super::session::Identity;
use memory::Thinned;
pub(super) use own::Own;
pub(super) use recording::Copied;
use ring::{Iteration, RECORDS, Record, Ring};

/// Sessions that ended and are still known by name.
const ENDED: usize = 4096;
/// Programs that are known by name; a job has a few that matter.
const PROGRAMS: usize = 1024;
/// Of a session's or a program's name; the rest says little in a picture.
const NAME_CHARS: usize = 64;

pub(super) struct Recorder {
    ring: Ring,
    lanes: Vec<InLane>,
    /// Iterations that wait for a callback of their jobs.
    away: Vec<Handed>,
    open: BTreeMap<SessionId, Open>,
    /// Oldest first.
    ended: VecDeque<Card>,
    programs: VecDeque<(Program, String)>,
    memory: Thinned,
}

/// Enough to name a session.
#[derive(Debug, Clone)]
struct Card {
    session: SessionId,
    name: String,
    pid: i32,
    uid: u32,
    user: String,
    opened: Time,
    closed: Option<Time>,
}

/// An open session and what it is in the middle of.
struct Open {
    card: Card,
    asked: Option<Asked>,
    /// Asked to page out so many bytes, and when.
    leaving: Option<(u64, Time)>,
    paused: Option<Time>,
    /// How many programs of it are being compiled, and since when there are any.
    compiling: (u32, Time),
}

/// It waits for room or its turn.
struct Asked {
    at: Time,
    /// `None` if no iteration follows.
    program: Option<Program>,
    calling: Option<Calling>,
    /// How long memory had been lacking for the session until then, ever.
    memory_before: Duration,
}

/// Iterations that were handed to a lane and have not ended, oldest first.
#[derive(Default)]
struct InLane {
    handed: VecDeque<Handed>,
    last_end: Time,
}

struct Handed {
    iteration: Iteration,
    /// If it calls back: then it runs beside the others.
    calling: Option<Calling>,
}

impl Handed {
    fn is(&self, session: SessionId, calling: Option<Calling>) -> bool {
        self.iteration.session == session && self.calling == calling
    }
}

impl InLane {
    /// The session's oldest iteration, or the one that calls back.
    fn find(&self, session: SessionId, calling: Option<Calling>) -> Option<usize> {
        self.handed.iter().position(|h| h.is(session, calling))
    }

    /// As if it ended now. One that was handed over early began when the one before it ended.
    fn until(&self, handed: &Handed, now: Time) -> Iteration {
        let started = handed.iteration.started;
        Iteration {
            began: match handed.calling {
                Some(_) => started,
                None => started.max(self.last_end),
            },
            ended: now,
            ..handed.iteration
        }
    }
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
            lanes: Vec::new(),
            away: Vec::new(),
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            programs: VecDeque::new(),
            memory: Thinned::default(),
        }
    }

    pub(super) fn opened(&mut self, now: Time, session: SessionId, who: &Identity) {
        let card = Card {
            session,
            name: who.name.chars().take(NAME_CHARS).collect(),
            pid: who.pid,
            uid: who.uid,
            user: who.user.clone(),
            opened: now,
            closed: None,
        };
        let open = Open {
            card,
            asked: None,
            leaving: None,
            paused: None,
            compiling: (0, now),
        };
        self.open.insert(session, open);
    }

    pub(super) fn named(&mut self, program: Program, name: &str) {
        if self.programs.iter().any(|(known, _)| *known == program) {
            return;
        }
        if self.programs.len() == PROGRAMS {
            self.programs.pop_front();
        }
        let name = name.chars().take(NAME_CHARS).collect();
        self.programs.push_back((program, name));
    }

    /// Arrays of the session came back to the device.
    pub(super) fn brought_back(&mut self, now: Time, session: SessionId, bytes: u64, began: Time) {
        self.ring.push(Record::Moved {
            session,
            out: false,
            asked_bytes: 0,
            bytes,
            began,
            ended: now,
        });
    }

    /// What the engine was told, what it answered, and how it is afterwards.
    pub(super) fn note(
        &mut self,
        now: Time,
        event: &Event,
        decisions: &[Decision],
        engine: &Engine,
    ) {
        match *event {
            Event::Ready { session, demand } => self.asked(now, session, &demand, engine),
            Event::Ran { session, calling } => self.ran(now, session, calling),
            Event::DidNotRun { session, calling } => self.did_not_run(session, calling),
            Event::CallbackBegan { session, calling } => self.called_back(now, session, calling),
            Event::CallbackEnded { session, calling } => self.went_on(now, session, calling),
            Event::Withdrew { session } => self.gave_up(now, session, engine),
            Event::PagedOut { session, bytes, .. } => self.left(now, session, bytes),
            Event::Paused { session } => {
                if let Some(open) = self.open.get_mut(&session) {
                    open.paused.get_or_insert(now);
                }
            }
            Event::Resumed { session } => self.resumed(now, session),
            Event::Compiling { session } => self.compiles(now, session, true),
            Event::Compiled { session } => self.compiles(now, session, false),
            Event::Ordered { policy } => self.ring.push(Record::Ordered { at: now, policy }),
            Event::Closed { session } => self.closed(now, session),
            _ => {}
        }
        for decision in decisions {
            match *decision {
                Decision::Start { session, lane } => self.started(now, session, lane, engine),
                Decision::PageOut { session, bytes } => {
                    if let Some(open) = self.open.get_mut(&session) {
                        open.leaving = Some((bytes, now));
                    }
                }
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

    fn asked(&mut self, now: Time, session: SessionId, demand: &Demand, engine: &Engine) {
        if let Some(open) = self.open.get_mut(&session) {
            open.asked = Some(Asked {
                at: now,
                program: demand.program(),
                calling: demand.calling(),
                memory_before: lacked(now, session, engine),
            });
        }
    }

    fn started(&mut self, now: Time, session: SessionId, lane: Lane, engine: &Engine) {
        let open = self.open.get_mut(&session);
        let Some(asked) = open.and_then(|open| open.asked.take()) else {
            return;
        };
        let Some(program) = asked.program else {
            return self.waited(now, session, &asked, engine);
        };
        let place = lane.0 as usize;
        if self.lanes.len() <= place {
            self.lanes.resize_with(place + 1, InLane::default);
        }
        self.lanes[place].handed.push_back(Handed {
            iteration: Iteration {
                session,
                program,
                lane,
                runs: true,
                ready: asked.at,
                started: now,
                memory: asked.lacked(now, session, engine),
                began: now,
                ended: now,
            },
            calling: asked.calling,
        });
    }

    fn ran(&mut self, now: Time, session: SessionId, calling: Option<Calling>) {
        // Lanes are few, and so is what is in them: looking through them is no search.
        let ended = self.lanes.iter_mut().find_map(|lane| {
            let at = lane.find(session, calling)?;
            let handed = lane.handed.remove(at)?;
            let ended = lane.until(&handed, now);
            if calling.is_none() {
                lane.last_end = lane.last_end.max(now);
            }
            Some(ended)
        });
        if let Some(iteration) = ended {
            self.ring.push(Record::Iteration(Iteration {
                runs: false,
                ..iteration
            }));
        }
    }

    /// The iteration's time so far is shown as one of its own; it goes on after its callback.
    fn called_back(&mut self, now: Time, session: SessionId, calling: Calling) {
        let left = self.lanes.iter_mut().find_map(|lane| {
            let at = lane.find(session, Some(calling))?;
            lane.handed.remove(at)
        });
        if let Some(handed) = left {
            self.ring.push(Record::Iteration(Iteration {
                runs: false,
                ended: now,
                ..handed.iteration
            }));
            self.away.push(handed);
        }
    }

    fn went_on(&mut self, now: Time, session: SessionId, calling: Calling) {
        let back = |handed: &Handed| handed.is(session, Some(calling));
        if let Some(at) = self.away.iter().position(back) {
            let Handed { iteration, calling } = self.away.remove(at);
            let iteration = Iteration {
                ready: now,
                started: now,
                began: now,
                memory: Duration(0),
                ..iteration
            };
            let lane = &mut self.lanes[iteration.lane.0 as usize];
            lane.handed.push_back(Handed { iteration, calling });
        }
    }

    fn did_not_run(&mut self, session: SessionId, calling: Option<Calling>) {
        for lane in &mut self.lanes {
            let last = lane.handed.iter().rposition(|h| h.is(session, calling));
            if let Some(at) = last {
                lane.handed.remove(at);
                break;
            }
        }
    }

    /// What it asked for will not be done.
    fn gave_up(&mut self, now: Time, session: SessionId, engine: &Engine) {
        let open = self.open.get_mut(&session);
        if let Some(asked) = open.and_then(|open| open.asked.take()) {
            self.waited(now, session, &asked, engine);
        }
    }

    /// A wait without an iteration has ended; one that took no time was none.
    fn waited(&mut self, now: Time, session: SessionId, asked: &Asked, engine: &Engine) {
        if asked.at < now {
            self.ring.push(Record::Waited {
                session,
                ready: asked.at,
                until: now,
                memory: asked.lacked(now, session, engine),
            });
        }
    }

    fn left(&mut self, now: Time, session: SessionId, bytes: u64) {
        let open = self.open.get_mut(&session);
        if let Some((asked_bytes, began)) = open.and_then(|open| open.leaving.take()) {
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
            if self.ended.len() == ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back(open.card);
        }
    }
}

impl Asked {
    /// How long memory was lacking since it asked.
    fn lacked(&self, now: Time, session: SessionId, engine: &Engine) -> Duration {
        if self.at == now {
            return Duration(0);
        }
        Duration(
            lacked(now, session, engine)
                .0
                .saturating_sub(self.memory_before.0),
        )
    }
}

/// How long memory was lacking for the session, ever.
fn lacked(now: Time, session: SessionId, engine: &Engine) -> Duration {
    let account = engine.account(session);
    account.map_or(Duration(0), |account| account.time_in(State::Memory, now))
}
