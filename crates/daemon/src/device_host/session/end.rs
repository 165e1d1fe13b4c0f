//! The end of a session: its job died or disconnected, broke the protocol, or was killed.
//!
//! A job's death shows as the end of its socket, which the kernel closes with the process.
//!
//! Promise: everything that the job held is freed: its arrays, pages, programs, its request to the
//! engine, and compilations that only it waited for. A launch that runs cannot be stopped, so its end
//! is awaited first; other sessions go on meanwhile.

use std::sync::Arc;

use salus_device::Device;
use salus_engine::{Engine, Event};
use salus_wire::SessionClosed;

use crate::device_host::Host;
use crate::device_host::clocked_engine::Verdict;
use crate::device_host::session::{SessionThread, SharedSession};
use crate::heap;

/// A job with fewer iterations says nothing about later ones.
const EARLIER_RUN_ITERATIONS: u64 = 10;

impl<D: Device> SessionThread<D> {
    /// Frees everything that the session holds.
    pub(super) fn end(mut self) {
        let session = Arc::clone(&self.shared);
        let host = Arc::clone(&self.host);
        session.begin_end();
        host.programs.withdraw(session.identity.uid, session.id);
        self.withdraw_request();
        self.window.clear();
        // None is run again.
        self.handle_failures();
        session.sleep_until_launches_ended();
        let held_bytes = resident_bytes(&session);
        drop(self);
        session.mailbox.close();
        host.programs.unload_unused();
        heap::trim(held_bytes);
        host.drift_bytes();
        note_run(&session, &host);
        host.engine.close(session.id);
        let session = session.id.0;
        host.supervisor.send(SessionClosed { session });
    }

    /// Takes back what the operation at the head of the window has asked the engine for.
    fn withdraw_request(&mut self) {
        let session = self.shared.id;
        self.tell(Event::Withdrew { session });
        // A turn that was granted before is given back unused; after `Withdrew` none is granted.
        self.take_decisions();
        let granted = matches!(self.decided.verdict, Some(Verdict::Start(_)));
        if granted || self.decided.page_in.is_some() {
            self.count_as_paged_in();
        }
        if let Some(unused) = self.unused_turn().filter(|_| granted) {
            self.tell(unused);
        }
        self.announced = None;
    }
}

fn resident_bytes<D: Device>(session: &SharedSession<D>) -> u64 {
    let held = |engine: &Engine, _| engine.ledger().holding(session.id).copied();
    let holding = session.host.engine.look(held);
    holding.map_or(0, |holding| holding.resident_bytes)
}

/// Notes how much device time the job used, as an estimate for later jobs that run its program.
fn note_run<D: Device>(session: &SharedSession<D>, host: &Host<D>) {
    let used = host.engine.look(|engine, _| {
        let account = engine.account(session.id)?;
        let program = engine.main_program(session.id)?;
        let long_enough = account.iterations >= EARLIER_RUN_ITERATIONS;
        long_enough.then_some((program, account.device_time))
    });
    if let Some((program, device_time)) = used {
        host.earlier_runs.note(program, device_time);
    }
}
