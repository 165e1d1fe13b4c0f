//! The report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere.
//!
//! First what ran, on what and when; then all claims in one table, each with the command that gives it
//! again; then the experiments with their tables and plots. A target that was missed is shown as missed,
//! with its reason; an experiment that is not there is named.

use serde_json::{Value, json};

use crate::report::experiment::{Claim, Experiment, Judgement, Table};
use crate::report::parts::Part;
use crate::report::plot::{self, Place, escaped};

/// All that a report shows.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) parts: Vec<Part>,
    /// Experiments that have no part, and why.
    pub(crate) absent: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn json(&self) -> Value {
        let absent = |(name, why): &(String, String)| json!({ "name": name, "why": why });
        json!({
            "parts": self.parts,
            "absent": self.absent.iter().map(absent).collect::<Vec<_>>(),
        })
    }

    /// `6 of 9 targets met, 3 missed`.
    pub(crate) fn summary(&self) -> String {
        let claims = self.parts.iter().flat_map(|part| &part.experiment.claims);
        let with = |verdict| claims.clone().filter(|c| c.verdict == verdict).count();
        let (met, missed) = (with(Judgement::Met), with(Judgement::Missed));
        format!("{met} of {} targets met, {missed} missed", met + missed)
    }
}

/// On a phone a claim is a block of lines, each with the title of its column, and plots keep a size at which
/// their words can be read and are scrolled.
const STYLE: &str = "\
:root{color-scheme:light dark;--text:#24292f;--soft:#57606a;--back:#fff;--card:#f6f8fa;--line:#d0d7de;\
--good:#1a7f37;--bad:#b35900}\
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--soft:#9aa4af;--back:#14181d;--card:#1c2128;\
--line:#373e47;--good:#57ab5a;--bad:#e0823d}}\
*{box-sizing:border-box}\
body{margin:0 auto;padding:1rem;max-width:64rem;font:16px/1.5 system-ui,sans-serif;color:var(--text);\
background:var(--back)}\
h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.25rem;margin-top:2.5rem;border-top:1px solid var(--line);\
padding-top:1.5rem}h3{font-size:1rem;margin-bottom:.4rem}\
code{font:.9em ui-monospace,monospace;background:var(--card);padding:.1em .3em;border-radius:4px;\
overflow-wrap:anywhere}\
.soft{color:var(--soft);font-size:.9rem}\
.wide{overflow-x:auto;-webkit-overflow-scrolling:touch}\
table{border-collapse:collapse;font-size:.85rem;min-width:100%}\
th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}\
th{color:var(--soft);font-weight:600;white-space:nowrap}\
.numbers td:not(:first-child),.numbers th:not(:first-child){text-align:right;white-space:nowrap;\
font-variant-numeric:tabular-nums}\
.claims td{min-width:6rem}.claims td:first-child{min-width:11rem}.claims .why{min-width:16rem}\
.met{color:var(--good);font-weight:600}.missed{color:var(--bad);font-weight:600}\
.plot{display:block;width:100%;min-width:30rem;max-width:46rem;height:auto}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;font-size:.9rem}\
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\
@media(max-width:40rem){.plot{min-width:36rem}.claims thead{display:none}\
.claims tr{display:block;padding:.7rem 0;border-bottom:1px solid var(--line)}\
.claims td,.claims td:first-child,.claims .why{display:block;min-width:0;padding:.05rem 0;border:0}\
.claims td[data-is]::before{content:attr(data-is) \": \";color:var(--soft)}}";

pub(crate) fn html(report: &Report) -> String {
    let mut body = format!(
        "<h1>Salus: the experiments</h1>\n<p>{}.</p>\n",
        escaped(&report.summary())
    );
    body.push_str(&machine(report));
    body.push_str("<h2 id=\"claims\">All claims</h2>\n");
    body.push_str(&claims(report));
    body.push_str(&absent(report));
    for part in &report.parts {
        body.push_str(&section(part));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Salus: the experiments</title>\n<style>{STYLE}{}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        plot::STYLE
    )
}

fn field(machine: &Value, key: &str) -> String {
    match &machine[key] {
        Value::String(text) => text.clone(),
        Value::Null => "unknown".into(),
        other => other.to_string(),
    }
}

/// What ran, on what machine, with which versions, when.
fn machine(report: &Report) -> String {
    let Some(first) = report.parts.first() else {
        return String::new();
    };
    let of = |key: &str| field(&first.machine, key);
    let mut dates: Vec<String> = report
        .parts
        .iter()
        .map(|part| field(&part.machine, "date"))
        .collect();
    dates.sort();
    dates.dedup();
    let when = match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (Some(only), _) => only.clone(),
        _ => String::new(),
    };
    let minutes = report
        .parts
        .iter()
        .map(|part| part.took_seconds)
        .sum::<f64>()
        / 60.0;
    let mut lines = vec![
        (
            "command",
            format!("<code>{}</code>", escaped(&first.report)),
        ),
        (
            "when",
            escaped(&format!("{when}; {minutes:.1} minutes of measuring")),
        ),
        (
            "machine",
            escaped(&format!(
                "{}, {} cores, Linux {}",
                of("cpu"),
                of("cores"),
                of("kernel")
            )),
        ),
        (
            "versions",
            escaped(&format!(
                "salus {}, xla-cpu-pjrt {} with a pool of {} threads, JAX {}, jaxlib {}, Flax {}, \
                 Optax {}, Python {}",
                first.salus,
                of("plugin_version"),
                of("pool_threads"),
                of("jax"),
                of("jaxlib"),
                of("flax"),
                of("optax"),
                of("python"),
            )),
        ),
    ];
    if report.parts.iter().any(|part| part.quick) {
        let why = "quick: few short rounds, which show that everything runs and resolve little";
        lines.push(("pace", why.into()));
    }
    let lines: String = lines
        .into_iter()
        .map(|(name, text)| format!("<dt>{name}</dt><dd>{text}</dd>\n"))
        .collect();
    format!("<dl>\n{lines}</dl>\n")
}

/// Columns of the claims; the first three need no title where they stand one below the other.
const TITLES: [&str; 8] = [
    "claim",
    "here",
    "",
    "target",
    "original",
    "rounds, spread",
    "reason",
    "command",
];

fn claims(report: &Report) -> String {
    let mut rows = String::new();
    for part in &report.parts {
        for claim in &part.experiment.claims {
            rows.push_str(&claim_row(claim, &part.experiment));
        }
    }
    let titles: String = TITLES
        .iter()
        .map(|title| format!("<th>{title}</th>"))
        .collect();
    format!(
        "<div class=\"wide\"><table class=\"claims\">\n<thead><tr>{titles}</tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn claim_row(claim: &Claim, experiment: &Experiment) -> String {
    let class = match claim.verdict {
        Judgement::Met => "met",
        Judgement::Missed => "missed",
        Judgement::NoTarget => "soft",
    };
    let spread = match (claim.rounds, claim.spread.is_empty()) {
        (0 | 1, true) => "once".into(),
        (0 | 1, false) => format!("once; {}", claim.spread),
        (n, true) => format!("median of {n}"),
        (n, false) => format!("median of {n}; {}", claim.spread),
    };
    let none = |text: &str| match text.is_empty() {
        true => "–".to_owned(),
        false => prose(text),
    };
    let first = format!(
        "<td><a href=\"#{}\">{}</a></td><td><strong>{}</strong></td><td class=\"{class}\">{}</td>",
        escaped(&experiment.name),
        prose(&claim.what),
        prose(&claim.measured),
        claim.verdict.as_str(),
    );
    let others = [
        none(&claim.target),
        none(&claim.original),
        escaped(&spread),
        none(&claim.reason),
        format!("<code>{}</code>", escaped(&experiment.command)),
    ];
    let others = TITLES[3..].iter().zip(others).map(|(title, text)| {
        let class = if *title == "reason" {
            " class=\"why\""
        } else {
            ""
        };
        format!("<td{class} data-is=\"{title}\">{text}</td>")
    });
    format!("<tr>{first}{}</tr>\n", others.collect::<String>())
}

fn absent(report: &Report) -> String {
    if report.absent.is_empty() {
        return String::new();
    }
    let items: String = report
        .absent
        .iter()
        .map(|(name, why)| format!("<li><code>{}</code>: {}</li>\n", escaped(name), prose(why)))
        .collect();
    format!("<h2>Not in this report</h2>\n<ul>\n{items}</ul>\n")
}

fn section(part: &Part) -> String {
    let experiment = &part.experiment;
    let mut out = format!(
        "<h2 id=\"{}\">{}</h2>\n<p>{}</p>\n<p class=\"soft\"><code>{}</code>, {:.0} s, {} on {} with {} \
         cores, salus {}</p>\n",
        escaped(&experiment.name),
        prose(&experiment.title),
        prose(&experiment.what),
        escaped(&experiment.command),
        part.took_seconds,
        escaped(&field(&part.machine, "date")),
        escaped(&field(&part.machine, "cpu")),
        escaped(&field(&part.machine, "cores")),
        escaped(&part.salus),
    );
    for plot in &experiment.plots {
        let picture = plot::svg(plot, Place::Page);
        out.push_str(&format!("<div class=\"wide\">\n{picture}</div>\n"));
    }
    for table in &experiment.tables {
        out.push_str(&table_html(table));
    }
    out
}

fn table_html(table: &Table) -> String {
    let row = |cells: &[String], tag: &str| {
        let cells = cells
            .iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", prose(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = table.rows.iter().map(|cells| row(cells, "td")).collect();
    format!(
        "<h3>{}</h3>\n<div class=\"wide\"><table class=\"numbers\">\n<thead>{}</thead>\n<tbody>\n{rows}</tbody>\
         </table></div>\n",
        prose(&table.title),
        row(&table.columns, "th"),
    )
}

/// Text in which what stands between backquotes is code.
fn prose(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escaped(text);
    }
    let shown = parts.into_iter().enumerate().map(|(n, part)| match n % 2 {
        0 => escaped(part),
        _ => format!("<code>{}</code>", escaped(part)),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::parts::tests::part;
    use crate::report::plot::tests::well_formed;

    fn report() -> Report {
        Report {
            parts: vec![part("jct"), part("sweep")],
            absent: vec![("pairs".into(), "it failed: a <job> ended".into())],
        }
    }

    #[test]
    fn every_claim_and_command_is_on_the_page() {
        let report = report();
        let page = html(&report);
        for part in &report.parts {
            let experiment = &part.experiment;
            for claim in &experiment.claims {
                assert_eq!(
                    page.matches(&claim.what).count(),
                    if claim.what == "missed one" { 2 } else { 1 }
                );
            }
            // Beside each of its claims and at its section.
            assert_eq!(page.matches(&experiment.command).count(), 3);
            assert!(page.contains(&experiment.title));
        }
        for text in [
            "2 of 4 targets met, 2 missed",
            "class=\"missed\">missed</td>",
            "because of &lt;this&gt;",
            "median of 5; 0.88 to 0.94",
            "3.19 x",
            "A &lt;CPU&gt;, 2 cores",
            "2026-11-18 05:00 UTC",
            "salus 0.1.0",
            "<code>pairs</code>: it failed: a &lt;job&gt; ended",
        ] {
            assert!(page.contains(text), "{text}");
        }
    }

    #[test]
    fn the_page_needs_nothing_else_and_is_well_formed() {
        let page = html(&report());
        assert_eq!(well_formed(&page), Ok(()));
        for outside in ["<script", "<link", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme:dark") && page.contains("name=\"viewport\""));
        assert_eq!(page.matches("<svg").count(), 2);
    }

    #[test]
    fn backquotes_are_code() {
        assert_eq!(prose("under `pack` <"), "under <code>pack</code> &lt;");
        assert_eq!(prose("one ` alone"), "one ` alone");
    }

    #[test]
    fn the_json_has_everything() {
        let json = report().json();
        assert_eq!(json["parts"][1]["experiment"]["numbers"]["times_s"][0], 1.0);
        assert_eq!(json["absent"][0]["name"], "pairs");
    }
}
