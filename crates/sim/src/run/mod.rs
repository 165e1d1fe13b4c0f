//! A scenario's run: its jobs and its device act by themselves, and the clock goes from one event to
//! the next.
//!
//! The next thing to happen is taken from the agenda, the device or the engine's own clock, in this
//! order where they fall together, and told to the engine; what it decides is done at once. Jobs
//! that act at the same moment take turns, each asking for one thing.
//!
//! Cost: O(jobs) per event.
//! Not here: the events and the decisions (`simulation.rs`).

mod questions;

use salus_engine::{Duration, Lane, Policy, Time, Why};

use crate::agenda::Agenda;
use crate::device::Device;
use crate::history::Ran;
use crate::job::{Actor, Move};
use crate::output::report::{Fate, Report};
use crate::output::timeline::State;
use crate::scenario::quantity::show_time;
use crate::scenario::{Command, Factor, Scenario};
use crate::simulation::{Decided, Opening, Simulation};

/// No run is longer, whatever its jobs are: 1000 hours.
const END: Time = Time(1000 * 3_600_000_000_000);

#[derive(Debug)]
pub struct Run {
    pub(crate) scenario: Scenario,
    simulation: Simulation,
    pub(crate) device: Device,
    pub(crate) actors: Vec<Actor>,
    /// The jobs in order of arrival, which is that of their sessions' ids.
    came: Vec<usize>,
    agenda: Agenda<Action>,
    woke_at: Option<Time>,
    /// Paged out and in.
    pub(crate) moved_bytes: u64,
    pub(crate) notes: Vec<String>,
    /// If it was asked for.
    history: Option<Vec<Ran>>,
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

impl Run {
    pub fn new(scenario: &Scenario) -> Self {
        let Scenario { policy, room, .. } = *scenario;
        let factors = scenario.jobs.iter().map(|job| job.beside).collect();
        let mut run = Self {
            scenario: scenario.clone(),
            simulation: Simulation::new(policy, room, scenario.lanes, scenario.width),
            device: Device::new(scenario.lanes, factors),
            actors: Vec::new(),
            came: Vec::new(),
            agenda: Agenda::default(),
            woke_at: None,
            moved_bytes: 0,
            notes: Vec::new(),
            history: None,
        };
        for (index, job) in scenario.jobs.iter().enumerate() {
            run.actors.push(Actor::new(job.clone()));
            run.agenda.plan(job.from, Action::Open(index));
        }
        for (at, command) in &scenario.commands {
            run.agenda.plan(*at, Action::Command(*command));
        }
        run
    }

    /// A run that keeps a history.
    pub fn recorded(scenario: &Scenario) -> Self {
        Self {
            history: Some(Vec::new()),
            ..Self::new(scenario)
        }
    }

    /// To its end, or that of its scenario.
    pub fn report(mut self) -> Report {
        let end = self.scenario.until.unwrap_or(END);
        while let Some(next) = self.next().filter(|next| *next < end) {
            self.step(next);
        }
        if self.is_open() {
            self.cut(end);
        }
        Report::of(&self)
    }

    /// Up to this time, and all that happens then.
    pub fn until(&mut self, end: Time) -> &mut Self {
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.step(next);
        }
        self
    }

    /// Until all jobs have ended.
    pub fn finish(&mut self) -> &mut Self {
        self.until(END);
        let left = self.actors.iter().find(|actor| !actor.has_finished());
        assert!(left.is_none(), "{left:?} never ended");
        self
    }

    /// From now on every job takes this many thousandths of its time beside any other.
    pub fn slow_down_all(&mut self, thousandths: u64) {
        self.device.slow_down_all(Factor(thousandths));
    }

    /// From now on two jobs take this many thousandths of their time beside each other.
    pub fn slow_down(&mut self, one: &str, other: &str, thousandths: u64) {
        let (one, other) = (self.scenario.position(one), self.scenario.position(other));
        self.device.slow_down(one, other, Factor(thousandths));
    }

    fn actor(&self, job: &str) -> &Actor {
        &self.actors[self.scenario.position(job)]
    }

    /// When the next thing happens, while there are jobs, or some will come.
    fn next(&self) -> Option<Time> {
        if !self.is_open() {
            return None;
        }
        let times = [
            self.agenda.next(),
            self.device.next_end(),
            self.simulation.wake_at(),
        ];
        let next = times.into_iter().flatten().min();
        next.map(|at| at.max(self.now()))
    }

    /// Whether a job is there or will come.
    fn is_open(&self) -> bool {
        let gone = |actor: &Actor| actor.leaves && actor.session.is_none();
        !self.actors.iter().all(gone)
    }

    /// Does one of the things that happen now.
    fn step(&mut self, now: Time) {
        self.simulation.at(now);
        self.device.advance(now);
        if let Some(action) = self.agenda.take(now) {
            self.act(action);
        } else if let Some(ran) = self.device.end_one() {
            let index = ran.job;
            if let Some(history) = &mut self.history {
                history.push(ran);
            }
            self.actors[index].ran(now);
            self.tell_of(index, Simulation::ran);
            self.go_on(index);
        } else {
            let before = self.woke_at.replace(now);
            assert!(before < self.woke_at, "the engine wakes at once, forever");
            let decided = self.simulation.wake();
            self.carry_out(decided);
        }
        self.note_states();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Open(index) => self.open(index),
            Action::Command(command) => self.obey(command),
            Action::Launch(index) => {
                if !self.actors[index].leaves {
                    let now = self.now();
                    self.actors[index].launch(now);
                    self.go_on(index);
                }
            }
            Action::Ask(index) => {
                let (now, paged_bytes) = (self.now(), self.paged_bytes(index));
                if let Some(demand) = self.actors[index].ask(now, paged_bytes) {
                    self.tell_of(index, |simulation, id| simulation.ready(id, demand));
                } else if self.actors[index].is_done() {
                    self.go_on(index);
                }
            }
            Action::Moved(index) => self.moved(index),
        }
    }

    fn paged_bytes(&self, index: usize) -> u64 {
        let session = self.actors[index].session;
        session.map_or(0, |id| self.simulation.session(id).paged_bytes)
    }

    fn open(&mut self, index: usize) {
        self.came.push(index);
        let actor = &mut self.actors[index];
        actor.session = Some(self.came.len() as u64);
        let opening = Opening {
            settings: actor.settings,
            ..Opening::default()
        };
        let recalled = actor.job.recalled;
        self.tell_of(index, |simulation, id| simulation.open(id, opening));
        if let Some(total) = recalled {
            self.tell_of(index, |simulation, id| {
                simulation.estimate_from_history(id, total)
            });
        }
        self.go_on(index);
    }

    fn obey(&mut self, command: Command) {
        let job = match command {
            Command::Policy(policy) => return self.change_policy(policy),
            Command::Pause { job }
            | Command::Resume { job }
            | Command::Kill { job }
            | Command::Change { job, .. } => job,
        };
        let now = self.now();
        let actor = &mut self.actors[job];
        if actor.leaves {
            let (name, now) = (&actor.job.name, show_time(Duration(now.0)));
            self.notes
                .push(format!("at {now} {name} had ended already"));
            return;
        }
        match command {
            Command::Pause { .. } => {
                actor.paused = true;
                self.tell_of(job, Simulation::pause);
            }
            Command::Resume { .. } => {
                actor.paused = false;
                self.tell_of(job, Simulation::resume);
            }
            Command::Change { settings, .. } => {
                let settings = settings.onto(actor.settings);
                actor.settings = settings;
                self.tell_of(job, |simulation, id| {
                    simulation.change_settings(id, settings)
                });
            }
            Command::Kill { .. } | Command::Policy(_) => self.end(job, Fate::Killed(now)),
        }
    }

    fn change_policy(&mut self, policy: Policy) {
        let decided = self.simulation.change_policy(policy);
        self.carry_out(decided);
    }

    /// The job ends before it is done: it asks for nothing more, and what runs of it ends.
    fn end(&mut self, index: usize, fate: Fate) {
        let actor = &mut self.actors[index];
        actor.fate = fate;
        actor.leaves = true;
        if actor.waits_for.take().is_some() {
            self.tell_of(index, Simulation::withdraw);
        }
        self.go_on(index);
    }

    /// Lets the job's host prepare what is next and its session ask, or closes it.
    fn go_on(&mut self, index: usize) {
        let now = self.now();
        let actor = &mut self.actors[index];
        if actor.is_done()
            && let Some(id) = actor.session
        {
            assert_eq!(self.simulation.account(id).iterations, actor.ended);
            let session = self.simulation.session(id);
            let (resident, paged) = (session.resident_bytes, session.paged_bytes);
            self.tell_of(index, |simulation, id| {
                simulation.release(id, resident, paged)
            });
            self.tell_of(index, Simulation::close);
            let actor = &mut self.actors[index];
            actor.session = None;
            actor.closed_at = Some(now);
            return;
        }
        let prepared = actor.prepare(now);
        self.agenda.plan(now, Action::Ask(index));
        if let Some(at) = prepared {
            self.agenda.plan(at, Action::Launch(index));
        }
    }

    /// Tells the engine something about the job's session, and does what it decides.
    fn tell_of(&mut self, index: usize, tell: impl FnOnce(&mut Simulation, u64) -> Vec<Decided>) {
        if let Some(id) = self.actors[index].session {
            let decided = tell(&mut self.simulation, id);
            self.carry_out(decided);
        }
    }

    fn carry_out(&mut self, decided: Vec<Decided>) {
        for decision in decided {
            match decision {
                Decided::Start(id) => self.start(id),
                Decided::PageOut(id, bytes) => self.page_out(self.job_of(id), bytes),
                Decided::PageIn(_) => unreachable!("only where memory is the device's own"),
                Decided::Refuse(id, why) => {
                    let (index, now) = (self.job_of(id), self.now());
                    let actor = &mut self.actors[index];
                    actor.waits_for = None;
                    actor.leaves = true;
                    actor.fate = Fate::Refused(now, why);
                    // It closes after this event.
                    self.agenda.plan(now, Action::Ask(index));
                }
            }
        }
    }

    fn job_of(&self, session: u64) -> usize {
        self.came[session as usize - 1]
    }

    fn start(&mut self, id: u64) {
        let index = self.job_of(id);
        let lane = self.simulation.lane(id).expect("it is open");
        match self.actors[index].start(lane) {
            Some((what, bytes)) => {
                if matches!(what, Move::In(_)) {
                    self.moved_bytes += bytes;
                }
                self.begin_move(index, what, bytes);
            }
            None => self.hand_over(index, lane),
        }
        self.agenda.plan(self.now(), Action::Ask(index));
    }

    fn hand_over(&mut self, index: usize, lane: Lane) {
        let actor = &mut self.actors[index];
        let (each, asked_at) = (actor.draw(), actor.asked_at());
        self.device.hand_over(lane, index, each, asked_at);
    }

    fn page_out(&mut self, index: usize, asked_bytes: u64) {
        match self.actors[index].moves {
            // Its session is busy with something else.
            Some(_) => self.actors[index].to_page_out = Some(asked_bytes),
            None => self.begin_move(index, Move::Out { asked_bytes }, asked_bytes),
        }
    }

    fn begin_move(&mut self, index: usize, what: Move, bytes: u64) {
        self.actors[index].moves = Some(what);
        let took = u128::from(bytes) * 1_000_000_000 / u128::from(self.scenario.link_bytes);
        let took = Duration(u64::try_from(took).unwrap_or(u64::MAX));
        self.agenda.plan(self.now() + took, Action::Moved(index));
    }

    fn moved(&mut self, index: usize) {
        let actor = &mut self.actors[index];
        match actor.moves.take() {
            Some(Move::Upload) => actor.is_uploaded(),
            Some(Move::In(lane)) => self.hand_over(index, lane),
            Some(Move::Out { asked_bytes }) => self.paged_out(index, asked_bytes),
            None => {}
        }
        if let Some(bytes) = self.actors[index].to_page_out.take() {
            self.page_out(index, bytes);
        }
        self.go_on(index);
    }

    fn paged_out(&mut self, index: usize, asked_bytes: u64) {
        let host_free = self.simulation.ledger().host_free_bytes();
        let Some(id) = self.actors[index].session else {
            return;
        };
        let session = self.simulation.session(id);
        let bytes = asked_bytes.min(session.resident_bytes).min(host_free);
        let paged_bytes = self.actors[index].paged_out(session.paged_bytes + bytes);
        self.moved_bytes += bytes;
        let decided = self.simulation.paged_out(id, bytes, paged_bytes);
        self.carry_out(decided);
    }

    fn note_states(&mut self) {
        let now = self.now();
        let mut lanes = vec![None; self.actors.len()];
        for (lane, index) in self.device.running() {
            lanes[index] = Some(lane);
        }
        for (actor, lane) in self.actors.iter_mut().zip(lanes) {
            let state = state(&self.simulation, actor, lane);
            actor.timeline.enter(now, state);
        }
    }

    /// The run ends, and jobs are left.
    fn cut(&mut self, end: Time) {
        if self.next().is_some() {
            self.simulation.at(end);
            self.device.advance(end);
            return;
        }
        // Nothing will happen any more.
        for actor in self.actors.iter().filter(|actor| actor.session.is_some()) {
            let why = match state(&self.simulation, actor, None) {
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

fn state(simulation: &Simulation, actor: &Actor, runs_in: Option<Lane>) -> State {
    let Some(id) = actor.session else {
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
        match simulation.why(id) {
            Some(Why::Memory { .. } | Why::HostMemory { .. } | Why::Reserved { .. }) => {
                State::Memory
            }
            _ => State::Turn,
        }
    } else {
        State::Away
    }
}
