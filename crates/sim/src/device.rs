//! The made-up device: lanes that run their iterations one at a time, side by side with others.
//!
//! An iteration's work is counted down at full speed while its lane is alone, and slower by its
//! factor while another lane works, too. Whole numbers: the work is counted in units of which a
//! nanosecond alone does `beside` and a nanosecond beside others [`Factor::ONE`].

use std::collections::VecDeque;

use salus_engine::{Duration, Lane, Time};

use crate::scenario::Factor;

#[derive(Debug)]
pub(crate) struct Device {
    lanes: Vec<Queue>,
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
    beside: Factor,
}

impl Device {
    pub(crate) fn new(lanes: u32) -> Self {
        Self {
            lanes: (0..lanes).map(|_| Queue::default()).collect(),
            at: Time(0),
            busy: Duration(0),
            switches: 0,
        }
    }

    /// Whose iteration runs in each lane.
    pub(crate) fn running(&self) -> impl Iterator<Item = (Lane, usize)> {
        let lanes = (0..).map(Lane).zip(&self.lanes);
        lanes.filter_map(|(lane, queue)| Some((lane, queue.iterations.front()?.job)))
    }

    /// The lane runs an iteration after those that it has.
    pub(crate) fn hand_over(&mut self, lane: Lane, job: usize, each: Duration, beside: Factor) {
        let iteration = Iteration {
            job,
            left: u128::from(each.0) * u128::from(beside.0),
            beside,
        };
        self.lanes[lane.0 as usize].iterations.push_back(iteration);
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

    /// Whose iteration has ended by now, the lowest lane's first.
    pub(crate) fn end_one(&mut self) -> Option<usize> {
        let (_, lane) = self.ends().find(|(at, _)| *at <= self.at)?;
        let queue = &mut self.lanes[lane];
        let job = queue.iterations.pop_front()?.job;
        let before = queue.last_job.replace(job);
        self.switches += u64::from(before.is_some_and(|before| before != job));
        Some(job)
    }
}

impl Iteration {
    /// Units of work in a nanosecond.
    fn speed(&self, beside: bool) -> u128 {
        u128::from(match beside {
            true => Factor::ONE.0,
            false => self.beside.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_by_side_is_slower_only_while_it_is() {
        let mut device = Device::new(2);
        device.hand_over(Lane(0), 0, Duration(100), Factor(2000));
        device.advance(Time(50));
        device.hand_over(Lane(1), 1, Duration(10), Factor(3000));
        // Half of the first is left and goes at half speed; the second takes three times as long.
        assert_eq!(device.next_end(), Some(Time(80)));
        device.advance(Time(80));
        assert_eq!(device.end_one(), Some(1));
        assert_eq!(device.end_one(), None);
        assert_eq!(device.next_end(), Some(Time(115)));
        device.advance(Time(115));
        assert_eq!(device.end_one(), Some(0));
        assert_eq!(device.busy, Duration(115));
    }

    #[test]
    fn a_lane_runs_one_after_the_other() {
        let mut device = Device::new(1);
        for job in [0, 0, 1] {
            device.hand_over(Lane(0), job, Duration(10), Factor::ONE);
        }
        for (at, job) in [(10, 0), (20, 0), (30, 1)] {
            assert_eq!(device.next_end(), Some(Time(at)));
            device.advance(Time(at));
            assert_eq!(device.end_one(), Some(job));
        }
        assert_eq!((device.switches, device.busy), (1, Duration(30)));
    }
}
