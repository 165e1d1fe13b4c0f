//! Fuzz targets: every parser of this crate, held to what it promises on inputs made of `corpus/`.
//!
//! All are held to these: no panic, the same result twice, and memory bounded by the input. Each
//! target adds its own. `SALUS_FUZZ_COUNT` and `SALUS_SEED` make a run longer and different.

mod structured;

use salus_formats::proto::{Malformed, Wire, Writer, fields, push_ints};
use salus_formats::vet::Verdict;
use salus_formats::{hlo, mlir, options, vet};
use salus_fuzz::{Fuzz, peak_bytes};

/// Inputs of each target in a usual run: seconds for all of them together.
const COUNT: u64 = 20_000;

/// What any parser may hold beside what its input justifies: buffers, tables of its own, messages.
const FREE_BYTES: usize = 32 << 10;

fn corpus(folder: &str) -> String {
    format!("{}/corpus/{folder}", env!("CARGO_MANIFEST_DIR"))
}

/// What `parse` returns, which is the same twice; it holds at most `factor` bytes per byte of input.
fn held_to<T: PartialEq + std::fmt::Debug>(
    input: &[u8],
    factor: usize,
    parse: impl Fn(&[u8]) -> T,
) -> T {
    let (parsed, peak) = peak_bytes(|| parse(input));
    let allowed = FREE_BYTES + factor * input.len();
    assert!(
        peak <= allowed,
        "{peak} bytes were held for an input of {} bytes",
        input.len()
    );
    assert_eq!(parse(input), parsed, "two runs differ");
    parsed
}

fn all_fields(input: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, Malformed> {
    fields(input).collect()
}

/// Messages: what was read is what was written, and writing it again changes nothing.
#[test]
fn proto() {
    let fuzz = Fuzz::new("proto", COUNT)
        .seeds_of(corpus("options"))
        .seeds_of(corpus("hlo"))
        .mutation(structured::message);
    fuzz.run(|input| {
        // A field of two bytes is read as 32; growing a vector holds it twice.
        let Ok(read) = held_to(input, 64, |input| all_fields(input).map(|read| read.len()))
            .and_then(|_| all_fields(input))
        else {
            return false;
        };
        let mut writer = Writer::default();
        for &(number, value) in &read {
            writer.field(number, value);
        }
        let written = writer.finish();
        assert!(written.len() <= input.len(), "numbers grew");
        assert_eq!(all_fields(&written), Ok(read.clone()));
        for (number, value) in read {
            let mut ints = Vec::new();
            if push_ints(value, &mut ints).is_ok() {
                let mut packed = Writer::default();
                packed.ints(number, &ints);
                let packed = packed.finish();
                let again = all_fields(&packed).expect("just written");
                let mut back = Vec::new();
                push_ints(again[0].1, &mut back).expect("integers");
                assert_eq!(back, ints);
            }
        }
        true
    });
}

/// Boundaries of modules: known element types, aliases within the lists they point into.
#[test]
fn hlo_boundary() {
    let fuzz = Fuzz::new("hlo_boundary", COUNT)
        .seeds_of(corpus("hlo"))
        .mutation(structured::message)
        .mutation(structured::message);
    fuzz.run(|input| {
        let mut wrapped = Writer::default();
        wrapped.field(1, Wire::Bytes(input));
        let wrapped = wrapped.finish();
        let read = held_to(input, 96, |input| hlo::boundary("hlo", input));
        match (&read, hlo::boundary("hlo_with_config", &wrapped)) {
            (Ok(module), Ok(same)) => assert_eq!(*module, same),
            (Err(_), Err(_)) => {}
            (read, other) => panic!("{read:?} and {other:?}"),
        }
        let Ok(module) = read else { return false };
        for placed in module.parameters.iter().chain(&module.results) {
            let shape = &placed.shape;
            assert!(salus_wire::ElementType::from_pjrt(shape.element_type).is_some());
            let order = shape.minor_to_major.as_ref();
            assert!(order.is_none_or(|order| order.len() == shape.dims.len()));
        }
        for alias in &module.aliases {
            assert!((alias.output as usize) < module.results.len());
            assert!((alias.parameter as usize) < module.parameters.len());
        }
        true
    });
}

/// Vetting: a program whose sorts were made stable can be run, and making them stable again
/// changes nothing.
#[test]
fn vetting() {
    let fuzz = Fuzz::new("vetting", COUNT)
        .seeds_of(corpus("hlo"))
        .mutation(structured::message)
        .mutation(structured::message);
    fuzz.run(|input| {
        let verdict = held_to(input, 96, |input| vet::judge("hlo", input));
        let stable = held_to(input, 16, |input| vet::with_stable_sorts("hlo", input));
        let Ok(verdict) = verdict else { return false };
        let stable = stable.expect("what was judged can be read");
        assert_eq!(
            vet::judge("hlo", &stable),
            Ok(Verdict::Run),
            "it was {verdict:?}"
        );
        assert_eq!(vet::with_stable_sorts("hlo", &stable).as_ref(), Ok(&stable));
        true
    });
}

/// Options: what passes is a fixed point, is no longer than what was sent and what Salus adds, has
/// what the plugin requires, and no text of the job's that could name a file.
#[test]
fn options_rebuild() {
    const REQUIRED: &[(&str, bool)] = &[("xla_cpu_use_xnnpack", false)];
    let fuzz = Fuzz::new("options_rebuild", COUNT)
        .seeds_of(corpus("options"))
        .mutation(structured::message)
        .mutation(structured::message)
        .mutation(structured::with_override);
    fuzz.run(|input| {
        let rebuilt = held_to(input, 128, |input| options::rebuild(input, REQUIRED));
        let Ok(rebuilt) = rebuilt else { return false };
        assert_eq!(
            options::rebuild(&rebuilt, REQUIRED).as_ref(),
            Ok(&rebuilt),
            "rebuilding again changes something"
        );
        let unforced = options::rebuild(input, &[]).expect("the same without what is required");
        assert_eq!(
            options::rebuild(&unforced, REQUIRED).as_ref(),
            Ok(&rebuilt),
            "what is required depends on what was sent"
        );
        for (number, value) in all_fields(&rebuilt).expect("well formed") {
            match number {
                3 => ascending(value.bytes().expect("build options")),
                7 => no_paths(value.bytes().expect("an entry")),
                _ => {}
            }
        }
        true
    });
}

/// Build options, and the debug options in them, have each field once and by ascending number.
fn ascending(message: &[u8]) {
    let read = all_fields(message).expect("well formed");
    assert!(read.is_sorted_by(|a, b| a.0 < b.0));
    for (number, value) in read {
        if number == 3
            && let Wire::Bytes(debug) = value
        {
            ascending(debug);
        }
    }
}

/// An entry of `env_option_overrides`: a name of Salus' own table, and at most a plain word.
fn no_paths(entry: &[u8]) {
    for (number, value) in all_fields(entry).expect("well formed") {
        let bytes = value.bytes().expect("a name or a message");
        if number == 1 {
            assert!(bytes.starts_with(b"xla_"));
            continue;
        }
        for (_, value) in all_fields(bytes).expect("well formed") {
            if let Wire::Bytes(text) = value {
                assert!(!text.contains(&b'/') && !text.contains(&0));
            }
        }
    }
}

/// The canonical form: the same digest for the same bytes, and none for bytes that have more behind
/// them. That locations do not count is tried in `mlir/tests.rs`, which knows where they are.
#[test]
fn mlir_digest() {
    let fuzz = Fuzz::new("mlir_digest", COUNT)
        .seeds_of(corpus("mlir"))
        .mutation(structured::section)
        .mutation(structured::section);
    fuzz.run(|input| {
        // An entry of one byte is an element of several tables.
        let Some(_) = held_to(input, 256, mlir::digest) else {
            return false;
        };
        assert_eq!(mlir::digest(&[input, &[0]].concat()), None);
        assert_eq!(mlir::digest(&input[..input.len() - 1]), None);
        true
    });
}

/// Operands may name one tuple again and again: what they are is looked up, not copied.
#[test]
fn repeated_operands_take_no_memory() {
    const COUNT: usize = 2000;
    let mut shape = Writer::default();
    shape.field(2, Wire::Varint(13));
    let mut element = Writer::default();
    element.field(2, Wire::Varint(11));
    let element = element.finish();
    for _ in 0..COUNT {
        shape.field(4, Wire::Bytes(&element));
    }
    let mut tuple = Writer::default();
    tuple.field(2, Wire::Bytes(b"parameter"));
    tuple.field(3, Wire::Bytes(&shape.finish()));
    tuple.field(35, Wire::Varint(1));
    let mut call = Writer::default();
    call.field(2, Wire::Bytes(b"custom-call"));
    call.field(28, Wire::Bytes(b"TopK"));
    call.field(35, Wire::Varint(2));
    call.ints(36, &[1; COUNT]);
    let mut computation = Writer::default();
    computation.field(2, Wire::Bytes(&tuple.finish()));
    computation.field(2, Wire::Bytes(&call.finish()));
    let mut module = Writer::default();
    module.field(3, Wire::Bytes(&computation.finish()));
    let module = module.finish();
    let refused = held_to(&module, 96, |input| vet::judge("hlo", input));
    assert!(refused.is_err(), "a TopK of many operands");
}
