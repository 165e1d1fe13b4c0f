//! The half of a session that belongs to its thread alone, and the thread's loop: take the frames
//! that are there, do what can be done, sleep.
//!
//! Operations are done in the order in which the job sent them. A launch at the head of the window
//! waits for the engine; what is behind it waits too, because it may depend on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use salus_channel::Inbox;
use salus_device::Device;
use salus_engine::{Demand, Event};
use salus_wire::{Error, ErrorCode, OperationId};

use crate::device_host::Host;
use crate::device_host::clocked_engine::Decided;
use crate::device_host::memory::array_table::ArrayTable;
use crate::device_host::memory::job_segments::JobSegments;
use crate::device_host::observe::profile::Allowance;
use crate::device_host::session::SharedSession;
use crate::device_host::session::compile::SessionPrograms;
use crate::device_host::session::mailbox::Failure;
use crate::device_host::session::operations::admission::Admitted;
use crate::device_host::session::operations::launch::InFlight;
use crate::device_host::session::window::Window;

pub(crate) struct SessionThread<D: Device> {
    pub(crate) shared: Arc<SharedSession<D>>,
    pub(crate) host: Arc<Host<D>>,
    pub(super) inbox: Inbox,
    pub(crate) window: Window<D>,
    /// What the operation at the head of the window has asked the engine for.
    pub(crate) announced: Option<Demand>,
    /// Decisions of the engine that were not acted on yet.
    pub(super) decided: Decided,
    pub(crate) arrays: ArrayTable<D>,
    pub(super) programs: SessionPrograms<D>,
    pub(super) segments: JobSegments,
    /// The program of the last launch, while the engine has no estimate from earlier runs.
    pub(super) without_estimate: Option<salus_engine::Program>,
    /// Launches that the device has.
    pub(crate) in_flight: HashMap<OperationId, InFlight<D>>,
    /// A launch that may have to run again: nothing is done before it has ended.
    pub(crate) awaits: Option<OperationId>,
    /// Launches that failed on the device and were not dealt with yet.
    pub(crate) failures: Vec<Failure>,
    pub(crate) profiles: Allowance,
}

impl<D: Device> SessionThread<D> {
    pub(super) fn new(shared: Arc<SharedSession<D>>) -> Self {
        Self {
            host: Arc::clone(&shared.host),
            inbox: Inbox::default(),
            window: Window::new(),
            announced: None,
            decided: Decided::default(),
            arrays: ArrayTable::new(),
            programs: SessionPrograms::new(),
            segments: JobSegments::new(shared.host.pins()),
            without_estimate: Some(salus_engine::Program::default()),
            in_flight: HashMap::new(),
            awaits: None,
            failures: Vec::new(),
            profiles: Allowance::full(Instant::now()),
            shared,
        }
    }

    /// Serves the job until it is gone, then frees what it held.
    pub(super) fn run(mut self) {
        while let Ok(true) = self.take_frames() {
            self.progress();
            if self.shared.sleep(self.accepts()).is_err() {
                break;
            }
            if self.shared.is_killed() {
                let why = "the job was ended with `salus job`";
                self.shared.refuse(Error::new(ErrorCode::Cancelled, why));
                break;
            }
        }
        self.end();
    }

    /// Does what can be done now.
    fn progress(&mut self) {
        let mail = self.shared.mailbox.take();
        self.decided.merge(mail.decided);
        for launch in mail.called_back {
            launch.add_outputs(self);
        }
        for read in mail.reads {
            read();
        }
        self.launches_ended(&mail.ended);
        loop {
            // The engine may decide this in answer to any event.
            self.move_as_decided();
            self.handle_failures();
            if self.awaits.is_some() {
                return;
            }
            let Some(mut operation) = self.window.pop_front() else {
                return;
            };
            match self.admit(&mut operation) {
                Admitted::AtOnce => self.perform_at_once(operation),
                Admitted::InLane(lane) => self.perform(operation, lane.0),
                Admitted::Never(error) => self.refuse(operation, error),
                Admitted::Later => {
                    self.window.push_front(operation);
                    let moved = self.move_as_decided();
                    let failed = !self.failures.is_empty();
                    if !moved && !failed && self.decided.verdict.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Tells the engine something; what it decides about this session is in `decided` afterwards.
    pub(crate) fn tell(&mut self, event: Event) {
        let decided = self.host.engine.tell_from(self.shared.id, event);
        self.decided.merge(decided);
    }

    /// Adds the decisions that other threads brought about, and the launches that failed.
    pub(crate) fn take_decisions(&mut self) {
        if let Some(urgent) = self.shared.mailbox.take_urgent() {
            self.decided.merge(urgent.decided);
            self.failures.extend(urgent.failed);
            self.launches_ended(&urgent.ended);
        }
    }

    /// Lets go of what was kept until these launches have ended.
    fn launches_ended(&mut self, ended: &[OperationId]) {
        for operation in ended {
            self.in_flight.remove(operation);
            self.awaits = self.awaits.filter(|awaited| awaited != operation);
        }
    }

    /// Pages in and out what the engine has decided. False if that is nothing.
    fn move_as_decided(&mut self) -> bool {
        let mut any = false;
        loop {
            self.take_decisions();
            // It was decided before anything was to be paged out.
            if let Some(lane) = self.decided.page_in.take() {
                self.page_in_ahead(lane.0);
                any = true;
            }
            let Some(bytes) = self.decided.page_out.take() else {
                return any;
            };
            self.page_out(bytes);
            any = true;
        }
    }
}
