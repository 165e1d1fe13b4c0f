//! A large array to the device and back, each against one warm copy of that size.
//!
//! The copies are made in the same process and the same block, so that the machine's drift does not
//! count; two of them, so that the noise floor is known.

use salus_daemon::config::Problem;
use serde_json::json;

use crate::contenders::{DIRECT, SALUS, SIDES};
use crate::measure::rounds::Rounds;
use crate::measure::statistics::{Spread, Verdict, median};
use crate::report::{Finding, microseconds, ratio};
use crate::rows::ratio_rows::NAMES;
use crate::rows::row_table::Row;
use crate::rows::run::Run;

pub(crate) fn measure(
    run: &mut Run<'_>,
    row: &'static Row,
    target: f64,
) -> Result<Vec<Finding>, Problem> {
    let (block, count) = (run.pace.block(), run.pace.rounds(row));
    let warm = run.pace.warm();
    let (sides, progress) = run.sides()?;
    sides.prepare(row.name, warm)?;
    let rounds = Rounds::take(
        count,
        SIDES,
        |done| progress.rounds(done, count),
        |side| sides.block(side, row.name, block),
    )?;
    sides.drop_row(row.name)?;
    let to_device = finding(row, target, &rounds, "to_device", "to the device")?;
    let used = "to the device, until a program has read one number of it";
    let to_program = finding(row, target, &rounds, "to_program", used)?;
    let to_host = finding(row, target, &rounds, "to_host", "back to the host")?;
    Ok(vec![to_device, to_program, to_host])
}

fn finding(
    row: &'static Row,
    target: f64,
    rounds: &Rounds,
    way: &str,
    shown: &str,
) -> Result<Finding, Problem> {
    let key = format!("{way}_us");
    let in_copies = |side: usize| -> Result<Vec<f64>, Problem> {
        let copies = copies(rounds, side)?;
        let times = rounds.column(side, &key)?;
        Ok(times.iter().zip(&copies).map(|(t, c)| t / c).collect())
    };
    let salus = Spread::of(&in_copies(SALUS)?);
    let direct = Spread::of(&in_copies(DIRECT)?);
    let again: Vec<f64> = rounds
        .column(SALUS, "copy_again_us")?
        .iter()
        .zip(rounds.column(SALUS, "copy_us")?)
        .map(|(again, first)| again / first)
        .collect();
    let floor = Spread::of(&again);
    let salus_us = median(rounds.column(SALUS, &key)?.into_iter());
    let direct_us = median(rounds.column(DIRECT, &key)?.into_iter());
    let copy_us = median(copies(rounds, SALUS)?.into_iter());
    Ok(Finding {
        row: way.into(),
        what: format!("{}, {shown}", row.what),
        measured: ratio(salus.interval),
        floor: format!("{:.3}", floor.median),
        target: format!("≤ {target}"),
        verdict: Verdict::at_most(salus.interval, target).unless_busy(rounds.busy()),
        detail: format!(
            "Salus {} (p15–p85 {:.2}–{:.2} copies), a copy {}, direct {} ({:.2} copies); {}",
            microseconds(salus_us),
            salus.p15,
            salus.p85,
            microseconds(copy_us),
            microseconds(direct_us),
            direct.median,
            rounds.remark(),
        ),
        numbers: json!({
            "unit": "copies",
            "target": target,
            "measured": salus.interval.json(),
            "salus": salus.json(),
            "direct": direct.json(),
            "copy_again_to_copy": floor.json(),
            "salus_us": salus_us,
            "direct_us": direct_us,
            "copy_us": copy_us,
            "rounds": rounds.json(&NAMES),
        }),
    })
}

/// The mean of the two copies, round by round.
fn copies(rounds: &Rounds, side: usize) -> Result<Vec<f64>, Problem> {
    let first = rounds.column(side, "copy_us")?;
    let again = rounds.column(side, "copy_again_us")?;
    Ok(first
        .iter()
        .zip(&again)
        .map(|(a, b)| (a + b) / 2.0)
        .collect())
}
