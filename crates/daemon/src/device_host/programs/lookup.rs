//! Which program a job asks for: its source is hashed, and equal programs have equal keys.
//!
//! A session's thread hashes small sources itself, by their bytes alone, and if that program was asked
//! for before and is loaded, answers at once: most programs are, in the end. Everything else is left to
//! two threads that hash: rebuilding the options, and finding out what a program means wherever it was
//! written, which takes ten times as long as hashing its bytes. Large sources have a thread of their
//! own, because hashing one may take seconds. These are not the threads that load and compile, which may
//! be busy for minutes, because the program may be loaded.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use salus_channel::{lock, wait};
use salus_device::Device;
use salus_engine::SessionId;
use salus_wire::Error;

use crate::device_host::errors::invalid_argument;
use crate::device_host::memory::shared_range::SharedRange;
use crate::device_host::programs::cache::Key;
use crate::device_host::programs::table::Waiting;
use crate::device_host::programs::turns::Turns;
use crate::device_host::programs::{Program, Programs, ThenUse};

/// Sources up to this size are hashed by the session's thread, which takes about a tenth of a
/// millisecond at the most.
const SMALL_SOURCE_BYTES: u64 = 32 << 10;

/// A program as a job asks for it.
#[derive(Clone)]
pub(crate) struct ProgramRequest {
    pub(crate) session: SessionId,
    pub(crate) user: u32,
    pub(crate) format: String,
    /// Where the job has put the source.
    pub(crate) code: SharedRange,
    pub(crate) options: Vec<u8>,
}

pub(super) type Digest = [u8; 32];

/// A request whose source was hashed and whose options were rebuilt.
#[derive(Clone)]
pub(super) struct HashedRequest {
    pub(super) request: ProgramRequest,
    source: Digest,
}

impl HashedRequest {
    /// A copy of the source, if it still is what was hashed.
    pub(super) fn source(&self) -> Result<Vec<u8>, Error> {
        let code = self.request.code.bytes().to_vec();
        match Key::digest(&[&code]) == self.source {
            true => Ok(code),
            false => Err(source_changed()),
        }
    }
}

/// The error of a job that changes a source which waits to be compiled.
pub(super) fn source_changed() -> Error {
    invalid_argument("the program's source was changed while it waited to be compiled")
}

/// What was asked for, byte by byte.
fn digest_of(request: &ProgramRequest, source: &Digest) -> Digest {
    Key::digest(&[request.format.as_bytes(), &request.options, source])
}

/// Requests that wait to be hashed.
pub(super) struct Unhashed<D: Device> {
    requests: Mutex<Turns<(ProgramRequest, ThenUse<D>)>>,
    added: Condvar,
}

impl<D: Device> Default for Unhashed<D> {
    fn default() -> Self {
        Self {
            requests: Mutex::default(),
            added: Condvar::new(),
        }
    }
}

impl<D: Device> Unhashed<D> {
    fn lock(&self) -> MutexGuard<'_, Turns<(ProgramRequest, ThenUse<D>)>> {
        lock(&self.requests)
    }

    fn push(&self, request: ProgramRequest, then: ThenUse<D>) {
        let (user, session) = (request.user, request.session);
        self.lock().push(user, session, (request, then));
        self.added.notify_one();
    }

    /// Waits for the next.
    fn pop(&self) -> (ProgramRequest, ThenUse<D>) {
        let mut requests = self.lock();
        loop {
            if let Some((_, next)) = requests.pop(|_| true) {
                return next;
            }
            requests = wait(&self.added, requests);
        }
    }

    pub(super) fn forget(
        &self,
        user: u32,
        session: SessionId,
    ) -> VecDeque<(ProgramRequest, ThenUse<D>)> {
        self.lock().forget(user, session)
    }
}

impl<D: Device> Programs<D> {
    /// Finds a program or has it compiled. Called by sessions' threads; `then` runs at once if the
    /// program is small, loaded and was asked for before, otherwise in one of the threads here.
    pub(crate) fn request(&self, request: ProgramRequest, then: ThenUse<D>) {
        if request.code.len() as u64 > SMALL_SOURCE_BYTES {
            return self.large_unhashed.push(request, then);
        }
        match self.find_at_once(&request) {
            Some(found) => then(found),
            None => self.small_unhashed.push(request, then),
        }
    }

    fn find_at_once(&self, request: &ProgramRequest) -> Option<Result<Arc<Program<D>>, Error>> {
        let source = Key::digest(&[&request.code.bytes().to_vec()]);
        let key = self.lock().known_key(&digest_of(request, &source))?;
        if let Some(error) = self.conviction(&key) {
            return Some(Err(error));
        }
        self.lock().find(&key).map(Ok)
    }

    /// Finds out which programs are asked for. Never returns.
    pub(super) fn hash(&self, unhashed: &Unhashed<D>) {
        loop {
            let (request, then) = unhashed.pop();
            self.hash_one(request, then);
        }
    }

    /// Answers if the program is loaded, or has it loaded or compiled.
    fn hash_one(&self, mut request: ProgramRequest, then: ThenUse<D>) {
        let code = request.code.bytes().to_vec();
        let source = Key::digest(&[&code]);
        let asked = digest_of(&request, &source);
        request.options = match salus_formats::options::rebuild(&request.options, &self.required) {
            Ok(options) => options,
            Err(error) => return then(Err(error)),
        };
        let known = self.lock().known_key(&asked);
        let key = known.unwrap_or_else(|| {
            let key = Key::of(&self.platform, &request.format, &code, &request.options);
            self.lock().remember_key(asked, key);
            key
        });
        drop(code);
        if let Some(error) = self.conviction(&key) {
            return then(Err(error));
        }
        let mut table = self.lock();
        if let Some(program) = table.find(&key) {
            drop(table);
            return then(Ok(program));
        }
        let hashed = HashedRequest { request, source };
        table.wait(key, Waiting { hashed, then });
        self.work.notify_one();
    }

    fn conviction(&self, key: &Key) -> Option<Error> {
        let convicted = lock(&self.convicted);
        convicted.get(&key.number()).cloned()
    }
}
