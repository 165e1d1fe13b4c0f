//! A session's settings change while it runs.

use salus_device::Device;
use salus_engine::{Event, SessionId};
use salus_wire::Change;

use crate::device_host::Host;

/// Changes a session; one that is gone is not missed.
pub(crate) fn change<D: Device>(host: &Host<D>, session: SessionId, change: Change) {
    let engine = &host.engine;
    match change {
        Change::MemoryMax(bytes) => {
            let memory_max = host.session_limit(bytes);
            engine.change_settings(session, |settings| settings.memory_max = memory_max);
        }
        Change::Weight(weight) => {
            engine.change_settings(session, |settings| settings.weight = weight);
        }
        Change::Priority(priority) => {
            engine.change_settings(session, |settings| settings.priority = priority);
        }
        Change::Deadline(deadline) => {
            engine.change_settings(session, |settings| settings.deadline = deadline);
        }
        Change::Pause => engine.tell_of(session, Event::Paused { session }),
        Change::Resume => engine.tell_of(session, Event::Resumed { session }),
        // The supervisor does more than that.
        Change::Kill | Change::KillNow => engine.kill(session),
    }
}
