//! How long a service lives: idle time, runs that hold it, one service per socket.

use super::*;

#[test]
fn a_service_without_jobs_ends_after_its_idle_time() {
    let idle = Duration::from_millis(50);
    let end = start_with("works", move |service| service.idle_exit = Some(idle)).end();
    assert_eq!(end, Ok(End::Idle { after: idle }));
}

#[test]
fn a_started_job_keeps_the_service_before_it_comes() {
    let idle = Duration::from_millis(300);
    let service = start_with("works", move |service| service.idle_exit = Some(idle)).until_ready();
    let (_, held) = service.command(Request::Hold);
    let since = Instant::now();
    service.report_when(|_| since.elapsed() > 2 * idle);
    let gone = Instant::now();
    drop(held);
    assert_eq!(service.end(), Ok(End::Idle { after: idle }));
    assert!(gone.elapsed() >= idle);
}

#[test]
fn a_run_is_told_of_the_first_session_of_its_job_and_of_no_others() {
    let service = start("works").until_ready();
    let hold = || {
        let (answer, held) = service.command(Request::Hold);
        held.set_nonblocking(true).expect("it is a socket");
        (answer["run"].as_u64().expect("a number"), held)
    };
    let ((mine, held), (other, quiet)) = (hold(), hold());
    assert_ne!(mine, other);
    let session = |run| {
        let stream = service.job_of("train.py", run);
        (welcome(&stream).session, stream)
    };
    let _before = session(0);
    let (first, _job) = session(mine);
    let _second = session(mine);
    let _stranger = session(77);
    // Whoever was welcomed was told of before.
    let mut inbox = Inbox::default();
    inbox.fill(&held, false).expect("it was told");
    match inbox.take().expect("a frame").map(|told| told.message) {
        Some(FromService::Answer(told)) => {
            assert_eq!(told.json, format!("{{\"session\":{first}}}"))
        }
        other => panic!("not told but {other:?}"),
    }
    assert!(inbox.take::<FromService>().expect("no frame").is_none());
    for silent in [&held, &quiet] {
        let nothing = Inbox::default().fill(silent, false);
        assert!(nothing.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock));
    }
    service.stop();
}

#[test]
fn an_open_session_keeps_the_service_and_its_end_starts_the_idle_time() {
    let idle = Duration::from_millis(300);
    let service = start_with("works", move |service| service.idle_exit = Some(idle)).until_ready();
    let job = service.job("train.py");
    welcome(&job);
    let opened = Instant::now();
    // Questions do not keep it, and the session does: well past the idle time it still answers.
    service.report_when(|_| opened.elapsed() > 2 * idle);
    drop(job);
    let closed = Instant::now();
    assert_eq!(service.end(), Ok(End::Idle { after: idle }));
    assert!(closed.elapsed() >= idle);
}

#[test]
fn a_second_service_at_the_same_socket_is_refused_and_the_first_stays() {
    let service = start("works").until_ready();
    let at = service.socket.clone();
    let second = start_with("works", move |second| second.socket = at);
    let problem = second
        .thread
        .join()
        .expect("no panic")
        .expect_err("it is taken");
    assert!(problem.what.contains("runs already at"), "{problem}");
    assert_eq!(welcome(&service.job("a.py")).session, 1);
    service.stop();
    std::fs::remove_dir_all(second.dir).expect("removed");
}
