//! What one session's launches were, for the profiler of its job.
//!
//! The records are always there, so a profile costs nothing until it is asked for: then the ring is
//! looked through, part by part, and what is the session's own is taken out.

use salus_engine::{Program, SessionId, Time};
use salus_wire::{Profile, ProfiledLaunch};

use super::Recorder;
use super::recording::PART;
use super::ring::{Iteration, Record};

/// The launches of one session that had not ended at a time.
pub(in crate::device_host) struct Own {
    session: SessionId,
    since: Time,
    /// From here on none is missing.
    from: Time,
    /// The number of the record that is looked at next.
    next: u64,
    launches: Vec<Iteration>,
    names: Vec<(Program, String)>,
}

impl Own {
    pub(in crate::device_host) fn new(session: SessionId, since: Time) -> Self {
        Self {
            session,
            since,
            from: since,
            next: 0,
            launches: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Makes room for what the next part may bring, so that looking is all that the lock is for.
    pub(in crate::device_host) fn reserve(&mut self) {
        self.launches.reserve(PART);
    }

    /// As it is sent, with times as the job has them.
    pub(in crate::device_host) fn profile(mut self, unix_ns: impl Fn(Time) -> u64) -> Profile {
        self.launches.sort_by_key(|launch| launch.began);
        let mut known: Vec<Program> = Vec::new();
        let launches = self.launches.iter().map(|launch| {
            let place = known.iter().position(|known| *known == launch.program);
            let program = place.unwrap_or_else(|| {
                known.push(launch.program);
                known.len() - 1
            });
            ProfiledLaunch {
                lane: launch.lane.0,
                program: program as u32,
                ready_ns: unix_ns(launch.ready),
                began_ns: unix_ns(launch.began),
                ended_ns: unix_ns(launch.ended),
            }
        });
        let launches = launches.collect();
        let name = |program: &Program| {
            let name = self.names.iter().find(|(known, _)| known == program);
            name.map_or_else(|| "a program".to_owned(), |(_, name)| name.clone())
        };
        Profile {
            from_ns: unix_ns(self.from),
            programs: known.iter().map(name).collect(),
            launches,
        }
    }
}

impl Recorder {
    /// Looks through the next part of the records; false at their end, when it has added what runs
    /// and all names.
    pub(in crate::device_host) fn look_through(&self, now: Time, own: &mut Own) -> bool {
        let oldest = self.ring.oldest();
        if own.next < oldest {
            // What was overwritten, now or before, is not known.
            own.next = oldest;
            let mut timely = self.ring.some(oldest, PART).iter();
            let first = timely.find(|record| !matches!(record, Record::Memory(_)));
            own.from = own.from.max(first.map_or(now, Record::ended));
        }
        let part = self.ring.some(own.next, PART);
        own.next += part.len() as u64;
        let (session, since) = (own.session, own.since);
        own.launches
            .extend(part.iter().filter_map(|record| match record {
                Record::Iteration(i) if i.session == session && i.ended >= since => Some(*i),
                _ => None,
            }));
        if own.next < self.ring.written() {
            return true;
        }
        // One that has ended may not be noted yet, although its job knows of it.
        let running = self.lanes.iter().filter_map(|lane| {
            let oldest = lane.handed.front();
            let own = oldest.filter(|handed| handed.iteration.session == session)?;
            Some(lane.until(own, now))
        });
        own.launches.extend(running);
        own.names = self.programs.iter().cloned().collect();
        false
    }
}
