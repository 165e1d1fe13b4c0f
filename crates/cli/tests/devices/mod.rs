//! A service with two devices, as a person sees it.

use std::time::Instant;

use rustix::process::{Pid, kill_process};

use super::trace::Job;
use super::*;

const TWO: &str = "schema_version = 1\n[device]\ndevice = \"scripted:0,scripted:1\"\n";

fn home() -> Home {
    let home = Home::new();
    home.configure(TWO);
    let started = home.run(&["serve", "--background"]);
    assert_eq!(started.code, 0, "{}", started.err);
    for name in ["scripted:0 (", "; scripted:1 ("] {
        assert!(started.err.contains(name), "{}", started.err);
    }
    home
}

fn of_devices(report: &Value, key: &str) -> Vec<Value> {
    let devices = report["devices"].as_array().expect("a list");
    devices.iter().map(|device| device[key].clone()).collect()
}

fn of_sessions(report: &Value, device: &str) -> Vec<Value> {
    let sessions = report["sessions"].as_array().expect("a list").iter();
    let own = sessions.filter(|session| session["device"] == device);
    own.map(|session| session["name"].clone()).collect()
}

#[test]
fn jobs_share_two_devices_and_every_command_says_which() {
    let home = home();
    let names: Vec<String> = (0..8).map(|n| format!("job{n}.py")).collect();
    let mut jobs: Vec<Job> = names.iter().map(|name| Job::start(&home, name)).collect();
    for job in &mut jobs {
        job.launch(3);
        job.until_ended();
    }
    let report = home.report();
    for device in ["scripted:0", "scripted:1"] {
        let own = of_sessions(&report, device);
        assert_eq!(own.len(), 4, "{device}: {own:?}");
    }
    let table = home.run(&["ps"]).out;
    for part in ["\nscripted:1 (", "  DEVICE  ", "  scripted:0  "] {
        assert!(table.contains(part), "{table}");
    }
    let explained = home.run(&["explain", "job0.py"]).out;
    assert!(explained.contains("(`job0.py`, scripted:0)"), "{explained}");

    let trace = home.run(&["trace", "-o", "-"]);
    assert!(
        trace.err.starts_with("24 iterations of 8 jobs in "),
        "{}",
        trace.err
    );
    let trace: Value = serde_json::from_str(&trace.out).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("a list").iter();
    let groups = events.filter(|e| e["name"] == "process_name");
    let groups: Vec<_> = groups.filter_map(|e| e["args"]["name"].as_str()).collect();
    assert!(groups.contains(&"jobs on scripted:0"), "{groups:?}");
    assert!(groups.contains(&"pages on scripted:1"), "{groups:?}");

    let set = home.run(&["policy", "set", "srtf", "--device", "scripted:1"]);
    assert_eq!(
        set.err,
        "jobs on scripted:1 are served by `srtf` from now on\n"
    );
    let policies = of_devices(&home.report(), "policy");
    assert_eq!(policies, ["fair", "srtf"]);
    let shown = home.run(&["policy"]).out;
    assert!(shown.contains(" (scripted:1)\n"), "{shown}");
    let refused = home.run(&["policy", "set", "srtf", "--device", "cuda:7"]);
    assert_eq!(refused.code, 2);
    let expected = "no device `cuda:7`; it has scripted:0, scripted:1";
    assert!(refused.err.contains(expected), "{}", refused.err);
}

#[test]
fn the_death_of_one_device_host_leaves_the_other_devices_jobs_alone() {
    let home = home();
    let mut stays = Job::start_on(&home, "stays.py", "scripted:0");
    let _lost = Job::start_on(&home, "lost.py", "scripted:1");
    let before = of_devices(&home.report(), "device_host_pid");
    let pid = before[1].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(Pid::from_raw).expect("a process");
    let second = watch(&before[1]);
    kill_process(pid, Signal::KILL).expect("it is ours");
    wait_for_end(&second);
    // It computes on while the other device is opened again.
    stays.launch(10);
    stays.until_ended();
    let deadline = Instant::now() + PROMPT;
    let report = loop {
        let report = home.report();
        if of_devices(&report, "restarts") == [0, 1] && of_devices(&report, "state") == ["up", "up"]
        {
            break report;
        }
        assert!(Instant::now() < deadline, "{report:#}");
    };
    let after = of_devices(&report, "device_host_pid");
    assert!(after[0] == before[0] && after[1] != before[1], "{after:?}");
    assert_eq!(of_sessions(&report, "scripted:0"), ["stays.py"]);
    assert!(of_sessions(&report, "scripted:1").is_empty());
    stays.launch(1);
    stays.until_ended();
    let mut next = Job::start_on(&home, "next.py", "scripted:1");
    next.launch(1);
    next.until_ended();
}

#[test]
fn run_names_a_device_of_the_service_or_what_one_is_started_with() {
    let home = Home::new();
    let script = "echo $SALUS_DEVICE";
    let done = home.run(&["run", "--device", "scripted:3", "--", "sh", "-c", script]);
    assert_eq!(
        (done.code, done.out.as_str()),
        (0, "scripted:3\n"),
        "{}",
        done.err
    );
    assert!(
        done.err.contains("on device `scripted:3` at "),
        "{}",
        done.err
    );
    assert_eq!(of_devices(&home.report(), "name"), ["scripted:3"]);
    let wrong = home.run(&["run", "--device", "scripted:1,cpu", "--", "true"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("devices of two plugins"),
        "{}",
        wrong.err
    );
}
