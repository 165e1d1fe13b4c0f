//! A swarm of made-up jobs on a made-up device: each seed draws the policy and the shape of the
//! device and of the jobs, which grow, idle, shrink, are resized, paused and misjudged, wish for
//! something else, hold what cannot be moved, call back, and die at any point. The policy changes,
//! too.
//!
//! After every event the ledger must agree with what the jobs hold, nothing may be oversold, and the
//! times of a session's states must add up to its age (safety). No lane may be idle while somebody
//! could run there. Every request must be answered within a bound that the promises of the engine
//! imply, and when all jobs have left, nothing may be left of them (liveness). Where the jobs fall
//! silent instead, nobody may wait who could be served. A failure names its seed:
//! `SALUS_SEED=N cargo test -p salus-engine --test swarm` runs it alone.

mod common;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use common::Random;
use salus_engine::{
    Calling, Class, Decision, Demand, Duration, Engine, Event, Kind, Lane, Policy, Program,
    Refusal, Room, SessionId, State, Time, User, Weight, Why, Wishes, Work,
};

const SEEDS: u64 = 4_000;
const MS: u64 = 1_000_000;
/// Of a stay (see `residency.rs`), an iteration and a move of a made-up job.
const STAY_MAX: u64 = 1_000 * MS;
const STEP_MAX: u64 = 300 * MS;
const MOVE_MAX: u64 = 50 * MS;
/// Of a callback, and how many an iteration makes.
const CALL_MAX: u64 = 100 * MS;
const CALLS_MAX: u64 = 4;
/// Whoever has waited so long goes before all others (see `policies/mod.rs`).
const PATIENCE: u64 = 30_000 * MS;
/// Iterations that a lane may be handed: one runs, one follows.
const DEPTH: u32 = 2;

impl Random {
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug, Clone, Copy)]
struct Array {
    bytes: u64,
    paged: bool,
    /// The device cannot move it.
    pinned: bool,
}

#[derive(Debug)]
struct Job {
    arrays: Vec<Array>,
    /// What was asked for and not answered.
    asked: Option<Asked>,
    /// Iterations in flight.
    running: Vec<Flight>,
    calls: Calls,
    page_out: bool,
    steps_left: u64,
    scratch: u64,
    memory_max: Option<u64>,
    program: Program,
    /// What its iterations take, about.
    step: u64,
    grows: bool,
    /// It asks again at once.
    busy: bool,
    opened_at: u64,
    paused: bool,
    compiling: bool,
    dying: bool,
    gone: bool,
}

/// Whether a job's iterations call back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calls {
    Never,
    Sometimes,
    /// And its callbacks return only when what the job asked for was answered.
    Nested,
}

/// An iteration that was started and has not ended.
#[derive(Debug)]
struct Flight {
    lane: Lane,
    /// Of the lane.
    scratch: u64,
    /// If it calls back.
    calling: Option<Calling>,
    /// Scratch of its own, which it gives back when it ends.
    own: u64,
    calls_left: u64,
    /// It waits for a callback.
    away: bool,
}

impl Flight {
    fn is_in_lane(&self) -> bool {
        !self.away
    }
}

#[derive(Debug)]
struct Asked {
    arguments: Vec<usize>,
    demand: Demand,
    /// Of its new bytes, scratch of an iteration that calls back.
    own: u64,
    /// Grows with each: its age.
    number: u64,
    /// Since when it is to be served: when it was asked, or its job was no longer held back.
    since: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    /// The job does something: asks, drops, dies.
    Act,
    /// Its user does: it goes on after a pause.
    Resume,
    Ran,
    /// An iteration that calls back begins a callback, comes back from it, or ends.
    Step(Calling),
    Moved(u64),
}

struct World {
    random: Random,
    engine: Engine,
    policy: Policy,
    /// Whether the policy is and was one that gives equal shares.
    shares: bool,
    room: Room,
    now: u64,
    /// By time and number, so that the order is one.
    agenda: BTreeMap<(u64, u64), (u64, Action)>,
    next: u64,
    jobs: BTreeMap<u64, Job>,
    /// When each lane has run what was handed to it.
    free_at: BTreeMap<u32, u64>,
    /// How many iterations have left each lane for a callback and were not replaced.
    left: BTreeMap<Lane, u64>,
    to_come: u64,
    long: bool,
    /// Steps of a job.
    steps_max: u64,
    /// One in so many times that it acts, it dies.
    lives: u64,
    last_id: u64,
    /// Whether all that the jobs may hold together fits device and host.
    fits: bool,
    digest: u64,
    asked: u64,
    starts: u64,
    callbacks: u64,
    moved_bytes: u64,
    longest_wait: u64,
    /// After so many steps the jobs do nothing more of their own, and keep what they hold.
    silent_after: Option<u64>,
}

impl World {
    fn new(seed: u64, silent_after: Option<u64>) -> Self {
        let mut random = Random::new(seed);
        let unit = 1 + random.below(1 << 20);
        let room = Room {
            device_bytes: unit * (20 + random.below(200)),
            host_bytes: unit * random.below(2_000),
            user_max: random.one_in(6).then(|| unit * (20 + random.below(400))),
        };
        // A few that always work show whom the policy lets wait; many are in each other's way.
        let long = random.one_in(10);
        let (to_come, steps_max, lives, lanes) = match long {
            true => (3 + random.below(3), 1_000, 20_000, 2),
            false => (2 + random.below(12), 40, 120, 4),
        };
        let lanes = 1 + random.below(lanes) as u32;
        let width = 1 + random.below(u64::from(lanes)) as u32;
        let policy = Policy::ALL[random.below(Policy::ALL.len() as u64) as usize];
        Self {
            engine: Engine::new(policy, room, lanes, width),
            policy,
            shares: gives_shares(policy),
            room,
            random,
            now: 0,
            agenda: BTreeMap::new(),
            next: 0,
            jobs: BTreeMap::new(),
            free_at: BTreeMap::new(),
            left: BTreeMap::new(),
            callbacks: 0,
            to_come,
            long,
            steps_max,
            lives,
            last_id: 0,
            fits: false,
            digest: 0,
            asked: 0,
            starts: 0,
            moved_bytes: 0,
            longest_wait: 0,
            silent_after,
        }
    }

    fn later(&mut self, after: u64, id: u64, action: Action) {
        self.next += 1;
        self.agenda
            .insert((self.now + after, self.next), (id, action));
    }

    fn run(&mut self) {
        let most = self.to_come;
        // What one job may ever hold: a share by which all fit together, or anything.
        let careful = !self.random.one_in(5);
        self.fits = careful;
        let all = self.room.device_bytes + self.room.host_bytes;
        let share = if careful {
            (all / (2 * most)).min(self.room.device_bytes / 4).max(1)
        } else {
            self.room.device_bytes
        };
        self.open(share);
        loop {
            self.silent_after = self.silent_after.map(|steps| steps.saturating_sub(1));
            if self.is_silent() {
                self.to_come = 0;
            }
            if self.to_come > 0 && self.random.one_in(8) {
                self.open(share);
            }
            let due = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let wake = self.engine.wake_at().map(|at| at.0);
            match (due, wake) {
                (None, None) if self.to_come > 0 => self.open(share),
                (None, None) => break,
                (due, Some(wake)) if due.is_none_or(|due| wake < due) => {
                    assert!(wake > self.now || self.now == 0, "woken at once, for ever");
                    self.now = wake.max(self.now);
                    self.tell(Event::Woke);
                }
                _ => {
                    let Some(((at, _), (id, action))) = self.agenda.pop_first() else {
                        break;
                    };
                    self.now = at;
                    self.act(id, action, share);
                }
            }
        }
        match self.silent_after {
            None => self.finish(),
            Some(_) => self.settled(),
        }
    }

    fn is_silent(&self) -> bool {
        self.silent_after == Some(0)
    }

    fn open(&mut self, share: u64) {
        self.to_come -= 1;
        self.last_id += 1;
        let id = self.last_id;
        let memory_max = self.random.one_in(6).then(|| 1 + self.random.below(share));
        let wishes = self.wishes();
        let program = match self.random.one_in(2) {
            true => Program(self.random.below(3)),
            false => Program(100 + id),
        };
        let job = Job {
            arrays: Vec::new(),
            asked: None,
            running: Vec::new(),
            calls: match self.random.below(8) {
                0 => Calls::Nested,
                1 | 2 => Calls::Sometimes,
                _ => Calls::Never,
            },
            page_out: false,
            steps_left: 1 + self.random.below(self.steps_max),
            scratch: self.random.below(share),
            memory_max,
            program,
            step: 1 + self.random.below(STEP_MAX),
            grows: self.random.one_in(3),
            busy: self.long || self.random.one_in(2),
            opened_at: self.now,
            paused: false,
            compiling: false,
            dying: false,
            gone: false,
        };
        self.jobs.insert(id, job);
        self.tell(Event::Opened {
            session: SessionId(id),
            user: user_of(id),
            memory_max,
            wishes,
        });
        self.later(0, id, Action::Act);
    }

    fn wishes(&mut self) -> Wishes {
        let random = &mut self.random;
        let weight = 1 + random.below(4) as u32;
        Wishes {
            weight: Weight(NonZeroU32::new(weight).expect("at least one")),
            class: match random.below(4) {
                0 => Class::High,
                1 => Class::Low,
                _ => Class::Normal,
            },
            latency: random.one_in(3).then(|| Duration(random.below(200 * MS))),
            work: match random.below(4) {
                0 => Some(Work::Iterations(random.below(80))),
                1 => Some(Work::Time(Duration(random.below(20_000 * MS)))),
                _ => None,
            },
        }
    }

    fn act(&mut self, id: u64, action: Action, share: u64) {
        match action {
            Action::Ran => {
                let session = SessionId(id);
                let did_not_run = self.random.one_in(20);
                let job = self.jobs.get_mut(&id).expect("it runs");
                let mut in_order = job.running.iter();
                let calling = None;
                let (at, event) = match did_not_run {
                    true => (
                        in_order.rposition(|flight| flight.calling.is_none()),
                        Event::DidNotRun { session, calling },
                    ),
                    false => (
                        in_order.position(|flight| flight.calling.is_none()),
                        Event::Ran { session, calling },
                    ),
                };
                job.running.remove(at.expect("it runs"));
                self.tell(event);
                self.end_if_dead(id);
            }
            Action::Step(calling) => self.step(id, calling),
            Action::Moved(asked) => self.moved(id, asked),
            Action::Resume => self.resume(id),
            Action::Act => self.job_acts(id, share),
        }
    }

    /// The iteration begins a callback, comes back from it, or ends.
    fn step(&mut self, id: u64, calling: Calling) {
        let session = SessionId(id);
        let did_not_run = self.random.one_in(40);
        let (silent, forever) = (self.is_silent(), self.random.one_in(2));
        let took = 1 + self.random.below(STEP_MAX / CALLS_MAX);
        let callback = 1 + self.random.below(CALL_MAX);
        let job = self.jobs.get_mut(&id).expect("it runs");
        let at = job.running.iter().position(|f| f.calling == Some(calling));
        let at = at.expect("it has not ended");
        let others = job.running.iter().any(|f| f.calling.is_none());
        let flight = &mut job.running[at];
        if flight.away {
            if silent && forever {
                // Its callback never returns.
                return;
            }
            let waits = job.asked.is_some() || others;
            if job.calls == Calls::Nested && waits && !silent && !job.dying {
                return self.later(callback, id, Action::Step(calling));
            }
            flight.away = false;
            flight.calls_left -= 1;
            self.tell(Event::CallbackEnded { session, calling });
            return self.later(took, id, Action::Step(calling));
        }
        if flight.calls_left > 0 && !did_not_run && !job.dying {
            flight.away = true;
            let lane = flight.lane;
            self.callbacks += 1;
            *self.left.entry(lane).or_default() += 1;
            self.tell(Event::CallbackBegan { session, calling });
            return self.later(callback, id, Action::Step(calling));
        }
        let own = std::mem::take(&mut flight.own);
        self.tell(Event::Released {
            session,
            resident_bytes: own,
            paged_bytes: 0,
        });
        self.job_mut(id).running.remove(at);
        let calling = Some(calling);
        self.tell(match did_not_run {
            true => Event::DidNotRun { session, calling },
            false => Event::Ran { session, calling },
        });
        self.end_if_dead(id);
    }

    /// What a job's thread does when it has been asked to page out.
    fn moved(&mut self, id: u64, asked: u64) {
        let job = self.jobs.get_mut(&id).expect("asked jobs are open");
        if job.gone {
            return;
        }
        assert!(job.running.is_empty(), "{id} moves while it runs");
        let mut bytes = 0;
        let wanted = job.asked.as_ref().map_or(&[][..], |a| &a.arguments[..]);
        let order = (0..job.arrays.len()).filter(|i| !wanted.contains(i));
        let order: Vec<usize> = order.chain(wanted.iter().copied()).collect();
        for at in order {
            let array = &mut job.arrays[at];
            let fits = bytes + array.bytes <= self.engine.ledger().host_free_bytes();
            if bytes < asked && !array.paged && !array.pinned && fits {
                array.paged = true;
                bytes += array.bytes;
            }
        }
        job.page_out = false;
        let absent_bytes = absent(job);
        if let Some(asked) = &mut job.asked {
            asked.demand.absent_bytes = absent_bytes;
        }
        self.moved_bytes += bytes;
        self.tell(Event::PagedOut {
            session: SessionId(id),
            bytes,
            absent_bytes,
        });
        self.end_if_dead(id);
    }

    fn job_acts(&mut self, id: u64, share: u64) {
        let dies = self.random.one_in(self.lives);
        let job = self.jobs.get_mut(&id).expect("only the open act");
        if job.gone || job.dying || self.silent_after == Some(0) {
            return;
        }
        if dies || (job.steps_left == 0 && job.asked.is_none()) {
            job.dying = true;
            if job.asked.take().is_some() {
                self.tell(Event::Withdrew {
                    session: SessionId(id),
                });
            }
            return self.end_if_dead(id);
        }
        if self.random.one_in(40) {
            let memory_max = self.random.one_in(2).then(|| 1 + self.random.below(share));
            self.jobs.get_mut(&id).expect("open").memory_max = memory_max;
            self.tell(Event::Limited {
                session: SessionId(id),
                memory_max,
            });
        }
        self.users_act(id);
        self.drop_some(id);
        let busy = self.jobs[&id].busy;
        let pause = self.pause(busy);
        let job = self.jobs.get_mut(&id).expect("open");
        if job.asked.is_none() {
            job.steps_left = job.steps_left.saturating_sub(1);
            self.ask(id, share);
        }
        self.later(pause, id, Action::Act);
    }

    /// What is asked of the session, known of it and done with it from outside.
    fn users_act(&mut self, id: u64) {
        let session = SessionId(id);
        if self.random.one_in(3 * self.lives) {
            let policy = Policy::ALL[self.random.below(Policy::ALL.len() as u64) as usize];
            self.change(Event::Ordered { policy });
        }
        if self.random.one_in(self.lives / 4) {
            let wishes = self.wishes();
            self.tell(Event::Wished { session, wishes });
        }
        if self.random.one_in(self.lives / 2) {
            let total = Duration(self.random.below(20_000 * MS));
            self.tell(Event::Recalled { session, total });
        }
        let job = self.jobs.get_mut(&id).expect("open");
        if self.random.one_in(20) || job.compiling {
            job.compiling = !job.compiling;
            let event = match job.compiling {
                true => Event::Compiling { session },
                false => Event::Compiled { session },
            };
            self.tell(event);
        }
        if !self.jobs[&id].paused && self.random.one_in(self.lives / 2) {
            self.change(Event::Paused { session });
            let after = self.random.below(3_000 * MS);
            self.later(after, id, Action::Resume);
        }
    }

    fn resume(&mut self, id: u64) {
        if !self.jobs[&id].gone && !self.is_silent() {
            let session = SessionId(id);
            self.change(Event::Resumed { session });
        }
    }

    /// Tells what decides who is held back; those that no longer are begin to wait.
    fn change(&mut self, event: Event) {
        let before: Vec<u64> = self.held().collect();
        match event {
            Event::Ordered { policy } => {
                self.policy = policy;
                self.shares &= gives_shares(policy);
            }
            Event::Paused { session } => self.job_mut(session.0).paused = true,
            Event::Resumed { session } => self.job_mut(session.0).paused = false,
            Event::Closed { session } => self.job_mut(session.0).gone = true,
            _ => panic!("{event:?} holds nobody back"),
        }
        let after: Vec<u64> = self.held().collect();
        let now = self.now;
        for id in before.into_iter().filter(|id| !after.contains(id)) {
            if let Some(asked) = &mut self.job_mut(id).asked {
                asked.since = now;
            }
        }
        self.tell(event);
    }

    /// Those of which nothing may be started: the paused, and all but the first where it has the
    /// device for itself.
    fn held(&self) -> impl Iterator<Item = u64> {
        let may_run = |job: &Job| !job.gone && !job.paused;
        let owner = self.jobs.iter().find(|(_, job)| may_run(job));
        let owner = owner.map(|(id, _)| *id);
        let exclusive = self.policy == Policy::Exclusive;
        let open = self.jobs.iter().filter(|(_, job)| !job.gone);
        let held = open.filter(move |(id, job)| job.paused || (exclusive && Some(**id) != owner));
        held.map(|(id, _)| *id)
    }

    fn job_mut(&mut self, id: u64) -> &mut Job {
        self.jobs.get_mut(&id).expect("it came")
    }

    fn pause(&mut self, busy: bool) -> u64 {
        match self.random.below(10) {
            _ if busy => self.random.below(20 * MS),
            0 => self.random.below(2_000 * MS),
            1..=3 => self.random.below(50 * MS),
            _ => self.random.below(MS),
        }
    }

    /// Arrays go away at any time, but not while a request names them.
    fn drop_some(&mut self, id: u64) {
        let session = SessionId(id);
        let job = self.jobs.get_mut(&id).expect("open");
        if job.asked.is_some() || job.arrays.is_empty() || !self.random.one_in(3) {
            return;
        }
        let at = self.random.below(job.arrays.len() as u64) as usize;
        let array = job.arrays.remove(at);
        let (resident_bytes, paged_bytes) = if array.paged {
            (0, array.bytes)
        } else {
            (array.bytes, 0)
        };
        self.tell(Event::Released {
            session,
            resident_bytes,
            paged_bytes,
        });
    }

    fn ask(&mut self, id: u64, share: u64) {
        self.asked += 1;
        let job = self.jobs.get_mut(&id).expect("open");
        let held: u64 = job.arrays.iter().map(|a| a.bytes).sum();
        let left = share.saturating_sub(held);
        let grows = job.arrays.is_empty() || (job.grows && left > 0);
        let limit = if self.fits { left } else { share };
        let new_bytes = match (grows, self.random.below(4)) {
            (true, _) => self.random.below(limit / 2 + 1),
            (false, 0) => self.random.below((left / 8).min(64) + 1),
            _ => 0,
        };
        let arguments: Vec<usize> = (0..job.arrays.len())
            .filter(|_| !self.random.one_in(4))
            .collect();
        let upload = job.arrays.is_empty() || self.random.one_in(6);
        let kind = if upload {
            Kind::Array
        } else {
            // Something else runs once in a while: it validates, or saves.
            let program = match self.random.one_in(8) {
                true => Program(200 + id),
                false => job.program,
            };
            match job.calls != Calls::Never && self.random.one_in(2) {
                true => Kind::CallsBack {
                    program,
                    calling: Calling(self.asked),
                },
                false => Kind::Launch {
                    scratch_bytes: job.scratch,
                    program,
                },
            }
        };
        let own = match kind {
            Kind::CallsBack { .. } => job.scratch,
            _ => 0,
        };
        let arguments = if upload { Vec::new() } else { arguments };
        let argument_bytes = arguments.iter().map(|&at| job.arrays[at].bytes).sum();
        job.asked = Some(Asked {
            arguments,
            own,
            demand: Demand {
                kind,
                new_bytes: new_bytes + own,
                argument_bytes,
                absent_bytes: 0,
            },
            number: self.asked,
            since: self.now,
        });
        let absent_bytes = absent(job);
        let asked = job.asked.as_mut().expect("just asked");
        asked.demand.absent_bytes = absent_bytes;
        let event = Event::Ready {
            session: SessionId(id),
            demand: asked.demand,
        };
        self.tell(event);
    }

    fn end_if_dead(&mut self, id: u64) {
        let job = self.jobs.get_mut(&id).expect("open");
        if job.dying && !job.gone && job.running.is_empty() {
            let sum = |paged: bool| -> u64 {
                let arrays = job.arrays.iter().filter(|a| a.paged == paged);
                arrays.map(|a| a.bytes).sum()
            };
            let (resident_bytes, paged_bytes) = (sum(false), sum(true));
            job.arrays.clear();
            let session = SessionId(id);
            self.tell(Event::Released {
                session,
                resident_bytes,
                paged_bytes,
            });
            self.change(Event::Closed { session });
        }
    }

    fn tell(&mut self, event: Event) {
        let decisions = self.engine.on(Time(self.now), event);
        for decision in decisions {
            self.digest = self.digest.rotate_left(7).wrapping_add(
                format!("{} {decision:?}", self.now)
                    .bytes()
                    .map(u64::from)
                    .sum(),
            );
            self.carry_out(decision);
        }
        self.check();
        self.check_times();
        self.check_waits();
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Start { session, lane } => self.started(session.0, lane),
            Decision::PageOut { session, bytes } => {
                let job = self.jobs.get_mut(&session.0).expect("open");
                assert!(job.running.is_empty(), "{session} runs and is to leave");
                assert!(!job.page_out, "{session} was asked already");
                assert!(bytes > 0);
                job.page_out = true;
                let took = self.random.below(MOVE_MAX);
                self.later(took, session.0, Action::Moved(bytes));
            }
            Decision::Refuse { session, why } => {
                let job = self.jobs.get_mut(&session.0).expect("open");
                let asked = job.asked.take().expect("it asked");
                match why {
                    Refusal::TooLarge { needs_bytes, .. } => {
                        assert!(needs_bytes > self.room.device_bytes);
                    }
                    Refusal::BeyondLimit { memory_max, .. } => {
                        let held = job.held(false) + job.held(true);
                        assert_eq!(Some(memory_max), job.memory_max);
                        assert!(held + asked.demand.new_bytes > memory_max);
                    }
                    Refusal::BeyondUserLimit { user_max, .. } => {
                        let same = |other: &&u64| user_of(**other) == user_of(session.0);
                        let held: u64 = self
                            .jobs
                            .iter()
                            .filter(|(other, _)| same(other))
                            .map(|(_, job)| job.held(false) + job.held(true))
                            .sum();
                        assert_eq!(Some(user_max), self.room.user_max);
                        assert!(held + asked.demand.new_bytes > user_max);
                    }
                    Refusal::NoRoom { .. } => {
                        let pinned = self
                            .jobs
                            .values()
                            .any(|j| j.arrays.iter().any(|a| a.pinned));
                        // What waits for its job cannot leave, either.
                        let away = self.jobs.values().any(|j| j.running.iter().any(|f| f.away));
                        assert!(
                            !self.fits || pinned || away,
                            "all fits, and {session} was refused"
                        );
                    }
                }
            }
        }
    }

    fn started(&mut self, id: u64, lane: Lane) {
        assert!(
            !self.held().any(|held| held == id),
            "{id} starts while it is held back"
        );
        let pinned = self.random.one_in(30);
        // Mostly as before, and sometimes not at all.
        let step = self.jobs[&id].step;
        let took = match self.random.one_in(5) {
            true => 1 + self.random.below(STEP_MAX),
            false => step / 2 + self.random.below(step / 2 + 1),
        };
        let job = self.jobs.get_mut(&id).expect("open");
        assert!(!job.page_out, "{id} starts while it leaves");
        let asked = job.asked.take().expect("only the ready start");
        let waited = self.now - asked.since;
        self.longest_wait = self.longest_wait.max(waited);
        for &at in &asked.arguments {
            job.arrays[at].paged = false;
        }
        if asked.demand.new_bytes > asked.own {
            job.arrays.push(Array {
                bytes: asked.demand.new_bytes - asked.own,
                paged: false,
                // A bound holds only where everything can be moved.
                pinned: pinned && (!self.fits || self.silent_after.is_some()),
            });
        }
        self.starts += 1;
        if asked.demand.program().is_some() {
            let calling = asked.demand.calling();
            let flight = Flight {
                lane,
                scratch: asked.demand.scratch_bytes(),
                calling,
                own: asked.own,
                calls_left: self.random.below(CALLS_MAX + 1),
                away: false,
            };
            job.running.push(flight);
            self.handed_over(lane, calling.is_some());
            if let Some(calling) = calling {
                let after = 1 + self.random.below(STEP_MAX / CALLS_MAX);
                return self.later(after, id, Action::Step(calling));
            }
            // One after the other within the lane.
            let free_at = self.free_at.entry(lane.0).or_default();
            *free_at = self.now.max(*free_at) + took;
            let after = *free_at - self.now;
            self.later(after, id, Action::Ran);
        }
    }

    /// What calls back has its lane for itself, but for those that came back to it; for each of those
    /// that waits again one is handed over.
    fn handed_over(&mut self, lane: Lane, calls_back: bool) {
        let flights = self.jobs.values().flat_map(|job| &job.running);
        let there: Vec<&Flight> = flights
            .filter(|flight| flight.lane == lane && flight.is_in_lane())
            .collect();
        let calling = there.iter().filter(|f| f.calling.is_some()).count();
        let (beside, others_call) = (there.len() - 1, calling - usize::from(calls_back));
        let left = self.left.entry(lane).or_default();
        if beside == 0 {
            *left = 0;
        } else if others_call > 0 {
            assert!(*left > 0, "one more in {lane:?} beside what calls back");
            *left -= 1;
        } else {
            assert!(!calls_back, "{lane:?} is not empty");
            *left = left.saturating_sub(1);
        }
    }

    /// Each needs those before it to run and to leave. Those are all, where they share the device;
    /// else a policy may put others before it until it has waited for long.
    fn bound(&self) -> u64 {
        let jobs = self.jobs.values().filter(|job| !job.gone).count() as u64 + 1;
        let patience = if self.shares { 0 } else { PATIENCE };
        // What calls back lasts longer, and those whose callbacks wait for others' memory may have to
        // be refused, one after the other.
        let open = || self.jobs.values().filter(|job| !job.gone);
        let calls = open().any(|job| job.calls != Calls::Never);
        let nested = open().filter(|job| job.calls == Calls::Nested).count() as u64;
        let callbacks = if calls { CALLS_MAX * CALL_MAX } else { 0 };
        let step = STEP_MAX + callbacks;
        patience + nested * PATIENCE + 2 * jobs * (STAY_MAX + 4 * step + 2 * MOVE_MAX)
    }

    fn check(&self) {
        let ledger = self.engine.ledger();
        assert!(ledger.resident_bytes() + ledger.scratch_bytes() <= self.room.device_bytes);
        assert!(ledger.paged_bytes() <= self.room.host_bytes);
        let mut largest: BTreeMap<Lane, (u64, usize)> = BTreeMap::new();
        let mut in_order: BTreeMap<Lane, u32> = BTreeMap::new();
        let mut resident = 0;
        for (id, job) in &self.jobs {
            for flight in job.running.iter().filter(|flight| flight.is_in_lane()) {
                let slot = largest.entry(flight.lane).or_default();
                *slot = (slot.0.max(flight.scratch), slot.1 + 1);
                *in_order.entry(flight.lane).or_default() += u32::from(flight.calling.is_none());
            }
            if job.gone {
                continue;
            }
            let holding = ledger.holding(SessionId(*id)).expect("open");
            assert_eq!(
                holding.resident_bytes,
                job.held(false),
                "job {id} on the device"
            );
            assert_eq!(holding.paged_bytes, job.held(true), "job {id} on the host");
            resident += holding.resident_bytes;
        }
        assert_eq!(resident, ledger.resident_bytes(), "the sum of the sessions");
        let lanes = self.engine.lanes().filter(|(_, _, runs)| *runs > 0);
        let lanes: BTreeMap<_, _> = lanes
            .map(|(lane, bytes, runs)| (lane, (bytes, runs)))
            .collect();
        assert_eq!(lanes, largest, "lanes are as large as what runs in them");
        assert!(in_order.values().all(|runs| *runs <= DEPTH));
    }

    /// At any moment a session is in one state.
    fn check_times(&self) {
        for (id, job) in self.jobs.iter().filter(|(_, job)| !job.gone) {
            let account = self.engine.account(SessionId(*id)).expect("open");
            let now = Time(self.now);
            let times = State::ALL.map(|state| account.time_in(state, now).0);
            assert_eq!(
                times.iter().sum::<u64>(),
                self.now - job.opened_at,
                "of job {id}"
            );
        }
    }

    /// Whoever waits has a reason: it is held back, or waits for room, or its lane has as much as it
    /// may have.
    fn check_waits(&self) {
        let bound = self.bound();
        let held: Vec<u64> = self.held().collect();
        let flights = || self.jobs.values().flat_map(|job| &job.running);
        let runs = flights().any(Flight::is_in_lane);
        let asks_to_call = |job: &Job| {
            let asked = job.asked.as_ref();
            asked.is_some_and(|asked| asked.demand.calling().is_some())
        };
        let packs = self.policy == Policy::Pack;
        let classes = matches!(self.policy, Policy::Priority | Policy::Deadline);
        for (id, job) in self.jobs.iter().filter(|(_, job)| !job.gone) {
            let Some(asked) = &job.asked else { continue };
            let why = self.engine.why(SessionId(*id)).expect("open");
            match why {
                _ if held.contains(id) => continue,
                Why::AtWork | Why::Running | Why::Callback | Why::Compiling => {
                    panic!("job {id} asks")
                }
                Why::Paused | Why::Exclusive { .. } => panic!("job {id} is not held back"),
                Why::Turn { ahead, .. } => {
                    let lane = self.engine.lane(SessionId(*id)).expect("open");
                    let beside = |flight: &Flight| flight.lane == lane && flight.calling.is_some();
                    // One that calls back is there, or is to be handed over first.
                    let alone = flights().any(|flight| flight.is_in_lane() && beside(flight))
                        || self.jobs.iter().any(|(other, job)| {
                            self.engine.lane(SessionId(*other)) == Some(lane) && asks_to_call(job)
                        });
                    let places = if classes || alone { 1 } else { DEPTH };
                    assert!(ahead >= places, "job {id} could be handed to its lane");
                }
                Why::Apart => assert!(packs && runs, "job {id} could run, and its lane is idle"),
                Why::Memory { .. } | Why::GivesWay { .. } | Why::Leaving { .. } => {}
            }
            let waits = self.now - asked.since;
            assert!(
                !self.fits || self.silent_after.is_some() || waits <= bound,
                "job {id} waits for {waits} ns, {bound} is the bound: {why:?}"
            );
        }
    }

    /// Nothing happens any more. Who still waits does not fit, and the oldest would not fit if all
    /// others had moved what they can, or the host has no room for that.
    fn settled(&self) {
        let ledger = self.engine.ledger();
        let open = || self.jobs.iter().filter(|(_, job)| !job.gone);
        let held: Vec<u64> = self.held().collect();
        let served = open().filter(|(id, _)| !held.contains(id));
        let waiting = served.filter_map(|(id, job)| Some((id, job.asked.as_ref()?)));
        for (id, asked) in waiting.clone() {
            let fits = needs(&asked.demand) <= ledger.free_bytes();
            assert!(!fits, "job {id} fits and waits for ever");
        }
        let Some((oldest, asked)) = waiting.min_by_key(|(_, asked)| asked.number) else {
            return;
        };
        // What waits for its job cannot leave.
        let others = open().filter(|(id, job)| *id != oldest && job.running.is_empty());
        let arrays = others.flat_map(|(_, job)| &job.arrays);
        let movable = arrays.filter(|array| !array.paged && !array.pinned);
        let movable: u64 = movable.map(|array| array.bytes).sum();
        let could = needs(&asked.demand) <= ledger.free_bytes() + movable;
        assert!(
            !could || movable > ledger.host_free_bytes(),
            "job {oldest} waits for ever, and others could leave"
        );
    }

    fn finish(&self) {
        for (id, job) in &self.jobs {
            assert!(job.gone, "job {id} never ended: {job:?}, {:?}", self.engine);
        }
        let ledger = self.engine.ledger();
        let left = (
            ledger.resident_bytes(),
            ledger.paged_bytes(),
            ledger.scratch_bytes(),
        );
        assert_eq!(left, (0, 0, 0), "bytes were lost");
        assert_eq!(ledger.holdings().count(), 0);
    }
}

impl Job {
    /// What it holds on the device or on the host.
    fn held(&self, paged: bool) -> u64 {
        let arrays = self.arrays.iter().filter(|a| a.paged == paged);
        let own = self.running.iter().map(|flight| flight.own);
        let own: u64 = if paged { 0 } else { own.sum() };
        arrays.map(|a| a.bytes).sum::<u64>() + own
    }
}

fn gives_shares(policy: Policy) -> bool {
    matches!(policy, Policy::Fair | Policy::Pack)
}

/// A few users have all the jobs.
fn user_of(id: u64) -> User {
    User((id % 3) as u32)
}

fn absent(job: &Job) -> u64 {
    let arguments = job.asked.as_ref().map_or(&[][..], |a| &a.arguments[..]);
    let paged = arguments.iter().filter(|at| job.arrays[**at].paged);
    paged.map(|at| job.arrays[*at].bytes).sum()
}

fn needs(demand: &Demand) -> u64 {
    demand.new_bytes + demand.absent_bytes + demand.scratch_bytes()
}

fn run(seed: u64, silent_after: Option<u64>) -> World {
    let mut world = World::new(seed, silent_after);
    world.run();
    world
}

fn run_or_name(seed: u64, silent_after: Option<u64>) -> World {
    let once = std::panic::catch_unwind(|| run(seed, silent_after));
    once.unwrap_or_else(|panic| {
        eprintln!("the swarm fails with SALUS_SEED={seed}");
        std::panic::resume_unwind(panic)
    })
}

fn seeds(count: u64) -> Vec<u64> {
    #[expect(clippy::disallowed_methods, reason = "a failed seed is run alone")]
    let one = std::env::var("SALUS_SEED").ok();
    match one.as_deref().map(str::parse) {
        Some(Ok(seed)) => vec![seed],
        Some(Err(_)) => panic!("SALUS_SEED is a number"),
        None => (0..count).collect(),
    }
}

#[test]
fn a_swarm_of_jobs_is_served_safely_and_in_bounded_time() {
    let (mut starts, mut callbacks, mut moved, mut longest) = (0, 0, 0, 0);
    for seed in seeds(SEEDS) {
        let world = run_or_name(seed, None);
        if seed % 50 == 0 {
            assert_eq!(
                run(seed, None).digest,
                world.digest,
                "seed {seed} runs two ways"
            );
        }
        starts += world.starts;
        callbacks += world.callbacks;
        moved += world.moved_bytes;
        longest = longest.max(world.longest_wait);
    }
    let longest = Duration(longest);
    assert!(starts > 0 && callbacks > 0);
    eprintln!(
        "{starts} starts, {callbacks} callbacks, {moved} bytes moved, longest wait {longest:?}"
    );
}

#[test]
fn when_the_jobs_fall_silent_nobody_waits_who_could_be_served() {
    for seed in seeds(2 * SEEDS) {
        run_or_name(seed, Some(20 + seed % 300));
    }
}
