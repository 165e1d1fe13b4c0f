//! Signals that end this process: whether another process sent the signal, and which thread got it.
//!
//! The supervisor sees which signal ended the device host, not who sent it: a program that reads
//! beyond its memory and a `kill -SEGV` look the same. Here they do not: a handler notes on the
//! [`crate::board`] that another process sent the signal, or which thread caused it, and then lets the
//! signal end the process.
//!
//! Promise: a process that would have died of a signal dies of the same one. Where no handler can run,
//! as at the end of a stack, nothing is noted, and the signal counts as the process's own.
#![expect(unsafe_code, reason = "handlers of signals")]

use std::io;
use std::mem::zeroed;
use std::ptr;
use std::sync::OnceLock;

use libc::{c_int, c_void, sigaction, siginfo_t};

use crate::device_host::BOARD;

/// Signals that the processor, the kernel or the C library raise for what a process itself does.
const OWN: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// The handlers before ours: Rust's runtime reports the thread whose stack has overflowed.
static BEFORE: OnceLock<[sigaction; OWN.len()]> = OnceLock::new();

pub(crate) fn note_who_sends_signals() -> io::Result<()> {
    // SAFETY: all zeros are a valid `sigaction`: the default, no flags, no handler.
    let mut before: [sigaction; OWN.len()] = unsafe { zeroed() };
    for (signal, before) in OWN.iter().zip(&mut before) {
        // SAFETY: reads what is set for a signal that exists into memory of ours.
        if unsafe { libc::sigaction(*signal, ptr::null(), before) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let _ = BEFORE.set(before);
    for signal in OWN {
        // SAFETY: as above.
        let mut ours: sigaction = unsafe { zeroed() };
        ours.sa_sigaction = note as *const () as usize;
        // On the thread's signal stack if it has one, so that a stack overflow is handled, too.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler lives as long as the process and has the signature that the flag says.
        if unsafe { libc::sigaction(signal, &ours, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Does nothing but what is allowed in a handler: stores, and calls that POSIX lists.
extern "C" fn note(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel hands a valid one to handlers with `SA_SIGINFO`.
    let code = unsafe { (*info).si_code };
    if code > 0 {
        note_thread();
        // The fault happens again when this returns, and meets the handler before ours.
        let before = BEFORE.get().zip(OWN.iter().position(|own| *own == signal));
        if let Some((before, at)) = before {
            // SAFETY: what was set for this signal before.
            unsafe { libc::sigaction(signal, &before[at], ptr::null_mut()) };
        }
        if matches!(signal, libc::SIGTRAP | libc::SIGSYS) {
            // These do not happen again.
            end_by(signal);
        }
        return;
    }
    // SAFETY: a signal that was sent has a sender; `getpid` always succeeds.
    let (sender, own) = unsafe { ((*info).si_pid(), libc::getpid()) };
    match BOARD.get() {
        Some(writer) if sender != own => writer.board().killed_by(sender),
        _ => note_thread(),
    }
    end_by(signal);
}

fn note_thread() {
    if let Some(writer) = BOARD.get() {
        // SAFETY: it always succeeds, and may be called in handlers.
        let thread = unsafe { libc::gettid() };
        writer.board().dies_in(thread);
    }
}

/// Has this process end by a signal as soon as its handler returns.
fn end_by(signal: c_int) {
    // SAFETY: both may be called in handlers. The signal is blocked until the handler returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
