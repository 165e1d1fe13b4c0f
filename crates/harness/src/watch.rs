//! Waits for the end of a process with a deadline, be it our child or not, without polling.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process that is known by a descriptor, so that its number cannot come to mean another one.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Of a process that runs, or of a child that was not reaped.
    pub fn of(pid: u32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, signal)?)
    }

    /// Whether it has ended when `time` has passed; returns at once when it ends.
    pub fn ended_within(&self, time: Duration) -> bool {
        wait_readable(&self.0, Instant::now() + time).is_ok()
    }
}

/// Waits until `from` can be read or is at its end.
pub(crate) fn wait_readable(from: &impl AsFd, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_awaited_until_it_ends_or_time_is_over() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("it can be started");
        let watch = Watch::of(child.id()).expect("it runs");
        assert!(!watch.ended_within(Duration::ZERO));
        watch.signal(Signal::KILL).expect("it is ours");
        assert!(watch.ended_within(Duration::from_secs(30)));
        child.wait().expect("it has ended");
    }
}
