//! One channel to a job, and one call on it.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use salus_channel::{Inbox, Segment, send_all};
use salus_device::{CallArray, HostBytes, Shape, Style};
use salus_wire::{
    CallbackArray, CallbackCall, CallbackMemory, Error, ErrorCode, FromCallbacks, OperationId,
    ToCallbacks, limits,
};

use crate::device_host::errors::{invalid_argument, resource_exhausted};
use crate::device_host::session::timespec;

/// Operands and results begin at multiples of this: enough for every element, and for the job's
/// vector instructions.
const ALIGNMENT: u64 = 64;
/// The least memory of a channel; most callbacks print a few numbers.
const MEMORY_BYTES_MIN: u64 = 64 << 10;
/// The most memory of a channel. A program that gives more to a callback had better give it in parts.
const MEMORY_BYTES_MAX: u64 = 16 << 30;

/// A socket and shared memory on which one call at a time is made.
pub(super) struct Channel {
    pub(super) socket: Arc<UnixStream>,
    inbox: Inbox,
    memory: Option<Segment>,
}

/// The function that is called.
pub(super) struct Callee {
    pub(super) operation: OperationId,
    pub(super) callback: u64,
    pub(super) style: Style,
}

impl Channel {
    pub(super) fn new(socket: Arc<UnixStream>) -> Self {
        Self {
            socket,
            inbox: Inbox::default(),
            memory: None,
        }
    }

    /// Calls a function of the job. The outer error is the channel's, the inner one the function's.
    pub(super) fn call(
        &mut self,
        callee: &Callee,
        operands: &[CallArray<'_>],
        results: &[CallArray<'_>],
        limit: Duration,
    ) -> Result<Result<(), Error>, Error> {
        if operands.len().max(results.len()) > limits::CALLBACK_ARRAYS {
            return Err(invalid_argument(format!(
                "a callback has {} operands and {} results, and may have {} of each; stack arrays \
                 of one shape before they are given to it",
                operands.len(),
                results.len(),
                limits::CALLBACK_ARRAYS
            )));
        }
        let mut end = 0;
        let operand_places = lay_out(operands, &[], &mut end);
        let operands_at = operands.iter().zip(&operand_places);
        let operands_at: Vec<_> = operands_at
            .map(|(array, place)| (array.bytes, place))
            .collect();
        let result_places = lay_out(results, &operands_at, &mut end);
        let memory = self.memory(end)?;
        for (place, operand) in operand_places.iter().zip(operands) {
            if let Some(to) = memory.bytes().range(place.offset, place.bytes) {
                operand.bytes.copy_to(to);
            }
        }
        let call = CallbackCall {
            operation: callee.operation,
            callback: callee.callback,
            buffers: callee.style == Style::Buffers,
            operands: operand_places.clone(),
            results: result_places.clone(),
        };
        let sent = send_all(&*self.socket, &ToCallbacks::from(call), None);
        sent.map_err(|e| job_is_gone(&e.to_string()))?;
        if let Err(raised) = self.wait_for_return(limit)? {
            return Ok(Err(raised));
        }
        let memory = self.memory(end)?;
        for (place, result) in result_places.iter().zip(results) {
            // The job may change the bytes meanwhile, and any bytes are a value.
            if let Some(from) = memory.bytes().range(place.offset, place.bytes) {
                from.copy_to(result.bytes);
            }
        }
        Ok(Ok(()))
    }

    /// The channel's memory, of at least `bytes`. The job is told when a new one is made.
    fn memory(&mut self, bytes: u64) -> Result<&Segment, Error> {
        let fits = |memory: &Segment| memory.len() as u64 >= bytes;
        if !self.memory.as_ref().is_some_and(fits) {
            let size = bytes.next_power_of_two().max(MEMORY_BYTES_MIN);
            if bytes > MEMORY_BYTES_MAX {
                return Err(resource_exhausted(format!(
                    "a callback has {bytes} bytes of operands and results, and may have \
                     {MEMORY_BYTES_MAX}"
                )));
            }
            let segment = Segment::create(size, false).map_err(|e| no_channel(&e))?;
            let descriptor = segment.as_fd().try_clone_to_owned();
            let descriptor = descriptor.map_err(|e| no_channel(&e))?;
            let message = ToCallbacks::from(CallbackMemory { bytes: size });
            let sent = send_all(&*self.socket, &message, Some(descriptor));
            sent.map_err(|e| job_is_gone(&e.to_string()))?;
            self.memory = Some(segment);
        }
        Ok(self.memory.as_ref().expect("made above"))
    }

    fn wait_for_return(&mut self, limit: Duration) -> Result<Result<(), Error>, Error> {
        let deadline = Instant::now() + limit;
        loop {
            match self.inbox.take::<FromCallbacks>() {
                Ok(Some(received)) => {
                    let FromCallbacks::CallbackReturn(returned) = received.message;
                    return Ok(returned.error.map_or(Ok(()), Err));
                }
                Ok(None) => {}
                Err(e) => return Err(job_is_gone(&format!("it sent what is not a frame: {e}"))),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(
                    ErrorCode::DeadlineExceeded,
                    format!(
                        "a callback of this job did not return within {} s",
                        limit.as_secs()
                    ),
                )
                .hint("`[limits] callback_seconds` of salus.toml sets how long one may take"));
            }
            let mut polled = [PollFd::new(&*self.socket, PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&timespec(left))) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(e) => return Err(job_is_gone(&e.to_string())),
            }
            match self.inbox.fill(&*self.socket, false) {
                Ok(0) => return Err(job_is_gone("it closed the connection")),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(job_is_gone(&e.to_string())),
            }
        }
    }
}

/// Gives each array an offset from `end` on, and moves `end`; an array at the address of one of
/// `others` gets the same offset.
fn lay_out(
    arrays: &[CallArray<'_>],
    others: &[(HostBytes<'_>, &CallbackArray)],
    end: &mut u64,
) -> Vec<CallbackArray> {
    let lay_out_one = |array: &CallArray<'_>| {
        let same = |(bytes, _): &&(HostBytes<'_>, &CallbackArray)| {
            *bytes == array.bytes && !array.bytes.is_empty()
        };
        let offset = match others.iter().find(same) {
            Some((_, place)) => place.offset,
            None => {
                let offset = end.next_multiple_of(ALIGNMENT);
                *end = offset + array.bytes.len() as u64;
                offset
            }
        };
        CallbackArray {
            shape: Shape {
                element_type: array.element_type,
                dims: array.dims.to_vec(),
                minor_to_major: None,
            },
            offset,
            bytes: array.bytes.len() as u64,
        }
    };
    arrays.iter().map(lay_out_one).collect()
}

pub(super) fn job_is_gone(why: &str) -> Error {
    Error::new(
        ErrorCode::Unavailable,
        format!("the job that a program calls back into has gone away ({why})"),
    )
}

pub(super) fn no_channel(why: &dyn std::fmt::Display) -> Error {
    resource_exhausted(format!("nothing is left to reach a callback with: {why}"))
}
