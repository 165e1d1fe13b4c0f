//! Reading an array into the job's memory.
//!
//! Small arrays are copied and answered by the thread that made them ready; long copies are left to
//! the session's thread, because the plugin's threads compute.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use salus_device::{Device, Done, HostTarget, ReadForm};
use salus_wire::{Error, Fetched, Form, FromService};

use super::Host;
use super::arrays::{Entry, Kind};
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
            let message = format!(
                "an array of {} bytes cannot be read into {} bytes",
                entry.bytes(),
                self.target.region.length
            );
            return self.answer(
                session,
                Err(Error {
                    code: INVALID_ARGUMENT,
                    message,
                }),
            );
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
            Kind::Own(_) => Err(ready),
        };
        if let Err(ready) = not_running {
            array.device().on_ready(&array.array, ready);
        }
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
