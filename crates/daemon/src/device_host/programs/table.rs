//! The programs that are loaded, and the requests that wait for one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use salus_device::Device;
use salus_engine::SessionId;
use salus_wire::Error;

use crate::device_host::programs::cache::Key;
use crate::device_host::programs::compiler_pool::{Cancel, Compilers};
use crate::device_host::programs::lookup::{Digest, HashedRequest, ProgramRequest, source_changed};
use crate::device_host::programs::turns::Turns;
use crate::device_host::programs::{Program, ThenUse};

/// Keys that are remembered, at about 100 bytes each.
const KEYS_MAX: usize = 1 << 14;

/// What is kept loaded although no session holds it.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) programs: usize,
    pub(super) bytes: u64,
    /// Programs that are loaded or compiled at once for one user while there is another.
    pub(super) at_once: u32,
}

pub(super) struct ProgramTable<D: Device> {
    loaded: BTreeMap<Key, Loaded<D>>,
    /// Keys by what was asked for, byte by byte.
    keys: HashMap<Digest, Key>,
    /// Keys that wait, or are being loaded or compiled.
    pending: BTreeMap<Key, Pending<D>>,
    turns: Turns<Key>,
    /// Programs that are being loaded or compiled, by the user they are for.
    at_work: BTreeMap<u32, u32>,
    /// Grows with every use of a program.
    uses: u64,
    pub(super) counts: Counts,
}

struct Pending<D: Device> {
    waiting: Vec<Waiting<D>>,
    /// Set while a thread loads or compiles it.
    work: Option<Arc<Cancel>>,
}

/// A session that waits for a program, with the source as it sent it.
pub(super) struct Waiting<D: Device> {
    pub(super) hashed: HashedRequest,
    pub(super) then: ThenUse<D>,
}

pub(super) struct Loaded<D: Device> {
    program: Arc<Program<D>>,
    last_use: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) found_loaded: u64,
    pub(super) found_on_disk: u64,
    pub(super) compiled: u64,
}

impl<D: Device> ProgramTable<D> {
    pub(super) fn new() -> Self {
        Self {
            loaded: BTreeMap::new(),
            keys: HashMap::new(),
            pending: BTreeMap::new(),
            turns: Turns::default(),
            at_work: BTreeMap::new(),
            uses: 0,
            counts: Counts::default(),
        }
    }

    /// How many programs are loaded.
    pub(super) fn loaded(&self) -> usize {
        self.loaded.len()
    }

    pub(super) fn known_key(&self, asked: &Digest) -> Option<Key> {
        self.keys.get(asked).copied()
    }

    pub(super) fn remember_key(&mut self, asked: Digest, key: Key) {
        if self.keys.len() >= KEYS_MAX {
            self.keys.clear();
        }
        self.keys.insert(asked, key);
    }

    /// A program that is loaded.
    pub(super) fn find(&mut self, key: &Key) -> Option<Arc<Program<D>>> {
        let found = self.loaded.get_mut(key)?;
        self.uses += 1;
        found.last_use = self.uses;
        self.counts.found_loaded += 1;
        Some(Arc::clone(&found.program))
    }

    pub(super) fn add(&mut self, key: Key, program: Arc<Program<D>>) {
        self.uses += 1;
        let last_use = self.uses;
        self.loaded.insert(key, Loaded { program, last_use });
    }

    /// Has a session wait for a program that is not loaded.
    pub(super) fn wait(&mut self, key: Key, waiting: Waiting<D>) {
        let request = &waiting.hashed.request;
        self.turns.push(request.user, request.session, key);
        let pending = self.pending.entry(key).or_insert_with(|| Pending {
            waiting: Vec::new(),
            work: None,
        });
        pending.waiting.push(waiting);
    }

    /// The next program to load or compile, if a user's turn has come.
    pub(super) fn next(&mut self, limits: Limits) -> Option<(Key, HashedRequest, Arc<Cancel>)> {
        loop {
            let busy: u32 = self.at_work.values().sum();
            let at_work = &self.at_work;
            let may = |user| busy < limits.at_once || !at_work.contains_key(&user);
            let (user, key) = self.turns.pop(may)?;
            // Another session's turn may have come before, for the same program.
            if let Some(pending) = self.pending.get_mut(&key).filter(|p| p.work.is_none())
                && let Some(first) = pending
                    .waiting
                    .iter()
                    .find(|one| one.hashed.request.user == user)
            {
                let (hashed, cancel) = (first.hashed.clone(), Arc::<Cancel>::default());
                pending.work = Some(Arc::clone(&cancel));
                *self.at_work.entry(user).or_default() += 1;
                return Some((key, hashed, cancel));
            }
        }
    }

    pub(super) fn work_ended(&mut self, user: u32) {
        if let Some(count) = self.at_work.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.at_work.remove(&user);
            }
        }
    }

    /// The sessions that are told what came of a request. If it failed on account of one session, and
    /// others wait for the same program, it is retried for them.
    pub(super) fn take_waiting(
        &mut self,
        key: &Key,
        request: &ProgramRequest,
        obtained: &Result<Arc<Program<D>>, Error>,
        cancelled: bool,
    ) -> Vec<Waiting<D>> {
        let Some(pending) = self.pending.get_mut(key) else {
            return Vec::new();
        };
        let by_one_session = match obtained {
            Ok(_) => false,
            Err(error) => cancelled || *error == source_changed(),
        };
        if !by_one_session {
            return self
                .pending
                .remove(key)
                .map_or_else(Vec::new, |p| p.waiting);
        }
        let all = std::mem::take(&mut pending.waiting).into_iter();
        let is_asker =
            |one: &Waiting<D>| !cancelled && one.hashed.request.session == request.session;
        let (told, others): (Vec<_>, Vec<_>) = all.partition(is_asker);
        match others.first() {
            None => drop(self.pending.remove(key)),
            Some(first) => {
                let first = &first.hashed.request;
                self.turns.push(first.user, first.session, *key);
                pending.work = None;
                pending.waiting = others;
            }
        }
        told
    }

    /// Takes out what a session waits for. Work that no other session waits for is cancelled.
    pub(super) fn forget(
        &mut self,
        user: u32,
        session: SessionId,
        compilers: &Compilers,
    ) -> Vec<Waiting<D>> {
        self.turns.forget(user, session);
        let mut gone = Vec::new();
        self.pending.retain(|_, pending| {
            let own = |one: &mut Waiting<D>| one.hashed.request.session == session;
            gone.extend(pending.waiting.extract_if(.., own));
            match &pending.work {
                Some(cancel) if pending.waiting.is_empty() => {
                    compilers.cancel(cancel);
                    true
                }
                Some(_) => true,
                None => !pending.waiting.is_empty(),
            }
        });
        gone
    }

    /// Takes out the least recently used programs that no session holds, as far as they are over the
    /// limits.
    pub(super) fn take_unused(&mut self, limits: Limits) -> Vec<Loaded<D>> {
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
