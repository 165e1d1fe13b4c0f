//! `salus ps`: the devices and their sessions, as a table or as JSON.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use salus_daemon::log::tame;
use salus_daemon::paths::Places;
use salus_units::{Bytes, show_ms};
use salus_wire::Request;
use serde_json::Value;

use crate::{Format, NO, Outcome, Where, ask, output};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Where,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) fn ps(arguments: &Arguments) -> Outcome {
    let places = Places::of_this_process();
    let named = arguments.place.socket.as_deref();
    let answered = match ask::find(&places, named)? {
        Some(socket) => ask::ask(&socket, Request::Report)?,
        None => None,
    };
    let Some(answered) = answered else {
        output::failure(&ask::nobody(&places, named));
        return Ok(NO);
    };
    output::data(&match arguments.output {
        Format::Json => format!("{:#}\n", answered.json),
        Format::Table => table(&answered.json),
    });
    Ok(ExitCode::SUCCESS)
}

type Cell = fn(&Value) -> String;

/// A column: its title, its key in the report, how a value is shown, whether it is a number.
const COLUMNS: &[(&str, &str, Cell, bool)] = &[
    ("ID", "id", plain, true),
    ("NAME", "name", plain, false),
    ("PID", "pid", plain, true),
    ("USER", "user", plain, false),
    ("STATE", "state", plain, false),
    ("ITERATIONS", "iterations", plain, true),
    ("DEVICE TIME", "device_time_ms", time, true),
    ("WAITING", "waiting_ms", time, true),
    ("RESIDENT", "resident_bytes", size, true),
    ("PAGED", "paged_bytes", size, true),
    ("SCRATCH", "scratch_bytes", size, true),
];

/// The one that says where a session is, where there are several devices.
const DEVICE: (&str, &str, Cell, bool) = ("DEVICE", "device", plain, false);

/// A job may call itself anything; the table stays one.
const CELL_CHARS: usize = 32;

fn table(report: &Value) -> String {
    let none = Vec::new();
    let devices = report["devices"].as_array().unwrap_or(&none);
    let several = devices.len() > 1;
    let mut out = match several {
        true => devices.iter().map(line_of).collect(),
        false => device_line(&report["device"], &report["service"]),
    };
    if let Some(waiting) = waiting(&report["service"]).filter(|_| several) {
        out.push_str(&format!("{waiting} a device\n"));
    }
    for convicted in report["service"]["convicted"]
        .as_array()
        .into_iter()
        .flatten()
    {
        out.push_str(&format!(
            "refused: the program `{}` ended the device host ({}) for {}\n",
            plain(&convicted["name"]),
            plain(&convicted["how"]),
            whole(&convicted["session"]),
        ));
    }
    let no_sessions = Vec::new();
    let sessions = report["sessions"].as_array().unwrap_or(&no_sessions);
    if sessions.is_empty() {
        out.push_str("no session is open\n");
        return out;
    }
    let mut columns = COLUMNS.to_vec();
    if several {
        columns.insert(2, DEVICE);
    }
    let mut rows = vec![columns.iter().map(|c| c.0.to_owned()).collect::<Vec<_>>()];
    for session in sessions {
        let cell = |(_, key, show, _): &(&str, &str, Cell, bool)| show(&session[*key]);
        rows.push(columns.iter().map(cell).collect());
    }
    let numbers: Vec<bool> = columns.iter().map(|column| column.3).collect();
    out.push_str(&aligned(&rows, &numbers));
    let is_told = |one: &&Value| !one["overdue_ms"].is_null() || one["state"] == "killed";
    for session in sessions.iter().filter(is_told) {
        out.push_str(&format!(
            "session {}: {}\n",
            session["id"],
            whole(&session["why"])
        ));
    }
    out
}

/// A sentence of the service's own, escaped and not cut.
fn whole(value: &Value) -> String {
    tame(value.as_str().unwrap_or("-"))
}

/// `numbers`: the columns whose cells are aligned to the right.
fn aligned(rows: &[Vec<String>], numbers: &[bool]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..numbers.len()).map(|c| width(c).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, width), is_number) in row.iter().zip(&widths).zip(numbers) {
            let padding = " ".repeat(width - cell.chars().count());
            let (before, after) = if *is_number {
                (padding.as_str(), "")
            } else {
                ("", padding.as_str())
            };
            line.push_str(&format!("{before}{cell}{after}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// `salus 0.1.0 serves cpu (Host CPU): 1 lane, fair, 23.4 GiB, and 2.0 GiB of host memory for pages, at
/// /run/salus/salus.sock`: the numbers of the line below, when nobody is there yet.
pub(crate) fn serves(devices: &[Value], socket: &Path) -> String {
    let several = devices.len() > 1;
    let one = |device: &Value| {
        let called = match several {
            true => named(device),
            false => called(device),
        };
        format!(
            "{called}: {}, {}, {}, and {} of host memory for pages",
            lanes(device),
            plain(&device["policy"]),
            size(&device["capacity_bytes"]),
            size(&device["ledger"]["host_room_bytes"]),
        )
    };
    format!(
        "salus {} serves {}, at {}",
        env!("CARGO_PKG_VERSION"),
        devices.iter().map(one).collect::<Vec<_>>().join("; "),
        socket.display()
    )
}

/// `cuda:1 (NVIDIA A100)`.
fn named(device: &Value) -> String {
    format!("{} ({})", plain(&device["name"]), plain(&device["kind"]))
}

/// `cpu (Host CPU)`.
fn called(device: &Value) -> String {
    format!(
        "{} ({})",
        plain(&device["platform"]),
        plain(&device["kind"])
    )
}

fn lanes(device: &Value) -> String {
    match device["lanes"].as_u64() {
        Some(1) => "1 lane".into(),
        Some(n) => format!("{n} lanes"),
        None => "lanes not known".into(),
    }
}

/// `2 jobs wait for`, if any do.
fn waiting(service: &Value) -> Option<String> {
    match service["waiting_jobs"].as_u64() {
        None | Some(0) => None,
        Some(1) => Some("1 job waits for".into()),
        Some(n) => Some(format!("{n} jobs wait for")),
    }
}

/// `cpu (Host CPU): 1 lane, fair, 1.2 GiB of 23.4 GiB in use, peak 2.0 GiB, 0 B of 2.0 GiB paged out`.
fn device_line(device: &Value, service: &Value) -> String {
    if device["platform"].is_null() {
        let state = device["state"].as_str().unwrap_or("not known");
        let waiting = waiting(service).map_or_else(String::new, |who| format!(", {who} it"));
        return format!("the device is {}{waiting}\n", tame(state));
    }
    format!("{}: {}\n", called(device), in_use(device))
}

/// The same of one of several: `cuda:1 (NVIDIA A100): 1 lane, …`.
fn line_of(device: &Value) -> String {
    let name = plain(&device["name"]);
    if let Some(why) = device["given_up"].as_str() {
        return format!("{name} is not served: {}\n", tame(why));
    }
    if device["platform"].is_null() {
        let state = device["state"].as_str().unwrap_or("not known");
        return format!("{name} is {}\n", tame(state));
    }
    format!("{}: {}\n", named(device), in_use(device))
}

fn in_use(device: &Value) -> String {
    format!(
        "{}, {}, {} of {} in use, peak {}, {} of {} paged out",
        lanes(device),
        plain(&device["policy"]),
        size(&device["resident_bytes"]),
        size(&device["capacity_bytes"]),
        size(&device["peak_bytes"]),
        size(&device["paged_bytes"]),
        size(&device["ledger"]["host_room_bytes"]),
    )
}

fn plain(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".into(),
        Value::String(text) => tame(text),
        other => other.to_string(),
    };
    if text.chars().count() <= CELL_CHARS {
        return text;
    }
    let mut short: String = text.chars().take(CELL_CHARS - 1).collect();
    short.push('…');
    short
}

fn size(value: &Value) -> String {
    value
        .as_u64()
        .map_or_else(|| "-".into(), |bytes| Bytes(bytes).to_string())
}

fn time(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".into(), show_ms)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_for_people() {
        let report = json!({
            "device": {
                "platform": "cpu", "kind": "Host CPU", "lanes": 1, "policy": "fair",
                "capacity_bytes": 25_125_558_681u64, "resident_bytes": 1_288_490_189u64,
                "peak_bytes": 2u64 << 30, "paged_bytes": 1u64 << 20,
                "ledger": { "host_room_bytes": 3u64 << 30 },
            },
            "sessions": [
                { "id": 7, "name": "train.py", "pid": 4121, "user": "anna", "state": "running",
                  "iterations": 1200, "device_time_ms": 5321.4, "waiting_ms": 12.0,
                  "resident_bytes": 536_870_912, "paged_bytes": 0, "scratch_bytes": 1024 },
                { "id": 12, "name": "a\nb", "pid": 9, "user": "b", "state": "idle" },
            ],
        });
        let expected = "\
cpu (Host CPU): 1 lane, fair, 1.2 GiB of 23.4 GiB in use, peak 2.0 GiB, 1.0 MiB of 3.0 GiB paged out
ID  NAME       PID  USER  STATE    ITERATIONS  DEVICE TIME  WAITING   RESIDENT  PAGED  SCRATCH
 7  train.py  4121  anna  running        1200        5.3 s    12 ms  512.0 MiB    0 B  1.0 KiB
12  a\\nb         9  b     idle              -            -        -          -      -        -
";
        assert_eq!(table(&report), expected);
        assert_eq!(
            serves(
                std::slice::from_ref(&report["device"]),
                Path::new("/run/salus/salus.sock")
            ),
            concat!(
                "salus ",
                env!("CARGO_PKG_VERSION"),
                " serves cpu (Host CPU): 1 lane, fair, 23.4 GiB, and 3.0 GiB of host memory for \
                 pages, at /run/salus/salus.sock"
            )
        );
    }

    #[test]
    fn several_devices_have_a_line_each_and_sessions_say_where_they_are() {
        let device = |name: &str| {
            json!({
                "name": name, "platform": "cuda", "kind": "H100", "lanes": 1, "policy": "fair",
                "capacity_bytes": 1u64 << 30, "resident_bytes": 0, "peak_bytes": 0,
                "paged_bytes": 0, "ledger": { "host_room_bytes": 1u64 << 30 },
            })
        };
        let report = json!({
            "device": device("cuda:0"), "service": { "waiting_jobs": 1 },
            "devices": [
                device("cuda:0"),
                { "name": "cuda:1", "state": "starting again" },
                { "name": "cuda:2", "state": "given up", "given_up": "it cannot be opened" },
            ],
            "sessions": [{ "id": 7, "name": "train.py", "device": "cuda:0", "user": "anna" }],
        });
        let table = table(&report);
        let expected = "\
cuda:0 (H100): 1 lane, fair, 0 B of 1.0 GiB in use, peak 0 B, 0 B of 1.0 GiB paged out
cuda:1 is starting again
cuda:2 is not served: it cannot be opened
1 job waits for a device
ID  NAME      DEVICE  PID  USER";
        assert!(table.starts_with(expected), "{table}");
        assert!(table.contains(" 7  train.py  cuda:0    -  anna"), "{table}");
        let line = serves(&[device("cuda:0"), device("cuda:1")], Path::new("/s"));
        assert!(line.contains("serves cuda:0 (H100): 1 lane"), "{line}");
        assert!(line.contains("; cuda:1 (H100): 1 lane"), "{line}");
        assert!(!line.contains('\n'), "it is one line");
    }

    #[test]
    fn a_device_that_is_not_up_is_said_to_be_so() {
        let report = json!({
            "device": { "state": "starting" }, "sessions": [], "service": { "waiting_jobs": 2 },
        });
        assert_eq!(
            table(&report),
            "the device is starting, 2 jobs wait for it\nno session is open\n"
        );
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(plain(&json!("x".repeat(40))).chars().count(), CELL_CHARS);
    }
}
