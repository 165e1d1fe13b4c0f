//! Reads: an array's bytes to the job's memory.
//!
//! Small arrays are copied, and the read answered, by the thread that made them ready; long copies are
//! left to the session's thread, because the plugin's threads compute.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use salus_device::{Device, Done, ReadForm, Shape};
use salus_wire::{Error, Form, FromService, ReadDone, RequestId};

use crate::device_host::Host;
use crate::device_host::errors::invalid_argument;
use crate::device_host::memory::arrays::{Entry, Kind, Page};
use crate::device_host::memory::shared_range::SharedRange;
use crate::device_host::session::SharedSession;

/// Copies up to this size take about 10 µs.
const SHORT_BYTES_MAX: usize = 64 << 10;

pub(crate) struct Read {
    pub(crate) request: RequestId,
    pub(crate) target: SharedRange,
    pub(crate) form: Form,
}

impl Read {
    pub(crate) fn begin<D: Device>(
        self,
        session: &Arc<SharedSession<D>>,
        host: &Arc<Host<D>>,
        entry: Result<Arc<Entry<D>>, Error>,
    ) {
        session.read_begins();
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return self.answer(session, Err(error)),
        };
        if self.form == Form::Raw && entry.bytes() != self.target.len() as u64 {
            let error = wrong_size(entry.bytes(), self.target.len());
            return self.answer(session, Err(error));
        }
        entry.readers.fetch_add(1, SeqCst);
        let (session, host) = (Arc::clone(session), Arc::clone(host));
        let (array, owner) = (Arc::clone(&entry), Arc::clone(&session));
        let ready: Done = Box::new(move |result: Result<(), Error>| {
            if let Err(error) = result {
                entry.readers.fetch_sub(1, SeqCst);
                session.read_let_go();
                return self.answer(&session, Err(error));
            }
            if self.target.len() <= SHORT_BYTES_MAX {
                return self.copy(session, &host, entry);
            }
            let owner = Arc::clone(&session);
            owner.leave_read(Box::new(move || self.copy(session, &host, entry)));
        });
        let not_running = match array.kind {
            Kind::Output { operation, .. } => owner.when_ended(operation, ready),
            Kind::Own { .. } => Err(ready),
        };
        if let Err(ready) = not_running {
            array.device().on_ready(&array.array, ready);
        }
    }

    /// Answers from the array's page: it need not be paged in for that.
    pub(crate) fn answer_from<D: Device>(self, session: &SharedSession<D>, page: &Page<D>) {
        session.read_begins();
        let (have, wanted) = (page.memory.len(), self.target.len());
        let result = if have == wanted {
            page.memory.bytes().copy_to(self.target.bytes());
            Ok(())
        } else {
            Err(wrong_size(have as u64, wanted))
        };
        self.answer(session, result);
    }

    fn copy<D: Device>(
        self,
        session: Arc<SharedSession<D>>,
        host: &Arc<Host<D>>,
        entry: Arc<Entry<D>>,
    ) {
        let target = Box::new(self.target.memory());
        let form = match &self.form {
            Form::Raw => ReadForm::Raw,
            Form::Host { minor_to_major } => ReadForm::Host {
                minor_to_major: minor_to_major.clone(),
            },
        };
        let array = Arc::clone(&entry);
        let done = Box::new(move |result| {
            entry.readers.fetch_sub(1, SeqCst);
            session.read_let_go();
            self.answer(&session, result);
        });
        host.device.read(&array.array, target, &form, done);
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
