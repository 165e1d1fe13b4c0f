//! Compares every transcribed struct with the header that vendors compile against.
//!
//! A C program over the header in the `xla-cpu-pjrt` wheel prints sizes and offsets; `sys::ALL`
//! must say the same. What handlers of custom calls see is compared with the header in the jaxlib wheel.
//! The Layouts, FFI and Profiler extensions are in neither: their sizes are constants here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use salus_pjrt::sys::{ALL, Field};

const HEADER: &str = "xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h";
/// XLA's own FFI, whose header includes nothing of PJRT.
const FFI_HEADER: &str = "jaxlib/include/xla/ffi/api/c_api.h";

/// Files of `sys` whose structs must all be in `ALL`.
const SOURCES: &[&str] = &[
    include_str!("../src/sys/base.rs"),
    include_str!("../src/sys/buffer.rs"),
    include_str!("../src/sys/client.rs"),
    include_str!("../src/sys/device.rs"),
    include_str!("../src/sys/error.rs"),
    include_str!("../src/sys/event.rs"),
    include_str!("../src/sys/executable.rs"),
    include_str!("../src/sys/ffi.rs"),
    include_str!("../src/sys/layouts.rs"),
    include_str!("../src/sys/profiler.rs"),
    include_str!("../src/sys/topology.rs"),
    include_str!("../src/sys/transfer.rs"),
];

/// Ends of the extensions' arguments, taken from their own headers.
const EXTENSIONS: &[(&str, usize)] = &[
    ("PJRT_FFI_Type_Info", 24),
    ("PJRT_FFI_Type_Register_Args", 48),
    ("PJRT_FFI_UserData", 16),
    ("PJRT_FFI_UserData_Add_Args", 40),
    ("PJRT_FFI_Register_Handler_Args", 52),
    ("PJRT_Layouts_MemoryLayout_Destroy_Args", 24),
    ("PJRT_Layouts_MemoryLayout_Serialize_Args", 56),
    ("PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args", 32),
    ("PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args", 56),
    ("PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args", 56),
    ("PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args", 40),
    ("PLUGIN_Profiler_Error_Destroy_Args", 24),
    ("PLUGIN_Profiler_Error_Message_Args", 40),
    ("PLUGIN_Profiler_Error_GetCode_Args", 28),
    ("PLUGIN_Profiler_Create_Args", 32),
    ("PLUGIN_Profiler_Destroy_Args", 16),
    ("PLUGIN_Profiler_Start_Args", 16),
    ("PLUGIN_Profiler_Stop_Args", 16),
    ("PLUGIN_Profiler_CollectData_Args", 32),
    ("PLUGIN_Profiler_Api", 80),
];

#[test]
fn every_struct_is_the_headers() {
    let header = header();
    let theirs = measure(&header);
    let mut wrong = String::new();
    for layout in ALL.iter().filter(|layout| !is_of_an_extension(layout.name)) {
        let end = theirs.get(&format!("{} end", layout.name)).copied();
        if end != Some((0, layout.end)) {
            writeln!(
                wrong,
                "{}: ends at {}, theirs {end:?}",
                layout.name, layout.end
            )
            .expect("strings grow");
        }
        for field in layout.fields {
            let key = format!("{} {}", layout.name, c_name(layout.name, field));
            let place = theirs.get(&key).copied();
            if place != Some((field.offset, field.size)) {
                writeln!(
                    wrong,
                    "{key}: at {} of {}, theirs {place:?}",
                    field.offset, field.size
                )
                .expect("strings grow");
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "sys differs from {}:\n{wrong}",
        header.display()
    );
}

#[test]
fn no_struct_is_forgotten() {
    let listed: BTreeSet<&str> = ALL.iter().map(|layout| layout.name).collect();
    let header = std::fs::read_to_string(header()).expect("the header is readable");
    let theirs = header
        .split("PJRT_DEFINE_STRUCT_TRAITS(")
        .skip(2) // what stands before the macro's definition, and the definition
        .filter_map(|rest| rest.split(',').next().map(str::trim));
    let ours = SOURCES.iter().flat_map(|source| {
        let declared = source.split("args! { ").skip(1);
        declared
            .chain(source.split("plain! { ").skip(1))
            .filter_map(|rest| rest.split_whitespace().next())
    });
    let missing: Vec<&str> = theirs
        .chain(ours)
        .filter(|name| !listed.contains(name))
        .collect();
    assert!(missing.is_empty(), "not in sys::ALL: {missing:?}");
    assert!(listed.len() > 130, "the list is suspiciously short");
}

#[test]
fn the_extensions_have_their_sizes() {
    let ours: Vec<(&str, usize)> = ALL
        .iter()
        .filter(|layout| is_of_an_extension(layout.name))
        .map(|layout| (layout.name, layout.end))
        .collect();
    assert_eq!(ours.len(), EXTENSIONS.len());
    for expected in EXTENSIONS {
        assert!(
            ours.contains(expected),
            "{expected:?} is not among {ours:?}"
        );
    }
}

fn is_of_an_extension(name: &str) -> bool {
    ["PJRT_Layouts_", "PJRT_FFI_", "PLUGIN_Profiler_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// A field's name in C. Anonymous unions have none: their first member stands for them.
fn c_name(of: &str, field: &Field) -> &'static str {
    match (of, field.name) {
        ("PJRT_NamedValue", "value") => "string_value",
        ("PJRT_Buffer_MemoryLayout", "value") => "tiled",
        (_, name) => name.trim_start_matches("r#"),
    }
}

/// Offset and size of every field by "struct field", and every struct's end by "struct end".
fn measure(header: &Path) -> BTreeMap<String, (usize, usize)> {
    let dir = std::env::temp_dir().join(format!("salus-header-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
    let (source, program) = (dir.join("layout.c"), dir.join("layout"));
    std::fs::write(&source, c_program()).expect("the C program can be written");
    let compiled = Command::new("cc")
        .arg("-I")
        .arg(header.parent().expect("a file has a directory"))
        .arg("-I")
        .arg(found(FFI_HEADER).parent().expect("a file has a directory"))
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output()
        .expect("`cc` can be started: install a C compiler");
    let complaint = String::from_utf8_lossy(&compiled.stderr).into_owned();
    assert!(compiled.status.success(), "cc failed:\n{complaint}");
    let printed = Command::new(&program).output().expect("the program runs");
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
    String::from_utf8(printed.stdout)
        .expect("the program prints ASCII")
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |word: &str| word.parse().expect("the program prints numbers");
            let key = format!("{} {}", words[0], words[1]);
            (key, (number(words[2]), number(words[3])))
        })
        .collect()
}

fn c_program() -> String {
    let mut c = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include \"pjrt_c_api.h\"\n\
         #include \"c_api.h\"\n\
         #define AT(s, f, size) \\\n\
         printf(#s \" \" #f \" %zu %zu\\n\", offsetof(s, f), (size_t)(size))\n\
         int main(void) {\n",
    );
    for layout in ALL.iter().filter(|layout| !is_of_an_extension(layout.name)) {
        let name = layout.name;
        for field in layout.fields {
            let c_field = c_name(name, field);
            // The size of an anonymous union is not that of its first member.
            let size = match (name, field.name) {
                ("PJRT_NamedValue", "value") => "8".to_owned(),
                ("PJRT_Buffer_MemoryLayout", "value") => {
                    "offsetof(PJRT_Buffer_MemoryLayout, type) - \
                     offsetof(PJRT_Buffer_MemoryLayout, tiled)"
                        .to_owned()
                }
                _ => format!("sizeof((({name}*)0)->{c_field})"),
            };
            writeln!(c, "AT({name}, {c_field}, {size});").expect("strings grow");
        }
        let last = c_name(name, layout.fields.last().expect("structs have fields"));
        // Three callback structs have no NAME_STRUCT_SIZE: they do not start with a size.
        let end = if layout.fields[0].name == "struct_size" {
            format!("{name}_STRUCT_SIZE")
        } else {
            format!("offsetof({name}, {last}) + sizeof((({name}*)0)->{last})")
        };
        writeln!(c, "printf(\"{name} end 0 %zu\\n\", (size_t)({end}));").expect("strings grow");
    }
    c.push_str("return 0; }\n");
    c
}

fn header() -> PathBuf {
    found(HEADER)
}

fn found(header: &str) -> PathBuf {
    let candidates = site_packages();
    let found = candidates
        .iter()
        .map(|directory| directory.join(header))
        .find(|header| header.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "the header {header} is in none of {candidates:?}: run `make venv`, which installs \
             the wheels, or set SALUS_TEST_SITE_PACKAGES to a site-packages directory"
        )
    })
}

fn site_packages() -> Vec<PathBuf> {
    if let Some(directory) = std::env::var_os("SALUS_TEST_SITE_PACKAGES") {
        return vec![directory.into()];
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let activated = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    activated
        .into_iter()
        .chain([repository.join(".venv")])
        .flat_map(|venv| {
            let pythons = std::fs::read_dir(venv.join("lib")).into_iter().flatten();
            pythons
                .flatten()
                .map(|python| python.path().join("site-packages"))
        })
        .collect()
}
