//! Cores: which of them the threads of a lane may use while other lanes work beside it.
//!
//! On the CPU plugin every lane has a thread for each core. While lanes run side by side, there are more
//! threads than cores; if each could run anywhere, the parts of one operation would run on cores whose caches
//! have the other lane's data, and wait for each other's threads. So lanes that run side by side divide the
//! cores among them, and a lane that runs alone has all of them. That changes no result: what a lane computes
//! depends on the number of its threads, not on where they run.
//!
//! An iteration that outlasts what ran beside it keeps its part until the lane's next launch.
//!
//! The threads that compute are also in the kernel's class for batch work: they do not interrupt each other, or
//! those that launch and reply, whenever they get something to do. All of the plugin's have short time slices:
//! one that has nothing to do looks for work for tens of microseconds before it sleeps, and would keep a core
//! from one that has. Those that launch and reply are not in that class: beside other busy processes of the
//! machine they would wait at each iteration.
//!
//! Cost: some loads and stores for a launch, and a system call for each thread of a lane when lanes begin or
//! cease to run side by side, at most every [`APART_AFTER`].
#![expect(unsafe_code, reason = "scheduling classes have no safe wrapper")]

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use salus_channel::lock;

/// How long after the last launch beside another lane's a lane counts as running beside others: hosts of jobs
/// pause between iterations, and moving threads to and fro would cost more than a core that idles so long.
const APART_AFTER: Duration = Duration::from_millis(5);
/// What the CPU plugin calls the threads of its pool.
const COMPUTES: &str = "tf_XLAEigen";
/// How long a thread of the plugin runs before another's turn, if others are ready: the least that the kernel
/// grants. Kernels before 6.12 have one length for all threads.
const SLICE: Duration = Duration::from_micros(100);
/// Lanes that can be told apart; the configuration allows no more.
const LANES_MAX: usize = 64;

pub(in crate::plugin) struct Cores {
    began: Instant,
    /// Those that this process may use.
    all: Vec<usize>,
    /// None where there is nothing to divide.
    lanes: Vec<LaneCores>,
    /// The lanes among which they are divided, a bit for each.
    divided_among: AtomicU64,
    dividing: Mutex<()>,
}

struct LaneCores {
    threads: Vec<Pid>,
    in_flight: AtomicUsize,
    /// When it last ran beside another, in microseconds since `began`; 0 if it never did.
    beside_at_us: AtomicU64,
}

/// A launch, until it has ended.
pub(in crate::plugin) struct OnCores {
    cores: Arc<Cores>,
    lane: usize,
}

impl Drop for OnCores {
    fn drop(&mut self) {
        if let Some(lane) = self.cores.lanes.get(self.lane) {
            lane.in_flight.fetch_sub(1, Relaxed);
        }
    }
}

impl Cores {
    /// For lanes with these threads.
    pub(in crate::plugin) fn new(lanes: Vec<Vec<Pid>>) -> Self {
        let all = allowed();
        let threads = || lanes.iter().flatten().copied();
        // A device that computes by itself has no such threads: its others are its own affair.
        if threads().any(computes) {
            threads().for_each(take_short_turns);
        }
        let divisible = (2..=LANES_MAX).contains(&lanes.len()) && all.len() > 1;
        let lanes = lanes.into_iter().filter(|_| divisible);
        let lane = |threads| LaneCores {
            threads,
            in_flight: AtomicUsize::new(0),
            beside_at_us: AtomicU64::new(0),
        };
        Self {
            began: Instant::now(),
            all,
            lanes: lanes.map(lane).collect(),
            divided_among: AtomicU64::new(0),
            dividing: Mutex::new(()),
        }
    }

    /// Called before a launch is handed to a lane.
    pub(in crate::plugin) fn begin(self: &Arc<Self>, lane: usize) -> OnCores {
        if let Some(begins) = self.lanes.get(lane) {
            begins.in_flight.fetch_add(1, Relaxed);
            // 0 is for never.
            let now_us = self.began.elapsed().as_micros() as u64 + 1;
            let wanted = self.beside_each_other(now_us);
            if wanted != self.divided_among.load(Relaxed) {
                self.divide(wanted);
            }
        }
        OnCores {
            cores: Arc::clone(self),
            lane,
        }
    }

    /// The lanes that run side by side, now or a moment ago.
    fn beside_each_other(&self, now_us: u64) -> u64 {
        let busy = |lane: &&LaneCores| lane.in_flight.load(Relaxed) > 0;
        if self.lanes.iter().filter(busy).count() > 1 {
            for lane in self.lanes.iter().filter(busy) {
                lane.beside_at_us.store(now_us, Relaxed);
            }
        }
        let apart_us = APART_AFTER.as_micros() as u64;
        let lately = |lane: &LaneCores| {
            let at_us = lane.beside_at_us.load(Relaxed);
            at_us > 0 && now_us.saturating_sub(at_us) < apart_us
        };
        let lanes = self.lanes.iter().enumerate();
        lanes.fold(0, |lanes, (n, lane)| lanes | u64::from(lately(lane)) << n)
    }

    fn divide(&self, wanted: u64) {
        let _one_at_a_time = lock(&self.dividing);
        let before = self.divided_among.swap(wanted, Relaxed);
        for (n, lane) in self.lanes.iter().enumerate() {
            let part = part(&self.all, wanted, n);
            if part == self::part(&self.all, before, n) {
                continue;
            }
            let mut cores = CpuSet::new();
            for core in part {
                cores.set(*core);
            }
            for thread in &lane.threads {
                // It only makes things faster: where it is not allowed, all use all.
                let _ = sched_setaffinity(Some(*thread), &cores);
            }
        }
    }
}

/// What a lane has of the cores when these lanes divide them: neighbours, which share caches.
fn part(all: &[usize], among: u64, lane: usize) -> &[usize] {
    if among >> lane & 1 == 0 {
        return all;
    }
    let count = among.count_ones() as usize;
    let before = (among & ((1 << lane) - 1)).count_ones() as usize;
    let begin = before * all.len() / count;
    let end = ((before + 1) * all.len() / count).max(begin + 1);
    &all[begin..end]
}

fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect()
}

/// Does it, and returns the threads of this process that have started meanwhile, where the kernel says.
pub(in crate::plugin) fn started_by<T>(work: impl FnOnce() -> T) -> (T, Vec<Pid>) {
    let before = threads();
    let done = work();
    (done, threads().difference(&before).copied().collect())
}

fn computes(thread: Pid) -> bool {
    let name = format!("/proc/self/task/{}/comm", thread.as_raw_nonzero());
    std::fs::read_to_string(name).is_ok_and(|name| name.trim_end() == COMPUTES)
}

/// Gives a thread of the plugin short slices, and puts it into the class for batch work if it computes. Where that
/// is not allowed, nothing changes.
fn take_short_turns(thread: Pid) {
    let number = thread.as_raw_nonzero().get();
    if let Some(mut attributes) = attributes(number) {
        if computes(thread) {
            attributes.sched_policy = libc::SCHED_BATCH as u32;
        }
        attributes.sched_runtime = SLICE.as_nanos() as u64;
        // SAFETY: the kernel reads as much of it as it has in `size`, and it lives through the call.
        unsafe { libc::syscall(libc::SYS_sched_setattr, number, &raw const attributes, 0) };
    }
}

/// How the kernel schedules a thread.
fn attributes(thread: i32) -> Option<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    let mut attributes = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let to = &raw mut attributes;
    // SAFETY: the kernel writes no more than `size` bytes of it, and it lives through the call.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, to, size, 0) };
    (read == 0).then_some(attributes)
}

fn threads() -> HashSet<Pid> {
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(lanes: usize, all: &[usize]) -> Arc<Cores> {
        Arc::new(Cores {
            all: all.to_vec(),
            ..Cores::new(vec![Vec::new(); lanes])
        })
    }

    #[test]
    fn lanes_divide_the_cores_and_one_alone_has_all() {
        let all = [0, 1, 2, 5, 6, 7];
        assert_eq!(part(&all, 0b00, 0), all);
        assert_eq!(part(&all, 0b11, 0), [0, 1, 2]);
        assert_eq!(part(&all, 0b11, 1), [5, 6, 7]);
        assert_eq!(part(&all, 0b1101, 2), [2, 5]);
        assert_eq!(part(&all, 0b1101, 1), all);
        // More lanes than cores.
        let few = [3, 4];
        let parts = [0, 1, 2].map(|lane| part(&few, 0b111, lane));
        assert_eq!(parts, [&[3], &[3], &[4]]);
    }

    #[test]
    fn lanes_are_beside_each_other_while_both_have_launches_and_a_moment_longer() {
        let cores = cores(2, &[0, 1]);
        if cores.lanes.is_empty() {
            // On a machine with one core.
            return;
        }
        let first = cores.begin(0);
        assert_eq!(cores.beside_each_other(1_000), 0);
        let second = cores.begin(1);
        assert_eq!(cores.beside_each_other(2_000), 0b11);
        drop(first);
        assert_eq!(cores.beside_each_other(6_999), 0b11);
        assert_eq!(cores.beside_each_other(7_000), 0);
        drop(second);
        // One after the other, as lanes whose programs interfere.
        for lane in [0, 1, 0, 1] {
            let launch = cores.begin(lane);
            assert_eq!(cores.beside_each_other(20_000), 0);
            drop(launch);
        }
    }

    #[test]
    fn threads_that_compute_are_in_the_class_for_batch_work_and_keep_their_niceness() {
        let scheduled_as = |name: &str| {
            let thread = std::thread::Builder::new().name(name.into());
            let work = || {
                let this = rustix::thread::gettid();
                let now = || attributes(this.as_raw_nonzero().get());
                let before = now().expect("the kernel says it");
                drop(Cores::new(vec![vec![this]]));
                let after = now().expect("the kernel says it");
                assert_eq!(after.sched_nice, before.sched_nice);
                after.sched_policy as i32
            };
            let thread = thread.spawn(work).expect("it starts");
            thread.join().expect("it ends")
        };
        assert_eq!(scheduled_as(COMPUTES), libc::SCHED_BATCH);
        assert_eq!(scheduled_as("another"), libc::SCHED_OTHER);
    }

    #[test]
    fn the_threads_of_a_lane_move_to_its_cores_and_back() {
        if allowed().len() < 2 {
            return;
        }
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        // Other tests may have started some, too.
        let (thread, new) = started_by(|| std::thread::spawn(move || stopped.recv().is_err()));
        let cores = Cores::new(vec![new.clone(), Vec::new()]);
        let has = |thread: &Pid| {
            let set = sched_getaffinity(Some(*thread)).expect("a thread of ours");
            (0..CpuSet::MAX_CPU)
                .filter(|core| set.is_set(*core))
                .count()
        };
        let one = new
            .iter()
            .find(|one| has(one) == cores.all.len())
            .expect("it is there");
        cores.divide(0b11);
        assert_eq!(has(one), cores.all.len() / 2);
        cores.divide(0);
        assert_eq!(has(one), cores.all.len());
        drop(stop);
        assert!(thread.join().expect("it ends"));
    }
}
