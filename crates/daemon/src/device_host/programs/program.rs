//! A program loaded into the device, and what it and its runs take.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use salus_device::{Description, Device, Shape, Signature, host_bytes, is_host_memory};
use salus_wire::Output;

/// A program loaded into the device.
pub(crate) struct Program<D: Device> {
    /// The engine's name for it: the same for equal programs, also after a restart.
    pub(crate) number: salus_engine::Program,
    pub(crate) signature: Signature,
    pub(crate) loaded: D::Program,
    /// The signature as it is sent to jobs. Kept as bytes: a blob would be a descriptor for each of
    /// thousands of programs.
    pub(super) description: Vec<u8>,
    /// What it takes of this process's memory, about.
    pub(crate) loaded_bytes: u64,
    /// The size of each output.
    pub(crate) output_bytes: Vec<u64>,
    /// Scratch beyond what the compiler said, learned from the device.
    pub(super) learned_bytes: AtomicU64,
    /// How many launches have to end well before it is trusted again not to run out of memory.
    pub(super) short_of_memory: AtomicU32,
}

/// Long enough for the jobs that it shares the device with to have run, too.
const CAREFUL_LAUNCHES: u32 = 64;

impl<D: Device> Program<D> {
    /// What a run needs besides its arrays: what the compiler said and what was learned since.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        self.said_scratch_bytes() + self.learned_bytes.load(Relaxed)
    }

    /// What the compiler said that a run needs besides its arrays.
    pub(crate) fn said_scratch_bytes(&self) -> u64 {
        let memory = self.signature.memory.as_ref();
        let temp = memory.map_or(0, |memory| memory.temp_bytes);
        u64::try_from(temp).unwrap_or(0)
    }

    /// The fewest bytes that the arrays of a run can have: its arguments, and outputs beside them.
    /// One array may be given for all parameters of its shape. But an output that takes an argument's
    /// place needs one that is given only once, or memory of its own. What may be in host memory takes
    /// nothing of the device.
    pub(crate) fn least_bytes(&self, device: &Description) -> (u64, u64) {
        let Signature {
            parameters,
            outputs,
            donated,
            ..
        } = &self.signature;
        let replaced = |output: &Output| output.aliases.filter(|index| donated.contains(index));
        let taken_over: HashSet<u32> = outputs.iter().filter_map(replaced).collect();
        let (given_once, others): (Vec<_>, Vec<_>) = (0..)
            .zip(parameters)
            .partition(|(index, _)| taken_over.contains(index));
        let shapes: HashSet<&Shape> = others.into_iter().map(|(_, shape)| shape).collect();
        let given_once = given_once.into_iter().map(|(_, shape)| shape);
        let arguments: u64 = given_once.chain(shapes).map(bytes_of).sum();
        let on_host = self.signature.memory.filter(|_| !device.on_host);
        let on_host = on_host.map_or(0, |memory| memory.host_argument_bytes);
        let arguments = arguments.saturating_sub(u64::try_from(on_host).unwrap_or(0));
        let outputs = outputs.iter().zip(&self.output_bytes);
        let on_device = |output: &Output| !is_host_memory(device, output.memory);
        let new = outputs.filter(|(output, _)| replaced(output).is_none() && on_device(output));
        (arguments, new.map(|(_, bytes)| bytes).sum())
    }

    /// A run took `more_bytes` more scratch than was known.
    pub(crate) fn learn(&self, more_bytes: u64) {
        self.learned_bytes.fetch_add(more_bytes, Relaxed);
    }

    /// Whether a launch of it found out on the device that memory was short, not long ago.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.short_of_memory.load(Relaxed) > 0
    }

    pub(crate) fn was_short_of_memory(&self) {
        self.short_of_memory.store(CAREFUL_LAUNCHES, Relaxed);
    }

    /// A launch has ended well.
    pub(crate) fn had_memory(&self) {
        if self.is_short_of_memory() {
            let less = |left: u32| left.checked_sub(1);
            let _ = self.short_of_memory.fetch_update(Relaxed, Relaxed, less);
        }
    }

    pub(crate) fn signature_blob(&self) -> std::io::Result<(OwnedFd, u64)> {
        let bytes = self.description.len() as u64;
        Ok((salus_channel::blob(&self.description)?, bytes))
    }
}

/// Loaded code takes about this many times its serialized size (measured on the CPU plugin: 0.7 MB and
/// 1.1 MB became 15 MiB and 27 MiB).
const CODE_TIMES: u64 = 24;
/// Constants take about this many times their serialized size (32 MiB became 73 MB).
const CONSTANT_TIMES: u64 = 3;
/// In a larger program the rest is constants, as a rule.
const CODE_BYTES: u64 = 4 << 20;

/// What a program takes once it is loaded, by its serialized size.
pub(super) fn loaded_bytes(executable_bytes: u64) -> u64 {
    let code = executable_bytes.min(CODE_BYTES);
    code * CODE_TIMES + (executable_bytes - code) * CONSTANT_TIMES
}

/// What an array of this shape takes; a token takes nothing.
pub(super) fn bytes_of(shape: &Shape) -> u64 {
    host_bytes(shape).unwrap_or(0) as u64
}

/// The default layout has one spelling, so that shapes can be compared.
pub(crate) fn normalize(shape: &mut Shape) {
    let default = |order: &Vec<i64>| order.iter().copied().eq((0..shape.dims.len() as i64).rev());
    if shape.minor_to_major.as_ref().is_some_and(default) {
        shape.minor_to_major = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_do_not_count_as_code() {
        assert_eq!(loaded_bytes(1 << 20), 24 << 20);
        assert_eq!(loaded_bytes(36 << 20), (4 * 24 + 32 * 3) << 20);
    }
}
