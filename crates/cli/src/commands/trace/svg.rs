//! The same as a picture: lanes with a colour for each job, memory below, a legend, the time.
//!
//! It stands alone, has no background, and takes its text's colour from whether the reader prefers
//! dark or light.
//!
//! Iterations that are too narrow to see are summed: a column is then filled as far as the lane was
//! busy, each job with its share. So a picture of many iterations stays small, and true.

use std::collections::BTreeMap;

use salus_units::{Bytes, show_ms};

use super::devices::{Devices, OneDevice};
use super::timeline::{Run, Timeline};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 76.0;
const PLOT: f64 = WIDTH - LEFT - 14.0;
const LINE: f64 = 20.0;
const LANE: f64 = 30.0;
const LANE_GAP: f64 = 8.0;
const MEMORY: f64 = 80.0;
/// In which narrow iterations are summed.
const COLUMN: f64 = 2.0;
/// From this width on, two iterations of a job in a row are told apart by a gap.
const WIDE: f64 = 4.0;
/// Of text of the legend's size, about.
const CHAR: f64 = 6.6;
/// In the legend; the rest is counted.
const NAMED: usize = 12;

/// Told apart by most eyes, on light and on dark.
const COLOURS: [&str; 8] = [
    "#4c8dd6", "#ee8a3c", "#3fae7c", "#d9534f", "#9a6dd7", "#c9a227", "#39acbb", "#d66ba0",
];

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#424a53}\
.back{fill:#8884;fill-opacity:.4}.grid{stroke:#8886;stroke-width:1;fill:none}\
.line{stroke:#424a53;stroke-width:1.5;fill:none}.area{fill:#8885}\
.paged{stroke-dasharray:4 3}\
@media(prefers-color-scheme:dark){text{fill:#c9d1d9}.line{stroke:#c9d1d9}}";

pub(super) fn picture(devices: &Devices) -> String {
    let (mut body, mut y) = (String::new(), 4.0);
    for device in &devices.all {
        let mut picture = Picture {
            body,
            y,
            device,
            timeline: &device.timeline,
            length_ns: devices.length_ns.max(1),
        };
        picture.heading();
        picture.legend();
        picture.lanes();
        picture.memory();
        (body, y) = (picture.body, picture.y);
    }
    let height = axis(&mut body, y, devices.length_ns.max(1));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>{} iterations of {} jobs on {} in {}</title>\n<style>{STYLE}</style>\n{body}</svg>\n",
        devices.iterations(),
        devices.jobs(),
        escaped(&devices.names()),
        show_ms(devices.length_ns as f64 / 1e6),
    )
}

/// What is drawn of one device.
struct Picture<'a> {
    body: String,
    /// Where the next thing is drawn.
    y: f64,
    device: &'a OneDevice,
    timeline: &'a Timeline,
    /// What the axis shows.
    length_ns: u64,
}

impl Picture<'_> {
    fn x(&self, at: u64) -> f64 {
        LEFT + PLOT * self.device.since(at) as f64 / self.length_ns as f64
    }

    /// Which device it is, where there are several.
    fn heading(&mut self) {
        if self.device.name.is_some() {
            let device = &self.timeline.device;
            self.text(LEFT, self.y + 12.0, "start", device);
            self.y += LINE;
        }
    }

    /// Who ran, the busiest first.
    fn legend(&mut self) {
        let mut busy: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for run in self.timeline.lanes.values().flatten() {
            let (ns, count) = busy.entry(run.job).or_default();
            (*ns, *count) = (*ns + (run.until - run.from), *count + 1);
        }
        let mut jobs: Vec<_> = busy.into_iter().collect();
        jobs.sort_by_key(|(_, (ns, _))| std::cmp::Reverse(*ns));
        let rest = jobs.len().saturating_sub(NAMED);
        let mut x = LEFT;
        for (job, (_, count)) in jobs.into_iter().take(NAMED) {
            let s = if count == 1 { "" } else { "s" };
            let label = &self.timeline.jobs[job].label;
            let text = format!("{label}, {count} iteration{s}");
            let width = 16.0 + CHAR * text.chars().count() as f64 + 18.0;
            if x > LEFT && x + width > WIDTH {
                (x, self.y) = (LEFT, self.y + LINE);
            }
            let (colour, y) = (colour(job), self.y);
            self.put(&format!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" rx=\"2\" \
                 fill=\"{colour}\"/>",
                y + 2.0
            ));
            self.text(x + 16.0, y + 12.0, "start", &text);
            x += width;
        }
        if rest > 0 {
            self.y += LINE;
            self.text(LEFT, self.y + 12.0, "start", &format!("and {rest} more"));
        }
        self.y += LINE + 6.0;
    }

    fn lanes(&mut self) {
        let timeline = self.timeline;
        for (lane, runs) in &timeline.lanes {
            let y = self.y;
            self.text(
                LEFT - 8.0,
                y + LANE / 2.0 + 4.0,
                "end",
                &format!("lane {lane}"),
            );
            self.put(&format!(
                "<rect class=\"back\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{PLOT}\" \
                 height=\"{LANE}\"/>"
            ));
            self.narrow(runs, y);
            self.wide(runs, y);
            self.y += LANE + LANE_GAP;
        }
    }

    /// Iterations of their own width, those of a job in a row as one where they could not be told
    /// apart.
    fn wide(&mut self, runs: &[Run], y: f64) {
        let mut blocks: Vec<(usize, f64, f64)> = Vec::new();
        for run in runs {
            let (from, until) = (self.x(run.from), self.x(run.until));
            if until - from < 1.0 {
                continue;
            }
            match blocks.last_mut() {
                Some((job, _, end))
                    if *job == run.job && from - *end < 0.3 && until - from < WIDE =>
                {
                    *end = until;
                }
                _ => blocks.push((run.job, from, until)),
            }
        }
        for (job, from, until) in blocks {
            let gap = if until - from >= WIDE { 0.7 } else { 0.0 };
            self.rect(job, from, y, until - from - gap, LANE);
        }
    }

    fn narrow(&mut self, runs: &[Run], y: f64) {
        let columns = (PLOT / COLUMN).ceil() as usize;
        let mut shares: Vec<BTreeMap<usize, f64>> = vec![BTreeMap::new(); columns];
        for run in runs {
            let (from, until) = (self.x(run.from), self.x(run.until));
            if until - from < 1.0 {
                let column = ((from - LEFT) / COLUMN) as usize;
                let share = shares[column.min(columns - 1)].entry(run.job).or_default();
                *share += until - from;
            }
        }
        // In whole units of height, so that columns that look the same become one.
        let heights = |column: &BTreeMap<usize, f64>| -> Vec<(usize, u32)> {
            let height = |width: f64| (width / COLUMN * LANE).round().clamp(1.0, LANE) as u32;
            column.iter().map(|(job, w)| (*job, height(*w))).collect()
        };
        let mut start = 0;
        while start < columns {
            let stack = heights(&shares[start]);
            let same = shares[start..].iter().take_while(|c| heights(c) == stack);
            let count = same.count();
            let (x, width) = (LEFT + start as f64 * COLUMN, count as f64 * COLUMN);
            let mut bottom = y + LANE;
            for (job, height) in stack {
                let height = f64::from(height).min(bottom - y);
                bottom -= height;
                self.rect(job, x, bottom, width.min(LEFT + PLOT - x), height);
            }
            start += count;
        }
    }

    fn memory(&mut self) {
        let noted = &self.timeline.memory;
        let used: Vec<_> = noted
            .iter()
            .map(|m| (m.at_ns, m.resident_bytes.saturating_add(m.scratch_bytes)))
            .collect();
        let paged: Vec<_> = noted.iter().map(|m| (m.at_ns, m.paged_bytes)).collect();
        let most = |points: &[(u64, u64)]| points.iter().map(|(_, b)| *b).max().unwrap_or(0);
        let top = most(&used).max(most(&paged)).max(1);
        let y = self.y + LINE - 4.0;
        let bottom = y + MEMORY;
        self.text(LEFT - 8.0, y + 9.0, "end", &Bytes(top).to_string());
        self.text(LEFT - 8.0, bottom, "end", "0 B");
        for y in [y, bottom] {
            let end = LEFT + PLOT;
            self.put(&format!(
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{end}\"/>"
            ));
        }
        let line = self.steps(&used, top, bottom);
        let end = LEFT + PLOT;
        if !line.is_empty() {
            self.put(&format!(
                "<path class=\"area\" d=\"{line}V{bottom:.1}H{LEFT}Z\"/>\n\
                 <path class=\"line\" d=\"{line}\"/>"
            ));
        }
        let room = Bytes(self.timeline.room_bytes).to_string();
        let mut text = format!("memory in use on the device, of {room}");
        if most(&paged) > 0 {
            let line = self.steps(&paged, top, bottom);
            self.put(&format!("<path class=\"line paged\" d=\"{line}\"/>"));
            text.push_str("; dashed: paged out to the host");
        }
        self.text(end, y - 5.0, "end", &text);
        self.y = bottom + 4.0;
    }

    /// A line that stays until the next point; of what holds in a column the most.
    fn steps(&self, points: &[(u64, u64)], top: u64, bottom: f64) -> String {
        let mut points = points.iter().peekable();
        let Some(&&(_, mut bytes)) = points.peek() else {
            return String::new();
        };
        let mut path = String::new();
        let mut before = None;
        for column in 0..PLOT as u32 {
            let x = LEFT + f64::from(column);
            let mut most = bytes;
            while let Some((_, next)) = points.next_if(|(at, _)| self.x(*at) < x + 1.0) {
                bytes = *next;
                most = most.max(bytes);
            }
            if before.replace(most) != Some(most) {
                let y = bottom - MEMORY * most as f64 / top as f64;
                let step = match column {
                    0 => format!("M{LEFT} {y:.1}"),
                    _ => format!("H{x:.1}V{y:.1}"),
                };
                path.push_str(&step);
            }
        }
        format!("{path}H{:.1}", LEFT + PLOT)
    }

    fn rect(&mut self, job: usize, x: f64, y: f64, width: f64, height: f64) {
        let colour = colour(job);
        self.put(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{colour}\"/>"
        ));
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        put_text(&mut self.body, x, y, anchor, text);
    }

    fn put(&mut self, element: &str) {
        put(&mut self.body, element);
    }
}

/// The time that passes; returns where the picture ends.
fn axis(body: &mut String, y: f64, length: u64) -> f64 {
    let step = tick(length);
    for n in 0..=length / step {
        let x = LEFT + PLOT * (n * step) as f64 / length as f64;
        let above = y - 4.0;
        put(
            body,
            &format!("<path class=\"grid\" d=\"M{x:.1} {above:.1}v5\"/>"),
        );
        put_text(body, x, y + 14.0, "middle", &time(n * step, step));
    }
    y + LINE
}

fn put_text(body: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escaped(text);
    put(
        body,
        &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"),
    );
}

fn put(body: &mut String, element: &str) {
    body.push_str(element);
    body.push('\n');
}

fn colour(job: usize) -> &'static str {
    COLOURS[job % COLOURS.len()]
}

/// A round step of which there are four to ten in the length.
fn tick(length_ns: u64) -> u64 {
    let mut decade = 1;
    while decade <= length_ns / 10 {
        decade *= 10;
    }
    let fitting = [decade / 5, decade / 2, decade];
    let step = fitting
        .into_iter()
        .find(|step| length_ns / step.max(&1) < 10);
    step.unwrap_or(decade).max(1)
}

/// `150 ms`, in the unit of the steps.
fn time(ns: u64, step_ns: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("µs", 1_000),
        ("ns", 1),
    ];
    let unit = UNITS.into_iter().find(|(_, unit)| step_ns >= *unit);
    let (name, unit) = unit.unwrap_or(("ns", 1));
    format!("{} {name}", ns / unit)
}

/// Text as XML has it. Control characters were made harmless before; two others are not allowed.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
