//! A scenario's run: its jobs and its device act by themselves, and the clock goes from one event to
//! the next.
//!
//! The next thing to happen is taken from the agenda, the device or the engine's own clock, in this
//! order where they fall together, and told to the engine; what it decides is done at once. Jobs
//! that act at the same moment take turns, each asking for one thing.
//!
//! Cost: O(log jobs) per event; where a picture is drawn O(jobs), because what one job does changes
//! what others wait for.
//! Not here: the events and the decisions (`simulation.rs`).

mod moves;
mod questions;
mod states;

use salus_engine::{Duration, Lane, Policy, Time};

use crate::agenda::Agenda;
use crate::device::Device;
use crate::history::Ran;
use crate::job::{Actor, Move};
use crate::output::report::{Fate, Report};
use crate::run::moves::Link;
use crate::scenario::quantity::show_time;
use crate::scenario::{Command, Factor, Job, Scenario};
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
    /// How many jobs have left for good.
    gone: usize,
    link: Link,
    /// Whether the jobs' timelines are kept.
    draws: bool,
    /// How many things have happened.
    pub(crate) events: u64,
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
    /// The job stayed for a while after its last iteration, and leaves.
    Leave(usize),
}

impl Run {
    pub fn new(scenario: &Scenario) -> Self {
        let Scenario { policy, room, .. } = *scenario;
        let mut run = Self {
            scenario: scenario.clone(),
            simulation: Simulation::new(policy, room, scenario.lanes, scenario.width),
            device: Device::new(scenario.lanes, Vec::new()),
            actors: Vec::new(),
            came: Vec::new(),
            agenda: Agenda::default(),
            gone: 0,
            link: Link::new(scenario.link_bytes),
            draws: true,
            events: 0,
            woke_at: None,
            moved_bytes: 0,
            notes: Vec::new(),
            history: None,
        };
        for job in &scenario.jobs {
            run.add(job.clone());
        }
        for (at, command) in &scenario.commands {
            run.agenda.plan(*at, Action::Command(*command));
        }
        run
    }

    /// A run of which no picture is drawn, on a link whose directions move one thing at a time.
    pub(crate) fn undrawn(scenario: &Scenario) -> Self {
        let mut run = Self::new(scenario);
        run.draws = false;
        run.link.move_one_at_a_time();
        run
    }

    /// One more job will come, at a time that is not over.
    pub(crate) fn add(&mut self, job: Job) {
        self.device.add_job(job.beside);
        self.agenda.plan(job.from, Action::Open(self.actors.len()));
        self.actors.push(Actor::new(job));
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

    /// Up to this time, without what happens then.
    pub(crate) fn until_before(&mut self, end: Time) {
        while let Some(next) = self.next().filter(|next| *next < end) {
            self.step(next);
        }
    }

    /// Until all jobs have ended, or nothing happens any more.
    pub(crate) fn run_out(&mut self) {
        self.until(END);
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
    pub(crate) fn next(&self) -> Option<Time> {
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
        self.gone < self.actors.len()
    }

    /// Jobs that are there or will come.
    pub(crate) fn present(&self) -> usize {
        self.actors.len() - self.gone
    }

    /// What open jobs hold, on the device and paged out.
    pub(crate) fn held_bytes(&self) -> u64 {
        let ledger = self.simulation.ledger();
        ledger.resident_bytes() + ledger.paged_bytes()
    }

    /// Arrays of all jobs that are there or will come, and the largest scratch.
    pub(crate) fn demand_bytes(&self) -> (u64, u64) {
        let open = self.simulation.sessions().map(|(id, _)| self.job_of(id));
        let coming = self.came.len()..self.actors.len();
        let jobs = open.chain(coming).map(|index| &self.actors[index].job);
        jobs.fold((0, 0), |(arrays, scratch), job| {
            (arrays + job.memory_bytes, scratch.max(job.scratch_bytes))
        })
    }

    /// Makes a change to a job that may make it leave, or come back.
    fn changing(&mut self, index: usize, change: impl FnOnce(&mut Actor)) {
        let actor = &mut self.actors[index];
        let before = usize::from(actor.is_gone());
        change(actor);
        self.gone = self.gone + usize::from(actor.is_gone()) - before;
    }

    /// Does one of the things that happen now.
    fn step(&mut self, now: Time) {
        self.events += 1;
        self.simulation.at(now);
        self.device.advance(now);
        if let Some(action) = self.agenda.take(now) {
            self.act(action);
        } else if let Some(ran) = self.device.end_one() {
            let index = ran.job;
            if let Some(history) = &mut self.history {
                history.push(ran);
            }
            self.actors[index].ran(ran.began, now);
            self.tell_of(index, Simulation::ran);
            match self.actors[index].leaves_at(now) {
                Some(at) if at == now => self.actors[index].finish(now),
                Some(at) => self.agenda.plan(at, Action::Leave(index)),
                None => {}
            }
            match self.actors[index].dies() {
                true => self.end(index, Fate::Killed(now)),
                false => self.go_on(index),
            }
        } else {
            let before = self.woke_at.replace(now);
            assert!(before < self.woke_at, "the engine wakes at once, forever");
            let decided = self.simulation.wake();
            self.carry_out(decided);
        }
        if self.draws {
            self.note_states();
        }
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
            Action::Leave(index) => {
                if !self.actors[index].leaves {
                    let now = self.now();
                    self.actors[index].finish(now);
                    self.go_on(index);
                }
            }
        }
    }

    fn paged_bytes(&self, index: usize) -> u64 {
        let session = self.actors[index].session;
        session.map_or(0, |id| self.simulation.session(id).paged_bytes)
    }

    fn open(&mut self, index: usize) {
        self.came.push(index);
        let id = self.came.len() as u64;
        self.changing(index, |actor| actor.session = Some(id));
        let actor = &self.actors[index];
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
        self.changing(index, |actor| {
            actor.fate = fate;
            actor.leaves = true;
        });
        let actor = &mut self.actors[index];
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
            self.changing(index, |actor| {
                actor.session = None;
                actor.closed_at = Some(now);
            });
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
        match self.actors[index].start(self.simulation.now(), lane) {
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
}
