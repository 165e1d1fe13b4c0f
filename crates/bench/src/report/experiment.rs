//! What an experiment found, in the one form in which it is printed, kept between runs of the report,
//! and drawn.
//!
//! Not here: how anything is measured (`benches`), printed as a table (`text.rs`) or as a page.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::measure::statistics::Verdict;

/// One experiment: `salus bench NAME`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Experiment {
    pub(crate) name: String,
    pub(crate) title: String,
    /// What was typed to get this, with the options that matter.
    pub(crate) command: String,
    /// What ran, in a few sentences.
    pub(crate) what: String,
    pub(crate) claims: Vec<Claim>,
    pub(crate) tables: Vec<Table>,
    pub(crate) plots: Vec<Plot>,
    /// Everything that was measured, for programs.
    pub(crate) numbers: Value,
}

/// A figure that is held against the original's and against a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) what: String,
    /// The original's figure; empty if it gave none.
    pub(crate) original: String,
    pub(crate) target: String,
    pub(crate) measured: String,
    /// How far the rounds are apart; empty where there is one, or where nothing varies.
    pub(crate) spread: String,
    pub(crate) rounds: usize,
    pub(crate) verdict: Judgement,
    /// Why it was missed, or what the figure does not say.
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Judgement {
    Met,
    Missed,
    /// The number is for comparison.
    NoTarget,
}

impl Judgement {
    pub(crate) fn of(met: bool) -> Self {
        match met {
            true => Self::Met,
            false => Self::Missed,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Met => Verdict::Met,
            Self::Missed => Verdict::Missed,
            Self::NoTarget => Verdict::NoTarget,
        }
        .as_str()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    /// The first column is text, the others are numbers with their units.
    pub(crate) rows: Vec<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plot {
    /// The name of its file, where it is one of its own.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) kind: PlotKind,
    /// With the unit.
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) log_x: bool,
    pub(crate) log_y: bool,
    /// For bars: the words under the groups, whose positions are 0, 1, ….
    pub(crate) groups: Vec<String>,
    pub(crate) series: Vec<Series>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlotKind {
    /// One bar of each series in every group.
    Bars,
    Lines,
    /// A value holds until the next point.
    Steps,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "KeptPoint")]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Ends of its spread, where it has one.
    pub(crate) spread: Option<(f64, f64)>,
}

/// A point as it is kept: JSON has `null` for what is not a number.
#[derive(Deserialize)]
struct KeptPoint {
    x: Option<f64>,
    y: Option<f64>,
    spread: Option<(Option<f64>, Option<f64>)>,
}

impl From<KeptPoint> for Point {
    fn from(kept: KeptPoint) -> Self {
        Self {
            x: kept.x.unwrap_or(f64::NAN),
            y: kept.y.unwrap_or(f64::NAN),
            spread: match kept.spread {
                Some((Some(low), Some(high))) => Some((low, high)),
                _ => None,
            },
        }
    }
}

impl Series {
    pub(crate) fn new(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let point = |(x, y)| Point { x, y, spread: None };
        Self {
            name: name.into(),
            points: points.into_iter().map(point).collect(),
        }
    }
}
