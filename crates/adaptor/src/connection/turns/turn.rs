//! Who reads the socket: the states, and the transitions between them.
//!
//! The whole state is one word of 64 bits, so that a transition is one compare-and-swap
//! ([`super::Turns`]):
//!
//! | state      | reads the socket | the dispatcher                                           |
//! |------------|------------------|----------------------------------------------------------|
//! | `Listens`  | nobody           | polls the socket, or is about to `look`                  |
//! | `Reads`    | the dispatcher   | reads frames and runs callbacks                          |
//! | `Job`      | a job thread     | still polls the socket: the next bytes make it `look`    |
//! | `JobAlone` | a job thread     | sleeps off the socket, for 5 to 20 ms at a time          |
//! | `Lent`     | nobody           | sleeps off the socket, for what is left of the lease     |
//!
//! | beside it   | meaning                                                                         |
//! |-------------|---------------------------------------------------------------------------------|
//! | `wanted`    | a frame is expected soon, by a callback or a wait that has yet to come          |
//! | `followers` | threads that are blocked until another thread has read their frame              |
//! | `left_us`   | when the last job thread stopped reading: the lease runs from there; 0 for none |
//! | `dozes`     | the dispatcher sleeps without a timeout: a thread that defers a message wakes it |
//!
//! | transition          | by         | from → to                      | wakes the dispatcher if            |
//! |---------------------|------------|--------------------------------|------------------------------------|
//! | `enter`             | job thread | `Listens` → `Job`              |                                    |
//! |                     |            | `Lent` → `JobAlone`            |                                    |
//! |                     |            | others: `followers` + 1        |                                    |
//! | `leave`             | its reader | `Job` → `Listens`              |                                    |
//! |                     |            | `JobAlone` → `Lent`            | `wanted`, `followers` or the end   |
//! | `want`              | anybody    | `wanted`                       | `Lent`, and nobody has woken it    |
//! | `follow`            | job thread | `followers` + 1                | `Lent`, and nobody has woken it    |
//! | `unfollow`          | follower   | `followers` − 1                |                                    |
//! | `look`              | dispatcher | `Job`, `JobAlone` → `JobAlone` |                                    |
//! |                     |            | others → `Listens`, if wanted, followed or no lease; else `Lent`    |
//! | `take`              | dispatcher | `Listens` → `Reads`; else none |                                    |
//! | `doze`, `deferred`  | both       | `dozes` set; cleared           | it was set                         |

use std::time::Duration;

/// How long after a job thread has read the dispatcher expects another one. Frames that nobody waits
/// for may stay in the socket for that time.
const LEASE: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Listens,
    Reads,
    Job,
    JobAlone,
    Lent,
}

pub(super) const STATES: [State; 5] = [
    State::Listens,
    State::Reads,
    State::Job,
    State::JobAlone,
    State::Lent,
];

/// The word, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) state: State,
    pub(super) wanted: bool,
    pub(super) dozes: bool,
    /// 16 bits of it fit: more threads than that cannot wait in one process.
    pub(super) followers: u16,
    pub(super) left_us: u32,
}

impl Turn {
    const WANTED: u64 = 1 << 8;
    const DOZES: u64 = 1 << 9;

    pub(super) fn pack(self) -> u64 {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        self.state as u64
            | flag(self.wanted, Self::WANTED)
            | flag(self.dozes, Self::DOZES)
            | u64::from(self.followers) << 16
            | u64::from(self.left_us) << 32
    }

    pub(super) fn unpack(bits: u64) -> Self {
        Self {
            state: STATES[(bits & 7) as usize % STATES.len()],
            wanted: bits & Self::WANTED != 0,
            dozes: bits & Self::DOZES != 0,
            followers: (bits >> 16) as u16,
            left_us: (bits >> 32) as u32,
        }
    }

    /// A frame is expected that no job thread reads.
    fn is_awaited(&self) -> bool {
        self.wanted || self.followers > 0
    }

    /// Whether the dispatcher sleeps off the socket with nobody reading, and nobody has woken it.
    fn needs_wake(&self) -> bool {
        self.state == State::Lent && !self.is_awaited()
    }

    /// Whether this thread reads from now on; it follows otherwise.
    pub(super) fn enter(&mut self) -> bool {
        match self.state {
            State::Listens => self.state = State::Job,
            State::Lent => self.state = State::JobAlone,
            State::Reads | State::Job | State::JobAlone => {
                self.followers += 1;
                return false;
            }
        }
        true
    }

    /// Whether the dispatcher must be woken. At the end of a session it must learn of it.
    pub(super) fn leave(&mut self, now_us: u32, is_over: bool) -> bool {
        self.wanted |= is_over;
        self.left_us = if self.followers > 0 { 0 } else { now_us };
        match self.state {
            State::JobAlone => {
                self.state = State::Lent;
                self.is_awaited()
            }
            _ => {
                self.state = State::Listens;
                false
            }
        }
    }

    pub(super) fn want(&mut self) -> bool {
        let wake = self.needs_wake();
        self.wanted = true;
        wake
    }

    pub(super) fn follow(&mut self) -> bool {
        let wake = self.needs_wake();
        self.followers += 1;
        wake
    }

    pub(super) fn unfollow(&mut self) {
        self.followers -= 1;
    }

    pub(super) fn look(&mut self, now_us: u32) -> Watch {
        if matches!(self.state, State::Job | State::JobAlone) {
            self.state = State::JobAlone;
            return Watch::JobReads;
        }
        match self.lease(now_us) {
            Some(rest) if !self.is_awaited() => {
                self.state = State::Lent;
                return Watch::Lease(rest);
            }
            Some(_) => {}
            None => self.left_us = 0,
        }
        self.state = State::Listens;
        self.wanted = false;
        Watch::Socket
    }

    /// What is left of the lease.
    fn lease(&self, now_us: u32) -> Option<Duration> {
        if self.left_us == 0 {
            return None;
        }
        // The clock wraps after an hour, and a stale lease with it: that costs a lease once.
        let elapsed = Duration::from_micros(now_us.wrapping_sub(self.left_us).into());
        LEASE.checked_sub(elapsed).filter(|rest| !rest.is_zero())
    }

    pub(super) fn take(&mut self) -> bool {
        let is_free = self.state == State::Listens;
        if is_free {
            self.state = State::Reads;
        }
        is_free
    }

    pub(super) fn doze(&mut self) {
        self.dozes = true;
    }

    pub(super) fn deferred(&mut self) -> bool {
        std::mem::take(&mut self.dozes)
    }
}

/// What the dispatcher does next.
pub(super) enum Watch {
    Socket,
    JobReads,
    Lease(Duration),
}

pub(super) fn micros(now: Duration) -> u32 {
    // 0 means that there is no lease.
    (now.as_micros() as u32).max(1)
}
