//! Requests beside a training job, as an experiment of the report: the part `inference` of `salus bench
//! policies`.

use salus_daemon::config::Problem;
use serde_json::Value;

use crate::benches::policies;
use crate::contenders::setup::Setup;
use crate::report::experiment::{
    Claim, Experiment, Judgement, Plot, PlotKind, Point, Series, Table,
};
use crate::report::number;

pub(crate) fn measure(setup: &Setup, quick: bool, rounds: usize) -> Result<Experiment, Problem> {
    policies::inference(setup, quick, rounds).map(experiment)
}

fn experiment(found: Value) -> Experiment {
    let rounds = Rounds(found["rounds"].as_array().cloned().unwrap_or_default());
    let of = |key: &str| number(&found[key]);
    let (beside, bound) = (of("beside_p99_ms"), of("p99_bound_ms"));
    let (kept, least) = (of("training_kept"), of("training_target"));
    let claim = |what: &str, original: &str, target, measured, key, met, reason: &str| Claim {
        what: what.into(),
        original: original.into(),
        target,
        measured,
        spread: rounds.ends(key),
        rounds: rounds.0.len(),
        verdict: Judgement::of(met),
        reason: reason.into(),
    };
    Experiment {
        name: "beside-training".into(),
        title: "Inference beside training".into(),
        command: "salus bench policies --only inference".into(),
        what: format!(
            "One model is asked 20 times a second at random times, alone and beside a training job whose \
             iterations take {:.1} ms, under `deadline`; in turn.",
            of("training_iteration_ms"),
        ),
        claims: vec![
            claim(
                "p99 of a request beside a training job",
                "the median doubles: 9 to 19.7 ms, 15 to 32 ms, 23 to 50 ms",
                format!("at most {bound:.2} ms"),
                format!("{beside:.2} ms ({:.2} ms alone)", of("alone_p99_ms")),
                "beside_p99_ms",
                beside <= bound,
                "the target is p99 alone, one iteration of training, and a tenth more",
            ),
            claim(
                "what training keeps of the device time that inference leaves",
                "",
                format!("at least {least}"),
                format!("{kept:.3}"),
                "training_kept",
                kept >= least,
                "",
            ),
        ],
        tables: vec![Table {
            title: "latency of a request, median of the rounds".into(),
            columns: ["", "p50", "p99"].map(String::from).to_vec(),
            rows: ["alone", "beside"]
                .map(|way| {
                    let ms = |figure: &str| format!("{:.2} ms", of(&format!("{way}_{figure}_ms")));
                    vec![way.to_owned(), ms("median"), ms("p99")]
                })
                .to_vec(),
        }],
        plots: vec![plot(&rounds, &found)],
        numbers: found,
    }
}

struct Rounds(Vec<Value>);

impl Rounds {
    fn spread(&self, key: &str) -> (f64, f64) {
        let values = self.0.iter().map(|round| number(&round[key]));
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        })
    }

    fn ends(&self, key: &str) -> String {
        let (low, high) = self.spread(key);
        format!("{low:.2} to {high:.2}")
    }
}

fn plot(rounds: &Rounds, found: &Value) -> Plot {
    let series = |way: &str| {
        let points = ["median", "p99"].iter().enumerate().map(|(n, figure)| {
            let key = format!("{way}_{figure}_ms");
            Point {
                x: n as f64,
                y: number(&found[&key]),
                spread: Some(rounds.spread(&key)),
            }
        });
        Series {
            name: way.into(),
            points: points.collect(),
        }
    };
    Plot {
        name: "beside-training".into(),
        title: "Latency of a request alone and beside a training job".into(),
        kind: PlotKind::Bars,
        x: String::new(),
        y: "ms".into(),
        log_x: false,
        log_y: false,
        groups: vec!["median".into(), "p99".into()],
        series: vec![series("alone"), series("beside")],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_round_that_is_too_slow_is_shown_as_missed() {
        let found = json!({
            "rounds": [
                { "beside_p99_ms": 20.0, "training_kept": 0.95 },
                { "beside_p99_ms": 30.0, "training_kept": 0.97 },
            ],
            "alone_p99_ms": 5.0, "beside_p99_ms": 25.0, "p99_bound_ms": 17.0,
            "training_kept": 0.96, "training_target": 0.9, "training_iteration_ms": 10.0,
        });
        let claims = experiment(found).claims;
        assert_eq!(claims[0].verdict, Judgement::Missed);
        assert_eq!(claims[0].measured, "25.00 ms (5.00 ms alone)");
        assert_eq!(
            (claims[0].spread.as_str(), claims[0].rounds),
            ("20.00 to 30.00", 2)
        );
        assert_eq!(claims[1].verdict, Judgement::Met);
    }
}
