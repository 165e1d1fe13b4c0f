use super::*;

pub(crate) fn plot(kind: PlotKind, series: Vec<Series>) -> Plot {
    Plot {
        name: "one".into(),
        title: "Time <of> a \"sweep\" & more".into(),
        kind,
        x: String::new(),
        y: "seconds".into(),
        log_x: false,
        log_y: false,
        groups: vec!["a".into(), "b".into()],
        series,
    }
}

/// Every element that is opened is closed, in order; attributes are quoted. Enough to find what a
/// browser would trip over.
pub(crate) fn well_formed(text: &str) -> Result<(), String> {
    const EMPTY: [&str; 3] = ["meta", "br", "!doctype"];
    let mut open: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').ok_or("a tag does not end")? + at;
        let tag = &rest[at + 1..end];
        if !tag.matches('"').count().is_multiple_of(2) || tag.contains('<') {
            return Err(format!("<{tag}>"));
        }
        let name: String = tag
            .trim_start_matches('/')
            .chars()
            .take_while(|c| !c.is_whitespace() && *c != '/')
            .collect();
        if tag.starts_with('/') {
            if open.pop().as_deref() != Some(&name) {
                return Err(format!("<{tag}> closes another"));
            }
        } else if !tag.ends_with('/') && !EMPTY.contains(&name.to_lowercase().as_str()) {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    match open.pop() {
        None => Ok(()),
        Some(left) => Err(format!("<{left}> is not closed")),
    }
}

#[test]
fn bars_stand_where_their_values_are() {
    let with_spread = Point {
        x: 1.0,
        y: 10.0,
        spread: Some((8.0, 10.0)),
    };
    let mut series = Series::new("exclusive", [(0.0, 5.0)]);
    series.points.push(with_spread);
    let text = svg(&plot(PlotKind::Bars, vec![series]), Place::Page);
    // Two places of 301 below each other; the axes are 250 high and begin at 54.
    for element in [
        "<rect x=\"92.1\" y=\"179.0\" width=\"239.8\" height=\"125.0\" fill=\"#0072b2\">\
         <title>exclusive, a: 5</title></rect>",
        "<rect x=\"393.1\" y=\"54.0\" width=\"239.8\" height=\"250.0\" fill=\"#0072b2\">\
         <title>exclusive, b: 10 (8 to 10)</title></rect>",
        "<path class=\"whisker\" d=\"M510.0 104.0h6m-3 0V54.0m-3 0h6\"/>",
        "<text x=\"212.5\" y=\"320.0\" text-anchor=\"middle\">a</text>",
    ] {
        assert!(text.contains(element), "{element}\n{text}");
    }
    assert_eq!(well_formed(&text), Ok(()));
}

#[test]
fn lines_and_steps_have_the_same_points() {
    let points = [(0.0, 0.0), (5.0, 10.0), (10.0, 5.0)];
    let draw = |kind| svg(&plot(kind, vec![Series::new("s", points)]), Place::Page);
    let lines = draw(PlotKind::Lines);
    assert!(
        lines.contains("d=\"M62.0 304.0L363.0 54.0L664.0 179.0\""),
        "{lines}"
    );
    assert_eq!(lines.matches("<circle").count(), 3);
    let steps = draw(PlotKind::Steps);
    assert!(
        steps.contains("d=\"M62.0 304.0H363.0V54.0H664.0V179.0\""),
        "{steps}"
    );
    assert_eq!(steps.matches("<circle").count(), 0);
}

#[test]
fn text_is_escaped() {
    let series = Series::new("<b>&'", [(0.0, 1.0)]);
    let text = svg(&plot(PlotKind::Bars, vec![series]), Place::File);
    assert!(text.contains("Time &lt;of&gt; a &quot;sweep&quot; &amp; more</title>"));
    assert!(text.contains("&lt;b&gt;&amp;&#39;"));
    assert!(!text.contains("<b>"));
    assert_eq!(well_formed(&text), Ok(()));
    assert_eq!(escaped("a\u{1}b"), "a\u{fffd}b");
}

#[test]
fn what_cannot_be_shown_is_left_out() {
    let points = [(0.0, 1.0), (1.0, f64::NAN), (2.0, 4.0), (3.0, 2.0)];
    let text = svg(
        &plot(PlotKind::Lines, vec![Series::new("s", points)]),
        Place::Page,
    );
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    let line = text
        .lines()
        .find(|line| line.contains("stroke-linejoin") && line.contains('L'));
    assert_eq!(
        line.map(|line| line.matches('M').count()),
        Some(2),
        "{text}"
    );

    let mut log = plot(
        PlotKind::Lines,
        vec![Series::new("s", [(0.0, 1.0), (1.0, 10.0)])],
    );
    (log.log_x, log.log_y) = (true, true);
    let text = svg(&log, Place::Page);
    assert_eq!(text.matches("<circle").count(), 1, "0 has no place: {text}");
}

#[test]
fn nothing_to_show_says_so() {
    for kind in [PlotKind::Bars, PlotKind::Lines, PlotKind::Steps] {
        for series in [vec![], vec![Series::new("empty", [])]] {
            let text = svg(&plot(kind, series), Place::File);
            assert!(text.contains(">no data</text>"), "{text}");
            assert!(!text.contains("NaN"), "{text}");
            assert_eq!(well_formed(&text), Ok(()));
        }
    }
}

#[test]
fn a_file_of_its_own_brings_style_and_background() {
    let one = plot(PlotKind::Lines, vec![Series::new("s", [(0.0, 1.0)])]);
    let file = svg(&one, Place::File);
    assert!(file.contains("<style>") && file.contains("prefers-color-scheme:dark"));
    assert!(file.contains("class=\"back\""));
    let inside = svg(&one, Place::Page);
    assert!(!inside.contains("<style>") && !inside.contains("class=\"back\""));
    for text in [file, inside] {
        assert!(text.contains("role=\"img\"") && text.contains("<desc id=\"one-desc\">"));
    }
}

#[test]
fn long_words_stand_aslant_and_many_names_take_several_lines() {
    let mut many = plot(
        PlotKind::Bars,
        (0..8)
            .map(|n| Series::new(&format!("a long name {n}"), []))
            .collect(),
    );
    many.groups = (0..14).map(|n| format!("transformer_{n}")).collect();
    let text = svg(&many, Place::Page);
    assert_eq!(text.matches("rotate(-35").count(), 14);
    let lines: std::collections::BTreeSet<u32> = legend_lines(&many)
        .into_iter()
        .map(|(_, line)| line as u32)
        .collect();
    assert_eq!(lines.len(), 2);
}
