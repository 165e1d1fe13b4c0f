//! What a job asks for, done in the order asked.
//!
//! Frames become operations; regions and programs are resolved when a frame arrives, arrays when
//! its operation's turn comes. A launch at the head of the queue waits for the engine; what stands
//! behind it waits too, because it may depend on it. Compilations do not stand in the queue.
//!
//! Promise: types, shapes, deletion and ranges are checked here, before anything reaches the
//! plugin, which itself checks only sizes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::{Arc, Mutex};

use salus_channel::{Received, Segment};
use salus_device::{Device, HostMemory, Shape};
use salus_engine::Event;
use salus_wire::{
    ArrayFailed, Compile, CompileFailed, Compiled, Error, Form, FromService, Region, ToService,
    limits,
};

use super::Host;
use super::arrays::{Entry, Kind};
use super::launch::Launch;
use super::programs::{Program, normalize};
use super::read::Read;
use super::session::Session;

pub(super) const INVALID_ARGUMENT: u32 = 3;
pub(super) const RESOURCE_EXHAUSTED: u32 = 8;

/// Operations decoded and not yet done: more than a job's window of launches with all that
/// surrounds them.
const QUEUE: usize = 4096;
/// Ids in them: sixteen of the largest launches.
const QUEUED_IDS: usize = 16 * limits::ARGUMENTS;

/// What the session's thread alone knows.
pub(super) struct Operations<D: Device> {
    pub(super) session: Arc<Session<D>>,
    pub(super) host: Arc<Host<D>>,
    queue: VecDeque<Operation<D>>,
    /// Ids that stand in the queue, which make up most of its size.
    queued_ids: usize,
    /// The engine knows that the launch at the head waits.
    announced: bool,
    arrays: HashMap<u64, Slot<D>>,
    /// Filled by the threads that compile.
    programs: Arc<Mutex<HashMap<u64, Arc<Program<D>>>>>,
    compiling: Arc<AtomicUsize>,
    segments: HashMap<u32, Arc<Segment>>,
    /// Donated arguments of launches that run: dropping one would block until its launch ends.
    pub(super) graveyard: HashMap<u64, Vec<Arc<Entry<D>>>>,
}

/// What an array's id stands for.
#[derive(Clone)]
pub(super) enum Slot<D: Device> {
    Live(Arc<Entry<D>>),
    Failed(Error),
}

/// A range of a segment, checked and kept mapped.
#[derive(Clone)]
pub(super) struct Range {
    pub(super) segment: Arc<Segment>,
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
}

enum Operation<D: Device> {
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
            announced: false,
            arrays: HashMap::new(),
            programs: Arc::default(),
            compiling: Arc::default(),
            segments: HashMap::new(),
            graveyard: HashMap::new(),
        }
    }

    /// Whether another frame may be taken. If not, the job waits in its own `send`.
    pub(super) fn accepts(&self) -> bool {
        self.queue.len() < QUEUE && self.queued_ids < QUEUED_IDS
    }

    /// Nothing more will be done for this job.
    pub(super) fn abandon(&mut self) {
        self.queue.clear();
    }

    /// Takes one frame. An error means that the other side is not our library, or has a bug.
    pub(super) fn accept(&mut self, received: Received<ToService>) -> Result<(), String> {
        let operation = match received.message {
            ToService::Segment(segment) => {
                let descriptor = received
                    .descriptor
                    .ok_or("a segment came without descriptor")?;
                if self.segments.len() >= limits::SEGMENTS || segment.bytes > limits::SEGMENT_BYTES
                {
                    return Err(format!("segment {} is beyond the limits", segment.id));
                }
                let mapped = Segment::open(descriptor, segment.bytes).map_err(|e| e.to_string())?;
                self.segments.insert(segment.id, Arc::new(mapped));
                return Ok(());
            }
            ToService::SegmentGone(gone) => {
                self.segments.remove(&gone.id);
                return Ok(());
            }
            ToService::Compile(compile) => return self.compile(compile),
            ToService::DropProgram(gone) => {
                if self.programs().remove(&gone.program).is_some() {
                    self.session.usage.programs.fetch_sub(1, Relaxed);
                }
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

    fn programs(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Program<D>>>> {
        self.programs.lock().expect("no panic under this lock")
    }

    /// Does what can be done now.
    pub(super) fn progress(&mut self) {
        for read in self.session.take_reads() {
            read();
        }
        self.bury();
        while let Some(operation) = self.queue.pop_front() {
            let ids = operation.ids();
            match operation {
                Operation::Upload {
                    array,
                    shape,
                    memory,
                    data,
                } => {
                    self.upload(array, shape, memory, data);
                }
                Operation::Launch(launch) => {
                    if let Some(waiting) = self.turn(launch) {
                        self.queue.push_front(Operation::Launch(waiting));
                        break;
                    }
                }
                Operation::Copy {
                    operation,
                    array,
                    copy,
                    memory,
                } => {
                    self.copy(operation, array, copy, memory);
                }
                Operation::Read {
                    request,
                    array,
                    target,
                    form,
                } => {
                    let slot = self.slot(array);
                    Read {
                        request,
                        target,
                        form,
                    }
                    .begin(&self.session, &self.host, slot);
                }
                Operation::Drop(arrays) => {
                    for array in arrays {
                        self.arrays.remove(&array);
                    }
                }
            }
            self.queued_ids -= ids;
        }
    }

    /// Starts the launch if its turn has come, else gives it back.
    fn turn(&mut self, mut launch: Launch<D>) -> Option<Launch<D>> {
        if !self.announced {
            if let Err(error) = launch.prepare(self) {
                launch.fail(self, error);
                return None;
            }
            self.announced = true;
            let ready = Event::Ready {
                session: self.session.id,
            };
            self.host.scheduling.tell(ready, Some(self.session.id));
        }
        match self.session.take_turn() {
            Some(lane) => {
                self.announced = false;
                launch.start(self, lane);
                None
            }
            None => Some(launch),
        }
    }

    fn bury(&mut self) {
        for operation in self.session.take_ended() {
            self.graveyard.remove(&operation);
        }
    }

    pub(super) fn slot(&self, array: u64) -> Result<Arc<Entry<D>>, Error> {
        match self.arrays.get(&array) {
            Some(Slot::Live(entry)) => Ok(Arc::clone(entry)),
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

    fn upload(&mut self, array: u64, mut shape: Shape, memory: u32, data: Range) {
        normalize(&mut shape);
        let host = HostMemory {
            address: data.address(),
            len: data.region.length as usize,
            release: Box::new(Lent {
                session: Arc::clone(&self.session),
                data,
            }),
        };
        let made = self
            .room(1)
            .and_then(|()| self.check_memory(memory))
            .and_then(|()| self.host.device.upload(host, &shape, memory));
        let slot = match made {
            Ok(made) => Slot::Live(Entry::new(
                &self.host,
                &self.session.usage,
                made,
                Kind::Own(shape),
            )),
            Err(error) => {
                let failed = ArrayFailed {
                    array,
                    error: error.clone(),
                };
                self.session.send(&FromService::from(failed), None);
                Slot::Failed(error)
            }
        };
        self.put(array, slot);
    }

    fn copy(&mut self, operation: u64, array: u64, copy: u64, memory: u32) {
        let made = self
            .room(1)
            .and_then(|()| self.check_memory(memory))
            .and_then(|()| {
                let from = self.slot(array)?;
                let made = self.host.device.copy_to_memory(&from.array, memory)?;
                let kind = Kind::Own(from.shape().clone());
                Ok(Entry::new(&self.host, &self.session.usage, made, kind))
            });
        match made {
            Ok(entry) => {
                let session = Arc::clone(&self.session);
                let done = Box::new(move |result| session.operation_ended(operation, result));
                self.host.device.on_ready(&entry.array, done);
                self.put(copy, Slot::Live(entry));
            }
            Err(error) => {
                self.put(copy, Slot::Failed(error.clone()));
                self.session.operation_ended(operation, Err(error));
            }
        }
    }

    fn compile(&mut self, compile: Compile) -> Result<(), String> {
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
        let code = range
            .segment
            .copy_out(range.region.offset, range.region.length);
        let code = code.ok_or("a program lies outside its segment")?;
        self.compiling.fetch_add(1, AcqRel);
        let session = Arc::clone(&self.session);
        let programs = Arc::clone(&self.programs);
        let compiling = Arc::clone(&self.compiling);
        let answer = Box::new(move |result: Result<Arc<Program<D>>, Error>| {
            compiling.fetch_sub(1, AcqRel);
            tell_compiled(&session, &programs, id, result);
        });
        self.host
            .programs
            .request(compile.format, code, &compile.options, answer);
        Ok(())
    }
}

fn tell_compiled<D: Device>(
    session: &Session<D>,
    programs: &Mutex<HashMap<u64, Arc<Program<D>>>>,
    id: u64,
    result: Result<Arc<Program<D>>, Error>,
) {
    let sent = result.and_then(|program| {
        let (blob, bytes) = program.signature_blob().map_err(|e| Error {
            code: RESOURCE_EXHAUSTED,
            message: format!("no descriptor is left for the program: {e}"),
        })?;
        session.usage.programs.fetch_add(1, Relaxed);
        programs
            .lock()
            .expect("no panic under this lock")
            .insert(id, program);
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

/// A region that an array lives in: the job may reuse it when this is dropped.
struct Lent<D: Device> {
    session: Arc<Session<D>>,
    data: Range,
}

impl<D: Device> Drop for Lent<D> {
    fn drop(&mut self) {
        self.session.region_released(self.data.region);
    }
}
