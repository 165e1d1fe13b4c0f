//! Rounds: every part of a comparison once, in an order that changes from round to round.
//!
//! Machines drift, and what ran just before warms or cools the caches. So within as many rounds as
//! there are parts, each part has each place once, and every other such group runs mirrored, so
//! that nobody always follows the same neighbour. A round in which others kept the machine busy is
//! thrown away and repeated, a limited number of times.

use fastrand::Rng;
use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::measure::machine::{FOREIGN_CORES, Foreign, Load};

/// What was measured, round by round.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    kept: Vec<Round>,
    repeated: usize,
}

#[derive(Debug)]
struct Round {
    /// By part, whatever the order they ran in.
    samples: Vec<Value>,
    foreign: Foreign,
}

impl Rounds {
    /// Takes `count` rounds of `parts` parts each. `tell` is called with how many are done.
    pub(crate) fn take(
        count: usize,
        parts: usize,
        mut tell: impl FnMut(usize),
        mut part: impl FnMut(usize) -> Result<Value, Problem>,
    ) -> Result<Self, Problem> {
        let mut rounds = Self::default();
        let mut orders = Orders::new(parts);
        while rounds.kept.len() < count {
            tell(rounds.kept.len());
            let mut samples = vec![Value::Null; parts];
            let before = Load::now();
            for index in orders.next() {
                samples[index] = part(index)?;
            }
            let foreign = Load::now().since(before);
            if foreign.disturbs() && rounds.repeated < repeats(count) {
                rounds.repeated += 1;
                continue;
            }
            rounds.kept.push(Round { samples, foreign });
        }
        tell(count);
        Ok(rounds)
    }

    /// One number of one part, round by round.
    pub(crate) fn column(&self, part: usize, key: &str) -> Result<Vec<f64>, Problem> {
        let number = |round: &Round| {
            let sample = &round.samples[part];
            sample[key]
                .as_f64()
                .ok_or_else(|| Problem::new(format!("a block gave no number `{key}` but {sample}")))
        };
        self.kept.iter().map(number).collect()
    }

    /// The ratio of one number of two parts, round by round.
    pub(crate) fn ratios(
        &self,
        above: usize,
        below: usize,
        key: &str,
    ) -> Result<Vec<f64>, Problem> {
        let (above, below) = (self.column(above, key)?, self.column(below, key)?);
        Ok(above.iter().zip(&below).map(|(a, b)| a / b).collect())
    }

    /// `60 rounds, 2 repeated, 0.03 foreign cores`.
    pub(crate) fn remark(&self) -> String {
        let mut remark = format!("{} rounds", self.kept.len());
        if self.repeated > 0 {
            remark.push_str(&format!(", {} more thrown away", self.repeated));
        }
        let mean = self.mean(|foreign| foreign.cores);
        remark.push_str(&format!(", {mean:.2} foreign cores"));
        match self.disturbed() {
            0 => {}
            n => remark.push_str(&format!(" (above {FOREIGN_CORES} in {n})")),
        }
        remark
    }

    /// Whether others disturbed most rounds: then there is no verdict.
    pub(crate) fn busy(&self) -> bool {
        2 * self.disturbed() > self.kept.len()
    }

    fn disturbed(&self) -> usize {
        let disturbed = |round: &&Round| round.foreign.disturbs();
        self.kept.iter().filter(disturbed).count()
    }

    fn mean(&self, of: impl Fn(&Foreign) -> f64) -> f64 {
        self.kept
            .iter()
            .map(|round| of(&round.foreign))
            .sum::<f64>()
            / self.kept.len() as f64
    }

    /// Everything, with the parts under their names.
    pub(crate) fn json(&self, names: &[&str]) -> Value {
        let one = |round: &Round| {
            let mut object = json!({
                "foreign_cores": round.foreign.cores,
                "stolen_cores": round.foreign.stolen,
            });
            for (name, sample) in names.iter().zip(&round.samples) {
                object[*name] = sample.clone();
            }
            object
        };
        json!({
            "count": self.kept.len(),
            "repeated": self.repeated,
            "disturbed": self.disturbed(),
            "foreign_cores": self.mean(|foreign| foreign.cores),
            "stolen_cores": self.mean(|foreign| foreign.stolen),
            "samples": self.kept.iter().map(one).collect::<Vec<_>>(),
        })
    }
}

/// How many rounds may be thrown away: a machine that is never quiet must not hold us forever.
fn repeats(count: usize) -> usize {
    count.div_ceil(2)
}

struct Orders {
    /// The rounds of the current group that are still to come.
    group: Vec<Vec<usize>>,
    parts: usize,
    mirrored: bool,
    random: Rng,
}

impl Orders {
    fn new(parts: usize) -> Self {
        Self {
            group: Vec::new(),
            parts,
            mirrored: false,
            random: Rng::with_seed(7),
        }
    }

    fn next(&mut self) -> Vec<usize> {
        if self.group.is_empty() {
            let mut first: Vec<usize> = (0..self.parts).collect();
            self.random.shuffle(&mut first);
            if self.mirrored {
                first.reverse();
            }
            self.mirrored = !self.mirrored;
            let turned = |by: usize| {
                let mut order = first.clone();
                order.rotate_left(by);
                order
            };
            self.group = (0..self.parts).map(turned).collect();
            self.random.shuffle(&mut self.group);
        }
        self.group.pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_group_of_rounds_every_part_has_every_place_once() {
        for parts in 1..5 {
            let mut orders = Orders::new(parts);
            for _ in 0..8 {
                let group: Vec<Vec<usize>> = (0..parts).map(|_| orders.next()).collect();
                for place in 0..parts {
                    let mut there: Vec<usize> = group.iter().map(|order| order[place]).collect();
                    there.sort_unstable();
                    assert_eq!(there, (0..parts).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn columns_belong_to_parts_whatever_the_order() {
        let mut told = 0;
        let rounds = Rounds::take(
            5,
            3,
            |done| told = done,
            |part| Ok(json!({ "us": (part + 1) as f64 * 10.0 })),
        )
        .expect("nothing fails");
        assert_eq!(told, 5);
        assert_eq!(rounds.column(1, "us").expect("numbers"), [20.0; 5]);
        assert_eq!(rounds.ratios(2, 0, "us").expect("numbers"), [3.0; 5]);
        let problem = rounds.column(1, "ms").expect_err("there is none");
        assert_eq!(
            problem.what,
            "a block gave no number `ms` but {\"us\":20.0}"
        );
    }

    #[test]
    fn what_fails_ends_the_row() {
        let failed = Rounds::take(5, 3, |_| {}, |_| Err(Problem::new("gone")));
        assert_eq!(failed.expect_err("it failed").what, "gone");
    }
}
