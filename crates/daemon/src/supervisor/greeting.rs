//! The first frame of a connection: read to its last byte and no further, then judged.
//!
//! Whatever a job sends after it stays in the socket for the device host, to which the socket is
//! passed. Reads never wait and never change the socket's own mode, which both processes share.
//!
//! Promise: no bytes make it panic, wait, or hold more than [`FIRST_FRAME_BYTES`].

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use salus_wire::{Command, Error, ErrorCode, Header, Hello, ToService, decode_body, version};

use super::closing::Closer;

/// The largest honest first frame is a `Hello` with three names of 1 KiB.
pub(super) const FIRST_FRAME_BYTES: usize = Header::BYTES + (4 << 10);

/// The kernel sends no more with one message. With room for all of them, none is closed by reading.
const DESCRIPTORS: usize = 253;

/// Who is at the other end, as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    /// 0 if the process lives in a pid namespace that we cannot see.
    pub(super) pid: i32,
    pub(super) uid: u32,
}

impl Peer {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let found = getsockopt(stream, PeerCredentials)?;
        Ok(Self {
            pid: found.pid(),
            uid: found.uid(),
        })
    }
}

/// What the first frame asks for, its version agreed on.
#[derive(Debug, PartialEq)]
pub(super) enum FirstRequest {
    Session { hello: Hello, protocol: u32 },
    Command(Command),
}

/// How far the first frame has come.
#[derive(Debug, PartialEq)]
pub(super) enum Progress {
    More,
    Closed,
    Refuse(Error),
    Ready(FirstRequest),
}

/// Bytes of the first frame so far.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    bytes: Vec<u8>,
}

impl Greeting {
    /// Reads what is there. Descriptors that come with it are let go of.
    pub(super) fn advance(&mut self, socket: impl AsFd, closer: &Closer) -> Progress {
        loop {
            let wanted = match Header::decode(&self.bytes) {
                Ok(None) => Header::BYTES,
                Ok(Some(header)) => Header::BYTES + header.length as usize,
                Err(e) => return garbage(&e.0),
            };
            if wanted > FIRST_FRAME_BYTES {
                return garbage(&format!(
                    "it announces {wanted} bytes, {FIRST_FRAME_BYTES} is the limit"
                ));
            }
            if self.bytes.len() == wanted {
                return self.judge();
            }
            let have = self.bytes.len();
            self.bytes.resize(wanted, 0);
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let got = rustix::net::recvmsg(
                &socket,
                &mut [IoSliceMut::new(&mut self.bytes[have..])],
                &mut control,
                RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
            );
            let mut descriptors = 0;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(came) = message {
                    for descriptor in came {
                        descriptors += 1;
                        closer.close(descriptor);
                    }
                }
            }
            let n = got.as_ref().map_or(0, |got| got.bytes);
            self.bytes.truncate(have + n);
            if descriptors > 0 {
                return garbage("it comes with descriptors");
            }
            match got.map(|got| got.bytes) {
                Ok(0) => return Progress::Closed,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Progress::More,
                Err(_) => return Progress::Closed,
            }
        }
    }

    fn judge(&self) -> Progress {
        let (head, body) = self.bytes.split_at(Header::BYTES);
        let Ok(Some(header)) = Header::decode(head) else {
            return garbage("it has no header");
        };
        if header.descriptors != 0 {
            return garbage("it comes with descriptors");
        }
        match decode_body(header.kind, body) {
            Ok(ToService::Hello(hello)) => {
                let theirs = (hello.protocol_min, hello.protocol_max);
                match choose(theirs, Side::Library) {
                    Ok(protocol) => Progress::Ready(FirstRequest::Session { hello, protocol }),
                    Err(error) => Progress::Refuse(error),
                }
            }
            Ok(ToService::Command(command)) => {
                let theirs = (command.protocol_min, command.protocol_max);
                match choose(theirs, Side::Command) {
                    Ok(_) => Progress::Ready(FirstRequest::Command(command)),
                    Err(error) => Progress::Refuse(error),
                }
            }
            Ok(_) => garbage("it is neither a job's nor a command's"),
            Err(e) => match other_version(header.kind, body) {
                Some(error) => Progress::Refuse(error),
                None => garbage(&e.0),
            },
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Library,
    Command,
}

fn choose(theirs: (u32, u32), side: Side) -> Result<u32, Error> {
    version::choose((version::MIN, version::MAX), theirs).map_err(|ranges| {
        let ranges = match side {
            Side::Library => ranges,
            Side::Command => ranges.replace("the job's library", "this command"),
        };
        Error::new(
            ErrorCode::FailedPrecondition,
            format!("{ranges}; update the older of the two (`pip install -U salus`)"),
        )
    })
}

/// A first frame of another version may have another form, but it always begins with its window of
/// versions: then the reason is the version, not garbage.
fn other_version(kind: u16, body: &[u8]) -> Option<Error> {
    let side = match kind {
        1 => Side::Library,
        2 => Side::Command,
        _ => return None,
    };
    let number = |at: usize| {
        let bytes = body.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let theirs = (number(0)?, number(4)?);
    // Garbage seldom looks like a window of small numbers.
    if theirs.0 > theirs.1 || theirs.1 > 1 << 16 {
        return None;
    }
    choose(theirs, side).err()
}

fn garbage(why: &str) -> Progress {
    Progress::Refuse(Error::new(
        ErrorCode::InvalidArgument,
        format!("the first message is not one of Salus': {why}"),
    ))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use salus_wire::{JobSettings, Message, Request, encode_frame};

    use super::*;

    fn frame(message: &ToService) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_frame(message, 0, &mut bytes);
        bytes
    }

    fn hello(min: u32, max: u32) -> ToService {
        Hello {
            protocol_min: min,
            protocol_max: max,
            version: "0.1.0".into(),
            name: "train.py".into(),
            settings: JobSettings::default(),
            run: 0,
            device: String::new(),
        }
        .into()
    }

    /// What becomes of a connection that sends these bytes.
    fn outcome(bytes: &[u8]) -> Progress {
        let (mut near, far) = UnixStream::pair().expect("a pair");
        near.write_all(bytes).expect("it fits");
        Greeting::default().advance(&far, &Closer::default())
    }

    fn refused(bytes: &[u8]) -> Error {
        match outcome(bytes) {
            Progress::Refuse(error) => error,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn a_hello_comes_byte_by_byte_and_what_follows_stays_in_the_socket() {
        let (mut near, mut far) = UnixStream::pair().expect("a pair");
        let mut greeting = Greeting::default();
        assert_eq!(greeting.advance(&far, &Closer::default()), Progress::More);
        let bytes = frame(&hello(1, 1));
        for (i, byte) in bytes.iter().enumerate() {
            near.write_all(&[*byte]).expect("it fits");
            if i + 1 < bytes.len() {
                assert_eq!(
                    greeting.advance(&far, &Closer::default()),
                    Progress::More,
                    "byte {i}"
                );
            }
        }
        near.write_all(b"next").expect("it fits");
        match greeting.advance(&far, &Closer::default()) {
            Progress::Ready(FirstRequest::Session { hello, protocol }) => {
                assert_eq!((hello.name.as_str(), protocol), ("train.py", 1));
            }
            other => panic!("not let in: {other:?}"),
        }
        let mut rest = [0; 4];
        io::Read::read_exact(&mut far, &mut rest).expect("it is still there");
        assert_eq!(&rest, b"next");
    }

    #[test]
    fn another_version_is_refused_with_both_ranges() {
        let error = refused(&frame(&hello(7, 9)));
        assert_eq!(error.code, ErrorCode::FailedPrecondition);
        assert_eq!(
            error.message,
            "the service speaks protocol versions 1 to 1, the job's library 7 to 9; update the \
             older of the two (`pip install -U salus`)"
        );
        let command = Command {
            protocol_min: 2,
            protocol_max: 2,
            request: Request::Stop,
        };
        assert_eq!(
            refused(&frame(&command.into())).message,
            "the service speaks protocol versions 1 to 1, this command 2 to 2; update the older \
             of the two (`pip install -U salus`)"
        );
    }

    #[test]
    fn a_hello_of_a_form_not_known_yet_is_a_matter_of_version() {
        let mut bytes = frame(&hello(7, 9));
        bytes.extend_from_slice(&[1, 2, 3]);
        let length = (bytes.len() - Header::BYTES) as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        assert_eq!(refused(&bytes).code, ErrorCode::FailedPrecondition);
    }

    #[test]
    fn garbage_is_refused_and_never_waited_for() {
        let mut http = b"GET / HTTP/1.1\r\nHost: salus\r\n\r\n".to_vec();
        assert_eq!(refused(&http).code, ErrorCode::InvalidArgument);
        http.fill(0xff);
        assert_eq!(refused(&http).code, ErrorCode::InvalidArgument);
        assert_eq!(refused(&[0; 64]).code, ErrorCode::InvalidArgument);
        let mut big = frame(&hello(1, 1));
        big[..4].copy_from_slice(&(1u32 << 19).to_le_bytes());
        assert_eq!(
            refused(&big).message,
            "the first message is not one of Salus': it announces 524296 bytes, 4104 is the limit"
        );
    }

    #[test]
    fn descriptors_are_refused_and_closed_by_others() {
        use super::super::closing::tests::{lingering, send};
        let (near, far) = UnixStream::pair().expect("a pair");
        let (lingering, reader) = lingering();
        send(&near, &frame(&hello(1, 1)), lingering).expect("a pair takes them");
        let outcome = Greeting::default().advance(&far, &Closer::default());
        let Progress::Refuse(error) = outcome else {
            panic!("not refused: {outcome:?}");
        };
        assert!(error.message.contains("comes with descriptors"), "{error}");
        drop(reader);
    }

    #[test]
    fn no_bytes_at_all_make_it_panic() {
        // A small generator with a fixed seed: the same bytes each time.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..2_000 {
            let mut bytes = frame(&hello(1, 1));
            for _ in 0..1 + next() % 4 {
                let at = (next() % bytes.len() as u64) as usize;
                bytes[at] = next() as u8;
            }
            bytes.truncate((next() % (bytes.len() as u64 + 1)) as usize);
            let _ = outcome(&bytes);
        }
    }

    #[test]
    fn a_message_out_of_turn_is_refused() {
        let early: ToService = salus_wire::DropProgram {
            program: salus_wire::ProgramId(1),
        }
        .into();
        assert_eq!(early.kind(), 12);
        assert_eq!(
            refused(&frame(&early)).message,
            "the first message is not one of Salus': it is neither a job's nor a command's"
        );
    }

    #[test]
    fn a_peer_is_known_by_its_credentials() {
        let (near, _far) = UnixStream::pair().expect("a pair");
        let peer = Peer::of(&near).expect("it is a Unix socket");
        assert_eq!(peer.pid, std::process::id().cast_signed());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    }
}
