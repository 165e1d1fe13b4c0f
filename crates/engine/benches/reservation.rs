//! What a reservation costs: an iteration becomes ready, starts, ends, and gives its output back.
//!
//! Each row opens more sessions, all of which hold something: a quarter is paged out, a quarter is
//! quiet, half computes, each in its turn on 16 lanes. So the queues and the eviction index
//! are as full as they get. Three situations: there is room for all that is asked for; the oldest
//! request waits for memory that nobody can give; and most of what waits does not fit, so that each
//! event looks for something that does.
//!
//! Target: under 5 µs a reservation at 1,000 sessions, and no faster growth than log n.
//! Run: `cargo bench -p salus-engine --bench reservation`.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it measures the engine from outside and says what it found"
)]

mod timing;

use std::collections::VecDeque;

use salus_engine::{
    Decision, Demand, Engine, Event, JobSettings, Kind, Policy, Program, Room, SessionId, Time,
};

use timing::{median_ns, sizes};

const LANES: u64 = 16;
const MIB: u64 = 1 << 20;
/// Beyond what all hold: scratch and outputs of what runs.
const SPARE: u64 = 32 * MIB;
const OUTPUT: u64 = 4 << 10;
/// Of a reservation: ready, ran, released.
const EVENTS: u64 = 3;
/// This many reservations are timed together, because reading the clock takes time as well.
const BATCH: u64 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Situation {
    RoomForAll,
    OldestWaits,
    FewFit,
}

fn main() {
    let (sizes, batches) = sizes();
    for (situation, title) in [
        (Situation::RoomForAll, "room for all"),
        (Situation::OldestWaits, "the oldest waits for memory"),
        (Situation::FewFit, "most wait for memory"),
    ] {
        println!("{title}");
        println!("sessions  ns per event  us per reservation  times n=10  log n / log 10");
        let mut first = None;
        for &n in sizes {
            let event_ns = median_event_ns(n, situation, batches);
            let times = event_ns / *first.get_or_insert(event_ns);
            let reservation_us = event_ns * EVENTS as f64 / 1_000.0;
            let log = (n as f64).log2() / 10_f64.log2();
            println!("{n:8}  {event_ns:12.0}  {reservation_us:18.2}  {times:10.2}  {log:14.2}");
        }
        println!();
    }
}

fn median_event_ns(n: u64, situation: Situation, batches: u64) -> f64 {
    let mut world = World::new(n);
    world.prepare(n, situation);
    median_ns(batches, BATCH, || world.reserve()) / EVENTS as f64
}

struct World {
    engine: Engine,
    now: Time,
    /// Started and not ended, oldest first.
    running: VecDeque<u64>,
}

impl World {
    /// Sessions `0..n` hold 1 MiB each, and the first quarter of them was paged out for the others.
    fn new(n: u64) -> Self {
        let paged = n / 4;
        let room = Room {
            device_bytes: (n - paged) * MIB + SPARE,
            host_bytes: paged * MIB,
            user_max: None,
        };
        let mut world = Self {
            engine: Engine::new(Policy::Fair, room, LANES as u32, LANES as u32),
            now: Time(0),
            running: VecDeque::new(),
        };
        // Keeps the spare room until all have uploaded: what runs is not evicted.
        world.open(n);
        world.launch(n, 0, SPARE, 0);
        for id in 0..n {
            // By now the stay of those before is over.
            world.now.0 += 100_000_000;
            world.open(id);
            world.ask(id, Kind::Array, MIB, 0, 0);
        }
        assert_eq!(world.engine.ledger().paged_bytes(), paged * MIB);
        assert_eq!(world.running.pop_front(), Some(n));
        let session = SessionId(n);
        world.tell(Event::Ran {
            session,
            calling: None,
        });
        world.tell(Event::Closed { session });
        world
    }

    /// Lets those wait that will not be served, and starts those that compute.
    fn prepare(&mut self, n: u64, situation: Situation) {
        let (paged, half) = (n / 4, n / 2);
        let (blocked, compute) = match situation {
            Situation::RoomForAll => (0, half),
            Situation::OldestWaits => {
                self.launch(0, MIB, SPARE, MIB);
                (0, half)
            }
            // Less than what a lane looks through, and one iteration in each.
            Situation::FewFit => ((15 * LANES).min(half - 1), LANES.min(half)),
        };
        for id in paged..paged + blocked {
            self.launch(id, 0, SPARE + MIB, 0);
        }
        for id in (paged + blocked..n).take(compute as usize) {
            self.launch(id, 0, OUTPUT, MIB);
        }
        assert!(!self.running.is_empty());
    }

    /// The oldest iteration ends, its output goes, and its session asks again.
    fn reserve(&mut self) {
        let id = self.running.pop_front().expect("some run");
        let session = SessionId(id);
        self.tell(Event::Ran {
            session,
            calling: None,
        });
        self.tell(Event::Released {
            session,
            resident_bytes: OUTPUT,
            paged_bytes: 0,
            host_bytes: 0,
        });
        self.launch(id, 0, OUTPUT, MIB);
    }

    fn open(&mut self, id: u64) {
        self.tell(Event::Opened {
            session: SessionId(id),
            user: salus_engine::User(0),
            settings: JobSettings::default(),
        });
    }

    fn launch(&mut self, id: u64, paged_bytes: u64, new_bytes: u64, scratch_bytes: u64) {
        let kind = Kind::Launch {
            scratch_bytes,
            program: Program(0),
        };
        self.ask(id, kind, new_bytes, paged_bytes, paged_bytes);
    }

    fn ask(&mut self, id: u64, kind: Kind, new_bytes: u64, argument_bytes: u64, paged_bytes: u64) {
        let demand = Demand {
            kind,
            new_bytes,
            new_host_bytes: 0,
            argument_bytes,
            paged_bytes,
        };
        self.tell(Event::Ready {
            session: SessionId(id),
            demand,
        });
    }

    fn tell(&mut self, event: Event) {
        self.now.0 += 1_000;
        for decision in self.engine.on(self.now, event) {
            match decision {
                // Arrays need no end; of them only the uploads at the beginning are started.
                Decision::Start { session, .. } => {
                    let account = self.engine.account(session).expect("it is open");
                    if account.running > 0 {
                        self.running.push_back(session.0);
                    }
                }
                Decision::PageOut { session, bytes } => self.tell(Event::PagedOut {
                    session,
                    bytes,
                    paged_bytes: 0,
                }),
                Decision::PageIn { session, .. } => panic!("{session} is paged in ahead"),
                Decision::Refuse { session, why } => panic!("{session}: {why:?}"),
            }
        }
    }
}
