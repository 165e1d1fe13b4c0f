//! Reading an array into the job's memory.
//!
//! Small arrays are copied and answered by the thread that made them ready; long copies are left to
//! the session's thread, because the plugin's threads compute.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use salus_device::{Device, Done, HostTarget, ReadForm, Shape};
use salus_wire::{Error, Fetched, Form, FromService};

use super::Host;
use super::arrays::{Entry, Kind, Page};
use super::operations::{INVALID_ARGUMENT, Range};
use super::session::Session;

/// Copied within about 10 µs.
const SHORT_BYTES: u64 = 64 << 10;

pub(super) struct Read {
    pub(super) request: u64,
    pub(super) target: Range,
    pub(super) form: Form,
}

impl Read {
    pub(super) fn begin<D: Device>(
        self,
        session: &Arc<Session<D>>,
        host: &Arc<Host<D>>,
        entry: Result<Arc<Entry<D>>, Error>,
    ) {
        session.read_begins();
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return self.answer(session, Err(error)),
        };
        if self.form == Form::Raw && entry.bytes() != self.target.region.length {
            let error = wrong_size(entry.bytes(), self.target.region.length);
            return self.answer(session, Err(error));
        }
        entry.readers.fetch_add(1, Acquire);
        let (session, host) = (Arc::clone(session), Arc::clone(host));
        let (array, owner) = (Arc::clone(&entry), Arc::clone(&session));
        let ready: Done = Box::new(move |result: Result<(), Error>| {
            if let Err(error) = result {
                entry.readers.fetch_sub(1, Release);
                return self.answer(&session, Err(error));
            }
            if self.target.region.length <= SHORT_BYTES {
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

    /// From host memory, where the array is: it need not come back for that.
    pub(super) fn answer_from<D: Device>(self, session: &Session<D>, page: &Page<D>) {
        session.read_begins();
        let (have, wanted) = (page.place.len(), self.target.region.length as usize);
        let result = if have == wanted {
            page.place.copy_to(self.target.address());
            Ok(())
        } else {
            Err(wrong_size(have as u64, wanted as u64))
        };
        self.answer(session, result);
    }

    fn copy<D: Device>(self, session: Arc<Session<D>>, host: &Arc<Host<D>>, entry: Arc<Entry<D>>) {
        let target = HostTarget {
            address: self.target.address(),
            len: self.target.region.length as usize,
            keep: Box::new(self.target.clone()),
        };
        let form = match &self.form {
            Form::Raw => ReadForm::Raw,
            Form::Host { minor_to_major } => ReadForm::Host {
                minor_to_major: minor_to_major.clone(),
            },
        };
        let array = Arc::clone(&entry);
        let done = Box::new(move |result| {
            entry.readers.fetch_sub(1, Release);
            self.answer(&session, result);
        });
        host.device.read(&array.array, target, &form, done);
    }

    fn answer<D: Device>(&self, session: &Session<D>, result: Result<(), Error>) {
        let fetched = Fetched {
            request: self.request,
            error: result.err(),
        };
        session.read_ended(&FromService::from(fetched));
    }
}

fn wrong_size(have: u64, wanted: u64) -> Error {
    Error {
        code: INVALID_ARGUMENT,
        message: format!("an array of {have} bytes cannot be read into {wanted} bytes"),
    }
}

/// Whether such a read of a page is a plain copy: pages are dense and row-major.
pub(super) fn is_plain(form: &Form, shape: &Shape) -> bool {
    match form {
        Form::Raw => true,
        Form::Host { minor_to_major } => {
            let rows = (0..shape.dims.len() as i64).rev();
            minor_to_major.iter().copied().eq(rows)
        }
    }
}
