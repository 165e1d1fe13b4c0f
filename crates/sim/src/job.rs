//! A made-up job as it runs: its own host, what it asked for, and where its arrays are.
//!
//! Like a real one it uploads its arrays, then launches iterations, at most `ahead` of which have
//! not ended; its session asks the engine for one thing at a time, in order, and does nothing else
//! while its arrays move.
//!
//! Not here: the clock and the engine (`world.rs`).

use std::collections::VecDeque;

use salus_engine::{Demand, Duration, Kind, Lane, Program, SessionId, Time, Wishes};

use crate::random::Random;
use crate::report::Fate;
use crate::scenario::{Job, Requests};
use crate::timeline::Timeline;

#[derive(Debug)]
pub(crate) struct Actor<'a> {
    pub(crate) job: &'a Job,
    program: Program,
    /// While it is open.
    pub(crate) session: Option<SessionId>,
    pub(crate) wishes: Wishes,
    pub(crate) fate: Fate,
    pub(crate) closed_at: Option<Time>,
    /// It asks for nothing more, and closes when nothing of it runs or moves.
    pub(crate) leaves: bool,
    pub(crate) paused: bool,

    /// Iterations that the job launched, that its session asked for, and that ended.
    launched: u64,
    asked: u64,
    pub(crate) ended: u64,
    /// Its host prepares the next launch.
    prepares: bool,
    /// When the next request comes.
    next_request: Time,
    /// Of launches that have not ended: when they were wanted.
    wanted_at: VecDeque<Time>,

    /// What the engine has not answered.
    pub(crate) waits_for: Option<Kind>,
    pub(crate) in_flight: u64,
    uploaded: bool,
    pub(crate) resident_bytes: u64,
    pub(crate) paged_bytes: u64,
    pub(crate) moves: Option<Move>,
    /// Asked to leave while something else moved.
    pub(crate) to_leave: Option<u64>,

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
    /// They come back for an iteration that was started in this lane.
    In(Lane),
    Out {
        asked_bytes: u64,
    },
}

impl<'a> Actor<'a> {
    pub(crate) fn new(job: &'a Job, index: usize) -> Self {
        let requests = match job.requests {
            Requests::Always => 0,
            Requests::Every(span) => span.seed,
            Requests::Poisson { seed, .. } => seed,
        };
        Self {
            job,
            // No two jobs run the same program.
            program: Program(index as u64),
            session: None,
            wishes: job.wishes,
            fate: Fate::Unfinished,
            closed_at: None,
            leaves: false,
            paused: false,
            launched: 0,
            asked: 0,
            ended: 0,
            prepares: false,
            next_request: job.from,
            wanted_at: VecDeque::new(),
            waits_for: None,
            in_flight: 0,
            uploaded: job.memory_bytes == 0,
            resident_bytes: 0,
            paged_bytes: 0,
            moves: None,
            to_leave: None,
            each: Random::new(job.each.seed),
            wait: Random::new(job.wait.seed),
            requests: Random::new(requests),
            timeline: Timeline::new(),
            worst_latency: Duration(0),
            late: 0,
        }
    }

    /// When the job's host will launch its next iteration, if it prepares one from now on.
    pub(crate) fn prepare(&mut self, now: Time) -> Option<Time> {
        let may = self.uploaded && !self.leaves && !self.prepares;
        let in_pipe = self.launched - self.ended;
        if !may || self.launched == self.job.iterations || in_pipe >= self.job.ahead {
            return None;
        }
        self.prepares = true;
        let wanted = match self.job.requests {
            Requests::Always => now,
            _ => self.next_request.max(now),
        };
        Some(wanted + self.wait.within(self.job.wait))
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

    /// What its session asks the engine for now, if anything.
    pub(crate) fn ask(&mut self) -> Option<Demand> {
        let may = !self.leaves && self.waits_for.is_none() && self.moves.is_none();
        if !may || self.session.is_none() {
            return None;
        }
        let demand = if !self.uploaded {
            Demand {
                kind: Kind::Array,
                new_bytes: self.job.memory_bytes,
                argument_bytes: 0,
                absent_bytes: 0,
            }
        } else if self.asked < self.launched {
            self.asked += 1;
            Demand {
                kind: Kind::Launch {
                    scratch_bytes: self.job.scratch_bytes,
                    program: self.program,
                },
                // Its outputs take the place of its arguments.
                new_bytes: 0,
                argument_bytes: self.job.memory_bytes,
                absent_bytes: self.paged_bytes,
            }
        } else {
            return None;
        };
        self.waits_for = Some(demand.kind);
        Some(demand)
    }

    /// The engine has said yes. Returns what must move first, and how many bytes.
    pub(crate) fn start(&mut self, lane: Lane) -> Option<(Move, u64)> {
        let kind = self.waits_for.take();
        match kind.expect("only who asked is started") {
            Kind::Array => {
                self.resident_bytes = self.job.memory_bytes;
                Some((Move::Upload, self.resident_bytes))
            }
            Kind::Launch { .. } | Kind::CallsBack { .. } => {
                self.in_flight += 1;
                let absent = std::mem::take(&mut self.paged_bytes);
                self.resident_bytes += absent;
                (absent > 0).then_some((Move::In(lane), absent))
            }
        }
    }

    pub(crate) fn is_uploaded(&mut self) {
        self.uploaded = true;
    }

    /// What its next iteration takes.
    pub(crate) fn draw(&mut self) -> Duration {
        self.each.within(self.job.each)
    }

    /// So many of the bytes that the waiting iteration needs are not on the device.
    pub(crate) fn absent_bytes(&self) -> u64 {
        match self.waits_for {
            Some(Kind::Array) | None => 0,
            Some(_) => self.paged_bytes,
        }
    }

    pub(crate) fn ran(&mut self, now: Time) {
        self.in_flight -= 1;
        self.ended += 1;
        let wanted_at = self.wanted_at.pop_front();
        let latency = now - wanted_at.expect("what ran was launched");
        self.worst_latency = self.worst_latency.max(latency);
        let is_late = self.wishes.latency.is_some_and(|target| latency > target);
        self.late += u64::from(is_late);
        if self.ended == self.job.iterations {
            self.leaves = true;
            self.fate = Fate::Finished(now);
        }
    }

    /// Whether its session can be closed.
    pub(crate) fn is_done(&self) -> bool {
        let idle = self.in_flight == 0 && self.moves.is_none() && self.to_leave.is_none();
        self.leaves && idle && self.session.is_some()
    }
}
