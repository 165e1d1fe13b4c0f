//! Traces give the tables that stand beside them, the same ones each time, and wrong ones clear errors.
//!
//! `traces/NAME.csv` is a trace as `salus sim` takes it, and `NAME.expected` what `salus sim --compare`
//! prints. `SALUS_BLESS=1` writes the latter anew; look at it before it is kept.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use salus_engine::{Duration, Policy, Time};
use salus_sim::{
    Estimates, Fate, Generator, Iterations, Placement, Setup, Step, Trace, TraceJob, TraceReport,
    Workloads, traces_shown,
};

const HEADER: &str = "job_id,model,iterations,submit_time,duration\n";

fn parse(text: &str) -> Trace {
    let trace = Trace::parse(text, &Workloads::p100());
    trace.unwrap_or_else(|problem| panic!("{problem}"))
}

fn compared(trace: &Trace, setup: &Setup) -> Vec<TraceReport> {
    let under = |policy| trace.run(&Setup { policy, ..*setup });
    Policy::ALL.into_iter().map(under).collect()
}

#[test]
fn a_trace_gives_the_table_beside_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let text = fs::read_to_string(folder.join("five-jobs.csv")).expect("it can be read");
    let found = traces_shown(&compared(&parse(&text), &Setup::default()));
    let path = folder.join("five-jobs.expected");
    #[expect(clippy::disallowed_methods, reason = "how one blesses")]
    if std::env::var("SALUS_BLESS").is_ok_and(|bless| bless == "1") {
        fs::write(&path, &found).expect("it can be written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(expected, found);
}

#[test]
fn the_manual_shows_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manual = fs::read_to_string(root.join("../../docs/simulation.md")).expect("it is there");
    for file in ["five-jobs.csv", "five-jobs.expected"] {
        let text = fs::read_to_string(root.join("traces").join(file)).expect("it can be read");
        assert!(manual.contains(&format!("```text\n{text}```")), "{file}");
    }
}

/// A few jobs of a generated trace, shortened so that a debug build runs them in no time.
fn small(seed: u64, jobs: u64) -> Trace {
    let generator = Generator {
        jobs,
        seed,
        load: 6000,
    };
    let trace = generator.trace(&Workloads::p100()).expect("there are some");
    let jobs = trace.jobs().iter().cloned().map(|mut job| {
        if let Iterations::Equal { count, .. } = &mut job.iterations {
            *count = count.div_ceil(50);
        }
        job.submitted.0 /= 50;
        job
    });
    Trace::new(jobs.collect())
}

#[test]
fn equal_traces_and_seeds_give_equal_reports() {
    let setup = Setup {
        estimates: Estimates::Wrong(500),
        failures: 300,
        seed: 7,
        devices: 3,
        ..Setup::default()
    };
    for placement in Placement::ALL {
        let setup = Setup { placement, ..setup };
        let texts = [(); 2].map(|()| format!("{:?}", compared(&small(1, 20), &setup)));
        assert_eq!(texts[0], texts[1]);
    }
}

#[test]
fn every_policy_runs_all_jobs_to_their_end() {
    let trace = small(2, 30);
    for report in compared(&trace, &Setup::default()) {
        assert_eq!(report.fates(), (30, 0, 0), "{}", report.policy.name());
        for (job, asked) in report.jobs.iter().zip(trace.jobs()) {
            assert_eq!(job.iterations, asked.iterations.count());
            let (granted, began) = (job.granted_at, job.began_at);
            let ended = job.ended_at();
            assert!(job.submitted <= granted.expect("it ran") && granted <= began && began < ended);
        }
        // Nothing is faster than the device: one lane does a second of work in a second.
        let work: u64 = report.jobs.iter().map(|job| job.service.0).sum();
        assert!(report.policy.co_runs() || report.busy.0 == work);
        assert!(report.busy <= report.makespan);
    }
}

#[test]
fn failures_and_estimates_are_the_same_under_every_policy() {
    let trace = small(3, 30);
    let setup = Setup {
        failures: 500,
        estimates: Estimates::None,
        ..Setup::default()
    };
    let failed = |report: &TraceReport| -> Vec<(String, u64)> {
        let failed = report
            .jobs
            .iter()
            .filter(|job| matches!(job.fate, Fate::Killed(_)));
        failed
            .map(|job| (job.name.clone(), job.service.0))
            .collect()
    };
    let reports = compared(&trace, &setup);
    let first = failed(&reports[0]);
    assert!((5..=25).contains(&first.len()), "{first:?}");
    for report in &reports {
        assert_eq!(failed(report), first, "{}", report.policy.name());
    }
}

#[test]
fn jobs_are_spread_over_devices_by_the_rule() {
    let job = |id: u64| format!("{id},resnet50_50,5,0,\n");
    let text: String = (1..=6).map(job).collect();
    let trace = parse(&format!("{HEADER}{text}"));
    let devices = |placement| -> Vec<usize> {
        let report = trace.run(&Setup {
            devices: 3,
            placement,
            memory_bytes: 7 << 30,
            ..Setup::default()
        });
        report.jobs.iter().map(|job| job.device).collect()
    };
    assert_eq!(devices(Placement::LeastLoaded), [0, 1, 2, 0, 1, 2]);
    // 6.1 GiB of scratch, and 0.33 GiB of arrays each: two fit.
    assert_eq!(devices(Placement::FirstFit), [0, 0, 1, 1, 2, 2]);
}

#[test]
fn recorded_iterations_have_their_own_times() {
    let step = |host: u64, device: u64| Step {
        host: Duration(host * 1_000_000),
        device: Duration(device * 1_000_000),
        ..Step::default()
    };
    let job = TraceJob {
        name: "recorded".into(),
        model: "mine".into(),
        submitted: Time(0),
        memory_bytes: 0,
        scratch_bytes: 0,
        iterations: Iterations::Recorded(Arc::new([step(5, 10), step(1, 20), step(7, 30)])),
        ahead: 1,
        program: 0,
    };
    let report = Trace::new(vec![job]).run(&Setup::default());
    assert_eq!(report.jobs[0].service, Duration(60_000_000));
    // With one launch at a time the host's part comes before each.
    assert_eq!(report.completion().mean, Duration(73_000_000));
}

#[test]
fn a_job_that_fits_no_device_is_refused_and_the_others_run() {
    let text = format!("{HEADER}a,resnet152_75,2,0,\nb,alexnet_25,2,0,\n");
    let setup = Setup {
        memory_bytes: 8 << 30,
        ..Setup::default()
    };
    let report = parse(&text).run(&setup);
    assert_eq!(report.fates(), (1, 0, 1));
    assert!(matches!(report.jobs[0].fate, Fate::Refused(..)));
}

#[test]
fn a_header_tells_a_trace_from_a_scenario() {
    assert!(Trace::is_trace(HEADER) && Trace::is_trace("\njob,model\n"));
    for scenario in [
        "a: 5 x 10ms, weight 2\n",
        "policy fair\n",
        "# a, b\npolicy fair\n",
        "",
    ] {
        assert!(!Trace::is_trace(scenario), "{scenario}");
    }
}

#[track_caller]
fn refused(text: &str, what: &str, hint: Option<&str>) {
    let found = Trace::parse(text, &Workloads::p100()).map(drop);
    let problem = found.expect_err("it is no trace");
    assert_eq!(problem.to_string(), what);
    assert_eq!(problem.hint.as_deref(), hint);
}

#[test]
fn a_missing_column_is_named() {
    let columns = "the columns are job_id,model,iterations,submit_time,duration";
    let what = "line 1, column 1: the column `submit_time` is missing; the last is `duration`";
    refused("job_id,model,iterations,duration\n", what, Some(columns));
}

#[test]
fn an_unknown_model_is_named_with_the_nearest() {
    let what = "line 2, column 3: `resnet5_50` is not a workload of the table";
    let hint = Some("did you mean `resnet50_50`?");
    refused(&format!("{HEADER}a,resnet5_50,1,0,\n"), what, hint);
    let what = "line 2, column 3: `speech` is not a workload of the table";
    let hint = "a name has the batch size, too: speech_25, speech_50, speech_75, speech_1, \
                speech_5, speech_10";
    refused(&format!("{HEADER}a,speech,1,0,\n"), what, Some(hint));
}

#[test]
fn wrong_values_say_what_was_expected() {
    for (row, what) in [
        (
            "a,vae_64,1,-3,1",
            "column 12: expected seconds, found `-3`: less than zero",
        ),
        (
            "a,vae_64,1,soon,1",
            "column 12: expected a number of seconds, found `soon`",
        ),
        (
            "a,vae_64,1,,1",
            "column 12: expected a number of seconds, found nothing",
        ),
        (
            "a,vae_64,1,9e9,1",
            "column 12: expected a number of seconds, found `9e9`",
        ),
        (
            "a,vae_64,1,99999999999,1",
            "column 12: expected at most 315360000 seconds, found `99999999999`",
        ),
        (
            "a,vae_64,0,1,1",
            "column 10: expected more than 0 iterations, found `0`",
        ),
        (
            "a,vae_64,1.5,1,1",
            "column 10: expected a whole number, found `1.5`",
        ),
        (
            "a,vae_64,,1,",
            "column 10: expected iterations or a duration, found neither",
        ),
        (
            ",vae_64,1,1,1",
            "column 1: expected the name of a job, found nothing",
        ),
        ("a,vae_64,1,1,1,1", "column 16: expected 5 fields, found 6"),
        (
            "a,vae_64,9,1,0.000000001",
            "column 14: 9 iterations cannot take 0.000000001 seconds",
        ),
    ] {
        refused(
            &format!("{HEADER}{row}\n"),
            &format!("line 2, {what}"),
            None,
        );
    }
    let what = "line 3, column 1: there is a job `a` already";
    refused(
        &format!("{HEADER}a,vae_64,1,1,1\na,vae_64,1,1,1\n"),
        what,
        None,
    );
}

#[test]
fn a_workload_without_an_iteration_time_needs_both() {
    let what = "line 2, column 14: `vae_64` needs iterations and a duration, both";
    let hint = "the table of workloads does not say what an iteration of `vae_64` takes";
    refused(&format!("{HEADER}a,vae_64,1,1,\n"), what, Some(hint));
}

#[test]
fn a_trace_that_was_cut_off_is_told_from_a_whole_one() {
    let what = "line 3, column 3: the line ends after 2 of 5 fields: `iterations` is missing";
    let text = format!("{HEADER}a,vae_64,1,1,1\nb,vae_6");
    refused(&text, what, Some("is the file cut off?"));
    let what = "line 1, column 1: the trace has no jobs, only the header";
    refused(HEADER, what, None);
}
