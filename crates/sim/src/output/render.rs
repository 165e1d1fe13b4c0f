//! Renders a report as text: the picture, a table of the jobs, the totals; and a table of several reports.

use salus_engine::{Duration, Time};

use crate::output::picture::{self, LEGEND};
use crate::output::report::{Fate, JobReport, Report};
use crate::output::table::{Column, table};
use crate::scenario::quantity::{show_bytes, show_time};

/// All of a run.
pub fn shown(report: &Report) -> String {
    let mut out = caption(report);
    out.push_str(&picture(report));
    out.push('\n');
    out.push_str(&jobs(report));
    out.push('\n');
    out.push_str(&totals(report));
    for note in &report.notes {
        out.push_str(note);
        out.push('\n');
    }
    out
}

/// One line for each report: the same jobs under several policies.
pub fn compared(reports: &[Report]) -> String {
    let mut columns = vec![
        Column::left("POLICY", reports, |r| r.policy.name().into()),
        Column::right("AVERAGE COMPLETION", reports, |r| {
            or_dash(r.average_completion)
        }),
        Column::right("MAKESPAN", reports, |r| or_dash(r.makespan)),
        Column::right("LONGEST WAIT", reports, |r| show_time(r.longest_wait)),
        Column::right("BUSY", reports, |r| percent(r.busy_share())),
        Column::right("MOVED", reports, |r| show_bytes(r.moved_bytes)),
    ];
    if reports.iter().any(|report| report.late.is_some()) {
        let late = |r: &Report| r.late.map_or_else(|| "-".into(), |n| n.to_string());
        columns.push(Column::right("LATE", reports, late));
    }
    table(&columns)
}

fn caption(report: &Report) -> String {
    let lanes = match (report.lanes, report.width) {
        (1, _) => "1 lane".into(),
        (lanes, width) if lanes == width => format!("{lanes} lanes"),
        (lanes, width) => format!("{lanes} lanes, width {width}"),
    };
    let step = show_time(report.step);
    format!("{}, {lanes}, a column is {step}\n\n", report.policy.name())
}

fn picture(report: &Report) -> String {
    let names = report.jobs.iter().map(|job| job.name.len());
    let width = names.max().unwrap_or(0).max(2);
    let columns = report.jobs.iter().map(|job| job.picture.len()).max();
    let axis = picture::axis(report.step, columns.unwrap_or(0));
    let mut out = format!("{:width$} {axis}\n", "");
    for job in &report.jobs {
        out.push_str(&format!("{:width$} {}\n", job.name, job.picture));
    }
    if !report.commands.is_empty() {
        out.push_str(&format!("{:width$} {}\n", "at", report.commands));
    }
    out.push_str(&format!("\n{}\n", legend(report)));
    out
}

/// What the characters mean that are there.
fn legend(report: &Report) -> String {
    let is_there = |char: char| report.jobs.iter().any(|job| job.picture.contains(char));
    let mut parts = Vec::new();
    if report.lanes > 1 {
        parts.push("1 2 … runs in that lane".to_owned());
    }
    let there = LEGEND.into_iter().filter(|(char, _)| is_there(*char));
    parts.extend(there.map(|(char, what)| format!("{char} {what}")));
    if !report.commands.is_empty() {
        parts.push("^ a command".into());
    }
    parts.join("   ")
}

/// How long a job did something.
type Spent = fn(&JobReport) -> Duration;

fn jobs(report: &Report) -> String {
    let jobs = &report.jobs;
    let mut columns = vec![
        Column::left("JOB", jobs, |job| job.name.clone()),
        Column::right("ITERATIONS", jobs, |job| job.iterations.to_string()),
        Column::right("DEVICE TIME", jobs, |job| show_time(job.device_time)),
    ];
    let reasons: [(&str, Spent); 4] = [
        ("TURN WAIT", |job| job.waited.turn),
        ("MEMORY WAIT", |job| job.waited.memory),
        ("MOVING", |job| job.waited.moves),
        ("PAUSED", |job| job.waited.paused),
    ];
    // The turn always: it is what policies are about.
    for (title, time) in reasons {
        if title == "TURN WAIT" || jobs.iter().any(|job| time(job).0 > 0) {
            columns.push(Column::right(title, jobs, |job| show_time(time(job))));
        }
    }
    columns.push(Column::right("FINISHED", jobs, finished));
    columns.push(Column::right("SHARE", jobs, |job| percent(job.share)));
    if jobs.iter().any(|job| job.latency.is_some()) {
        columns.push(Column::right("WORST LATENCY", jobs, |job| {
            or_dash(job.latency.map(|latency| latency.worst))
        }));
    }
    if report.late.is_some() {
        columns.push(Column::right("LATE", jobs, |job| {
            let late = job.latency.and_then(|latency| latency.late);
            late.map_or_else(|| "-".into(), |late| late.to_string())
        }));
    }
    table(&columns)
}

fn finished(job: &JobReport) -> String {
    match job.fate {
        Fate::Finished(at) => show_time(at - Time(0)),
        Fate::Killed(_) => "killed".into(),
        Fate::Refused(..) => "refused".into(),
        Fate::Unfinished => "-".into(),
    }
}

fn totals(report: &Report) -> String {
    let average = or_dash(report.average_completion);
    let end = match report.makespan {
        Some(makespan) => format!("makespan {}", show_time(makespan)),
        None => format!("the run ends at {}", show_time(report.ended_at - Time(0))),
    };
    let wait = show_time(report.longest_wait);
    let switches = match report.switches {
        1 => "1 switch".into(),
        n => format!("{n} switches"),
    };
    let moved = show_bytes(report.moved_bytes);
    format!(
        "average completion {average}, {end}, longest wait {wait}\n\
         device busy {}, {moved} moved, {switches}\n",
        percent(report.busy_share())
    )
}

fn or_dash(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".into(), show_time)
}

pub(crate) fn percent(thousandths: u64) -> String {
    format!("{}%", (thousandths + 5) / 10)
}
