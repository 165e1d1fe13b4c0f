//! A run: the clock, the engine, the jobs and the device.
//!
//! The next thing to happen is taken from the agenda, the device or the engine's own clock, in this
//! order where they fall together, and told to the engine; what it decides is done at once. Jobs
//! that act at the same moment take turns, each asking for one thing.
//!
//! Promise: the engine hears of each session what the device host would tell it, in that order.
//! Cost: O(jobs) an event.

use std::collections::BTreeMap;

use salus_engine::{Decision, Duration, Engine, Event, Lane, SessionId, Time, User, Why};

use crate::device::Device;
use crate::job::{Actor, Move};
use crate::quantity::show_time;
use crate::report::{Fate, Report};
use crate::scenario::{Command, Scenario};
use crate::timeline::State;

/// No run is longer, whatever its jobs are: 1000 hours.
const END: Time = Time(1000 * 3_600_000_000_000);

#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    engine: Engine,
    pub(crate) device: Device,
    pub(crate) actors: Vec<Actor<'a>>,
    /// The jobs in the order in which they came, which is that of their sessions' ids.
    came: Vec<usize>,
    pub(crate) now: Time,
    /// By time and number, so that the order is one.
    agenda: BTreeMap<(Time, u64), Action>,
    last_action: u64,
    woke_at: Option<Time>,
    /// Paged out and brought back.
    pub(crate) moved_bytes: u64,
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Open(usize),
    Command(Command),
    /// The job's host has prepared an iteration.
    Launch(usize),
    /// Its session asks for what is next.
    Ask(usize),
    /// What moved has arrived.
    Moved(usize),
}

pub(crate) fn run(scenario: &Scenario) -> Report {
    let mut world = World::new(scenario);
    let end = scenario.until.unwrap_or(END);
    while let Some(next) = world.next().filter(|next| *next < end) {
        world.now = next;
        world.device.advance(next);
        world.step();
        world.note_states();
    }
    if world.is_open() {
        world.cut(end);
    }
    Report::of(&world)
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let Scenario { policy, room, .. } = *scenario;
        let mut world = Self {
            scenario,
            engine: Engine::new(policy, room, scenario.lanes, scenario.width),
            device: Device::new(scenario.lanes),
            actors: Vec::new(),
            came: Vec::new(),
            now: Time(0),
            agenda: BTreeMap::new(),
            last_action: 0,
            woke_at: None,
            moved_bytes: 0,
            notes: Vec::new(),
        };
        for (index, job) in scenario.jobs.iter().enumerate() {
            world.actors.push(Actor::new(job, index));
            world.plan(job.from, Action::Open(index));
        }
        for (at, command) in &scenario.commands {
            world.plan(*at, Action::Command(*command));
        }
        world
    }

    fn plan(&mut self, at: Time, action: Action) {
        self.last_action += 1;
        self.agenda.insert((at, self.last_action), action);
    }

    /// When the next thing happens, while there are jobs, or some will come.
    fn next(&self) -> Option<Time> {
        let due = self.agenda.first_key_value().map(|((at, _), _)| *at);
        if !self.is_open() {
            return None;
        }
        let times = [due, self.device.next_end(), self.engine.wake_at()];
        times.into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// Whether a job is there or will come.
    fn is_open(&self) -> bool {
        let gone = |actor: &Actor<'_>| actor.leaves && actor.session.is_none();
        !self.actors.iter().all(gone)
    }

    /// Does one of the things that are due now.
    fn step(&mut self) {
        let due = self.agenda.first_entry();
        if let Some(due) = due.filter(|due| due.key().0 <= self.now) {
            let action = due.remove();
            self.act(action);
        } else if let Some(index) = self.device.end_one() {
            self.actors[index].ran(self.now);
            self.tell_of(index, |session| Event::Ran {
                session,
                calling: None,
            });
            self.go_on(index);
        } else {
            let before = self.woke_at.replace(self.now);
            assert!(before < self.woke_at, "the engine wakes at once, for ever");
            self.tell(Event::Woke);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Open(index) => self.open(index),
            Action::Command(command) => self.obey(command),
            Action::Launch(index) => {
                if !self.actors[index].leaves {
                    self.actors[index].launch(self.now);
                    self.go_on(index);
                }
            }
            Action::Ask(index) => {
                if let Some(demand) = self.actors[index].ask() {
                    self.tell_of(index, |session| Event::Ready { session, demand });
                } else if self.actors[index].is_done() {
                    self.go_on(index);
                }
            }
            Action::Moved(index) => self.moved(index),
        }
    }

    fn open(&mut self, index: usize) {
        self.came.push(index);
        let session = SessionId(self.came.len() as u64);
        let actor = &mut self.actors[index];
        actor.session = Some(session);
        let (wishes, recalled) = (actor.wishes, actor.job.recalled);
        self.tell(Event::Opened {
            session,
            user: User(0),
            memory_max: None,
            wishes,
        });
        if let Some(total) = recalled {
            self.tell(Event::Recalled { session, total });
        }
        self.go_on(index);
    }

    fn obey(&mut self, command: Command) {
        let (Command::Pause { job }
        | Command::Resume { job }
        | Command::Kill { job }
        | Command::Change { job, .. }) = command
        else {
            if let Command::Policy(policy) = command {
                self.tell(Event::Ordered { policy });
            }
            return;
        };
        let actor = &mut self.actors[job];
        if actor.leaves {
            let (name, now) = (&actor.job.name, show_time(Duration(self.now.0)));
            self.notes
                .push(format!("at {now} {name} had ended already"));
            return;
        }
        match command {
            Command::Pause { .. } => {
                actor.paused = true;
                self.tell_of(job, |session| Event::Paused { session });
            }
            Command::Resume { .. } => {
                actor.paused = false;
                self.tell_of(job, |session| Event::Resumed { session });
            }
            Command::Change { asked, .. } => {
                let wishes = asked.onto(actor.wishes);
                actor.wishes = wishes;
                self.tell_of(job, |session| Event::Wished { session, wishes });
            }
            Command::Kill { .. } | Command::Policy(_) => {
                self.end(job, Fate::Killed(self.now));
            }
        }
    }

    /// The job ends before it is done: it asks for nothing more, and what runs of it ends.
    fn end(&mut self, index: usize, fate: Fate) {
        let actor = &mut self.actors[index];
        actor.fate = fate;
        actor.leaves = true;
        if actor.waits_for.take().is_some() {
            self.tell_of(index, |session| Event::Withdrew { session });
        }
        self.go_on(index);
    }

    /// Lets the job's host prepare what is next and its session ask, or closes it.
    fn go_on(&mut self, index: usize) {
        let actor = &mut self.actors[index];
        if actor.is_done() {
            let account = actor.session.and_then(|id| self.engine.account(id));
            assert_eq!(account.map(|a| a.iterations), Some(actor.ended));
            let (resident_bytes, paged_bytes) = (actor.resident_bytes, actor.paged_bytes);
            self.tell_of(index, |session| Event::Released {
                session,
                resident_bytes,
                paged_bytes,
            });
            self.tell_of(index, |session| Event::Closed { session });
            let actor = &mut self.actors[index];
            actor.session = None;
            actor.closed_at = Some(self.now);
            return;
        }
        let prepared = actor.prepare(self.now);
        self.plan(self.now, Action::Ask(index));
        if let Some(at) = prepared {
            self.plan(at, Action::Launch(index));
        }
    }

    fn tell_of(&mut self, index: usize, event: impl FnOnce(SessionId) -> Event) {
        if let Some(session) = self.actors[index].session {
            self.tell(event(session));
        }
    }

    fn tell(&mut self, event: Event) {
        for decision in self.engine.on(self.now, event) {
            match decision {
                Decision::Start { session, lane } => self.start(self.job_of(session), lane),
                Decision::PageOut { session, bytes } => self.leave(self.job_of(session), bytes),
                Decision::Refuse { session, why } => {
                    let index = self.job_of(session);
                    let actor = &mut self.actors[index];
                    actor.waits_for = None;
                    actor.leaves = true;
                    actor.fate = Fate::Refused(self.now, why);
                    // It closes when this event is done with.
                    self.plan(self.now, Action::Ask(index));
                }
            }
        }
    }

    fn job_of(&self, session: SessionId) -> usize {
        self.came[session.0 as usize - 1]
    }

    fn start(&mut self, index: usize, lane: Lane) {
        match self.actors[index].start(lane) {
            Some((what, bytes)) => {
                if matches!(what, Move::In(_)) {
                    self.moved_bytes += bytes;
                }
                self.begin_move(index, what, bytes);
            }
            None => self.hand_over(index, lane),
        }
        self.plan(self.now, Action::Ask(index));
    }

    fn hand_over(&mut self, index: usize, lane: Lane) {
        let actor = &mut self.actors[index];
        let (each, beside) = (actor.draw(), actor.job.beside);
        self.device.hand_over(lane, index, each, beside);
    }

    fn leave(&mut self, index: usize, asked_bytes: u64) {
        match self.actors[index].moves {
            // Its session is busy with something else.
            Some(_) => self.actors[index].to_leave = Some(asked_bytes),
            None => self.begin_move(index, Move::Out { asked_bytes }, asked_bytes),
        }
    }

    fn begin_move(&mut self, index: usize, what: Move, bytes: u64) {
        self.actors[index].moves = Some(what);
        let took = u128::from(bytes) * 1_000_000_000 / u128::from(self.scenario.link_bytes);
        let took = Duration(u64::try_from(took).unwrap_or(u64::MAX));
        self.plan(self.now + took, Action::Moved(index));
    }

    fn moved(&mut self, index: usize) {
        let actor = &mut self.actors[index];
        match actor.moves.take() {
            Some(Move::Upload) => actor.is_uploaded(),
            Some(Move::In(lane)) => self.hand_over(index, lane),
            Some(Move::Out { asked_bytes }) => self.left(index, asked_bytes),
            None => {}
        }
        if let Some(bytes) = self.actors[index].to_leave.take() {
            self.leave(index, bytes);
        }
        self.go_on(index);
    }

    fn left(&mut self, index: usize, asked_bytes: u64) {
        let host_free = self.engine.ledger().host_free_bytes();
        let actor = &mut self.actors[index];
        let bytes = asked_bytes.min(actor.resident_bytes).min(host_free);
        actor.resident_bytes -= bytes;
        actor.paged_bytes += bytes;
        let absent_bytes = actor.absent_bytes();
        self.moved_bytes += bytes;
        self.tell_of(index, |session| Event::PagedOut {
            session,
            bytes,
            absent_bytes,
        });
    }

    fn note_states(&mut self) {
        let mut lanes = vec![None; self.actors.len()];
        for (lane, index) in self.device.running() {
            lanes[index] = Some(lane);
        }
        for (actor, lane) in self.actors.iter_mut().zip(lanes) {
            let state = state(&self.engine, actor, lane);
            actor.timeline.enter(self.now, state);
        }
    }

    /// The run ends, and jobs are left.
    fn cut(&mut self, end: Time) {
        if self.next().is_some() {
            self.now = end;
            self.device.advance(end);
            return;
        }
        // Nothing will happen any more.
        for actor in self.actors.iter().filter(|actor| actor.session.is_some()) {
            let why = match state(&self.engine, actor, None) {
                State::Paused => "is paused",
                State::Memory => "waits for memory",
                _ => "waits for its turn",
            };
            let name = &actor.job.name;
            self.notes
                .push(format!("{name} {why}, and nothing will change that"));
        }
    }
}

fn state(engine: &Engine, actor: &Actor<'_>, runs_in: Option<Lane>) -> State {
    let Some(session) = actor.session else {
        return State::Away;
    };
    if let Some(lane) = runs_in {
        State::Runs(lane)
    } else if actor.moves.is_some() {
        State::Moves
    } else if actor.in_flight > 0 {
        State::Turn
    } else if actor.paused {
        State::Paused
    } else if actor.waits_for.is_some() {
        match engine.why(session) {
            Some(Why::Memory { .. } | Why::GivesWay { .. }) => State::Memory,
            _ => State::Turn,
        }
    } else {
        State::Away
    }
}
