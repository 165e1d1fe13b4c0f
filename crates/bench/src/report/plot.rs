//! A plot as SVG: bars with their spread, lines and steps, on linear and logarithmic axes.
//!
//! It has no script and takes nothing from elsewhere. As a file of its own it brings its style, which
//! follows whether the reader prefers dark or light, and a background, so that it can be read on any page;
//! inside a page it takes the page's. A value that cannot be shown (not a number, or not positive on a
//! logarithmic axis) is left out and breaks its line.
//!
//! Not here: where ticks are (`scale.rs`), and what is drawn (`experiment.rs`).

use crate::report::experiment::{Plot, PlotKind, Point, Series};
use crate::report::scale::Scale;

const WIDTH: f64 = 680.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 16.0;
const INNER: f64 = 250.0;
const LINE: f64 = 20.0;
/// Of a letter, about.
const LETTER: f64 = 6.6;
/// Words under the groups stand aslant, by 35 degrees, if there is too little room for them: how much height
/// a letter takes then.
const ASLANT: f64 = 4.2;
const UPRIGHT: f64 = 18.0;
/// What a group of bars fills of its place.
const FILLED: f64 = 0.8;
/// Points are marked where there are no more than this.
const MARKED: usize = 40;

/// After Okabe and Ito: told apart by most eyes, on light and on dark.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#8c6d4f", "#8a8a8a",
];
/// Lines after the first few are dashed too.
const SOLID: usize = 4;

/// For text, axes and background: in the page, and in every file of its own.
pub(crate) const STYLE: &str = "\
.plot text{font:12px system-ui,sans-serif;fill:#24292f}\
.plot .title{font-size:14px;font-weight:600}\
.plot .grid{stroke:#8c8c8c;stroke-opacity:.3;stroke-width:1;fill:none}\
.plot .axis{stroke:#57606a;stroke-width:1;fill:none}\
.plot .whisker{stroke:#24292f;stroke-width:1.2;fill:none}\
.plot .back{fill:#ffffff}\
@media(prefers-color-scheme:dark){.plot text{fill:#e6edf3}.plot .axis{stroke:#9aa4af}\
.plot .whisker{stroke:#e6edf3}.plot .back{fill:#14181d}}";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Page,
    File,
}

pub(crate) fn svg(plot: &Plot, place: Place) -> String {
    let mut drawing = Drawing::new(plot);
    drawing.legend();
    drawing.axes();
    match plot.kind {
        PlotKind::Bars => drawing.bars(),
        PlotKind::Lines | PlotKind::Steps => drawing.lines(),
    }
    let Drawing { body, height, .. } = drawing;
    let (style, back) = match place {
        Place::Page => (String::new(), String::new()),
        Place::File => (
            format!("<style>{STYLE}</style>\n"),
            format!("<rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n"),
        ),
    };
    let name = escaped(&plot.name);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-labelledby=\"{name}-title {name}-desc\">\n\
         <title id=\"{name}-title\">{}</title>\n<desc id=\"{name}-desc\">{}</desc>\n{style}{back}{body}</svg>\n",
        escaped(&plot.title),
        escaped(&description(plot)),
    )
}

/// For readers who hear it.
fn description(plot: &Plot) -> String {
    let kind = match plot.kind {
        PlotKind::Bars => "Bars",
        PlotKind::Lines => "Lines",
        PlotKind::Steps => "Steps",
    };
    let names: Vec<&str> = plot.series.iter().map(|one| one.name.as_str()).collect();
    let over = match plot.x.is_empty() {
        true => plot.groups.join(", "),
        false => plot.x.clone(),
    };
    format!("{kind}: {} over {over}; {}", plot.y, names.join(", "))
}

struct Drawing<'a> {
    plot: &'a Plot,
    body: String,
    /// Of the whole, and of the upper edge of the axes.
    height: f64,
    top: f64,
    x: Scale,
    y: Scale,
    aslant: bool,
}

impl<'a> Drawing<'a> {
    fn new(plot: &'a Plot) -> Self {
        let lines = legend_lines(plot);
        let top = 34.0 + LINE * lines.last().map_or(0.0, |last| last.1 + 1.0);
        let bars = plot.kind == PlotKind::Bars;
        let points = || plot.series.iter().flat_map(|one| &one.points);
        let ends = |point: &Point| {
            let (low, high) = point.spread.unwrap_or((point.y, point.y));
            [point.y, low, high]
        };
        let heights = || points().flat_map(ends).filter(|y| y.is_finite());
        let (least, most) = heights().fold((f64::INFINITY, 0.0_f64), |(low, high), y| {
            (low.min(y), high.max(y))
        });
        // Lines that all run far above 0, such as ratios around 1, would be flat on an axis from 0.
        let y = Scale::of(heights(), plot.log_y, bars || least < most / 2.0);
        let x = match bars {
            true => Scale::between(-0.5, plot.groups.len().max(1) as f64 - 0.5),
            false => Scale::of(points().map(|point| point.x), plot.log_x, false),
        };
        let room = (WIDTH - LEFT - RIGHT) / plot.groups.len().max(1) as f64;
        let longest = plot.groups.iter().map(|word| word.chars().count()).max();
        let longest = longest.unwrap_or(0) as f64;
        let aslant = bars && longest * LETTER > room;
        let words = UPRIGHT + if aslant { longest * ASLANT } else { 0.0 };
        let title = if plot.x.is_empty() { 0.0 } else { LINE };
        Self {
            plot,
            body: String::new(),
            height: top + INNER + words + title + 8.0,
            top,
            x: x.drawn(LEFT, WIDTH - RIGHT),
            y: y.drawn(top + INNER, top),
            aslant,
        }
    }

    fn add(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, more: &str, text: &str) {
        let text = escaped(text);
        self.add(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{more}>{text}</text>"
        ));
    }

    fn legend(&mut self) {
        let title = self.plot.title.clone();
        self.text(LEFT - 46.0, 20.0, " class=\"title\"", &title);
        for (n, (x, line)) in legend_lines(self.plot).into_iter().enumerate() {
            let y = 40.0 + line * LINE;
            let mark = match self.plot.kind {
                PlotKind::Bars => format!(
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"10\" fill=\"{}\"/>",
                    y - 9.0,
                    colour(n)
                ),
                _ => format!("<path d=\"M{x:.1} {:.1}h16\" {}/>", y - 4.0, stroke(n)),
            };
            self.add(&mark);
            self.text(x + 21.0, y, "", &self.plot.series[n].name);
        }
    }

    fn axes(&mut self) {
        let (bottom, right) = (self.top + INNER, WIDTH - RIGHT);
        for (value, label) in self.y.ticks() {
            let Some(y) = self.y.at(value) else { continue };
            self.add(&format!(
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>"
            ));
            self.text(LEFT - 6.0, y + 4.0, " text-anchor=\"end\"", &label);
        }
        self.add(&format!(
            "<path class=\"axis\" d=\"M{LEFT} {bottom:.1}H{right}\"/>"
        ));
        let middle = self.top + INNER / 2.0;
        let turned = format!(" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle:.1})\"");
        let plot = self.plot;
        self.text(14.0, middle, &turned, &plot.y);
        let labels: Vec<(f64, String)> = match plot.kind {
            PlotKind::Bars => (0..)
                .map(f64::from)
                .zip(plot.groups.iter().cloned())
                .collect(),
            _ => self.x.ticks(),
        };
        for (value, label) in labels {
            let Some(x) = self.x.at(value) else { continue };
            let y = bottom + 16.0;
            if self.aslant {
                let more = format!(" text-anchor=\"end\" transform=\"rotate(-35 {x:.1} {y:.1})\"");
                self.text(x, y, &more, &label);
            } else {
                self.text(x, y, " text-anchor=\"middle\"", &label);
            }
        }
        if !plot.x.is_empty() {
            let x = (LEFT + right) / 2.0;
            self.text(x, self.height - 8.0, " text-anchor=\"middle\"", &plot.x);
        }
        if !plot.series.iter().any(|one| !one.points.is_empty()) {
            let x = (LEFT + right) / 2.0;
            self.text(x, middle, " text-anchor=\"middle\"", "no data");
        }
    }

    fn bars(&mut self) {
        let plot = self.plot;
        let place = (WIDTH - LEFT - RIGHT) / plot.groups.len().max(1) as f64;
        let width = FILLED * place / plot.series.len().max(1) as f64;
        let Some(base) = self.y.at(self.y.base()) else {
            return;
        };
        for (n, series) in plot.series.iter().enumerate() {
            for point in &series.points {
                let (Some(x), Some(y)) = (self.x.at(point.x), self.y.at(point.y)) else {
                    continue;
                };
                let left = x - FILLED * place / 2.0 + n as f64 * width;
                let group = plot.groups.get(point.x as usize).map_or("", String::as_str);
                self.add(&format!(
                    "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\">{}</rect>",
                    y.min(base),
                    (width - 1.0).max(0.5),
                    (base - y).abs(),
                    colour(n),
                    said(series, group, point),
                ));
                self.whisker(left + (width - 1.0) / 2.0, point);
            }
        }
    }

    fn whisker(&mut self, x: f64, point: &Point) {
        let Some((low, high)) = point.spread else {
            return;
        };
        let (Some(low), Some(high)) = (self.y.at(low), self.y.at(high)) else {
            return;
        };
        self.add(&format!(
            "<path class=\"whisker\" d=\"M{:.1} {low:.1}h6m-3 0V{high:.1}m-3 0h6\"/>",
            x - 3.0
        ));
    }

    fn lines(&mut self) {
        let plot = self.plot;
        for (n, series) in plot.series.iter().enumerate() {
            let path = self.path(&series.points);
            if path.is_empty() {
                continue;
            }
            self.add(&format!("<path d=\"{path}\" {}/>", stroke(n)));
            let marked = plot.kind == PlotKind::Lines && series.points.len() <= MARKED;
            for point in series.points.iter().filter(|_| marked) {
                let (Some(x), Some(y)) = (self.x.at(point.x), self.y.at(point.y)) else {
                    continue;
                };
                self.whisker(x, point);
                let text = said(series, &format!("{}", rounded(point.x)), point);
                self.add(&format!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\">{text}</circle>",
                    colour(n)
                ));
            }
        }
    }

    /// Points that cannot be shown break it.
    fn path(&self, points: &[Point]) -> String {
        let mut path = String::new();
        let mut down = false;
        for point in points {
            let (Some(x), Some(y)) = (self.x.at(point.x), self.y.at(point.y)) else {
                down = false;
                continue;
            };
            path.push_str(&match (down, self.plot.kind) {
                (false, _) => format!("M{x:.1} {y:.1}"),
                (true, PlotKind::Steps) => format!("H{x:.1}V{y:.1}"),
                (true, _) => format!("L{x:.1} {y:.1}"),
            });
            down = true;
        }
        path
    }
}

/// Where the names of the series stand: from the left, and in which line.
fn legend_lines(plot: &Plot) -> Vec<(f64, f64)> {
    let first = LEFT - 46.0;
    let (mut x, mut line) = (first, 0.0);
    let mut places = Vec::new();
    for series in &plot.series {
        let wide = 40.0 + series.name.chars().count() as f64 * LETTER;
        if x + wide > WIDTH - RIGHT && x > first {
            (x, line) = (first, line + 1.0);
        }
        places.push((x, line));
        x += wide;
    }
    places
}

fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

fn stroke(series: usize) -> String {
    let dashes = match series < SOLID {
        true => "",
        false => " stroke-dasharray=\"6 3\"",
    };
    format!(
        "fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dashes}",
        colour(series)
    )
}

/// What a pointer over it shows.
fn said(series: &Series, where_: &str, point: &Point) -> String {
    let mut text = format!("{}, {where_}: {}", series.name, rounded(point.y));
    if let Some((low, high)) = point.spread {
        text.push_str(&format!(" ({} to {})", rounded(low), rounded(high)));
    }
    format!("<title>{}</title>", escaped(&text))
}

/// Four digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let power = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * power).round() / power
}

/// Text for XML and HTML, also between quotation marks.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Such as no XML may contain.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests;
