//! Connections that are not what they should be disturb nobody.

use super::*;

#[test]
fn garbage_and_silence_disturb_nobody() {
    let service = start("works").until_ready();
    let silent: Vec<_> = (0..20).map(|_| service.connect()).collect();
    let mut noisy = service.connect();
    noisy.write_all(&[0xff; 4096]).expect("it is taken");
    assert_eq!(refusal_of(&noisy).code, ErrorCode::InvalidArgument);
    let mut half = service.connect();
    half.write_all(&[9, 0, 0]).expect("it is taken");
    assert_eq!(welcome(&service.job("fine.py")).session, 1);
    drop((silent, half));
    service.stop();
}

#[test]
fn silent_connections_keep_nobody_out() {
    let service = start("works").until_ready();
    let silent: Vec<_> = (0..400).map(|_| service.connect()).collect();
    assert_eq!(welcome(&service.job("late.py")).session, 1);
    // Those that were silent longest had to go.
    assert_eq!(refusal_of(&silent[0]).code, ErrorCode::ResourceExhausted);
    drop(silent);
    service.stop();
}

#[test]
fn descriptors_that_come_uninvited_hold_nobody_up() {
    let service = start("works").until_ready();
    let (lingering, reader) = closing::tests::lingering();
    let stream = service.connect();
    // A kernel that keeps them out says so to the sender.
    let sent = closing::tests::send(&stream, &[1], lingering);
    if let Err(error) = sent {
        assert_eq!(error, rustix::io::Errno::PERM);
    }
    drop(stream);
    assert_eq!(welcome(&service.job("fine.py")).session, 1);
    assert_eq!(service.report()["service"]["restarts"], 0);
    drop(reader);
    service.stop();
}

#[test]
fn a_job_of_another_version_is_refused_with_both_ranges() {
    let service = start("works").until_ready();
    let stream = service.connect();
    let hello = Hello {
        protocol_min: 5,
        protocol_max: 6,
        version: "9.9".into(),
        name: "x".into(),
        settings: JobSettings::default(),
        run: 0,
        device: String::new(),
    };
    send_all(&stream, &ToService::from(hello), None).expect("it reads");
    let error = refusal_of(&stream);
    assert!(error.message.contains("versions 1 to 1"), "{error}");
    assert!(error.message.contains("library 5 to 6"), "{error}");
    service.stop();
}
