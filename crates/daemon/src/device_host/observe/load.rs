//! What sessions make of the device, for the supervisor, which chooses a device for each job.
//!
//! A session wants the device while it runs, waits, or has a program compiled; the average over about a
//! minute says how much of one session it is. A new one counts as a whole: most jobs read data before
//! they train.
//!
//! Cost: where there are several devices, the engine is read once a second; otherwise nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use salus_device::Device;
use salus_engine::{Account, SessionId, State, Time};
use salus_wire::Load;

use crate::device_host::Host;

const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(1);
/// A look counts for one part in this many.
const LOOKS: u64 = 64;
/// A session that always wants the device.
const WHOLE: u64 = 1000;

/// Tells the supervisor of the load whenever it has changed.
pub(crate) fn start<D: Device>(host: &Arc<Host<D>>) -> std::io::Result<()> {
    let host = Arc::clone(host);
    let thread = std::thread::Builder::new().name("load".into());
    thread.spawn(move || watch(&host)).map(drop)
}

fn watch<D: Device>(host: &Host<D>) {
    let mut averages = Averages::default();
    let mut told = None;
    loop {
        std::thread::sleep(LOOK_EVERY);
        let mut seen = Vec::new();
        let held_bytes = host.engine.survey(
            |session, account, _, now| seen.push((session.id, wanted_ns(account, now), now)),
            |engine| engine.ledger().resident_bytes() + engine.ledger().paged_bytes(),
        );
        let (newest, wanting_milli) = averages.look(&seen);
        let load = Load {
            newest,
            wanting_milli,
            held_bytes,
        };
        if told.as_ref() != Some(&load) {
            host.supervisor.send(load.clone());
            told = Some(load);
        }
    }
}

/// How long a session has wanted the device so far.
fn wanted_ns(account: &Account, now: Time) -> u64 {
    let wants = [
        State::Compile,
        State::Running,
        State::Turn,
        State::Memory,
        State::Paging,
    ];
    wants
        .map(|state| account.time_in(state, now).0)
        .iter()
        .sum()
}

/// What part of the time each session has wanted the device, lately.
#[derive(Default)]
struct Averages {
    sessions: BTreeMap<SessionId, Average>,
    newest: u64,
}

struct Average {
    wanted_ns: u64,
    at: Time,
    milli: u64,
}

impl Averages {
    /// Takes the sessions with how long each has wanted the device so far, and when that was. Returns
    /// the newest session ever seen, and how many want the device, in thousandths.
    fn look(&mut self, seen: &[(SessionId, u64, Time)]) -> (u64, u64) {
        self.sessions
            .retain(|id, _| seen.iter().any(|(other, ..)| other == id));
        for &(id, wanted_ns, at) in seen {
            self.newest = self.newest.max(id.0);
            let average = self.sessions.entry(id).or_insert(Average {
                wanted_ns,
                at,
                milli: WHOLE,
            });
            let passed = at.0.saturating_sub(average.at.0);
            if passed > 0 {
                let wanted = wanted_ns.saturating_sub(average.wanted_ns).min(passed);
                let now = (u128::from(wanted) * u128::from(WHOLE) / u128::from(passed)) as u64;
                average.milli = (average.milli * (LOOKS - 1) + now) / LOOKS;
                average.wanted_ns = wanted_ns;
                average.at = at;
            }
        }
        let wanting = self.sessions.values().map(|average| average.milli).sum();
        (self.newest, wanting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_session_counts_as_one_until_it_has_been_idle_for_some_minutes() {
        let mut averages = Averages::default();
        let (busy, idle) = (SessionId(3), SessionId(4));
        let mut told = Vec::new();
        for second in 0..=300 {
            let now = Time(second * SECOND);
            told.push(averages.look(&[(busy, second * SECOND, now), (idle, 0, now)]));
        }
        assert_eq!(told[0], (4, 2 * WHOLE));
        let wanting = |second: usize| told[second].1;
        assert!(wanting(10) > 1800, "{}", wanting(10));
        assert!((1300..1500).contains(&wanting(60)), "{}", wanting(60));
        assert!(wanting(300) < 1100, "{}", wanting(300));
    }

    #[test]
    fn sessions_that_have_ended_count_no_more() {
        let mut averages = Averages::default();
        let at = |second: u64| Time(second * SECOND);
        averages.look(&[(SessionId(1), 0, at(0)), (SessionId(2), 0, at(0))]);
        assert_eq!(averages.look(&[(SessionId(1), SECOND, at(1))]).1, WHOLE);
        assert_eq!(averages.look(&[]), (2, 0));
    }
}
