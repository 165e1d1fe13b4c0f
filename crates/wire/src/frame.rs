//! Frames: a fixed header of 8 bytes, then the body.

use crate::codec::{DecodeError, Reader};
use crate::limits;

/// `length` of the body, `kind` of the message, descriptors that come with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub length: u32,
    pub kind: u16,
    pub descriptors: u16,
}

impl Header {
    pub const BYTES: usize = 8;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0..4].copy_from_slice(&self.length.to_le_bytes());
        out[4..6].copy_from_slice(&self.kind.to_le_bytes());
        out[6..8].copy_from_slice(&self.descriptors.to_le_bytes());
        out
    }

    /// `Ok(None)` while fewer bytes than a header are there.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let Some(head) = bytes.first_chunk::<{ Self::BYTES }>() else {
            return Ok(None);
        };
        let number = |from: usize, n: usize| {
            head[from..from + n]
                .iter()
                .rev()
                .fold(0u64, |sum, &b| sum << 8 | u64::from(b))
        };
        let header = Self {
            length: number(0, 4) as u32,
            kind: number(4, 2) as u16,
            descriptors: number(6, 2) as u16,
        };
        if header.length as usize > limits::FRAME_BYTES {
            return Err(DecodeError(format!(
                "expected a frame of at most {} bytes, found one of {}",
                limits::FRAME_BYTES,
                header.length
            )));
        }
        Ok(Some(header))
    }
}

/// One of the enums of messages.
pub trait Message: Sized {
    fn kind(&self) -> u16;
    fn put_body(&self, out: &mut Vec<u8>);
    fn take_body(kind: u16, reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Appends one frame to `out`. The caller has kept every list within its limit.
pub fn encode_frame<M: Message>(message: &M, descriptors: u16, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; Header::BYTES]);
    message.put_body(out);
    let length = (out.len() - start - Header::BYTES) as u32;
    let header = Header {
        length,
        kind: message.kind(),
        descriptors,
    };
    out[start..start + Header::BYTES].copy_from_slice(&header.encode());
}

/// Decodes a body; bytes left over are an error, because they mean the two ends disagree.
pub fn decode_body<M: Message>(kind: u16, body: &[u8]) -> Result<M, DecodeError> {
    let mut reader = Reader::new(body);
    let message = M::take_body(kind, &mut reader)?;
    if !reader.is_empty() {
        return Err(DecodeError(format!(
            "message {kind} has bytes after its end"
        )));
    }
    Ok(message)
}
