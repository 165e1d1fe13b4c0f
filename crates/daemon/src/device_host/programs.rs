//! Programs: found loaded, found on disk, or compiled; shared by all sessions.
//!
//! A few threads load and compile, and one hashes what is large, so that a session's thread goes on
//! starting iterations while its job waits for a program. Requests for one key meet in one compilation.
//! Users take turns, and each one's sessions, so that many slow programs of one delay another by one of
//! them at most; one user's never take all the threads. What nobody waits for any more is dropped, or its
//! compiler ended.
//!
//! A source stays in its job's memory until its turn comes, however many wait; then it is copied, and
//! must still be what was asked for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use salus_device::requirements::required_options;
use salus_device::{Compiled, Device, Shape, Signature, host_bytes};
use salus_engine::SessionId;
use salus_wire::{Error, Output, StoredProgram, Wire};
use serde_json::json;

use super::compilers::{Cancel, Compilers};
use super::leases::Leases;
use super::operations::Range;
use super::turns::Turns;
use crate::board::{self, BESIDE};
use crate::cache::{Disk, Key, Platform};
use crate::config::HostSettings;
use crate::log::tame_name;

/// A program loaded into the device.
pub(crate) struct Program<D: Device> {
    /// Under which the engine knows it: the same for equal programs, today and tomorrow.
    pub(super) number: salus_engine::Program,
    pub(crate) signature: Signature,
    pub(crate) loaded: D::Program,
    /// The signature as it is sent to jobs. Not as a blob, which would be a descriptor for each of
    /// thousands of programs.
    description: Vec<u8>,
    /// About what it takes of this process's memory.
    pub(super) loaded_bytes: u64,
    /// Of each output, as it is charged.
    pub(super) output_bytes: Vec<u64>,
    /// Scratch beyond what the compiler said, learned from the device.
    learned_bytes: AtomicU64,
}

impl<D: Device> Program<D> {
    /// What a run takes besides its arrays: what the compiler said, and what was learned since.
    pub(super) fn scratch_bytes(&self) -> u64 {
        let temp = self
            .signature
            .memory
            .as_ref()
            .map_or(0, |memory| memory.temp_bytes);
        u64::try_from(temp).unwrap_or(0) + self.learned_bytes.load(Relaxed)
    }

    /// The fewest bytes that the arrays of a run can have: of its arguments, and of outputs beside
    /// them. One array may be given for all parameters of its shape. But an output that takes an
    /// argument's place needs one that is given only once, or a place of its own.
    pub(super) fn least_bytes(&self) -> (u64, u64) {
        let Signature {
            parameters,
            outputs,
            donated,
            ..
        } = &self.signature;
        let replaced = |output: &Output| output.aliases.filter(|index| donated.contains(index));
        let taken_over: HashSet<u32> = outputs.iter().filter_map(replaced).collect();
        let (given_once, others): (Vec<_>, Vec<_>) = (0..)
            .zip(parameters)
            .partition(|(index, _)| taken_over.contains(index));
        let shapes: HashSet<&Shape> = others.into_iter().map(|(_, shape)| shape).collect();
        let given_once = given_once.into_iter().map(|(_, shape)| shape);
        let arguments = given_once.chain(shapes).map(bytes_of).sum();
        let outputs = outputs.iter().zip(&self.output_bytes);
        let new = outputs.filter(|(output, _)| replaced(output).is_none());
        (arguments, new.map(|(_, bytes)| bytes).sum())
    }

    /// A run took so much more scratch than was thought.
    pub(super) fn learn(&self, more_bytes: u64) {
        self.learned_bytes.fetch_add(more_bytes, Relaxed);
    }

    pub(super) fn signature_blob(&self) -> std::io::Result<(OwnedFd, u64)> {
        let bytes = self.description.len() as u64;
        Ok((salus_channel::blob(&self.description)?, bytes))
    }
}

pub(crate) type Answer<D> = Box<dyn FnOnce(Result<Arc<Program<D>>, Error>) + Send>;

pub(crate) struct Programs<D: Device> {
    device: Arc<D>,
    platform: Platform,
    disk: Disk,
    compilers: Arc<Compilers>,
    state: Mutex<State<D>>,
    work: Condvar,
    /// What is to be hashed by a thread of its own.
    large: Mutex<Turns<(Asked, Answer<D>)>>,
    hash: Condvar,
    /// What sessions hold.
    pub(super) leases: Arc<Leases>,
    limits: Limits,
    /// Where it is said that a program is being loaded.
    board: OnceLock<board::Writer>,
    /// Programs that ended a device host, and what is said to whoever wants one.
    convicted: Mutex<HashMap<u64, String>>,
    /// Options that every program of this device's plugin gets.
    required: Vec<(&'static str, bool)>,
}

/// What is kept loaded although no session has it.
#[derive(Clone, Copy)]
struct Limits {
    programs: usize,
    bytes: u64,
    /// Programs that are loaded or compiled at once for one user while there is another.
    at_once: u32,
}

/// Loaded code takes about this many times its serialized size (measured on the CPU plugin: 0.7 MB and
/// 1.1 MB became 15 MiB and 27 MiB),
const CODE_TIMES: u64 = 24;
/// and constants that many times theirs (32 MiB became 73 MB).
const CONSTANT_TIMES: u64 = 3;
/// Of what is larger the rest is constants, as a rule.
const CODE_BYTES: u64 = 4 << 20;

/// What a program takes once it is loaded, by its serialized size.
fn loaded_bytes(executable_bytes: u64) -> u64 {
    let code = executable_bytes.min(CODE_BYTES);
    code * CODE_TIMES + (executable_bytes - code) * CONSTANT_TIMES
}

struct State<D: Device> {
    loaded: BTreeMap<Key, Loaded<D>>,
    /// Keys by the bytes that were asked for: a program's meaning takes ten times as long to find.
    keys: HashMap<[u8; 32], Key>,
    /// Keys that wait, or are being loaded or compiled.
    pending: BTreeMap<Key, Pending<D>>,
    turns: Turns<Key>,
    /// Programs that are being loaded or compiled, by the user they are for.
    at_work: BTreeMap<u32, u32>,
    uses: u64,
    counts: Counts,
}

struct Pending<D: Device> {
    waiting: Vec<Waiting<D>>,
    /// Set while a thread is at it.
    work: Option<Arc<Cancel>>,
}

/// A session that waits for a program, with the source as it sent it.
struct Waiting<D: Device> {
    asked: Asked,
    answer: Answer<D>,
}

struct Loaded<D: Device> {
    program: Arc<Program<D>>,
    last_use: u64,
}

#[derive(Default)]
struct Counts {
    found_loaded: u64,
    found_on_disk: u64,
    compiled: u64,
}

/// Sources up to here are hashed by whoever asks, which takes a few tenths of a millisecond. So a
/// program that is loaded, as most are in the end, is found without the way through another thread.
/// What is larger has a thread of its own instead of one of those that compile, because it may be
/// loaded, too, and they may be busy for minutes.
const AT_ONCE_BYTES: u64 = 32 << 10;

/// Keys that are remembered: one in 100 bytes.
const KEYS: usize = 1 << 14;

/// A program as a job asks for it.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) session: SessionId,
    pub(super) user: u32,
    pub(super) format: String,
    /// Where the job has put the source.
    pub(super) code: Range,
    pub(super) options: Vec<u8>,
}

impl<D: Device> Programs<D> {
    pub(super) fn start(
        device: Arc<D>,
        platform: Platform,
        disk: Disk,
        compilers: Arc<Compilers>,
        settings: &HostSettings,
    ) -> Arc<Self> {
        let state = State {
            loaded: BTreeMap::new(),
            keys: HashMap::new(),
            pending: BTreeMap::new(),
            turns: Turns::default(),
            at_work: BTreeMap::new(),
            uses: 0,
            counts: Counts::default(),
        };
        let programs = Arc::new(Self {
            required: required_options(device.description()),
            device,
            platform,
            disk,
            compilers,
            state: Mutex::new(state),
            work: Condvar::new(),
            large: Mutex::default(),
            hash: Condvar::new(),
            leases: Leases::new(settings.user_programs_bytes()),
            board: OnceLock::new(),
            convicted: Mutex::default(),
            limits: Limits {
                programs: settings.cache_memory_programs as usize,
                bytes: settings.cache_memory_bytes,
                at_once: settings.compilers.max(1),
            },
        });
        let start = |name: String, work: Box<dyn FnOnce(&Self) + Send>| {
            let programs = Arc::clone(&programs);
            std::thread::Builder::new()
                .name(name)
                .spawn(move || work(&programs))
                .expect("the process may start its few threads");
        };
        for n in 0..settings.compilers_max() {
            start(format!("programs-{n}"), Box::new(Self::work));
        }
        start("hashes".into(), Box::new(Self::hash));
        programs
    }

    /// Answers at once if the program is small and loaded, else from one of the threads.
    pub(super) fn request(&self, asked: Asked, answer: Answer<D>) {
        if asked.code.region.length <= AT_ONCE_BYTES {
            return self.find(asked, answer);
        }
        let (user, session) = (asked.user, asked.session);
        let mut large = self.large.lock().expect("no panic under this lock");
        large.push(user, session, (asked, answer));
        drop(large);
        self.hash.notify_one();
    }

    /// Looks for large programs, for ever.
    fn hash(&self) {
        let mut large = self.large.lock().expect("no panic under this lock");
        loop {
            let Some((_, (asked, answer))) = large.pop(|_| true) else {
                large = self.hash.wait(large).expect("no panic under this lock");
                continue;
            };
            drop(large);
            self.find(asked, answer);
            large = self.large.lock().expect("no panic under this lock");
        }
    }

    /// Answers if the program is loaded, or has it loaded or compiled.
    fn find(&self, mut asked: Asked, answer: Answer<D>) {
        asked.options = match salus_device::options::rebuild(&asked.options, &self.required) {
            Ok(options) => options,
            Err(error) => return answer(Err(error)),
        };
        let key = self.key(&asked, &asked.code.copy());
        if let Some(error) = self.conviction(&key) {
            return answer(Err(error));
        }
        let mut state = self.lock();
        state.uses += 1;
        let now = state.uses;
        if let Some(found) = state.loaded.get_mut(&key) {
            found.last_use = now;
            let program = Arc::clone(&found.program);
            state.counts.found_loaded += 1;
            drop(state);
            return answer(Ok(program));
        }
        state.turns.push(asked.user, asked.session, key);
        let pending = state.pending.entry(key).or_insert_with(|| Pending {
            waiting: Vec::new(),
            work: None,
        });
        pending.waiting.push(Waiting { asked, answer });
        self.work.notify_one();
    }

    pub(super) fn set_board(&self, board: board::Writer) {
        let _ = self.board.set(board);
    }

    /// Refuses a program from now on.
    pub(super) fn convict(&self, program: u64, why: String) {
        let mut convicted = self.convicted.lock().expect("no panic under this lock");
        convicted.insert(program, why);
    }

    fn conviction(&self, key: &Key) -> Option<Error> {
        let convicted = self.convicted.lock().expect("no panic under this lock");
        let message = convicted.get(&key.number())?.clone();
        Some(Error { code: 9, message })
    }

    fn key(&self, asked: &Asked, code: &[u8]) -> Key {
        let bytes = Key::digest(&[asked.format.as_bytes(), &asked.options, code]);
        if let Some(key) = self.lock().keys.get(&bytes) {
            return *key;
        }
        let key = Key::of(&self.platform, &asked.format, code, &asked.options);
        let mut state = self.lock();
        if state.keys.len() >= KEYS {
            state.keys.clear();
        }
        state.keys.insert(bytes, key);
        key
    }

    /// A session is gone: what only it waits for is not needed.
    pub(super) fn withdraw(&self, user: u32, session: SessionId) {
        let mut large = self.large.lock().expect("no panic under this lock");
        let unread = large.forget(user, session);
        drop(large);
        let mut state = self.lock();
        state.turns.forget(user, session);
        let mut gone = Vec::new();
        state.pending.retain(|_, pending| {
            let theirs = |one: &mut Waiting<D>| one.asked.session == session;
            gone.extend(pending.waiting.extract_if(.., theirs));
            match &pending.work {
                Some(cancel) if pending.waiting.is_empty() => {
                    self.compilers.cancel(cancel);
                    true
                }
                Some(_) => true,
                None => !pending.waiting.is_empty(),
            }
        });
        drop(state);
        // Each holds its session.
        drop((gone, unread));
    }

    fn work(&self) {
        loop {
            let (key, asked, cancel) = self.next();
            let obtained = self.obtain(&key, &asked, &cancel);
            let mut state = self.lock();
            if let Ok(program) = &obtained {
                state.uses += 1;
                let last_use = state.uses;
                let program = Arc::clone(program);
                state.loaded.insert(key, Loaded { program, last_use });
            }
            state.work_ended(asked.user);
            let unused = state.take_unused(self.limits);
            let answers = state.answers(&key, &asked, &obtained, cancel.is_cancelled());
            drop(state);
            drop(unused);
            for waiting in answers {
                (waiting.answer)(obtained.clone());
            }
        }
    }

    /// Sessions have let go of programs: those that are more than is kept for the next job are unloaded.
    pub(super) fn forget_unused(&self) {
        let unused = self.lock().take_unused(self.limits);
        // It takes a while, so not under the lock.
        drop(unused);
    }

    /// Waits for the next program whose turn it is.
    fn next(&self) -> (Key, Asked, Arc<Cancel>) {
        let mut state = self.lock();
        loop {
            let busy: u32 = state.at_work.values().sum();
            let State { turns, at_work, .. } = &mut *state;
            let may = |user| busy < self.limits.at_once || !at_work.contains_key(&user);
            let Some((user, key)) = turns.pop(may) else {
                state = self.work.wait(state).expect("no panic under this lock");
                continue;
            };
            // Another session's turn may have come before, for the same program.
            if let Some(pending) = state.pending.get_mut(&key).filter(|p| p.work.is_none())
                && let Some(first) = pending.waiting.iter().find(|one| one.asked.user == user)
            {
                let (asked, cancel) = (first.asked.clone(), Arc::<Cancel>::default());
                pending.work = Some(Arc::clone(&cancel));
                *state.at_work.entry(user).or_default() += 1;
                return (key, asked, cancel);
            }
        }
    }

    fn obtain(&self, key: &Key, asked: &Asked, cancel: &Cancel) -> Result<Arc<Program<D>>, Error> {
        if let Some(stored) = self.disk.get(key)
            && let Ok(program) = self.load(key, &stored, asked.session)
        {
            self.lock().counts.found_on_disk += 1;
            return Ok(Arc::new(program));
        }
        let code = asked.code.copy();
        if self.key(asked, &code) != *key {
            return Err(changed());
        }
        let compiled = self
            .compilers
            .compile(&asked.format, &code, &asked.options, cancel);
        drop(code);
        let stored = compiled?;
        self.disk.put(key, &stored);
        self.lock().counts.compiled += 1;
        self.load(key, &stored, asked.session).map(Arc::new)
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().expect("no panic under this lock")
    }

    fn load(
        &self,
        key: &Key,
        stored: &StoredProgram,
        session: SessionId,
    ) -> Result<Program<D>, Error> {
        let mut description = Vec::new();
        stored.signature.put(&mut description);
        let outputs = stored.signature.outputs.iter();
        let output_bytes = outputs.map(|output| bytes_of(&output.shape)).collect();
        let loaded_bytes = loaded_bytes(stored.executable.len() as u64);
        let compiled = Compiled {
            executable: stored.executable.clone(),
            signature: stored.signature.clone(),
        };
        let name = &compiled.signature.name;
        let board = self.board.get();
        let loads = board.map(|board| board.begin(BESIDE, session.0, key.number(), name));
        let call = loads.as_ref().and_then(board::Taken::call);
        let loaded = self.device.load(&compiled)?;
        drop((call, loads));
        let mut signature = compiled.signature;
        // Only jobs ask for it, and they have it in the description.
        signature.optimized_program = Vec::new();
        // From here on it stands in errors, logs and traces; the job has it as it was.
        signature.name = tame_name(&signature.name);
        for shape in &mut signature.parameters {
            normalize(shape);
        }
        for output in &mut signature.outputs {
            normalize(&mut output.shape);
        }
        Ok(Program {
            number: salus_engine::Program(key.number()),
            signature,
            loaded,
            description,
            loaded_bytes,
            output_bytes,
            learned_bytes: AtomicU64::new(0),
        })
    }

    /// Does this while no program can be found.
    #[cfg(test)]
    pub(super) fn locked<R>(&self, what: impl FnOnce() -> R) -> R {
        let _state = self.lock();
        what()
    }

    pub(super) fn report(&self) -> serde_json::Value {
        let state = self.lock();
        json!({
            "programs_loaded": state.loaded.len(),
            "found_loaded": state.counts.found_loaded,
            "found_on_disk": state.counts.found_on_disk,
            "compiled": state.counts.compiled,
        })
    }
}

impl<D: Device> State<D> {
    /// Who is to be told of what came of a program. Where that was one session's own doing, and others
    /// wait for the same program, it is tried again for them.
    fn answers(
        &mut self,
        key: &Key,
        asked: &Asked,
        obtained: &Result<Arc<Program<D>>, Error>,
        cancelled: bool,
    ) -> Vec<Waiting<D>> {
        let Some(pending) = self.pending.get_mut(key) else {
            return Vec::new();
        };
        let own = match obtained {
            Ok(_) => false,
            Err(error) => cancelled || *error == changed(),
        };
        if !own {
            return self
                .pending
                .remove(key)
                .map_or_else(Vec::new, |p| p.waiting);
        }
        let all = std::mem::take(&mut pending.waiting).into_iter();
        let of_asker = |one: &Waiting<D>| !cancelled && one.asked.session == asked.session;
        let (told, others): (Vec<_>, Vec<_>) = all.partition(of_asker);
        match others.first() {
            None => drop(self.pending.remove(key)),
            Some(first) => {
                self.turns.push(first.asked.user, first.asked.session, *key);
                pending.work = None;
                pending.waiting = others;
            }
        }
        told
    }

    fn work_ended(&mut self, user: u32) {
        if let Some(count) = self.at_work.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.at_work.remove(&user);
            }
        }
    }

    /// Takes the least recently used programs out that no session has, as many as are too many.
    fn take_unused(&mut self, limits: Limits) -> Vec<Loaded<D>> {
        let mut unused = Vec::new();
        let mut bytes: u64 = self
            .loaded
            .values()
            .map(|one| one.program.loaded_bytes)
            .sum();
        while self.loaded.len() > limits.programs || bytes > limits.bytes {
            let oldest = self
                .loaded
                .iter()
                .filter(|(_, loaded)| Arc::strong_count(&loaded.program) == 1)
                .min_by_key(|(_, loaded)| loaded.last_use)
                .map(|(key, _)| *key);
            let Some(gone) = oldest.and_then(|key| self.loaded.remove(&key)) else {
                break;
            };
            bytes -= gone.program.loaded_bytes;
            unused.push(gone);
        }
        unused
    }
}

fn changed() -> Error {
    Error {
        code: 3,
        message: "the program's source was changed while it waited to be compiled".into(),
    }
}

/// Tokens take nothing.
fn bytes_of(shape: &Shape) -> u64 {
    host_bytes(shape).unwrap_or(0) as u64
}

/// The default layout has one spelling, so that shapes can be compared.
pub(super) fn normalize(shape: &mut Shape) {
    let default = |order: &Vec<i64>| order.iter().copied().eq((0..shape.dims.len() as i64).rev());
    if shape.minor_to_major.as_ref().is_some_and(default) {
        shape.minor_to_major = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_do_not_count_as_code() {
        assert_eq!(loaded_bytes(1 << 20), 24 << 20);
        assert_eq!(loaded_bytes(36 << 20), (4 * 24 + 32 * 3) << 20);
    }
}
