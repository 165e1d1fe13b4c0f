//! Several devices: which one a job gets, and that what happens to one leaves the others alone.

use super::*;

fn two() -> Running {
    two_that("works")
}

fn two_that(device: &str) -> Running {
    start_with(device, |service| service.devices = vec![Some(0), Some(1)]).until_ready()
}

impl Running {
    /// The devices that these jobs got; the service ends.
    fn placed(self, jobs: &[UnixStream]) -> Vec<Value> {
        let sessions: Vec<u64> = jobs.iter().map(|job| welcome(job).session).collect();
        let report = self.report();
        let listed = report["sessions"].as_array().expect("a list");
        let of = |id: &u64| listed.iter().find(|session| session["id"] == *id);
        let placed = sessions.iter().filter_map(of);
        let placed = placed.map(|session| session["device"].clone()).collect();
        self.stop();
        placed
    }
}

fn names(report: &Value, key: &str) -> Vec<Value> {
    let devices = report["devices"].as_array().expect("a list");
    devices.iter().map(|device| device[key].clone()).collect()
}

#[test]
fn eight_jobs_share_two_devices_evenly() {
    let service = two();
    let jobs: Vec<_> = (0..8).map(|n| service.job(&format!("{n}.py"))).collect();
    let placed = service.placed(&jobs);
    let on = |name: &str| placed.iter().filter(|device| *device == name).count();
    assert_eq!((on("works:0"), on("works:1")), (4, 4), "{placed:?}");
}

#[test]
fn a_job_goes_where_least_is_wanted_and_held() {
    let service = two();
    // One that always wants the first device, and one that holds all of the second and wants nothing
    // of it: the first has more to do than the second, by a little.
    let jobs = [
        service.job_on("works:0", "load 1000 2097152", 0),
        service.job_on("works:1", "load 0 1073741824", 0),
    ];
    jobs.iter().for_each(|job| drop(welcome(job)));
    let next = [service.job("next.py")];
    assert_eq!(service.placed(&next), ["works:1"]);
}

#[test]
fn sessions_that_the_load_does_not_count_yet_count_as_whole_ones() {
    let service = two();
    let busy = service.job_on("works:0", "load 1000 0", 0);
    welcome(&busy);
    let idle = service.job_on("works:1", "load 0 0", 0);
    welcome(&idle);
    let one = service.job_on("works:1", "new.py", 0);
    welcome(&one);
    // Both have one session that wants them: the first has fewer sessions.
    let next = [service.job("next.py"), service.job("after.py")];
    let placed = service.placed(&next);
    assert!(placed == ["works:0", "works:1"] || placed == ["works:1", "works:0"]);
}

#[test]
fn a_job_gets_the_device_that_it_names() {
    let service = two();
    // By the plugin's name, by the platform that the device says it is, or any of several.
    let jobs = ["works:1", "fake:1", "fake:1,fake:7", "works:1", "fake:0"];
    let jobs = jobs.map(|device| service.job_on(device, "job.py", 0));
    assert_eq!(
        service.placed(&jobs),
        ["works:1", "works:1", "works:1", "works:1", "works:0"]
    );
}

#[test]
fn a_device_that_is_not_there_is_refused_with_those_that_are() {
    let service = two();
    for name in ["works:2", "cuda:0", "w\u{1b}:1"] {
        let error = refusal_of(&service.job_on(name, "job.py", 0));
        assert_eq!(error.code, ErrorCode::NotFound);
        let shown = crate::log::tame(name);
        assert_eq!(
            error.message,
            format!("this service has no device `{shown}`; it has works:0, works:1")
        );
    }
    service.stop();
    let one = start("works").until_ready();
    let error = refusal_of(&one.job_on("works:1", "job.py", 0));
    let expected = "this service has no device `works:1`; it has works";
    assert_eq!(error.message, expected);
    assert_eq!(welcome(&one.job_on("works:0", "job.py", 0)).session, 1);
    one.stop();
}

#[test]
fn one_device_hosts_death_touches_its_device_alone() {
    let service = two();
    let stays = service.job_on("works:0", "stays.py", 0);
    let lost = service.job_on("works:1", "lost.py", 0);
    let (kept, gone) = (welcome(&stays).session, welcome(&lost).session);
    let before = names(&service.report(), "device_host_pid");
    let culprit = service.job_on("works:1", "crash 5", 0);
    assert!(is_over(&lost) && is_over(&culprit));
    let told = |report: &Value| names(report, "events") == vec![json!(["convicted 5"]); 2];
    let report = service.report_when(told);
    // The other device host was told of the program, and is the one that it was.
    assert_eq!(names(&report, "restarts"), [0, 1]);
    let after = names(&report, "device_host_pid");
    assert!(after[0] == before[0] && after[1] != before[1], "{after:?}");
    assert!(!is_gone(&after[0]) && is_gone(&before[1]));
    assert_eq!(report["service"]["restarts"], 1);
    let fate = service.fate(gone).expect("it is known");
    assert!(fate.contains("signal 6 (SIGABRT)"), "{fate}");
    assert_eq!(service.fate(kept), None);
    // Its session is still served, and a job may go to either.
    let next = service.job_on("works:1", "next.py", 0);
    welcome(&next);
    stays
        .shutdown(std::net::Shutdown::Write)
        .expect("it is connected");
    assert!(is_over(&stays), "its device host reads what it sends");
    service.stop();
}

#[test]
fn a_session_killed_at_once_costs_only_those_of_its_device() {
    let service = two();
    let other = service.job_on("works:0", "other.py", 0);
    welcome(&other);
    let endless = service.job_on("works:1", "endless.py", 0);
    let session = welcome(&endless).session;
    let change = Request::Change {
        session,
        change: Change::KillNow,
    };
    let (answer, _) = service.command(change);
    assert_eq!(answer["devices"][0]["platform"], "fake");
    assert_eq!(answer["devices"][1]["state"], "starting again");
    assert!(is_over(&endless));
    let report = service.report_when(|r| r["devices"][1]["platform"] == "fake");
    assert_eq!(names(&report, "restarts"), [0, 1]);
    service.stop();
}

#[test]
fn a_device_that_cannot_be_opened_is_given_up_and_the_others_are_served() {
    for (device, state) in [
        ("second_fails", "cannot be opened: no such device"),
        ("second_dies", "cannot be kept running: it ended 5 times"),
    ] {
        let service = start_with(device, |service| service.devices = vec![Some(0), Some(1)]);
        let opened = service.ready.recv_timeout(PATIENCE).expect("one is open");
        assert_eq!(opened.len(), 1, "{opened:?}");
        let job = service.job("job.py");
        welcome(&job);
        let error = refusal_of(&service.job_on(&format!("{device}:1"), "job.py", 0));
        assert!(error.message.contains(state), "{error}");
        let report = service.report();
        let given_up = report["devices"][1]["given_up"].as_str().expect("a reason");
        assert!(given_up.contains(state), "{given_up}");
        assert_eq!(report["devices"][1]["state"], "given up");
        assert_eq!(report["sessions"][0]["device"], format!("{device}:0"));
        service.stop();
    }
}

#[test]
fn without_any_device_the_service_ends() {
    let service = start_with("fails", |service| service.devices = vec![Some(0), Some(1)]);
    let problem = service.end().expect_err("there is no device");
    let expected = "cannot be opened: no such device";
    assert!(problem.what.ends_with(expected), "{problem}");
}

#[test]
fn changes_and_policies_reach_the_device_that_is_meant() {
    let service = two();
    let job = service.job_on("works:1", "train.py", 0);
    let session = welcome(&job).session;
    let change = Change::Pause;
    service.command(Request::Change { session, change });
    let policy = |device: &str, name: &str| {
        let (device, name) = (device.into(), name.into());
        Request::Policy { name, device }
    };
    service.command(policy("works:0", "srtf"));
    service.command(policy("", "las"));
    let paused = format!("session {session}: Pause");
    assert_eq!(
        names(&service.report(), "events"),
        [
            json!(["policy srtf", "policy las"]),
            json!([paused, "policy las"])
        ]
    );
    let refused = refusal_of(&service.ask(policy("works:3", "fair")));
    assert!(refused.message.contains("no device `works:3`"), "{refused}");
    service.stop();
}

#[test]
fn a_trace_has_a_message_for_each_device() {
    let service = two();
    let stream = service.ask(Request::Trace { seconds: 10 });
    let mut inbox = Inbox::default();
    for (device, more) in [("works:0", 1), ("works:1", 0)] {
        let received = loop {
            match inbox.take::<FromService>().expect("it is a frame") {
                Some(received) => break received,
                None => assert!(inbox.fill(&stream, true).expect("it comes") > 0),
            }
        };
        let FromService::Trace(trace) = received.message else {
            panic!("no trace but {:?}", received.message)
        };
        assert_eq!((trace.device.as_str(), trace.more), (device, more));
        let blob = received.descriptor.expect("it comes with a descriptor");
        let data = open_blob(blob, trace.bytes).expect("it is as long as announced");
        assert_eq!(data, b"the last 10 s");
    }
    service.stop();
}

#[test]
fn limits_hold_over_all_devices_and_compilers_are_divided() {
    let service = start_with("works", |service| {
        service.devices = vec![Some(0), Some(1)];
        service.host.limits.sessions_per_user = Some(2);
        service.host.compilers.count = 3;
    })
    .until_ready();
    let jobs = ["works:0", "works:1"].map(|device| service.job_on(device, "job.py", 0));
    jobs.iter().for_each(|job| drop(welcome(job)));
    let error = refusal_of(&service.job("third.py"));
    assert!(error.message.contains("has 2 sessions open"), "{error}");
    assert_eq!(names(&service.report(), "compilers"), [2, 2]);
    service.stop();
}
