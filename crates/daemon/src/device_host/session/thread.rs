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
use crate::device_host::memory::arrays::Entry;
use crate::device_host::memory::job_segments::JobSegments;
use crate::device_host::observe::profile::Allowance;
use crate::device_host::session::SharedSession;
use crate::device_host::session::compile::SessionPrograms;
use crate::device_host::session::operations::admission::Admitted;
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
    /// Donated arguments by the launch that runs: dropping one would block until its launch ends.
    pub(super) donated: HashMap<OperationId, Vec<Arc<Entry<D>>>>,
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
            donated: HashMap::new(),
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
        for operation in mail.ended {
            self.donated.remove(&operation);
        }
        loop {
            // The engine may decide this in answer to any event.
            self.page_out_as_decided();
            let Some(mut operation) = self.window.pop_front() else {
                return;
            };
            match self.admit(&mut operation) {
                Admitted::AtOnce => self.perform_at_once(operation),
                Admitted::InLane(lane) => self.perform(operation, lane.0),
                Admitted::Never(error) => self.refuse(operation, error),
                Admitted::Later => {
                    self.window.push_front(operation);
                    let paged_out = self.page_out_as_decided();
                    if !paged_out && self.decided.verdict.is_none() {
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

    /// Adds the decisions that other threads brought about.
    pub(super) fn take_decisions(&mut self) {
        self.decided.merge(self.shared.mailbox.take_decided());
    }

    /// Pages out what the engine has decided. False if that is nothing.
    fn page_out_as_decided(&mut self) -> bool {
        let mut any = false;
        loop {
            self.take_decisions();
            let Some(bytes) = self.decided.page_out.take() else {
                return any;
            };
            self.page_out(bytes);
            any = true;
        }
    }
}
