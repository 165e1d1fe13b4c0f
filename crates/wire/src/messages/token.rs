//! What `Serialize` gives to JAX's persistent cache: never machine code.
//!
//! A token carries the program's source and options, so that a service which no longer has the
//! program in its cache compiles it again, and the entry stays good forever. Loading a token is
//! therefore no more than compiling: nothing in it has to be trusted.

use std::fmt;

use crate::codec::{Reader, Wire, wire_struct};
use crate::limits;

wire_struct! {
    Token {
        format: String = limits::NAME_BYTES,
        code: Vec<u8> = limits::BLOB_BYTES,
        options: Vec<u8> = limits::OPTIONS_BYTES,
    }
}

const MAGIC: &[u8; 16] = b"salus-program-1\n";

/// Why bytes are not a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenError {
    Foreign,
    Damaged,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => {
                "this serialized executable was not made by Salus, which loads no machine code \
                 that comes from a job; compile the program through Salus, or clear the cache \
                 directory that it was read from"
            }
            Self::Damaged => {
                "this serialized executable was made by Salus but is damaged (its check does not \
                 match); delete it, for instance the entry in JAX's compilation cache"
            }
        })
    }
}

impl Token {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[0; 8]);
        self.put(&mut out);
        let check = check(&out[24..]);
        out[16..24].copy_from_slice(&check.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, TokenError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(TokenError::Foreign)?;
        let (sum, body) = rest.split_first_chunk::<8>().ok_or(TokenError::Damaged)?;
        if u64::from_le_bytes(*sum) != check(body) {
            return Err(TokenError::Damaged);
        }
        let mut reader = Reader::new(body);
        let token = Self::take(&mut reader, 0).map_err(|_| TokenError::Damaged)?;
        if reader.is_empty() {
            Ok(token)
        } else {
            Err(TokenError::Damaged)
        }
    }
}

/// FNV-1a over words of eight bytes: finds damage, proves nothing.
fn check(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    for word in bytes.chunks(8) {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        sum = (sum ^ u64::from_le_bytes(padded)).wrapping_mul(0x0000_0100_0000_01b3);
        sum ^= sum >> 29;
    }
    sum
}
