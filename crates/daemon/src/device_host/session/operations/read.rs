//! Reads: an array's bytes to the job's memory.
//!
//! Small arrays are copied, and the read answered, by the thread that made them ready; long copies are
//! left to the session's thread, because the plugin's threads compute.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use salus_device::{Device, ReadForm, Shape};
use salus_wire::{ArrayId, Error, Form, FromService, ReadDone, RequestId};

use crate::device_host::errors::invalid_argument;
use crate::device_host::memory::arrays::{Entry, Kind, Page};
use crate::device_host::memory::shared_range::SharedRange;
use crate::device_host::session::SharedSession;
use crate::device_host::session::operations::Operation;

/// Copies up to this size take about 10 µs.
const SHORT_BYTES_MAX: usize = 64 << 10;

pub(crate) struct Read {
    pub(crate) request: RequestId,
    pub(crate) target: SharedRange,
    pub(crate) form: Form,
    /// It was begun before, and taken back with the launch that it waited for.
    pub(crate) is_begun: bool,
}

/// A read that waits until its array is there.
pub(crate) struct WaitingRead<D: Device> {
    read: Read,
    array: ArrayId,
    entry: Arc<Entry<D>>,
    session: Arc<SharedSession<D>>,
}

impl<D: Device> WaitingRead<D> {
    /// The array is there, or failed.
    pub(crate) fn go_on(self, result: Result<(), Error>) {
        let Self {
            read,
            entry,
            session,
            ..
        } = self;
        if let Err(error) = result {
            entry.readers.fetch_sub(1, SeqCst);
            session.read_let_go();
            return read.answer(&session, Err(error));
        }
        if read.target.len() <= SHORT_BYTES_MAX {
            return read.copy(session, entry);
        }
        let owner = Arc::clone(&session);
        owner.leave_read(Box::new(move || read.copy(session, entry)));
    }

    /// The launch that makes the array runs again: the read goes back behind it.
    pub(crate) fn take_back(self) -> Operation<D> {
        self.entry.readers.fetch_sub(1, SeqCst);
        self.session.read_let_go();
        Operation::Read {
            array: self.array,
            read: self.read,
        }
    }
}

impl Read {
    pub(crate) fn begin<D: Device>(
        mut self,
        session: &Arc<SharedSession<D>>,
        array: ArrayId,
        entry: Result<Arc<Entry<D>>, Error>,
    ) {
        self.note_begun(session);
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return self.answer(session, Err(error)),
        };
        if self.form == Form::Raw && entry.bytes() != self.target.len() as u64 {
            let error = wrong_size(entry.bytes(), self.target.len());
            return self.answer(session, Err(error));
        }
        entry.readers.fetch_add(1, SeqCst);
        let waiting = WaitingRead {
            read: self,
            array,
            entry: Arc::clone(&entry),
            session: Arc::clone(session),
        };
        let not_running = match entry.kind {
            Kind::Output { operation, .. } => session.when_ended(operation, waiting),
            Kind::Own { .. } => Err(waiting),
        };
        if let Err(waiting) = not_running {
            let ready = Box::new(move |result| waiting.go_on(result));
            entry.device().on_ready(&entry.array, ready);
        }
    }

    fn note_begun<D: Device>(&mut self, session: &SharedSession<D>) {
        if !std::mem::replace(&mut self.is_begun, true) {
            session.read_begins();
            session.host.engine.note_read(session.id);
        }
    }

    /// Answers from the array's page: it need not be paged in for that.
    pub(crate) fn answer_from<D: Device>(mut self, session: &SharedSession<D>, page: &Page<D>) {
        self.note_begun(session);
        let (have, wanted) = (page.memory.len(), self.target.len());
        let result = if have == wanted {
            page.memory.bytes().copy_to(self.target.bytes());
            Ok(())
        } else {
            Err(wrong_size(have as u64, wanted))
        };
        self.answer(session, result);
    }

    fn copy<D: Device>(self, session: Arc<SharedSession<D>>, entry: Arc<Entry<D>>) {
        let target = Box::new(self.target.memory());
        let form = match &self.form {
            Form::Raw => ReadForm::Raw,
            Form::Host { minor_to_major } => ReadForm::Host {
                minor_to_major: minor_to_major.clone(),
            },
        };
        let array = Arc::clone(&entry);
        let done = Box::new(move |result: Result<(), Error>| {
            entry.readers.fetch_sub(1, SeqCst);
            session.read_let_go();
            if let Err(error) = &result {
                session.host.device_failed(session.id, None, error);
            }
            self.answer(&session, result);
        });
        array.device().read(&array.array, target, &form, done);
    }

    fn answer<D: Device>(&self, session: &SharedSession<D>, result: Result<(), Error>) {
        let done = ReadDone {
            request: self.request,
            error: result.err(),
        };
        session.read_ended(&FromService::from(done));
    }
}

fn wrong_size(have: u64, wanted: usize) -> Error {
    invalid_argument(format!(
        "an array of {have} bytes cannot be read into {wanted} bytes"
    ))
}

/// Whether a read of this form is a plain copy of the array's page, which is dense and row-major.
pub(crate) fn is_plain(form: &Form, shape: &Shape) -> bool {
    match form {
        Form::Raw => true,
        Form::Host { minor_to_major } => {
            let rows = (0..shape.dims.len() as i64).rev();
            minor_to_major.iter().copied().eq(rows)
        }
    }
}
