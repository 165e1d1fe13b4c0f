//! What is said of a job, item by item: `weight 2, from 0ms, 5 x 10ms`.
//!
//! Each item stands once; only the iterations must be there.

use std::num::NonZeroU32;

use salus_engine::{Class, Duration, Time, Weight, Wishes, Work};

use crate::quantity;
use crate::scenario::{Asked, Factor, Job, Requests, Span};
use crate::words::{Line, Problem, Word};

/// Of one job, and of all jobs of a scenario: a run of them takes seconds, not hours.
pub(crate) const ITERATIONS_MAX: u64 = 1_000_000;
const AHEAD_MAX: u64 = 100;
/// One runs, one follows it on the device, and the next waits for its turn: such a job is always
/// ready, which is what policies are about.
const AHEAD: u64 = 3;
const WEIGHT_MAX: u64 = 1_000_000;

const ITEMS: &[&str] = &[
    "from",
    "weight",
    "priority",
    "deadline",
    "iterations",
    "expect",
    "recalled",
    "memory",
    "scratch",
    "wait",
    "ahead",
    "every",
    "poisson",
    "beside",
];
const CLASSES: &[&str] = &["high", "normal", "low"];

/// A job of which some items were read.
#[derive(Debug, Default)]
struct Draft {
    asked: Asked,
    from: Option<Time>,
    iterations: Option<(u64, Span)>,
    memory_bytes: Option<u64>,
    scratch_bytes: Option<u64>,
    wait: Option<Span>,
    ahead: Option<u64>,
    requests: Option<Requests>,
    beside: Option<Factor>,
    recalled: Option<Duration>,
}

/// The items behind a job's name and colon.
pub(crate) fn job(name: &Word<'_>, line: &mut Line<'_>) -> Result<Job, Problem> {
    let mut draft = Draft::default();
    loop {
        item(&mut draft, line)?;
        if !line.has_more()? {
            break;
        }
    }
    let Some((iterations, each)) = draft.iterations else {
        let what = format!("nothing says what {} runs", name.quoted());
        return Err(name
            .problem(what)
            .hint("`5 x 10ms` is five iterations of 10ms each"));
    };
    Ok(Job {
        name: name.text.to_owned(),
        wishes: draft.asked.onto(Wishes::default()),
        from: draft.from.unwrap_or_default(),
        iterations,
        each,
        memory_bytes: draft.memory_bytes.unwrap_or(0),
        scratch_bytes: draft.scratch_bytes.unwrap_or(0),
        wait: draft.wait.unwrap_or_default(),
        ahead: draft.ahead.unwrap_or(AHEAD),
        requests: draft.requests.unwrap_or(Requests::Always),
        beside: draft.beside.unwrap_or(Factor::ONE),
        recalled: draft.recalled,
    })
}

/// Wishes behind `change NAME`.
pub(crate) fn wishes(line: &mut Line<'_>) -> Result<Asked, Problem> {
    const WISHES: &[&str] = &["weight", "priority", "deadline", "iterations", "expect"];
    let mut asked = Asked::default();
    loop {
        let word = line.next("a wish")?;
        if !wish(&mut asked, &word, line)? {
            return Err(word.unknown("a wish", "wishes are", WISHES));
        }
        if !line.has_more()? {
            return Ok(asked);
        }
    }
}

fn item(draft: &mut Draft, line: &mut Line<'_>) -> Result<(), Problem> {
    let word = line.next("an item of the job")?;
    if wish(&mut draft.asked, &word, line)? {
        return Ok(());
    }
    match word.text {
        "from" => {
            let from = quantity::time(&line.next("a time")?)?;
            word.once(&mut draft.from, Time(from.0))
        }
        "recalled" => {
            let total = quantity::some_time(&line.next("a time")?)?;
            word.once(&mut draft.recalled, total)
        }
        "memory" => {
            let bytes = quantity::size(&line.next("a size")?)?;
            word.once(&mut draft.memory_bytes, bytes)
        }
        "scratch" => {
            let bytes = quantity::size(&line.next("a size")?)?;
            word.once(&mut draft.scratch_bytes, bytes)
        }
        "wait" => {
            let wait = span(line, quantity::time)?;
            word.once(&mut draft.wait, wait)
        }
        "ahead" => {
            let ahead = quantity::count(&line.next("a number")?, 1, AHEAD_MAX)?;
            word.once(&mut draft.ahead, ahead)
        }
        "every" => {
            let every = Requests::Every(span(line, quantity::some_time)?);
            requests(&mut draft.requests, &word, every)
        }
        "poisson" => {
            let mean = quantity::some_time(&line.next("a time")?)?;
            let poisson = Requests::Poisson {
                mean,
                seed: seed(line)?,
            };
            requests(&mut draft.requests, &word, poisson)
        }
        "beside" => {
            let factor = Factor(quantity::factor(&line.next("a slow-down")?)?);
            word.once(&mut draft.beside, factor)
        }
        text if text.starts_with(|c: char| c.is_ascii_digit()) => {
            let iterations = iterations(&word, line)?;
            word.once(&mut draft.iterations, iterations)
        }
        _ => {
            let kinds = "items are `5 x 10ms`, which must be there, and those that begin with";
            Err(word.unknown("an item of a job", kinds, ITEMS))
        }
    }
}

/// `5 x 10ms`; the 5 was read.
fn iterations(word: &Word<'_>, line: &mut Line<'_>) -> Result<(u64, Span), Problem> {
    let hint = "iterations are written `5 x 10ms`: their number, an x, what each takes";
    let count = quantity::count(word, 1, ITERATIONS_MAX).map_err(|p| p.hint(hint))?;
    let x = line.next("an x").map_err(|p| p.hint(hint))?;
    if x.text != "x" {
        let what = format!("{} stands where an x is due", x.quoted());
        return Err(x.problem(what).hint(hint));
    }
    Ok((count, span(line, quantity::some_time)?))
}

/// Whether the word begins a wish, which was then read.
fn wish(asked: &mut Asked, word: &Word<'_>, line: &mut Line<'_>) -> Result<bool, Problem> {
    match word.text {
        "weight" => {
            let weight = quantity::count(&line.next("a number")?, 1, WEIGHT_MAX)?;
            let weight = u32::try_from(weight).ok().and_then(NonZeroU32::new);
            word.once(
                &mut asked.weight,
                weight.map_or_else(Weight::default, Weight),
            )?;
        }
        "priority" => {
            let class = line.next("high, normal or low")?;
            let found = match class.text {
                "high" => Class::High,
                "normal" => Class::Normal,
                "low" => Class::Low,
                _ => return Err(class.unknown("a priority", "priorities are", CLASSES)),
            };
            word.once(&mut asked.class, found)?;
        }
        "deadline" => {
            let latency = quantity::some_time(&line.next("a time")?)?;
            word.once(&mut asked.latency, latency)?;
        }
        "iterations" => {
            let count = quantity::count(&line.next("a number")?, 1, ITERATIONS_MAX)?;
            work(&mut asked.work, word, Work::Iterations(count))?;
        }
        "expect" => {
            let total = quantity::some_time(&line.next("a time")?)?;
            work(&mut asked.work, word, Work::Time(total))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn work(slot: &mut Option<Work>, word: &Word<'_>, value: Work) -> Result<(), Problem> {
    let hint = "what a job has before it is said once, with `iterations` or with `expect`";
    word.once(slot, value).map_err(|problem| problem.hint(hint))
}

fn requests(slot: &mut Option<Requests>, word: &Word<'_>, value: Requests) -> Result<(), Problem> {
    let hint = "when requests come is said once, with `every` or with `poisson`";
    word.once(slot, value).map_err(|problem| problem.hint(hint))
}

/// `10ms`, or `10ms..20ms seed 7`.
fn span(
    line: &mut Line<'_>,
    read: fn(&Word<'_>) -> Result<Duration, Problem>,
) -> Result<Span, Problem> {
    let word = line.next("a time")?;
    let Some((low, high)) = word.text.split_once("..") else {
        let low = read(&word)?;
        return Ok(Span {
            low,
            high: low,
            seed: 0,
        });
    };
    let part = |text, before: usize| Word {
        text,
        column: word.column + before,
        ..word
    };
    let (low, high) = (part(low, 0), part(high, low.chars().count() + 2));
    let (low, high) = (read(&low)?, read(&high)?);
    if high < low {
        let what = format!("{} ends before it begins", word.quoted());
        return Err(word.problem(what));
    }
    let seed = seed(line)?;
    Ok(Span { low, high, seed })
}

fn seed(line: &mut Line<'_>) -> Result<u64, Problem> {
    let hint = "what is drawn by chance has a seed, so that it comes out the same again: `seed 7`";
    let word = line.next("`seed`").map_err(|p| p.hint(hint))?;
    if word.text != "seed" {
        let what = format!("{} stands where `seed` is due", word.quoted());
        return Err(word.problem(what).hint(hint));
    }
    quantity::count(&line.next("a number")?, 0, u64::MAX)
}
