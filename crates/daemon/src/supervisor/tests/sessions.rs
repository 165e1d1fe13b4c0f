//! Jobs become sessions: who is let in, under which id and name, and how one is ended.

use super::*;

#[test]
fn jobs_are_handed_to_the_device_host_under_ids_that_grow() {
    let service = start("works").until_ready();
    // One after the other: of two that knock together either may be first.
    let first = service.job("a.py");
    assert_eq!(welcome(&first).session, 1);
    let second = service.job("b.py");
    assert_eq!(welcome(&second).session, 2);
    drop((first, second));
    let third = service.job("c.py");
    assert_eq!(welcome(&third).session, 3);
    service.stop();
}

#[test]
fn a_jobs_name_is_escaped_before_anybody_sees_it() {
    let service = start("works").until_ready();
    let job = service.job("tr\u{1b}[2Jain\n.py");
    welcome(&job);
    // As long as a name may be, and longer when it is escaped.
    let long = service.job(&"\u{7f}".repeat(salus_wire::limits::NAME_BYTES));
    welcome(&long);
    let (farewell, _) = service.command(Request::Stop);
    assert_eq!(farewell["sessions"][0]["name"], "tr\\u{1b}[2Jain\\n.py");
    let long = farewell["sessions"][1]["name"].as_str().expect("a name");
    assert!(long.starts_with("\\u{7f}") && long.len() <= salus_wire::limits::NAME_BYTES);
    assert!(matches!(service.end(), Ok(End::Asked { .. })));
}

#[test]
fn a_session_is_killed_at_once_and_the_others_hear_who_did_it() {
    let service = start("works").until_ready();
    let (one, other) = (service.job("endless.py"), service.job("other.py"));
    let (session, lost) = (welcome(&one).session, welcome(&other).session);
    let change = Request::Change {
        session,
        change: Change::KillNow,
    };
    let (answer, _) = service.command(change);
    assert_eq!(answer["device"]["state"], "starting again", "{answer}");
    assert!(is_over(&one) && is_over(&other));
    let report = service.report_when(|r| r["service"]["restarts"] == 1 && !r["events"].is_null());
    assert_eq!(report["service"]["convicted"], json!([]));
    let fate = service.fate(lost).expect("it is known");
    assert!(
        fate.contains(&format!("`salus job {session} kill --now`")),
        "{fate}"
    );
    service.stop();
}

#[test]
fn a_user_has_at_most_the_sessions_that_the_limit_allows() {
    let service = start_with("works", |service| {
        service.host.limits.sessions_per_user = Some(2);
    })
    .until_ready();
    let (first, second) = (service.job("one.py"), service.job("two.py"));
    welcome(&first);
    welcome(&second);
    let error = refusal_of(&service.job("three.py"));
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    let me = name_of(rustix::process::geteuid().as_raw());
    assert_eq!(
        error.message,
        format!(
            "{me} has 2 sessions open, and the limit for a user is 2 (`[limits] sessions_per_user` \
             of salus.toml); start it again when one has ended (`salus ps` shows them)"
        )
    );
    drop(first);
    // Until the device host has told of its end, it counts.
    let deadline = Instant::now() + PATIENCE;
    while !matches!(
        next(&service.job("three.py")),
        Some(FromService::Welcome(_))
    ) {
        assert!(Instant::now() < deadline, "nobody is let in any more");
    }
    service.stop();
}

#[test]
fn jobs_wait_while_the_device_is_being_opened() {
    let gate_dir = tests_dir();
    let access = UnixListener::bind(gate_dir.join("access")).expect("bound");
    let at = gate_dir.clone();
    let service = start_with("gated", move |service| service.host.cache.directory = at);
    let (mut opener, _) = access.accept().expect("the device host waits there");
    let early = service.job("early.py");
    let report = service.report_when(|r| r["service"]["waiting_jobs"] == 1);
    assert_eq!(report["device"]["state"], "starting");
    let gone = service.job("gone.py");
    service.report_when(|r| r["service"]["waiting_jobs"] == 2);
    drop(gone);
    service.report_when(|r| r["service"]["waiting_jobs"] == 1);
    opener.write_all(b"!").expect("it reads");
    assert_eq!(welcome(&early).session, 1);
    service.stop();
    std::fs::remove_dir_all(gate_dir).expect("removed");
}

#[test]
fn what_follows_the_first_frame_reaches_the_device_host() {
    let service = start("works").until_ready();
    let mut stream = service.connect();
    let hello = Hello {
        protocol_min: 1,
        protocol_max: 1,
        version: "test".into(),
        name: "echo".into(),
        settings: JobSettings::default(),
        run: 0,
        device: String::new(),
    };
    let mut bytes = Vec::new();
    encode_frame(&ToService::from(hello), 0, &mut bytes);
    bytes.extend_from_slice(b"more");
    stream.write_all(&bytes).expect("it is taken");
    // The made-up device host sends back what it reads.
    let mut back = Vec::new();
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("it is connected");
    stream.read_to_end(&mut back).expect("it answers");
    assert!(back.ends_with(b"more"));
    service.stop();
}
