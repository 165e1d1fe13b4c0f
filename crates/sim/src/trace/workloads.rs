//! Workloads by name: what an iteration of each takes, and the memory it needs.
//!
//! The built-in table is what the original measured on a P100; every row names its source.

use std::collections::BTreeMap;

use salus_engine::Duration;

use crate::scenario::tokens::{Problem, Token, nearest};
use crate::trace::csv::{self, Header};

const P100: &str = include_str!("../../data/p100-workloads.csv");

const COLUMNS: [&str; 6] = [
    "model",
    "batch_size",
    "kind",
    "iteration_ms",
    "persistent_mib",
    "ephemeral_mib",
];
/// Where a row comes from: free text.
const SOURCE: &str = "source";
/// No real table is longer.
const ROWS_MAX: usize = 10_000;
/// Longer than any iteration, and a million of them are no overflow.
const ITERATION_MAX: Duration = Duration(3_600_000_000_000);
const SIZE_MAX: u64 = 1 << 50;

#[derive(Debug, Clone)]
pub struct Workloads {
    rows: Vec<Workload>,
    /// Training first, where training and inference have the same name.
    by_name: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// `resnet50_50`: the model and its batch size.
    pub name: String,
    pub model: String,
    pub kind: Kind,
    /// What an iteration takes alone, if that is known.
    pub iteration: Option<Duration>,
    /// Persistent and ephemeral memory.
    pub memory_bytes: u64,
    pub scratch_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Training,
    Inference,
}

impl Workloads {
    /// Those of the original, on a P100 with 16 GB.
    pub fn p100() -> Self {
        Self::parse(P100).unwrap_or_else(|problem| panic!("the built-in table, {problem}"))
    }

    /// A table as CSV: `model,batch_size,kind,iteration_ms,persistent_mib,ephemeral_mib`.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let mut lines = csv::lines(text);
        let (number, first) = lines.next().unwrap_or((1, ""));
        let header = Header::read(first, number, &COLUMNS, Some(SOURCE))?;
        let mut table = Self {
            rows: Vec::new(),
            by_name: BTreeMap::new(),
        };
        for (number, line) in lines {
            table.add(&header.row(line, number)?)?;
        }
        match table.rows.is_empty() {
            true => Err(Problem {
                line: number,
                column: 1,
                what: "the table has no workloads, only the header".into(),
                hint: None,
            }),
            false => Ok(table),
        }
    }

    fn add(&mut self, fields: &[Token<'_>]) -> Result<(), Problem> {
        let [model, batch_size, kind, iteration, persistent, ephemeral] = fields else {
            panic!("a row has as many fields as were asked for")
        };
        if model.text.is_empty() {
            return Err(model.problem("expected the name of a model, found nothing"));
        }
        if self.rows.len() == ROWS_MAX {
            return Err(model.problem(format!("expected at most {ROWS_MAX} workloads")));
        }
        let iteration = match iteration.text {
            "" => None,
            _ => Some(positive(
                iteration,
                1_000_000,
                ITERATION_MAX.0,
                "milliseconds",
            )?),
        };
        let workload = Workload {
            name: format!("{}_{}", model.text, batch_size.text),
            model: model.text.to_owned(),
            kind: match kind.text {
                "training" => Kind::Training,
                "inference" => Kind::Inference,
                _ => return Err(kind.unknown("a kind", "kinds are", &["training", "inference"])),
            },
            iteration: iteration.map(Duration),
            memory_bytes: number(persistent, 1 << 20, SIZE_MAX, "MiB")?,
            scratch_bytes: number(ephemeral, 1 << 20, SIZE_MAX, "MiB")?,
        };
        let place = self.rows.len();
        let first = *self.by_name.entry(workload.name.clone()).or_insert(place);
        if first != place && self.rows[first].kind == workload.kind {
            let what = format!("`{}` is in the table twice", workload.name);
            return Err(model.problem(what));
        }
        if workload.kind == Kind::Training {
            self.by_name.insert(workload.name.clone(), place);
        }
        self.rows.push(workload);
        Ok(())
    }

    pub fn all(&self) -> &[Workload] {
        &self.rows
    }

    /// The place of a workload in the table.
    pub(crate) fn find(&self, name: &Token<'_>) -> Result<usize, Problem> {
        if let Some(place) = self.by_name.get(name.text) {
            return Ok(*place);
        }
        let problem = name.problem(format!("{} is not a workload of the table", name.quoted()));
        let names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        let of_model = |row: &&Workload| row.model == name.text;
        let sizes = self.rows.iter().filter(of_model);
        let sizes: Vec<&str> = sizes.map(|row| row.name.as_str()).collect();
        if !sizes.is_empty() {
            let what = format!("a name has the batch size, too: {}", sizes.join(", "));
            return Err(problem.hint(what));
        }
        if let Some(near) = nearest(name.text, &names) {
            return Err(problem.hint(format!("did you mean `{near}`?")));
        }
        let mut models: Vec<&str> = self.rows.iter().map(|row| row.model.as_str()).collect();
        models.dedup();
        models.sort_unstable();
        models.dedup();
        let models = models.join(", ");
        Err(problem.hint(format!(
            "a name is a model and its batch size, as in `{}`; models are {models}",
            self.rows[0].name
        )))
    }
}

/// A number that is not negative, times `unit`.
pub(crate) fn number(field: &Token<'_>, unit: u64, max: u64, of: &str) -> Result<u64, Problem> {
    if let Some(value) = csv::scaled(field.text, unit).filter(|value| *value <= max) {
        return Ok(value);
    }
    let found = match field.text {
        "" => "nothing".to_owned(),
        _ => field.quoted(),
    };
    let digits = field.text.strip_prefix('-').unwrap_or(field.text);
    let what = match csv::scaled(digits, 1) {
        Some(_) if digits != field.text => format!("expected {of}, found {found}: less than zero"),
        Some(_) => format!("expected at most {} {of}, found {found}", max / unit),
        None => format!("expected a number of {of}, found {found}"),
    };
    Err(field.problem(what))
}

/// The same, and not zero.
pub(crate) fn positive(field: &Token<'_>, unit: u64, max: u64, of: &str) -> Result<u64, Problem> {
    match number(field, unit, max, of)? {
        0 => Err(field.problem(format!(
            "expected more than 0 {of}, found {}",
            field.quoted()
        ))),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_the_original_s() {
        let table = Workloads::p100();
        assert_eq!(table.all().len(), 99);
        let timed = |row: &&Workload| row.kind == Kind::Training && row.iteration.is_some();
        assert_eq!(table.all().iter().filter(timed).count(), 34);
        let resnet = &table.all()[table.by_name["resnet50_50"]];
        assert_eq!(resnet.iteration, Some(Duration(225_700_000)));
        assert_eq!(resnet.memory_bytes >> 20, 338);
        // Of two with the same name, the one that trains.
        assert_eq!(
            table.all()[table.by_name["seq2seq_small"]].kind,
            Kind::Training
        );
    }

    #[test]
    fn a_wrong_table_is_an_error_with_its_place() {
        let header = "model,batch_size,kind,iteration_ms,persistent_mib,ephemeral_mib\n";
        for (row, what) in [
            (
                "",
                "line 1, column 1: the table has no workloads, only the header",
            ),
            ("a,1,train,1,1,1", "line 2, column 5: `train` is not a kind"),
            (
                "a,1,training,0,1,1",
                "line 2, column 14: expected more than 0 milliseconds, found `0`",
            ),
            (
                "a,1,training,,-1,1",
                "line 2, column 15: expected MiB, found `-1`: less than zero",
            ),
            (
                "a,1,training,,1,",
                "line 2, column 17: expected a number of MiB, found nothing",
            ),
            (
                "a,1,training,1",
                "line 2, column 14: the line ends after 4 of 6 fields: `persistent_mib` is missing",
            ),
            (
                "a,1,training,1,1,1\na,1,training,1,1,1",
                "line 3, column 1: `a_1` is in the table twice",
            ),
        ] {
            let found = Workloads::parse(&format!("{header}{row}\n")).map(drop);
            assert_eq!(
                found.map_err(|problem| problem.to_string()),
                Err(what.to_owned())
            );
        }
    }
}
