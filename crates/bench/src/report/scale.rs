//! An axis of a plot: which values it spans, where they lie, and where its ticks are.
//!
//! Not here: anything that is drawn (`plot.rs`).

/// About as many ticks are wanted on an axis.
const TICKS: f64 = 6.0;
/// From as many powers of ten on, only these are marked.
const DECADES: i32 = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    /// Where the two ends are drawn.
    from: f64,
    to: f64,
}

impl Scale {
    /// An axis on which all values can be shown, its ends on ticks. Values that are not finite, and on a
    /// logarithmic one those that are not positive, are left out. `zero` has it start at 0.
    pub(crate) fn of(values: impl Iterator<Item = f64>, log: bool, zero: bool) -> Self {
        let usable = values.filter(|v| v.is_finite() && (!log || *v > 0.0));
        let ends = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        let (mut low, mut high) = match ends.0 <= ends.1 {
            true => ends,
            false => (if log { 1.0 } else { 0.0 }, 1.0),
        };
        if log {
            low = mantissas_below(low);
            high = mantissas_above(high).max(low * 2.0);
        } else {
            if zero {
                low = low.min(0.0);
                high = high.max(0.0);
            }
            if high <= low {
                // One value: a little room around it.
                let room = if low == 0.0 { 1.0 } else { low.abs() / 2.0 };
                high = low + room;
            }
            let step = step(high - low);
            low = (low / step).floor() * step;
            high = (high / step).ceil() * step;
        }
        Self {
            low,
            high,
            log,
            from: 0.0,
            to: 1.0,
        }
    }

    /// The same with its ends drawn there.
    pub(crate) fn drawn(self, from: f64, to: f64) -> Self {
        Self { from, to, ..self }
    }

    /// An axis from one value to another, without ticks at its ends.
    pub(crate) fn between(low: f64, high: f64) -> Self {
        Self {
            low,
            high,
            log: false,
            from: 0.0,
            to: 1.0,
        }
    }

    /// Where a value lies; none if it cannot be shown.
    pub(crate) fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.log && value <= 0.0) {
            return None;
        }
        let share = match self.log {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        Some(self.from + share * (self.to - self.from))
    }

    /// The lowest value that can be shown: where bars stand.
    pub(crate) fn base(&self) -> f64 {
        match self.log {
            true => self.low,
            false => self.low.max(0.0),
        }
    }

    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        match self.log {
            true => self.log_ticks(),
            false => self.linear_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<(f64, String)> {
        let step = step(self.high - self.low);
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let count = ((self.high - self.low) / step).round() as usize;
        (0..=count)
            .map(|n| {
                let value = self.low + n as f64 * step;
                // Not -0.
                let value = if value.abs() < step / 2.0 { 0.0 } else { value };
                (value, format!("{value:.decimals$}"))
            })
            .collect()
    }

    fn log_ticks(&self) -> Vec<(f64, String)> {
        let (first, last) = (decade(self.low), decade(self.high));
        let mantissas: &[f64] = match last - first >= DECADES {
            true => &[1.0],
            false => &[1.0, 2.0, 5.0],
        };
        let all = (first..=last).flat_map(|power| {
            let values = mantissas.iter().map(move |m| m * 10_f64.powi(power));
            values.map(move |value| (value, plain(value, power)))
        });
        let slack = 1e-9;
        all.filter(|(v, _)| *v >= self.low * (1.0 - slack) && *v <= self.high * (1.0 + slack))
            .collect()
    }
}

fn plain(value: f64, power: i32) -> String {
    let decimals = (-power).max(0) as usize;
    format!("{value:.decimals$}")
}

/// The power of ten of a value.
fn decade(value: f64) -> i32 {
    (value.log10() + 1e-9).floor() as i32
}

/// 1, 2 or 5 times a power of ten, not above the value.
fn mantissas_below(value: f64) -> f64 {
    let power = 10_f64.powi(decade(value));
    let fits = |m: &&f64| **m * power <= value * (1.0 + 1e-9);
    [5.0, 2.0, 1.0]
        .iter()
        .find(fits)
        .map_or(power, |m| m * power)
}

/// The same, not below it.
fn mantissas_above(value: f64) -> f64 {
    let power = 10_f64.powi(decade(value));
    let fits = |m: &&f64| **m * power >= value * (1.0 - 1e-9);
    let found = [1.0, 2.0, 5.0, 10.0];
    found.iter().find(fits).map_or(10.0 * power, |m| m * power)
}

/// The distance of ticks: 1, 2 or 5 times a power of ten.
fn step(range: f64) -> f64 {
    mantissas_above(range / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(values: &[f64], log: bool) -> String {
        let scale = Scale::of(values.iter().copied(), log, false);
        let ticks: Vec<String> = scale.ticks().into_iter().map(|tick| tick.1).collect();
        ticks.join(" ")
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(ticks(&[0.0, 10.0], false), "0 2 4 6 8 10");
        assert_eq!(ticks(&[0.03, 0.97], false), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(ticks(&[-3.0, 4.0], false), "-4 -2 0 2 4");
        assert_eq!(ticks(&[0.12, 84.0], true), "0.1 1 10 100");
        assert_eq!(ticks(&[8.0, 400.0], true), "5 10 20 50 100 200 500");
    }

    #[test]
    fn nothing_and_one_value_have_an_axis_too() {
        assert_eq!(ticks(&[], false), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(ticks(&[f64::NAN], true), "1 2");
        assert_eq!(ticks(&[4.0], false), "4.0 4.5 5.0 5.5 6.0");
        assert_eq!(ticks(&[0.0, -1.0], true), "1 2");
    }

    #[test]
    fn values_lie_where_they_should() {
        let scale = Scale::of([0.0, 10.0].into_iter(), false, true).drawn(100.0, 0.0);
        assert_eq!(scale.at(2.5), Some(75.0));
        assert_eq!(scale.at(f64::NAN), None);
        let log = Scale::of([1.0, 100.0].into_iter(), true, false).drawn(0.0, 200.0);
        assert!((log.at(10.0).expect("positive") - 100.0).abs() < 1e-9);
        assert_eq!(log.at(0.0), None);
    }
}
