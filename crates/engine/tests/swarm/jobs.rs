//! What a job of the swarm is like.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use fastrand::Rng;
use salus_engine::{Demand, JobSettings, NonZeroDuration, Priority, Program, Weight, Work};

pub(crate) const MS: u64 = 1_000_000;
/// The longest iteration and the longest move of a job.
pub(crate) const STEP_MAX_NS: u64 = 300 * MS;
pub(crate) const MOVE_MAX_NS: u64 = 50 * MS;
/// The longest callback, and how many an iteration makes.
pub(crate) const CALLBACK_MAX_NS: u64 = 100 * MS;
pub(crate) const CALLBACKS_MAX: u64 = 4;

pub(crate) trait Chance {
    /// A number from 0 on that is below this one.
    fn below(&mut self, n: u64) -> u64;

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl Chance for Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.u64(..n.max(1))
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Array {
    pub(crate) bytes: u64,
    pub(crate) paged: bool,
    /// The device cannot move it.
    pub(crate) pinned: bool,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) arrays: Vec<Array>,
    /// Of its arrays in host memory that are no pages.
    pub(crate) host_bytes: u64,
    /// What was asked for and not answered.
    pub(crate) asked: Option<Asked>,
    /// Iterations that call back and have not ended, by their number.
    pub(crate) calling: BTreeMap<u64, Calls>,
    pub(crate) calls: CallsBack,
    pub(crate) steps_left: u64,
    pub(crate) scratch_bytes: u64,
    pub(crate) program: Program,
    /// What its iterations take, about.
    pub(crate) step_ns: u64,
    pub(crate) grows: bool,
    /// It asks again at once.
    pub(crate) busy: bool,
    pub(crate) compiling: bool,
    /// It asks for nothing more, and ends when nothing of it runs.
    pub(crate) dying: bool,
}

/// Whether a job's iterations call back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallsBack {
    Never,
    Sometimes,
    /// And its callbacks return only when what the job asked for was answered.
    Nested,
}

/// An iteration that calls back.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Scratch of its own, which it gives back when it ends.
    pub(crate) own_bytes: u64,
    pub(crate) left: u64,
}

#[derive(Debug)]
pub(crate) struct Asked {
    /// Which of the job's arrays.
    pub(crate) arguments: Vec<usize>,
    pub(crate) demand: Demand,
    /// Of its new bytes, scratch of an iteration that calls back.
    pub(crate) own_bytes: u64,
    pub(crate) since_ns: u64,
}

impl Job {
    /// A job that holds about this much.
    pub(crate) fn draw(random: &mut Rng, id: u64, share: u64, steps_max: u64, busy: bool) -> Self {
        Self {
            arrays: Vec::new(),
            host_bytes: 0,
            asked: None,
            calling: BTreeMap::new(),
            calls: match random.below(8) {
                0 => CallsBack::Nested,
                1 | 2 => CallsBack::Sometimes,
                _ => CallsBack::Never,
            },
            steps_left: 1 + random.below(steps_max),
            scratch_bytes: random.below(share),
            program: match random.one_in(2) {
                true => Program(random.below(3)),
                false => Program(100 + id),
            },
            step_ns: 1 + random.below(STEP_MAX_NS),
            grows: random.one_in(3),
            busy: busy || random.one_in(2),
            compiling: false,
            dying: false,
        }
    }

    /// What it holds on the device or on the host.
    pub(crate) fn held(&self, paged: bool) -> u64 {
        let arrays = self.arrays.iter().filter(|array| array.paged == paged);
        let own = self.calling.values().map(|calls| calls.own_bytes);
        let own: u64 = if paged { 0 } else { own.sum() };
        arrays.map(|array| array.bytes).sum::<u64>() + own
    }

    /// Bytes of these arrays, or of those of them that are paged out.
    pub(crate) fn bytes_of(&self, arguments: &[usize], paged_only: bool) -> u64 {
        let arrays = arguments.iter().map(|at| &self.arrays[*at]);
        let counted = arrays.filter(|array| array.paged || !paged_only);
        counted.map(|array| array.bytes).sum()
    }

    /// Moves arrays to the host until enough is moved, those first that it does not wait for.
    pub(crate) fn page_out(&mut self, enough: u64, host_free: u64) -> u64 {
        let wanted = self.asked.as_ref().map_or(&[][..], |it| &it.arguments[..]);
        let others = (0..self.arrays.len()).filter(|at| !wanted.contains(at));
        let order: Vec<usize> = others.chain(wanted.iter().copied()).collect();
        let mut bytes = 0;
        for at in order {
            let array = &mut self.arrays[at];
            let fits = bytes + array.bytes <= host_free;
            if bytes < enough && !array.paged && !array.pinned && fits {
                array.paged = true;
                bytes += array.bytes;
            }
        }
        bytes
    }

    /// What it waits for with is on the device from now on.
    pub(crate) fn page_in(&mut self) {
        let asked = self.asked.as_mut().expect("only those that ask");
        asked.demand.paged_bytes = 0;
        for &at in &asked.arguments {
            self.arrays[at].paged = false;
        }
    }

    /// How long it does nothing before it acts again.
    pub(crate) fn idle_ns(&self, random: &mut Rng) -> u64 {
        match random.below(10) {
            _ if self.busy => random.below(20 * MS),
            0 => random.below(2_000 * MS),
            1..=3 => random.below(50 * MS),
            _ => random.below(MS),
        }
    }
}

pub(crate) fn settings(random: &mut Rng) -> JobSettings {
    let weight = 1 + random.below(4) as u32;
    JobSettings {
        weight: Weight(NonZeroU32::new(weight).expect("at least one")),
        priority: match random.below(4) {
            0 => Priority::High,
            1 => Priority::Low,
            _ => Priority::Normal,
        },
        deadline: match random.one_in(3) {
            true => NonZeroDuration::from_nanos(random.below(200 * MS)),
            false => None,
        },
        work: match random.below(4) {
            0 => NonZeroU64::new(random.below(80)).map(Work::Iterations),
            1 => NonZeroDuration::from_nanos(random.below(20_000 * MS)).map(Work::DeviceTime),
            _ => None,
        },
        memory_max: None,
    }
}
