//! The programs of a session: compiled or found for it, and held until its job drops them.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use salus_channel::lock;
use salus_device::Device;
use salus_engine::Event;
use salus_wire::{Compile, CompileFailed, Compiled, Error, FromService, ProgramId, limits};

use crate::device_host::errors::resource_exhausted;
use crate::device_host::programs::leases::Lease;
use crate::device_host::programs::{Program, ProgramRequest};
use crate::device_host::session::frames::Breach;
use crate::device_host::session::operations::refusals::never_fits;
use crate::device_host::session::{SessionThread, SharedSession};

/// Shared with the threads that compile, which add to it.
pub(crate) struct SessionPrograms<D: Device> {
    held: Arc<Mutex<HeldPrograms<D>>>,
    /// Compilations that the job asked for and that have not ended.
    compiling: Arc<AtomicUsize>,
}

/// By the ids that the job has given them.
type HeldPrograms<D> = HashMap<ProgramId, Arc<Lease<D>>>;

impl<D: Device> SessionPrograms<D> {
    pub(super) fn new() -> Self {
        Self {
            held: Arc::default(),
            compiling: Arc::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldPrograms<D>> {
        lock(&self.held)
    }

    pub(super) fn get(&self, program: ProgramId) -> Option<Arc<Lease<D>>> {
        self.held().get(&program).cloned()
    }
}

impl<D: Device> SessionThread<D> {
    pub(super) fn drop_program(&mut self, program: ProgramId) {
        let dropped = self.programs.held().remove(&program);
        if dropped.is_some() {
            self.shared.usage.programs.fetch_sub(1, Relaxed);
            drop(dropped);
            self.host.programs.unload_unused();
        }
    }

    /// Has a program compiled or found. The job is told when that is done.
    pub(super) fn compile(&mut self, compile: Compile) -> Result<(), Breach> {
        let code = self.segments.range(compile.code)?;
        let id = compile.program;
        let busy = self.programs.compiling.load(Relaxed);
        if compile.code.length > limits::PROGRAM_BYTES
            || busy >= limits::REQUESTS
            || self.programs.held().len() >= limits::PROGRAMS
        {
            let error = resource_exhausted(format!(
                "a program of {} bytes, with {busy} compilations under way, is beyond the limits",
                compile.code.length
            ));
            let failed = CompileFailed { program: id, error };
            self.shared.send(&FromService::from(failed), None);
            return Ok(());
        }
        self.programs.compiling.fetch_add(1, AcqRel);
        let (host, session) = (Arc::clone(&self.host), self.shared.id);
        host.engine
            .tell_of(session, Event::CompileStarted { session });
        let request = ProgramRequest {
            session,
            user: self.shared.identity.uid,
            format: compile.format,
            code,
            options: compile.options,
        };
        let shared = Arc::clone(&self.shared);
        let held = Arc::clone(&self.programs.held);
        let compiling = Arc::clone(&self.programs.compiling);
        let then = Box::new(move |result: Result<Arc<Program<D>>, Error>| {
            compiling.fetch_sub(1, AcqRel);
            host.engine
                .tell_of(session, Event::CompileEnded { session });
            if let Ok(program) = &result {
                let name = &program.signature.name;
                host.engine.name_program(program.number, name);
            }
            let result = result.and_then(|program| match never_fits(&shared, &program) {
                Some(error) => Err(error),
                None => Ok(program),
            });
            reply_compiled(&shared, &held, id, result);
        });
        self.host.programs.request(request, then);
        Ok(())
    }
}

/// Adds the program to those of the session and tells the job.
fn reply_compiled<D: Device>(
    session: &SharedSession<D>,
    held: &Mutex<HeldPrograms<D>>,
    id: ProgramId,
    result: Result<Arc<Program<D>>, Error>,
) {
    let added = result.and_then(|program| {
        let leases = &session.host.programs.leases;
        let program = leases.take(&session.identity, program)?;
        let (blob, bytes) = program.signature_blob().map_err(|e| {
            resource_exhausted(format!(
                "there is no room for the program's description: {e}"
            ))
        })?;
        let mut held = lock(held);
        let replaced = held.insert(id, program);
        drop(held);
        if replaced.is_none() {
            session.usage.programs.fetch_add(1, Relaxed);
        }
        Ok((Compiled { program: id, bytes }, blob))
    });
    match added {
        Ok((message, blob)) => session.send(&FromService::from(message), Some(blob)),
        Err(error) => {
            let failed = CompileFailed { program: id, error };
            session.send(&FromService::from(failed), None);
        }
    }
}
