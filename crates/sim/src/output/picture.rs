//! Draws the picture of a run: a row for each job, a column for each step of time.
//!
//! A column shows what the job did for the longest part of it; of two that lasted as long, the one
//! that stands first in [`LEGEND`].

use salus_engine::{Duration, Time};

use crate::output::timeline::{State, Timeline};
use crate::scenario::Command;
use crate::scenario::quantity::show_time;

/// A page's width, for pictures whose step is not given.
const COLUMNS: u64 = 100;
/// Where a step is given that would take more columns, another is taken: it would fill memory.
const COLUMNS_MAX: u64 = 1000;
/// Columns from one label of the axis to the next.
const LABELS: usize = 10;

pub(crate) const LEGEND: [(char, &str); 6] = [
    ('#', "runs"),
    ('~', "its arrays move"),
    ('=', "waits for memory"),
    ('-', "waits for its turn"),
    ('|', "paused"),
    ('.', "away"),
];

/// One column, for a run of this length.
pub(crate) fn step(wanted: Option<Duration>, end: Time) -> Duration {
    let fits = |step: &Duration, columns: u64| end.0.div_ceil(step.0) <= columns;
    if let Some(step) = wanted.filter(|step| fits(step, COLUMNS_MAX)) {
        return step;
    }
    let mut power = 1;
    loop {
        let steps = [1, 2, 5].map(|n| Duration(n * power));
        if let Some(step) = steps.into_iter().find(|step| fits(step, COLUMNS)) {
            return step;
        }
        power *= 10;
    }
}

pub(crate) fn row(timeline: &Timeline, end: Time, step: Duration, lanes: u32) -> String {
    let columns = end.0.div_ceil(step.0) as usize;
    // How long each state lasted in each column; the states in the order of the legend.
    let mut times = vec![[0u64; LEGEND.len()]; columns];
    let mut lane_of = vec![0; columns];
    for (since, until, state) in timeline.parts(end) {
        let mut from = since.0;
        while from < until.0 {
            let column = (from / step.0) as usize;
            let to = until.0.min((from / step.0 + 1) * step.0);
            times[column][place(state)] += to - from;
            if let State::Runs(lane) = state {
                lane_of[column] = lane.0;
            }
            from = to;
        }
    }
    let columns = times.iter().zip(lane_of).map(|(times, lane)| {
        let most = times.iter().max();
        let longest = times
            .iter()
            .position(|time| Some(time) == most)
            .unwrap_or(0);
        match LEGEND[longest].0 {
            '#' if lanes > 1 => char::from_digit(lane + 1, 10).unwrap_or('#'),
            other => other,
        }
    });
    columns.collect()
}

fn place(state: State) -> usize {
    match state {
        State::Runs(_) => 0,
        State::Moves => 1,
        State::Memory => 2,
        State::Turn => 3,
        State::Paused => 4,
        State::Away => 5,
    }
}

/// A mark in each column in which a command is given.
pub(crate) fn commands(commands: &[(Time, Command)], end: Time, step: Duration) -> String {
    let mut row = String::new();
    for (at, _) in commands.iter().filter(|(at, _)| *at < end) {
        let column = (at.0 / step.0) as usize;
        if row.len() <= column {
            row.extend(std::iter::repeat_n(' ', column - row.len()));
            row.push('^');
        }
    }
    row
}

/// Times above the columns, from the left edge.
pub(crate) fn axis(step: Duration, columns: usize) -> String {
    let mut axis = String::new();
    for column in (0..columns.max(1)).step_by(LABELS) {
        // A long label takes the place of the next.
        if axis.is_empty() || axis.len() < column {
            axis.extend(std::iter::repeat_n(' ', column - axis.len()));
            axis.push_str(&show_time(Duration(step.0 * column as u64)));
        }
    }
    axis
}
