//! The pool of compiler processes as the device host sees it: connections that come and go.
//!
//! The supervisor starts them when they are wanted, and ends them when a compilation takes too long or
//! no session waits for it any more ([`Cancel`]). A compiler that dies of a program takes that
//! compilation with it and is replaced by the next that is wanted; if it was killed from outside, the
//! compilation is retried once in another.

mod cancel;
mod connection;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use salus_channel::{lock, send_all, wait_timeout};
use salus_wire::{
    CompilerUnwanted, CompilerWanted, Description, Error, ErrorCode, StoredProgram, Target,
    ToCompiler,
};

pub(crate) use cancel::Cancel;

use crate::device_host::Supervisor;
pub(crate) use connection::Source;
use connection::{Connection, is_late};

/// A compiler starts in a tenth of a second; if none has joined after this time, none can start.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long the supervisor may take to tell how a compiler ended: it reaps its children at once.
const END_WAIT: Duration = Duration::from_secs(2);

pub(crate) struct Compilers {
    supervisor: Supervisor,
    /// Compilers at the most.
    limit: u32,
    start_wait: Duration,
    end_wait: Duration,
    /// How long a compilation may take.
    compile_limit: Duration,
    /// What compilers are told of the device, unless they open it themselves.
    target: Option<ToCompiler>,
    pool: Mutex<Pool>,
    changed: Condvar,
}

/// All compilers of the service: the pool, and the one that tunes.
pub(crate) struct AllCompilers {
    pub(crate) plain: Arc<Compilers>,
    pub(crate) tuning: Option<Arc<Compilers>>,
}

impl AllCompilers {
    /// Has the first ones started ahead of the first program.
    pub(crate) fn prepare(&self) {
        self.plain.prepare();
        if let Some(tuning) = &self.tuning {
            tuning.prepare();
        }
    }

    /// All are started alike, and told what to be by whoever waits.
    fn next(&self) -> &Compilers {
        match &self.tuning {
            Some(tuning) if tuning.waits_for_one() && !self.plain.waits_for_one() => tuning,
            _ => &self.plain,
        }
    }

    pub(crate) fn joined(&self, id: u64, socket: UnixStream) {
        self.next().joined(id, socket);
    }

    pub(crate) fn could_not_join(&self) {
        self.next().could_not_join();
    }

    pub(crate) fn ended(&self, id: u64, how: &str) {
        for compilers in [Some(&self.plain), self.tuning.as_ref()]
            .into_iter()
            .flatten()
        {
            compilers.ended(id, how.to_owned());
        }
    }
}

#[derive(Default)]
struct Pool {
    /// Asked for and not joined.
    wanted: u32,
    idle: Vec<Connection>,
    /// Those that compile, and how one ended once the supervisor has told.
    busy: BTreeMap<u64, Option<String>>,
}

impl Pool {
    fn count(&self) -> usize {
        self.wanted as usize + self.idle.len() + self.busy.len()
    }

    /// An idle compiler that lives.
    fn take_idle(&mut self) -> Option<Connection> {
        while let Some(connection) = self.idle.pop() {
            if connection.is_alive() {
                self.busy.insert(connection.id, None);
                return Some(connection);
            }
        }
        None
    }
}

impl Compilers {
    pub(crate) fn new(supervisor: Supervisor, limit: u32, compile_limit: Duration) -> Self {
        Self {
            supervisor,
            limit: limit.max(1),
            start_wait: START_WAIT,
            end_wait: END_WAIT,
            compile_limit,
            target: None,
            pool: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Compilers are told what the device is like, which they do not open.
    pub(crate) fn without_the_device(mut self, description: Description) -> Self {
        let tunes = false;
        self.target = Some(Target { description, tunes }.into());
        self
    }

    /// Compilers have a client of their own on the device that is described.
    pub(crate) fn that_tune(mut self, description: Description) -> Self {
        let tunes = true;
        self.target = Some(Target { description, tunes }.into());
        self
    }

    /// Whether one was asked for and has not come.
    pub(crate) fn waits_for_one(&self) -> bool {
        self.lock().wanted > 0
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        lock(&self.pool)
    }

    /// Has one compiler started ahead of the first program.
    pub(crate) fn prepare(&self) {
        self.want(&mut self.lock());
    }

    fn want(&self, pool: &mut Pool) {
        if pool.count() < self.limit as usize {
            pool.wanted += 1;
            self.supervisor.send(CompilerWanted { count: 1 });
        }
    }

    /// A compiler was started.
    pub(crate) fn joined(&self, id: u64, socket: UnixStream) {
        // What it is told fits into an empty socket. If it is gone, the first use of it finds out.
        let _ = self
            .target
            .as_ref()
            .map(|target| send_all(&socket, target, None));
        let mut pool = self.lock();
        pool.wanted = pool.wanted.saturating_sub(1);
        pool.idle.push(Connection { id, socket });
        self.changed.notify_one();
    }

    /// A compiler was started, and no descriptor was left for its connection. It ends on its own.
    pub(crate) fn could_not_join(&self) {
        let mut pool = self.lock();
        pool.wanted = pool.wanted.saturating_sub(1);
        self.changed.notify_all();
    }

    /// A compiler has ended. One that is neither idle nor busy was given up before.
    pub(crate) fn ended(&self, id: u64, how: String) {
        let mut pool = self.lock();
        pool.idle.retain(|connection| connection.id != id);
        if let Some(told) = pool.busy.get_mut(&id) {
            *told = Some(how);
        }
        self.changed.notify_all();
    }

    /// Compiles in one of the processes, waiting for a free one.
    pub(crate) fn compile(
        &self,
        source: &Source<'_>,
        cancel: &Cancel,
    ) -> Result<StoredProgram, Error> {
        match self.compile_once(source, cancel) {
            Err(Lost::Killed) => {}
            Err(Lost::Failed(error)) => return Err(error),
            Ok(result) => return result,
        }
        // The retry, in another process.
        match self.compile_once(source, cancel) {
            Ok(result) => result,
            Err(Lost::Failed(error)) => Err(error),
            Err(Lost::Killed) => Err(Error::new(
                ErrorCode::Unavailable,
                "two compiler processes were killed while they compiled this program; if the machine \
                 has run out of memory, its log says so, and fewer compilers (`[compilers] count`) \
                 need less",
            )),
        }
    }

    /// Compiles in one of the processes, once. `None` if it gave no answer.
    pub(crate) fn try_to_compile(
        &self,
        source: &Source<'_>,
        cancel: &Cancel,
    ) -> Option<Result<StoredProgram, Error>> {
        self.compile_once(source, cancel).ok()
    }

    fn compile_once(
        &self,
        source: &Source<'_>,
        cancel: &Cancel,
    ) -> Result<Result<StoredProgram, Error>, Lost> {
        let connection = self.take().map_err(Lost::Failed)?;
        let began = cancel.begin(connection.id);
        let answer = match began {
            true => connection.compile(source, self.compile_limit),
            false => Ok(Err(cancelled())),
        };
        // It may have been cancelled after the answer came: then the process is being ended.
        let spared = cancel.end() || !began;
        let late = matches!(&answer, Err(e) if is_late(e.kind()));
        match answer {
            Ok(result) if spared => {
                self.give_back(connection);
                return Ok(result);
            }
            Ok(_) => {}
            Err(_) if late && spared => {
                let compiler = connection.id;
                self.supervisor.send(CompilerUnwanted { compiler });
            }
            Err(_) => {}
        }
        let how = self.wait_for_end(connection);
        if !spared {
            return Err(Lost::Failed(cancelled()));
        }
        if late {
            return Err(Lost::Failed(self.too_late()));
        }
        if how.contains("SIGKILL") || how.contains("SIGTERM") {
            return Err(Lost::Killed);
        }
        // Not `Unavailable`, which would say that a retry may help.
        Err(Lost::Failed(Error::new(
            ErrorCode::Internal,
            format!(
                "the compiler process ended while it compiled this program ({how}); no other job \
                 is affected. The vendor's compiler cannot cope with the program: change the \
                 program, or report it to the vendor"
            ),
        )))
    }

    fn too_late(&self) -> Error {
        let seconds = self.compile_limit.as_secs();
        Error::new(
            ErrorCode::DeadlineExceeded,
            format!(
                "the program was not compiled within {seconds} s, so its compilation was ended"
            ),
        )
        .hint(
            "`[limits] compile_seconds` of salus.toml sets how long one may take; nested loops \
             and very long programs take longest",
        )
    }

    /// No session waits for this compilation any more.
    pub(crate) fn cancel(&self, cancel: &Cancel) {
        if let Some(compiler) = cancel.cancel() {
            self.supervisor.send(CompilerUnwanted { compiler });
        }
    }

    /// Waits for an idle compiler.
    fn take(&self) -> Result<Connection, Error> {
        let mut deadline = Instant::now() + self.start_wait;
        let mut pool = self.lock();
        loop {
            if let Some(connection) = pool.take_idle() {
                return Ok(connection);
            }
            self.want(&mut pool);
            let now = Instant::now();
            if now >= deadline {
                if pool.busy.is_empty() {
                    return Err(self.none_started());
                }
                // A compilation may take minutes, and then its compiler is free.
                deadline = now + self.start_wait;
            }
            pool = wait_timeout(&self.changed, pool, deadline - now).0;
        }
    }

    fn none_started(&self) -> Error {
        Error::new(
            ErrorCode::Unavailable,
            format!(
                "no compiler process could be started within {} s, so the program was not compiled: \
                 see the service's log for the reason, then start the job again",
                self.start_wait.as_secs_f64()
            ),
        )
    }

    fn give_back(&self, connection: Connection) {
        let mut pool = self.lock();
        // Unless it ended after its answer.
        if let Some(None) = pool.busy.remove(&connection.id) {
            pool.idle.push(connection);
        }
        drop(pool);
        self.changed.notify_one();
    }

    /// Closes the connection, which ends the process, and waits until the supervisor tells how it
    /// ended.
    fn wait_for_end(&self, connection: Connection) -> String {
        let id = connection.id;
        drop(connection);
        let deadline = Instant::now() + self.end_wait;
        let mut pool = self.lock();
        let how = loop {
            if let Some(how) = pool.busy.get_mut(&id).and_then(Option::take) {
                break how;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                break "it is not known how".into();
            };
            pool = wait_timeout(&self.changed, pool, left).0;
        };
        pool.busy.remove(&id);
        drop(pool);
        // Another may be started in its place.
        self.changed.notify_all();
        how
    }
}

/// Why a compilation has no result.
enum Lost {
    /// The process was killed from outside: the program may compile in another.
    Killed,
    Failed(Error),
}

fn cancelled() -> Error {
    Error::new(
        ErrorCode::Cancelled,
        "no session waits for this program any more",
    )
}
