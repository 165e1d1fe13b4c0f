//! What passes, what does not, and that equal meanings are equal bytes.

use super::*;

/// What JAX 0.10.2 sends to the CPU plugin for `jit(f)` on one device
/// (`jax._src.compiler.get_compile_options(…).SerializeAsString()`).
const JAX: &[u8] = include_bytes!("../../corpus/options/jax_0.10.2.bin");

/// With nothing that a plugin requires.
fn rebuild(untrusted: &[u8]) -> Result<Vec<u8>, Error> {
    super::rebuild(untrusted, &[])
}

/// A message of these fields.
fn message(values: &[(u32, Wire<'_>)]) -> Vec<u8> {
    let mut writer = Writer::default();
    for &(number, value) in values {
        writer.field(number, value);
    }
    writer.finish()
}

/// The fields of a message by number; the last of several.
fn by_number(message: &[u8]) -> BTreeMap<u32, Wire<'_>> {
    fields(message)
        .collect::<Result<_, _>>()
        .expect("well formed")
}

fn with_build(values: &[(u32, Wire<'_>)]) -> Vec<u8> {
    message(&[(3, Wire::Bytes(&message(values)))])
}

fn with_debug(values: &[(u32, Wire<'_>)]) -> Vec<u8> {
    with_build(&[(3, Wire::Bytes(&message(values)))])
}

fn with_override(name: &str, value: (u32, Wire<'_>)) -> Vec<u8> {
    let entry = message(&[
        (1, Wire::Bytes(name.as_bytes())),
        (2, Wire::Bytes(&message(&[value]))),
    ]);
    message(&[(7, Wire::Bytes(&entry))])
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle)
}

#[test]
fn the_table_is_sorted_and_has_no_paths() {
    assert!(ALLOWED.is_sorted_by(|a, b| a.0 < b.0));
    for (number, name, _) in ALLOWED {
        let reaches = [
            "_dir",
            "_file",
            "_path",
            "_to",
            "_re",
            "dump",
            "command_line",
        ];
        let bad = reaches.iter().any(|end| name.ends_with(end)) || name.contains("dump");
        assert!(!bad, "{number} {name}");
        assert!(
            FIXED.iter().all(|fixed| fixed.0 != *number),
            "{name} is fixed"
        );
    }
}

#[test]
fn no_options_are_portable_ones_for_one_device() {
    let rebuilt = rebuild(&[]).expect("nothing is wrong with nothing");
    let options = by_number(&rebuilt);
    assert_eq!(options.keys().copied().collect::<Vec<_>>(), [3, 4]);
    assert_eq!(options[&4], Wire::Varint(1));
    let build = by_number(options[&3].bytes().expect("a message"));
    assert_eq!(build.keys().copied().collect::<Vec<_>>(), [1, 4, 5, 23]);
}

#[test]
fn jax_options_keep_what_decides_the_code() {
    let rebuilt = rebuild(JAX).expect("JAX is well behaved");
    let options = by_number(&rebuilt);
    let build = by_number(options[&3].bytes().expect("a message"));
    assert!(!build.contains_key(&9), "no device assignment");
    assert!(!build.contains_key(&15), "no memory size");
    assert_eq!(build[&6], Wire::Varint(1), "use_spmd_partitioning");
    assert_eq!(build[&19], Wire::Varint(1), "use_shardy_partitioner");
    let before = by_number(JAX);
    let before = by_number(before[&3].bytes().expect("a message"));
    let before = by_number(before[&3].bytes().expect("a message"));
    let debug = by_number(build[&3].bytes().expect("a message"));
    for (number, value) in &debug {
        assert_eq!(
            before.get(number),
            Some(value),
            "field {number} is as JAX sent it"
        );
    }
    // xla_backend_optimization_level, xla_cpu_prefer_vector_width, xla_cpu_use_xnnpack,
    // xla_cpu_experimental_ynn_fusion_type, xla_multiheap_size_constraint_per_heap
    for number in [31, 308, 359, 422, 142] {
        assert!(debug.contains_key(&number), "field {number}");
    }
    assert!(!contains(&rebuilt, b"cuda_sdk_lib"), "no text passes");
    assert_eq!(
        rebuild(&rebuilt).as_ref(),
        Ok(&rebuilt),
        "rebuilding again changes nothing"
    );
}

#[test]
fn paths_never_pass() {
    // Every number that could be a text, then as a map's value and as an override.
    for number in 1..600 {
        let untrusted = with_debug(&[(number, Wire::Bytes(b"/tmp/x"))]);
        if let Ok(rebuilt) = rebuild(&untrusted) {
            assert!(!contains(&rebuilt, b"/tmp"), "debug option {number}");
        }
        let untrusted = with_build(&[(number, Wire::Bytes(b"/tmp/x"))]);
        if let Ok(rebuilt) = rebuild(&untrusted) {
            assert!(!contains(&rebuilt, b"/tmp"), "build option {number}");
        }
        let untrusted = message(&[(number, Wire::Bytes(b"/tmp/x"))]);
        if let Ok(rebuilt) = rebuild(&untrusted) {
            assert!(!contains(&rebuilt, b"/tmp"), "option {number}");
        }
    }
    let untrusted = with_debug(&[(109, Wire::Bytes(b"/tmp/x")), (31, Wire::Varint(2))]);
    let rebuilt = rebuild(&untrusted).expect("xla_dump_to is dropped, not refused");
    assert!(!contains(&rebuilt, b"/tmp"));
}

#[test]
fn overrides_are_refused_by_name_and_by_value() {
    let dump = with_override("xla_dump_to", (1, Wire::Bytes(b"x")));
    let refused = rebuild(&dump).expect_err("it writes files");
    assert_eq!(refused.code, invalid("").code);
    assert!(refused.message.contains("'xla_dump_to'"), "{refused}");
    let how = with_override("xla_dump_max_hlo_modules", (3, Wire::Varint(200)));
    let dropped = rebuild(&how).expect("it says how to dump, not where");
    assert!(!contains(&dropped, b"xla_dump"));
    let shown = rebuild(&with_override("a\n\u{1b}[31m", (2, Wire::Varint(1))));
    let shown = shown.expect_err("no such option").message;
    assert!(!shown.contains('\u{1b}'), "{shown}");
    let path = with_override(
        "xla_cpu_prefer_vector_width",
        (1, Wire::Bytes(b"/etc/passwd")),
    );
    rebuild(&path).expect_err("a path is no width");
    let dots = with_override("xla_cpu_prefer_vector_width", (1, Wire::Bytes(b"..")));
    rebuild(&dots).expect_err("nor is a directory");
    for value in [
        (1, Wire::Bytes(b"true")),
        (2, Wire::Varint(1)),
        (3, Wire::Varint(7)),
        (4, Wire::Fixed64(0.5f64.to_bits())),
    ] {
        let untrusted = with_override("xla_cpu_enable_fast_math", value);
        let rebuilt = rebuild(&untrusted).expect("a harmless override");
        assert!(contains(&rebuilt, b"xla_cpu_enable_fast_math"));
    }
}

#[test]
fn several_devices_are_refused() {
    for number in [4, 5] {
        let refused = rebuild(&with_build(&[(number, Wire::Varint(4))])).expect_err("four");
        assert_eq!(refused.code, unimplemented("").code);
        assert!(refused.message.contains('4'), "{refused}");
        rebuild(&with_build(&[(number, Wire::Varint(1))])).expect("one is one");
    }
    let tupled = rebuild(&message(&[(2, Wire::Varint(1))])).expect_err("tupled");
    assert_eq!(tupled.code, unimplemented("").code);
}

#[test]
fn equal_meanings_are_equal_bytes() {
    let entry = |name: &str| {
        let value = message(&[(2, Wire::Varint(1))]);
        message(&[(1, Wire::Bytes(name.as_bytes())), (2, Wire::Bytes(&value))])
    };
    let (fast, eigen) = (
        entry("xla_cpu_enable_fast_math"),
        entry("xla_cpu_multi_thread_eigen"),
    );
    let debug = message(&[(31, Wire::Varint(3)), (60, Wire::Varint(1))]);
    let turned = message(&[
        (60, Wire::Varint(1)),
        (31, Wire::Varint(1)),
        (31, Wire::Varint(3)),
    ]);
    let rebuilt = |debug: &[u8], first: &[u8], second: &[u8]| {
        let build = message(&[(19, Wire::Varint(1)), (3, Wire::Bytes(debug))]);
        let fields = [
            (7, Wire::Bytes(first)),
            (3, Wire::Bytes(&build)),
            (7, Wire::Bytes(second)),
        ];
        rebuild(&message(&fields)).expect("harmless")
    };
    assert_eq!(
        rebuilt(&debug, &fast, &eigen),
        rebuilt(&turned, &eigen, &fast)
    );
    // A flag that is off is a flag that was not sent.
    let off = rebuild(&with_build(&[(6, Wire::Varint(0))])).expect("harmless");
    assert_eq!(off, rebuild(&[]).expect("harmless"));
    // JAX's map of estimator options changes its order from process to process.
    let jax = by_number(JAX);
    let build = jax[&3].bytes().expect("a message");
    let build: Vec<_> = fields(build)
        .collect::<Result<_, _>>()
        .expect("well formed");
    let reversed: Vec<_> = build.into_iter().rev().collect();
    let reversed = with_build(&reversed);
    assert_eq!(rebuild(&reversed), rebuild(JAX));
}

#[test]
fn layouts_are_checked_and_kept() {
    let layout = |order: &[i64]| {
        let mut inner = Writer::default();
        inner.ints(1, order);
        let mut shape = Writer::default();
        shape.field(2, Wire::Varint(11));
        shape.ints(3, &[2, 3]);
        shape.field(5, Wire::Bytes(&inner.finish()));
        shape.finish()
    };
    let rebuilt = rebuild(&message(&[(1, Wire::Bytes(&layout(&[0, 1])))])).expect("a layout");
    let kept = by_number(&rebuilt)[&1].bytes().expect("a message").to_vec();
    assert_eq!(shape::rebuild(&kept), Ok(kept.clone()));
    for order in [&[0][..], &[0, 0], &[0, 2], &[-1, 0]] {
        rebuild(&with_build(&[(2, Wire::Bytes(&layout(order)))])).expect_err("no order");
    }
    let tuple = |inner: &[u8]| message(&[(2, Wire::Varint(13)), (4, Wire::Bytes(inner))]);
    let once = tuple(&layout(&[1, 0]));
    rebuild(&with_build(&[(2, Wire::Bytes(&once))])).expect("a tuple of arrays");
    rebuild(&with_build(&[(2, Wire::Bytes(&tuple(&once)))])).expect_err("a tuple of tuples");
}

#[test]
fn what_a_part_of_the_options_becomes_is_well_formed() {
    for len in 0..JAX.len() {
        if let Ok(rebuilt) = rebuild(&JAX[..len]) {
            by_number(&rebuilt);
        }
    }
}

#[test]
fn the_service_adds_options_that_count_more() {
    let before = rebuild(&with_override(
        "xla_gpu_enable_cub_radix_sort",
        (2, Wire::Varint(1)),
    ));
    let before = before.expect("harmless");
    let after = with_overrides(
        &before,
        &[
            ("xla_gpu_enable_cub_radix_sort", Override::Flag(false)),
            (
                "xla_gpu_per_fusion_autotune_cache_dir",
                Override::Text("/c"),
            ),
        ],
    );
    assert!(after.starts_with(&before));
    let entry = |name: &str, value| {
        let set = with_override(name, value);
        by_number(&set)[&7].bytes().expect("a message").to_vec()
    };
    let added: Vec<_> = fields(&after[before.len()..])
        .map(|field| field.expect("well formed"))
        .collect();
    let sort = entry("xla_gpu_enable_cub_radix_sort", (2, Wire::Varint(0)));
    let cache = entry(
        "xla_gpu_per_fusion_autotune_cache_dir",
        (1, Wire::Bytes(b"/c")),
    );
    assert_eq!(added, [(7, Wire::Bytes(&sort)), (7, Wire::Bytes(&cache))]);
}

#[test]
fn a_job_cannot_undo_what_a_plugin_requires() {
    const REQUIRED: &[(&str, bool)] = &[("xla_cpu_use_xnnpack", false)];
    let by_override = |value| with_override("xla_cpu_use_xnnpack", (2, Wire::Varint(value)));
    let off = rebuild(&by_override(0)).expect("harmless");
    assert_eq!(super::rebuild(&[], REQUIRED), Ok(off.clone()));
    assert_eq!(super::rebuild(&by_override(1), REQUIRED), Ok(off));
    // Overrides count more than debug options, so what those say is of no account.
    let by_debug = with_debug(&[(359, Wire::Varint(1))]);
    let rebuilt = super::rebuild(&by_debug, REQUIRED).expect("harmless");
    let entry = by_number(&rebuilt)[&7].bytes().expect("a message");
    assert_eq!(
        entry,
        by_number(&by_override(0))[&7].bytes().expect("a message")
    );
}
