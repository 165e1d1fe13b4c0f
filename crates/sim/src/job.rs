//! A simulated job as it runs: its own host, what it asked for, and when its arrays move.
//!
//! Like a real one it uploads its arrays, then launches iterations, at most `ahead` of which have
//! not ended; its session asks the engine for one thing at a time, in order, and does nothing else
//! while its arrays move.
//!
//! Not here: the clock (`run.rs`), the engine and what the session holds (`simulation.rs`).

use std::collections::VecDeque;

use salus_engine::{Demand, Duration, JobSettings, Kind, Lane, Program, Time};

use crate::output::report::Fate;
use crate::output::timeline::Timeline;
use crate::random::Random;
use crate::scenario::{Job, Requests};
use crate::simulation::{Needs, launch, upload};
use crate::trace::Step;

#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) job: Job,
    program: Program,
    /// While it is open.
    pub(crate) session: Option<u64>,
    pub(crate) settings: JobSettings,
    pub(crate) fate: Fate,
    pub(crate) closed_at: Option<Time>,
    /// When it was first given memory, and when its first iteration began on the device.
    pub(crate) granted_at: Option<Time>,
    pub(crate) began_at: Option<Time>,
    /// It asks for nothing more, and closes when nothing of it runs or moves.
    pub(crate) leaves: bool,
    pub(crate) paused: bool,

    /// Iterations that the job launched, that its session asked for, that were handed to the device,
    /// and that ended.
    launched: u64,
    asked: u64,
    handed_over: u64,
    pub(crate) ended: u64,
    /// Its host prepares the next launch.
    prepares: bool,
    /// When the next request comes.
    next_request: Time,
    /// Of launches that have not ended: when they were wanted.
    wanted_at: VecDeque<Time>,

    /// What the engine has not answered.
    pub(crate) waits_for: Option<Demand>,
    asked_at: Time,
    pub(crate) in_flight: u64,
    uploaded: bool,
    pub(crate) moves: Option<Move>,
    /// Asked to page out while something else moved.
    pub(crate) to_page_out: Option<u64>,

    each: Random,
    wait: Random,
    requests: Random,

    pub(crate) timeline: Timeline,
    pub(crate) worst_latency: Duration,
    pub(crate) late: u64,
}

/// What its session is busy with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Move {
    /// The arrays come to the device for the first time.
    Upload,
    /// They are paged in for an iteration that was started in this lane.
    In(Lane),
    Out {
        asked_bytes: u64,
    },
}

impl Actor {
    pub(crate) fn new(job: Job) -> Self {
        let requests = match job.requests {
            Requests::Always => 0,
            Requests::Every(span) => span.seed,
            Requests::Poisson { seed, .. } => seed,
        };
        Self {
            program: Program(job.program),
            session: None,
            settings: job.settings,
            fate: Fate::Unfinished,
            closed_at: None,
            granted_at: None,
            began_at: None,
            leaves: false,
            paused: false,
            launched: 0,
            asked: 0,
            handed_over: 0,
            ended: 0,
            prepares: false,
            next_request: job.from,
            wanted_at: VecDeque::new(),
            waits_for: None,
            asked_at: Time(0),
            in_flight: 0,
            uploaded: job.memory_bytes == 0,
            moves: None,
            to_page_out: None,
            each: Random::new(job.each.seed),
            wait: Random::new(job.wait.seed),
            requests: Random::new(requests),
            job,
            timeline: Timeline::new(),
            worst_latency: Duration(0),
            late: 0,
        }
    }

    /// When the job's host will launch its next iteration, if it prepares one from now on.
    pub(crate) fn prepare(&mut self, now: Time) -> Option<Time> {
        let may = self.uploaded && !self.leaves && !self.prepares;
        if !may || self.launched == self.job.iterations {
            return None;
        }
        let step = self.step(self.launched);
        let behind = step.and_then(|step| step.behind);
        let in_pipe = self.launched - self.ended;
        if in_pipe >= self.job.ahead || behind.is_some_and(|most| in_pipe > most) {
            return None;
        }
        self.prepares = true;
        let wanted = match self.job.requests {
            Requests::Always => now,
            _ => self.next_request.max(now),
        };
        let wait = match step {
            Some(step) => step.host,
            None => self.wait.within(self.job.wait),
        };
        Some(wanted + wait)
    }

    /// One of its iterations, if it has recorded ones.
    fn step(&self, index: u64) -> Option<Step> {
        let steps = self.job.steps.as_ref()?;
        steps.get(index as usize).copied()
    }

    pub(crate) fn launch(&mut self, now: Time) {
        self.prepares = false;
        self.launched += 1;
        let wanted_at = self.next_request;
        let pause = match self.job.requests {
            Requests::Always => {
                self.wanted_at.push_back(now);
                return;
            }
            Requests::Every(span) => self.requests.within(span),
            Requests::Poisson { mean, .. } => self.requests.exponential(mean),
        };
        self.wanted_at.push_back(wanted_at);
        self.next_request = wanted_at + pause;
    }

    /// What its session asks the engine for now, if anything. `paged_bytes` of its arrays are paged
    /// out.
    pub(crate) fn ask(&mut self, now: Time, paged_bytes: u64) -> Option<Demand> {
        let may = !self.leaves && self.waits_for.is_none() && self.moves.is_none();
        if !may || self.session.is_none() {
            return None;
        }
        let demand = if !self.uploaded {
            upload(self.job.memory_bytes)
        } else if self.asked < self.launched {
            let step = self.step(self.asked);
            let program = step.and_then(|step| step.program).map(Program);
            self.asked += 1;
            // Its outputs take the place of its arguments.
            let needs = Needs {
                arguments: self.job.memory_bytes,
                paged: paged_bytes,
                new: 0,
                host: 0,
                scratch: self.job.scratch_bytes,
            };
            launch(program.unwrap_or(self.program), needs)
        } else {
            return None;
        };
        self.waits_for = Some(demand);
        self.asked_at = now;
        Some(demand)
    }

    /// The engine has started what it asked for. Returns what must move first, and how many bytes.
    pub(crate) fn start(&mut self, now: Time, lane: Lane) -> Option<(Move, u64)> {
        self.granted_at.get_or_insert(now);
        let demand = self.waits_for.take().expect("only who asked is started");
        if demand.kind == Kind::Array {
            return Some((Move::Upload, self.job.memory_bytes));
        }
        self.in_flight += 1;
        let paged_bytes = demand.paged_bytes;
        (paged_bytes > 0).then_some((Move::In(lane), paged_bytes))
    }

    pub(crate) fn is_uploaded(&mut self) {
        self.uploaded = true;
    }

    /// What its next iteration takes.
    pub(crate) fn draw(&mut self) -> Duration {
        self.handed_over += 1;
        match self.step(self.handed_over - 1) {
            Some(step) => step.device,
            None => self.each.within(self.job.each),
        }
    }

    /// Its arrays were paged out. Returns how many bytes of them the waiting iteration needs.
    pub(crate) fn paged_out(&mut self, paged_bytes: u64) -> u64 {
        match &mut self.waits_for {
            Some(demand) if demand.kind != Kind::Array => {
                demand.paged_bytes = paged_bytes;
                paged_bytes
            }
            _ => 0,
        }
    }

    /// When what was started last was asked for.
    pub(crate) fn asked_at(&self) -> Time {
        self.asked_at
    }

    /// Since when it waits for the engine's answer.
    pub(crate) fn waits_since(&self) -> Option<Time> {
        self.waits_for.map(|_| self.asked_at)
    }

    /// An iteration that began at this time has ended.
    pub(crate) fn ran(&mut self, began: Time, now: Time) {
        self.began_at.get_or_insert(began);
        self.in_flight -= 1;
        self.ended += 1;
        let wanted_at = self.wanted_at.pop_front();
        let latency = now - wanted_at.expect("what ran was launched");
        self.worst_latency = self.worst_latency.max(latency);
        let deadline = self.settings.deadline.map(Duration::from);
        let is_late = deadline.is_some_and(|deadline| latency > deadline);
        self.late += u64::from(is_late);
    }

    /// When it will leave, if it has just run its last iteration.
    pub(crate) fn leaves_at(&self, now: Time) -> Option<Time> {
        let is_last = self.ended == self.job.iterations && self.job.dies_after.is_none();
        (is_last && !self.leaves).then(|| now + self.job.linger)
    }

    /// It has done what it came for.
    pub(crate) fn finish(&mut self, now: Time) {
        self.leaves = true;
        self.fate = Fate::Finished(now);
    }

    /// Whether it fails now.
    pub(crate) fn dies(&self) -> bool {
        self.job.dies_after == Some(self.ended) && !self.leaves
    }

    /// Whether it has left for good.
    pub(crate) fn is_gone(&self) -> bool {
        self.leaves && self.session.is_none()
    }

    pub(crate) fn has_finished(&self) -> bool {
        matches!(self.fate, Fate::Finished(_))
    }

    /// Whether its session can be closed.
    pub(crate) fn is_done(&self) -> bool {
        let idle = self.in_flight == 0 && self.moves.is_none() && self.to_page_out.is_none();
        self.leaves && idle && self.session.is_some()
    }
}
