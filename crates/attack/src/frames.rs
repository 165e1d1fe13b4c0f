//! Frames that no library sends.
//!
//! Each begins as a valid message with ids, regions, shapes and layouts drawn from a small range, so
//! that many of them meet what is really there, or from all numbers; many are then damaged as bytes.
//! Descriptors of the wrong kind come along, or none, or several. Half of the sessions end in the
//! middle of a frame.
//!
//! Not sent: commands that a user may give, such as to stop the service.

use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use salus_channel::Segment;
use salus_wire::{
    AskProfile, AskUsage, Await, CallbackReturn, Command, Compile, CopyArray, DropArrays,
    DropProgram, Error, Execute, Fetch, Form, FromCallbacks, FromService, Header, Hello, Priority,
    Region, Request, SegmentGone, Shape, Terms, ToService, Upload, encode_frame, version,
};

use crate::Problem;
use crate::canary::Canary;
use crate::service::Service;
use crate::session::{Loss, Session};
use crate::tally::Tally;

/// The canary is asked after so many frames.
const CANARY_EVERY: u64 = 500;
/// At most so many on one session.
const SESSION_FRAMES: usize = 60;
const SEGMENT_BYTES: u64 = 1 << 16;
/// A socket that takes nothing for so long belongs to a session that is busy: it is left alone.
const SEND_TIME: Duration = Duration::from_millis(200);

const CODES: &[&str] = &[
    "module @f { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
       %r = stablehlo.add %a, %a : tensor<4xf32> return %r : tensor<4xf32> } }",
    "module @g { func.func public @main(%a: tensor<2x3xi32> {tf.aliasing_output = 0 : i32}, %b: tensor<f32>)
       -> (tensor<2x3xi32>, tensor<f32>) {
       %r = stablehlo.negate %a : tensor<2x3xi32> return %r, %b : tensor<2x3xi32>, tensor<f32> } }",
    "module @h { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
       %r = \"stablehlo.custom_call\"(%a) {call_target_name = \"xla_ffi_python_cpu_callback\",
         has_side_effect = true, backend_config = {index = 0 : ui64}, api_version = 4 : i32}
         : (tensor<4xf32>) -> tensor<4xf32> return %r : tensor<4xf32> } }",
    "no module at all",
];

/// Chance, and how often it draws what cannot be right. Sessions that are wrong all the time end at their
/// first frame; those that seldom are get far.
struct Source {
    random: Rng,
    one_in: u32,
}

impl Source {
    fn is_wild(&mut self) -> bool {
        self.random.u32(..self.one_in) == 0
    }
}

impl Deref for Source {
    type Target = Rng;

    fn deref(&self) -> &Rng {
        &self.random
    }
}

impl DerefMut for Source {
    fn deref_mut(&mut self) -> &mut Rng {
        &mut self.random
    }
}

pub(crate) fn attack(service: &Service, seed: u64, count: u64) -> Result<Tally, Problem> {
    let mut tally = Tally::new("frames");
    tally.note("before", service.footprint()?);
    let restarts = service.restarts()?;
    let mut canary = Canary::new(service)?;
    let mut random = Rng::with_seed(seed);
    let mut sent = 0;
    let mut next_canary = CANARY_EVERY;
    while sent < count {
        let begun = random.get_seed();
        let many = random
            .usize(1..=SESSION_FRAMES)
            .min((count - sent) as usize);
        tally.count("sessions");
        let mut gone = 0;
        let ended = session(service, &mut random, many, &mut gone);
        // A session that was refused at its greeting counts, so that this ends.
        sent += gone.max(1);
        tally.add("frames sent", gone.max(1));
        match ended {
            Ok(()) => tally.count("sessions that outlived their frames"),
            Err(Loss::Refused(why)) => {
                tally.count("sessions refused with a reason");
                tally.reason(&why);
            }
            Err(Loss::Gone) => tally.count("sessions closed without a word"),
            Err(Loss::Late) => tally.count("sessions left waiting for the rest of a frame"),
        }
        if sent >= next_canary || sent >= count {
            next_canary = sent + CANARY_EVERY;
            if !matches!(canary.sings(), Ok(true)) {
                tally.finding(format!(
                    "the canary no longer sings: frames --seed {begun} --count {CANARY_EVERY} or before\n{}",
                    service.log()
                ));
                service.wait_until_up()?;
                canary = Canary::new(service)?;
            }
        }
    }
    let deaths = service.restarts()? - restarts;
    tally.add("deaths of the device host", deaths);
    if deaths > 0 {
        tally.finding(format!(
            "the device host died {deaths} times: frames --seed {seed} --count {count}"
        ));
    }
    drop(canary);
    service.wait_until_idle()?;
    tally.note("after", service.footprint()?);
    Ok(tally)
}

/// A session, or what only looks like the beginning of one, and its frames.
/// `sent` counts them.
pub(crate) fn session(
    service: &Service,
    random: &mut Rng,
    frames: usize,
    sent: &mut u64,
) -> Result<(), Loss> {
    let random = &mut Source {
        one_in: *random.choice(&[3, 20, 100, 400]).unwrap_or(&3),
        random: random.fork(),
    };
    let mut session = match random.is_wild() {
        true => Session::connect(service.socket())?,
        false => Session::open(service.socket(), "frames")?,
    };
    session.stream().set_write_timeout(Some(SEND_TIME))?;
    let memory = Segment::create(SEGMENT_BYTES, false)?;
    for code in CODES {
        memory.copy_in(code_offset(code), code.as_bytes());
    }
    // A segment and a program that are right, so that the rest has something to be wrong about.
    if !random.is_wild() {
        for message in [
            ToService::from(salus_wire::Segment {
                id: 1,
                bytes: SEGMENT_BYTES,
            }),
            compile(1, random.usize(..CODES.len())),
        ] {
            let descriptor = matches!(message, ToService::Segment(_))
                .then(|| memory.as_fd().try_clone_to_owned())
                .transpose()?;
            session.push(message, descriptor);
        }
        session.flush()?;
    }
    for number in 0..frames {
        let message = message(random);
        let mut bytes = Vec::new();
        let announced = match message {
            ToService::Segment(_) => 1,
            _ => u16::from(random.is_wild()),
        };
        encode_frame(&message, number as u64, announced, &mut bytes);
        if random.is_wild() {
            damage(random, &mut bytes);
        }
        let descriptors = descriptors(random, &memory, announced.into())?;
        if is_command_to_obey(&bytes) {
            continue;
        }
        let cut = random.u32(..100) == 0;
        if cut {
            bytes.truncate(random.usize(..bytes.len().max(1)));
        }
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let written = send(session.stream(), &bytes, &borrowed);
        *sent += 1;
        answers(&mut session, random)?;
        written?;
        if cut {
            return Ok(());
        }
    }
    // Half of the sessions stay until all has been read, so that nothing is lost with the socket.
    if random.bool() {
        session.push(AskUsage { request: LAST }, None);
        session.flush()?;
        let deadline = Instant::now() + LAST_TIME;
        loop {
            if let FromService::Usage(usage) = session.receive(deadline)?.message
                && usage.request == LAST
            {
                break;
            }
        }
    }
    answers(&mut session, random)
}

/// The request whose answer says that all frames before it have been read.
const LAST: u64 = 0x1a57;
/// It never comes where a frame's length was made larger: the service waits for the rest of it.
const LAST_TIME: Duration = Duration::from_millis(500);

fn code_offset(code: &str) -> u64 {
    let place = CODES.iter().position(|one| *one == code).unwrap_or(0);
    4096 * (1 + place as u64)
}

fn compile(program: u64, which: usize) -> ToService {
    let code = CODES[which];
    ToService::from(Compile {
        program,
        format: "mlir".into(),
        code: Region {
            segment: 1,
            offset: code_offset(code),
            length: code.len() as u64,
        },
        options: Vec::new(),
    })
}

/// Takes what has come, and answers callbacks as badly as it can.
fn answers(session: &mut Session, random: &mut Source) -> Result<(), Loss> {
    while let Some(received) = session.received()? {
        if let (FromService::CallbackChannel(_), Some(channel)) =
            (&received.message, received.descriptor)
        {
            let channel = UnixStream::from(channel);
            for _ in 0..random.u32(..4) {
                let answer = FromCallbacks::from(CallbackReturn {
                    error: random.bool().then(|| Error {
                        code: random.u32(..),
                        message: "no".repeat(random.usize(..3000)),
                    }),
                });
                let mut bytes = Vec::new();
                encode_frame(&answer, 1, 0, &mut bytes);
                if random.bool() {
                    damage(random, &mut bytes);
                }
                let _ = send(&channel, &bytes, &[]);
            }
            if random.bool() {
                let mut some = [0; 64];
                let _ = channel.set_read_timeout(Some(Duration::from_millis(20)));
                let _ = (&channel).read(&mut some);
            }
        }
    }
    Ok(())
}

// ---------------------------------------------------------------- messages

/// A number that is likely to be in use, or any.
fn id(random: &mut Source) -> u64 {
    match (random.is_wild(), random.bool()) {
        (true, true) => random.u64(..),
        (true, false) => u64::MAX - random.u64(..2),
        _ => random.u64(..6),
    }
}

fn region(random: &mut Source) -> Region {
    if !random.is_wild() {
        let offset = 64 * random.u64(..8);
        let length = *random.choice(&[16, 24, 4]).unwrap_or(&16);
        return Region {
            segment: 1,
            offset,
            length,
        };
    }
    let size = |random: &mut Source| match random.u32(..6) {
        0 => random.u64(..),
        1 => u64::MAX - random.u64(..64),
        2 => 0,
        3 => SEGMENT_BYTES - random.u64(..64),
        _ => 16 * random.u64(..64),
    };
    Region {
        segment: if random.u32(..8) == 0 {
            random.u32(..)
        } else {
            random.u32(1..3)
        },
        offset: size(random),
        length: size(random),
    }
}

fn dimension(random: &mut Source) -> i64 {
    match (random.is_wild(), random.u32(..3)) {
        (true, 0) => random.i64(..),
        (true, 1) => -1,
        (true, _) => i64::MAX,
        _ => random.i64(..5),
    }
}

fn shape(random: &mut Source) -> Shape {
    if !random.is_wild() {
        let (element_type, dims) = match random.u32(..3) {
            0 => (4, vec![2, 3]),
            1 => (11, vec![]),
            _ => (11, vec![4]),
        };
        return Shape {
            element_type,
            dims,
            minor_to_major: None,
        };
    }
    let rank = if random.u32(..20) == 0 {
        random.usize(..80)
    } else {
        random.usize(..4)
    };
    Shape {
        element_type: if random.u32(..10) == 0 {
            random.u32(..)
        } else {
            random.u32(..34)
        },
        dims: (0..rank).map(|_| dimension(random)).collect(),
        minor_to_major: random.bool().then(|| {
            let length = if random.u32(..3) == 0 {
                random.usize(..5)
            } else {
                rank
            };
            let mut order: Vec<i64> = (0..length as i64).collect();
            random.shuffle(&mut order);
            if random.u32(..4) == 0 && !order.is_empty() {
                order[0] = dimension(random);
            }
            order
        }),
    }
}

fn ids(random: &mut Source) -> Vec<u64> {
    let count = if random.u32(..10) == 0 && random.is_wild() {
        70_000
    } else {
        random.usize(..4)
    };
    (0..count).map(|_| id(random)).collect()
}

fn message(random: &mut Source) -> ToService {
    let kind = if random.is_wild() {
        random.u32(..2)
    } else {
        random.u32(2..18)
    };
    match kind {
        0 => ToService::from(Hello {
            protocol_min: random.u32(..3),
            protocol_max: random.u32(..),
            version: "\u{1b}[2J".repeat(random.usize(..300)),
            name: "x\n".repeat(random.usize(..600)),
            terms: Terms {
                memory_max: id(random),
                weight: random.u32(..),
                priority: Priority::High,
                deadline_us: id(random),
                iterations: id(random),
                expect_us: id(random),
            },
            run: id(random),
        }),
        1 => ToService::from(Command {
            protocol_min: version::MIN,
            protocol_max: version::MAX,
            request: match random.u32(..3) {
                0 => Request::Report,
                1 => Request::Trace {
                    seconds: random.u32(..3),
                },
                _ => Request::Fate {
                    session: id(random),
                },
            },
        }),
        2 => ToService::from(salus_wire::Segment {
            id: if random.is_wild() {
                random.u32(..)
            } else {
                random.u32(2..40)
            },
            bytes: match (random.is_wild(), random.bool()) {
                (true, true) => random.u64(..),
                (true, false) => 0,
                _ => SEGMENT_BYTES,
            },
        }),
        3 => ToService::from(SegmentGone {
            id: if random.is_wild() {
                1
            } else {
                random.u32(2..40)
            },
        }),
        4..7 => ToService::from(Upload {
            array: id(random),
            shape: shape(random),
            memory: if random.is_wild() { random.u32(..) } else { 0 },
            data: region(random),
        }),
        7 => match !random.is_wild() {
            true => compile(id(random), random.usize(..CODES.len())),
            false => ToService::from(Compile {
                program: id(random),
                format: (*random
                    .choice(&["mlir", "hlo", "", "\0", "mlirx"])
                    .unwrap_or(&"hlo"))
                .into(),
                code: region(random),
                options: {
                    let length = random.usize(..64);
                    (0..length).map(|_| random.u8(..)).collect()
                },
            }),
        },
        8..11 => ToService::from(Execute {
            operation: id(random),
            program: id(random),
            first_output: id(random),
            arguments: ids(random),
            keep: {
                let length = random.usize(..2);
                (0..length).map(|_| random.u32(..3)).collect()
            },
        }),
        11 => ToService::from(CopyArray {
            operation: id(random),
            array: id(random),
            copy: id(random),
            memory: random.u32(..4),
        }),
        12..14 => ToService::from(Fetch {
            request: id(random),
            array: id(random),
            target: region(random),
            form: match random.bool() {
                true => Form::Raw,
                false => Form::Host {
                    minor_to_major: {
                        let rank = random.usize(..3);
                        (0..rank).map(|_| dimension(random)).collect()
                    },
                },
            },
        }),
        14 => ToService::from(Await {
            operation: id(random),
        }),
        15 => ToService::from(DropArrays {
            arrays: ids(random),
        }),
        16 => ToService::from(DropProgram {
            program: id(random),
        }),
        _ => match random.bool() {
            true => ToService::from(AskUsage {
                request: id(random),
            }),
            false => ToService::from(AskProfile {
                request: id(random),
                since_ns: id(random),
            }),
        },
    }
}

// ---------------------------------------------------------------- damage

/// Changes a frame as bytes.
pub(crate) fn damage(random: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.u32(1..4) {
        let len = bytes.len();
        if len == 0 {
            return;
        }
        let at = random.usize(..len);
        match random.u32(..8) {
            0 => bytes[at] ^= 1 << random.u32(..8),
            1 => bytes[at] = random.u8(..),
            2 => bytes[at] = 0xff,
            // The length that is announced, the kind, the descriptors.
            3 => bytes[random.usize(..4.min(len))] = random.u8(..),
            4 if len > 5 => bytes[4] = random.u8(..20),
            5 if len > 7 => bytes[6] = random.u8(..4),
            6 => {
                bytes.remove(at);
            }
            _ => bytes.insert(at, random.u8(..)),
        }
    }
}

/// Whether a user may give this command: stop the service, change a job or the policy.
fn is_command_to_obey(bytes: &[u8]) -> bool {
    let kind = bytes.get(4..6) == Some(&[2, 0]);
    kind && matches!(bytes.get(Header::BYTES + 8), Some(2..=5))
}

/// What comes with a frame that announces so many descriptors.
fn descriptors(
    random: &mut Source,
    memory: &Segment,
    announced: usize,
) -> Result<Vec<OwnedFd>, Loss> {
    let count = match random.is_wild() {
        true => random.usize(..4),
        false => announced,
    };
    (0..count).map(|_| descriptor(random, memory)).collect()
}

fn descriptor(random: &mut Source, memory: &Segment) -> Result<OwnedFd, Loss> {
    let memfd = |seals: SealFlags, bytes: u64| -> Result<OwnedFd, Loss> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = rustix::fs::memfd_create(c"attack", flags).map_err(std::io::Error::from)?;
        rustix::fs::ftruncate(&made, bytes).map_err(std::io::Error::from)?;
        rustix::fs::fcntl_add_seals(&made, seals).map_err(std::io::Error::from)?;
        Ok(made)
    };
    if !random.is_wild() {
        return Ok(memory.as_fd().try_clone_to_owned()?);
    }
    Ok(match random.u32(..8) {
        0 => memfd(SealFlags::empty(), SEGMENT_BYTES)?,
        1 => memfd(SealFlags::SHRINK, 1)?,
        2 => memfd(SealFlags::SHRINK | SealFlags::WRITE, SEGMENT_BYTES)?,
        3 => rustix::pipe::pipe().map_err(std::io::Error::from)?.0,
        4 => UnixStream::pair()?.0.into(),
        5 => File::open("/")?.into(),
        6 => File::open("/dev/zero")?.into(),
        _ => File::open("/proc/self/status")?.into(),
    })
}

fn send(to: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Loss> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut rest = bytes;
    let mut with = descriptors;
    while !rest.is_empty() {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !with.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(with));
        }
        let sent =
            rustix::net::sendmsg(to, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL);
        let sent = sent.map_err(std::io::Error::from)?;
        with = &[];
        rest = &rest[sent..];
    }
    Ok(())
}
