//! Figures as SVG: panels of lines or stacked bars, with axes that may be logarithmic.
//!
//! A series keeps its colour and its mark in all panels of a figure, and one legend explains them all.

use super::Row;
use crate::units::show;
use std::fmt::Write as _;

/// One pair of axes.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) data: Data,
}

/// An axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) scale: Scale,
}

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By their logarithm, with ticks at powers of this base.
    Log(u32),
}

/// What a panel shows.
#[derive(Clone, Debug)]
pub(super) enum Data {
    /// Marks joined by lines.
    Lines(Vec<Series>),
    /// Bars with a name each, split into parts that are named alike in all.
    Bars { parts: Vec<String>, bars: Vec<(String, Vec<f64>)> },
}

/// A named line.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

impl Axis {
    pub(super) const fn linear(label: &'static str) -> Self {
        Self { label, scale: Scale::Linear }
    }

    pub(super) const fn log(label: &'static str, base: u32) -> Self {
        Self { label, scale: Scale::Log(base) }
    }
}

/// Which fields of rows are drawn, and how.
#[derive(Clone)]
pub(super) struct Plot {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) of: [&'static str; 2],
}

impl Plot {
    /// Rows with one title share a panel, rows with one name in it a line. What has no positive value is left out: a
    /// logarithmic axis has no place for it.
    pub(super) fn panels<'a>(
        &self,
        rows: impl IntoIterator<Item = &'a Row>,
        title: impl Fn(&Row) -> String,
        name: impl Fn(&Row) -> String,
    ) -> Vec<Panel> {
        let mut panels: Vec<(String, Vec<Series>)> = Vec::new();
        for row in rows {
            let [Some(x), Some(y)] = self.of.map(|field| row.number(field)) else { continue };
            if !(x > 0.0 && y > 0.0) {
                continue;
            }
            let lines = &mut entry(&mut panels, title(row), |panel| &panel.0, |title| (title, Vec::new())).1;
            let line = entry(lines, name(row), |line| &line.name, |name| Series { name, points: Vec::new() });
            line.points.push((x, y));
        }
        let panel = |(title, lines)| {
            let (x, y) = (self.x.clone(), self.y.clone());
            Panel { title, x, y, data: Data::Lines(lines) }
        };
        panels.into_iter().map(panel).collect()
    }
}

/// The entry with this name, which is made if there is none.
fn entry<T>(list: &mut Vec<T>, name: String, name_of: impl Fn(&T) -> &str, make: impl Fn(String) -> T) -> &mut T {
    let at = list.iter().position(|entry| name_of(entry) == name).unwrap_or_else(|| {
        list.push(make(name));
        list.len() - 1
    });
    &mut list[at]
}

/// Colours that readers with colour blindness can tell apart too, by lightness and by mark.
const COLOURS: [&str; 12] = [
    "#0b6bcb", "#d1420f", "#11803c", "#8a3ab9", "#b8860b", "#0f8b8d", "#c2185b", "#5d4037", "#607d8b", "#7cb342",
    "#111111", "#9e9e9e",
];

const WIDTH: f64 = 470.0;
const HEIGHT: f64 = 330.0;
/// Margins of a panel around its plot.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 56.0;
const LEGEND: f64 = 180.0;

/// The figure: panels in rows of two, the legend at the right.
pub(super) fn svg(panels: &[Panel]) -> String {
    let names = legend(panels);
    let columns = panels.len().clamp(1, 2);
    let rows = panels.len().div_ceil(columns).max(1);
    let (width, plots) = (WIDTH * columns as f64 + LEGEND, HEIGHT * rows as f64);
    let height = plots.max(TOP + 20.0 * names.len() as f64 + 10.0);
    let mut svg = Svg(String::new());
    svg.line(&format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"#
    ));
    svg.line(&format!(r#"<rect width="{width}" height="{height}" fill="white"/>"#));
    for (i, panel) in panels.iter().enumerate() {
        let (x, y) = ((i % columns) as f64 * WIDTH, (i / columns) as f64 * HEIGHT);
        svg.line(&format!(r#"<g transform="translate({x} {y})">"#));
        svg.panel(panel, &names);
        svg.line("</g>");
    }
    for (i, name) in names.iter().enumerate() {
        let (x, y) = (WIDTH * columns as f64 + 8.0, TOP + 20.0 * i as f64);
        svg.mark(i, x + 6.0, y - 4.0);
        svg.text(x + 18.0, y, "start", name);
    }
    svg.line("</svg>");
    svg.0
}

/// Names of lines and parts, each once, in the order of their first appearance.
fn legend(panels: &[Panel]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for panel in panels {
        let own: Vec<&str> = match &panel.data {
            Data::Lines(lines) => lines.iter().map(|line| line.name.as_str()).collect(),
            Data::Bars { parts, .. } => parts.iter().map(String::as_str).collect(),
        };
        for name in own {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Maps values to places, and knows where its ticks are.
struct Range {
    scale: Scale,
    low: f64,
    high: f64,
    /// Places of `low` and `high`.
    from: f64,
    to: f64,
}

impl Range {
    /// A range that holds `values`, which may be none.
    fn new(scale: Scale, values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let high = values.clone().fold(f64::NAN, f64::max);
        let low = values.fold(f64::NAN, f64::min);
        let (low, high) = if high.is_nan() { (1.0, 10.0) } else { (low, high) };
        let (low, high) = match scale {
            Scale::Linear => (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
            // Whole powers where the ticks are far apart, the values themselves where they are the ticks.
            Scale::Log(base) => {
                let power = |value: f64| value.log(f64::from(base));
                let raise = |power: f64| f64::from(base).powf(power);
                let (low, high) = (power(low) + 1e-9, power(high) - 1e-9);
                (raise(low.floor()), raise(high.ceil().max(low.floor() + 1.0)))
            }
        };
        Self { scale, low, high, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log(_) => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let rough = (self.high - self.low) / 5.0;
                let magnitude = 10_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * magnitude).into_iter().find(|step| *step >= rough);
                let step = step.unwrap_or(rough);
                (0..=(self.high / step) as u32).map(|i| f64::from(i) * step).collect()
            }
            Scale::Log(base) => {
                let first = self.low.log(f64::from(base)).round() as i32;
                let last = self.high.log(f64::from(base)).round() as i32;
                // At most ten, so that their numbers do not meet.
                let every = ((last - first) / 10 + 1) as usize;
                (first..=last).step_by(every).map(|power| f64::from(base).powi(power)).collect()
            }
        }
    }
}

/// A number on an axis.
fn tick(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{}G", trimmed(v / 1e9)),
        v if v >= 1e6 => format!("{}M", trimmed(v / 1e6)),
        v if v >= 1e4 => format!("{}k", trimmed(v / 1e3)),
        v => trimmed(v),
    }
}

/// Without zeros that say nothing, and without dropping those of small numbers.
fn trimmed(value: f64) -> String {
    if value == value.round() || value >= 100.0 {
        return format!("{value:.0}");
    }
    let text = if value < 0.01 { format!("{value:.4}") } else { show(value) };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

struct Svg(String);

impl Svg {
    fn line(&mut self, text: &str) {
        writeln!(self.0, "{text}").expect("a string takes all");
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = escaped(text);
        self.line(&format!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#));
    }

    fn rule(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
        self.line(&format!(r#"<path d="M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}" stroke="{colour}"/>"#));
    }

    /// The mark of the series with this place in the legend.
    fn mark(&mut self, series: usize, x: f64, y: f64) {
        let colour = COLOURS[series % COLOURS.len()];
        let path = match series % 4 {
            0 => return self.line(&format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.6" fill="{colour}"/>"#)),
            1 => format!("M{x:.1} {y:.1}m-3.4 -3.4h6.8v6.8h-6.8z"),
            2 => format!("M{x:.1} {y:.1}m0 -4.6l4.4 7.6h-8.8z"),
            _ => format!("M{x:.1} {y:.1}m0 -4.8l4.8 4.8l-4.8 4.8l-4.8 -4.8z"),
        };
        self.line(&format!(r#"<path d="{path}" fill="{colour}"/>"#));
    }

    fn panel(&mut self, panel: &Panel, names: &[String]) {
        let place = |name: &str| names.iter().position(|known| known == name).unwrap_or(0);
        self.line(&format!(
            r#"<text x="{:.1}" y="20" text-anchor="middle" font-weight="bold">{}</text>"#,
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            escaped(&panel.title)
        ));
        match &panel.data {
            Data::Lines(lines) => {
                let points = || lines.iter().flat_map(|line| line.points.iter());
                let x = Range::new(panel.x.scale, points().map(|point| point.0), LEFT, WIDTH - RIGHT);
                let y = Range::new(panel.y.scale, points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
                self.axes(panel, &y);
                for value in x.ticks() {
                    self.text(x.place(value), HEIGHT - BOTTOM + 17.0, "middle", &tick(value));
                }
                for line in lines {
                    self.series(line, place(&line.name), &x, &y);
                }
            }
            Data::Bars { parts, bars } => {
                let sums = bars.iter().map(|(_, values)| values.iter().sum::<f64>());
                let y = Range::new(Scale::Linear, sums, HEIGHT - BOTTOM, TOP);
                self.axes(panel, &y);
                let step = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
                for (i, (name, values)) in bars.iter().enumerate() {
                    let x = LEFT + step * (i as f64 + 0.5);
                    self.bar_name(x, name, bars.len() > 4);
                    let mut below = 0.0;
                    for (part, value) in parts.iter().zip(values) {
                        self.bar((x, step * 0.6), y.place(below), y.place(below + value), place(part));
                        below += value;
                    }
                }
            }
        }
    }

    /// Grid, ticks of the y axis, and both labels.
    fn axes(&mut self, panel: &Panel, y: &Range) {
        let (left, right, bottom) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
        for value in y.ticks() {
            let at = y.place(value);
            self.rule((left, at), (right, at), "#dddddd");
            self.text(left - 6.0, at + 4.0, "end", &tick(value));
        }
        self.rule((left, bottom), (right, bottom), "#333333");
        self.rule((left, TOP), (left, bottom), "#333333");
        self.text((left + right) / 2.0, HEIGHT - 16.0, "middle", panel.x.label);
        let middle = (TOP + bottom) / 2.0;
        self.line(&format!(
            r#"<text transform="translate(16 {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escaped(panel.y.label)
        ));
    }

    fn series(&mut self, line: &Series, index: usize, x: &Range, y: &Range) {
        let places: Vec<(f64, f64)> = line.points.iter().map(|point| (x.place(point.0), y.place(point.1))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let colour = COLOURS[index % COLOURS.len()];
        self.line(&format!(
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.8"/>"#,
            path.join(" ")
        ));
        places.into_iter().for_each(|(x, y)| self.mark(index, x, y));
    }

    /// The name below a bar, aslant where there are many.
    fn bar_name(&mut self, x: f64, name: &str, is_aslant: bool) {
        let y = HEIGHT - BOTTOM;
        if !is_aslant {
            return self.text(x, y + 17.0, "middle", name);
        }
        let name = escaped(name);
        let place = format!("translate({:.1} {:.1}) rotate(-25)", x + 6.0, y + 13.0);
        self.line(&format!(r#"<text transform="{place}" text-anchor="end" font-size="10">{name}</text>"#));
    }

    fn bar(&mut self, (middle, width): (f64, f64), from: f64, to: f64, index: usize) {
        let (x, height, colour) = (middle - width / 2.0, from - to, COLOURS[index % COLOURS.len()]);
        self.line(&format!(
            r#"<rect x="{x:.1}" y="{to:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
        ));
    }
}

/// Text that stands for itself in XML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Reads what the writer above writes: tags close in the order in which they were opened, quotes end, no number is
    /// missing. Returns how many elements of each name there are.
    pub(in crate::lab) fn elements(svg: &str) -> std::collections::BTreeMap<String, usize> {
        let (mut open, mut seen) = (Vec::new(), std::collections::BTreeMap::new());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "a place that is no number: {svg}");
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
        let svg = svg(&panels);
        let seen = elements(&svg);
        assert_eq!((seen["svg"], seen["polyline"], seen["g"]), (1, 2, 3));
        // Three points and an entry of the legend.
        assert_eq!(seen["circle"], 4);
        // Background and the parts of the bar.
        assert_eq!(seen["rect"], 3);
        assert!(svg.contains("a &lt; b &amp; c") && svg.contains(">2<") && svg.contains(">100M<"), "{svg}");
    }

    #[test]
    fn rows_share_panels_by_title_and_lines_by_name() {
        let rows = [row("faa", 1, 1.0), row("lanes", 1, 2.0), row("faa", 2, 3.0)];
        let panels =
            PLOT.panels(&rows, |row| row.number("threads").unwrap().to_string(), |row| row.text("buffer").into());
        let shape = |panel: &Panel| match &panel.data {
            Data::Lines(lines) => lines.iter().map(|line| (line.name.clone(), line.points.len())).collect(),
            Data::Bars { .. } => Vec::new(),
        };
        assert_eq!(shape(&panels[0]), [("faa".to_owned(), 1), ("lanes".to_owned(), 1)]);
        assert_eq!((panels.len(), shape(&panels[1])), (2, vec![("faa".to_owned(), 1)]));
    }

    #[test]
    fn places_follow_the_scale() {
        let log = Range::new(Scale::Log(10), [3.0, 250.0].into_iter(), 0.0, 300.0);
        assert_eq!((log.low, log.high), (1.0, 1000.0));
        assert!((log.place(10.0) - 100.0).abs() < 1e-6);
        assert_eq!(log.ticks().len(), 4);
        let linear = Range::new(Scale::Linear, [8.0].into_iter(), 300.0, 0.0);
        assert_eq!((linear.place(0.0), linear.ticks()), (300.0, vec![0.0, 2.0, 4.0, 6.0, 8.0]));
        let nothing = Range::new(Scale::Linear, [0.0, 0.0].into_iter(), 300.0, 0.0);
        assert_eq!((nothing.place(0.0), nothing.high), (300.0, 1.0));
        let one = Range::new(Scale::Log(2), [4.0].into_iter(), 0.0, 1.0);
        assert_eq!((one.low, one.high), (4.0, 8.0));
    }

    #[test]
    fn ticks_read_well() {
        let shown: Vec<String> = [0.0, 0.001, 0.5, 8.0, 1500.0, 2e4, 5e6, 1.6e9].iter().map(|v| tick(*v)).collect();
        assert_eq!(shown, ["0", "0.001", "0.5", "8", "1500", "20k", "5M", "1.6G"]);
    }
}
