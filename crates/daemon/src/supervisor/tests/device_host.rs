//! The device host and the compilers as children: their starts, their deaths, and who is blamed.

use super::*;

#[test]
fn a_program_that_ends_the_device_host_is_convicted_and_told_to_the_next_one() {
    let service = start("works").until_ready();
    let victim = service.job("victim.py");
    let session = welcome(&victim).session;
    let culprit = service.job("crash 5");
    assert!(is_over(&victim) && is_over(&culprit));
    let report = service.report_when(|r| r["events"] == json!(["convicted 5"]));
    assert_eq!(report["service"]["restarts"], 1);
    let convicted = &report["service"]["convicted"][0];
    assert_eq!(convicted["name"], "bad_program");
    assert_eq!(convicted["how"], "signal 6 (SIGABRT)");
    // Both hear why, and nobody else.
    let fate = service.fate(session).expect("it is known");
    assert!(fate.contains("signal 6 (SIGABRT)"), "{fate}");
    assert!(
        fate.contains("`bad_program` of session 2 (`crash 5`"),
        "{fate}"
    );
    let own = service.fate(session + 1).expect("it is known");
    assert!(own.contains("this job's program `bad_program`"), "{own}");
    assert_eq!(service.fate(session + 2), None);
    service.stop();
}

#[test]
fn a_program_after_which_the_device_failed_is_refused_the_second_time() {
    let service = start("works").until_ready();
    let victim = service.job("victim.py");
    let session = welcome(&victim).session;
    let culprit = service.job("break 5");
    assert!(is_over(&victim) && is_over(&culprit));
    let report = service.report_when(|r| r["service"]["restarts"] == 1 && !r["events"].is_null());
    assert_eq!(report["service"]["convicted"], json!([]));
    let fate = service.fate(session).expect("it is known");
    for part in [
        "the device failed: CUDA_ERROR_ILLEGAL_ADDRESS",
        "`bad_program` of session 2 (`break 5`",
        "whichever runs when it ends again",
    ] {
        assert!(fate.contains(part), "{fate}");
    }
    let culprit = service.job("break 5");
    assert!(is_over(&culprit));
    let report = service.report_when(|r| r["events"] == json!(["convicted 5"]));
    let how = &report["service"]["convicted"][0]["how"];
    assert_eq!(how, "the device failed: CUDA_ERROR_ILLEGAL_ADDRESS");
    service.stop();
}

#[test]
fn convicted_programs_do_not_make_the_service_give_up() {
    let service = start("works").until_ready();
    for program in 1..=8 {
        let culprit = service.job(&format!("crash {program}"));
        assert!(is_over(&culprit));
        service.report_when(|r| r["service"]["restarts"] == program && !r["events"].is_null());
    }
    service.stop();
}

#[test]
fn a_device_that_cannot_be_opened_ends_the_service_with_its_reason() {
    let end = start("fails").end();
    let problem = end.expect_err("there is no device");
    assert_eq!(
        problem.what,
        "the device `fails` cannot be opened: no such device"
    );
}

#[test]
fn a_device_host_that_dies_is_started_again_and_its_sessions_end() {
    let service = start("works").until_ready();
    let other = service.job("other.py");
    welcome(&other);
    let host = service.report()["service"]["device_host_pid"].clone();
    let culprit = service.job("crash");
    assert_eq!(next(&culprit), None);
    assert_eq!(next(&other), None, "its socket was the device host's");
    // Until its death is noticed, a job that comes would still be handed to it.
    service.report_when(|r| r["service"]["restarts"] == 1);
    let next_job = service.job("next.py");
    assert_eq!(welcome(&next_job).session, 3, "no id is used twice");
    let report = service.report();
    assert_eq!(report["service"]["restarts"], 1);
    assert_ne!(report["service"]["device_host_pid"], host);
    assert!(is_gone(&host));
    service.stop();
}

#[test]
fn a_device_host_that_keeps_dying_is_given_up() {
    let problem = start("dies").end().expect_err("it cannot be kept running");
    assert_eq!(
        problem.what,
        "the device host cannot be kept running: it ended 5 times within 60 s, the last time: it \
         ended: signal 6 (SIGABRT)"
    );
}

#[test]
fn a_device_host_that_talks_nonsense_is_ended() {
    let problem = start("babbles")
        .end()
        .expect_err("it cannot be kept running");
    assert!(problem.what.ends_with("signal 9 (SIGKILL)"), "{problem}");
}

#[test]
fn a_device_host_that_does_not_answer_leaves_what_is_known() {
    let service = start("mute").until_ready();
    let job = service.job("train.py");
    welcome(&job);
    let report = service.report();
    assert_eq!(report["device"]["state"], "not answering");
    assert_eq!(report["sessions"][0]["name"], "train.py");
    service.stop();
}

#[test]
fn compilers_are_started_when_wanted_and_their_ends_are_told() {
    let service = start("works").until_ready();
    let job = service.job("compile");
    welcome(&job);
    let report = service.report_when(|r| r["events"][1].is_string());
    assert_eq!(report["events"][0], "compiler 1 joined");
    // The made-up device host has each compiler crash.
    assert_eq!(report["events"][1], "compiler 1 ended: signal 6 (SIGABRT)");
    service.stop();
}
