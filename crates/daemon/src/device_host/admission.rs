//! What an operation needs of the device before it can be done: memory, and a turn for a launch.
//!
//! The operation at the head of a session's queue asks the engine once and is done, waits at the
//! head, or is refused with the numbers.

use salus_device::{Device, host_bytes};
use salus_engine::{Demand, Event, Lane, Refusal};
use salus_wire::Error;

use super::arrays::Slot;
use super::operations::{Operation, Operations, RESOURCE_EXHAUSTED};
use super::programs::Program;
use super::read::is_plain;
use super::session::{Answer, Session};

/// Arrays that are smaller do not change what a session needs.
const MUCH_BYTES: u64 = 1 << 20;

/// What becomes of an operation now.
pub(super) enum Admitted {
    Now(Lane),
    Later,
    Never(Error),
}

impl<D: Device> Operations<D> {
    /// Asks the engine for room and a turn, if the operation needs any and has not asked.
    pub(super) fn admit(&mut self, operation: &mut Operation<D>) -> Admitted {
        if self.announced.is_none() {
            let demand = match self.demand(operation) {
                Ok(Some(demand)) => demand,
                Ok(None) => return Admitted::Now(Lane(0)),
                Err(error) => return Admitted::Never(error),
            };
            if let Some(program) = demand.program() {
                self.recall(program);
            }
            self.announced = Some(demand);
            let session = self.session.id;
            let ready = Event::Ready { session, demand };
            self.host.scheduling.tell(ready, Some(session));
            if demand.new_bytes >= MUCH_BYTES {
                self.expect_pages();
            }
        }
        match self.session.take_answer() {
            None => Admitted::Later,
            Some(answer) => {
                self.announced = None;
                match answer {
                    Answer::Start(lane) => Admitted::Now(lane),
                    Answer::Refuse(why) => Admitted::Never(self.refusal(why)),
                }
            }
        }
    }

    /// Where the device fills up, this session may be the next to leave.
    fn expect_pages(&self) {
        let bytes = self.host.scheduling.look(|engine, _| {
            let ledger = engine.ledger();
            let holding = ledger.holding(self.session.id)?;
            let is_tight = ledger.resident_bytes() > ledger.room().device_bytes / 2;
            is_tight.then_some(holding.resident_bytes)
        });
        if let Some(bytes) = bytes {
            self.host.pages.expect(bytes);
        }
    }

    /// What the operation takes of the device; `None` if nothing.
    fn demand(&self, operation: &mut Operation<D>) -> Result<Option<Demand>, Error> {
        let array = |new_bytes, argument_bytes, absent_bytes| Demand {
            kind: salus_engine::Kind::Array,
            new_bytes,
            argument_bytes,
            absent_bytes,
        };
        Ok(match operation {
            Operation::Launch(launch) => Some(launch.prepare(self)?),
            Operation::Upload { shape, memory, .. } => {
                self.room(1)?;
                self.check_memory(*memory)?;
                Some(array(host_bytes(shape)? as u64, 0, 0))
            }
            Operation::Copy {
                array: from,
                memory,
                ..
            } => {
                self.room(1)?;
                self.check_memory(*memory)?;
                let from = self.held(*from)?;
                let bytes = from.charge_bytes();
                Some(array(bytes, bytes, from.absent_bytes()))
            }
            Operation::Read {
                array: id, form, ..
            } => match self.arrays.get(id) {
                Some(Slot::Paged(page)) if !is_plain(form, &page.shape) => {
                    let bytes = page.charge.bytes();
                    Some(array(0, bytes, bytes))
                }
                _ => None,
            },
            Operation::Drop(_) => None,
        })
    }

    /// Bytes of what the waiting operation needs that are paged out now.
    pub(super) fn absent_of(&self, operation: &Operation<D>) -> u64 {
        let id = match operation {
            Operation::Copy { array, .. } | Operation::Read { array, .. } => array,
            _ => return 0,
        };
        self.held(*id).map_or(0, |held| held.absent_bytes())
    }

    /// What gives back the turn in a lane that the engine was asked for, if it was a turn.
    pub(super) fn unused_turn(&self) -> Option<Event> {
        let demand = self.announced.filter(|demand| demand.program().is_some())?;
        Some(Event::DidNotRun {
            session: self.session.id,
            calling: demand.calling(),
        })
    }

    fn refusal(&self, why: Refusal) -> Error {
        let name = &self.session.identity.name;
        let message = match why {
            Refusal::TooLarge {
                needs_bytes,
                room_bytes,
            } => format!(
                "`{name}` needs {} at once (arguments, outputs and scratch), and the device has {} \
                 to share: it can never run here\n\nhint: smaller batches or models need less; \
                 `salus serve --memory` sets the device's share",
                show_beside(needs_bytes, room_bytes),
                show_beside(room_bytes, needs_bytes)
            ),
            Refusal::BeyondLimit {
                needs_bytes,
                memory_max,
            } => format!(
                "`{name}` would hold {}, and its limit is {}\n\nhint: `salus job {} memory-max` \
                 changes the limit while it runs",
                show_beside(needs_bytes, memory_max),
                show_beside(memory_max, needs_bytes),
                self.session.id.0
            ),
            Refusal::BeyondUserLimit {
                needs_bytes,
                user_max,
            } => format!(
                "{}'s sessions would hold {} together, and the limit for a user is {}\n\n\
                 hint: `salus ps` shows what they hold; `[limits] memory_per_user` of salus.toml \
                 sets the limit",
                self.session.identity.user,
                show_beside(needs_bytes, user_max),
                show_beside(user_max, needs_bytes)
            ),
            Refusal::NoRoom {
                needs_bytes,
                free_bytes,
                host_free_bytes,
            } => format!(
                "`{name}` needs {} more, {} of the device are free, and nothing can make room: \
                 the host has {} left for pages\n\nhint: `salus ps` shows who holds what; \
                 `salus serve --host-memory` gives more room",
                show_bytes(needs_bytes),
                show_bytes(free_bytes),
                show_bytes(host_free_bytes)
            ),
        };
        Error {
            code: RESOURCE_EXHAUSTED,
            message,
        }
    }
}

/// Why no launch of the program could ever be granted to the session, if that is certain: said when
/// it was compiled, not when everything has been prepared for it. What depends on which arrays it will
/// be given is left to the launch.
pub(super) fn never_fits<D: Device>(session: &Session<D>, program: &Program<D>) -> Option<Error> {
    let (arguments, outputs) = program.least_bytes();
    let scratch = program.scratch_bytes();
    let (room, memory_max) = session.host.scheduling.look(|engine, _| {
        let ledger = engine.ledger();
        let holding = ledger.holding(session.id);
        (ledger.room(), holding.and_then(|h| h.memory_max))
    });
    let held = arguments.saturating_add(outputs);
    let at_once = held.saturating_add(scratch);
    let what = format!(
        "`{}` of `{}`",
        program.signature.name, session.identity.name
    );
    let numbers = |least: u64, limit: u64| (show_beside(least, limit), show_beside(limit, least));
    let parts = format!(
        "{} of arguments, {} of further outputs",
        show_bytes(arguments),
        show_bytes(outputs)
    );
    let message = if at_once > room.device_bytes {
        let (least, has) = numbers(at_once, room.device_bytes);
        format!(
            "{what} needs at least {least} at once ({parts}, {} of scratch), and the device has {has} \
             to share: it can never run here\n\nhint: smaller batches or models need less; `salus serve \
             --memory` sets the device's share",
            show_bytes(scratch)
        )
    } else if let Some(max) = memory_max.filter(|max| held > *max) {
        let (least, limit) = numbers(held, max);
        format!(
            "{what} needs arrays of at least {least} ({parts}), and the session's limit is {limit}: it \
             cannot run\n\nhint: `salus job {} memory-max` changes the limit while it runs, `salus run \
             --memory-max` sets it",
            session.id.0
        )
    } else if let Some(max) = room.user_max.filter(|max| held > *max) {
        let (least, limit) = numbers(held, max);
        format!(
            "{what} needs arrays of at least {least} ({parts}), and the limit for a user is {limit}: it \
             cannot run\n\nhint: `[limits] memory_per_user` of salus.toml sets the limit"
        )
    } else {
        return None;
    };
    Some(Error {
        code: RESOURCE_EXHAUSTED,
        message,
    })
}

/// `1.30 GiB`.
pub(super) fn show_bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.2} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// The first of two sizes that are compared: exact where they would look the same.
fn show_beside(bytes: u64, other: u64) -> String {
    let shown = show_bytes(bytes);
    if bytes != other && shown == show_bytes(other) {
        return format!("{bytes} B");
    }
    shown
}
