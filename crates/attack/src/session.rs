//! A session that asks as the library does, as far as one wants it to.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use salus_channel::{Inbox, Outbox, Received, Segment, open_blob};
use salus_wire::{
    Compile, DropArrays, DropProgram, Error, Execute, Fetch, Form, FromService, Hello, Reader,
    Region, Shape, Signature, Terms, ToService, Upload, Wire, limits, version,
};

/// For what should take milliseconds; the machine may be busy.
const PROMPT: Duration = Duration::from_secs(60);
/// Arguments and results that are larger are not fed: what is attacked is not the machine's memory.
const FED_BYTES: u64 = 64 << 20;

/// Why a session has no answer.
#[derive(Debug)]
pub(crate) enum Loss {
    /// None came in time.
    Late,
    /// The service ended the session and said why.
    Refused(String),
    /// The socket ended.
    Gone,
}

impl From<io::Error> for Loss {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Late,
            _ => Self::Gone,
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late => f.write_str("no answer came in time"),
            Self::Refused(why) => write!(f, "the session was refused: {why}"),
            Self::Gone => f.write_str("the connection ended"),
        }
    }
}

impl std::error::Error for Loss {}

pub(crate) struct Session {
    stream: UnixStream,
    inbox: Inbox,
    outbox: Outbox,
    /// As the service numbers it.
    pub(crate) id: u64,
    next: u64,
    segments: u32,
}

/// How a launch went.
#[derive(Debug)]
pub(crate) enum Ran {
    /// With its results' bytes.
    Well(Vec<Vec<u8>>),
    Failed(String),
    /// Arguments or results are too many or too large to be fed.
    NotFed,
}

impl Session {
    pub(crate) fn open(socket: &Path, name: &str) -> Result<Self, Loss> {
        let mut session = Self::connect(socket)?;
        session.push(
            Hello {
                protocol_min: version::MIN,
                protocol_max: version::MAX,
                version: env!("CARGO_PKG_VERSION").into(),
                name: name.into(),
                terms: Terms::default(),
                run: 0,
            },
            None,
        );
        session.flush()?;
        match session.receive(Instant::now() + PROMPT)?.message {
            FromService::Welcome(welcome) => {
                session.id = welcome.session;
                Ok(session)
            }
            _ => Err(Loss::Gone),
        }
    }

    /// A connection on which nothing was said.
    pub(crate) fn connect(socket: &Path) -> Result<Self, Loss> {
        let stream = UnixStream::connect(socket)?;
        stream.set_write_timeout(Some(PROMPT))?;
        Ok(Self {
            stream,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            id: 0,
            next: 1,
            segments: 0,
        })
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn push(&mut self, message: impl Into<ToService>, descriptor: Option<OwnedFd>) {
        self.outbox.push(&message.into(), descriptor);
    }

    pub(crate) fn flush(&mut self) -> Result<(), Loss> {
        let written = self.outbox.flush(&self.stream, true);
        // Before the service hung up it may have said why.
        match written {
            Ok(_) => Ok(()),
            Err(e) => match self.receive(Instant::now()) {
                Err(Loss::Refused(why)) => Err(Loss::Refused(why)),
                _ => Err(e.into()),
            },
        }
    }

    /// The next message, if it is there already.
    pub(crate) fn received(&mut self) -> Result<Option<Received<FromService>>, Loss> {
        loop {
            if let Some(received) = self.inbox.take().map_err(io::Error::other)? {
                if let FromService::Refused(refused) = received.message {
                    return Err(Loss::Refused(refused.error.message));
                }
                return Ok(Some(received));
            }
            match self.inbox.fill(&self.stream, false) {
                Ok(0) => return Err(Loss::Gone),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The next message, if it comes in time.
    pub(crate) fn receive(&mut self, deadline: Instant) -> Result<Received<FromService>, Loss> {
        loop {
            if let Some(received) = self.inbox.take().map_err(io::Error::other)? {
                if let FromService::Refused(refused) = received.message {
                    return Err(Loss::Refused(refused.error.message));
                }
                return Ok(received);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left))?;
            if self.inbox.fill(&self.stream, true)? == 0 {
                return Err(Loss::Gone);
            }
        }
    }

    /// A shared segment that the service has been told of.
    pub(crate) fn segment(&mut self, bytes: u64) -> Result<(u32, Segment), Loss> {
        let segment = Segment::create(bytes.max(1), false)?;
        self.segments += 1;
        let told = salus_wire::Segment {
            id: self.segments,
            bytes: bytes.max(1),
        };
        let descriptor = segment.as_fd().try_clone_to_owned()?;
        self.push(told, Some(descriptor));
        Ok((self.segments, segment))
    }

    /// Asks for a program, and returns its id and signature, or why there is none.
    pub(crate) fn compile(
        &mut self,
        format: &str,
        code: &[u8],
        options: &[u8],
        time: Duration,
    ) -> Result<Result<(u64, Signature), Error>, Loss> {
        let bytes = code.len() as u64;
        let (segment, memory) = self.segment(bytes)?;
        memory.copy_in(0, code);
        let program = self.next_id();
        self.push(
            Compile {
                program,
                format: format.into(),
                code: Region {
                    segment,
                    offset: 0,
                    length: bytes,
                },
                options: options.to_vec(),
            },
            None,
        );
        self.flush()?;
        let deadline = Instant::now() + time;
        let answer = loop {
            let received = self.receive(deadline)?;
            match (received.message, received.descriptor) {
                (FromService::Compiled(compiled), Some(blob)) => {
                    let text = open_blob(blob, compiled.bytes)?;
                    let signature = Signature::take(&mut Reader::new(&text), limits::BLOB_BYTES);
                    let signature = signature.map_err(io::Error::other)?;
                    break Ok((compiled.program, signature));
                }
                (FromService::CompileFailed(failed), _) => break Err(failed.error),
                _ => {}
            }
        };
        self.push(salus_wire::SegmentGone { id: segment }, None);
        Ok(answer)
    }

    /// Runs a program with zeros or bytes by chance, and reads all that it returns.
    pub(crate) fn run(
        &mut self,
        program: u64,
        signature: &Signature,
        random: Option<&mut Rng>,
        time: Duration,
    ) -> Result<Ran, Loss> {
        let mut random = random;
        let mut fill = |bytes: u64| -> Vec<u8> {
            match &mut random {
                Some(random) => (0..bytes).map(|_| random.u8(..)).collect(),
                None => vec![0; bytes as usize],
            }
        };
        let sizes = |shapes: &mut dyn Iterator<Item = &Shape>| -> Option<Vec<u64>> {
            shapes.map(host_bytes).collect()
        };
        let into = sizes(&mut signature.parameters.iter());
        let out = sizes(&mut signature.outputs.iter().map(|output| &output.shape));
        let (Some(into), Some(out)) = (into, out) else {
            return Ok(Ran::NotFed);
        };
        let sum: u64 = into.iter().chain(&out).sum();
        if sum > FED_BYTES || into.len() + out.len() > 4096 {
            return Ok(Ran::NotFed);
        }
        let data: Vec<Vec<u8>> = into.iter().map(|bytes| fill(*bytes)).collect();
        self.run_with(program, signature, &data, &out, time)
    }

    /// The same with given arguments; `out` are the sizes of the results.
    pub(crate) fn run_with(
        &mut self,
        program: u64,
        signature: &Signature,
        data: &[Vec<u8>],
        out: &[u64],
        time: Duration,
    ) -> Result<Ran, Loss> {
        let aligned = |bytes: u64| bytes.next_multiple_of(64).max(64);
        let into: u64 = data.iter().map(|one| aligned(one.len() as u64)).sum();
        let room = into + out.iter().map(|bytes| aligned(*bytes)).sum::<u64>();
        let (segment, memory) = self.segment(room)?;
        let mut offset = 0;
        let mut region = |length: u64| {
            let region = Region {
                segment,
                offset,
                length,
            };
            offset += aligned(length);
            region
        };
        let mut arguments = Vec::new();
        for (shape, bytes) in signature.parameters.iter().zip(data) {
            let array = self.next_id();
            let at = region(bytes.len() as u64);
            memory.copy_in(at.offset, bytes);
            arguments.push(array);
            let mut shape = shape.clone();
            if shape.element_type == TOKEN {
                shape.element_type = PRED;
                shape.dims = vec![0];
            }
            self.push(
                Upload {
                    array,
                    shape,
                    memory: 0,
                    data: at,
                },
                None,
            );
        }
        let operation = self.next_id();
        let first_output = self.next + 1;
        self.next += out.len() as u64;
        self.push(
            Execute {
                operation,
                program,
                first_output,
                arguments: arguments.clone(),
                keep: vec![],
            },
            None,
        );
        self.push(salus_wire::Await { operation }, None);
        self.flush()?;
        let deadline = Instant::now() + time;
        let ended = loop {
            match self.receive(deadline)?.message {
                FromService::Completed(completed) => {
                    if completed.done.contains(&operation) {
                        break None;
                    }
                    let failed = completed
                        .failed
                        .into_iter()
                        .find(|(id, _)| *id == operation);
                    if let Some((_, error)) = failed {
                        break Some(error.message);
                    }
                }
                FromService::CallbackChannel(_) => {
                    // Nobody answers: the job is hostile. What comes of the launch is said above.
                }
                _ => {}
            }
        };
        let mut results = Vec::new();
        let mut unread = None;
        if ended.is_none() {
            for (index, bytes) in out.iter().enumerate() {
                let target = region(*bytes);
                let request = self.next_id();
                let rank = signature.outputs[index].shape.dims.len() as i64;
                self.push(
                    Fetch {
                        request,
                        array: first_output + index as u64,
                        target,
                        form: Form::Host {
                            minor_to_major: (0..rank).rev().collect(),
                        },
                    },
                    None,
                );
                self.flush()?;
                let error = loop {
                    if let FromService::Fetched(fetched) = self.receive(deadline)?.message
                        && fetched.request == request
                    {
                        break fetched.error;
                    }
                };
                unread = unread.or(error.map(|error| error.message));
                results.push(memory.copy_out(target.offset, *bytes).unwrap_or_default());
            }
        }
        let outputs = first_output..first_output + out.len() as u64;
        let arrays: Vec<u64> = arguments.into_iter().chain(outputs).collect();
        self.push(DropArrays { arrays }, None);
        self.push(salus_wire::SegmentGone { id: segment }, None);
        Ok(match ended.or(unread) {
            Some(message) => Ran::Failed(message),
            None => Ran::Well(results),
        })
    }

    pub(crate) fn drop_program(&mut self, program: u64) {
        self.push(DropProgram { program }, None);
    }
}

const PRED: u32 = 1;
const TOKEN: u32 = 23;

/// Bytes of an array in host memory by PJRT's number of its type.
pub(crate) fn host_bytes(shape: &Shape) -> Option<u64> {
    let element: u64 = match shape.element_type {
        TOKEN => return Some(0),
        1 | 2 | 6 | 16..=22 | 24..=30 => 1,
        3 | 7 | 10 | 13 => 2,
        4 | 8 | 11 => 4,
        5 | 9 | 12 | 14 => 8,
        15 => 16,
        _ => return None,
    };
    shape.dims.iter().try_fold(element, |bytes, dim| {
        bytes.checked_mul(u64::try_from(*dim).ok()?)
    })
}
