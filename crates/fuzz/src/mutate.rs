//! Changes to bytes that nothing is known of.

use fastrand::Rng;

/// Numbers at which lengths and counts change their meaning.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    u64::MAX,
];

/// One change: a bit, a byte, a number; a part left out, repeated or moved; an end cut off.
pub fn bytes(random: &mut Rng, input: &mut Vec<u8>) {
    if input.is_empty() {
        input.extend((0..random.usize(1..40)).map(|_| random.u8(..)));
        return;
    }
    let at = random.usize(..input.len());
    let part = random.usize(1..17).min(input.len() - at);
    match random.u32(..10) {
        0 => input[at] ^= 1 << random.u32(..8),
        1 => input[at] = random.u8(..),
        2 => input[at] = input[at].wrapping_add(1),
        3 => input[at] = input[at].wrapping_sub(1),
        4 => drop(input.drain(at..at + part)),
        5 => {
            let copy = input[at..at + part].to_vec();
            let to = random.usize(..=input.len());
            input.splice(to..to, copy);
        }
        6 => {
            let noise: Vec<u8> = (0..part).map(|_| random.u8(..)).collect();
            input.splice(at..at, noise);
        }
        7 => {
            let edge = EDGES[random.usize(..EDGES.len())].to_le_bytes();
            let width = [1, 2, 4, 8][random.usize(..4)].min(input.len() - at);
            input[at..at + width].copy_from_slice(&edge[..width]);
        }
        8 => {
            let other = random.usize(..input.len());
            input.swap(at, other);
        }
        _ => input.truncate(at),
    }
}

/// A part of another input in the place of a part of this one.
pub(crate) fn splice(random: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
    let mut part = |length: usize| {
        let from = random.usize(..=length);
        from..random.usize(from..=length)
    };
    let (to, from) = (part(input.len()), part(other.len()));
    input.splice(to, other[from].iter().copied());
}
