use super::*;
use std::collections::BTreeMap;

/// Reads a figure: no number is missing, and [`tags`].
pub(in crate::lab) fn elements(svg: &str) -> BTreeMap<String, usize> {
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "a place that is no number: {svg}");
    tags(svg)
}

/// Reads what the writers write: tags close in the order in which they were opened, and quotes end. Returns how many
/// elements of each name there are.
pub(in crate::lab) fn tags(svg: &str) -> BTreeMap<String, usize> {
    let (mut open, mut seen) = (Vec::new(), BTreeMap::new());
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "text that is not escaped");
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default().to_owned();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_ref(), Some(&name), "{tag} closes another element");
        } else {
            *seen.entry(name.clone()).or_insert(0) += 1;
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?} stay open");
    seen
}

const PLOT: Plot =
    Plot { x: Axis::log("threads", 2), y: Axis::log("records per second", 10), of: ["threads", "records_per_s"] };

fn row(buffer: &str, threads: u32, rate: f64) -> Row {
    Row::new().with("buffer", buffer).with("threads", threads).with("records_per_s", rate)
}

#[test]
fn a_figure_is_well_formed_and_shows_every_point() {
    let mut rows = Vec::new();
    for threads in [1, 2, 128] {
        rows.extend([row("lanes", threads, f64::from(threads) * 1e6), row("\"faa\"", threads, 1e5)]);
    }
    rows.extend([row("lanes", 4, 0.0), Row::new().with("threads", 4)]);
    let mut panels = PLOT.panels(&rows, |_| "a < b & c".to_owned(), |row| row.text("buffer").to_owned());
    assert_eq!(panels.len(), 1);
    let data = Data::Bars { parts: vec!["a".into(), "b".into()], bars: vec![("one".into(), vec![1.0, 2.0])] };
    panels.push(Panel { data, ..panels[0].clone() });
    panels.push(Panel { data: Data::Lines(Vec::new()), ..panels[0].clone() });
    let Figure { whole: svg, panels: parts, legend } = Figure::new(&panels);
    let seen = elements(&svg);
    assert_eq!(seen["svg"], 1);
    // Three points of each line and an entry of the legend; the marks of the parts of bars stand in the legend alone.
    assert_eq!((seen["circle"], seen["polygon"]), (4, 4 + 2));
    let circles: Vec<usize> = parts.iter().map(|part| elements(part).get("circle").copied().unwrap_or(0)).collect();
    assert_eq!(circles, [3, 0, 0]);
    assert_eq!(legend.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["lanes", "\"faa\"", "a", "b"]);
    // Background and the parts of the bar.
    assert_eq!(seen["rect"], 3);
    assert!(svg.contains("a &lt; b &amp; c") && svg.contains("\n2\n") && svg.contains("\n100M\n"), "{svg}");
}

#[test]
fn rows_share_panels_by_title_and_lines_by_name() {
    let rows = [row("faa", 1, 1.0), row("lanes", 2, 2.0), row("faa", 2, 30.0), row("faa", 4, 3.0)];
    let title = |row: &Row| if row.number("records_per_s") < Some(9.0) { "slow" } else { "fast" }.to_owned();
    let panels = PLOT.panels(&rows, title, |row| row.text("buffer").into());
    let shape = |panel: &Panel| match &panel.data {
        Data::Lines(lines) => lines.iter().map(|line| (line.name.clone(), line.points.len())).collect(),
        Data::Bars { .. } => Vec::new(),
    };
    assert_eq!(shape(&panels[0]), [("faa".to_owned(), 2), ("lanes".to_owned(), 1)]);
    assert_eq!((panels.len(), shape(&panels[1])), (2, vec![("faa".to_owned(), 1)]));
}

#[test]
fn zero_has_a_place_on_a_linear_axis_alone() {
    let rows = [row("faa", 0, 1.0), row("faa", 1, 0.0), row("faa", 2, 2.0)];
    let points = |plot: Plot| match plot.panels(&rows, |_| String::new(), |_| String::new()).remove(0).data {
        Data::Lines(lines) => lines[0].points.len(),
        Data::Bars { .. } => 0,
    };
    let linear = Plot { x: Axis::linear("threads"), y: Axis::linear("rate"), ..PLOT };
    assert_eq!((points(PLOT), points(linear)), (1, 3));
}

#[test]
fn lines_of_one_x_become_bars() {
    let rows = [row("faa", 2, 1.0), row("lanes", 2, 4.0)];
    let panels = PLOT.panels(&rows, |_| "all".to_owned(), |row| row.text("buffer").into());
    let Data::Bars { parts, bars } = &panels[0].data else { panic!("{panels:?}") };
    assert_eq!(
        (panels[0].title.as_str(), parts.as_slice()),
        ("all, threads 2", ["faa", "lanes"].map(String::from).as_slice())
    );
    assert_eq!(bars.as_slice(), [("faa".to_owned(), vec![1.0, 0.0]), ("lanes".to_owned(), vec![0.0, 4.0])]);
}

#[test]
fn a_point_without_a_place_is_left_out() {
    let line = |points| Data::Lines(vec![Series { name: "faa".to_owned(), points }]);
    let panel = |data| Panel { title: String::new(), x: PLOT.x.clone(), y: PLOT.y.clone(), data };
    // No record was written in the time, or none of them was counted.
    let points = vec![(1.0, 3e6), (2.0, 0.0), (4.0, f64::NAN), (8.0, f64::INFINITY), (16.0, -1.0)];
    assert_eq!(elements(&Figure::new(&[panel(line(points))]).whole)["circle"], 1 + 1);
    assert_eq!(elements(&Figure::new(&[panel(line(vec![(2.0, 0.0)]))]).whole)["circle"], 1);
}
