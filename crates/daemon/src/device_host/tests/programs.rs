//! Programs as jobs send them: what they are called, how they are found, which can never run.

use super::*;

#[test]
fn a_programs_name_cannot_drive_a_terminal() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    let script = "name: st\u{1b}[2Jep\u{9b}31m; params: f32[4]; outputs: f32[4]";
    job.compile(1, script).expect("compiles");
    job.execute(1, 1, &[], 10);
    let error = job.ended(1).expect_err("an argument is missing");
    assert_eq!(
        error.message,
        "`st\\u{1b}[2Jep\\u{9b}31m` takes 1 arguments and was given 0"
    );
    job.upload(1, [1.0; 4]);
    job.execute(2, 1, &[1], 20);
    job.ended(2).expect("it runs");
    let copied = fixture.host.scheduling.recorded();
    let recording = copied.recording(salus_device::Device::description(&*fixture.host.device), 0);
    assert_eq!(recording.programs[0].1, "st\\u{1b}[2Jep\\u{9b}31m");
}

#[test]
fn a_job_goes_on_while_a_large_program_of_it_is_hashed() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("train.py");
    job.compile(1, KEEPING).expect("compiles");
    job.upload(1, [1.0; 4]);
    let large = format!("{KEEPING}{}", " ".repeat(40 << 10));
    let programs = Arc::clone(&fixture.host.programs);
    programs.locked(|| {
        job.ask_for(2, &large);
        job.execute(1, 1, &[1], 10);
        job.ended(1)
            .expect("it ran before the program was looked for");
    });
    job.until_compiled().expect("compiles");
    job.execute(2, 2, &[1], 20);
    job.ended(2).expect("it runs");
}
