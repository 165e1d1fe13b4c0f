//! What holds for the swarm beyond what always holds: bounds on waiting, and what is left at the end.

use salus_engine::{AGING_LIMIT, MIN_RESIDENCY_MAX, Refusal, SessionId};
use salus_sim::lacks;

use crate::jobs::{CALLBACK_MAX_NS, CALLBACKS_MAX, CallsBack, Job, MOVE_MAX_NS, STEP_MAX_NS};
use crate::swarm::Swarm;

impl Swarm {
    /// Each needs those before it to run and to be paged out. Those are all, where they share the
    /// device; else a policy may put others before it until it has waited for long.
    fn bound_ns(&self) -> u64 {
        let jobs = || self.jobs.values();
        let aging = if self.gives_shares { 0 } else { AGING_LIMIT.0 };
        // What calls back lasts longer, and those whose callbacks wait for others' memory may have to
        // be refused, one after the other.
        let calls = jobs().any(|job| job.calls != CallsBack::Never);
        let nested = |job: &&Job| job.calls == CallsBack::Nested;
        let nested = jobs().filter(nested).count() as u64;
        let callbacks = if calls {
            CALLBACKS_MAX * CALLBACK_MAX_NS
        } else {
            0
        };
        let turn = MIN_RESIDENCY_MAX.0 + 4 * (STEP_MAX_NS + callbacks) + 2 * MOVE_MAX_NS;
        let count = jobs().count() as u64 + 1;
        // Where jobs want host memory, each may have waited for that.
        let host = if self.separate { AGING_LIMIT.0 } else { 0 };
        aging + host + nested * AGING_LIMIT.0 + 2 * count * turn
    }

    pub(crate) fn check_bound(&self) {
        if !self.fits || self.silent_after.is_some() {
            return;
        }
        let bound = self.bound_ns();
        let held: Vec<u64> = self.simulation.held_back().collect();
        for (id, session) in self.simulation.sessions() {
            let Some((_, since)) = session.request.filter(|_| !held.contains(&id)) else {
                continue;
            };
            let waits = (self.simulation.now() - since).0;
            let why = self.simulation.why(id);
            assert!(
                waits <= bound,
                "job {id} waits for {waits} ns, {bound} is the bound: {why:?}"
            );
        }
    }

    /// The simulation counts bytes as the jobs do array by array.
    pub(crate) fn check_arrays(&self) {
        for (id, job) in &self.jobs {
            if self.simulation.is_open(*id) {
                let session = self.simulation.session(*id);
                let counted = (session.resident_bytes, session.paged_bytes);
                assert_eq!(counted, (job.held(false), job.held(true)), "job {id}");
                assert_eq!(session.host_bytes, job.host_bytes, "job {id}");
            }
        }
    }

    /// Where everything fits and can be moved, nobody is refused for want of room.
    pub(crate) fn check_refusal(&self, id: u64, why: Refusal) {
        if let Refusal::NoRoom { .. } = why {
            let mut arrays = self.jobs.values().flat_map(|job| &job.arrays);
            let pinned = arrays.any(|array| array.pinned);
            // What waits for its job cannot be paged out, either.
            let sessions = self.simulation.sessions();
            let mut running = sessions.flat_map(|(_, session)| &session.running);
            let in_callback = running.any(|it| it.in_callback);
            assert!(
                !self.fits || pinned || in_callback,
                "all fits, and {id} was refused"
            );
        }
    }

    /// Nothing happens any more. Who still waits does not fit, and the oldest would not fit if all
    /// others had moved what they can, or the host has no room for that.
    pub(crate) fn check_nobody_waits_for_nothing(&self) {
        let free = self.simulation.ledger().free_bytes();
        let held: Vec<u64> = self.simulation.held_back().collect();
        let served = self.simulation.sessions();
        let served = served.filter(|(id, _)| !held.contains(id));
        let waiting = served.filter_map(|(id, session)| Some((id, session.request?)));
        let waiting: Vec<_> = waiting.collect();
        let host_free = self.simulation.ledger().host_free_bytes();
        for (id, (demand, _)) in &waiting {
            let fits = lacks(demand) <= free && demand.new_host_bytes <= host_free;
            assert!(!fits, "job {id} fits and waits forever");
        }
        // Several that are let go at once are equally old.
        let Some(since) = waiting.iter().map(|(_, (_, since))| *since).min() else {
            return;
        };
        let mut oldest = waiting.iter().filter(|(_, (_, asked))| *asked == since);
        assert!(
            oldest.any(|(id, (demand, _))| !self.could_be_served(*id, lacks(demand))),
            "the oldest of {waiting:?} wait forever, and others could be paged out"
        );
    }

    /// Whether there would be room for the job if all others had moved what they can.
    fn could_be_served(&self, id: u64, lacks_bytes: u64) -> bool {
        let ledger = self.simulation.ledger();
        // What waits for its job cannot be paged out.
        let others = self.jobs.iter().filter(|(other, _)| {
            let running = &self.simulation.session(**other).running;
            **other != id && running.is_empty()
        });
        let arrays = others.flat_map(|(_, job)| &job.arrays);
        let movable = arrays.filter(|array| !array.paged && !array.pinned);
        let movable: u64 = movable.map(|array| array.bytes).sum();
        lacks_bytes <= ledger.free_bytes() + movable && movable <= ledger.host_free_bytes()
    }

    pub(crate) fn check_nothing_is_left(&self) {
        let engine = self.simulation.engine();
        assert!(
            self.jobs.is_empty(),
            "{:?} never ended, {engine:?}",
            self.jobs
        );
        let ledger = self.simulation.ledger();
        let left = (
            ledger.resident_bytes(),
            ledger.paged_bytes() + ledger.host_bytes(),
            ledger.scratch_bytes(),
        );
        assert_eq!(left, (0, 0, 0), "bytes were lost");
        assert_eq!(ledger.holdings().count(), 0);
        let account = engine.account(SessionId(1));
        assert!(account.is_none(), "{account:?}");
    }
}
