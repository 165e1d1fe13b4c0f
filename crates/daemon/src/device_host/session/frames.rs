//! Frames of a job become operations in its session's window, or are dealt with at once.
//!
//! Regions and programs are looked up when a frame arrives, arrays when its operation's turn comes.
//! Compilations do not wait in the window.

use std::io;

use salus_channel::Received;
use salus_device::Device;
use salus_wire::{FromService, RequestId, ToService, limits};

use crate::device_host::errors::{invalid_argument, resource_exhausted};
use crate::device_host::session::SessionThread;
use crate::device_host::session::operations::Operation;
use crate::device_host::session::operations::launch::Launch;
use crate::device_host::session::operations::read::Read;

/// Why a session is ended on account of what its job sent.
pub(crate) enum Breach {
    /// The job's library is not ours, or has a bug.
    Protocol(String),
    /// The job holds as much as a job may hold.
    Limit(String),
}

impl From<String> for Breach {
    fn from(how: String) -> Self {
        Self::Protocol(how)
    }
}

impl From<&str> for Breach {
    fn from(how: &str) -> Self {
        Self::Protocol(how.to_owned())
    }
}

impl<D: Device> SessionThread<D> {
    /// Whether another frame may be taken. If not, the job waits in its own `send`.
    pub(super) fn accepts(&self) -> bool {
        self.window.has_room() && self.shared.reads_under_way() < limits::REQUESTS
    }

    /// Reads and decodes the frames that are there. False if the job is gone (it died, or closed
    /// its connection) or broke the protocol.
    pub(super) fn take_frames(&mut self) -> io::Result<bool> {
        while self.accepts() {
            let breach = match self.inbox.take::<ToService>() {
                Ok(Some(received)) => self.accept(received).err(),
                Ok(None) => match self.inbox.fill(&self.shared.socket, false) {
                    Ok(0) => return Ok(false),
                    Ok(_) => None,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                },
                Err(e) => Some(Breach::Protocol(e.to_string())),
            };
            let error = match breach {
                None => continue,
                Some(Breach::Protocol(how)) => {
                    invalid_argument(format!("the job's library broke the protocol: {how}"))
                }
                Some(Breach::Limit(message)) => resource_exhausted(message),
            };
            self.shared.refuse(error);
            return Ok(false);
        }
        Ok(true)
    }

    /// Takes one frame. An error ends the session.
    fn accept(&mut self, received: Received<ToService>) -> Result<(), Breach> {
        let operation = match received.message {
            ToService::Segment(segment) => {
                return self.segments.map(segment, received.descriptor);
            }
            ToService::SegmentGone(gone) => {
                self.segments.forget(gone.id);
                return Ok(());
            }
            ToService::Compile(compile) => return self.compile(compile),
            ToService::DropProgram(gone) => {
                self.drop_program(gone.program);
                return Ok(());
            }
            ToService::AskUsage(asked) => {
                let usage = self.usage(asked.request);
                self.shared.send(&FromService::from(usage), None);
                return Ok(());
            }
            ToService::AskProfile(asked) => {
                self.answer_profile(&asked);
                return Ok(());
            }
            ToService::Await(awaited) => {
                self.host.engine.note_read(self.shared.id);
                self.shared.operation_awaited(awaited.operation);
                return Ok(());
            }
            ToService::Upload(upload) => Operation::Upload {
                array: upload.array,
                shape: upload.shape,
                memory: upload.memory,
                data: self.segments.range(upload.data)?,
                again: None,
            },
            ToService::Launch(frame) => {
                let program = self.programs.get(frame.program);
                Operation::Launch(Launch::new(frame, program))
            }
            ToService::CopyArray(copy) => Operation::Copy {
                operation: copy.operation,
                array: copy.array,
                copy: copy.copy,
                memory: copy.memory,
            },
            ToService::ReadArray(read) => Operation::Read {
                array: read.array,
                read: Read {
                    request: read.request,
                    target: self.segments.range(read.target)?,
                    form: read.form,
                    is_begun: false,
                },
            },
            ToService::DropArrays(gone) => Operation::Drop(gone.arrays),
            ToService::Hello(_) | ToService::Command(_) => {
                return Err("a second first message".into());
            }
        };
        self.window.push_back(operation);
        Ok(())
    }

    /// What the session holds now, without operations that still wait.
    fn usage(&self, request: RequestId) -> salus_wire::Usage {
        self.host.engine.look(|engine, _| {
            let ledger = engine.ledger();
            let holding = ledger.holding(self.shared.id).copied().unwrap_or_default();
            let settings = engine.settings(self.shared.id);
            let memory_max = settings.and_then(|settings| settings.memory_max);
            salus_wire::Usage {
                request,
                bytes: holding.resident_bytes + holding.paged_bytes,
                peak_bytes: holding.peak_bytes,
                limit_bytes: memory_max.map_or(ledger.room().device_bytes, |max| max.get()),
            }
        })
    }
}
