//! A compilation that can be cancelled when no session waits for it any more.

use std::sync::{Mutex, MutexGuard};

use salus_channel::lock;

#[derive(Debug, Default)]
pub(crate) struct Cancel(Mutex<Compilation>);

#[derive(Debug, Default)]
struct Compilation {
    cancelled: bool,
    /// The process that compiles.
    compiler: Option<u64>,
}

impl Cancel {
    fn lock(&self) -> MutexGuard<'_, Compilation> {
        lock(&self.0)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    /// Cancels it. Returns the compiler that must be ended, if one compiles.
    pub(super) fn cancel(&self) -> Option<u64> {
        let mut compilation = self.lock();
        if std::mem::replace(&mut compilation.cancelled, true) {
            return None;
        }
        compilation.compiler
    }

    /// A compiler begins. False if it was cancelled before.
    pub(super) fn begin(&self, compiler: u64) -> bool {
        let mut compilation = self.lock();
        compilation.compiler = Some(compiler);
        !compilation.cancelled
    }

    /// From here on the compiler is not ended on account of this compilation. False if it has been.
    pub(super) fn end(&self) -> bool {
        let mut compilation = self.lock();
        compilation.compiler = None;
        !compilation.cancelled
    }
}
