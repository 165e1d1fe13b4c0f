//! What the original Salus could do, this engine can do as well, without any memory on the host.
//!
//! The original is the paper's Algorithm 1: it puts a job with `P` persistent and `E` ephemeral
//! bytes into a lane, or lets it wait. Here it is written out as printed, with the check that its
//! second step lacks. Whatever it accepts, the engine must accept and run, with as many lanes or as
//! few as it has. The paper's own workloads are in `sim/data/p100-workloads.csv`, each with its source.

use std::collections::BTreeMap;

use fastrand::Rng;
use salus_engine::{Demand, Duration, Lane, Policy, Program, Room};
use salus_sim::{Decided, Needs, Opening, Simulation, launch, upload};

const CASES: u64 = 5_000;
const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0 * MIB;

#[derive(Debug, Clone, Copy)]
struct Job {
    persistent: u64,
    ephemeral: u64,
}

/// Algorithm 1.
struct Original {
    capacity: u64,
    /// Jobs by lane; a lane is as large as the largest `E` in it.
    lanes: Vec<BTreeMap<u64, Job>>,
    /// Jobs accepted by each of its three steps.
    steps: [u64; 3],
}

impl Original {
    fn new(capacity: u64) -> Self {
        Self {
            capacity,
            lanes: Vec::new(),
            steps: [0; 3],
        }
    }

    fn accepts(&mut self, id: u64, job: Job) -> bool {
        let jobs = self.lanes.iter().flat_map(BTreeMap::values);
        let persistent: u64 = jobs.map(|job| job.persistent).sum();
        let sizes: Vec<u64> = self.lanes.iter().map(size).collect();
        let held = persistent + job.persistent + sizes.iter().sum::<u64>();
        let mut ascending: Vec<usize> = (0..sizes.len()).collect();
        ascending.sort_by_key(|&lane| sizes[lane]);
        let mut ascending = ascending.into_iter();
        let (step, lane) = if held + job.ephemeral <= self.capacity {
            self.lanes.push(BTreeMap::new());
            (0, Some(self.lanes.len() - 1))
        } else if sizes.iter().any(|&size| size >= job.ephemeral) {
            let best = ascending.find(|&lane| sizes[lane] >= job.ephemeral);
            // The check that is not printed: `P` must fit beside the lanes as they are.
            (1, best.filter(|_| held <= self.capacity))
        } else {
            // All are smaller: the first that may grow.
            let fits = |size| held - size + job.ephemeral <= self.capacity;
            (2, ascending.find(|&lane| fits(sizes[lane])))
        };
        if let Some(lane) = lane {
            self.lanes[lane].insert(id, job);
            self.steps[step] += 1;
        }
        lane.is_some()
    }

    fn forgets(&mut self, id: u64) {
        for lane in &mut self.lanes {
            lane.remove(&id);
        }
        self.lanes.retain(|lane| !lane.is_empty());
    }
}

fn size(lane: &BTreeMap<u64, Job>) -> u64 {
    lane.values().map(|job| job.ephemeral).max().unwrap_or(0)
}

/// The engine without host memory. The only decision it may take is to start something, at once or
/// later: all fits, so nobody has to be paged out and nothing is refused.
struct Ours {
    simulation: Simulation,
    lanes: u32,
    /// Iterations that each job has ended.
    ran: BTreeMap<u64, u64>,
}

impl Ours {
    fn new(capacity: u64, lanes: u32) -> Self {
        let room = Room {
            device_bytes: capacity,
            host_bytes: 0,
            user_max: None,
        };
        Self {
            simulation: Simulation::new(Policy::Fair, room, lanes, lanes),
            lanes,
            ran: BTreeMap::new(),
        }
    }

    /// A millisecond later.
    fn tell(&mut self, tell: impl FnOnce(&mut Simulation) -> Vec<Decided>) {
        let now = self.simulation.now() + Duration(1_000_000);
        for decided in tell(self.simulation.at(now)) {
            assert!(
                matches!(decided, Decided::Start(_)),
                "{decided:?}, and all fits"
            );
        }
    }

    /// Opens a session that holds the job's arrays.
    fn open(&mut self, id: u64, job: Job) {
        self.ran.insert(id, 0);
        self.tell(|simulation| simulation.open(id, Opening::default()));
        self.ask(id, upload(job.persistent));
    }

    fn ask(&mut self, id: u64, demand: Demand) {
        self.tell(|simulation| simulation.ready(id, demand));
    }

    fn launch(&mut self, id: u64, job: Job) {
        let needs = Needs {
            arguments: job.persistent,
            scratch: job.ephemeral,
            ..Needs::default()
        };
        self.ask(id, launch(Program(0), needs));
    }

    fn waits(&self, id: u64) -> bool {
        self.simulation.session(id).request.is_some()
    }

    fn anybody_waits(&self) -> bool {
        let mut sessions = self.simulation.sessions();
        sessions.any(|(_, session)| session.request.is_some())
    }

    /// The lane's first iteration ends.
    fn end_one(&mut self, lane: u32) -> bool {
        let Some(id) = self.simulation.first_in(Lane(lane)) else {
            return false;
        };
        *self.ran.get_mut(&id).expect("it is open") += 1;
        self.tell(|simulation| simulation.ran(id));
        true
    }

    fn end_all(&mut self) {
        // One of each lane in turn.
        while (0..self.lanes).filter(|lane| self.end_one(*lane)).count() > 0 {}
    }

    fn close(&mut self, id: u64) {
        self.ran.remove(&id);
        let session = self.simulation.session(id);
        let resident_bytes = session.resident_bytes;
        self.tell(|simulation| simulation.release(id, resident_bytes, 0));
        self.tell(|simulation| simulation.close(id));
    }
}

/// Jobs of all sizes, small ones oftener, so that some sequences fill the device with many.
fn draw_job(random: &mut Rng, capacity: u64) -> Job {
    let (part, other) = (1 << random.u64(..6), 1 << random.u64(..6));
    Job {
        persistent: random.u64(..=capacity / part),
        ephemeral: random.u64(..=capacity / other),
    }
}

/// Each case returns what the original's steps accepted: all three must be put to the test.
fn for_each_case(case: impl Fn(&mut Rng) -> [u64; 3] + std::panic::RefUnwindSafe) {
    let mut accepted = [0; 3];
    for seed in 0..CASES {
        let once = std::panic::catch_unwind(|| case(&mut Rng::with_seed(seed)));
        let steps = once.unwrap_or_else(|panic| {
            eprintln!("fails with seed {seed}");
            std::panic::resume_unwind(panic)
        });
        for (sum, step) in accepted.iter_mut().zip(steps) {
            *sum += step;
        }
    }
    assert!(accepted.iter().all(|&n| n > CASES / 8), "{accepted:?}");
}

#[test]
fn whatever_the_original_accepts_is_granted_at_once_and_runs() {
    for_each_case(|random| {
        let capacity = 1 + random.u64(..1 << 34);
        let mut original = Original::new(capacity);
        let mut ours = Ours::new(capacity, 1 + random.u64(..16) as u32);
        let mut jobs: BTreeMap<u64, Job> = BTreeMap::new();
        for id in 1..=5 + random.u64(..30) {
            let job = draw_job(random, capacity);
            if original.accepts(id, job) {
                jobs.insert(id, job);
                ours.open(id, job);
                assert!(!ours.anybody_waits(), "{job:?} was not granted at once");
            } else if random.u64(..4) == 0 {
                let nth = random.u64(..jobs.len().max(1) as u64) as usize;
                if let Some(id) = jobs.keys().nth(nth).copied() {
                    jobs.remove(&id);
                    original.forgets(id);
                    ours.close(id);
                }
            }
            if random.u64(..4) == 0 {
                round(&mut ours, &jobs);
            }
        }
        round(&mut ours, &jobs);
        original.steps
    });
}

/// All ask at once, and each runs once.
fn round(ours: &mut Ours, jobs: &BTreeMap<u64, Job>) {
    let before = ours.ran.clone();
    for (&id, &job) in jobs {
        ours.launch(id, job);
    }
    ours.end_all();
    assert!(!ours.anybody_waits(), "some wait, and nothing runs");
    for (id, ran) in &ours.ran {
        assert_eq!(*ran, before[id] + 1, "job {id}");
    }
}

#[test]
fn whatever_the_original_accepts_is_served_also_while_others_run() {
    for_each_case(|random| {
        let capacity = 1 + random.u64(..1 << 34);
        let mut original = Original::new(capacity);
        let mut ours = Ours::new(capacity, 1 + random.u64(..16) as u32);
        let mut jobs: BTreeMap<u64, Job> = BTreeMap::new();
        for id in 1..=5 + random.u64(..30) {
            let job = draw_job(random, capacity);
            if original.accepts(id, job) {
                jobs.insert(id, job);
                ours.open(id, job);
            }
            // Some that have got what they asked for ask for more, and some iterations end.
            for (&id, &job) in &jobs {
                if random.u64(..2) == 0 && !ours.waits(id) {
                    ours.launch(id, job);
                }
            }
            for _ in 0..random.u64(..8) {
                ours.end_one(random.u64(..16) as u32);
            }
        }
        ours.end_all();
        assert!(!ours.anybody_waits(), "some wait, and nothing runs");
        let ledger = ours.simulation.ledger();
        let held: u64 = jobs.values().map(|job| job.persistent).sum();
        assert_eq!(ledger.resident_bytes(), held);
        assert_eq!(ledger.scratch_bytes(), 0);
        original.steps
    });
}

#[test]
fn whatever_the_original_accepts_runs_also_if_all_always_ask_again() {
    for_each_case(|random| {
        let capacity = 1 + random.u64(..1 << 34);
        let mut original = Original::new(capacity);
        let lanes = 1 + random.u64(..16) as u32;
        let mut ours = Ours::new(capacity, lanes);
        let mut jobs: BTreeMap<u64, Job> = BTreeMap::new();
        for id in 1..=5 + random.u64(..10) {
            let job = draw_job(random, capacity);
            if original.accepts(id, job) {
                jobs.insert(id, job);
                ours.open(id, job);
            }
        }
        for (&id, &job) in &jobs {
            ours.launch(id, job);
        }
        // Whoever is older runs before, and each has to wait for what runs to end.
        for _ in 0..4 * jobs.len() {
            for lane in 0..lanes {
                ours.end_one(lane);
            }
            for (&id, &job) in &jobs {
                if !ours.waits(id) {
                    ours.launch(id, job);
                }
            }
        }
        for (id, ran) in &ours.ran {
            assert!(*ran > 0, "job {id} of {} never ran", jobs.len());
        }
        original.steps
    });
}

/// The first six fields of a line; the last, where it comes from, has commas of its own.
struct Workload {
    model: String,
    batch_size: String,
    kind: String,
    job: Job,
}

fn workloads() -> Vec<Workload> {
    let table = include_str!("../../sim/data/p100-workloads.csv");
    let bytes = |mib: &str| (mib.parse::<f64>().expect("a number") * MIB) as u64;
    let parse = |line: &str| {
        let fields: Vec<&str> = line.splitn(7, ',').collect();
        let [model, batch_size, kind, _, persistent, ephemeral, _] = fields[..] else {
            panic!("{line} has not seven fields")
        };
        Workload {
            model: model.to_owned(),
            batch_size: batch_size.to_owned(),
            kind: kind.to_owned(),
            job: Job {
                persistent: bytes(persistent),
                ephemeral: bytes(ephemeral),
            },
        }
    };
    table.lines().skip(1).map(parse).collect()
}

/// The paper's figure 10: fourteen models, three of each, one input at a time.
fn inference() -> Vec<Job> {
    let all = workloads().into_iter();
    let models = all.filter(|w| w.kind == "inference" && w.model != "speech");
    let models: Vec<Job> = models
        .filter(|w| w.batch_size == "1" || w.batch_size == "small")
        .map(|w| w.job)
        .collect();
    assert_eq!(models.len(), 14);
    models.iter().flat_map(|&job| [job; 3]).collect()
}

#[test]
fn the_papers_42_instances_run_on_one_device() {
    for lanes in [1, 2, 4, 16] {
        let mut ours = Ours::new(16_000_000_000, lanes);
        let jobs: BTreeMap<u64, Job> = (1..).zip(inference()).collect();
        assert_eq!(jobs.len(), 42);
        for (&id, &job) in &jobs {
            ours.open(id, job);
            assert!(!ours.anybody_waits(), "job {id} was not granted at once");
        }
        round(&mut ours, &jobs);
        round(&mut ours, &jobs);
    }
}

#[test]
fn the_papers_42_instances_need_six_devices_side_by_side() {
    let mut peaks: Vec<u64> = inference()
        .iter()
        .map(|job| job.persistent + job.ephemeral)
        .collect();
    peaks.sort_unstable_by(|a, b| b.cmp(a));
    for gib in [14.0, 14.5, 15.0] {
        let capacity = (gib * GIB) as u64;
        // First fit, the largest first.
        let mut devices: Vec<u64> = Vec::new();
        for &peak in &peaks {
            match devices.iter_mut().find(|used| **used + peak <= capacity) {
                Some(used) => *used += peak,
                None => devices.push(peak),
            }
        }
        assert_eq!(devices.len(), 6, "devices of {gib} GiB");
    }
}
