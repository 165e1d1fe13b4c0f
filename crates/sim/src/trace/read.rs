//! Reads a trace: one job a line, by the names of workloads.
//!
//! Either `iterations` or `duration` may be empty: the workload's iteration time gives the other. Where
//! both are there, an iteration takes the one divided by the other. A workload whose iteration time is
//! not in the table needs both.

use std::collections::{BTreeMap, BTreeSet};

use salus_engine::{Duration, Time};

use super::csv::{self, Header};
use super::workloads::{Workload, Workloads, number, positive};
use super::{Iterations, Step, Trace, TraceJob};
use crate::scenario::job_items::AHEAD;
use crate::scenario::tokens::{Problem, Token};

pub(crate) const COLUMNS: [&str; 5] = ["job_id", "model", "iterations", "submit_time", "duration"];

/// A run of more would take hours and its report would fill memory.
const JOBS_MAX: usize = 1_000_000;
const ITERATIONS_MAX: u64 = 1_000_000_000;
/// Ten years: longer than any trace, and the sum of all its jobs is no overflow.
const SECONDS_MAX: u64 = 10 * 365 * 86_400;
const SECOND: u64 = 1_000_000_000;

pub(crate) fn trace(text: &str, workloads: &Workloads) -> Result<Trace, Problem> {
    let mut lines = csv::lines(text);
    let (number, first) = lines.next().unwrap_or((1, ""));
    let header = Header::read(first, number, &COLUMNS, None)?;
    let mut reader = Reader {
        workloads,
        names: BTreeSet::new(),
        programs: BTreeMap::new(),
        jobs: Vec::new(),
    };
    for (number, line) in lines {
        reader.add(&header.row(line, number)?)?;
    }
    match reader.jobs.is_empty() {
        true => Err(Problem {
            line: number,
            column: 1,
            what: "the trace has no jobs, only the header".into(),
            hint: None,
        }),
        false => Ok(Trace::new(reader.jobs)),
    }
}

struct Reader<'a> {
    workloads: &'a Workloads,
    names: BTreeSet<String>,
    /// By workload and iteration time: jobs that agree in both run the same program.
    programs: BTreeMap<(usize, Duration), u64>,
    jobs: Vec<TraceJob>,
}

impl Reader<'_> {
    fn add(&mut self, fields: &[Token<'_>]) -> Result<(), Problem> {
        let [name, model, iterations, submitted, duration] = fields else {
            panic!("a row has as many fields as were asked for")
        };
        if name.text.is_empty() {
            return Err(name.problem("expected the name of a job, found nothing"));
        }
        if self.jobs.len() == JOBS_MAX {
            return Err(name.problem(format!("expected at most {JOBS_MAX} jobs")));
        }
        if !self.names.insert(name.text.to_owned()) {
            return Err(name.problem(format!("there is a job {} already", name.quoted())));
        }
        let place = self.workloads.find(model)?;
        let workload = &self.workloads.all()[place];
        let seconds = |field: &Token<'_>| number(field, SECOND, SECONDS_MAX * SECOND, "seconds");
        let submitted = Time(seconds(submitted)?);
        let (count, each) = length(workload, iterations, duration)?;
        let programs = self.programs.len() as u64;
        let program = *self.programs.entry((place, each)).or_insert(programs);
        let step = Step {
            device: each,
            ..Step::default()
        };
        self.jobs.push(TraceJob {
            name: name.text.to_owned(),
            model: workload.name.clone(),
            submitted,
            memory_bytes: workload.memory_bytes,
            scratch_bytes: workload.scratch_bytes,
            iterations: Iterations::Equal { count, step },
            ahead: AHEAD,
            program,
        });
        Ok(())
    }
}

/// How many iterations a job has, and what each takes.
fn length(
    workload: &Workload,
    iterations: &Token<'_>,
    duration: &Token<'_>,
) -> Result<(u64, Duration), Problem> {
    let given = |field: &Token<'_>, unit: u64, max: u64, of: &str| match field.text {
        "" => Ok(None),
        _ => positive(field, unit, max, of).map(Some),
    };
    let count = given(iterations, 1, ITERATIONS_MAX, "iterations")?;
    let time = given(duration, SECOND, SECONDS_MAX * SECOND, "seconds")?;
    if count.is_some() && iterations.text.contains('.') {
        let found = iterations.quoted();
        return Err(iterations.problem(format!("expected a whole number, found {found}")));
    }
    match (count, time, workload.iteration) {
        (Some(count), Some(time), _) if time < count => {
            let what = format!("{count} iterations cannot take {} seconds", duration.text);
            Err(duration.problem(what))
        }
        (Some(count), Some(time), _) => Ok((count, Duration(time / count))),
        (Some(count), None, Some(each)) => Ok((count, each)),
        (None, Some(time), Some(each)) => Ok((((time + each.0 / 2) / each.0).max(1), each)),
        (None, None, _) => {
            let what = "expected iterations or a duration, found neither";
            Err(iterations.problem(what))
        }
        (_, _, None) => {
            let missing = match count {
                Some(_) => duration,
                None => iterations,
            };
            let name = &workload.name;
            let what = format!("`{name}` needs iterations and a duration, both");
            let why =
                format!("the table of workloads does not say what an iteration of `{name}` takes");
            Err(missing.problem(what).hint(why))
        }
    }
}
