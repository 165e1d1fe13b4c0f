//! What a decision costs: an iteration ends, another is started, and its session asks again.
//!
//! Each row opens more sessions, which differ in all that the policies look at and are all ready all
//! the time, so that the queues are as full as they get. There is room for all; what memory costs is
//! in `reservation.rs`.
//!
//! Target: under 2 µs an event at 1,000 sessions and under 5 µs at 100,000.
//! Run: `cargo bench -p salus-engine --bench decision`.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it measures the engine from outside and says what it found"
)]

mod timing;

use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroU64};

use salus_engine::{
    Decision, Demand, Engine, Event, JobSettings, Kind, NonZeroDuration, Policy, Priority, Program,
    Room, SessionId, Time, User, Weight, Work,
};

use timing::{median_ns, sizes};

const LANES: u32 = 4;
/// Many jobs run the same.
const PROGRAMS: u64 = 40;
/// Of a cycle: ran, ready.
const EVENTS: u64 = 2;
/// This many cycles are timed together, because reading the clock takes time as well.
const BATCH: u64 = 100;
/// What an event of the engine's time takes: iterations of a few µs, so that nobody grows old.
const STEP_NS: u64 = 1_000;

fn main() {
    let (sizes, batches) = sizes();
    println!("ns per event, with {LANES} lanes, by number of sessions");
    print!("{:10}", "policy");
    for n in sizes {
        print!("  {n:>7}");
    }
    println!();
    for policy in Policy::ALL {
        print!("{:10}", policy.name());
        for &n in sizes {
            print!("  {:7.0}", median_event_ns(policy, n, batches));
        }
        println!();
    }
}

fn median_event_ns(policy: Policy, n: u64, batches: u64) -> f64 {
    let mut world = World::new(policy, n);
    // Everybody has had a turn, so that what there is to know is known.
    for _ in 0..2 * n {
        world.cycle();
    }
    median_ns(batches, BATCH, || world.cycle()) / EVENTS as f64
}

struct World {
    engine: Engine,
    now: Time,
    /// Started and not ended, oldest first.
    running: VecDeque<u64>,
}

impl World {
    fn new(policy: Policy, n: u64) -> Self {
        let room = Room {
            device_bytes: 1 << 40,
            host_bytes: 1 << 40,
            user_max: None,
        };
        let mut world = Self {
            engine: Engine::new(policy, room, LANES, LANES),
            now: Time(0),
            running: VecDeque::new(),
        };
        for id in 0..n {
            world.tell(Event::Opened {
                session: SessionId(id),
                user: User(0),
                settings: settings(id),
            });
            world.ask(id);
        }
        world
    }

    /// The oldest iteration ends, and the session that is started asks again.
    fn cycle(&mut self) {
        let id = self.running.pop_front().expect("some run");
        let session = SessionId(id);
        self.tell(Event::Ran {
            session,
            calling: None,
        });
    }

    fn ask(&mut self, id: u64) {
        let demand = Demand {
            kind: Kind::Launch {
                scratch_bytes: 1 << 10,
                program: Program(id % PROGRAMS),
            },
            new_bytes: 0,
            new_host_bytes: 0,
            argument_bytes: 0,
            paged_bytes: 0,
        };
        self.tell(Event::Ready {
            session: SessionId(id),
            demand,
        });
    }

    fn tell(&mut self, event: Event) {
        self.now.0 += STEP_NS;
        for decision in self.engine.on(self.now, event) {
            let Decision::Start { session, .. } = decision else {
                panic!("{decision:?}, and there is room for all")
            };
            self.running.push_back(session.0);
            self.ask(session.0);
        }
    }
}

/// All sorts.
fn settings(id: u64) -> JobSettings {
    let weight = NonZeroU32::MIN.saturating_add(id as u32 % 5);
    JobSettings {
        weight: Weight(weight),
        priority: [Priority::High, Priority::Normal, Priority::Low][id as usize % 3],
        deadline: NonZeroDuration::from_nanos(1_000_000 * (1 + id % 100))
            .filter(|_| id.is_multiple_of(7)),
        work: match id % 4 {
            0 => NonZeroU64::new(1 + id % 10_000).map(Work::Iterations),
            1 => NonZeroDuration::from_nanos(1_000_000 * (1 + id % 10_000)).map(Work::DeviceTime),
            _ => None,
        },
        memory_max: None,
    }
}
