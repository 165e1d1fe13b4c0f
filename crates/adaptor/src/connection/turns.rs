//! Who reads the socket, who sleeps, and who must be woken.
//!
//! Replies are read by one of two kinds of threads. The *dispatcher* is a thread of the session's own.
//! A job thread that waits for a reply may read in its place: it then receives the reply itself
//! instead of being woken by the dispatcher, which saves one of the two wake-ups of a read. Because
//! such threads come back soon (a training loop that looks at its loss), the dispatcher stays off the
//! socket for a while after each ([`turn`]), unless a frame is expected that no job thread reads.
//!
//! The states and transitions are in [`turn`]; here are the threads that make them: a job thread that
//! waits ([`Turns::wait_for`]) and the dispatcher ([`Turns::dispatch`]).
//!
//! Promise: at most one thread reads; a thread that is blocked until a frame comes has a reader at
//! once, without the help of a timeout; a wanted frame has one at once, or after the lease where a job
//! thread read in between; a deferred message is flushed by the next frame or by the dispatcher;
//! everybody learns of the end. `turns/tests.rs` tries the interleavings with up to two preemptions of these.
//! Cost: one compare-and-swap per transition, no lock.
//! Not here: sockets, frames, clocks; they are behind [`Link`].

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

mod turn;

#[cfg(test)]
mod tests;

use turn::{State, Turn, Watch, micros};

/// How long the dispatcher stays off the socket while a job thread reads: at first, and when that
/// thread waits for long.
const OFF_SOCKET_MIN: Duration = Duration::from_millis(5);
const OFF_SOCKET_MAX: Duration = Duration::from_millis(20);

/// Deferred messages wait no longer than this for a frame to be sent with, when the job is quiet.
const QUIET: Duration = Duration::from_millis(2);
/// How often the dispatcher looks while messages keep being deferred: rarely enough to cost a steady
/// training loop nothing that can be measured.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Without any for this long, it sleeps until it is woken.
const DOZE_AFTER: Duration = Duration::from_millis(50);

/// What the state machine needs of the world. The error of a receiving function says why the session
/// is over.
pub(super) trait Link {
    /// Since the session began.
    fn now(&self) -> Duration;
    /// Ends the dispatcher's sleep; if it does not sleep, its next one ends at once.
    fn wake(&self);
    /// Blocks a job thread until there is something to read.
    fn await_bytes(&self) -> Result<(), String>;
    /// Blocks the dispatcher until it is woken, until the timeout, or, if it listens, until there is
    /// something to read; returns whether there is.
    fn sleep(&self, listens: bool, timeout: Option<Duration>) -> Result<bool, String>;
    /// Reads what is there and handles it, which runs callbacks.
    fn receive(&self) -> Result<(), String>;
    /// Ends the session, and with it everything that is waited for.
    fn fail(&self, why: &str);
    fn is_over(&self) -> bool;
    /// Shows what is deferred; nothing is added before `look` returns.
    fn look_at_deferred<R>(&self, look: impl FnOnce(DeferredState) -> R) -> R;
    /// Sends what is deferred, unless another thread is sending, which takes it along.
    fn flush_deferred(&self);
}

#[derive(Clone, Copy)]
pub(super) struct DeferredState {
    /// Changes with every addition and every flush.
    pub(super) changes: u64,
    pub(super) is_empty: bool,
}

/// The atomic word that holds the state, so that tests can bring their own.
pub(super) trait Word {
    fn new(bits: u64) -> Self;
    fn load(&self) -> u64;
    /// Whether `old` was there and is now replaced.
    fn replace(&self, old: u64, new: u64) -> bool;
}

impl Word for AtomicU64 {
    fn new(bits: u64) -> Self {
        Self::new(bits)
    }

    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// The state machine of one connection.
pub(super) struct Turns<W>(W);

impl<W: Word> Turns<W> {
    /// The dispatcher begins as the reader: frames may have come with the greeting.
    pub(super) fn new() -> Self {
        let turn = Turn {
            state: State::Reads,
            wanted: false,
            dozes: false,
            followers: 0,
            left_us: 0,
        };
        Self(W::new(turn.pack()))
    }

    fn change<R>(&self, change: impl Fn(&mut Turn) -> R) -> R {
        loop {
            let old = self.0.load();
            let mut turn = Turn::unpack(old);
            let result = change(&mut turn);
            // Also if nothing changes: what was loaded may be old.
            if self.0.replace(old, turn.pack()) {
                return result;
            }
        }
    }

    /// Waits in a job thread until `outcome` is there: reads if nobody else does, and otherwise
    /// blocks in `wait` until the thread that does has it.
    pub(super) fn wait_for<T>(
        &self,
        link: &impl Link,
        outcome: impl Fn() -> Option<T>,
        wait: impl FnOnce() -> T,
    ) -> T {
        if let Some(outcome) = outcome() {
            return outcome;
        }
        if !self.change(Turn::enter) {
            let _following = Following(self);
            return wait();
        }
        let _reading = Reading { turns: self, link };
        loop {
            // Also before the first read: the dispatcher may have read it just before.
            if let Some(outcome) = outcome() {
                return outcome;
            }
            if let Err(why) = link.await_bytes().and_then(|()| link.receive()) {
                link.fail(&why);
            }
        }
    }

    /// Has the dispatcher listen now, because a frame is expected soon.
    pub(super) fn want(&self, link: &impl Link) {
        if self.change(Turn::want) {
            link.wake();
        }
    }

    /// Has somebody read for as long as the result lives: this thread is about to block.
    pub(super) fn follow(&self, link: &impl Link) -> Following<'_, W> {
        if self.change(Turn::follow) {
            link.wake();
        }
        Following(self)
    }

    /// A message was deferred: the dispatcher sees to it if no frame takes it along.
    pub(super) fn deferred(&self, link: &impl Link) {
        // A load will do: the lock of what is deferred orders it after `doze`.
        if Turn::unpack(self.0.load()).dozes && self.change(Turn::deferred) {
            link.wake();
        }
    }

    /// The dispatcher's life; it ends with the session and returns why.
    pub(super) fn dispatch(&self, link: &impl Link) -> Result<Infallible, String> {
        let mut off_socket = OFF_SOCKET_MIN;
        let mut pace = Pace::default();
        loop {
            let now_us = micros(link.now());
            let watch = self.change(|turn| turn.look(now_us));
            let timeout = match watch {
                Watch::Socket => None,
                Watch::Lease(rest) => Some(rest),
                // That thread wakes us when it stops, if somebody needs us.
                Watch::JobReads => Some(off_socket),
            };
            off_socket = match watch {
                Watch::JobReads => (off_socket * 2).min(OFF_SOCKET_MAX),
                _ => OFF_SOCKET_MIN,
            };
            let deferred = self.see_to_deferred(link, &mut pace);
            let timeout = timeout.into_iter().chain(deferred).min();
            let listens = matches!(watch, Watch::Socket);
            if link.sleep(listens, timeout)? && self.change(Turn::take) {
                link.receive()?;
            }
        }
    }

    /// Flushes what is deferred if nothing was added since the last look. Returns when to look again.
    fn see_to_deferred(&self, link: &impl Link, pace: &mut Pace) -> Option<Duration> {
        let next = link.look_at_deferred(|deferred| {
            let changed = std::mem::replace(&mut pace.changes, deferred.changes) != pace.changes;
            match (changed, deferred.is_empty) {
                (true, true) => {
                    pace.last_change = Some(link.now());
                    Next::Look(LOOK_INTERVAL)
                }
                (true, false) => {
                    // The first in a while has just woken us. Else more may come before a frame does.
                    let first = pace.last_change.replace(link.now()).is_none();
                    Next::Look(if first { QUIET } else { LOOK_INTERVAL })
                }
                (false, false) => Next::Flush,
                (false, true) => match pace.last_change {
                    Some(last) if link.now().saturating_sub(last) < DOZE_AFTER => {
                        Next::Look(LOOK_INTERVAL)
                    }
                    _ => {
                        pace.last_change = None;
                        // While nothing can be added: a thread that adds later sees it.
                        self.change(Turn::doze);
                        Next::Doze
                    }
                },
            }
        });
        match next {
            Next::Look(after) => Some(after),
            Next::Flush => {
                link.flush_deferred();
                Some(LOOK_INTERVAL)
            }
            Next::Doze => None,
        }
    }
}

/// What the dispatcher remembers of the deferred messages.
#[derive(Default)]
struct Pace {
    /// [`DeferredState::changes`] when it last looked.
    changes: u64,
    /// When it last saw a change; `None` while it dozes.
    last_change: Option<Duration>,
}

enum Next {
    Look(Duration),
    Flush,
    Doze,
}

/// A thread that is blocked until another one has read.
pub(super) struct Following<'a, W: Word>(&'a Turns<W>);

impl<W: Word> Drop for Following<'_, W> {
    fn drop(&mut self) {
        self.0.change(Turn::unfollow);
    }
}

/// A job thread that reads. It gives the socket back also when a callback unwinds it.
struct Reading<'a, W: Word, L: Link> {
    turns: &'a Turns<W>,
    link: &'a L,
}

impl<W: Word, L: Link> Drop for Reading<'_, W, L> {
    fn drop(&mut self) {
        let (now_us, is_over) = (micros(self.link.now()), self.link.is_over());
        if self.turns.change(|turn| turn.leave(now_us, is_over)) {
            self.link.wake();
        }
    }
}
