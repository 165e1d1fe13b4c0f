//! A day in which jobs come and go, in simulated time, under each policy: what the engine keeps of
//! them does not grow with how many there have been, and at the end nothing is left of any.
//!
//! The swarm (`swarm.rs`) checks every step of a few jobs. Here are thousands, one after the other,
//! with programs of their own, killed at any point.

mod common;

use std::collections::BTreeMap;

use common::Random;
use salus_engine::{
    Class, Decision, Demand, Duration, Engine, Event, Kind, Policy, Program, Room, SessionId, Time,
    User, Wishes, Work,
};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * SECOND;
/// Of the device; a few jobs fill it.
const ROOM: u64 = 1 << 20;
/// Jobs that are there at once.
const OPEN_MAX: usize = 8;

#[derive(Debug, Default)]
struct Job {
    resident: u64,
    paged: u64,
    /// What it asked for and was not answered.
    asked: Option<Demand>,
    running: u32,
    page_out: bool,
    steps_left: u64,
    program: u64,
    /// Its process is gone, and its last iteration or move still goes on.
    dying: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Comes,
    Asks,
    Ran,
    Moved(u64),
}

struct Day {
    random: Random,
    engine: Engine,
    now: u64,
    agenda: BTreeMap<(u64, u64), (u64, Action)>,
    next: u64,
    jobs: BTreeMap<u64, Job>,
    free_at: BTreeMap<u32, u64>,
    came: u64,
    ran: u64,
    killed: u64,
    moved: u64,
}

impl Day {
    fn new(policy: Policy) -> Self {
        let room = Room {
            device_bytes: ROOM,
            host_bytes: 4 * ROOM,
            user_max: None,
        };
        Self {
            random: Random::new(20_261_117),
            engine: Engine::new(policy, room, 2, 2),
            now: 0,
            agenda: BTreeMap::new(),
            next: 0,
            jobs: BTreeMap::new(),
            free_at: BTreeMap::new(),
            came: 0,
            ran: 0,
            killed: 0,
            moved: 0,
        }
    }

    fn later(&mut self, after: u64, id: u64, action: Action) {
        self.next += 1;
        self.agenda
            .insert((self.now + after, self.next), (id, action));
    }

    /// Until nothing more happens; nobody comes after midnight.
    fn run(&mut self) {
        self.later(0, 0, Action::Comes);
        loop {
            let due = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let wake = self.engine.wake_at().map(|at| at.0);
            match (due, wake) {
                (None, None) => return,
                (due, Some(wake)) if due.is_none_or(|due| wake < due) => {
                    self.now = wake.max(self.now);
                    self.tell(Event::Woke);
                }
                _ => {
                    let Some(((at, _), (id, action))) = self.agenda.pop_first() else {
                        return;
                    };
                    self.now = at;
                    self.act(id, action);
                }
            }
        }
    }

    fn act(&mut self, id: u64, action: Action) {
        let session = SessionId(id);
        match action {
            Action::Comes => {
                if self.now < DAY {
                    if self.jobs.len() < OPEN_MAX {
                        self.open();
                    }
                    let pause = SECOND / 2 + self.random.below(30 * SECOND);
                    self.later(pause, 0, Action::Comes);
                }
            }
            Action::Asks => self.ask(id),
            Action::Ran => {
                self.ran += 1;
                self.job(id).running -= 1;
                let calling = None;
                self.tell(Event::Ran { session, calling });
                self.end_if_dead(id);
            }
            Action::Moved(asked) => {
                let free = self.engine.ledger().host_free_bytes();
                let job = self.job(id);
                job.page_out = false;
                let bytes = job.resident.min(asked.max(job.resident / 2)).min(free);
                job.resident -= bytes;
                job.paged += bytes;
                let absent_bytes = match &mut job.asked {
                    Some(demand) => {
                        demand.absent_bytes = demand.argument_bytes.min(job.paged);
                        demand.absent_bytes
                    }
                    None => 0,
                };
                self.moved += bytes;
                self.tell(Event::PagedOut {
                    session,
                    bytes,
                    absent_bytes,
                });
                self.end_if_dead(id);
            }
        }
    }

    fn job(&mut self, id: u64) -> &mut Job {
        self.jobs.get_mut(&id).expect("it is open")
    }

    fn open(&mut self) {
        self.came += 1;
        let id = self.came;
        let random = &mut self.random;
        let wishes = Wishes {
            class: [Class::High, Class::Normal, Class::Low][random.below(3) as usize],
            latency: (random.below(3) == 0).then(|| Duration(random.below(SECOND))),
            work: (random.below(3) == 0).then(|| Work::Iterations(random.below(40))),
            ..Wishes::default()
        };
        let job = Job {
            steps_left: 1 + random.below(60),
            // One in four is a program that others have, too.
            program: match random.below(4) {
                0 => random.below(16),
                _ => 1000 + id,
            },
            ..Job::default()
        };
        self.jobs.insert(id, job);
        self.tell(Event::Opened {
            session: SessionId(id),
            user: User((id % 3) as u32),
            memory_max: None,
            wishes,
        });
        self.later(0, id, Action::Asks);
    }

    fn ask(&mut self, id: u64) {
        let dies = self.random.below(100) == 0;
        let (new, scratch) = (self.random.below(ROOM / 8), self.random.below(ROOM / 8));
        let pause = self.random.below(SECOND);
        let session = SessionId(id);
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.dying) else {
            return;
        };
        if dies || (job.steps_left == 0 && job.asked.is_none()) {
            job.dying = true;
            let asked = job.asked.take();
            self.killed += u64::from(dies);
            if asked.is_some() {
                self.tell(Event::Withdrew { session });
            }
            return self.end_if_dead(id);
        }
        if job.asked.is_none() {
            job.steps_left -= 1;
            let held = job.resident + job.paged;
            let grows = held < ROOM / 4;
            let demand = Demand {
                kind: Kind::Launch {
                    scratch_bytes: scratch,
                    program: Program(job.program),
                },
                new_bytes: if grows { new } else { 0 },
                argument_bytes: held,
                absent_bytes: job.paged,
            };
            job.asked = Some(demand);
            self.tell(Event::Ready { session, demand });
        }
        self.later(pause, id, Action::Asks);
    }

    fn end_if_dead(&mut self, id: u64) {
        let job = self.job(id);
        if job.dying && job.running == 0 && !job.page_out {
            let (resident_bytes, paged_bytes) = (job.resident, job.paged);
            self.jobs.remove(&id);
            let session = SessionId(id);
            self.tell(Event::Released {
                session,
                resident_bytes,
                paged_bytes,
            });
            self.tell(Event::Closed { session });
        }
    }

    fn tell(&mut self, event: Event) {
        for decision in self.engine.on(Time(self.now), event) {
            match decision {
                Decision::Start { session, lane } => {
                    let took = SECOND / 2 + self.random.below(4 * SECOND);
                    let job = self.job(session.0);
                    let demand = job.asked.take().expect("it asked");
                    job.resident += demand.new_bytes + demand.absent_bytes;
                    job.paged -= demand.absent_bytes;
                    job.running += 1;
                    let now = self.now;
                    let free_at = self.free_at.entry(lane.0).or_default();
                    *free_at = now.max(*free_at) + took;
                    let after = *free_at - now;
                    self.later(after, session.0, Action::Ran);
                }
                Decision::PageOut { session, bytes } => {
                    self.job(session.0).page_out = true;
                    let took = self.random.below(SECOND / 10);
                    self.later(took, session.0, Action::Moved(bytes));
                }
                Decision::Refuse { session, .. } => self.job(session.0).asked = None,
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
        let (came, ran, killed, moved) = (day.came, day.ran, day.killed, day.moved);
        eprintln!(
            "{name}: {came} jobs, {ran} iterations, {killed} killed, {moved} bytes moved, ended at {} h",
            day.now / (3600 * SECOND)
        );
        assert!(
            came > 300 && ran > 10_000 && killed > 50,
            "{name}: too quiet"
        );
        assert!(day.jobs.is_empty(), "{name}: {:?}", day.jobs);
        let (ledger, engine) = (day.engine.ledger(), &day.engine);
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
            "ages: {}",
            "classes: {}",
            "latencies: {}",
            "cramped: {}",
            "leaving_bytes: 0",
            "claim: None",
            "owner: None",
            "users: {}",
        ] {
            assert!(held.contains(empty), "{name}: not `{empty}`: {held:.4000}");
        }
        assert_eq!(held.matches("iterations: []").count(), 2, "{name}: lanes");
        assert_eq!(
            held.matches("resident: {}, absent: {}").count(),
            2,
            "{name}"
        );
    }
}

#[test]
fn what_is_learned_of_programs_is_bounded() {
    // Beyond 4,096 programs the least recently run is forgotten; twice as many more change nothing.
    let mut engine = Engine::new(
        Policy::Pack,
        Room {
            device_bytes: ROOM,
            host_bytes: ROOM,
            user_max: None,
        },
        2,
        2,
    );
    let session = SessionId(1);
    let open = Event::Opened {
        session,
        user: User(0),
        memory_max: None,
        wishes: Wishes::default(),
    };
    assert!(engine.on(Time(0), open).is_empty());
    let mut sizes = Vec::new();
    for n in 0..20_000u64 {
        let demand = Demand {
            kind: Kind::Launch {
                scratch_bytes: 0,
                program: Program(1 << 60 | n),
            },
            new_bytes: 0,
            argument_bytes: 0,
            absent_bytes: 0,
        };
        let now = Time((1 + n) * SECOND);
        assert_eq!(engine.on(now, Event::Ready { session, demand }).len(), 1);
        let calling = None;
        let ran = Event::Ran { session, calling };
        assert!(engine.on(Time(now.0 + SECOND / 2), ran).is_empty());
        if n % 5_000 == 4_999 {
            sizes.push(format!("{engine:?}").len());
        }
    }
    let (first, last) = (sizes[0], sizes[3]);
    assert!(last < first + first / 10, "{sizes:?}");
}
