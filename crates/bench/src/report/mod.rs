//! What the run found: a table for people, and all numbers for programs.

pub(crate) mod experiment;
pub(crate) mod page;
pub(crate) mod parts;
pub(crate) mod plot;
pub(crate) mod progress;
pub(crate) mod text;

mod scale;

use salus_daemon::config::Problem;
use serde_json::{Map, Value, json};

use crate::contenders::Reference;
use crate::measure::statistics::{Interval, Verdict};
use crate::rows::row_table::{Pace, Row};
use crate::rows::run::Table;

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) row: String,
    pub(crate) what: String,
    pub(crate) measured: String,
    /// What the same comparison gives between equals.
    pub(crate) floor: String,
    pub(crate) target: String,
    pub(crate) verdict: Verdict,
    /// What one would ask next, in one line.
    pub(crate) detail: String,
    /// Everything, for the JSON.
    pub(crate) numbers: Value,
}

impl Finding {
    /// A finding of this row, with everything measured still to be filled in.
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            row: row.name.into(),
            what: row.what.into(),
            measured: "-".into(),
            floor: "-".into(),
            target: "-".into(),
            verdict: Verdict::Failed,
            detail: String::new(),
            numbers: json!({}),
        }
    }

    /// `step_1ms: 0.994 [0.846, 1.105], target ≤ 1.03, within noise`.
    pub(crate) fn line(&self) -> String {
        let Self {
            row,
            measured,
            target,
            ..
        } = self;
        format!(
            "{row}: {measured}, target {target}, {}",
            self.verdict.as_str()
        )
    }

    pub(crate) fn failed(row: &Row, problem: &Problem) -> Self {
        let first = problem.what.lines().next().unwrap_or_default();
        Self {
            detail: first.into(),
            numbers: json!({ "error": problem.what }),
            ..Self::of(row)
        }
    }

    fn json(&self) -> Value {
        let mut object = Map::new();
        for (key, text) in [("row", &self.row), ("what", &self.what)] {
            object.insert(key.into(), json!(text));
        }
        object.insert("verdict".into(), json!(self.verdict.as_str()));
        if let Value::Object(numbers) = &self.numbers {
            object.extend(numbers.clone());
        }
        Value::Object(object)
    }
}

pub(crate) fn json(of: &Table, machine: &Value, pace: Pace, findings: &[Finding]) -> String {
    let report = json!({
        "bench": of.name,
        "against": of.reference.words(),
        "machine": machine,
        "quick": pace.quick,
        "block_seconds": pace.block().as_secs_f64(),
        "rows": findings.iter().map(Finding::json).collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

pub(crate) fn table(of: &Table, machine: &Value, pace: Pace, findings: &[Finding]) -> String {
    let mut out = header_against(of.reference, machine);
    if pace.quick {
        out.push_str("quick: few short rounds, which show that it runs and resolve nothing\n");
    }
    out.push('\n');
    let titles = [
        "ROW",
        "MEASURED",
        "NOISE FLOOR",
        "TARGET",
        "VERDICT",
        "WHAT",
    ];
    let mut lines = vec![titles.map(String::from)];
    lines.extend(findings.iter().map(|finding| {
        let verdict = finding.verdict.as_str().to_owned();
        let Finding {
            row,
            measured,
            floor,
            target,
            what,
            ..
        } = finding;
        [row, measured, floor, target, &verdict, what].map(String::clone)
    }));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..titles.len()).map(|c| width(c).unwrap_or(0)).collect();
    for (number, line) in lines.iter().enumerate() {
        let mut text = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(cell);
            text.push_str(&" ".repeat(width + 2 - cell.chars().count()));
        }
        out.push_str(text.trim_end());
        out.push('\n');
        if let Some(finding) = number.checked_sub(1).and_then(|i| findings.get(i)) {
            out.push_str(&format!("    {}\n", finding.detail));
        }
    }
    out.push_str(&legend(of.reference));
    out
}

fn legend(reference: Reference) -> String {
    let equals = reference.words();
    let other = match reference {
        Reference::Plugin => "transfers: between two copies",
        Reference::JaxCpu => "neighbours: between two blocks without one",
    };
    format!(
        "
Measured: median over the rounds, divided by the noise floor where both are ratios; in brackets, where it lies
with 95 % confidence. Noise floor: the same between two processes that both use {equals} ({other}).
Met, missed: the whole interval is on that side of the target. Within noise: it is not, or there were fewer than
6 rounds, or other processes disturbed more than half of them.
"
    )
}

pub(crate) fn header(machine: &Value) -> String {
    header_against(Reference::Plugin, machine)
}

fn header_against(reference: Reference, machine: &Value) -> String {
    let field = |key: &str| match &machine[key] {
        Value::String(text) => text.clone(),
        Value::Null => "unknown".into(),
        other => other.to_string(),
    };
    let against = match reference {
        Reference::Plugin => format!("against xla-cpu-pjrt {} directly", field("plugin_version")),
        Reference::JaxCpu => format!(
            "on xla-cpu-pjrt {} against JAX's own CPU backend",
            field("plugin_version")
        ),
    };
    format!(
        "salus {} {against}, pool of {} threads, 1 device\n\
         {}, {} cores, Linux {}\n\
         JAX {}, jaxlib {}, Flax {}, Optax {}, Python {}\n\
         {}\n",
        field("salus"),
        field("pool_threads"),
        field("cpu"),
        field("cores"),
        field("kernel"),
        field("jax"),
        field("jaxlib"),
        field("flax"),
        field("optax"),
        field("python"),
        field("date"),
    )
}

/// A number of a report or of a worker; NaN where there is none.
pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// `1.012 [1.004, 1.021]`; without brackets if there were too few rounds for them.
pub(crate) fn ratio(interval: Interval) -> String {
    let Interval { value, low, high } = interval;
    if low.is_finite() && high.is_finite() {
        format!("{value:.3} [{low:.3}, {high:.3}]")
    } else {
        format!("{value:.3}")
    }
}

/// `84 µs`, `1.24 ms`, `3.35 s`.
pub(crate) fn microseconds(us: f64) -> String {
    match us.abs() {
        x if x < 100.0 => format!("{us:.1} µs"),
        x if x < 1e3 => format!("{us:.0} µs"),
        x if x < 1e6 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benches::overhead::OVERHEAD;
    use crate::benches::overhead::ROWS;

    const PACE: Pace = Pace {
        quick: true,
        pairs: None,
    };

    fn findings() -> Vec<Finding> {
        let interval = Interval {
            value: 1.0123,
            low: 1.0041,
            high: 1.0194,
        };
        let met = Finding {
            measured: ratio(interval),
            floor: "0.998".into(),
            target: "≤ 1.02".into(),
            verdict: Verdict::Met,
            detail: "direct 10.80 ms, Salus 10.93 ms".into(),
            numbers: json!({ "target": 1.02, "measured": interval.json() }),
            ..Finding::of(&ROWS[0])
        };
        let problem = Problem::new("the side `salus` ended\n  Traceback");
        vec![met, Finding::failed(&ROWS[2], &problem)]
    }

    #[test]
    fn a_table_for_people() {
        let machine = json!({ "salus": "0.1.0", "cores": 2 });
        let text = table(&OVERHEAD, &machine, PACE, &findings());
        let body: Vec<&str> = text.lines().skip(6).take(5).collect();
        assert_eq!(
            body.join("\n"),
            "\
ROW            MEASURED              NOISE FLOOR  TARGET  VERDICT  WHAT
step_10ms_mlp  1.012 [1.004, 1.019]  0.998        ≤ 1.02  met      training step of about 10 ms, MLP, loss read every 10 steps
    direct 10.80 ms, Salus 10.93 ms
step_1ms       -                     -            -       failed   step of about 1 ms, loss read every 100 steps
    the side `salus` ended"
        );
        assert!(text.starts_with("salus 0.1.0 against xla-cpu-pjrt unknown directly"));
    }

    #[test]
    fn json_for_programs() {
        let text = json(&OVERHEAD, &json!({ "cores": 2 }), PACE, &findings());
        let report: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(report["bench"], "overhead");
        assert_eq!(report["rows"][0]["row"], "step_10ms_mlp");
        assert_eq!(report["rows"][0]["verdict"], "met");
        assert_eq!(report["rows"][0]["measured"]["ci95"][1], 1.0194);
        assert_eq!(
            report["rows"][1]["error"],
            "the side `salus` ended\n  Traceback"
        );
        assert_eq!(report["machine"]["cores"], 2);
    }

    #[test]
    fn times() {
        for (us, text) in [
            (8.44, "8.4 µs"),
            (-12.0, "-12.0 µs"),
            (841.2, "841 µs"),
            (1_240.0, "1.24 ms"),
            (3_350_000.0, "3.35 s"),
        ] {
            assert_eq!(microseconds(us), text);
        }
    }
}
