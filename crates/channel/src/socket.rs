//! Frames over Unix stream sockets, with the descriptors that some of them carry.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use salus_wire::{DecodeError, Header, Message, decode_body, encode_frame, limits};

/// Descriptors that may come with one read; each of our frames carries at most one, and a reader
/// never gets more than one frame's in a read.
const DESCRIPTORS_A_READ: usize = 16;
/// Descriptors that may wait for their frame before the sender counts as broken.
const DESCRIPTORS_WAITING: usize = 64;
/// What is read at once: a pipelined step is a few kB, so a read takes several.
const READ_BYTES: usize = 64 << 10;

/// A frame that arrived.
#[derive(Debug)]
pub struct Received<M> {
    pub message: M,
    /// `None` also where one was announced and this process had no descriptor left for it.
    pub descriptor: Option<OwnedFd>,
}

/// The receiving side of a socket: bytes and descriptors not yet taken as frames.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Room to read into; kept as it is between reads, because clearing it costs more than a read.
    bytes: Vec<u8>,
    /// Where the bytes not yet taken begin and end.
    start: usize,
    end: usize,
    /// In the order of their frames; `None` is one that was lost on arrival.
    descriptors: VecDeque<Option<OwnedFd>>,
}

impl Inbox {
    /// Reads what is there. Returns the bytes read: 0 is the end of the stream. With `wait` false,
    /// an empty socket is `ErrorKind::WouldBlock`.
    pub fn fill(&mut self, socket: impl AsFd, wait: bool) -> io::Result<usize> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        // A quiet session must not hold the room that its largest frame once took.
        if self.end == 0 && self.bytes.len() > 2 * READ_BYTES {
            self.bytes = Vec::new();
        }
        if self.bytes.len() < self.end + READ_BYTES {
            self.bytes.resize(self.end + READ_BYTES, 0);
        }
        let n = self.receive(socket, wait)?;
        self.end += n;
        Ok(n)
    }

    fn receive(&mut self, socket: impl AsFd, wait: bool) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_A_READ))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        if !wait {
            flags |= RecvFlags::DONTWAIT;
        }
        let (n, returned) = loop {
            let mut into = [IoSliceMut::new(&mut self.bytes[self.end..])];
            match rustix::net::recvmsg(&socket, &mut into, &mut control, flags) {
                Ok(received) => break (received.bytes, received.flags),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors.map(Some));
            }
        }
        if returned.contains(ReturnFlags::CTRUNC) {
            // The process has no descriptor left. The frame must not be given the next one's.
            self.descriptors.push_back(None);
        }
        if self.descriptors.len() > DESCRIPTORS_WAITING {
            return Err(io::Error::other(format!(
                "{} descriptors came without the frames that announce them",
                self.descriptors.len()
            )));
        }
        Ok(n)
    }

    /// The next whole frame, if one is there.
    pub fn take<M: Message>(&mut self) -> Result<Option<Received<M>>, DecodeError> {
        let rest = &self.bytes[self.start..self.end];
        let Some(header) = Header::decode(rest)? else {
            return Ok(None);
        };
        let end = Header::BYTES + header.length as usize;
        let Some(body) = rest.get(Header::BYTES..end) else {
            return Ok(None);
        };
        let message = decode_body(header.kind, body)?;
        let descriptor = match header.descriptors {
            0 => None,
            1 => self.descriptors.pop_front().ok_or_else(|| {
                DecodeError("a frame announces a descriptor and none came with it".into())
            })?,
            n => {
                return Err(DecodeError(format!(
                    "a frame announces {n} descriptors, 1 is the limit"
                )));
            }
        };
        self.start += end;
        Ok(Some(Received {
            message,
            descriptor,
        }))
    }
}

/// The sending side: frames encoded and not yet written.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    written: usize,
    /// Position in `bytes` at which each descriptor must be sent.
    descriptors: VecDeque<(usize, OwnedFd)>,
}

impl Outbox {
    pub fn push<M: Message>(&mut self, message: &M, descriptor: Option<OwnedFd>) {
        let carries = u16::from(descriptor.is_some());
        if let Some(descriptor) = descriptor {
            self.descriptors.push_back((self.bytes.len(), descriptor));
        }
        encode_frame(message, carries, &mut self.bytes);
    }

    /// Bytes waiting to be written.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes all that the socket takes. True if nothing is left; with `wait`, always true.
    pub fn flush(&mut self, socket: impl AsFd, wait: bool) -> io::Result<bool> {
        while self.written < self.bytes.len() {
            // A read on the other side ends where a descriptor comes, so that each arrives no later
            // than its frame: one descriptor a write.
            let (end, descriptor) = match self.descriptors.front() {
                Some((at, descriptor)) if *at == self.written => {
                    let next = self
                        .descriptors
                        .get(1)
                        .map_or(self.bytes.len(), |(at, _)| *at);
                    (next, Some(descriptor.as_fd()))
                }
                Some((at, _)) => (*at, None),
                None => (self.bytes.len(), None),
            };
            match send(&socket, &self.bytes[self.written..end], descriptor, wait) {
                Ok(n) => {
                    if descriptor.is_some() {
                        self.descriptors.pop_front();
                    }
                    self.written += n;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !wait => {
                    self.compact();
                    return Ok(false);
                }
                Err(e) => return Err(e),
            }
        }
        self.bytes.clear();
        self.written = 0;
        if self.bytes.capacity() > 4 * READ_BYTES {
            self.bytes = Vec::new();
        }
        Ok(true)
    }

    fn compact(&mut self) {
        let gone = std::mem::take(&mut self.written);
        self.bytes.drain(..gone);
        for (at, _) in &mut self.descriptors {
            *at -= gone;
        }
    }
}

/// One message, written whole: for conversations that await each answer.
pub fn send_all<M: Message>(
    socket: impl AsFd,
    message: &M,
    descriptor: Option<OwnedFd>,
) -> io::Result<()> {
    let mut outbox = Outbox::default();
    outbox.push(message, descriptor);
    outbox.flush(socket, true).map(|_| ())
}

fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    wait: bool,
) -> io::Result<usize> {
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut flags = SendFlags::NOSIGNAL;
    if !wait {
        flags |= SendFlags::DONTWAIT;
    }
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

const _: () = assert!(READ_BYTES < limits::FRAME_BYTES);
