//! Frames that no library sends.
//!
//! Each begins as a valid message with ids, regions, shapes and layouts drawn from a small range, so
//! that many of them meet what is really there, or from all numbers; many are then damaged as bytes.
//! Descriptors of the wrong kind come along, or none, or several. Half of the sessions end in the
//! middle of a frame.
//!
//! Not sent: commands that a user may give, such as to stop the service.

mod damage;
mod messages;

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fastrand::Rng;
use salus_channel::Segment;
use salus_harness::{Client, Loss, Service};
use salus_wire::{
    AskUsage, CallbackReturn, Error, ErrorCode, FromCallbacks, FromService, ProgramId, RequestId,
    SegmentId, ToService, encode_frame,
};

use crate::Problem;
use crate::canary::Canary;
use crate::setup::footprint;
use crate::tally::Tally;
use damage::{damage, descriptors, is_command_to_obey, send};
use messages::{CODES, Source, code_offset, compile, message};

/// The canary is asked after this many frames.
const CANARY_EVERY: u64 = 500;
/// At most this many on one session.
const SESSION_FRAMES: usize = 60;
const SEGMENT_BYTES: u64 = 1 << 16;
/// A socket that takes nothing for this long belongs to a session that is busy: it is left alone.
const SEND_TIME: Duration = Duration::from_millis(200);

pub(crate) fn attack(service: &Service, seed: u64, count: u64) -> Result<Tally, Problem> {
    let mut tally = Tally::new("frames");
    tally.note("before", footprint(service)?);
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
                    service.log_tail()
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
    tally.note("after", footprint(service)?);
    Ok(tally)
}

// tidy: long, because the order of its steps is what is tried.
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
        true => Client::connect(service.socket())?,
        false => Client::open(service.socket(), "frames")?,
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
                id: SegmentId(1),
                bytes: SEGMENT_BYTES,
            }),
            compile(ProgramId(1), random.usize(..CODES.len())),
        ] {
            match message {
                ToService::Segment(_) => {
                    session.push_with(message, memory.as_fd().try_clone_to_owned()?);
                }
                _ => session.push(message),
            }
        }
        session.flush()?;
    }
    for _ in 0..frames {
        let message = message(random);
        let mut bytes = Vec::new();
        let announced = match message {
            ToService::Segment(_) => 1,
            _ => u16::from(random.is_wild()),
        };
        encode_frame(&message, announced, &mut bytes);
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
        session.push(AskUsage {
            request: RequestId(LAST),
        });
        session.flush()?;
        let deadline = Instant::now() + LAST_TIME;
        loop {
            if let FromService::Usage(usage) = session.receive(deadline)?.message
                && usage.request == RequestId(LAST)
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

/// Takes what has come, and answers callbacks as badly as it can.
fn answers(session: &mut Client, random: &mut Source) -> Result<(), Loss> {
    while let Some(received) = session.received()? {
        if let (FromService::CallbackChannel(_), Some(channel)) =
            (&received.message, received.descriptor)
        {
            let channel = UnixStream::from(channel);
            for _ in 0..random.u32(..4) {
                let answer = FromCallbacks::from(CallbackReturn {
                    error: random.bool().then(|| {
                        Error::new(
                            ErrorCode::from_number(random.u32(1..17)),
                            "no".repeat(random.usize(..3000)),
                        )
                    }),
                });
                let mut bytes = Vec::new();
                encode_frame(&answer, 0, &mut bytes);
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
