//! What a decision costs: an iteration ends, somebody is started, and whoever was asks again.
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

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Instant;

use salus_engine::{
    Class, Decision, Demand, Duration, Engine, Event, Kind, Policy, Program, Room, SessionId, Time,
    User, Weight, Wishes, Work,
};

const LANES: u32 = 4;
/// Many jobs run the same.
const PROGRAMS: u64 = 40;
/// Of a cycle: ran, ready.
const EVENTS: u64 = 2;
/// So many cycles are timed together, because reading the clock takes time as well.
const BATCH: u64 = 100;
const BATCHES: u64 = 400;
/// What an event of the engine's time takes: iterations of a few µs, so that nobody grows old.
const STEP_NS: u64 = 1_000;

fn main() {
    // Without `--bench` it is run as a test, which is over at once.
    let bench = std::env::args().any(|arg| arg == "--bench");
    let (sizes, batches) = if bench {
        (&[10, 100, 1_000, 10_000, 100_000][..], BATCHES)
    } else {
        (&[10, 100][..], 2)
    };
    println!("ns per event, with {LANES} lanes and so many sessions");
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
    let mut times: Vec<u128> = Vec::new();
    for _ in 0..batches {
        let start = Instant::now();
        for _ in 0..BATCH {
            world.cycle();
        }
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    times[times.len() / 2] as f64 / (BATCH * EVENTS) as f64
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
                memory_max: None,
                wishes: wishes(id),
            });
            world.ask(id);
        }
        world
    }

    /// The oldest iteration ends and whoever is started asks again.
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
            argument_bytes: 0,
            absent_bytes: 0,
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
fn wishes(id: u64) -> Wishes {
    let weight = NonZeroU32::MIN.saturating_add(id as u32 % 5);
    Wishes {
        weight: Weight(weight),
        class: [Class::High, Class::Normal, Class::Low][id as usize % 3],
        latency: id
            .is_multiple_of(7)
            .then_some(Duration(1_000_000 * (1 + id % 100))),
        work: match id % 4 {
            0 => Some(Work::Iterations(1 + id % 10_000)),
            1 => Some(Work::Time(Duration(1_000_000 * (1 + id % 10_000)))),
            _ => None,
        },
    }
}
