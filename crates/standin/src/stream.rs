//! Streams: threads that do what is enqueued, in order.
//!
//! A device of a client has one compute stream (xla/pjrt/local_device_state.cc:118) and one for copies
//! each way, so copies overlap with programs unless they wait for them (see `transfer.rs`).

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::ThreadId;

use crate::c_api::event::Event;

type Job = Box<dyn FnOnce() + Send>;

/// A thread and its queue. The thread ends when the stream is dropped and the queue empty.
pub(crate) struct Stream {
    jobs: Mutex<Sender<Job>>,
    thread: ThreadId,
}

impl Stream {
    pub(crate) fn start(name: &str) -> Stream {
        let (jobs, queue) = channel::<Job>();
        let thread = std::thread::Builder::new().name(format!("standin {name}"));
        let body = move || queue.into_iter().for_each(|job| job());
        let thread = thread.spawn(body).expect("a thread starts");
        Stream {
            jobs: Mutex::new(jobs),
            thread: thread.thread().id(),
        }
    }

    pub(crate) fn push(&self, job: impl FnOnce() + Send + 'static) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread lives as long as this does.
        let _ = jobs.send(Box::new(job));
    }

    /// Waits until all that was pushed is done, unless this is the stream's own thread.
    pub(crate) fn drain(&self) {
        if std::thread::current().id() == self.thread {
            return;
        }
        let drained = Event::new();
        let set = Arc::clone(&drained);
        self.push(move || set.set(Ok(())));
        let _ = drained.wait();
    }
}

/// The compute stream: it also knows what was enqueued last, and how much is in flight.
pub(crate) struct Compute {
    pub(crate) stream: Stream,
    last: Mutex<Arc<Event>>,
    in_flight: Arc<InFlight>,
}

struct InFlight {
    most: usize,
    count: Mutex<usize>,
    fewer: Condvar,
}

/// One of the launches that may be in flight.
pub(crate) struct Ticket(Arc<InFlight>);

impl Compute {
    pub(crate) fn start(name: &str, most: usize) -> Compute {
        Compute {
            stream: Stream::start(name),
            last: Mutex::new(Event::over(Ok(()))),
            in_flight: Arc::new(InFlight {
                most,
                count: Mutex::new(0),
                fewer: Condvar::new(),
            }),
        }
    }

    /// What was enqueued last: when it has happened, so has all before it.
    pub(crate) fn last(&self) -> Arc<Event> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&last)
    }

    /// Enqueues a job that sets `over` at its end.
    pub(crate) fn enqueue(&self, over: Arc<Event>, job: impl FnOnce() + Send + 'static) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = over;
        // With the lock held: the order of events is that of jobs.
        self.stream.push(job);
    }

    /// Waits until fewer launches are in flight than may be (SEC:1803).
    pub(crate) fn ticket(&self) -> Ticket {
        let shared = &self.in_flight;
        let count = shared.count.lock().unwrap_or_else(PoisonError::into_inner);
        let fewer = shared
            .fewer
            .wait_while(count, |count| *count >= shared.most);
        *fewer.unwrap_or_else(PoisonError::into_inner) += 1;
        Ticket(Arc::clone(shared))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.fewer.notify_one();
    }
}
