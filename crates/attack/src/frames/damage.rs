//! Frames as bytes: damaged, with descriptors of the wrong kind or number, and sent by hand.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use fastrand::Rng;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use salus_channel::Segment;
use salus_harness::Loss;
use salus_wire::Header;

use super::SEGMENT_BYTES;
use super::messages::Source;

/// Changes a frame as bytes.
pub(super) fn damage(random: &mut Rng, bytes: &mut Vec<u8>) {
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
pub(super) fn is_command_to_obey(bytes: &[u8]) -> bool {
    let kind = bytes.get(4..6) == Some(&[2, 0]);
    kind && matches!(bytes.get(Header::BYTES + 8), Some(2..=5))
}

/// The descriptors of a frame that announces `announced` of them.
pub(super) fn descriptors(
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

pub(super) fn send(
    to: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Loss> {
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
