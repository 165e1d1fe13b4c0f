//! What a job asks for, done in the order asked.
//!
//! Frames become operations; regions and programs are resolved when a frame arrives, arrays when
//! its operation's turn comes. A launch at the head of the queue waits for the engine; what stands
//! behind it waits too, because it may depend on it. Compilations do not stand in the queue.
//!
//! Promise: types, shapes, deletion and ranges are checked here, before anything reaches the
//! plugin, which itself checks only sizes.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::{Arc, Mutex};

use salus_channel::{Mapping, Received, Segment};
use salus_device::{Device, Shape};
use salus_engine::Event;
use salus_wire::{
    Compile, CompileFailed, Compiled, Error, Form, FromService, Region, ToService, limits,
};

use super::Host;
use super::admission::{Admitted, never_fits};
use super::arrays::{Charge, Entry, Held, Kind, Reading, Slot};
use super::launch::Launch;
use super::leases::Lease;
use super::profile::Allowance;
use super::programs::{Asked, Program};
use super::read::{Read, is_plain};
use super::session::Session;

pub(super) const INVALID_ARGUMENT: u32 = 3;
pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
const INTERNAL: u32 = 13;

/// Operations decoded and not yet done: more than a job's window of launches with all that
/// surrounds them.
const QUEUE: usize = 4096;
/// Ids in them: sixteen of the largest launches.
const QUEUED_IDS: usize = 16 * limits::ARGUMENTS;

/// What the session's thread alone knows.
pub(super) struct Operations<D: Device> {
    pub(super) session: Arc<Session<D>>,
    pub(super) host: Arc<Host<D>>,
    pub(super) queue: VecDeque<Operation<D>>,
    /// Ids that stand in the queue, which make up most of its size.
    queued_ids: usize,
    /// What the operation at the head of the queue has asked the engine for.
    pub(super) announced: Option<salus_engine::Demand>,
    pub(super) arrays: HashMap<u64, Slot<D>>,
    /// Filled by the threads that compile.
    programs: Arc<Mutex<HashMap<u64, Arc<Lease<D>>>>>,
    compiling: Arc<AtomicUsize>,
    segments: HashMap<u32, Arc<Mapped>>,
    /// Held by each mapping that lives, announced or not.
    mapped: Arc<()>,
    /// The program of the last launch, as long as nothing is known of earlier runs.
    pub(super) unknown: Option<salus_engine::Program>,
    /// Donated arguments of launches that run: dropping one would block until its launch ends.
    pub(super) graveyard: HashMap<u64, Vec<Arc<Entry<D>>>>,
    pub(super) profiles: Allowance,
}

/// Why no more is heard of a job.
pub(super) enum Breach {
    /// The other side is not our library, or has a bug.
    Protocol(String),
    /// It has as much as one may have.
    Limit(String),
}

impl From<String> for Breach {
    fn from(how: String) -> Self {
        Self::Protocol(how)
    }
}

impl From<&str> for Breach {
    fn from(how: &str) -> Self {
        Self::Protocol(how.to_owned())
    }
}

/// The memory of a segment. Arrays keep it after the job has taken the segment back, so what is
/// counted is what is mapped.
pub(super) struct Mapped {
    memory: Mapping,
    _counted: Arc<()>,
}

impl std::ops::Deref for Mapped {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.memory
    }
}

/// A range of a segment, checked and kept mapped.
#[derive(Clone)]
pub(super) struct Range {
    pub(super) segment: Arc<Mapped>,
    pub(super) region: Region,
}

impl Range {
    /// Where the range is mapped, valid while `segment` lives. It was checked when it was made.
    pub(super) fn address(&self) -> *mut u8 {
        let Region { offset, length, .. } = self.region;
        self.segment
            .range(offset, length)
            .expect("checked when it was made")
    }

    /// What lies there now.
    pub(super) fn copy(&self) -> Vec<u8> {
        let Region { offset, length, .. } = self.region;
        let copy = self.segment.copy_out(offset, length);
        copy.expect("checked when it was made")
    }
}

pub(super) enum Operation<D: Device> {
    Upload {
        array: u64,
        shape: Shape,
        memory: u32,
        data: Range,
    },
    Launch(Launch<D>),
    Copy {
        operation: u64,
        array: u64,
        copy: u64,
        memory: u32,
    },
    Read {
        request: u64,
        array: u64,
        target: Range,
        form: Form,
    },
    Drop(Vec<u64>),
}

impl<D: Device> Operation<D> {
    fn ids(&self) -> usize {
        match self {
            Self::Launch(launch) => launch.ids(),
            Self::Drop(arrays) => arrays.len(),
            Self::Upload { .. } | Self::Copy { .. } | Self::Read { .. } => 1,
        }
    }
}

impl<D: Device> Operations<D> {
    pub(super) fn new(session: &Arc<Session<D>>, host: &Arc<Host<D>>) -> Self {
        Self {
            session: Arc::clone(session),
            host: Arc::clone(host),
            queue: VecDeque::new(),
            queued_ids: 0,
            announced: None,
            arrays: HashMap::new(),
            programs: Arc::default(),
            compiling: Arc::default(),
            segments: HashMap::new(),
            mapped: Arc::default(),
            unknown: Some(salus_engine::Program::default()),
            graveyard: HashMap::new(),
            profiles: Allowance::full(std::time::Instant::now()),
        }
    }

    /// Whether another frame may be taken. If not, the job waits in its own `send`.
    pub(super) fn accepts(&self) -> bool {
        self.queue.len() < QUEUE
            && self.queued_ids < QUEUED_IDS
            && self.session.reads_under_way() < limits::REQUESTS
    }

    /// Nothing more will be done for this job.
    pub(super) fn abandon(&mut self) {
        self.announced = None;
        self.queue.clear();
    }

    /// Takes one frame. An error ends the session.
    pub(super) fn accept(&mut self, received: Received<ToService>) -> Result<(), Breach> {
        let operation = match received.message {
            ToService::Segment(segment) => return self.map(segment, received.descriptor),
            ToService::SegmentGone(gone) => {
                self.segments.remove(&gone.id);
                return Ok(());
            }
            ToService::Compile(compile) => return self.compile(compile),
            ToService::DropProgram(gone) => {
                let dropped = self.programs().remove(&gone.program);
                if dropped.is_some() {
                    self.session.usage.programs.fetch_sub(1, Relaxed);
                    drop(dropped);
                    self.host.programs.forget_unused();
                }
                return Ok(());
            }
            ToService::AskUsage(asked) => {
                let usage = self.usage(asked.request);
                self.session.send(&FromService::from(usage), None);
                return Ok(());
            }
            ToService::AskProfile(asked) => {
                self.answer_profile(&asked);
                return Ok(());
            }
            ToService::Await(awaited) => {
                self.session.operation_awaited(awaited.operation);
                return Ok(());
            }
            ToService::Upload(upload) => Operation::Upload {
                array: upload.array,
                shape: upload.shape,
                memory: upload.memory,
                data: self.range(upload.data)?,
            },
            ToService::Execute(execute) => {
                let program = self.programs().get(&execute.program).cloned();
                Operation::Launch(Launch::new(execute, program))
            }
            ToService::CopyArray(copy) => Operation::Copy {
                operation: copy.operation,
                array: copy.array,
                copy: copy.copy,
                memory: copy.memory,
            },
            ToService::Fetch(fetch) => Operation::Read {
                request: fetch.request,
                array: fetch.array,
                target: self.range(fetch.target)?,
                form: fetch.form,
            },
            ToService::DropArrays(gone) => Operation::Drop(gone.arrays),
            ToService::Hello(_) | ToService::Command(_) => {
                return Err("a second first message".into());
            }
        };
        self.queued_ids += operation.ids();
        self.queue.push_back(operation);
        Ok(())
    }

    fn map(
        &mut self,
        segment: salus_wire::Segment,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), Breach> {
        let (id, bytes) = (segment.id, segment.bytes);
        let descriptor = descriptor.ok_or_else(|| {
            Breach::Limit(format!(
                "the service has no descriptor left for segment {id} of the job's memory; end jobs, \
                 or start the service with a higher limit of open files (`ulimit -n`)"
            ))
        })?;
        if self.segments.contains_key(&id) {
            return Err(format!("segment {id} is announced twice").into());
        }
        // One is ours.
        let mapped = Arc::strong_count(&self.mapped) - 1;
        if mapped >= limits::SEGMENTS || bytes > limits::SEGMENT_BYTES {
            return Err(Breach::Limit(format!(
                "the job shares {mapped} pieces of memory with the service and wants one more, of \
                 {bytes} bytes; it may have {} of at most {} bytes",
                limits::SEGMENTS,
                limits::SEGMENT_BYTES
            )));
        }
        let opened = Segment::open(descriptor, bytes).map_err(|e| e.to_string())?;
        let mapped = Mapped {
            memory: opened.into_parts().0,
            _counted: Arc::clone(&self.mapped),
        };
        self.segments.insert(id, Arc::new(mapped));
        Ok(())
    }

    fn range(&self, region: Region) -> Result<Range, String> {
        let segment = self
            .segments
            .get(&region.segment)
            .ok_or_else(|| format!("segment {} was never announced", region.segment))?;
        segment.range(region.offset, region.length).ok_or_else(|| {
            format!(
                "{} bytes at {} are outside segment {} of {} bytes",
                region.length,
                region.offset,
                region.segment,
                segment.len()
            )
        })?;
        Ok(Range {
            segment: Arc::clone(segment),
            region,
        })
    }

    fn programs(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Lease<D>>>> {
        self.programs.lock().expect("no panic under this lock")
    }

    /// Does what can be done now.
    pub(super) fn progress(&mut self) {
        for ran in self.session.take_ran() {
            ran.name_outputs(self);
        }
        for read in self.session.take_reads() {
            read();
        }
        self.bury();
        loop {
            // The engine may ask in answer to whatever this thread tells it, without waking it.
            while self.make_way() {}
            let Some(mut operation) = self.queue.pop_front() else {
                return;
            };
            let ids = operation.ids();
            match self.admit(&mut operation) {
                Admitted::Now(lane) => self.perform(operation, lane.0),
                Admitted::Never(error) => self.refuse(operation, error),
                Admitted::Later => {
                    self.queue.push_front(operation);
                    if !self.make_way() {
                        return;
                    }
                    continue;
                }
            }
            self.queued_ids -= ids;
        }
    }

    /// A launch of this program is asked for: if earlier jobs ran it, the engine is told what they
    /// came to.
    pub(super) fn recall(&mut self, program: salus_engine::Program) {
        let session = self.session.id;
        if self.unknown.is_none() || self.unknown == Some(program) {
            return;
        }
        self.unknown = Some(program);
        if let Some(total) = self.host.history.total(program) {
            self.unknown = None;
            let recalled = Event::Recalled { session, total };
            self.host.scheduling.tell(recalled, Some(session));
        }
    }

    /// The operation was not done after all and stands at the head of the queue again.
    pub(super) fn again(&mut self, operation: Operation<D>) {
        self.queued_ids += operation.ids();
        self.queue.push_front(operation);
    }

    /// Pages out what the engine wants. False if it wants nothing.
    fn make_way(&mut self) -> bool {
        let asked = self.session.take_page_out();
        if let Some(bytes) = asked {
            self.page_out(bytes);
        }
        asked.is_some()
    }

    /// What the session holds now. Operations that still wait are not in it.
    fn usage(&self, request: u64) -> salus_wire::Usage {
        self.host.scheduling.look(|engine, _| {
            let ledger = engine.ledger();
            let holding = ledger.holding(self.session.id).copied().unwrap_or_default();
            salus_wire::Usage {
                request,
                bytes: holding.total(),
                peak_bytes: holding.peak_bytes,
                limit_bytes: holding.memory_max.unwrap_or(ledger.room().device_bytes),
            }
        })
    }

    fn perform(&mut self, operation: Operation<D>, lane: u32) {
        match operation {
            Operation::Upload {
                array,
                shape,
                memory,
                data,
            } => self.upload(array, shape, lane, memory, data),
            Operation::Launch(launch) => launch.start(self, lane),
            Operation::Copy {
                operation,
                array,
                copy,
                memory,
            } => self.copy(operation, array, copy, memory, lane),
            Operation::Read {
                request,
                array,
                target,
                form,
            } => {
                let read = Read {
                    request,
                    target,
                    form,
                };
                match self.arrays.get(&array) {
                    Some(Slot::Paged(page)) if is_plain(&read.form, &page.shape) => {
                        read.answer_from(&self.session, page);
                    }
                    _ => {
                        let slot = self.noting_returns(|own| own.bring_in(array, lane));
                        read.begin(&self.session, &self.host, slot);
                    }
                }
            }
            Operation::Drop(arrays) => {
                for array in arrays {
                    self.arrays.remove(&array);
                }
            }
        }
    }

    /// The operation cannot be done; whatever it was to make stands for the error.
    fn refuse(&mut self, operation: Operation<D>, error: Error) {
        match operation {
            Operation::Upload { array, data, .. } => {
                // Nothing was made of it, so the job may use its memory again.
                self.session.region_released(data.region);
                self.upload_failed(array, error);
            }
            Operation::Launch(launch) => launch.fail(self, error),
            Operation::Copy {
                operation, copy, ..
            } => {
                self.put(copy, Slot::Failed(error.clone()));
                self.session.operation_ended(operation, Err(error));
            }
            Operation::Read {
                request,
                target,
                form,
                ..
            } => {
                let read = Read {
                    request,
                    target,
                    form,
                };
                read.begin(&self.session, &self.host, Err(error));
            }
            Operation::Drop(_) => {}
        }
    }

    fn bury(&mut self) {
        for operation in self.session.take_ended() {
            self.graveyard.remove(&operation);
        }
    }

    pub(super) fn slot(&self, array: u64) -> Result<Arc<Entry<D>>, Error> {
        match self.held(array)? {
            Held::Live(entry) => Ok(entry),
            Held::Paged(_) => Err(Error {
                code: INTERNAL,
                message: format!("array {array} was not brought back; this is a bug of Salus"),
            }),
        }
    }

    /// An array, wherever it is.
    pub(super) fn held(&self, array: u64) -> Result<Held<D>, Error> {
        match self.arrays.get(&array) {
            Some(Slot::Live(entry)) => Ok(Held::Live(Arc::clone(entry))),
            Some(Slot::Paged(page)) => Ok(Held::Paged(Arc::clone(page))),
            Some(Slot::Failed(error)) => Err(error.clone()),
            None => Err(Error {
                code: INVALID_ARGUMENT,
                message: format!("array {array} has been deleted or donated"),
            }),
        }
    }

    pub(super) fn put(&mut self, array: u64, slot: Slot<D>) {
        self.arrays.insert(array, slot);
    }

    pub(super) fn take(&mut self, array: u64) {
        self.arrays.remove(&array);
    }

    /// Whether `more` arrays fit; nothing a job sends may grow the service without bound.
    pub(super) fn room(&self, more: usize) -> Result<(), Error> {
        if self.arrays.len() + more <= limits::ARRAYS {
            return Ok(());
        }
        Err(Error {
            code: RESOURCE_EXHAUSTED,
            message: format!(
                "this session has {} arrays, and {} is the limit; delete some",
                self.arrays.len(),
                limits::ARRAYS
            ),
        })
    }

    pub(super) fn check_memory(&self, memory: u32) -> Result<(), Error> {
        let there = self.host.device.description().memories.len();
        if (memory as usize) < there {
            return Ok(());
        }
        let message = format!("memory {memory} does not exist; the device has {there}");
        Err(Error {
            code: INVALID_ARGUMENT,
            message,
        })
    }

    fn copy(&mut self, operation: u64, array: u64, copy: u64, memory: u32, lane: u32) {
        let bytes = self.held(array).map_or(0, |held| held.charge_bytes());
        let charge = Charge::on_device(&self.host, self.session.id, bytes);
        let from = self.noting_returns(|own| own.bring_in(array, lane));
        let made = from.and_then(|from| {
            let target = self.memory_of(lane, memory);
            let made = self.host.device.copy_to_memory(&from.array, target)?;
            let shape = from.shape().clone();
            let kind = Kind::Own { shape, memory };
            let entry = Entry::new(made, kind, lane, charge, None);
            Ok((entry, Reading::of(&from)))
        });
        match made {
            Ok((entry, reading)) => {
                let session = Arc::clone(&self.session);
                let done = Box::new(move |result| {
                    drop(reading);
                    session.operation_ended(operation, result);
                });
                self.host.device.on_ready(&entry.array, done);
                self.put(copy, Slot::Live(entry));
            }
            Err(error) => {
                self.put(copy, Slot::Failed(error.clone()));
                self.session.operation_ended(operation, Err(error));
            }
        }
    }

    fn compile(&mut self, compile: Compile) -> Result<(), Breach> {
        let range = self.range(compile.code)?;
        let id = compile.program;
        let busy = self.compiling.load(Relaxed);
        if compile.code.length > limits::PROGRAM_BYTES
            || busy >= limits::REQUESTS
            || self.programs().len() >= limits::PROGRAMS
        {
            let message = format!(
                "a program of {} bytes, with {busy} compilations under way, is beyond the limits",
                compile.code.length
            );
            let error = Error {
                code: RESOURCE_EXHAUSTED,
                message,
            };
            let failed = CompileFailed { program: id, error };
            self.session.send(&FromService::from(failed), None);
            return Ok(());
        }
        self.compiling.fetch_add(1, AcqRel);
        let (host, id_of_session) = (Arc::clone(&self.host), self.session.id);
        let begun = Event::Compiling {
            session: id_of_session,
        };
        host.scheduling.tell_of(id_of_session, begun);
        let session = Arc::clone(&self.session);
        let programs = Arc::clone(&self.programs);
        let compiling = Arc::clone(&self.compiling);
        let answer = Box::new(move |result: Result<Arc<Program<D>>, Error>| {
            compiling.fetch_sub(1, AcqRel);
            let ended = Event::Compiled {
                session: id_of_session,
            };
            host.scheduling.tell_of(id_of_session, ended);
            if let Ok(program) = &result {
                let name = &program.signature.name;
                host.scheduling.name_program(program.number, name);
            }
            let result = result.and_then(|program| match never_fits(&session, &program) {
                Some(error) => Err(error),
                None => Ok(program),
            });
            tell_compiled(&session, &programs, id, result);
        });
        let asked = Asked {
            session: id_of_session,
            user: self.session.identity.uid,
            format: compile.format,
            code: range,
            options: compile.options,
        };
        self.host.programs.request(asked, answer);
        Ok(())
    }
}

fn tell_compiled<D: Device>(
    session: &Session<D>,
    programs: &Mutex<HashMap<u64, Arc<Lease<D>>>>,
    id: u64,
    result: Result<Arc<Program<D>>, Error>,
) {
    let sent = result.and_then(|program| {
        let leases = &session.host.programs.leases;
        let program = leases.take(&session.identity, program)?;
        let (blob, bytes) = program.signature_blob().map_err(|e| Error {
            code: RESOURCE_EXHAUSTED,
            message: format!("there is no room for the program's description: {e}"),
        })?;
        let mut programs = programs.lock().expect("no panic under this lock");
        let replaced = programs.insert(id, program);
        drop(programs);
        if replaced.is_none() {
            session.usage.programs.fetch_add(1, Relaxed);
        }
        Ok((Compiled { program: id, bytes }, blob))
    });
    match sent {
        Ok((message, blob)) => session.send(&FromService::from(message), Some(blob)),
        Err(error) => {
            let failed = CompileFailed { program: id, error };
            session.send(&FromService::from(failed), None);
        }
    }
}
