//! Commands: reports, changes, policies, traces, stop.

use super::*;

fn policy_of(device: &str, name: &str) -> Request {
    Request::Policy {
        name: name.into(),
        device: device.into(),
    }
}

#[test]
fn a_report_is_the_device_hosts_with_the_service_added() {
    let service = start("works").until_ready();
    let report = service.report();
    assert_eq!(report["device"]["platform"], "fake");
    assert_eq!(report["service"]["pid"], std::process::id());
    assert_eq!(report["service"]["restarts"], 0);
    let host = report["service"]["device_host_pid"].clone();
    assert!(!is_gone(&host));
    service.stop();
    assert!(is_gone(&host), "no child outlives the service");
}

#[test]
fn stop_names_the_sessions_that_were_open() {
    let service = start("works").until_ready();
    let job = service.job("train.py");
    welcome(&job);
    let (farewell, mut stream) = service.command(Request::Stop);
    assert_eq!(farewell["sessions"][0]["name"], "train.py");
    assert_eq!(stream.read(&mut [0; 1]).expect("it ends"), 0);
    assert_eq!(next(&job), None, "the job sees its socket closed");
    assert!(matches!(service.end(), Ok(End::Asked { .. })));
}

#[test]
fn a_session_is_changed_by_its_number_and_the_policy_by_its_name() {
    let service = start("works").until_ready();
    let job = service.job("train.py");
    let session = welcome(&job).session;
    let change = |session, change| Request::Change { session, change };
    let policy = |name: &str| policy_of("", name);
    service.command(change(session, Change::MemoryMax(NonZeroU64::new(4096))));
    service.command(policy("srtf"));
    let report = service.report();
    assert_eq!(
        report["events"][0],
        format!("session {session}: MemoryMax(Some(4096))")
    );
    assert_eq!(report["events"][1], "policy srtf");
    let refused = |request| refusal_of(&service.ask(request)).message;
    assert_eq!(
        refused(change(77, Change::Pause)),
        "there is no session 77; `salus ps` shows those that are open"
    );
    assert_eq!(
        refused(policy("fairr")),
        "there is no policy `fairr`; there are exclusive, fifo, srtf, pack, fair, priority, las, \
         deadline"
    );
    assert_eq!(service.report()["events"].as_array().map(Vec::len), Some(2));
    service.stop();
}

#[test]
fn a_policy_chosen_while_the_device_is_opened_holds_when_it_is() {
    let gate_dir = tests_dir();
    let access = UnixListener::bind(gate_dir.join("access")).expect("bound");
    let at = gate_dir.clone();
    let service = start_with("gated", move |service| service.host.cache.directory = at);
    let (mut opener, _) = access.accept().expect("the device host waits there");
    let policy = |name: &str| policy_of("", name);
    let (report, _) = service.command(policy("srtf"));
    assert_eq!(report["device"]["state"], "starting");
    assert_eq!(report["device"]["policy"], "srtf");
    opener.write_all(b"!").expect("it reads");
    let report = service.report_when(|report| report["device"]["platform"] == "fake");
    assert_eq!(
        report["policy"], "fair",
        "it was started with the one before"
    );
    assert_eq!(report["events"], serde_json::json!(["policy srtf"]));
    // One that is started again begins with it.
    let crashed = service.job("crash");
    let (mut opener, _) = access.accept().expect("the next one waits there");
    assert_eq!(next(&crashed), None, "it is lost");
    opener.write_all(b"!").expect("it reads");
    let report = service.report_when(|report| report["policy"] == "srtf");
    assert_eq!(report["events"], serde_json::json!([]));
    service.stop();
    std::fs::remove_dir_all(gate_dir).expect("removed");
}

#[test]
fn a_trace_comes_in_memory_of_its_own() {
    let service = start("works").until_ready();
    let stream = service.ask(Request::Trace { seconds: 10 });
    let received = receive(&stream).expect("it is answered");
    let FromService::Trace(trace) = received.message else {
        panic!("no trace but {:?}", received.message)
    };
    let descriptor = received.descriptor.expect("it comes with a descriptor");
    let data = open_blob(descriptor, trace.bytes).expect("it is as long as announced");
    assert_eq!(data, b"the last 10 s");
    assert_eq!(next(&stream), None, "nothing follows");
    service.stop();
}

#[test]
fn without_a_device_host_that_answers_there_is_no_trace() {
    let service = start("mute").until_ready();
    let refused = refusal_of(&service.ask(Request::Trace { seconds: 0 }));
    assert_eq!(refused.code, ErrorCode::Unavailable);
    let expected = "there is no trace: the device is not answering";
    assert_eq!(refused.message, expected);
    service.stop();
}
