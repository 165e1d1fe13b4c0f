//! Mutexes, and what a poisoned one means: nothing.
//!
//! In the device host any panic ends the process, so no thread sees what it left behind. In a job, a
//! panic inside the library has become a PJRT error; every structure behind a lock is left valid
//! between two statements, so other threads go on with it. Code that cannot promise that must not
//! use these functions.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, WaitTimeoutResult};
use std::time::Duration;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    let woken = condition.wait(guard);
    woken.unwrap_or_else(PoisonError::into_inner)
}

pub fn wait_timeout<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
    let woken = condition.wait_timeout(guard, timeout);
    woken.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisoned_lock_is_taken() {
        let mutex = Mutex::new(1);
        let ended = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut guard = lock(&mutex);
                *guard = 2;
                panic!("with the lock held");
            });
            holder.join()
        });
        assert!(ended.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
    }
}
