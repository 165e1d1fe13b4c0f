//! What an operation needs of the device before it can be done: memory, and a turn for a launch.
//!
//! The operation at the head of a session's window asks the engine once; then it is done, waits at the
//! head, or is refused. Reads and drops need nothing of the engine as a rule, and do not ask.

use salus_device::{Device, host_bytes, is_host_memory};
use salus_engine::{Demand, Event, Lane};
use salus_wire::Error;

use crate::device_host::clocked_engine::Verdict;
use crate::device_host::session::SessionThread;
use crate::device_host::session::operations::Operation;
use crate::device_host::session::operations::refusals::refusal;

/// A request for less new memory does not bring the session closer to being paged out.
const LARGE_REQUEST_BYTES: u64 = 1 << 20;

/// What happens to an operation now.
pub(crate) enum Admitted {
    /// It needs nothing of the engine.
    AtOnce,
    /// Its memory is reserved in this lane, and if it is a launch, its turn has come.
    InLane(Lane),
    /// It waits for the engine.
    Later,
    Never(Error),
}

impl<D: Device> SessionThread<D> {
    /// Asks the engine for memory and a turn, if the operation needs any and has not asked.
    pub(crate) fn admit(&mut self, operation: &mut Operation<D>) -> Admitted {
        if self.announced.is_none() {
            if let Operation::Launch(launch) = &*operation
                && launch.must_wait_for_reads(self)
            {
                return Admitted::Later;
            }
            let demand = match self.demand(operation) {
                Ok(Some(demand)) => demand,
                Ok(None) => return Admitted::AtOnce,
                Err(error) => return Admitted::Never(error),
            };
            if let Some(program) = demand.program() {
                self.estimate_from_earlier_runs(program);
            }
            self.announced = Some(demand);
            let session = self.shared.id;
            self.tell(Event::Ready { session, demand });
            if demand.new_bytes >= LARGE_REQUEST_BYTES {
                self.prepare_pages();
            }
        }
        let Some(verdict) = self.decided.verdict.take() else {
            return Admitted::Later;
        };
        self.announced = None;
        match verdict {
            Verdict::Start(lane) => Admitted::InLane(lane),
            Verdict::Refuse(why) => Admitted::Never(refusal(&self.shared, why)),
        }
    }

    /// Before the first launch of a program: if earlier jobs ran it, tells the engine how much device
    /// time they used.
    fn estimate_from_earlier_runs(&mut self, program: salus_engine::Program) {
        if self.without_estimate.is_none() || self.without_estimate == Some(program) {
            return;
        }
        self.without_estimate = Some(program);
        if let Some(total) = self.host.earlier_runs.device_time(program) {
            self.without_estimate = None;
            let session = self.shared.id;
            self.tell(Event::EstimatedFromHistory { session, total });
        }
    }

    /// Has host memory prepared for this session's arrays if the device is filling up, because then
    /// this session may be paged out next.
    fn prepare_pages(&self) {
        let bytes = self.host.engine.look(|engine, _| {
            let ledger = engine.ledger();
            let holding = ledger.holding(self.shared.id)?;
            let is_tight = ledger.resident_bytes() > ledger.room().device_bytes / 2;
            is_tight.then_some(holding.resident_bytes)
        });
        if let Some(bytes) = bytes {
            self.host.pages.expect(bytes);
        }
    }

    /// What the operation takes of the device; `None` if nothing.
    fn demand(&self, operation: &mut Operation<D>) -> Result<Option<Demand>, Error> {
        let array = |argument_bytes, paged_bytes| Demand {
            kind: salus_engine::Kind::Array,
            new_bytes: 0,
            new_host_bytes: 0,
            argument_bytes,
            paged_bytes,
        };
        let in_memory = |memory, bytes, demand| {
            let description = self.host.device.description();
            match is_host_memory(description, memory) {
                true => Demand {
                    new_host_bytes: bytes,
                    ..demand
                },
                false => Demand {
                    new_bytes: bytes,
                    ..demand
                },
            }
        };
        Ok(match operation {
            Operation::Launch(launch) => Some(launch.prepare(self)?),
            Operation::Upload {
                shape,
                memory,
                again,
                ..
            } => {
                self.arrays.check_room(1)?;
                self.check_memory(*memory)?;
                let bytes = self.host.charged_bytes(*memory, host_bytes(shape)? as u64);
                let extra = again.as_ref().map_or(0, |again| again.extra_bytes);
                Some(in_memory(*memory, bytes + extra, array(0, 0)))
            }
            Operation::Copy {
                array: from,
                memory,
                ..
            } => {
                self.arrays.check_room(1)?;
                self.check_memory(*memory)?;
                let from = self.arrays.held(*from)?;
                let arguments = array(from.device_bytes(), from.paged_bytes());
                Some(in_memory(*memory, from.charge_bytes(), arguments))
            }
            Operation::Read { array: id, read } if self.must_page_in(*id, &read.form) => {
                let held = self.arrays.held(*id)?;
                Some(array(held.charge_bytes(), held.paged_bytes()))
            }
            Operation::Read { .. } | Operation::Drop(_) => None,
        })
    }

    /// Bytes of what the waiting operation needs that are paged out now.
    pub(crate) fn paged_bytes_of(&self, operation: &Operation<D>) -> u64 {
        let id = match operation {
            Operation::Copy { array, .. } | Operation::Read { array, .. } => array,
            _ => return 0,
        };
        self.arrays.held(*id).map_or(0, |held| held.paged_bytes())
    }

    /// Takes back what the operation at the head of the window has asked for, because another one is to
    /// go before it. What was granted meanwhile is given back; it asks again when it is its turn.
    pub(crate) fn take_back_request(&mut self) {
        let Some(demand) = self.announced else {
            return;
        };
        let session = self.shared.id;
        self.tell(Event::Withdrew { session });
        // After this nothing is granted; what was granted before has been taken from the ledger.
        self.take_decisions();
        if let Some(lane) = self.decided.page_in.take() {
            self.page_in_head(lane.0);
        }
        let granted = self.decided.verdict.take();
        if let Some(Verdict::Start(lane)) = granted {
            self.page_in_head(lane.0);
            self.tell(Event::Released {
                session,
                resident_bytes: demand.new_bytes,
                paged_bytes: 0,
                host_bytes: demand.new_host_bytes,
            });
            if let Some(unused) = self.unused_turn() {
                self.tell(unused);
            }
        }
        self.announced = None;
        if let Some(Operation::Launch(launch)) = self.window.front_mut() {
            launch.release_arguments();
        }
    }

    /// The ledger has the head's arguments on the device, so they go there.
    fn page_in_head(&mut self, lane: u32) {
        let ids = match self.window.front() {
            Some(Operation::Launch(launch)) => launch.argument_ids().to_vec(),
            Some(Operation::Copy { array, .. } | Operation::Read { array, .. }) => vec![*array],
            Some(Operation::Upload { .. } | Operation::Drop(_)) | None => Vec::new(),
        };
        for id in ids {
            // One that cannot be paged in holds the error.
            let _ = self.page_in(id, lane);
        }
    }

    /// The event that gives back the turn that was asked for, if it was a turn.
    pub(crate) fn unused_turn(&self) -> Option<Event> {
        let demand = self.announced.filter(|demand| demand.program().is_some())?;
        Some(Event::DidNotRun {
            session: self.shared.id,
            calling: demand.calling(),
        })
    }
}
