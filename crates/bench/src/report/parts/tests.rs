use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::json;

use super::*;
use crate::report::experiment::{Claim, Judgement, Plot, PlotKind, Point, Series, Table};

pub(crate) fn machine() -> Value {
    json!({
        "date": "2026-11-18 05:00 UTC", "cpu": "A <CPU>", "cores": 2, "kernel": "6.1", "jax": "0.10.2",
        "plugin_version": "0.0.1", "python": "3.11", "pool_threads": 2, "salus": "0.1.0",
    })
}

pub(crate) fn part(name: &str) -> Part {
    let claim = |what: &str, verdict, reason: &str| Claim {
        what: what.into(),
        original: "3.19 x".into(),
        target: "at least 0.85".into(),
        measured: "0.91".into(),
        spread: "0.88 to 0.94".into(),
        rounds: 5,
        verdict,
        reason: reason.into(),
    };
    Part {
        salus: "0.1.0".into(),
        machine: machine(),
        quick: false,
        report: "salus bench report".into(),
        took_seconds: 61.0,
        experiment: Experiment {
            name: name.into(),
            title: format!("Title of {name}"),
            command: format!("salus bench {name} --rounds 5"),
            what: "Jobs & more".into(),
            claims: vec![
                claim(&format!("gain of {name}"), Judgement::Met, ""),
                claim("missed one", Judgement::Missed, "because of <this>"),
            ],
            tables: vec![Table {
                title: "times".into(),
                columns: vec!["job".into(), "time".into()],
                rows: vec![vec!["a<b".into(), "1 s".into()]],
            }],
            plots: vec![Plot {
                name: name.into(),
                title: "Times".into(),
                kind: PlotKind::Bars,
                x: String::new(),
                y: "s".into(),
                log_x: false,
                log_y: false,
                groups: vec!["a".into()],
                series: vec![Series::new("one", [(0.0, 1.0)])],
            }],
            numbers: json!({ "times_s": [1.0] }),
        },
    }
}

/// A directory that goes with it. Not the harness's: its keeper starts this program again, which here
/// would be all tests.
pub(crate) struct Temporary {
    pub(crate) directory: Directory,
}

pub(crate) fn directory() -> Temporary {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let name = format!("salus-report-test-{}-{number}", std::process::id());
    Temporary {
        directory: Directory(std::env::temp_dir().join(name)),
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A test that failed before it wrote anything has none.
        let _ = fs::remove_dir_all(&self.directory.0);
    }
}

fn wanted<'a>(machine: &'a Value, command: &'a str) -> Wanted<'a> {
    Wanted {
        salus: "0.1.0",
        machine,
        quick: false,
        command,
    }
}

#[test]
fn a_part_comes_back_as_it_was_written() {
    let kept = directory();
    assert_eq!(kept.directory.part("jct").expect("there is none"), None);
    kept.directory.write_part(&part("jct")).expect("written");
    let found = kept.directory.part("jct").expect("it is whole");
    assert_eq!(found, Some(part("jct")));
}

#[test]
fn numbers_that_are_none_come_back_as_such() {
    let kept = directory();
    let mut odd = part("jct");
    odd.experiment.plots[0].series[0].points = vec![Point {
        x: 1.0,
        y: f64::NAN,
        spread: Some((f64::NAN, 2.0)),
    }];
    kept.directory.write_part(&odd).expect("written");
    let found = kept
        .directory
        .part("jct")
        .expect("it is whole")
        .expect("it is there");
    let point = found.experiment.plots[0].series[0].points[0];
    assert!(point.y.is_nan() && point.spread.is_none(), "{point:?}");
}

#[test]
fn parts_of_another_version_machine_pace_or_command_are_run_again() {
    let (here, command) = (machine(), "salus bench jct --rounds 5");
    let one = part("jct");
    assert_eq!(one.differs(&wanted(&here, command)), None);
    let mut later = machine();
    later["date"] = json!("2027-01-01 00:00 UTC");
    assert_eq!(one.differs(&wanted(&later, command)), None);
    later["cores"] = json!(8);
    let cases = [
        (
            wanted(&later, command),
            "it is of another machine: `cores` was 2",
        ),
        (
            wanted(&here, "salus bench jct"),
            "it is of `salus bench jct --rounds 5`",
        ),
        (
            Wanted {
                salus: "0.2.0",
                ..wanted(&here, command)
            },
            "it is of salus 0.1.0",
        ),
        (
            Wanted {
                quick: true,
                ..wanted(&here, command)
            },
            "it ran without --quick",
        ),
    ];
    for (wanted, why) in cases {
        assert_eq!(one.differs(&wanted).as_deref(), Some(why));
    }
}

#[test]
fn parts_are_in_the_order_of_the_experiments() {
    let kept = directory();
    for name in ["zeta", "alpha", "sweep", "jct"] {
        kept.directory.write_part(&part(name)).expect("written");
    }
    let parts = kept
        .directory
        .parts(&["jct", "sweep", "pairs"])
        .expect("whole");
    let names: Vec<&str> = parts
        .iter()
        .map(|part| part.experiment.name.as_str())
        .collect();
    assert_eq!(names, ["jct", "sweep", "alpha", "zeta"]);
}

#[test]
fn a_damaged_part_is_named() {
    let kept = directory();
    kept.directory.write_part(&part("jct")).expect("written");
    let path = kept.directory.path_of_part("jct");
    let text = fs::read_to_string(&path).expect("it is there");
    fs::write(&path, &text[..text.len() / 2]).expect("cut off");
    for found in [
        kept.directory.part("jct").map(drop),
        kept.directory.parts(&[]).map(drop),
    ] {
        let problem = found.expect_err("it is cut off");
        let shown = path.display().to_string();
        assert!(
            problem
                .what
                .starts_with(&format!("`{shown}` is damaged: EOF")),
            "{}",
            problem.what
        );
        assert!(problem.hint.expect("a way out").contains("--again jct"));
    }
    fs::rename(&path, kept.directory.path_of_part("sweep")).expect("renamed");
    fs::write(kept.directory.path_of_part("sweep"), text).expect("whole again");
    let problem = kept.directory.part("sweep").expect_err("it is another's");
    assert!(
        problem.what.ends_with("is damaged: it holds `jct`"),
        "{}",
        problem.what
    );
}
