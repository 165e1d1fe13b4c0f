//! Overdue iterations: those that take far longer than their programs usually do.
//!
//! A device runs an iteration to its end, so one that never ends keeps all sessions waiting. It cannot
//! be taken off the device, but it can be named, in `salus ps` and in the log. If the configuration sets
//! a limit, the supervisor is asked to start the device host again, which costs all sessions their
//! state.
//!
//! Cost: the engine is read once per second.

use std::collections::BTreeSet;
use std::time::Duration as Wait;

use salus_device::Device;
use salus_engine::{Duration, Engine, SessionId, Time};
use salus_wire::Endless;

use crate::device_host::Host;
use crate::device_host::clocked_engine::OWN;
use crate::log;

/// An iteration is overdue after this many times its program's median: no program varies as much.
const OVERDUE_FACTOR: u64 = 20;
/// A shorter iteration is never overdue: users do not notice it.
const OVERDUE_MIN: Duration = Duration(1_000_000_000);
const LOOK_EVERY: Wait = Wait::from_secs(1);

/// When an iteration is overdue, and when it is ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// For a program that has not run before.
    pub(crate) first: Duration,
    /// No iteration may take longer, if this is set.
    pub(crate) most: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overdue {
    pub(crate) session: SessionId,
    pub(crate) began: Time,
    pub(crate) runs: Duration,
    /// What its program usually takes.
    pub(crate) usual: Option<Duration>,
}

impl Overdue {
    /// `runs for 61.0 s and takes 14.0 ms as a rule`.
    pub(crate) fn text(&self) -> String {
        let seconds = self.runs.0 as f64 / 1e9;
        match self.usual {
            Some(usual) => {
                let usual = usual.0 as f64 / 1e6;
                format!("runs for {seconds:.1} s and takes {usual:.1} ms as a rule")
            }
            None => format!("runs for {seconds:.1} s, its program's first time"),
        }
    }
}

/// The iterations that are overdue now: one per lane at the most, and those that call back.
pub(crate) fn overdue(engine: &Engine, now: Time, limits: Limits) -> Vec<Overdue> {
    // A turn of the service's own has a limit of its own.
    let of_jobs = engine.running().filter(|(session, ..)| *session != OWN);
    let late = of_jobs.filter_map(|(session, program, began)| {
        let runs = now - began;
        let usual = engine.estimates().of(program).map(|(median, _)| median);
        let limit = match usual {
            Some(median) => Duration(median.0.saturating_mul(OVERDUE_FACTOR)).max(OVERDUE_MIN),
            None => limits.first,
        };
        // Past the configured limit it is overdue, whatever its program usually takes.
        let limit = limits.most.map_or(limit, |most| limit.min(most));
        (runs > limit).then_some(Overdue {
            session,
            began,
            runs,
            usual,
        })
    });
    late.collect()
}

/// Logs each of them once. Never returns.
pub(crate) fn watch<D: Device>(host: &Host<D>) {
    let mut named = BTreeSet::new();
    loop {
        std::thread::sleep(LOOK_EVERY);
        let look = |engine: &Engine, now| overdue(engine, now, host.overdue);
        let late = host.engine.look(look);
        named.retain(|one| late.iter().any(|o| (o.session, o.began) == *one));
        for one in late {
            let id = one.session.0;
            if named.insert((one.session, one.began)) {
                log::warn(format_args!(
                    "session {id}: its iteration {}; `salus job {id} kill --now` ends it, and with \
                     it the state of all sessions",
                    one.text()
                ));
            }
            if let Some(most) = host.overdue.most.filter(|most| one.runs > *most) {
                let seconds = most.0 / 1_000_000_000;
                host.supervisor.send(Endless {
                    session: id,
                    why: format!(
                        "an iteration of session {id} took longer than the {seconds} s that \
                         `[limits] iteration_seconds` allows, so the device host was started again"
                    ),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use salus_engine::{Demand, Event, JobSettings, Kind, Policy, Program, Room, User};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// An engine in which a session runs a program for the second time, since this moment.
    fn running(first_took: u64) -> (Engine, Time) {
        let room = Room {
            device_bytes: 1 << 20,
            host_bytes: 0,
            user_max: None,
        };
        let mut engine = Engine::new(Policy::Fair, room, 1, 1);
        let session = SessionId(7);
        let demand = Demand {
            kind: Kind::Launch {
                scratch_bytes: 0,
                program: Program(1),
            },
            new_bytes: 0,
            new_host_bytes: 0,
            argument_bytes: 0,
            paged_bytes: 0,
        };
        let opened = Event::Opened {
            session,
            user: User(0),
            settings: JobSettings::default(),
        };
        let ready = Event::Ready { session, demand };
        let calling = None;
        let began = Time(first_took);
        let mut tell = |at, event| drop(engine.on(at, event));
        tell(Time(0), opened);
        tell(Time(0), ready);
        if first_took > 0 {
            tell(began, Event::Ran { session, calling });
            tell(began, ready);
        }
        (engine, began)
    }

    fn is_overdue(first_took: u64, most: Option<u64>, after: u64) -> bool {
        let (engine, began) = running(first_took);
        let limits = Limits {
            first: Duration(60 * SECOND),
            most: most.map(Duration),
        };
        let late = overdue(&engine, Time(began.0 + after), limits);
        late.iter().any(|one| one.session == SessionId(7))
    }

    #[test]
    fn what_takes_far_longer_than_its_program_does_is_overdue() {
        // A program that is not known has a minute, one that is known twenty times its median.
        assert!(!is_overdue(0, None, 59 * SECOND));
        assert!(is_overdue(0, None, 61 * SECOND));
        assert!(!is_overdue(SECOND, None, 19 * SECOND));
        assert!(is_overdue(SECOND, None, 21 * SECOND));
        // Nobody minds a second.
        assert!(!is_overdue(SECOND / 1000, None, SECOND / 2));
    }

    #[test]
    fn what_may_not_go_on_is_overdue_whatever_its_program_takes() {
        for first_took in [0, 10 * SECOND] {
            assert!(!is_overdue(first_took, Some(2 * SECOND), SECOND));
            assert!(is_overdue(first_took, Some(2 * SECOND), 3 * SECOND));
        }
    }
}
