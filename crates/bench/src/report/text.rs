//! An experiment as text for a terminal: its claims, then its tables.

use serde_json::Value;

use crate::report::experiment::{Claim, Experiment, Table};
use crate::report::header;

/// The column of a table from which numbers are aligned to the right.
const FIRST_NUMBER: usize = 1;

pub(crate) fn shown(experiment: &Experiment, machine: &Value) -> String {
    let mut out = header(machine);
    out.push_str(&format!("\n{}\n", experiment.what));
    for table in &experiment.tables {
        out.push('\n');
        out.push_str(&table_text(table));
    }
    for claim in &experiment.claims {
        out.push('\n');
        out.push_str(&claim_text(claim));
    }
    out
}

fn claim_text(claim: &Claim) -> String {
    let Claim {
        what,
        original,
        target,
        measured,
        spread,
        rounds,
        ..
    } = claim;
    let mut text = format!("{what}: {measured}");
    if *rounds > 1 {
        text.push_str(&format!(", median of {rounds}"));
    }
    if !spread.is_empty() {
        text.push_str(&format!(", {spread}"));
    }
    text.push('\n');
    if !target.is_empty() {
        text.push_str(&format!(
            "    target {target}: {}\n",
            claim.verdict.as_str()
        ));
    }
    if !original.is_empty() {
        text.push_str(&format!("    the original: {original}\n"));
    }
    if !claim.reason.is_empty() {
        text.push_str(&format!("    {}\n", claim.reason));
    }
    text
}

fn table_text(table: &Table) -> String {
    let titles: Vec<String> = table.columns.iter().map(|c| c.to_uppercase()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&titles).chain(&table.rows).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut out = format!("{}\n", table.title);
    for line in &lines {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let space = " ".repeat(width(column) - cell.chars().count());
            match column < FIRST_NUMBER {
                true => text.push_str(&format!("{cell}{space}")),
                false => text.push_str(&format!("  {space}{cell}")),
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiment::Judgement;

    #[test]
    fn numbers_stand_below_each_other() {
        let table = Table {
            title: "two jobs".into(),
            columns: vec!["job".into(), "time".into()],
            rows: vec![
                vec!["short".into(), "9 ms".into()],
                vec!["longer".into(), "1.2 s".into()],
            ],
        };
        let text = "two jobs\nJOB      TIME\nshort    9 ms\nlonger  1.2 s\n";
        assert_eq!(table_text(&table), text);
    }

    #[test]
    fn a_claim_says_how_it_stands() {
        let claim = Claim {
            what: "gain of `srtf`".into(),
            original: "3.19 ×".into(),
            target: "at least 0.85".into(),
            measured: "0.80".into(),
            spread: "0.75 to 0.84".into(),
            rounds: 5,
            verdict: Judgement::Missed,
            reason: "compilation takes both cores".into(),
        };
        let text = "gain of `srtf`: 0.80, median of 5, 0.75 to 0.84\n    \
                    target at least 0.85: missed\n    the original: 3.19 ×\n    \
                    compilation takes both cores\n";
        assert_eq!(claim_text(&claim), text);
    }
}
