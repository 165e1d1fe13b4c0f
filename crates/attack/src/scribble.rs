//! Arrays that change while programs work on them.
//!
//! On a device in host memory an uploaded array is the job's own shared segment, which the job can
//! still write to. What a program reads twice may then differ: an index between its check and its
//! use, a key between two comparisons. The programs here sort, gather and scatter such arrays, also
//! in place (donated), while a thread writes into them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use salus_channel::{Mapping, Segment};
use salus_harness::{Client, Loss, Service};
use salus_wire::{DropArrays, ProgramId, Region, SegmentId, Shape};

use crate::Problem;
use crate::canary::Canary;
use crate::tally::Tally;

const TIME: Duration = Duration::from_secs(60);
const ELEMENTS: u64 = 1 << 16;
const BYTES: u64 = 4 * ELEMENTS;
const S32: u32 = 4;
/// The canary is asked after this many launches.
const CANARY_EVERY: u64 = 200;

/// Of two arrays of whole numbers: what is worked on, and indices or what goes along with it.
const CODES: &[(&str, &str)] = &[
    ("sort", "%0:2 = \"stablehlo.sort\"(%a, %b) ({
        ^bb0(%x: tensor<i32>, %y: tensor<i32>, %z: tensor<i32>, %w: tensor<i32>):
          %r = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %r : tensor<i1>
      }) {dimension = 0 : i64, is_stable = false} : (T, T) -> (T, T)
      return %0#0, %0#1 : T, T"),
    ("sort one", "%0 = \"stablehlo.sort\"(%a) ({
        ^bb0(%x: tensor<i32>, %y: tensor<i32>):
          %r = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %r : tensor<i1>
      }) {dimension = 0 : i64, is_stable = false} : (T) -> T
      return %0, %b : T, T"),
    ("gather", "%i = stablehlo.reshape %b : (T) -> tensor<65536x1xi32>
      %0 = \"stablehlo.gather\"(%a, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>, indices_are_sorted = true}
        : (T, tensor<65536x1xi32>) -> T
      return %0, %b : T, T"),
    ("scatter", "%i = stablehlo.reshape %b : (T) -> tensor<65536x1xi32>
      %0 = \"stablehlo.scatter\"(%a, %i, %b) ({
        ^bb0(%x: tensor<i32>, %y: tensor<i32>):
          %r = stablehlo.add %x, %y : tensor<i32>
          stablehlo.return %r : tensor<i32>
      }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}
        : (T, tensor<65536x1xi32>, T) -> T
      return %0, %b : T, T"),
    ("dynamic slice", "%s = stablehlo.slice %b [0:1:1] : (T) -> tensor<1xi32>
      %i = stablehlo.reshape %s : (tensor<1xi32>) -> tensor<i32>
      %u = stablehlo.slice %b [0:4096:1] : (T) -> tensor<4096xi32>
      %0 = stablehlo.dynamic_update_slice %a, %u, %i : (T, tensor<4096xi32>, tensor<i32>) -> T
      return %0, %b : T, T"),
    ("divide", "%0 = stablehlo.divide %a, %b : T\n return %0, %b : T, T"),
];

fn code(body: &str, donated: bool) -> String {
    let attribute = match donated {
        true => " {tf.aliasing_output = 0 : i32}",
        false => "",
    };
    let text = format!(
        "module @scribble {{ func.func public @main(%a: T{attribute}, %b: T) -> (T, T) {{ {body} }} }}"
    );
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut out = String::new();
    let mut last = ' ';
    let mut letters = text.chars().peekable();
    // `T` stands for the type of all arrays, where it is a word of its own.
    while let Some(letter) = letters.next() {
        let alone = !is_word(last) && !letters.peek().copied().is_some_and(is_word);
        match letter {
            'T' if alone => out += "tensor<65536xi32>",
            other => out.push(other),
        }
        last = letter;
    }
    out
}

pub(crate) fn attack(service: &Service, seed: u64, seconds: u64) -> Result<Tally, Problem> {
    let mut tally = Tally::new("scribble");
    let restarts = service.restarts()?;
    let stop = Arc::new(AtomicBool::new(false));
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Rng::with_seed(seed);
    let mut canary = Canary::new(service)?;
    while Instant::now() < end && tally.held() {
        let (name, body) = CODES[random.usize(..CODES.len())];
        let donated = random.bool();
        match launches(service, &mut random, body, donated, &stop, &mut tally) {
            Ok(()) => {}
            Err(loss) => {
                service.wait_until_up()?;
                tally.finding(format!(
                    "scribble --seed {seed}: {name}, donated {donated}: {loss}\n{}",
                    service.log_tail()
                ));
                break;
            }
        }
        if !matches!(canary.sings(), Ok(true)) {
            tally.finding(format!(
                "scribble --seed {seed}: {name}, donated {donated}: the canary no longer sings"
            ));
        }
    }
    drop(canary);
    tally.add("deaths of the device host", service.restarts()? - restarts);
    Ok(tally)
}

/// Launches of one program whose arguments another thread keeps changing.
pub(crate) fn launches(
    service: &Service,
    random: &mut Rng,
    body: &str,
    donated: bool,
    stop: &AtomicBool,
    tally: &mut Tally,
) -> Result<(), Loss> {
    let mut session = Client::open(service.socket(), "scribble")?;
    let made = session.compile("mlir", code(body, donated).as_bytes(), &[], TIME)?;
    let (program, _) = made.map_err(|error| Loss::Refused(error.message))?;
    let (segment, memory) = session.segment(2 * BYTES)?;
    let (memory, _descriptor) = Segment::into_parts(memory);
    let done = AtomicBool::new(false);
    let writer_seed = random.u64(..);
    std::thread::scope(|scope| {
        scope.spawn(|| scribble(&memory, writer_seed, || done.load(Ordering::Relaxed)));
        let ran = (0..CANARY_EVERY).try_for_each(|_| {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            tally.count("launches");
            launch(&mut session, program, segment)
        });
        done.store(true, Ordering::Relaxed);
        ran
    })
}

/// Random programs of the siege.
pub(crate) fn any_code(random: &mut Rng) -> (&'static str, bool) {
    (CODES[random.usize(..CODES.len())].1, random.bool())
}

fn scribble(memory: &Mapping, seed: u64, done: impl Fn() -> bool) {
    let mut random = Rng::with_seed(seed);
    while !done() {
        for _ in 0..1000 {
            let at = 4 * random.u64(..2 * ELEMENTS);
            let number: i32 = match random.u32(..6) {
                0 => i32::MIN,
                1 => i32::MAX,
                2 => -1,
                _ => random.i32(..70_000),
            };
            memory.copy_in(at, &number.to_le_bytes());
        }
    }
}

fn launch(session: &mut Client, program: ProgramId, segment: SegmentId) -> Result<(), Loss> {
    let shape = Shape {
        element_type: S32,
        dims: vec![ELEMENTS as i64],
        minor_to_major: None,
    };
    let arguments = [0, 1].map(|place| {
        let data = Region {
            segment,
            offset: place * BYTES,
            length: BYTES,
        };
        session.upload(shape.clone(), data)
    });
    let (operation, first) = session.launch(program, &arguments, 2);
    let [a, b] = arguments;
    session.push(DropArrays {
        arrays: vec![a, b, first, first.plus(1)],
    });
    // Whether it failed is not of interest: what it computed on is garbage.
    session.wait_for(operation, Instant::now() + TIME)?;
    Ok(())
}
