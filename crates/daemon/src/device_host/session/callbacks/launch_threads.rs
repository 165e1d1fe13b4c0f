//! Threads that run launches which call back. They are kept: starting one costs as much as a small
//! program.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, Weak};

use salus_channel::lock;

#[derive(Default)]
pub(crate) struct LaunchThreads {
    idle: Arc<IdleThreads>,
}

/// One sender per idle thread, which waits for its next task and ends when the sender is gone.
type IdleThreads = Mutex<Vec<Sender<Task>>>;
type Task = Box<dyn FnOnce() + Send>;

/// Idle threads that are kept: more callbacks at once are rare.
const IDLE_MAX: usize = 8;

impl LaunchThreads {
    /// Runs the task in a thread of its own.
    pub(crate) fn run(&self, mut task: Task) -> io::Result<()> {
        while let Some(thread) = self.pop() {
            // It may have ended meanwhile.
            match thread.send(task) {
                Ok(()) => return Ok(()),
                Err(back) => task = back.0,
            }
        }
        let idle = Arc::downgrade(&self.idle);
        std::thread::Builder::new()
            .name("calls-back".into())
            // The plugin may run the program inline here.
            .stack_size(8 << 20)
            .spawn(move || {
                task();
                while let Some(task) = next_task(&idle) {
                    task();
                }
            })?;
        Ok(())
    }

    fn pop(&self) -> Option<Sender<Task>> {
        lock(&self.idle).pop()
    }
}

/// Waits for the next task, unless enough threads do, or the device host ends.
fn next_task(idle: &Weak<IdleThreads>) -> Option<Task> {
    let (sender, tasks) = channel();
    {
        let idle = idle.upgrade()?;
        let mut idle = lock(&idle);
        if idle.len() >= IDLE_MAX {
            return None;
        }
        idle.push(sender);
    }
    tasks.recv().ok()
}
