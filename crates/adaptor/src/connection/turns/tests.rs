//! All interleavings of the threads of one connection, up to a bound, explored by loom.
//!
//! The dispatcher and the waiting threads run the code of the adaptor; socket, eventfd, clock and
//! deferred messages are models. Timeouts do not fire unless a test says so: a wake-up that is lost
//! leaves every thread blocked, which loom reports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64 as PlainU64, Ordering};
use std::time::Duration;

use loom::sync::atomic::AtomicU64;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::turn::STATES;
use super::{DeferredState, Link, Turn, Turns, Word};

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

/// A connection whose frames are numbers: each ends what has that number.
struct World {
    turns: Turns<AtomicU64>,
    model: Mutex<Model>,
    /// Something in the model changed.
    changed: Condvar,
    deferred: Mutex<(Vec<u32>, u64)>,
    /// What was sent; locked while something is.
    sent: Mutex<Vec<u32>>,
    /// What follows is not part of what is explored: changed under the lock, or by one thread.
    ended: [AtomicBool; 2],
    is_over: AtomicBool,
    is_reading: AtomicBool,
    clock_ms: PlainU64,
}

#[derive(Default)]
struct Model {
    socket: VecDeque<usize>,
    hung_up: bool,
    is_woken: bool,
    timeouts_fire: bool,
    dispatcher_ended: bool,
}

impl World {
    fn change<R>(&self, change: impl FnOnce(&mut Model) -> R) -> R {
        let mut model = self.model.lock().expect("no panic");
        let result = change(&mut model);
        drop(model);
        self.changed.notify_all();
        result
    }

    fn block_until<R>(&self, mut is_so: impl FnMut(&mut Model) -> Option<R>) -> R {
        let mut model = self.model.lock().expect("no panic");
        loop {
            if let Some(result) = is_so(&mut model) {
                return result;
            }
            model = self.changed.wait(model).expect("no panic");
        }
    }

    fn is_ended(&self, number: usize) -> Option<()> {
        self.ended[number].load(Ordering::Relaxed).then_some(())
    }

    fn block_until_ended(&self, number: usize) {
        self.block_until(|_| self.is_ended(number));
    }

    fn block_until_over(&self) {
        self.block_until(|_| self.is_over().then_some(()));
    }

    /// The service sends a frame.
    fn reply(&self, number: usize) {
        self.change(|model| model.socket.push_back(number));
    }

    fn hang_up(&self) {
        self.change(|model| model.hung_up = true);
    }

    fn let_timeouts_fire(&self) {
        self.change(|model| model.timeouts_fire = true);
    }

    /// As the end of an operation is waited for.
    fn wait_for(&self, number: usize) {
        let is_ended = || self.is_ended(number);
        self.turns
            .wait_for(self, is_ended, || self.block_until_ended(number));
    }

    /// As a compilation or a place in the window is waited for.
    fn follow(&self, number: usize) {
        let _following = self.turns.follow(self);
        self.block_until_ended(number);
    }

    fn defer(&self, message: u32) {
        let mut deferred = self.deferred.lock().expect("no panic");
        deferred.0.push(message);
        deferred.1 += 1;
        drop(deferred);
        self.turns.deferred(self);
    }

    /// Sends a frame after everything deferred.
    fn send(&self, message: u32) {
        let mut sent = self.sent.lock().expect("no panic");
        self.take_deferred(&mut sent);
        sent.push(message);
        drop(sent);
        self.change(|_| ());
    }

    fn take_deferred(&self, sent: &mut Vec<u32>) {
        let mut deferred = self.deferred.lock().expect("no panic");
        deferred.1 += u64::from(!deferred.0.is_empty());
        sent.append(&mut deferred.0);
    }

    fn block_until_sent(&self, message: u32) {
        self.block_until(|_| {
            let sent = self.sent.lock().expect("no panic");
            sent.contains(&message).then_some(())
        });
    }
}

impl Link for World {
    fn now(&self) -> Duration {
        Duration::from_millis(self.clock_ms.load(Ordering::Relaxed))
    }

    fn wake(&self) {
        self.change(|model| model.is_woken = true);
    }

    fn await_bytes(&self) -> Result<(), String> {
        self.block_until(|model| (!model.socket.is_empty() || model.hung_up).then_some(Ok(())))
    }

    fn sleep(&self, listens: bool, timeout: Option<Duration>) -> Result<bool, String> {
        let (is_readable, timed_out) = self.block_until(|model| {
            let is_readable = listens && (!model.socket.is_empty() || model.hung_up);
            let times_out = model.timeouts_fire && timeout.is_some();
            let is_woken = std::mem::take(&mut model.is_woken);
            (is_woken || is_readable || times_out).then_some((is_readable, times_out))
        });
        if timed_out {
            // Longer than anything that is measured; others go on meanwhile.
            self.clock_ms.fetch_add(1000, Ordering::Relaxed);
            thread::yield_now();
        }
        Ok(is_readable)
    }

    fn receive(&self) -> Result<(), String> {
        let alone = !self.is_reading.swap(true, Ordering::Relaxed);
        assert!(alone, "two threads read");
        let result = self.change(|model| {
            if model.socket.is_empty() && model.hung_up {
                return Err("it hung up".to_owned());
            }
            for number in model.socket.drain(..) {
                self.ended[number].store(true, Ordering::Relaxed);
            }
            Ok(())
        });
        self.is_reading.store(false, Ordering::Relaxed);
        result
    }

    fn fail(&self, _why: &str) {
        self.change(|model| {
            model.hung_up = true;
            self.is_over.store(true, Ordering::Relaxed);
            for ended in &self.ended {
                ended.store(true, Ordering::Relaxed);
            }
        });
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn look_at_deferred<R>(&self, look: impl FnOnce(DeferredState) -> R) -> R {
        let deferred = self.deferred.lock().expect("no panic");
        look(DeferredState {
            changes: deferred.1,
            is_empty: deferred.0.is_empty(),
        })
    }

    fn flush_deferred(&self) {
        if let Ok(mut sent) = self.sent.try_lock() {
            self.take_deferred(&mut sent);
            drop(sent);
            self.change(|_| ());
        }
    }
}

/// Explores a story beside a dispatcher, which must end when the service hangs up.
fn explore(story: impl Fn(&Arc<World>) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Bugs of this kind need one or two switches at a wrong moment.
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let world = Arc::new(World {
            turns: Turns::new(),
            model: Mutex::new(Model::default()),
            changed: Condvar::new(),
            deferred: Mutex::new((Vec::new(), 0)),
            sent: Mutex::new(Vec::new()),
            ended: Default::default(),
            is_over: AtomicBool::new(false),
            is_reading: AtomicBool::new(false),
            clock_ms: PlainU64::new(1),
        });
        let dispatcher = spawn(&world, |world| {
            let Err(why) = world.turns.dispatch(world);
            world.fail(&why);
            world.change(|model| model.dispatcher_ended = true);
        });
        story(&world);
        world.let_timeouts_fire();
        world.hang_up();
        dispatcher.join().expect("the dispatcher ends");
        let followers = Turn::unpack(Word::load(&world.turns.0)).followers;
        assert_eq!(followers, 0, "nobody waits any more");
    });
}

fn spawn(world: &Arc<World>, run: impl FnOnce(&World) + Send + 'static) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || run(&world))
}

fn join(thread: thread::JoinHandle<()>) {
    thread.join().expect("no panic");
}

#[test]
fn a_thread_that_waits_reads_or_is_told() {
    explore(|world| {
        let waiting = spawn(world, |world| world.wait_for(0));
        world.reply(0);
        join(waiting);
    });
}

#[test]
fn a_thread_that_waits_again_is_served_during_the_lease() {
    explore(|world| {
        let waiting = spawn(world, |world| {
            world.wait_for(0);
            world.wait_for(1);
        });
        world.reply(0);
        world.reply(1);
        join(waiting);
    });
}

#[test]
fn two_threads_that_wait_are_both_served() {
    explore(|world| {
        let one = spawn(world, |world| {
            world.wait_for(0);
            world.reply(1);
        });
        world.reply(0);
        world.wait_for(1);
        join(one);
    });
}

#[test]
fn a_blocked_thread_is_served_when_the_reader_has_left() {
    explore(|world| {
        let reads = spawn(world, |world| {
            world.wait_for(0);
            world.reply(1);
        });
        world.reply(0);
        world.follow(1);
        join(reads);
    });
}

#[test]
fn a_thread_that_blocks_during_the_lease_is_served() {
    explore(|world| {
        let reads = spawn(world, |world| world.wait_for(0));
        world.reply(0);
        join(reads);
        world.reply(1);
        world.follow(1);
    });
}

#[test]
fn a_wanted_frame_is_read_after_a_reader_has_left() {
    explore(|world| {
        let reads = spawn(world, |world| world.wait_for(0));
        world.reply(0);
        join(reads);
        world.turns.want(&**world);
        world.reply(1);
        world.block_until_ended(1);
    });
}

#[test]
fn a_frame_that_is_wanted_while_another_thread_reads_is_read_after_a_lease() {
    explore(|world| {
        let reads = spawn(world, |world| world.wait_for(0));
        world.turns.want(&**world);
        world.reply(0);
        join(reads);
        world.reply(1);
        world.let_timeouts_fire();
        world.block_until_ended(1);
    });
}

#[test]
fn everybody_learns_of_the_end_while_a_thread_reads() {
    explore(|world| {
        let reads = spawn(world, |world| world.wait_for(0));
        world.hang_up();
        world.follow(1);
        join(reads);
        world.block_until_over();
    });
}

#[test]
fn everybody_learns_of_the_end_after_a_thread_has_read() {
    explore(|world| {
        let reads = spawn(world, |world| {
            world.wait_for(0);
            world.hang_up();
        });
        world.reply(0);
        world.follow(1);
        join(reads);
        world.block_until_over();
    });
}

#[test]
fn the_dispatcher_ends_without_a_timeout_when_a_reader_learns_of_the_end() {
    explore(|world| {
        let reads = spawn(world, |world| world.wait_for(0));
        world.hang_up();
        join(reads);
        world.block_until(|model| model.dispatcher_ended.then_some(()));
    });
}

#[test]
fn a_deferred_message_is_flushed_by_the_dispatcher() {
    explore(|world| {
        world.let_timeouts_fire();
        world.defer(1);
        world.block_until_sent(1);
        world.defer(2);
        world.block_until_sent(2);
    });
}

#[test]
fn a_deferred_message_is_sent_before_the_next_frame() {
    explore(|world| {
        world.let_timeouts_fire();
        let other = spawn(world, |world| world.defer(3));
        world.defer(1);
        world.send(2);
        join(other);
        world.block_until_sent(3);
        let sent = world.sent.lock().expect("no panic").clone();
        let at = |message| sent.iter().position(|sent| *sent == message);
        assert_eq!(sent.len(), 3, "each is sent once: {sent:?}");
        assert!(at(1) < at(2), "{sent:?}");
    });
}

#[test]
fn the_word_holds_everything() {
    for state in STATES {
        for (wanted, dozes) in [(false, false), (true, false), (false, true), (true, true)] {
            for (followers, left_us) in [(0, 0), (u16::MAX, u32::MAX), (1, 1)] {
                let turn = Turn {
                    state,
                    wanted,
                    dozes,
                    followers,
                    left_us,
                };
                assert_eq!(Turn::unpack(turn.pack()), turn);
            }
        }
    }
}
