//! Programs: found loaded, found on disk, or compiled; shared by all sessions.
//!
//! `lookup` finds out which program a job asks for; two threads hash the sources, so that a session's
//! thread goes on starting iterations. A few more threads load and compile (here). Requests
//! for one key meet in one compilation (`table`). Users take turns, and so do each user's sessions,
//! so that many slow programs of one user delay another by one of them at most; one user's programs
//! never take all threads while there is another (`turns`). A compilation that no session waits for
//! any more is dropped, or its compiler ended.
//!
//! A source stays in its job's memory until its turn comes, however many wait; then it is copied, and
//! must be the same as when it was hashed.

pub(crate) mod cache;
pub(crate) mod compiler_pool;
pub(crate) mod earlier_runs;
pub(crate) mod leases;
mod lookup;
mod program;
mod table;
mod tuned;
pub(crate) mod turns;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use salus_channel::{lock, wait};
use salus_device::{Compiled, Device, is_host_memory};
use salus_engine::SessionId;
use salus_formats::requirements::required_options;
use salus_formats::vet;
use salus_wire::{Error, StoredProgram, Wire};
use serde_json::json;

pub(crate) use lookup::ProgramRequest;
pub(crate) use program::{Program, normalize};
pub(crate) use tuned::Tuned;

use crate::board::{self, BESIDE};
use crate::config::HostSettings;
use crate::device_host::programs::cache::{Disk, Key, Platform};
use crate::device_host::programs::compiler_pool::{Cancel, Compilers, Source};
use crate::device_host::programs::leases::Leases;
use crate::log::tame_name;
use lookup::{HashedRequest, Unhashed};
use program::{bytes_of, loaded_bytes};
use table::{Limits, ProgramTable};

/// What is done with a program, or with the reason why there is none.
pub(crate) type ThenUse<D> = Box<dyn FnOnce(Result<Arc<Program<D>>, Error>) + Send>;

pub(crate) struct Programs<D: Device> {
    device: Arc<D>,
    platform: Platform,
    disk: Disk,
    compilers: Arc<Compilers>,
    /// Where the device's compiler can measure on it.
    tuned: Option<Tuned<D>>,
    table: Mutex<ProgramTable<D>>,
    /// A program waits to be loaded or compiled.
    work: Condvar,
    small_unhashed: Unhashed<D>,
    large_unhashed: Unhashed<D>,
    /// What sessions hold.
    pub(crate) leases: Arc<Leases>,
    limits: Limits,
    /// Where it is noted that a program is being loaded.
    board: OnceLock<board::Writer>,
    /// Programs that ended a device host, and what a job that asks for one is told.
    convicted: Mutex<HashMap<u64, Error>>,
    /// Options that every program of this device's plugin gets.
    required: Vec<(&'static str, bool)>,
    /// Whether programs with kernels of the job's own are refused.
    refuses_raw_kernels: bool,
}

impl<D: Device> Programs<D> {
    pub(crate) fn start(
        device: Arc<D>,
        platform: Platform,
        disk: Disk,
        compilers: Arc<Compilers>,
        tuned: Option<Tuned<D>>,
        settings: &HostSettings,
    ) -> Arc<Self> {
        let programs = Arc::new(Self {
            required: required_options(device.description()),
            // On a CPU there are none: what could be called is a handler of the service's.
            refuses_raw_kernels: settings.refuses_raw_kernels() && !device.description().on_host,
            device,
            platform,
            disk,
            compilers,
            tuned,
            table: Mutex::new(ProgramTable::new()),
            work: Condvar::new(),
            small_unhashed: Unhashed::default(),
            large_unhashed: Unhashed::default(),
            leases: Leases::new(settings.user_programs_bytes()),
            board: OnceLock::new(),
            convicted: Mutex::default(),
            limits: Limits {
                programs: settings.cache.memory_programs as usize,
                bytes: settings.cache.memory,
                at_once: settings.compilers.count.max(1),
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
        let small = |programs: &Self| programs.hash(&programs.small_unhashed);
        start("hashes-small".into(), Box::new(small));
        let large = |programs: &Self| programs.hash(&programs.large_unhashed);
        start("hashes-large".into(), Box::new(large));
        programs
    }

    fn lock(&self) -> MutexGuard<'_, ProgramTable<D>> {
        lock(&self.table)
    }

    pub(crate) fn set_board(&self, board: board::Writer) {
        let _ = self.board.set(board);
    }

    /// Refuses a program from now on.
    pub(crate) fn convict(&self, program: u64, error: Error) {
        let mut convicted = lock(&self.convicted);
        convicted.insert(program, error);
    }

    /// A session has ended: what only it waits for is not needed.
    pub(crate) fn withdraw(&self, user: u32, session: SessionId) {
        let small = self.small_unhashed.forget(user, session);
        let large = self.large_unhashed.forget(user, session);
        let waiting = self.lock().forget(user, session, &self.compilers);
        // Each holds its session, and is dropped outside the locks.
        drop((small, large, waiting));
    }

    /// Sessions have dropped programs: unloads those that are more than is kept for later jobs.
    pub(crate) fn unload_unused(&self) {
        let unused = self.lock().take_unused(self.limits);
        // Unloading takes a while, so not under the lock.
        drop(unused);
    }

    /// Loads and compiles programs. Never returns.
    fn work(&self) {
        loop {
            let (key, hashed, cancel) = self.next();
            let obtained = self.obtain(&key, &hashed, &cancel);
            let request = &hashed.request;
            let mut table = self.lock();
            if let Ok(program) = &obtained {
                table.add(key, Arc::clone(program));
            }
            table.work_ended(request.user);
            let unused = table.take_unused(self.limits);
            let waiting = table.take_waiting(&key, request, &obtained, cancel.is_cancelled());
            drop(table);
            drop(unused);
            for one in waiting {
                (one.then)(obtained.clone());
            }
            // A session may have ended meanwhile and found the program still in use, here.
            drop(obtained);
            self.unload_unused();
        }
    }

    /// Waits for the next program whose turn it is.
    fn next(&self) -> (Key, HashedRequest, Arc<Cancel>) {
        let mut table = self.lock();
        loop {
            if let Some(next) = table.next(self.limits) {
                return next;
            }
            table = wait(&self.work, table);
        }
    }

    /// Finds a program on disk or has it compiled, and loads it.
    fn obtain(
        &self,
        key: &Key,
        hashed: &HashedRequest,
        cancel: &Cancel,
    ) -> Result<Arc<Program<D>>, Error> {
        let request = &hashed.request;
        if let Some(stored) = self.disk.get(key) {
            self.admit(&stored)?;
            if let Ok(program) = self.load(key, &stored, request.session) {
                self.lock().counts.found_on_disk += 1;
                return Ok(Arc::new(program));
            }
        }
        let code = hashed.source()?;
        let source = Source {
            format: &request.format,
            code: &code,
            options: &request.options,
        };
        let tuned = self.tuned.as_ref();
        let compiled = match tuned.and_then(|tuned| tuned.compile(&source, cancel)) {
            Some(program) => Ok(program),
            None => self.compilers.compile(&source, cancel),
        };
        drop(code);
        let stored = compiled?;
        self.disk.put(key, &stored);
        self.lock().counts.compiled += 1;
        self.admit(&stored)?;
        self.load(key, &stored, request.session).map(Arc::new)
    }

    /// Refuses what this service's users may not run. Not asked of the compiler: what is on disk may
    /// come from a time when the service had one user.
    fn admit(&self, stored: &StoredProgram) -> Result<(), Error> {
        if !self.refuses_raw_kernels {
            return Ok(());
        }
        vet::refuse_raw_kernels("hlo_with_config", &stored.signature.optimized_program)
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
        let output_bytes = outputs.map(|output| {
            let bytes = bytes_of(&output.shape);
            match is_host_memory(self.device.description(), output.memory) {
                true => bytes,
                false => self.device.allocated_bytes(bytes),
            }
        });
        let output_bytes = output_bytes.collect();
        let loaded_bytes = loaded_bytes(stored.executable.len() as u64);
        let compiled = Compiled {
            executable: stored.executable.clone(),
            signature: stored.signature.clone(),
        };
        let name = &compiled.signature.name;
        let board = self.board.get();
        let on_board = board.map(|board| board.begin(BESIDE, session.0, key.number(), name));
        let call = on_board.as_ref().and_then(board::Taken::call);
        let loaded = self.device.load(&compiled)?;
        drop((call, on_board));
        let mut signature = compiled.signature;
        // Only jobs ask for it, and they have it in the description.
        signature.optimized_program = Vec::new();
        // From here on the name is in errors, logs and traces; the job has it unchanged.
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
            short_of_memory: AtomicU32::new(0),
            learned_bytes: AtomicU64::new(0),
        })
    }

    /// Does this while no program can be found.
    #[cfg(test)]
    pub(crate) fn locked<R>(&self, what: impl FnOnce() -> R) -> R {
        let _table = self.lock();
        what()
    }

    pub(crate) fn report(&self) -> serde_json::Value {
        let table = self.lock();
        json!({
            "programs_loaded": table.loaded(),
            "found_loaded": table.counts.found_loaded,
            "found_on_disk": table.counts.found_on_disk,
            "compiled": table.counts.compiled,
        })
    }
}
