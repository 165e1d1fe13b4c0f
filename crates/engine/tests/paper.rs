//! What the original Salus could do, this engine can do as well, without any memory on the host.
//!
//! The original is the paper's Algorithm 1: it puts a job with `P` persistent and `E` ephemeral
//! bytes into a lane, or lets it wait. Here it is written out as printed, with the check that its
//! second step lacks. Whatever it accepts, the engine must accept and run, with as many lanes or as
//! few as it has. The paper's own workloads are in `data/p100-workloads.csv`, each with its source.

mod common;

use std::collections::{BTreeMap, VecDeque};

use common::Random;
use salus_engine::{
    Decision, Demand, Engine, Event, Kind, Policy, Program, Room, SessionId, Time, Wishes,
};

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

/// The engine, and a device that runs what it starts. The only decision it may take is to start
/// something, at once or later: all fits, so nobody has to leave and nothing is refused.
struct Ours {
    engine: Engine,
    now: u64,
    asked: BTreeMap<u64, Demand>,
    /// By lane, in the order in which they end.
    running: BTreeMap<u32, VecDeque<u64>>,
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
            engine: Engine::new(Policy::Fair, room, lanes, lanes),
            now: 0,
            asked: BTreeMap::new(),
            running: BTreeMap::new(),
            ran: BTreeMap::new(),
        }
    }

    fn on(&mut self, event: Event) {
        self.now += 1_000_000;
        for decision in self.engine.on(Time(self.now), event) {
            let Decision::Start { session, lane } = decision else {
                panic!("{decision:?}, and all fits")
            };
            let demand = self.asked.remove(&session.0).expect("it asked");
            if demand.kind != Kind::Array {
                self.running.entry(lane.0).or_default().push_back(session.0);
            }
        }
    }

    fn open(&mut self, id: u64) {
        self.ran.insert(id, 0);
        self.on(Event::Opened {
            session: SessionId(id),
            user: salus_engine::User(0),
            memory_max: None,
            wishes: Wishes::default(),
        });
    }

    fn ask(&mut self, id: u64, kind: Kind, new_bytes: u64, argument_bytes: u64) {
        let demand = Demand {
            kind,
            new_bytes,
            argument_bytes,
            absent_bytes: 0,
        };
        self.asked.insert(id, demand);
        self.on(Event::Ready {
            session: SessionId(id),
            demand,
        });
    }

    fn upload(&mut self, id: u64, job: Job) {
        self.ask(id, Kind::Array, job.persistent, 0);
    }

    fn launch(&mut self, id: u64, job: Job) {
        let scratch_bytes = job.ephemeral;
        let kind = Kind::Launch {
            scratch_bytes,
            program: Program(0),
        };
        self.ask(id, kind, 0, job.persistent);
    }

    /// The lane's first iteration ends; returns whose.
    fn end_one(&mut self, lane: u32) -> Option<u64> {
        let id = self.running.get_mut(&lane)?.pop_front()?;
        *self.ran.get_mut(&id).expect("it is open") += 1;
        self.on(Event::Ran {
            calling: None,
            session: SessionId(id),
        });
        Some(id)
    }

    fn end_all(&mut self) {
        while self.running.values().any(|lane| !lane.is_empty()) {
            for lane in 0..self.engine.lanes().count() as u32 {
                self.end_one(lane);
            }
        }
    }

    fn close(&mut self, id: u64) {
        self.ran.remove(&id);
        self.on(Event::Closed {
            session: SessionId(id),
        });
    }
}

impl Random {
    /// Jobs of all sizes, small ones oftener, so that some sequences fill the device with many.
    fn job(&mut self, capacity: u64) -> Job {
        let (part, other) = (1 << self.below(6), 1 << self.below(6));
        Job {
            persistent: self.below(capacity / part + 1),
            ephemeral: self.below(capacity / other + 1),
        }
    }
}

/// Each case returns what the original's steps accepted: all three must be put to the test.
fn for_each_case(case: impl Fn(&mut Random) -> [u64; 3] + std::panic::RefUnwindSafe) {
    let mut accepted = [0; 3];
    for seed in 0..CASES {
        let once = std::panic::catch_unwind(|| case(&mut Random::new(seed)));
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
        let capacity = 1 + random.below(1 << 34);
        let mut original = Original::new(capacity);
        let mut ours = Ours::new(capacity, 1 + random.below(16) as u32);
        let mut jobs: BTreeMap<u64, Job> = BTreeMap::new();
        for id in 1..=5 + random.below(30) {
            let job = random.job(capacity);
            if original.accepts(id, job) {
                jobs.insert(id, job);
                ours.open(id);
                ours.upload(id, job);
                assert!(ours.asked.is_empty(), "{job:?} was not granted at once");
            } else if random.below(4) == 0 {
                let nth = random.below(jobs.len() as u64) as usize;
                if let Some(id) = jobs.keys().nth(nth).copied() {
                    jobs.remove(&id);
                    original.forgets(id);
                    ours.close(id);
                }
            }
            if random.below(4) == 0 {
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
    assert!(ours.asked.is_empty(), "some wait, and nothing runs");
    for (id, ran) in &ours.ran {
        assert_eq!(*ran, before[id] + 1, "job {id}");
    }
}

#[test]
fn whatever_the_original_accepts_is_served_also_while_others_run() {
    for_each_case(|random| {
        let capacity = 1 + random.below(1 << 34);
        let mut original = Original::new(capacity);
        let mut ours = Ours::new(capacity, 1 + random.below(16) as u32);
        let mut jobs: BTreeMap<u64, Job> = BTreeMap::new();
        for id in 1..=5 + random.below(30) {
            let job = random.job(capacity);
            if original.accepts(id, job) {
                jobs.insert(id, job);
                ours.open(id);
                ours.upload(id, job);
            }
            // Some that have got what they asked for ask for more, and some iterations end.
            for (&id, &job) in &jobs {
                if random.below(2) == 0 && !ours.asked.contains_key(&id) {
                    ours.launch(id, job);
                }
            }
            for _ in 0..random.below(8) {
                ours.end_one(random.below(16) as u32);
            }
        }
        ours.end_all();
        assert!(ours.asked.is_empty(), "some wait, and nothing runs");
        let ledger = ours.engine.ledger();
        let held: u64 = jobs.values().map(|job| job.persistent).sum();
        assert_eq!(ledger.resident_bytes(), held);
        assert_eq!(ledger.scratch_bytes(), 0);
        original.steps
    });
}

#[test]
fn whatever_the_original_accepts_runs_also_if_all_always_ask_again() {
    for_each_case(|random| {
        let capacity = 1 + random.below(1 << 34);
        let mut original = Original::new(capacity);
        let lanes = 1 + random.below(16) as u32;
        let mut ours = Ours::new(capacity, lanes);
        let mut jobs: BTreeMap<u64, Job> = BTreeMap::new();
        for id in 1..=5 + random.below(10) {
            let job = random.job(capacity);
            if original.accepts(id, job) {
                jobs.insert(id, job);
                ours.open(id);
                ours.upload(id, job);
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
                if !ours.asked.contains_key(&id) {
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
    let table = include_str!("data/p100-workloads.csv");
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
            ours.open(id);
            ours.upload(id, job);
            assert!(ours.asked.is_empty(), "job {id} was not granted at once");
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
