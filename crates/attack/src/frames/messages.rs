//! Random messages, valid in form: ids, regions and shapes that are likely to be in use, or any.

use std::num::{NonZeroU32, NonZeroU64};
use std::ops::{Deref, DerefMut};

use fastrand::Rng;
use salus_wire::{
    ArrayId, AskProfile, AskUsage, Await, Command, Compile, CopyArray, DropArrays, DropProgram,
    Form, Hello, JobSettings, Launch, NonZeroDuration, OperationId, Priority, ProgramId, ReadArray,
    Region, Request, RequestId, SegmentGone, SegmentId, Shape, ToService, Upload, Weight, Work,
    version,
};

use super::SEGMENT_BYTES;

/// Random draws, and how often they are of what cannot be right. Sessions that are wrong all the time
/// end at their first frame; those that seldom are get far.
pub(super) struct Source {
    pub(super) random: Rng,
    pub(super) one_in: u32,
}

impl Source {
    pub(super) fn is_wild(&mut self) -> bool {
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

pub(super) const CODES: &[&str] = &[
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

pub(super) fn code_offset(code: &str) -> u64 {
    let place = CODES.iter().position(|one| *one == code).unwrap_or(0);
    4096 * (1 + place as u64)
}

pub(super) fn compile(program: ProgramId, which: usize) -> ToService {
    let code = CODES[which];
    ToService::from(Compile {
        program,
        format: "mlir".into(),
        code: Region {
            segment: SegmentId(1),
            offset: code_offset(code),
            length: code.len() as u64,
        },
        options: Vec::new(),
    })
}

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
            segment: SegmentId(1),
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
        segment: SegmentId(if random.u32(..8) == 0 {
            random.u32(..)
        } else {
            random.u32(1..3)
        }),
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

fn arrays(random: &mut Source) -> Vec<ArrayId> {
    let count = if random.u32(..10) == 0 && random.is_wild() {
        70_000
    } else {
        random.usize(..4)
    };
    (0..count).map(|_| ArrayId(id(random))).collect()
}

// tidy: long, because it is one list of cases, one for each message.
pub(super) fn message(random: &mut Source) -> ToService {
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
            settings: JobSettings {
                memory_max: NonZeroU64::new(id(random)),
                weight: Weight(NonZeroU32::MIN.saturating_add(random.u32(..))),
                priority: Priority::High,
                deadline: NonZeroDuration::from_nanos(id(random)),
                work: NonZeroU64::new(id(random)).map(Work::Iterations),
            },
            run: id(random),
            device: "cpu:".repeat(random.usize(..300)),
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
            id: SegmentId(if random.is_wild() {
                random.u32(..)
            } else {
                random.u32(2..40)
            }),
            bytes: match (random.is_wild(), random.bool()) {
                (true, true) => random.u64(..),
                (true, false) => 0,
                _ => SEGMENT_BYTES,
            },
        }),
        3 => ToService::from(SegmentGone {
            id: SegmentId(if random.is_wild() {
                1
            } else {
                random.u32(2..40)
            }),
        }),
        4..7 => ToService::from(Upload {
            array: ArrayId(id(random)),
            shape: shape(random),
            memory: if random.is_wild() { random.u32(..) } else { 0 },
            data: region(random),
        }),
        7 => match !random.is_wild() {
            true => compile(ProgramId(id(random)), random.usize(..CODES.len())),
            false => ToService::from(Compile {
                program: ProgramId(id(random)),
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
        8..11 => ToService::from(Launch {
            operation: OperationId(id(random)),
            program: ProgramId(id(random)),
            first_output: ArrayId(id(random)),
            arguments: arrays(random),
            keep: {
                let length = random.usize(..2);
                (0..length).map(|_| random.u32(..3)).collect()
            },
        }),
        11 => ToService::from(CopyArray {
            operation: OperationId(id(random)),
            array: ArrayId(id(random)),
            copy: ArrayId(id(random)),
            memory: random.u32(..4),
        }),
        12..14 => ToService::from(ReadArray {
            request: RequestId(id(random)),
            array: ArrayId(id(random)),
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
            operation: OperationId(id(random)),
        }),
        15 => ToService::from(DropArrays {
            arrays: arrays(random),
        }),
        16 => ToService::from(DropProgram {
            program: ProgramId(id(random)),
        }),
        _ => match random.bool() {
            true => ToService::from(AskUsage {
                request: RequestId(id(random)),
            }),
            false => ToService::from(AskProfile {
                request: RequestId(id(random)),
                since_ns: id(random),
            }),
        },
    }
}
