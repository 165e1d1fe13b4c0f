//! The commands as a person uses them, on a device that computes nothing.
//!
//! Nothing sleeps: commands return when they are done, and processes are waited for by the kernel's
//! word on them, with a deadline.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use salus_harness::{Keeper, LineReader, TempDir, Watch};
use salus_wire::env;
use serde_json::Value;

mod devices;
mod trace;

/// What takes longer hangs.
const PROMPT: Duration = Duration::from_secs(30);

/// A user's surroundings, with nothing in them but a configuration.
struct Home {
    dir: TempDir,
}

impl Home {
    fn new() -> Self {
        let keeper = Keeper::new(env!("CARGO_BIN_EXE_salus"));
        let dir = TempDir::new(&keeper, "salus-cli-").expect("a directory can be made");
        dir.file("lib.so", "").expect("written");
        let home = Self { dir };
        home.configure("schema_version = 1\n[device]\ndevice = \"scripted\"\n");
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn configure(&self, text: &str) {
        self.dir.file("salus.toml", text).expect("written");
    }

    fn socket(&self) -> PathBuf {
        self.path("salus/salus.sock")
    }

    fn salus(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_salus"));
        command
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .env("TMPDIR", self.dir.path())
            .env(env::CONFIG, self.path("salus.toml"))
            .env(env::CACHE_DIR, self.path("cache"))
            .env(env::LIBRARY, self.path("lib.so"))
            .env_remove(env::SOCKET)
            .env_remove(env::NAME)
            .env_remove(env::DEVICE)
            .env_remove(env::IDLE_SECONDS)
            .env_remove("PYTHONPATH")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.salus(arguments).output().expect("it can be started"))
    }

    fn report(&self) -> Value {
        let done = self.run(&["ps", "-o", "json"]);
        assert_eq!(done.code, 0, "{}", done.err);
        serde_json::from_str(&done.out).expect("it is JSON")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.salus(&["stop"]).output();
    }
}

struct Done {
    code: i32,
    out: String,
    err: String,
}

impl Done {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("it is text");
        Self {
            code: output.status.code().expect("no signal ended it"),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// A process by its number in a report.
fn watch(pid: &Value) -> Watch {
    let pid = pid.as_u64().and_then(|pid| u32::try_from(pid).ok());
    Watch::of(pid.expect("it is a pid")).expect("it runs")
}

#[track_caller]
fn wait_for_end(process: &Watch) {
    assert!(process.ended_within(PROMPT), "it still runs");
}

#[test]
fn without_a_service_ps_stop_and_trace_say_no() {
    let home = Home::new();
    for command in ["ps", "stop", "trace"] {
        let done = home.run(&[command]);
        assert_eq!(done.code, 1);
        assert_eq!(done.out, "");
        assert!(done.err.starts_with("error: no service runs at `"));
        let hint = "\n\nhint: `salus serve` starts one, and so does `salus run -- CMD`\n";
        assert!(done.err.ends_with(hint), "{}", done.err);
    }
}

#[test]
fn a_typing_error_in_the_configuration_stops_the_start() {
    let home = Home::new();
    home.configure("schema_version = 1\n[device]\nlaens = 2\n");
    let done = home.run(&["serve"]);
    assert_eq!(done.code, 2);
    let file = home.path("salus.toml");
    assert_eq!(
        done.err,
        format!(
            "error: {}, line 3: `laens` is not a key of [device]\n\nhint: did you mean `lanes`?\n",
            file.display()
        )
    );
}

#[test]
fn a_device_that_is_not_there_is_an_error_with_its_reason() {
    let home = Home::new();
    let done = home.run(&["serve", "--device", "/nonexistent/plugin.so"]);
    assert_eq!(done.code, 2);
    assert!(
        done.err.contains("no plugin at /nonexistent/plugin.so"),
        "{}",
        done.err
    );
    assert!(!home.socket().exists());
}

#[test]
fn a_file_that_is_no_plugin_ends_the_service_and_is_named() {
    let home = Home::new();
    let plugin = home.path("lib.so");
    let plugin = plugin.to_str().expect("it is text");
    let done = home.run(&["serve", "--device", plugin]);
    assert_eq!(done.code, 2, "{}", done.err);
    let expected = format!("\nerror: the device `{plugin}` cannot be opened: ");
    assert!(done.err.contains(&expected), "{}", done.err);
    assert!(!home.socket().exists());
}

#[test]
fn run_starts_a_service_says_so_and_tells_the_command() {
    let home = Home::new();
    let script = "echo $SALUS_SOCKET $SALUS_NAME $JAX_PLATFORMS $SALUS_LIBRARY; \
                  test -f ${PYTHONPATH%%:*}/jax_plugins/salus/__init__.py; exit $((7 + $?))";
    let done = home.run(&["run", "--", "sh", "-c", script]);
    assert_eq!(done.code, 7, "{}", done.err);
    let socket = home.socket();
    let library = home.path("lib.so");
    assert_eq!(
        done.out,
        format!("{} sh salus,cpu {}\n", socket.display(), library.display())
    );
    assert_eq!(
        done.err,
        format!(
            "salus: started a service for this user on device `scripted` at {}, it ends after 10 min \
             without jobs; log: {}\nsalus: `sh` opened no session: it asked JAX for no device\n",
            socket.display(),
            socket.with_extension("log").display()
        )
    );
    let again = home.run(&[
        "run",
        "--name",
        "mine",
        "--",
        "sh",
        "-c",
        "echo $SALUS_NAME",
    ]);
    assert_eq!((again.code, again.out.as_str()), (0, "mine\n"));
    assert_eq!(
        again.err, "salus: `mine` opened no session: it asked JAX for no device\n",
        "the service is there already"
    );
    let service = watch(&home.report()["service"]["pid"]);
    let stopped = home.run(&["stop"]);
    assert_eq!(stopped.code, 0);
    assert!(
        stopped.err.ends_with("has ended; no session was open\n"),
        "{}",
        stopped.err
    );
    wait_for_end(&service);
    assert!(!socket.exists());
}

#[test]
fn a_command_that_is_not_there_is_told_as_a_shell_does() {
    let home = Home::new();
    let done = home.run(&["run", "--", "no-such-command"]);
    assert_eq!(done.code, 127);
    assert!(
        done.err
            .contains("error: `no-such-command` cannot be run: No such file"),
        "{}",
        done.err
    );
}

#[test]
fn a_run_ends_as_its_command_did_and_passes_signals_on() {
    let home = Home::new();
    assert_eq!(home.run(&["serve", "--background"]).code, 0);
    let ended = |script: &str| {
        let output = home.salus(&["run", "--", "sh", "-c", script]).output();
        output.expect("it can be started").status
    };
    assert_eq!(ended("kill -9 $$").signal(), Some(9));
    assert_eq!(ended("kill -TERM $$").signal(), Some(15));
    // Sent to the run alone, which is its parent: it reaches the command, which goes on.
    let script = "trap 'echo caught; exit 3' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done";
    let done = home.run(&["run", "--", "sh", "-c", script]);
    assert_eq!(
        (done.code, done.out.as_str()),
        (3, "caught\n"),
        "{}",
        done.err
    );
    let left = fs::read_dir(home.path("salus")).expect("a directory");
    let left: Vec<_> = left.flatten().map(|e| e.file_name()).collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().ends_with(".notes")),
        "{left:?}"
    );
}

#[test]
fn a_run_that_is_killed_takes_its_command_along() {
    let home = Home::new();
    assert_eq!(home.run(&["serve", "--background"]).code, 0);
    let mut run = home
        .salus(&["run", "--", "sh", "-c", "echo $$; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let mut lines = LineReader::new(run.stdout.take().expect("it is piped"));
    let line = lines.next(PROMPT).expect("it prints its number");
    let command = Watch::of(line.parse().expect("a number")).expect("it runs");
    run.kill().expect("it is ours");
    run.wait().expect("it ends");
    wait_for_end(&command);
}

#[test]
fn a_service_that_cannot_be_started_is_told_with_its_log() {
    let home = Home::new();
    let plugin = home.path("lib.so");
    let text = format!("schema_version = 1\n[device]\ndevice = {plugin:?}\n");
    home.configure(&text);
    let done = home.run(&["run", "--", "true"]);
    assert_eq!(done.code, 2);
    assert!(
        done.err
            .starts_with("error: the service could not be started:\n"),
        "{}",
        done.err
    );
    assert!(done.err.contains("cannot be opened"), "{}", done.err);
}

#[test]
fn several_runs_at_once_share_one_service() {
    let home = Home::new();
    let runs: Vec<_> = (0..4)
        .map(|_| {
            home.salus(&["run", "--", "sh", "-c", "echo $SALUS_SOCKET"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it can be started")
        })
        .collect();
    for run in runs {
        let done = Done::of(run.wait_with_output().expect("it ends"));
        assert_eq!(done.code, 0, "{}", done.err);
        assert_eq!(done.out, format!("{}\n", home.socket().display()));
    }
    assert_eq!(home.report()["service"]["restarts"], 0);
}

#[test]
fn a_killed_service_leaves_no_process_and_nothing_that_the_next_trips_over() {
    let home = Home::new();
    assert_eq!(home.run(&["serve", "--background"]).code, 0);
    let report = home.report();
    let service = watch(&report["service"]["pid"]);
    let host = watch(&report["service"]["device_host_pid"]);
    service.signal(Signal::KILL).expect("it is ours");
    wait_for_end(&service);
    wait_for_end(&host);
    assert!(home.socket().exists(), "it had no time to tidy up");
    assert_eq!(home.run(&["ps"]).code, 1);
    let next = home.run(&["serve", "--background"]);
    assert_eq!(next.code, 0, "{}", next.err);
    assert_ne!(home.report()["service"]["pid"], report["service"]["pid"]);
}

#[test]
fn a_signal_ends_the_service_in_order() {
    let home = Home::new();
    assert_eq!(home.run(&["serve", "--background"]).code, 0);
    let report = home.report();
    let service = watch(&report["service"]["pid"]);
    let host = watch(&report["service"]["device_host_pid"]);
    service.signal(Signal::TERM).expect("it is ours");
    wait_for_end(&service);
    wait_for_end(&host);
    assert!(!home.socket().exists());
}

#[test]
fn a_device_host_that_is_killed_comes_back() {
    let home = Home::new();
    assert_eq!(home.run(&["serve", "--background"]).code, 0);
    let host = watch(&home.report()["service"]["device_host_pid"]);
    host.signal(Signal::KILL).expect("it is ours");
    wait_for_end(&host);
    // `ps` is a round trip each time, so this is no busy waiting on a clock.
    let report = (0..10_000)
        .map(|_| home.report())
        .find(|report| report["device"]["platform"].is_string());
    let report = report.expect("it comes back");
    assert_eq!(report["service"]["restarts"], 1);
}

#[test]
fn a_second_service_is_told_of_the_first() {
    let home = Home::new();
    assert_eq!(home.run(&["serve", "--background"]).code, 0);
    let pid = home.report()["service"]["pid"].clone();
    let done = home.run(&["serve"]);
    assert_eq!(done.code, 2);
    let at = home.socket();
    assert_eq!(
        done.err,
        format!(
            "error: a service (pid {pid}) runs already at `{at}`\n\nhint: `salus stop --socket \
             {at}` ends it; `--socket` chooses another place\n",
            at = at.display()
        )
    );
}

#[test]
fn the_parts_of_a_service_are_not_for_people() {
    let home = Home::new();
    for part in ["device-host", "compiler"] {
        let done = home.run(&[part]);
        assert_eq!(done.code, 2);
        assert_eq!(
            done.err,
            "error: this command is a part of `salus serve`\n\nhint: `salus serve` starts it by \
             itself\n"
        );
    }
}

#[test]
fn doctor_says_yes_or_no_and_what_to_do() {
    let home = Home::new();
    let good = home.run(&["doctor", "-o", "json"]);
    let json: Value = serde_json::from_str(&good.out).expect("it is JSON");
    assert_eq!((good.code, &json["ready"]), (0, &Value::Bool(true)));
    fs::remove_file(home.path("lib.so")).expect("it was there");
    let bad = home.run(&["doctor"]);
    assert_eq!(bad.code, 1);
    assert!(bad.out.contains("SALUS_LIBRARY names"), "{}", bad.out);
    assert!(bad.out.contains("hint: unset it"), "{}", bad.out);
}

#[test]
fn doctor_says_of_every_part_of_the_sandbox_whether_it_is_there() {
    let home = Home::new();
    let done = home.run(&["doctor", "-o", "json"]);
    let json: Value = serde_json::from_str(&done.out).expect("it is JSON");
    let checks = json["checks"].as_array().expect("a list");
    let of = |name: &str| {
        let found = checks.iter().find(|check| check["check"] == name);
        found.unwrap_or_else(|| panic!("no `{name}` in {checks:#?}"))
    };
    let parts = ["limits", "network", "capabilities", "files", "system calls"];
    let parts = parts.map(|part| of(&format!("sandbox: {part}")));
    for check in parts {
        let missing = check["state"] == "absent" && check["advice"].is_string();
        assert!(check["state"] == "ok" || missing, "{check:#}");
    }
    // What was tried agrees with what the kernel has.
    if parts.iter().all(|check| check["state"] == "ok") {
        assert_eq!(of("sandbox")["state"], "ok", "{:#}", of("sandbox"));
    }
    // The service's own processes have what doctor has found.
    assert_eq!(home.run(&["serve", "--background"]).code, 0);
    let host = &home.report()["service"]["device_host_pid"];
    let status = fs::read_to_string(format!("/proc/{host}/status")).expect("it runs");
    let filtered = status.contains("\nSeccomp:\t2\n");
    assert_eq!(filtered, parts[4]["state"] == "ok", "{status}");
}

#[test]
fn a_socket_elsewhere_is_used_by_all_commands() {
    let home = Home::new();
    let elsewhere = home.path("else.sock");
    let at = elsewhere.to_str().expect("it is text");
    assert_eq!(home.run(&["serve", "--background", "--socket", at]).code, 0);
    assert_eq!(home.run(&["ps"]).code, 1, "it is not at the usual place");
    assert_eq!(home.run(&["ps", "--socket", at]).code, 0);
    assert_eq!(home.run(&["stop", "--socket", at]).code, 0);
    assert!(!Path::new(at).exists());
}
