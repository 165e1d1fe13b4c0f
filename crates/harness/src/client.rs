//! A session by hand: says to a service what the library in a job would say, as far as one wants.
//!
//! What is pushed is sent by the next `flush`, or by the next call that waits for an answer.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use salus_channel::{Inbox, Outbox, Received, Segment, open_blob};
use salus_wire::{
    ArrayId, Await, Compile, DropProgram, Error, Form, FromService, Hello, JobSettings, Launch,
    OperationId, ProgramId, ReadArray, Reader, Region, RequestId, SegmentGone, SegmentId, Shape,
    Signature, ToService, Upload, Wire, limits, version,
};

/// For what should take milliseconds; the machine may be busy.
const PROMPT: Duration = Duration::from_secs(60);

/// An open session; it ends when it is dropped.
pub struct Client {
    stream: UnixStream,
    inbox: Inbox,
    outbox: Outbox,
    /// As the service numbers it; 0 before the greeting.
    session: u64,
    last_id: u64,
    segments: u32,
}

/// Why a session has no answer.
#[derive(Debug)]
pub enum Loss {
    /// None came in time.
    Late,
    /// The service ended the session and said why.
    Refused(String),
    /// The socket ended.
    Gone,
}

impl Client {
    /// A session that the service has welcomed.
    pub fn open(socket: &Path, name: &str) -> Result<Self, Loss> {
        Self::open_on(socket, name, "")
    }

    /// The same on the device that is named.
    pub fn open_on(socket: &Path, name: &str, device: &str) -> Result<Self, Loss> {
        let mut client = Self::connect(socket)?;
        client.push(Hello {
            protocol_min: version::MIN,
            protocol_max: version::MAX,
            version: env!("CARGO_PKG_VERSION").into(),
            name: name.into(),
            settings: JobSettings::default(),
            run: 0,
            device: device.into(),
        });
        client.flush()?;
        match client.receive(Instant::now() + PROMPT)?.message {
            FromService::Welcome(welcome) => {
                client.session = welcome.session;
                Ok(client)
            }
            _ => Err(Loss::Gone),
        }
    }

    /// A connection on which nothing was said.
    pub fn connect(socket: &Path) -> Result<Self, Loss> {
        let stream = UnixStream::connect(socket)?;
        stream.set_write_timeout(Some(PROMPT))?;
        Ok(Self {
            stream,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            session: 0,
            last_id: 1,
            segments: 0,
        })
    }

    pub fn session(&self) -> u64 {
        self.session
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// An id that nothing else of this session has.
    pub fn next_array(&mut self) -> ArrayId {
        ArrayId(self.next_ids(1))
    }

    /// As [`Client::next_array`].
    pub fn next_operation(&mut self) -> OperationId {
        OperationId(self.next_ids(1))
    }

    /// The first of `count` numbers that no program, array, operation or request of this session has.
    fn next_ids(&mut self, count: u64) -> u64 {
        let first = self.last_id + 1;
        self.last_id += count;
        first
    }

    pub fn push(&mut self, message: impl Into<ToService>) {
        self.outbox.push(&message.into(), None);
    }

    pub fn push_with(&mut self, message: impl Into<ToService>, descriptor: OwnedFd) {
        self.outbox.push(&message.into(), Some(descriptor));
    }

    pub fn flush(&mut self) -> Result<(), Loss> {
        match self.outbox.flush(&self.stream, true) {
            Ok(_) => Ok(()),
            // Before the service hung up it may have said why.
            Err(e) => match self.receive(Instant::now()) {
                Err(Loss::Refused(why)) => Err(Loss::Refused(why)),
                _ => Err(e.into()),
            },
        }
    }

    /// The next message, if it is there already.
    pub fn received(&mut self) -> Result<Option<Received<FromService>>, Loss> {
        loop {
            if let Some(received) = self.take()? {
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
    pub fn receive(&mut self, deadline: Instant) -> Result<Received<FromService>, Loss> {
        loop {
            if let Some(received) = self.take()? {
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

    fn take(&mut self) -> Result<Option<Received<FromService>>, Loss> {
        match self.inbox.take().map_err(io::Error::other)? {
            Some(Received {
                message: FromService::Refused(refused),
                ..
            }) => Err(Loss::Refused(refused.error.message)),
            received => Ok(received),
        }
    }

    /// A shared segment that the service has been told of.
    pub fn segment(&mut self, bytes: u64) -> Result<(SegmentId, Segment), Loss> {
        let bytes = bytes.max(1);
        let segment = Segment::create(bytes, false)?;
        self.segments += 1;
        let id = SegmentId(self.segments);
        let descriptor = segment.as_fd().try_clone_to_owned()?;
        self.push_with(salus_wire::Segment { id, bytes }, descriptor);
        Ok((id, segment))
    }

    /// Asks for a program, and returns its id and signature, or why there is none.
    pub fn compile(
        &mut self,
        format: &str,
        code: &[u8],
        options: &[u8],
        time: Duration,
    ) -> Result<Result<(ProgramId, Signature), Error>, Loss> {
        let length = code.len() as u64;
        let (segment, memory) = self.segment(length)?;
        memory.copy_in(0, code);
        let code = Region {
            segment,
            offset: 0,
            length,
        };
        let compiled = self.compile_from(format, code, options, time)?;
        self.push(SegmentGone { id: segment });
        Ok(compiled)
    }

    /// The same of code that is in a segment already.
    pub fn compile_from(
        &mut self,
        format: &str,
        code: Region,
        options: &[u8],
        time: Duration,
    ) -> Result<Result<(ProgramId, Signature), Error>, Loss> {
        let program = ProgramId(self.next_ids(1));
        self.push(Compile {
            program,
            format: format.into(),
            code,
            options: options.to_vec(),
        });
        self.flush()?;
        let deadline = Instant::now() + time;
        loop {
            let received = self.receive(deadline)?;
            match (received.message, received.descriptor) {
                (FromService::Compiled(compiled), Some(blob)) => {
                    let bytes = open_blob(blob, compiled.bytes)?;
                    let signature = Signature::take(&mut Reader::new(&bytes), limits::BLOB_BYTES);
                    let signature = signature.map_err(io::Error::other)?;
                    return Ok(Ok((compiled.program, signature)));
                }
                (FromService::CompileFailed(failed), _) => return Ok(Err(failed.error)),
                _ => {}
            }
        }
    }

    pub fn drop_program(&mut self, program: ProgramId) {
        self.push(DropProgram { program });
    }

    /// Pushes an upload, and returns the array's id.
    pub fn upload(&mut self, shape: Shape, data: Region) -> ArrayId {
        let array = self.next_array();
        self.push(Upload {
            array,
            shape,
            memory: 0,
            data,
        });
        array
    }

    /// Pushes a launch, and returns its operation and the id of its first output.
    pub fn launch(
        &mut self,
        program: ProgramId,
        arguments: &[ArrayId],
        outputs: u64,
    ) -> (OperationId, ArrayId) {
        let operation = self.next_operation();
        let first_output = ArrayId(self.next_ids(outputs));
        self.push(Launch {
            operation,
            program,
            first_output,
            arguments: arguments.to_vec(),
            keep: vec![],
        });
        (operation, first_output)
    }

    /// Waits for the end of an operation, and returns why it failed if it did.
    pub fn wait_for(
        &mut self,
        operation: OperationId,
        deadline: Instant,
    ) -> Result<Option<Error>, Loss> {
        self.push(Await { operation });
        self.flush()?;
        loop {
            if let FromService::Completed(completed) = self.receive(deadline)?.message {
                if completed.done.contains(&operation) {
                    return Ok(None);
                }
                let mut failed = completed.failed.into_iter();
                if let Some((_, error)) = failed.find(|(id, _)| *id == operation) {
                    return Ok(Some(error));
                }
            }
        }
    }

    /// Reads an array into a segment, and returns why that failed if it did.
    pub fn read(
        &mut self,
        array: ArrayId,
        target: Region,
        form: Form,
        deadline: Instant,
    ) -> Result<Option<Error>, Loss> {
        let request = RequestId(self.next_ids(1));
        self.push(ReadArray {
            request,
            array,
            target,
            form,
        });
        self.flush()?;
        loop {
            if let FromService::ReadDone(read) = self.receive(deadline)?.message
                && read.request == request
            {
                return Ok(read.error);
            }
        }
    }
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
