//! One iteration of a program with made-up arguments, and everything that it returns.

use std::time::{Duration, Instant};

use fastrand::Rng;
use salus_harness::{Client, Loss};
use salus_wire::{DropArrays, Form, ProgramId, Region, SegmentGone, Shape, Signature};

/// Arguments and results that are larger are not fed: what is attacked is not the machine's memory.
const FED_BYTES: u64 = 64 << 20;
/// Nor are more of them than this.
const FED_ARRAYS: usize = 4096;

/// `PJRT_Buffer_Type_PRED` and `PJRT_Buffer_Type_TOKEN`.
const PRED: u32 = 1;
const TOKEN: u32 = 23;

/// How an iteration went.
#[derive(Debug)]
pub(crate) enum Ran {
    /// With its results' bytes.
    Well(Vec<Vec<u8>>),
    Failed(String),
    /// Arguments or results are too many or too large to be fed.
    NotFed,
}

/// Runs a program with zeros or random bytes, and reads all that it returns.
pub(crate) fn run(
    client: &mut Client,
    program: ProgramId,
    signature: &Signature,
    mut random: Option<&mut Rng>,
    time: Duration,
) -> Result<Ran, Loss> {
    let mut fill = |bytes: u64| -> Vec<u8> {
        match &mut random {
            Some(random) => (0..bytes).map(|_| random.u8(..)).collect(),
            None => vec![0; bytes as usize],
        }
    };
    let sizes = |shapes: &mut dyn Iterator<Item = &Shape>| -> Option<Vec<u64>> {
        shapes.map(host_bytes).collect()
    };
    let into = sizes(&mut signature.parameters.iter());
    let out = sizes(&mut signature.outputs.iter().map(|output| &output.shape));
    let (Some(into), Some(out)) = (into, out) else {
        return Ok(Ran::NotFed);
    };
    let sum: u64 = into.iter().chain(&out).sum();
    if sum > FED_BYTES || into.len() + out.len() > FED_ARRAYS {
        return Ok(Ran::NotFed);
    }
    let data: Vec<Vec<u8>> = into.iter().map(|bytes| fill(*bytes)).collect();
    run_with(client, program, signature, &data, &out, time)
}

/// The same with given arguments; `out` are the sizes of the results.
pub(crate) fn run_with(
    client: &mut Client,
    program: ProgramId,
    signature: &Signature,
    data: &[Vec<u8>],
    out: &[u64],
    time: Duration,
) -> Result<Ran, Loss> {
    let aligned = |bytes: u64| bytes.next_multiple_of(64).max(64);
    let into: u64 = data.iter().map(|one| aligned(one.len() as u64)).sum();
    let all = into + out.iter().map(|bytes| aligned(*bytes)).sum::<u64>();
    let (segment, memory) = client.segment(all)?;
    let mut offset = 0;
    let mut region = |length: u64| {
        let region = Region {
            segment,
            offset,
            length,
        };
        offset += aligned(length);
        region
    };
    let mut arrays = Vec::new();
    for (shape, bytes) in signature.parameters.iter().zip(data) {
        let at = region(bytes.len() as u64);
        memory.copy_in(at.offset, bytes);
        let mut shape = shape.clone();
        if shape.element_type == TOKEN {
            shape.element_type = PRED;
            shape.dims = vec![0];
        }
        arrays.push(client.upload(shape, at));
    }
    let (operation, first_output) = client.launch(program, &arrays, out.len() as u64);
    let deadline = Instant::now() + time;
    // Callbacks are not answered: the job is hostile.
    let mut failed = client.wait_for(operation, deadline)?;
    let mut results = Vec::new();
    if failed.is_none() {
        for (index, bytes) in out.iter().enumerate() {
            let target = region(*bytes);
            let rank = signature.outputs[index].shape.dims.len() as i64;
            let form = Form::Host {
                minor_to_major: (0..rank).rev().collect(),
            };
            let error = client.read(first_output.plus(index as u64), target, form, deadline)?;
            failed = failed.or(error);
            results.push(memory.copy_out(target.offset, *bytes).unwrap_or_default());
        }
    }
    arrays.extend((0..out.len() as u64).map(|index| first_output.plus(index)));
    client.push(DropArrays { arrays });
    client.push(SegmentGone { id: segment });
    Ok(match failed {
        Some(error) => Ran::Failed(error.message),
        None => Ran::Well(results),
    })
}

/// Bytes of an array in host memory by PJRT's number of its type.
fn host_bytes(shape: &Shape) -> Option<u64> {
    let element: u64 = match shape.element_type {
        TOKEN => return Some(0),
        1 | 2 | 6 | 16..=22 | 24..=30 => 1,
        3 | 7 | 10 | 13 => 2,
        4 | 8 | 11 => 4,
        5 | 9 | 12 | 14 => 8,
        15 => 16,
        _ => return None,
    };
    shape.dims.iter().try_fold(element, |bytes, dim| {
        bytes.checked_mul(u64::try_from(*dim).ok()?)
    })
}
