//! Rows in which the sides run the same loop in turns: the ratio of their times.

use salus_daemon::config::Problem;
use serde_json::json;

use crate::contenders::{AGAIN, DIRECT, SALUS, SIDES};
use crate::measure::rounds::Rounds;
use crate::measure::statistics::{Comparison, Verdict, median};
use crate::report::{Finding, microseconds, ratio};
use crate::rows::row_table::Row;
use crate::rows::run::Run;

/// The sides' names in the JSON, by part.
pub(crate) const NAMES: [&str; SIDES] = ["direct", "salus", "again"];

pub(crate) fn measure(
    run: &mut Run<'_>,
    row: &'static Row,
    key: &str,
    target: f64,
) -> Result<Vec<Finding>, Problem> {
    let (block, count) = (run.pace.block(), run.pace.rounds(row));
    let warm = run.pace.warm();
    let (sides, progress) = run.sides()?;
    let prepared = sides.prepare(row.name, warm)?;
    let rounds = Rounds::take(
        count,
        SIDES,
        |done| progress.rounds(done, count),
        |side| sides.block(side, row.name, block),
    )?;
    sides.drop_row(row.name)?;

    let comparison = Comparison::of(
        &rounds.ratios(SALUS, DIRECT, key)?,
        &rounds.ratios(AGAIN, DIRECT, key)?,
    );
    let direct_us = median(rounds.column(DIRECT, key)?.into_iter());
    let salus_us = median(rounds.column(SALUS, key)?.into_iter());
    let arguments = prepared["arguments"].as_u64().unwrap_or(0);
    Ok(vec![Finding {
        measured: ratio(comparison.quotient),
        floor: format!("{:.3}", comparison.floor.median),
        target: format!("≤ {target}"),
        verdict: Verdict::at_most(comparison.quotient, target).unless_busy(rounds.busy()),
        detail: format!(
            "direct {}, Salus {}, {arguments} arguments; Salus/direct {:.3} (p15–p85 {:.2}–{:.2}), \
             direct/direct p15–p85 {:.2}–{:.2}; {}",
            microseconds(direct_us),
            microseconds(salus_us),
            comparison.through.median,
            comparison.through.p15,
            comparison.through.p85,
            comparison.floor.p15,
            comparison.floor.p85,
            rounds.remark(),
        ),
        numbers: json!({
            "unit": "ratio",
            "target": target,
            "ratios": comparison.json(),
            "measured": comparison.quotient.json(),
            "direct_us": direct_us,
            "salus_us": salus_us,
            "arguments": arguments,
            "rounds": rounds.json(&NAMES),
        }),
        ..Finding::of(row)
    }])
}
