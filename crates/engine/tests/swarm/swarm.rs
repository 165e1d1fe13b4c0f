//! The swarm: when jobs come, act and end, and how long what the engine starts takes.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use fastrand::Rng;
use salus_engine::{Duration, JobSettings, Policy, Room, Time};
use salus_sim::{Agenda, Decided, Opening, Simulation};

use crate::jobs::{
    Array, CALLBACK_MAX_NS, CALLBACKS_MAX, Calls, CallsBack, Chance, Job, MOVE_MAX_NS, MS,
    STEP_MAX_NS, settings,
};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    /// The job does something: asks, drops, dies.
    Act,
    /// Its user does: it goes on after a pause.
    Resume,
    Ran,
    /// An iteration that calls back begins a callback, comes back from it, or ends.
    Step(u64),
    PagedOut(u64),
    PagedIn,
}

pub(crate) struct Swarm {
    pub(crate) random: Rng,
    pub(crate) simulation: Simulation,
    /// The device has memory of its own, and jobs have arrays in the host's, too.
    pub(crate) separate: bool,
    /// Whether every policy so far was one that gives equal shares.
    pub(crate) gives_shares: bool,
    agenda: Agenda<(u64, Action)>,
    /// The open ones.
    pub(crate) jobs: BTreeMap<u64, Job>,
    to_come: u64,
    /// A few jobs that always work, instead of many that are in each other's way.
    long: bool,
    steps_max: u64,
    /// Each time it acts, a job dies with a chance of one in this many.
    pub(crate) lives: u64,
    came: u64,
    /// Whether all that the jobs may hold together fits device and host.
    pub(crate) fits: bool,
    /// What one job may hold.
    pub(crate) share: u64,
    /// After this many steps the jobs do nothing more of their own, and keep what they hold.
    pub(crate) silent_after: Option<u64>,
    pub(crate) asked: u64,
    pub(crate) digest: u64,
    pub(crate) starts: u64,
    pub(crate) callbacks: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) pages_in: u64,
    pub(crate) longest_wait_ns: u64,
}

impl Swarm {
    pub(crate) fn new(seed: u64, silent_after: Option<u64>, separate: bool) -> Self {
        let mut random = Rng::with_seed(seed);
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
        let policy = draw_policy(&mut random);
        // What one job may ever hold: a share by which all fit together, or anything.
        let fits = !random.one_in(5);
        let all = room.device_bytes + room.host_bytes;
        let share = match fits {
            true => (all / (2 * to_come)).min(room.device_bytes / 4).max(1),
            false => room.device_bytes,
        };
        Self {
            simulation: match separate {
                true => Simulation::new(policy, room, lanes, width).with_own_memory(),
                false => Simulation::new(policy, room, lanes, width),
            },
            separate,
            gives_shares: gives_shares(policy),
            random,
            agenda: Agenda::default(),
            jobs: BTreeMap::new(),
            to_come,
            long,
            steps_max,
            lives,
            came: 0,
            fits,
            share,
            silent_after,
            asked: 0,
            digest: 0,
            starts: 0,
            callbacks: 0,
            moved_bytes: 0,
            pages_in: 0,
            longest_wait_ns: 0,
        }
    }

    pub(crate) fn run(&mut self) {
        self.open();
        loop {
            self.silent_after = self.silent_after.map(|steps| steps.saturating_sub(1));
            if self.is_silent() {
                self.to_come = 0;
            }
            if self.to_come > 0 && self.random.one_in(8) {
                self.open();
            }
            let now = self.simulation.now();
            match (self.agenda.next(), self.simulation.wake_at()) {
                (None, None) if self.to_come > 0 => self.open(),
                (None, None) => break,
                (next, Some(wake)) if next.is_none_or(|next| wake < next) => {
                    assert!(wake > now || now == Time(0), "woken at once, forever");
                    self.simulation.at(wake.max(now));
                    self.tell(Simulation::wake);
                }
                (next, _) => {
                    let next = next.expect("there is no time to wake at");
                    self.simulation.at(next);
                    if let Some((id, action)) = self.agenda.take(next) {
                        self.act(id, action);
                    }
                }
            }
        }
        match self.silent_after {
            None => self.check_nothing_is_left(),
            Some(_) => self.check_nobody_waits_for_nothing(),
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent_after == Some(0)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.simulation.now().0
    }

    fn later(&mut self, after_ns: u64, id: u64, action: Action) {
        let at = self.simulation.now() + Duration(after_ns);
        self.agenda.plan(at, (id, action));
    }

    fn open(&mut self) {
        self.to_come -= 1;
        self.came += 1;
        let (id, share) = (self.came, self.share);
        let random = &mut self.random;
        let limit = random.one_in(6).then(|| 1 + random.below(share));
        let settings = JobSettings {
            memory_max: limit.and_then(NonZeroU64::new),
            ..settings(random)
        };
        let user = user_of(id);
        let opening = Opening { user, settings };
        let job = Job::draw(random, id, share, self.steps_max, self.long);
        self.jobs.insert(id, job);
        self.tell(|simulation| simulation.open(id, opening));
        self.later(0, id, Action::Act);
    }

    fn act(&mut self, id: u64, action: Action) {
        if !self.jobs.contains_key(&id) {
            return;
        }
        match action {
            Action::Act => self.job_acts(id),
            Action::Resume if self.is_silent() => {}
            Action::Resume => self.tell(|simulation| simulation.resume(id)),
            Action::Ran => {
                let did_not_run = self.random.one_in(20);
                self.tell(|simulation| match did_not_run {
                    true => simulation.did_not_run(id),
                    false => simulation.ran(id),
                });
                self.close_if_dead(id);
            }
            Action::Step(calling) => self.step(id, calling),
            Action::PagedOut(asked_bytes) => self.paged_out(id, asked_bytes),
            Action::PagedIn => self.tell(|simulation| simulation.paged_in(id)),
        }
    }

    fn job_acts(&mut self, id: u64) {
        if self.job(id).dying || self.is_silent() {
            return;
        }
        let dies = self.random.one_in(self.lives);
        let job = self.job_mut(id);
        if dies || (job.steps_left == 0 && job.asked.is_none()) {
            job.dying = true;
            if job.asked.take().is_some() {
                self.tell(|simulation| simulation.withdraw(id));
            }
            return self.close_if_dead(id);
        }
        self.users_act(id);
        self.drop_some(id);
        if self.job(id).asked.is_none() {
            let job = self.job_mut(id);
            job.steps_left = job.steps_left.saturating_sub(1);
            self.ask(id);
        }
        let idle_ns = self.jobs[&id].idle_ns(&mut self.random);
        self.later(idle_ns, id, Action::Act);
    }

    /// What is asked of the session, known of it and done with it from outside.
    fn users_act(&mut self, id: u64) {
        let (lives, share) = (self.lives, self.share);
        if self.random.one_in(40) {
            let random = &mut self.random;
            let memory_max = random.one_in(2).then(|| 1 + random.below(share));
            self.tell(|simulation| simulation.limit(id, memory_max));
        }
        if self.random.one_in(3 * lives) {
            let policy = draw_policy(&mut self.random);
            self.gives_shares &= gives_shares(policy);
            self.tell(|simulation| simulation.change_policy(policy));
        }
        if self.random.one_in(lives / 4) {
            let settings = settings(&mut self.random);
            self.tell(|simulation| {
                let memory_max = simulation.session(id).settings().memory_max;
                let settings = JobSettings {
                    memory_max,
                    ..settings
                };
                simulation.change_settings(id, settings)
            });
        }
        if self.random.one_in(lives / 2) {
            let total = Duration(self.random.below(20_000 * MS));
            self.tell(|simulation| simulation.estimate_from_history(id, total));
        }
        if self.random.one_in(20) || self.job(id).compiling {
            let job = self.job_mut(id);
            job.compiling = !job.compiling;
            let compiling = job.compiling;
            self.tell(|simulation| simulation.compiling(id, compiling));
        }
        if !self.simulation.session(id).paused && self.random.one_in(lives / 2) {
            self.tell(|simulation| simulation.pause(id));
            let after_ns = self.random.below(3_000 * MS);
            self.later(after_ns, id, Action::Resume);
        }
    }

    /// The iteration begins a callback, comes back from it, or ends.
    fn step(&mut self, id: u64, calling: u64) {
        let random = &mut self.random;
        let did_not_run = random.one_in(40);
        let never_returns = random.one_in(2);
        let step_ns = 1 + random.below(STEP_MAX_NS / CALLBACKS_MAX);
        let callback_ns = 1 + random.below(CALLBACK_MAX_NS);
        let silent = self.is_silent();
        let mut running = self.simulation.session(id).running.iter();
        let others = running.any(|it| it.calling.is_none());
        let mut running = self.simulation.session(id).running.iter();
        let is_it = |it: &&salus_sim::Iteration| it.calling.is_some_and(|c| c.0 == calling);
        let in_callback = running.find(is_it).expect("it runs").in_callback;
        let job = self.job_mut(id);
        let calls = job.calling.get_mut(&calling).expect("it runs");
        if in_callback {
            if silent && never_returns {
                return;
            }
            let waits = job.asked.is_some() || others;
            if job.calls == CallsBack::Nested && waits && !silent && !job.dying {
                return self.later(callback_ns, id, Action::Step(calling));
            }
            calls.left -= 1;
            self.tell(|simulation| simulation.callback_ended(id, calling));
            return self.later(step_ns, id, Action::Step(calling));
        }
        if calls.left > 0 && !did_not_run && !job.dying {
            self.callbacks += 1;
            self.tell(|simulation| simulation.callback_began(id, calling));
            return self.later(callback_ns, id, Action::Step(calling));
        }
        let own_bytes = std::mem::take(&mut calls.own_bytes);
        self.tell(|simulation| simulation.release(id, own_bytes, 0));
        self.job_mut(id).calling.remove(&calling);
        self.tell(|simulation| match did_not_run {
            true => simulation.did_not_return(id, calling),
            false => simulation.returned(id, calling),
        });
        self.close_if_dead(id);
    }

    fn paged_out(&mut self, id: u64, asked_bytes: u64) {
        let running = &self.simulation.session(id).running;
        assert!(running.is_empty(), "{id} moves while it runs");
        let host_free = self.simulation.ledger().host_free_bytes();
        let job = self.job_mut(id);
        let bytes = job.page_out(asked_bytes, host_free);
        let arguments = job.asked.as_ref().map_or(&[][..], |it| &it.arguments[..]);
        let paged_bytes = job.bytes_of(arguments, true);
        if let Some(asked) = &mut job.asked {
            asked.demand.paged_bytes = paged_bytes;
        }
        self.moved_bytes += bytes;
        self.tell(|simulation| simulation.paged_out(id, bytes, paged_bytes));
        self.close_if_dead(id);
    }

    fn close_if_dead(&mut self, id: u64) {
        let is_idle = self.simulation.session(id).running.is_empty();
        let job = self.job_mut(id);
        if job.dying && is_idle {
            let host = std::mem::take(&mut job.host_bytes);
            self.tell(|simulation| simulation.release_host(id, host));
            let job = self.job_mut(id);
            let (resident, paged) = (job.held(false), job.held(true));
            job.arrays.clear();
            self.tell(|simulation| simulation.release(id, resident, paged));
            self.jobs.remove(&id);
            self.tell(|simulation| simulation.close(id));
        }
    }

    pub(crate) fn job(&self, id: u64) -> &Job {
        &self.jobs[&id]
    }

    pub(crate) fn job_mut(&mut self, id: u64) -> &mut Job {
        self.jobs.get_mut(&id).expect("it is open")
    }

    /// Tells the engine something, does what it decides, and checks that all is well.
    pub(crate) fn tell(&mut self, tell: impl FnOnce(&mut Simulation) -> Vec<Decided>) {
        for decided in tell(&mut self.simulation) {
            let text = format!("{} {decided:?}", self.now_ns());
            let sum = text.bytes().map(u64::from).sum();
            self.digest = self.digest.rotate_left(7).wrapping_add(sum);
            match decided {
                Decided::Start(id) => self.started(id),
                Decided::PageOut(id, bytes) => {
                    let after_ns = self.random.below(MOVE_MAX_NS);
                    self.later(after_ns, id, Action::PagedOut(bytes));
                }
                Decided::PageIn(id) => {
                    self.job_mut(id).page_in();
                    self.pages_in += 1;
                    let after_ns = self.random.below(MOVE_MAX_NS);
                    self.later(after_ns, id, Action::PagedIn);
                }
                Decided::Refuse(id, why) => {
                    self.job_mut(id).asked = None;
                    self.check_refusal(id, why);
                }
            }
        }
        self.check_arrays();
        self.check_bound();
    }

    fn started(&mut self, id: u64) {
        self.starts += 1;
        let now_ns = self.now_ns();
        let random = &mut self.random;
        // A bound holds only where everything can be moved.
        let pinned = random.one_in(30) && (!self.fits || self.silent_after.is_some());
        // Mostly as before, and sometimes not at all.
        let step_ns = self.jobs[&id].step_ns;
        let took_ns = match random.one_in(5) {
            true => 1 + random.below(STEP_MAX_NS),
            false => step_ns / 2 + random.below(step_ns / 2 + 1),
        };
        let (left, first_ns) = (
            random.below(CALLBACKS_MAX + 1),
            1 + random.below(STEP_MAX_NS / CALLBACKS_MAX),
        );
        let job = self.jobs.get_mut(&id).expect("it is open");
        let asked = job.asked.take().expect("only the ready start");
        self.longest_wait_ns = self.longest_wait_ns.max(now_ns - asked.since_ns);
        for &at in &asked.arguments {
            job.arrays[at].paged = false;
        }
        job.host_bytes += asked.demand.new_host_bytes;
        let own_bytes = asked.own_bytes;
        if asked.demand.new_bytes > own_bytes {
            job.arrays.push(Array {
                bytes: asked.demand.new_bytes - own_bytes,
                paged: false,
                pinned,
            });
        }
        if let Some(calling) = asked.demand.calling() {
            job.calling.insert(calling.0, Calls { own_bytes, left });
            self.later(first_ns, id, Action::Step(calling.0));
        } else if asked.demand.program().is_some() {
            let lane = self.simulation.lane(id).expect("it is open");
            let ends_at = self.simulation.ends_at(lane, Duration(took_ns));
            self.agenda.plan(ends_at, (id, Action::Ran));
        }
    }
}

fn draw_policy(random: &mut Rng) -> Policy {
    Policy::ALL[random.below(Policy::ALL.len() as u64) as usize]
}

fn gives_shares(policy: Policy) -> bool {
    matches!(policy, Policy::Fair | Policy::Pack)
}

/// A few users have all the jobs.
fn user_of(id: u64) -> u32 {
    (id % 3) as u32
}
