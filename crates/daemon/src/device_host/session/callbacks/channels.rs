//! The channels of a session: opened when a call needs one, and reused.

use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

use salus_channel::lock;
use salus_device::Device;
use salus_engine::Calling;
use salus_wire::{CallbackChannel, Error, FromService, limits};

use super::channel::{Channel, job_is_gone, no_channel};
use crate::device_host::errors::resource_exhausted;
use crate::device_host::session::SharedSession;

/// The channels of a session.
#[derive(Default)]
pub(crate) struct Channels {
    open: Mutex<OpenChannels>,
    /// Launches that call back are numbered here: the job's own numbers are untrusted.
    launches: AtomicU64,
}

#[derive(Default)]
struct OpenChannels {
    idle: Vec<Channel>,
    /// The sockets of all channels, so that a thread that waits on one can be stopped.
    sockets: Vec<Arc<UnixStream>>,
    closed: bool,
}

impl Channels {
    fn lock(&self) -> MutexGuard<'_, OpenChannels> {
        lock(&self.open)
    }

    /// How many there are, and how many of them are idle.
    #[cfg(test)]
    pub(crate) fn count(&self) -> (usize, usize) {
        let open = self.lock();
        (open.sockets.len(), open.idle.len())
    }

    /// A number for a launch that calls back.
    pub(crate) fn next_calling(&self) -> Calling {
        Calling(self.launches.fetch_add(1, Relaxed))
    }

    /// Stops every thread that waits for the job: it is gone, or its session ends.
    pub(crate) fn close(&self) {
        let mut open = self.lock();
        open.closed = true;
        for socket in &open.sockets {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// An idle channel, or a new one whose other end is sent to the job.
    pub(super) fn take<D: Device>(&self, session: &SharedSession<D>) -> Result<Channel, Error> {
        let mut open = self.lock();
        if open.closed {
            return Err(job_is_gone("its session has ended"));
        }
        if let Some(channel) = open.idle.pop() {
            return Ok(channel);
        }
        let count = open.sockets.len();
        if count >= limits::CALLBACK_CHANNELS {
            return Err(resource_exhausted(format!(
                "{count} callbacks of this job are under way, the most that may be at once; callbacks \
                 that launch programs which call back themselves should not nest deeply"
            )));
        }
        let pair = UnixStream::pair();
        let (ours, theirs) = pair.map_err(|e| no_channel(&e))?;
        // A job that does not read what it is sent is waited for no longer than for a return.
        let limit = session.host.callback_limit;
        let limited = ours.set_write_timeout(Some(limit));
        limited.map_err(|e| no_channel(&e))?;
        let ours = Arc::new(ours);
        open.sockets.push(Arc::clone(&ours));
        drop(open);
        let channel = count as u32;
        let message = FromService::from(CallbackChannel { channel });
        session.send(&message, Some(theirs.into()));
        Ok(Channel::new(ours))
    }

    pub(super) fn give_back(&self, channel: Channel) {
        self.lock().idle.push(channel);
    }

    /// The channel failed and is not used again.
    pub(super) fn forget(&self, channel: &Channel) {
        let _ = channel.socket.shutdown(std::net::Shutdown::Both);
        let mut open = self.lock();
        open.sockets
            .retain(|socket| !Arc::ptr_eq(socket, &channel.socket));
    }
}
