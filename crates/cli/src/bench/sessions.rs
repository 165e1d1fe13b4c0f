//! Sessions without a job: what the service has of a job that is connected and does nothing.
//!
//! They speak the wire themselves, because ten Python processes would weigh more than what is
//! measured. Each uploads a small array, reads it back and drops it, so that the service has made
//! whatever it makes for a session that works.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use salus_channel::{Inbox, Outbox, Received, Segment, open_blob};
use salus_daemon::config::Problem;
use salus_wire::{
    Compile, DropArrays, Fetch, Form, FromService, Hello, Message, Reader, Region, Shape,
    Signature, Terms, ToService, Token, Upload, Wire, version,
};

/// The service answers at once, or not at all.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Room for the array on its way there and back.
const SEGMENT_BYTES: u64 = 4096;
/// `PJRT_Buffer_Type_F32`.
const F32: u32 = 11;
const VALUES: [u8; 16] = [7; 16];

/// An open session; it ends when it is dropped.
pub(super) struct Session {
    stream: UnixStream,
    inbox: Inbox,
    outbox: Outbox,
    segment: Segment,
}

impl Session {
    pub(super) fn open(socket: &Path) -> Result<Self, Problem> {
        let opened = UnixStream::connect(socket).and_then(|stream| {
            stream.set_read_timeout(Some(ANSWER_TIME))?;
            let mut session = Self {
                stream,
                inbox: Inbox::default(),
                outbox: Outbox::default(),
                segment: Segment::create(SEGMENT_BYTES, false)?,
            };
            session.greet()?;
            session.use_once()?;
            Ok(session)
        });
        opened.map_err(|e| Problem::new(format!("a session cannot be opened: {e}")))
    }

    /// Asks for a program as the library does in a job, and returns how long it took to have it.
    pub(super) fn load(&mut self, program: &Token) -> Result<Duration, Problem> {
        let loaded = self.have_loaded(program);
        loaded.map_err(|e| Problem::new(format!("a session cannot have its program: {e}")))
    }

    fn have_loaded(&mut self, program: &Token) -> io::Result<Duration> {
        let bytes = program.code.len() as u64;
        let segment = Segment::create(bytes, false)?;
        let descriptor = segment.as_fd().try_clone_to_owned()?;
        let told = ToService::from(salus_wire::Segment { id: 2, bytes });
        self.outbox.push(&told, Some(descriptor));
        self.outbox.flush(&self.stream, true)?;
        let begin = Instant::now();
        segment.copy_in(0, &program.code);
        self.send(&ToService::from(Compile {
            program: 1,
            format: program.format.clone(),
            code: Region {
                segment: 2,
                offset: 0,
                length: bytes,
            },
            options: program.options.clone(),
        }))?;
        loop {
            let received = self.receive()?;
            match (received.message, received.descriptor) {
                (FromService::Compiled(compiled), Some(descriptor)) => {
                    let signature = open_blob(descriptor, compiled.bytes)?;
                    Signature::take(&mut Reader::new(&signature), 0).map_err(io::Error::other)?;
                    return Ok(begin.elapsed());
                }
                (FromService::CompileFailed(failed), _) => {
                    return Err(io::Error::other(failed.error.message));
                }
                (FromService::Released(_) | FromService::Completed(_), _) => {}
                (other, _) => return Err(odd(&other)),
            }
        }
    }

    fn greet(&mut self) -> io::Result<()> {
        self.send(&ToService::from(Hello {
            protocol_min: version::MIN,
            protocol_max: version::MAX,
            version: env!("CARGO_PKG_VERSION").into(),
            name: "bench".into(),
            terms: Terms::default(),
            run: 0,
        }))?;
        match self.receive()?.message {
            FromService::Welcome(_) => Ok(()),
            FromService::Refused(refused) => Err(io::Error::other(refused.error.message)),
            other => Err(odd(&other)),
        }
    }

    fn use_once(&mut self) -> io::Result<()> {
        let region = |offset| Region {
            segment: 1,
            offset,
            length: VALUES.len() as u64,
        };
        self.segment.copy_in(0, &VALUES);
        let descriptor = self.segment.as_fd().try_clone_to_owned()?;
        let segment = salus_wire::Segment {
            id: 1,
            bytes: SEGMENT_BYTES,
        };
        self.outbox
            .push(&ToService::from(segment), Some(descriptor));
        self.send(&ToService::from(Upload {
            array: 1,
            shape: Shape {
                element_type: F32,
                dims: vec![4],
                minor_to_major: None,
            },
            memory: 0,
            data: region(0),
        }))?;
        let back = SEGMENT_BYTES / 2;
        self.send(&ToService::from(Fetch {
            request: 1,
            array: 1,
            target: region(back),
            form: Form::Raw,
        }))?;
        loop {
            match self.receive()?.message {
                FromService::Fetched(fetched) => match fetched.error {
                    None => break,
                    Some(error) => return Err(io::Error::other(error.message)),
                },
                FromService::ArrayFailed(failed) => {
                    return Err(io::Error::other(failed.error.message));
                }
                FromService::Released(_) | FromService::Completed(_) => {}
                other => return Err(odd(&other)),
            }
        }
        if self.segment.copy_out(back, VALUES.len() as u64).as_deref() != Some(&VALUES[..]) {
            return Err(io::Error::other("an array came back with other values"));
        }
        self.send(&ToService::from(DropArrays { arrays: vec![1] }))
    }

    fn send(&mut self, message: &ToService) -> io::Result<()> {
        self.outbox.push(message, None);
        self.outbox.flush(&self.stream, true).map(|_| ())
    }

    fn receive(&mut self) -> io::Result<Received<FromService>> {
        loop {
            if let Some(received) = self.inbox.take().map_err(io::Error::other)? {
                return Ok(received);
            }
            if self.inbox.fill(&self.stream, true)? == 0 {
                return Err(io::Error::other("the service closed the connection"));
            }
        }
    }
}

fn odd(message: &FromService) -> io::Error {
    let kind = message.kind();
    io::Error::other(format!("the service answered with message {kind}"))
}
