//! One session's launches, for the profiler of its job.
//!
//! The records are always there, so a profile costs nothing until it is asked for: then the ring is
//! read, part by part, and the session's own records are copied.

use salus_engine::{Program, SessionId, Time};
use salus_wire::{Profile, ProfiledLaunch};

use super::Recorder;
use super::recording::PART_RECORDS;
use super::ring::{Iteration, Record};

/// The launches of one session that had not ended at a time.
pub(crate) struct Own {
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
    pub(crate) fn new(session: SessionId, since: Time) -> Self {
        Self {
            session,
            since,
            from: since,
            next: 0,
            launches: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Reserves memory for the next part, so that nothing but reading is done under the lock.
    pub(crate) fn reserve(&mut self) {
        self.launches.reserve(PART_RECORDS);
    }

    /// The profile as it is sent, with times by the job's clock.
    pub(crate) fn profile(mut self, unix_ns: impl Fn(Time) -> u64) -> Profile {
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
    /// Reads the next part of the records. False at their end, when it has also added the iterations
    /// that run and the names of programs.
    pub(crate) fn look_through(&self, now: Time, own: &mut Own) -> bool {
        let oldest = self.ring.oldest();
        if own.next < oldest {
            // Records that were overwritten, now or before, are not known.
            own.next = oldest;
            let mut timely = self.ring.some(oldest, PART_RECORDS).iter();
            let first = timely.find(|record| !matches!(record, Record::Memory(_)));
            own.from = own.from.max(first.map_or(now, Record::ended));
        }
        let part = self.ring.some(own.next, PART_RECORDS);
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
        own.launches.extend(self.lanes.oldest_of(session, now));
        own.names = self.programs.iter().cloned().collect();
        false
    }
}
