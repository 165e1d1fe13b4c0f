//! The simulated device: lanes that run their iterations one at a time, side by side with others.
//!
//! An iteration's work is counted down at full speed while its lane is alone, and slower by a factor
//! while another lane works, too. Whole numbers: the work is counted in units of which a nanosecond
//! alone does `factor` and a nanosecond beside others [`Factor::ONE`].

use std::collections::{BTreeMap, VecDeque};

use salus_engine::{Duration, Lane, Time};

use crate::history::Ran;
use crate::scenario::Factor;

#[derive(Debug)]
pub(crate) struct Device {
    lanes: Vec<Queue>,
    /// By how much each job is slower beside any other.
    factors: Vec<Factor>,
    /// By how much a job is slower beside a certain other, where that differs.
    pairs: BTreeMap<(usize, usize), Factor>,
    /// Until when the work was counted down.
    at: Time,
    /// How long anything ran.
    pub(crate) busy: Duration,
    /// Iterations that followed one of another job in their lane.
    pub(crate) switches: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// The first runs.
    iterations: VecDeque<Iteration>,
    last_job: Option<usize>,
}

#[derive(Debug)]
struct Iteration {
    job: usize,
    left: u128,
    factor: Factor,
    asked_at: Time,
    /// When it became the first of its lane.
    began: Time,
}

impl Device {
    pub(crate) fn new(lanes: u32, factors: Vec<Factor>) -> Self {
        Self {
            lanes: (0..lanes).map(|_| Queue::default()).collect(),
            factors,
            pairs: BTreeMap::new(),
            at: Time(0),
            busy: Duration(0),
            switches: 0,
        }
    }

    /// One more job may run, slower by this beside any other.
    pub(crate) fn add_job(&mut self, factor: Factor) {
        self.factors.push(factor);
    }

    /// From now on every job is slower by this beside any other.
    pub(crate) fn slow_down_all(&mut self, factor: Factor) {
        self.factors.fill(factor);
        self.pairs.clear();
        self.pair_up();
    }

    /// From now on these two are slower by this beside each other.
    pub(crate) fn slow_down(&mut self, one: usize, other: usize, factor: Factor) {
        self.pairs.insert((one, other), factor);
        self.pairs.insert((other, one), factor);
        self.pair_up();
    }

    /// Whose iteration runs in each lane.
    pub(crate) fn running(&self) -> impl Iterator<Item = (Lane, usize)> {
        let lanes = (0..).map(Lane).zip(&self.lanes);
        lanes.filter_map(|(lane, queue)| Some((lane, queue.iterations.front()?.job)))
    }

    /// The lane runs an iteration after those that it has.
    pub(crate) fn hand_over(&mut self, lane: Lane, job: usize, each: Duration, asked_at: Time) {
        let factor = self.factors[job];
        let iteration = Iteration {
            job,
            left: u128::from(each.0) * u128::from(factor.0),
            factor,
            asked_at,
            began: self.at,
        };
        self.lanes[lane.0 as usize].iterations.push_back(iteration);
        self.pair_up();
    }

    /// Lets each first iteration have the factor of what runs beside it now.
    fn pair_up(&mut self) {
        let heads: Vec<(Lane, usize)> = self.running().collect();
        for &(lane, job) in &heads {
            let others = heads.iter().filter(|(other, _)| *other != lane);
            let beside = |other: usize| self.pairs.get(&(job, other)).copied();
            let factors = others.map(|(_, other)| beside(*other).unwrap_or(self.factors[job]));
            let factor = factors.max_by_key(|factor| factor.0);
            let head = self.lanes[lane.0 as usize].iterations.front_mut();
            if let (Some(factor), Some(head)) = (factor, head)
                && factor.0 != head.factor.0
            {
                let left = head.left * u128::from(factor.0);
                head.left = left.div_ceil(u128::from(head.factor.0));
                head.factor = factor;
            }
        }
    }

    /// When the next iteration ends, if nothing changes before.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.ends().map(|(at, _)| at).min()
    }

    fn ends(&self) -> impl Iterator<Item = (Time, usize)> {
        let beside = self.works() > 1;
        let heads = self.lanes.iter().enumerate();
        heads.filter_map(move |(index, queue)| {
            let head = queue.iterations.front()?;
            let after = head.left.div_ceil(head.speed(beside));
            Some((self.at + Duration(after as u64), index))
        })
    }

    /// How many lanes have something to do.
    fn works(&self) -> usize {
        let busy = self
            .lanes
            .iter()
            .filter(|queue| !queue.iterations.is_empty());
        busy.count()
    }

    pub(crate) fn advance(&mut self, now: Time) {
        let passed = now - self.at;
        let works = self.works();
        for queue in &mut self.lanes {
            if let Some(head) = queue.iterations.front_mut() {
                let done = u128::from(passed.0) * head.speed(works > 1);
                head.left = head.left.saturating_sub(done);
            }
        }
        if works > 0 {
            self.busy = self.busy + passed;
        }
        self.at = now;
    }

    /// An iteration that has ended by now, the lowest lane's first.
    pub(crate) fn end_one(&mut self) -> Option<Ran> {
        let (_, lane) = self.ends().find(|(at, _)| *at <= self.at)?;
        let queue = &mut self.lanes[lane];
        let ended = queue.iterations.pop_front()?;
        let before = queue.last_job.replace(ended.job);
        self.switches += u64::from(before.is_some_and(|before| before != ended.job));
        if let Some(next) = queue.iterations.front_mut() {
            next.began = self.at;
        }
        self.pair_up();
        Some(Ran {
            job: ended.job,
            lane: Lane(lane as u32),
            asked_at: ended.asked_at,
            began: ended.began,
            ended: self.at,
        })
    }
}

impl Iteration {
    /// Units of work in a nanosecond.
    fn speed(&self, beside: bool) -> u128 {
        u128::from(match beside {
            true => Factor::ONE.0,
            false => self.factor.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_by_side_is_slower_only_while_it_is() {
        let mut device = Device::new(2, vec![Factor(2000), Factor(3000)]);
        device.hand_over(Lane(0), 0, Duration(100), Time(0));
        device.advance(Time(50));
        device.hand_over(Lane(1), 1, Duration(10), Time(0));
        // Half of the first is left and goes at half speed; the second takes three times as long.
        assert_eq!(device.next_end(), Some(Time(80)));
        device.advance(Time(80));
        assert_eq!(device.end_one().map(|ran| ran.job), Some(1));
        assert!(device.end_one().is_none());
        assert_eq!(device.next_end(), Some(Time(115)));
        device.advance(Time(115));
        assert_eq!(device.end_one().map(|ran| ran.job), Some(0));
        assert_eq!(device.busy, Duration(115));
    }

    #[test]
    fn a_lane_runs_one_after_the_other() {
        let mut device = Device::new(1, vec![Factor::ONE; 2]);
        for job in [0, 0, 1] {
            device.hand_over(Lane(0), job, Duration(10), Time(0));
        }
        for (at, job) in [(10, 0), (20, 0), (30, 1)] {
            assert_eq!(device.next_end(), Some(Time(at)));
            device.advance(Time(at));
            let ran = device.end_one().expect("it ends now");
            assert_eq!((ran.job, ran.began), (job, Time(at - 10)));
        }
        assert_eq!((device.switches, device.busy), (1, Duration(30)));
    }

    #[test]
    fn a_pair_has_a_factor_of_its_own() {
        let mut device = Device::new(2, vec![Factor::ONE; 3]);
        device.slow_down(0, 2, Factor(4000));
        device.hand_over(Lane(0), 0, Duration(100), Time(0));
        device.hand_over(Lane(1), 1, Duration(50), Time(0));
        device.hand_over(Lane(1), 2, Duration(10), Time(0));
        device.advance(Time(50));
        assert_eq!(device.end_one().map(|ran| ran.job), Some(1));
        // Half of the first is left, and it goes at a quarter of its speed beside the third.
        assert_eq!(device.next_end(), Some(Time(90)));
        device.advance(Time(90));
        assert_eq!(device.end_one().map(|ran| ran.job), Some(2));
        assert_eq!(device.next_end(), Some(Time(130)));
    }
}
