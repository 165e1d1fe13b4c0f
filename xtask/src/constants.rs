//! Numbers that documents quote from the code: `` `AGING_LIMIT` (30 s) ``.

use crate::repository::{Finding, Repository, pattern};

pub(crate) fn check(repository: &Repository) -> Result<Vec<Finding>, String> {
    let quoted = pattern(r"`([A-Z][A-Z0-9_]+)` \(([0-9][0-9.,]*) ?([a-zA-Zµ]*)\)");
    let mut findings = Vec::new();
    for document in repository.documents() {
        for (line, text) in document.lines() {
            for found in quoted.captures_iter(text) {
                let Some(stated) = quantity(&found[2], &found[3]) else {
                    let message = format!("`{}`: no unit `{}`", &found[1], &found[3]);
                    findings.push(document.finding(line, message));
                    continue;
                };
                let values = values(repository, &found[1]);
                if !values.contains(&stated) {
                    let message = format!(
                        "`{}` is stated as {} {}, found {values:?} in the code (ns, bytes or counts)",
                        &found[1], &found[2], &found[3]
                    );
                    findings.push(document.finding(line, message));
                }
            }
        }
    }
    Ok(findings)
}

/// In nanoseconds, bytes or as a count.
fn quantity(number: &str, unit: &str) -> Option<u128> {
    let scale: u128 = match unit {
        "" | "B" | "ns" => 1,
        "µs" | "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    let number = number.replace(',', "");
    match number.split_once('.') {
        None => Some(number.parse::<u128>().ok()? * scale),
        Some((whole, part)) => {
            let denominator = 10u128.pow(u32::try_from(part.len()).ok()?);
            let tenths = format!("{whole}{part}").parse::<u128>().ok()?;
            Some(tenths * scale / denominator)
        }
    }
}

/// The values of all constants of this name.
fn values(repository: &Repository, name: &str) -> Vec<u128> {
    let definition = pattern(&format!(r"(?s)const {name}: [^=]+ = ([^;]+);"));
    let mut values = Vec::new();
    for source in repository.sources() {
        for found in definition.captures_iter(&source.text) {
            values.extend(evaluate(&found[1]));
        }
    }
    values
}

/// `32`, `1 << 20`, `64 * 1024`, `Duration::from_secs(30)`, `Duration(30_000_000_000)`.
fn evaluate(expression: &str) -> Option<u128> {
    let text = expression.replace('_', "");
    let text = text.trim();
    let call = pattern(r"^(?:[A-Za-z:]*::)?([A-Za-z0-9]+)\((.*)\)$");
    if let Some(found) = call.captures(text) {
        let inner = evaluate(&found[2])?;
        return Some(match &found[1] {
            "fromsecs" => inner * 1_000_000_000,
            "frommillis" => inner * 1_000_000,
            "frommicros" => inner * 1_000,
            "Duration" | "fromnanos" | "new" => inner,
            _ => return None,
        });
    }
    if let Some((left, right)) = text.split_once("<<") {
        return Some(evaluate(left)? << evaluate(right)?);
    }
    if let Some((left, right)) = text.split_once('*') {
        return Some(evaluate(left)? * evaluate(right)?);
    }
    text.trim_end_matches(char::is_alphabetic)
        .trim()
        .parse()
        .ok()
}
