//! A day in which jobs come and go, in simulated time, under each policy: what the engine keeps of
//! them does not grow with how many there have been, and at the end nothing is left of any.
//!
//! The swarm (`swarm/`) has a few jobs that do everything. Here are thousands, one after the other,
//! with programs of their own, killed at any point.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use fastrand::Rng;
use salus_engine::{
    Demand, Duration, JobSettings, NonZeroDuration, Policy, Priority, Program, Room, Time, Work,
};
use salus_sim::{Agenda, Decided, Needs, Opening, Simulation, launch};

const SECOND_NS: u64 = 1_000_000_000;
const DAY: Time = Time(24 * 3600 * SECOND_NS);
/// Of the device; a few jobs fill it.
const ROOM_BYTES: u64 = 1 << 20;
/// Jobs that are there at once.
const OPEN_MAX: usize = 8;

#[derive(Debug)]
struct Job {
    /// What it asked for and was not answered.
    asked: Option<Demand>,
    steps_left: u64,
    program: Program,
    /// Its process is gone, and its last iteration or move still goes on.
    dying: bool,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Comes,
    Asks(u64),
    Ran(u64),
    /// Asked to page out this many bytes.
    PagedOut(u64, u64),
}

struct Day {
    random: Rng,
    simulation: Simulation,
    agenda: Agenda<Action>,
    jobs: BTreeMap<u64, Job>,
    came: u64,
    ran: u64,
    killed: u64,
    moved_bytes: u64,
}

fn room(host_bytes: u64) -> Room {
    Room {
        device_bytes: ROOM_BYTES,
        host_bytes,
        user_max: None,
    }
}

impl Day {
    fn new(policy: Policy) -> Self {
        Self {
            random: Rng::with_seed(20_261_117),
            simulation: Simulation::new(policy, room(4 * ROOM_BYTES), 2, 2),
            agenda: Agenda::default(),
            jobs: BTreeMap::new(),
            came: 0,
            ran: 0,
            killed: 0,
            moved_bytes: 0,
        }
    }

    fn later(&mut self, after_ns: u64, action: Action) {
        let at = self.simulation.now() + Duration(after_ns);
        self.agenda.plan(at, action);
    }

    /// Until nothing more happens; nobody comes after midnight.
    fn run(&mut self) {
        self.later(0, Action::Comes);
        loop {
            let next = self.agenda.next();
            let wake = self.simulation.wake_at();
            let Some(at) = next.into_iter().chain(wake).min() else {
                return;
            };
            let at = at.max(self.simulation.now());
            self.simulation.at(at);
            match self.agenda.take(at) {
                Some(action) => self.act(action),
                None => self.tell(Simulation::wake),
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Comes => {
                if self.simulation.now() < DAY {
                    if self.jobs.len() < OPEN_MAX {
                        self.open();
                    }
                    let pause = SECOND_NS / 2 + self.random.u64(..30 * SECOND_NS);
                    self.later(pause, Action::Comes);
                }
            }
            Action::Asks(id) => self.ask(id),
            Action::Ran(id) => {
                self.ran += 1;
                self.tell(|simulation| simulation.ran(id));
                self.close_if_dead(id);
            }
            Action::PagedOut(id, asked_bytes) => self.paged_out(id, asked_bytes),
        }
    }

    fn open(&mut self) {
        self.came += 1;
        let id = self.came;
        let random = &mut self.random;
        let settings = JobSettings {
            priority: Priority::ALL[random.u64(..3) as usize],
            deadline: (random.u64(..3) == 0)
                .then(|| random.u64(1..SECOND_NS))
                .and_then(NonZeroDuration::from_nanos),
            work: (random.u64(..3) == 0)
                .then(|| random.u64(1..40))
                .and_then(NonZeroU64::new)
                .map(Work::Iterations),
            ..JobSettings::default()
        };
        let job = Job {
            asked: None,
            steps_left: random.u64(1..=60),
            // One in four is a program that others have, too.
            program: Program(match random.u64(..4) {
                0 => random.u64(..16),
                _ => 1000 + id,
            }),
            dying: false,
        };
        self.jobs.insert(id, job);
        let opening = Opening {
            user: (id % 3) as u32,
            settings,
        };
        self.tell(|simulation| simulation.open(id, opening));
        self.later(0, Action::Asks(id));
    }

    fn ask(&mut self, id: u64) {
        let dies = self.random.u64(..100) == 0;
        let new = self.random.u64(..ROOM_BYTES / 8);
        let scratch = self.random.u64(..ROOM_BYTES / 8);
        let pause_ns = self.random.u64(..SECOND_NS);
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.dying) else {
            return;
        };
        if dies || (job.steps_left == 0 && job.asked.is_none()) {
            job.dying = true;
            let asked = job.asked.take();
            self.killed += u64::from(dies);
            if asked.is_some() {
                self.tell(|simulation| simulation.withdraw(id));
            }
            return self.close_if_dead(id);
        }
        if job.asked.is_none() {
            job.steps_left -= 1;
            let session = self.simulation.session(id);
            let held = session.resident_bytes + session.paged_bytes;
            let needs = Needs {
                arguments: held,
                paged: session.paged_bytes,
                new: if held < ROOM_BYTES / 4 { new } else { 0 },
                host: 0,
                scratch,
            };
            let demand = launch(job.program, needs);
            job.asked = Some(demand);
            self.tell(|simulation| simulation.ready(id, demand));
        }
        self.later(pause_ns, Action::Asks(id));
    }

    fn paged_out(&mut self, id: u64, asked_bytes: u64) {
        let free = self.simulation.ledger().host_free_bytes();
        let session = self.simulation.session(id);
        let resident = session.resident_bytes;
        let bytes = resident.min(asked_bytes.max(resident / 2)).min(free);
        let paged = session.paged_bytes + bytes;
        // Whatever it waits for takes all that it held when it asked.
        let asked = session.request.map(|(demand, _)| demand.argument_bytes);
        let paged_bytes = asked.map_or(0, |arguments| arguments.min(paged));
        self.moved_bytes += bytes;
        self.tell(|simulation| simulation.paged_out(id, bytes, paged_bytes));
        self.close_if_dead(id);
    }

    fn close_if_dead(&mut self, id: u64) {
        let session = self.simulation.session(id);
        let is_idle = session.running.is_empty() && !session.pages_out;
        if self.jobs[&id].dying && is_idle {
            let (resident, paged) = (session.resident_bytes, session.paged_bytes);
            self.jobs.remove(&id);
            self.tell(|simulation| simulation.release(id, resident, paged));
            self.tell(|simulation| simulation.close(id));
        }
    }

    fn tell(&mut self, tell: impl FnOnce(&mut Simulation) -> Vec<Decided>) {
        for decided in tell(&mut self.simulation) {
            match decided {
                Decided::Start(id) => {
                    let took = SECOND_NS / 2 + self.random.u64(..4 * SECOND_NS);
                    self.jobs.get_mut(&id).expect("it is open").asked = None;
                    let lane = self.simulation.lane(id).expect("it is open");
                    let at = self.simulation.ends_at(lane, Duration(took));
                    self.agenda.plan(at, Action::Ran(id));
                }
                Decided::PageOut(id, bytes) => {
                    let took = self.random.u64(..SECOND_NS / 10);
                    self.later(took, Action::PagedOut(id, bytes));
                }
                Decided::PageIn(_) => unreachable!("only where memory is the device's own"),
                Decided::Refuse(id, _) => {
                    self.jobs.get_mut(&id).expect("it is open").asked = None;
                }
            }
        }
    }
}

#[test]
fn a_day_of_jobs_that_come_and_go_leaves_nothing() {
    for policy in Policy::ALL {
        let mut day = Day::new(policy);
        day.run();
        let name = policy.name();
        let (came, ran, killed, moved) = (day.came, day.ran, day.killed, day.moved_bytes);
        eprintln!(
            "{name}: {came} jobs, {ran} iterations, {killed} killed, {moved} bytes moved, ended at {} h",
            day.simulation.now().0 / (3600 * SECOND_NS)
        );
        assert!(
            came > 300 && ran > 10_000 && killed > 50,
            "{name}: too quiet"
        );
        assert!(day.jobs.is_empty(), "{name}: {:?}", day.jobs);
        let (ledger, engine) = (day.simulation.ledger(), day.simulation.engine());
        let left = (
            ledger.resident_bytes(),
            ledger.paged_bytes(),
            ledger.scratch_bytes(),
            ledger.holdings().count(),
            engine.running().count(),
        );
        assert_eq!(left, (0, 0, 0, 0, 0), "{name}: something was lost");
        assert_eq!(engine.wake_at(), None, "{name}: it waits for nothing");
        // All that the engine holds, but for what it has learned of programs.
        let held = format!("{engine:?}");
        for empty in [
            "arrays: {}",
            "launches: {}",
            "unlimited: {}",
            "classes: {}",
            "deadlines: {}",
            "cramped: {}",
            "evicting_bytes: 0",
            "holder: None",
            "owner: None",
            "users: {}",
        ] {
            assert!(held.contains(empty), "{name}: not `{empty}`: {held:.4000}");
        }
        assert_eq!(held.matches("iterations: []").count(), 2, "{name}: lanes");
        assert_eq!(held.matches("resident: {}, paged: {}").count(), 2, "{name}");
    }
}

#[test]
fn what_is_learned_of_programs_is_bounded() {
    // Beyond 4,096 programs the least recently run is forgotten; twice as many more change nothing.
    let mut simulation = Simulation::new(Policy::Pack, room(ROOM_BYTES), 2, 2);
    assert_eq!(simulation.open(1, Opening::default()), []);
    let mut sizes = Vec::new();
    for n in 0..20_000u64 {
        let demand = launch(Program(1 << 60 | n), Needs::default());
        let now = Time((1 + n) * SECOND_NS);
        assert_eq!(simulation.at(now).ready(1, demand), [Decided::Start(1)]);
        assert_eq!(simulation.at(now + Duration(SECOND_NS / 2)).ran(1), []);
        if n % 5_000 == 4_999 {
            sizes.push(format!("{:?}", simulation.engine()).len());
        }
    }
    let (first, last) = (sizes[0], sizes[3]);
    assert!(last < first + first / 10, "{sizes:?}");
}
