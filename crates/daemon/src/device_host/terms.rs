//! What a job's user asks for, as the wire has it and as the engine has it.

use std::num::NonZeroU32;

use salus_device::Device;
use salus_engine::{Class, Duration, Event, SessionId, Weight, Wishes, Work};
use salus_wire::{Change, Priority, Terms};

use super::Host;

/// What a job said when it came; 0 is nothing.
pub(super) fn wishes(terms: &Terms) -> Wishes {
    let work = match (terms.iterations, terms.expect_us) {
        (0, 0) => None,
        (0, expect) => Some(Work::Time(microseconds(expect))),
        (iterations, _) => Some(Work::Iterations(iterations)),
    };
    Wishes {
        weight: weight(terms.weight),
        class: class(terms.priority),
        latency: latency(terms.deadline_us),
        work,
    }
}

/// Changes a session; one that is gone is not missed.
pub(super) fn change<D: Device>(host: &Host<D>, session: SessionId, change: Change) {
    let wish = |set: &dyn Fn(&mut Wishes)| host.scheduling.wish(session, set);
    match change {
        Change::MemoryMax(bytes) => host.scheduling.tell_of(
            session,
            Event::Limited {
                session,
                memory_max: host.session_limit(bytes),
            },
        ),
        Change::Weight(number) => wish(&|wishes| wishes.weight = weight(number)),
        Change::Priority(priority) => wish(&|wishes| wishes.class = class(priority)),
        Change::Deadline(us) => wish(&|wishes| wishes.latency = latency(us)),
        Change::Pause => host.scheduling.tell_of(session, Event::Paused { session }),
        Change::Resume => host.scheduling.tell_of(session, Event::Resumed { session }),
        // The supervisor does more than that.
        Change::Kill | Change::KillNow => host.scheduling.kill(session),
    }
}

fn weight(number: u32) -> Weight {
    NonZeroU32::new(number).map_or_else(Weight::default, Weight)
}

fn class(priority: Priority) -> Class {
    match priority {
        Priority::High => Class::High,
        Priority::Normal => Class::Normal,
        Priority::Low => Class::Low,
    }
}

fn latency(us: u64) -> Option<Duration> {
    (us > 0).then(|| microseconds(us))
}

fn microseconds(us: u64) -> Duration {
    Duration(us.saturating_mul(1_000))
}
