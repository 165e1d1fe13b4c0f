//! A story: the simulation with sizes in MiB and times in ms.
//!
//! Sessions of a story are served in the order in which they ask, unless it says otherwise. Moving
//! takes no time unless a story says so; then a session that was paged in stays for
//! [`MIN_RESIDENCY`].

use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut, RangeInclusive};

use salus_engine::{JobSettings, Lane, NonZeroDuration, Policy, Program, Refusal, Room, Time, Why};
use salus_sim::{Decided, Needs, Opening, Simulation, launch, launch_with_callbacks, upload};

pub(crate) use salus_sim::Decided::{PageIn, PageOut, Refuse, Start};

pub(crate) const MIB: u64 = 1 << 20;
/// What is asked for beyond what is lacking.
pub(crate) const MARGIN: u64 = salus_engine::EVICTION_MARGIN_BYTES;
/// The shortest minimum residency, in ms.
pub(crate) const MIN_RESIDENCY: u64 = salus_engine::MIN_RESIDENCY.0 / 1_000_000;
/// A request that has waited for this long goes before all others, in ms.
pub(crate) const AGING_LIMIT: u64 = salus_engine::AGING_LIMIT.0 / 1_000_000;

pub(crate) struct Story(Simulation);

impl Deref for Story {
    type Target = Simulation;

    fn deref(&self) -> &Simulation {
        &self.0
    }
}

impl DerefMut for Story {
    fn deref_mut(&mut self) -> &mut Simulation {
        &mut self.0
    }
}

pub(crate) fn ms(n: u64) -> Time {
    Time(n * 1_000_000)
}

/// The tightest deadline: of two that have it, the first to ask is first.
pub(crate) fn by_age() -> Opening {
    with_deadline(1)
}

pub(crate) fn with_deadline(nanoseconds: u64) -> Opening {
    let settings = JobSettings {
        deadline: NonZeroDuration::from_nanos(nanoseconds),
        ..JobSettings::default()
    };
    Opening {
        settings,
        ..Opening::default()
    }
}

impl Story {
    /// With these sessions open, and as many lanes used as there are.
    pub(crate) fn new(
        device_mib: u64,
        host_mib: u64,
        lanes: u32,
        sessions: RangeInclusive<u64>,
    ) -> Self {
        let room = Room {
            device_bytes: device_mib * MIB,
            host_bytes: host_mib * MIB,
            user_max: None,
        };
        let mut story = Self::in_room(room, lanes);
        for n in sessions {
            story.opens(n, by_age());
        }
        story
    }

    pub(crate) fn in_room(room: Room, lanes: u32) -> Self {
        Self(Simulation::new(Policy::Deadline, room, lanes, lanes))
    }

    /// On a device with memory of its own, served in the order of asking.
    pub(crate) fn with_own_memory(policy: Policy, device_mib: u64, host_mib: u64) -> Self {
        let room = Room {
            device_bytes: device_mib * MIB,
            host_bytes: host_mib * MIB,
            user_max: None,
        };
        Self(Simulation::new(policy, room, 1, 1).with_own_memory())
    }

    pub(crate) fn of(simulation: Simulation) -> Self {
        Self(simulation)
    }

    pub(crate) fn at(&mut self, n: u64) -> &mut Self {
        self.0.at(ms(n));
        self
    }

    #[track_caller]
    pub(crate) fn opens(&mut self, n: u64, opening: Opening) {
        assert_eq!(self.0.open(n, opening), []);
    }

    pub(crate) fn upload(&mut self, n: u64, mib: u64) -> Vec<Decided> {
        self.0.ready(n, upload(mib * MIB))
    }

    /// Uploads where there is room.
    #[track_caller]
    pub(crate) fn holds(&mut self, n: u64, mib: u64) {
        assert_eq!(self.upload(n, mib), [Start(n)], "there is room");
    }

    pub(crate) fn launch(&mut self, n: u64, needs: Needs) -> Vec<Decided> {
        self.0.ready(n, launch(Program(0), in_bytes(needs)))
    }

    /// Launches what calls back; its scratch is its own, like an array.
    pub(crate) fn calls(&mut self, n: u64, calling: u64, needs: Needs) -> Vec<Decided> {
        let demand = launch_with_callbacks(program(calling), calling, in_bytes(needs));
        self.0.ready(n, demand)
    }

    /// All that it moved is now on the host; `paged` of it are arguments of what it waits for.
    pub(crate) fn paged_out(&mut self, n: u64, mib: u64, paged: u64) -> Vec<Decided> {
        self.0.paged_out(n, mib * MIB, paged * MIB)
    }

    pub(crate) fn releases(&mut self, n: u64, resident: u64, paged: u64) -> Vec<Decided> {
        self.0.release(n, resident * MIB, paged * MIB)
    }

    /// What it holds on the device and on the host, in MiB.
    pub(crate) fn held(&self, n: u64) -> (u64, u64) {
        let session = self.0.session(n);
        (session.resident_bytes / MIB, session.paged_bytes / MIB)
    }

    /// Arrays on the device, scratch, and arrays on the host, in MiB.
    pub(crate) fn used(&self) -> (u64, u64, u64) {
        let ledger = self.0.ledger();
        (
            ledger.resident_bytes() / MIB,
            ledger.scratch_bytes() / MIB,
            ledger.paged_bytes() / MIB,
        )
    }

    pub(crate) fn lane_sizes(&self) -> Vec<u64> {
        let lanes = self.0.engine().lanes();
        lanes.map(|(_, bytes, _)| bytes / MIB).collect()
    }

    #[track_caller]
    pub(crate) fn lane(&self, n: u64) -> Lane {
        self.0.lane(n).expect("it is open")
    }

    #[track_caller]
    pub(crate) fn why(&self, n: u64) -> Why {
        self.0.why(n).expect("it is open")
    }

    /// Since when what it asked for waits.
    pub(crate) fn waits_since(&self, n: u64) -> Option<Time> {
        self.0.session(n).request.map(|(_, since)| since)
    }

    pub(crate) fn device_ms(&self, n: u64) -> u64 {
        self.0.account(n).device_time.0 / 1_000_000
    }

    /// What an iteration of a program is expected to take.
    pub(crate) fn estimate_ms(&self, program: Program) -> Option<u64> {
        Some(self.0.estimate(program)?.0 / 1_000_000)
    }
}

/// What the iterations with this number run that call back.
pub(crate) fn program(calling: u64) -> Program {
    Program(1_000 + calling)
}

fn in_bytes(mib: Needs) -> Needs {
    Needs {
        arguments: mib.arguments * MIB,
        paged: mib.paged * MIB,
        new: mib.new * MIB,
        host: mib.host * MIB,
        scratch: mib.scratch * MIB,
    }
}

pub(crate) const NOTHING: Needs = Needs {
    arguments: 0,
    paged: 0,
    new: 0,
    host: 0,
    scratch: 0,
};

pub(crate) fn scratch(mib: u64) -> Needs {
    Needs {
        scratch: mib,
        ..NOTHING
    }
}

/// Of arrays on the device.
pub(crate) fn arguments(mib: u64) -> Needs {
    Needs {
        arguments: mib,
        ..NOTHING
    }
}

/// Of arrays that were paged out.
pub(crate) fn paged(mib: u64) -> Needs {
    Needs {
        arguments: mib,
        paged: mib,
        ..NOTHING
    }
}

/// 1 and 2 hold 40 each since 0 and 10 ms, and 20 are free; it is 200 ms.
pub(crate) fn two_hold_forty(sessions: RangeInclusive<u64>) -> Story {
    let mut s = Story::new(100, 200, 1, sessions);
    s.holds(1, 40);
    s.at(10).holds(2, 40);
    s.at(200);
    s
}

/// Nobody can make room for it.
pub(crate) fn no_room(needs: u64, free: u64, host_free: u64) -> Refusal {
    Refusal::NoRoom {
        needs_bytes: needs * MIB,
        free_bytes: free * MIB,
        host_free_bytes: host_free * MIB,
    }
}

/// It would not fit if it were alone.
pub(crate) fn too_large(needs: u64, room: u64) -> Refusal {
    Refusal::TooLarge {
        needs_bytes: needs * MIB,
        room_bytes: room * MIB,
    }
}

pub(crate) fn beyond_limit(needs: u64, limit: u64) -> Refusal {
    Refusal::BeyondLimit {
        needs_bytes: needs * MIB,
        memory_max: limit * MIB,
    }
}

/// A session with a limit.
pub(crate) fn limited(mib: u64) -> Opening {
    let opening = by_age();
    let settings = JobSettings {
        memory_max: NonZeroU64::new(mib * MIB),
        ..opening.settings
    };
    Opening {
        settings,
        ..opening
    }
}
