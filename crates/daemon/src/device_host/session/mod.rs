//! One session: the service's record of one connected job, and the thread that serves it.
//!
//! The record has two halves. [`SharedSession`] is used by all threads: replies to the job, the
//! mailbox, flags. [`SessionThread`] belongs to the session's thread alone: the window of operations,
//! the arrays, the programs. The thread sleeps until the job sends frames or something is in the
//! mailbox; then it does what can be done, in order, and sleeps again.
//!
//! In the order in which a frame passes: `frames`, `window`, `operations` (admitted by the engine, then
//! done: an upload, launch, copy or read), `replies`. Compilations do not wait in the window:
//! `compile`. How a session ends, for example because its job died: `end`.

pub(crate) mod callbacks;
mod compile;
mod end;
pub(crate) mod frames;
pub(crate) mod job_settings;
mod mailbox;
pub(crate) mod operations;
mod replies;
mod shared;
mod thread;
mod window;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::Timespec;
use salus_device::Device;
use salus_engine::{JobSettings, SessionId};
use salus_wire::{Adopt, FromService, Refused, SessionClosed, Welcome, limits};

pub(crate) use shared::SharedSession;
pub(crate) use thread::SessionThread;

use crate::device_host::Host;
use crate::device_host::errors::resource_exhausted;
use crate::vendor_handlers;

/// The job's process as the kernel and the job itself named it.
pub(crate) struct Identity {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) user: String,
    pub(crate) name: String,
}

/// The plugin may run a program inline in a session's thread, so its stack is as large as a main
/// thread's.
const STACK_BYTES: usize = 8 << 20;

/// Opens a session for a job that the supervisor sends, and starts its thread.
pub(crate) fn open<D: Device>(host: &Arc<Host<D>>, adopt: Adopt, socket: UnixStream) {
    let identity = Identity {
        pid: adopt.pid,
        uid: adopt.uid,
        user: adopt.user,
        name: adopt.name,
    };
    let session = match SharedSession::new(SessionId(adopt.session), identity, socket, host) {
        Ok(session) => Arc::new(session),
        Err((socket, e)) => {
            refuse(&socket, &format!("no descriptor is left for it: {e}"));
            let session = adopt.session;
            return host.supervisor.send(SessionClosed { session });
        }
    };
    let welcome = Welcome {
        protocol: adopt.protocol,
        session: adopt.session,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        description: vendor_handlers::describe(host.device.description()),
        window: limits::LAUNCHES,
    };
    let settings = JobSettings {
        memory_max: host.session_limit(adopt.settings.memory_max),
        ..adopt.settings
    };
    // Before the job knows of it: a change of its settings that is asked for at once finds it.
    host.engine.open(&session, settings);
    let own = Arc::clone(&session);
    let started = std::thread::Builder::new()
        .name(format!("session-{}", adopt.session))
        .stack_size(STACK_BYTES)
        .spawn(move || {
            own.send(&FromService::from(welcome), None);
            SessionThread::new(own).run();
        });
    if let Err(e) = started {
        let why = format!("no thread can be started for it: {e}");
        refuse(&session.socket, &why);
        host.engine.close(session.id);
        let session = adopt.session;
        host.supervisor.send(SessionClosed { session });
    }
}

fn refuse(socket: &UnixStream, why: &str) {
    let error = resource_exhausted(format!("the session could not be opened: {why}"));
    let refused = FromService::from(Refused { error });
    let _ = salus_channel::send_all(socket, &refused, None);
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    })
}
