//! `salus bench report`: all experiments, one after the other, written down as one page with plots.
//!
//! Each experiment is kept as soon as it has ended, so a report can be interrupted and goes on where it
//! stopped; the page is written anew each time. An experiment that fails does not stop the others: the
//! page says that it failed and why, and the exit status is an error.
//!
//! Not here: what the directory keeps (`report/parts.rs`), how it looks (`report/page.rs`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;

use crate::contenders::setup::Setup;
use crate::experiments::{
    beside_training, fairness, inference, jct, memory, overhead_curve, pairs, replay, simulated,
    sweep,
};
use crate::measure::machine;
use crate::report::experiment::Experiment;
use crate::report::page::{self, Report};
use crate::report::parts::{Directory, Part, Wanted};
use crate::report::plot::{self, Place};
use crate::report::progress::Progress;
use crate::{Common, json_text};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Where it is written, and where an interrupted one is
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    out: PathBuf,
    /// Measure nothing: make the page from what is there
    #[arg(long, conflicts_with = "again")]
    render: bool,
    /// Run these again, although their results are there
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    again: Vec<String>,
}

const DIRECTORY: &str = "salus-report";
const SAY_EVERY: Duration = Duration::from_secs(60);

/// An experiment as the report runs it. Of two values the first is for `--quick`.
struct Entry {
    name: &'static str,
    /// What gives the same on its own.
    command: [&'static str; 2],
    /// About how long it takes on two cores.
    seconds: [f64; 2],
    run: fn(&Setup, quick: bool) -> Result<Experiment, Problem>,
}

/// All of them, in the order of the page: the three headlines first.
const EXPERIMENTS: &[Entry] = &[
    Entry {
        name: "jct",
        command: ["salus bench jct --quick", "salus bench jct"],
        seconds: [70.0, 871.0],
        run: |setup, quick| jct::measure(setup, quick, 5),
    },
    Entry {
        name: "sweep",
        command: ["salus bench sweep --quick", "salus bench sweep --rounds 2"],
        seconds: [50.0, 400.0],
        run: |setup, quick| sweep::measure(setup, quick, 2, sweep::TRIALS),
    },
    Entry {
        name: "inference",
        command: [
            "salus bench inference --quick",
            "salus bench inference --rounds 2",
        ],
        seconds: [60.0, 220.0],
        run: |setup, quick| inference::measure(setup, quick, 2),
    },
    Entry {
        name: "beside-training",
        command: [
            "salus bench policies --only inference --quick",
            "salus bench policies --only inference --rounds 2",
        ],
        seconds: [15.0, 91.0],
        run: |setup, quick| beside_training::measure(setup, quick, 2),
    },
    Entry {
        name: "pairs",
        command: ["salus bench pairs --quick", "salus bench pairs"],
        seconds: [25.0, 442.0],
        run: |setup, quick| pairs::measure(setup, quick, pairs::ROUNDS),
    },
    Entry {
        name: "fairness",
        command: ["salus bench fairness --quick", "salus bench fairness"],
        seconds: [40.0, 71.0],
        run: fairness::measure,
    },
    Entry {
        name: "overhead-curve",
        command: [
            "salus bench overhead-curve --quick",
            "salus bench overhead-curve",
        ],
        seconds: [15.0, 115.0],
        run: |setup, quick| overhead_curve::measure(setup, quick, overhead_curve::ROUNDS),
    },
    Entry {
        name: "memory",
        command: ["salus bench memory --quick", "salus bench memory"],
        seconds: [15.0, 86.0],
        run: memory::measure,
    },
    Entry {
        name: "replay",
        command: [
            "salus bench replay --quick --policies srtf",
            "salus bench replay --policies srtf",
        ],
        seconds: [20.0, 52.0],
        run: |setup, quick| replay::measure(setup, quick, &["srtf".into()]),
    },
    Entry {
        name: "study",
        command: ["salus sim study --seeds 2", "salus sim study"],
        seconds: [3.0, 18.0],
        run: |_, quick| simulated::study(if quick { 2 } else { 30 }),
    },
    Entry {
        name: "scale",
        command: [
            "salus sim scale --jobs 1000 --devices 100",
            "salus sim scale",
        ],
        seconds: [3.0, 26.0],
        run: |_, quick| match quick {
            true => simulated::scale(1000, 100),
            false => simulated::scale(10_000, 1000),
        },
    },
];

impl Entry {
    fn command(&self, quick: bool) -> &'static str {
        self.command[usize::from(!quick)]
    }

    fn seconds(&self, quick: bool) -> f64 {
        self.seconds[usize::from(!quick)]
    }
}

pub(crate) fn report(arguments: &Arguments) -> Outcome {
    let names = || EXPERIMENTS.iter().map(|entry| entry.name);
    let unknown = |name: &&String| !names().any(|one| one == **name);
    if let Some(unknown) = arguments.again.iter().find(unknown) {
        let all = names().collect::<Vec<_>>().join(", ");
        return Err(
            Problem::new(format!("the report has no experiment `{unknown}`"))
                .hint(format!("its experiments are {all}")),
        );
    }
    let directory = Directory(arguments.out.clone());
    if arguments.render {
        let report = render(&directory, &[])?;
        if report.parts.is_empty() {
            return Err(no_results(&directory));
        }
        shown(arguments, &report);
        return Ok(ExitCode::SUCCESS);
    }
    let failed = run(arguments, &directory)?;
    shown(arguments, &render(&directory, &failed)?);
    Ok(match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(output::ERROR),
    })
}

fn no_results(directory: &Directory) -> Problem {
    let shown = directory.0.display();
    Problem::new(format!("there are no results in `{shown}`")).hint(format!(
        "`salus bench report --out {shown}` measures them; with `--quick` in about five minutes"
    ))
}

/// Runs what is not there. Returns which failed, and why.
fn run(arguments: &Arguments, directory: &Directory) -> Result<Vec<(String, String)>, Problem> {
    let quick = arguments.common.quick;
    let setup = arguments.common.setup()?;
    let machine = machine::description(&setup);
    let mut left = Vec::new();
    for entry in EXPERIMENTS {
        let again = arguments.again.iter().any(|name| name == entry.name);
        let wanted = Wanted {
            salus: env!("CARGO_PKG_VERSION"),
            machine: &machine,
            quick,
            command: entry.command(quick),
        };
        if again || is_lacking(directory, entry.name, &wanted)? {
            left.push(entry);
        }
    }
    let seconds = left.iter().map(|entry| (entry.name, entry.seconds(quick)));
    let mut progress = Progress::in_lines("experiment", seconds.collect());
    let mut failed = Vec::new();
    for entry in left {
        progress.begin();
        let began = Instant::now();
        let found = while_saying(&progress, || (entry.run)(&setup, quick));
        progress.end();
        match found {
            Ok(mut experiment) => {
                experiment.name = entry.name.into();
                experiment.command = entry.command(quick).into();
                directory.write_part(&Part {
                    salus: env!("CARGO_PKG_VERSION").into(),
                    machine: machine::description(&setup),
                    quick,
                    report: format!("salus bench report{}", if quick { " --quick" } else { "" }),
                    took_seconds: began.elapsed().as_secs_f64(),
                    experiment,
                })?;
            }
            Err(problem) => {
                output::failure(&problem);
                let first = problem.what.lines().next().unwrap_or_default();
                failed.push((entry.name.to_owned(), format!("it failed: {first}")));
            }
        }
        render(directory, &failed)?;
    }
    Ok(failed)
}

/// Whether there is no such part, or one of something else.
fn is_lacking(directory: &Directory, name: &str, wanted: &Wanted<'_>) -> Result<bool, Problem> {
    let Some(part) = directory.part(name)? else {
        return Ok(true);
    };
    let differs = part.differs(wanted);
    match &differs {
        Some(why) => output::note(&format!("{name} runs again: {why}")),
        None => output::note(&format!("{name} is there, from {}", part.machine["date"])),
    }
    Ok(differs.is_some())
}

/// Does it, and says now and then how far the report is.
fn while_saying<T>(progress: &Progress, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (working, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(SAY_EVERY) == Err(RecvTimeoutError::Timeout) {
                progress.say();
            }
        });
        let done = work();
        drop(working);
        done
    })
}

/// Writes page, JSON and figures from what is there.
fn render(directory: &Directory, failed: &[(String, String)]) -> Result<Report, Problem> {
    let order: Vec<&str> = EXPERIMENTS.iter().map(|entry| entry.name).collect();
    let parts = directory.parts(&order)?;
    let is_there = |name: &str| parts.iter().any(|part| part.experiment.name == name);
    let mut absent = failed.to_vec();
    for name in order {
        if !is_there(name) && !failed.iter().any(|one| one.0 == name) {
            absent.push((name.into(), "not run yet".into()));
        }
    }
    let report = Report { parts, absent };
    if report.parts.is_empty() {
        return Ok(report);
    }
    for plot in report.parts.iter().flat_map(|part| &part.experiment.plots) {
        let name = format!("figures/{}.svg", file_name(&plot.name));
        directory.write(&name, &plot::svg(plot, Place::File))?;
    }
    directory.write("report.json", &json_text(&report.json()))?;
    directory.write("index.html", &page::html(&report))?;
    Ok(report)
}

/// A part is data: it may not lead out of the directory.
fn file_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}

fn shown(arguments: &Arguments, report: &Report) {
    let page = arguments.out.join("index.html");
    arguments.common.print(
        || json_text(&report.json()),
        || {
            let mut text = String::new();
            for part in &report.parts {
                for claim in &part.experiment.claims {
                    let verdict = claim.verdict.as_str();
                    text.push_str(&format!(
                        "{verdict:9}  {}: {}\n",
                        claim.what, claim.measured
                    ));
                }
            }
            for (name, why) in &report.absent {
                text.push_str(&format!("{:9}  {name}: {why}\n", "absent"));
            }
            format!("{text}{}\n{}\n", report.summary(), page.display())
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::parts::tests::{directory, machine, part};

    #[test]
    fn a_report_without_results_names_directory_and_command() {
        let kept = directory();
        let report = render(&kept.directory, &[]).expect("nothing is no error here");
        assert!(report.parts.is_empty());
        let problem = no_results(&kept.directory);
        let shown = kept.directory.0.display().to_string();
        assert_eq!(problem.what, format!("there are no results in `{shown}`"));
        let hint = problem.hint.expect("a way out");
        assert!(
            hint.contains(&format!("salus bench report --out {shown}")),
            "{hint}"
        );
    }

    #[test]
    fn page_json_and_figures_are_made_from_parts() {
        let kept = directory();
        for name in ["sweep", "jct"] {
            kept.directory.write_part(&part(name)).expect("written");
        }
        let failed = [("pairs".to_owned(), "it failed: no".to_owned())];
        let report = render(&kept.directory, &failed).expect("whole parts");
        assert_eq!(report.parts[0].experiment.name, "jct");
        assert_eq!(report.absent[0], failed[0]);
        assert_eq!(report.absent.len(), EXPERIMENTS.len() - 2);
        for name in [
            "index.html",
            "report.json",
            "figures/jct.svg",
            "figures/sweep.svg",
        ] {
            assert!(kept.directory.0.join(name).is_file(), "{name}");
        }
        assert_eq!(file_name("../a b"), "___a_b");
    }

    #[test]
    fn what_is_there_is_not_run_again() {
        let kept = directory();
        let machine = machine();
        let wanted = Wanted {
            salus: "0.1.0",
            machine: &machine,
            quick: false,
            command: "salus bench jct --rounds 5",
        };
        let lacking = || is_lacking(&kept.directory, "jct", &wanted).expect("readable");
        assert!(lacking());
        kept.directory.write_part(&part("jct")).expect("written");
        assert!(!lacking());
        let older = Part {
            salus: "0.0.9".into(),
            ..part("jct")
        };
        kept.directory.write_part(&older).expect("written");
        assert!(lacking());
    }

    #[test]
    fn a_report_takes_as_long_as_promised() {
        for (quick, most) in [(true, 330.0), (false, 2400.0)] {
            let seconds: f64 = EXPERIMENTS.iter().map(|entry| entry.seconds(quick)).sum();
            assert!(seconds <= most, "{seconds}");
        }
        for entry in EXPERIMENTS {
            assert!(
                entry.command.iter().all(|c| c.starts_with("salus ")),
                "{}",
                entry.name
            );
        }
    }
}
