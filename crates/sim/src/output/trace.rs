//! Renders reports of traces as text: a line for each policy, and one for each ideal.

use salus_engine::Duration;

use crate::cluster::{Summary, TraceReport};
use crate::ideal::Ideal;
use crate::output::render::percent;
use crate::output::table::{Column, table};
use crate::scenario::quantity::show_bytes;

/// One line of the table.
struct Row {
    name: String,
    completion: Summary,
    to_memory: Option<Summary>,
    to_first: Summary,
    makespan: Duration,
    busy: Option<u64>,
    moved_bytes: Option<u64>,
}

impl Row {
    fn of(report: &TraceReport) -> Self {
        Self {
            name: report.policy.name().into(),
            completion: report.completion(),
            to_memory: Some(report.to_memory()),
            to_first: report.to_first_iteration(),
            makespan: report.makespan,
            busy: Some(report.busy_share()),
            moved_bytes: Some(report.moved_bytes),
        }
    }

    fn of_ideal(name: &str, ideal: &Ideal) -> Self {
        Self {
            name: name.into(),
            completion: ideal.completion(),
            to_memory: None,
            to_first: ideal.to_first_iteration(),
            makespan: ideal.makespan(),
            busy: None,
            moved_bytes: None,
        }
    }
}

/// The same trace under one policy or several, with the ideals where there is one device.
pub fn traces_shown(reports: &[TraceReport]) -> String {
    let Some(first) = reports.first() else {
        return String::new();
    };
    let mut rows: Vec<Row> = reports.iter().map(Row::of).collect();
    if first.devices <= 1 {
        rows.push(Row::of_ideal("ideal srtf", &first.ideal_srtf()));
        rows.push(Row::of_ideal("ideal fair", &first.ideal_fair()));
    }
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let to_memory = |row: &Row, pick: fn(Summary) -> Duration| {
        or_dash(row.to_memory.map(|summary| show_span(pick(summary))))
    };
    let columns = [
        Column::left("POLICY", &rows, |row| row.name.clone()),
        Column::right("COMPLETION", &rows, |row| show_span(row.completion.mean)),
        Column::right("P50", &rows, |row| show_span(row.completion.p50)),
        Column::right("P95", &rows, |row| show_span(row.completion.p95)),
        Column::right("P99", &rows, |row| show_span(row.completion.p99)),
        Column::right("TO MEMORY", &rows, |row| to_memory(row, |s| s.mean)),
        Column::right("P95", &rows, |row| to_memory(row, |s| s.p95)),
        Column::right("TO FIRST ITERATION", &rows, |row| {
            show_span(row.to_first.mean)
        }),
        Column::right("P95", &rows, |row| show_span(row.to_first.p95)),
        Column::right("MAKESPAN", &rows, |row| show_span(row.makespan)),
        Column::right("BUSY", &rows, |row| or_dash(row.busy.map(percent))),
        Column::right("MOVED", &rows, |row| {
            or_dash(row.moved_bytes.map(show_bytes))
        }),
    ];
    format!("{}\n\n{}\n{LEGEND}", caption(first), table(&columns))
}

const LEGEND: &str = "completion, to memory and to first iteration: averages from submission on\n";

fn caption(report: &TraceReport) -> String {
    let devices = match report.devices {
        0 | 1 => "1 device".into(),
        n => format!("{n} devices"),
    };
    let mut caption = format!("{} jobs on {devices}", report.jobs.len());
    let (_, failed, others) = report.fates();
    if failed > 0 {
        caption.push_str(&format!(", {failed} of them fail"));
    }
    if others > 0 {
        caption.push_str(&format!(", {others} of them are refused"));
    }
    caption
}

/// `12ms`, `3.4s`, `53.4min`: one decimal of a unit in which people think.
pub fn show_span(time: Duration) -> String {
    const SECOND: u64 = 1_000_000_000;
    let tenths = |unit: u64| (time.0 + unit / 20) / (unit / 10);
    let shown = |tenths: u64, unit: &str| format!("{}.{}{unit}", tenths / 10, tenths % 10);
    match time.0 {
        0 => "0".into(),
        ns if ns < SECOND => format!("{}ms", (ns + 500_000) / 1_000_000),
        ns if ns < 120 * SECOND => shown(tenths(SECOND), "s"),
        _ => shown(tenths(60 * SECOND), "min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_unit_in_which_people_think() {
        for (ns, text) in [
            (0, "0"),
            (12_400_000, "12ms"),
            (3_449_000_000, "3.4s"),
            (119_960_000_000, "120.0s"),
            (3_204_000_000_000, "53.4min"),
        ] {
            assert_eq!(show_span(Duration(ns)), text);
        }
    }
}
