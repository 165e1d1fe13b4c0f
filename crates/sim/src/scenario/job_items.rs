//! Parses a job, item by item: `weight 2, from 0ms, 5 x 10ms`.
//!
//! Each item is given at most once; only the iterations must be there.

use std::num::{NonZeroU32, NonZeroU64};

use salus_engine::{Duration, JobSettings, NonZeroDuration, Time, Weight, Work};

use crate::scenario::quantity;
use crate::scenario::tokens::{Line, Problem, Token};
use crate::scenario::{Factor, Job, Requests, SomeSettings, Span};

/// The most iterations of one job, and of all jobs together: a run takes seconds, not hours.
pub(crate) const ITERATIONS_MAX: u64 = 1_000_000;
const AHEAD_MAX: u64 = 100;
/// One runs, one follows it on the device, and the next waits for its turn: such a job is always
/// ready, which is what policies are about.
pub(crate) const AHEAD: u64 = 3;
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
const PRIORITIES: &[&str] = &["high", "normal", "low"];

/// A job of which some items were read.
#[derive(Debug, Default)]
struct Draft {
    settings: SomeSettings,
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
pub(crate) fn job(name: &Token<'_>, line: &mut Line<'_>, program: u64) -> Result<Job, Problem> {
    let mut draft = Draft::default();
    loop {
        item(&mut draft, line)?;
        if !line.has_more()? {
            break;
        }
    }
    let Some((iterations, each)) = draft.iterations else {
        let what = format!("job {} has no iterations", name.quoted());
        return Err(name
            .problem(what)
            .hint("`5 x 10ms` is five iterations of 10ms each"));
    };
    Ok(Job {
        name: name.text.to_owned(),
        settings: draft.settings.onto(JobSettings::default()),
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
        program,
        steps: None,
        linger: Duration(0),
        dies_after: None,
    })
}

/// The settings behind `change NAME`.
pub(crate) fn settings(line: &mut Line<'_>) -> Result<SomeSettings, Problem> {
    const SETTINGS: &[&str] = &["weight", "priority", "deadline", "iterations", "expect"];
    let mut settings = SomeSettings::default();
    loop {
        let word = line.next("a setting")?;
        if !setting(&mut settings, &word, line)? {
            return Err(word.unknown("a setting of a job", "settings of a job are", SETTINGS));
        }
        if !line.has_more()? {
            return Ok(settings);
        }
    }
}

fn item(draft: &mut Draft, line: &mut Line<'_>) -> Result<(), Problem> {
    let word = line.next("an item of the job")?;
    if setting(&mut draft.settings, &word, line)? {
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
fn iterations(word: &Token<'_>, line: &mut Line<'_>) -> Result<(u64, Span), Problem> {
    let hint = "iterations are written `5 x 10ms`: their number, an x, the time of each";
    let count = quantity::count(word, 1, ITERATIONS_MAX).map_err(|p| p.hint(hint))?;
    let x = line.next("an x").map_err(|p| p.hint(hint))?;
    if x.text != "x" {
        let what = format!("expected an x, found {}", x.quoted());
        return Err(x.problem(what).hint(hint));
    }
    Ok((count, span(line, quantity::some_time)?))
}

/// Whether the token begins a setting, which was then read.
fn setting(
    settings: &mut SomeSettings,
    word: &Token<'_>,
    line: &mut Line<'_>,
) -> Result<bool, Problem> {
    match word.text {
        "weight" => {
            let weight = quantity::count(&line.next("a number")?, 1, WEIGHT_MAX)?;
            let weight = u32::try_from(weight).ok().and_then(NonZeroU32::new);
            word.once(
                &mut settings.weight,
                weight.map_or_else(Weight::default, Weight),
            )?;
        }
        "priority" => {
            let priority = line.next("high, normal or low")?;
            let found = priority.text.parse();
            let unknown = |_| priority.unknown("a priority", "priorities are", PRIORITIES);
            word.once(&mut settings.priority, found.map_err(unknown)?)?;
        }
        "deadline" => {
            let deadline = non_zero_time(line)?;
            word.once(&mut settings.deadline, deadline)?;
        }
        "iterations" => {
            let count = quantity::count(&line.next("a number")?, 1, ITERATIONS_MAX)?;
            let count = NonZeroU64::new(count).unwrap_or(NonZeroU64::MIN);
            work(&mut settings.work, word, Work::Iterations(count))?;
        }
        "expect" => {
            let total = non_zero_time(line)?;
            work(&mut settings.work, word, Work::DeviceTime(total))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn non_zero_time(line: &mut Line<'_>) -> Result<NonZeroDuration, Problem> {
    let word = line.next("a time")?;
    let nothing = || word.problem(format!("{} must be more than zero", word.quoted()));
    NonZeroDuration::from_nanos(quantity::time(&word)?.0).ok_or_else(nothing)
}

fn work(slot: &mut Option<Work>, word: &Token<'_>, value: Work) -> Result<(), Problem> {
    let hint = "give a job's work once, with `iterations` or with `expect`";
    word.once(slot, value).map_err(|problem| problem.hint(hint))
}

fn requests(slot: &mut Option<Requests>, word: &Token<'_>, value: Requests) -> Result<(), Problem> {
    let hint = "give a job's requests once, with `every` or with `poisson`";
    word.once(slot, value).map_err(|problem| problem.hint(hint))
}

/// `10ms`, or `10ms..20ms seed 7`.
fn span(
    line: &mut Line<'_>,
    read: fn(&Token<'_>) -> Result<Duration, Problem>,
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
    let part = |text, before: usize| Token {
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
    let hint = "what is random needs a seed, so that every run draws the same: `seed 7`";
    let word = line.next("`seed`").map_err(|p| p.hint(hint))?;
    if word.text != "seed" {
        let what = format!("expected `seed`, found {}", word.quoted());
        return Err(word.problem(what).hint(hint));
    }
    quantity::count(&line.next("a number")?, 0, u64::MAX)
}
