//! The box, from inside: processes that put themselves into it and then try to get out.
//!
//! There is no way out of a box, so each case is a process of its own: this program, started with a
//! word in its environment. It says on its standard output what the kernel has given it, whether it
//! can still do its work, and how every attempt to escape went.
#![expect(clippy::print_stdout, reason = "that is how the processes report")]

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Resource, getrlimit};
use salus_daemon::config::{Config, HostSettings};
use salus_daemon::paths::Places;
use salus_daemon::sandbox::{self, GRAVE, Process, Strength};
use salus_device::{Device, PjrtConfig, PjrtDevice, Source, discover};
use salus_formats::options;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use serde_json::{Value, json};

const CASE: &str = "SALUS_TEST_BOX";
const OUTSIDE: &str = "SALUS_TEST_OUTSIDE";
const CACHE: &str = "SALUS_TEST_CACHE";

const PROGRAM: &str = "module @boxed { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %r = stablehlo.add %a, %a : tensor<4xf32>
    return %r : tensor<4xf32> } }";

fn main() -> ExitCode {
    if let Ok(case) = std::env::var(CASE) {
        let outside = PathBuf::from(std::env::var_os(OUTSIDE).expect("set by the test"));
        println!("{}", inside(&case, &outside));
        return ExitCode::SUCCESS;
    }
    let cases: [(&str, fn()); 8] = [
        (
            "what is tried is possible outside of a box",
            all_is_possible_outside,
        ),
        (
            "a compiler compiles and reaches nothing",
            compilers_reach_nothing,
        ),
        (
            "a device host loads, runs, keeps and reaches nothing else",
            device_hosts,
        ),
        (
            "threads of the plugin are in the box, too",
            threads_are_in_the_box,
        ),
        (
            "without Landlock a compiler still writes no file, and it is said",
            without_landlock,
        ),
        (
            "without seccomp files are still closed, and it is said",
            without_seccomp,
        ),
        (
            "without namespaces nothing else is lost, and it is said",
            without_namespaces,
        ),
        (
            "other devices give up only what no plugin needs",
            other_devices,
        ),
    ];
    // A panic ends the process with an error, which is what `cargo test` looks at.
    for (name, case) in cases {
        case();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

// ------------------------------------------------------------------------------------- cases

fn all_is_possible_outside() {
    let answer = run("free");
    for escape in escapes(&answer) {
        assert_eq!(escape["refused"], false, "{escape}");
    }
}

fn compilers_reach_nothing() {
    let answer = run("compiler");
    assert_eq!(answer["works"], "compiled", "{answer:#}");
    assert_eq!(answer["core"], 0);
    assert_eq!(answer["descriptors"], 256);
    assert_refused(&answer);
}

fn device_hosts() {
    let answer = run("device-host");
    assert_eq!(answer["works"], "loaded, LAPACK, kept", "{answer:#}");
    assert_eq!(answer["core"], 0);
    assert_refused(&answer);
}

fn threads_are_in_the_box() {
    assert_refused(&run("thread"));
}

fn other_devices() {
    let answer = run("light");
    for escape in escapes(&answer) {
        let grave = escape["what"] == GRAVE && is_held(&answer, "system calls");
        assert_eq!(escape["refused"], grave, "{escape}");
    }
}

/// Of an older kernel, as far as a process can tell.
fn without_landlock() {
    let answer = run("without-landlock");
    assert!(!is_held(&answer, "files"), "{answer:#}");
    assert_eq!(answer["works"], "compiled", "{answer:#}");
    assert_refused(&answer);
    for what in [
        "write a file",
        "make a file",
        "make a directory",
        "rename a file",
        "remove a file",
    ] {
        assert!(is_refused(&answer, what), "{what}\n{answer:#}");
    }
    assert!(!is_refused(&answer, "read a file"), "{answer:#}");
}

fn without_seccomp() {
    let answer = run("without-seccomp");
    assert!(!is_held(&answer, "system calls"), "{answer:#}");
    assert_eq!(answer["works"], "compiled", "{answer:#}");
    assert_refused(&answer);
    assert!(!is_refused(&answer, GRAVE), "{answer:#}");
}

fn without_namespaces() {
    let answer = run("without-namespaces");
    assert!(!is_held(&answer, "network"), "{answer:#}");
    assert_eq!(answer["works"], "compiled", "{answer:#}");
    assert_refused(&answer);
}

fn is_refused(answer: &Value, what: &str) -> bool {
    let escape = escapes(answer).iter().find(|one| one["what"] == what);
    escape.expect("it is tried")["refused"] == true
}

fn escapes(answer: &Value) -> &[Value] {
    let escapes = answer["escapes"].as_array().expect("a list");
    assert!(escapes.len() > 15, "{answer:#}");
    escapes
}

/// All that the kernel has the means for; the test says which those are.
fn assert_refused(answer: &Value) {
    for escape in escapes(answer) {
        let (what, by) = (escape["what"].as_str(), escape["by"].as_str());
        let (what, by) = (what.expect("a text"), by.expect("a text"));
        if !is_held(answer, by) {
            println!("not exercised, for want of `{by}`: {what}");
        } else {
            assert_eq!(escape["refused"], true, "{escape}\n{answer:#}");
        }
    }
    println!("mechanisms: {}", answer["mechanisms"]);
}

fn is_held(answer: &Value, name: &str) -> bool {
    let mechanisms = answer["mechanisms"].as_array().expect("a list");
    let found = mechanisms.iter().find(|one| one["name"] == name);
    found.expect("every box has it")["held"] == true
}

/// Starts this program again, as the process of a case.
fn run(case: &str) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let (outside, cache) = (dir.path().join("outside"), dir.path().join("a/cache"));
    fs::create_dir(&outside).expect("made");
    for file in ["secret", "removable"] {
        fs::write(outside.join(file), "of somebody else").expect("written");
    }
    let _listener = UnixListener::bind(outside.join("listens")).expect("listens");
    let child = Command::new("/proc/self/exe")
        .env(CASE, case)
        .env(OUTSIDE, &outside)
        .env(CACHE, &cache)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{case}: {}\n{text}", output.status);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{case}: {e}\n{text}"))
}

// ------------------------------------------------------------------------------------- inside

fn inside(case: &str, outside: &Path) -> Value {
    let settings = settings();
    let confine = |process| sandbox::confine(process, Strength::Full, &settings);
    let (held, works) = match case {
        "free" => (sandbox::Held::default(), String::new()),
        "compiler" | "without-landlock" | "without-seccomp" | "without-namespaces" => {
            match case {
                "without-landlock" => forget(libc::SYS_landlock_create_ruleset),
                "without-seccomp" => forget(libc::SYS_seccomp),
                "without-namespaces" => forget(libc::SYS_unshare),
                _ => {}
            }
            PjrtDevice::open_library(&settings.plugin).expect("the plugin opens");
            let held = confine(Process::Compiler);
            (held, compile(&device(&settings)))
        }
        "device-host" => {
            PjrtDevice::open_library(&settings.plugin).expect("the plugin opens");
            let held = confine(Process::DeviceHost);
            (held, load_and_keep(&settings))
        }
        "thread" => (confine(Process::Compiler), String::new()),
        "light" => {
            let light = sandbox::confine(Process::Compiler, Strength::Light, &settings);
            (light, String::new())
        }
        _ => panic!("no case is called {case}"),
    };
    let tried = match case {
        "thread" => std::thread::scope(|scope| {
            let thread = scope.spawn(|| sandbox::escapes(outside));
            thread.join().expect("no panic")
        }),
        _ => sandbox::escapes(outside),
    };
    let escapes: Vec<Value> = tried
        .iter()
        .map(|escape| {
            let result = format!("{:?}", escape.result);
            json!({ "what": escape.what, "by": escape.by, "refused": escape.is_refused(), "result": result })
        })
        .collect();
    let mechanisms: Vec<Value> = held
        .mechanisms
        .iter()
        .map(|one| json!({ "name": one.name, "held": one.held.is_ok(), "found": format!("{:?}", one.held) }))
        .collect();
    json!({
        "works": works,
        "mechanisms": mechanisms,
        "escapes": escapes,
        "core": getrlimit(Resource::Core).maximum,
        "descriptors": getrlimit(Resource::Nofile).maximum,
    })
}

/// Has the kernel know nothing of a system call, for this process.
fn forget(call: i64) {
    let filter = SeccompFilter::new(
        [(call, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        TargetArch::try_from(std::env::consts::ARCH).expect("a known one"),
    );
    let program = BpfProgram::try_from(filter.expect("well formed")).expect("well formed");
    seccompiler::apply_filter(&program).expect("this test needs seccomp");
}

fn settings() -> HostSettings {
    let places = match std::env::var_os("SALUS_TEST_SITE_PACKAGES") {
        Some(directory) => vec![directory.into()],
        None => {
            let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
            let pythons = fs::read_dir(venv).into_iter().flatten().flatten();
            pythons
                .map(|python| python.path().join("site-packages"))
                .chain(discover::site_packages_candidates())
                .collect()
        }
    };
    let plugin = discover::find_plugin("cpu", &places).unwrap_or_else(|error| {
        panic!("{error}\nRun `make venv`, or set SALUS_TEST_SITE_PACKAGES.")
    });
    let lapack = discover::find_lapack(&plugin, &places).expect("SciPy is beside the plugin");
    let mut config = Config::defaults(&Places::of_this_process());
    config.host.cache.directory = PathBuf::from(std::env::var_os(CACHE).expect("set by the test"));
    config.host.device.lapack = Some(lapack);
    HostSettings {
        plugin,
        ..config.host
    }
}

fn device(settings: &HostSettings) -> PjrtDevice {
    let config = PjrtConfig {
        plugin: settings.plugin.clone(),
        options: Vec::new(),
        capacity_bytes: None,
        lanes: 1,
        lapack: settings.device.lapack.clone(),
        ..PjrtConfig::default()
    };
    PjrtDevice::open(&config).expect("the device opens in the box")
}

fn compile(device: &PjrtDevice) -> String {
    let options = compile_options();
    let source = Source {
        format: "mlir",
        code: PROGRAM.as_bytes(),
        options: &options,
    };
    let compiled = device.compile(&source).expect("it compiles in the box");
    assert!(!compiled.executable.is_empty());
    "compiled".into()
}

/// What a device host does beside what `compile` does: a program compiled before is loaded, LAPACK is
/// opened late, and a file is kept, found and removed in the cache.
fn load_and_keep(settings: &HostSettings) -> String {
    let device = device(settings);
    let options = compile_options();
    let source = Source {
        format: "mlir",
        code: PROGRAM.as_bytes(),
        options: &options,
    };
    let compiled = device.compile(&source).expect("it compiles");
    device.load(&compiled).expect("it is loaded in the box");
    let lapack = settings.device.lapack.as_deref().expect("found above");
    salus_device::check_lapack(lapack).expect("LAPACK opens in the box");
    let (part, whole) = (
        settings.cache.directory.join("a.part"),
        settings.cache.directory.join("a"),
    );
    let mut file = fs::File::create(&part).expect("a file in the cache");
    file.write_all(b"kept").expect("written");
    fs::rename(&part, &whole).expect("renamed");
    assert_eq!(fs::read(&whole).expect("read"), b"kept");
    fs::remove_file(&whole).expect("removed");
    assert_eq!(
        fs::read_dir(&settings.cache.directory)
            .expect("listed")
            .count(),
        0
    );
    "loaded, LAPACK, kept".into()
}

fn compile_options() -> Vec<u8> {
    options::rebuild(&[], &[]).expect("no options are options")
}
