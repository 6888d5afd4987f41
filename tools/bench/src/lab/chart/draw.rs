//! Draws figures by plotters, as SVG.
//!
//! A series keeps its colour and its mark in all panels of a figure, and one legend explains them all. A series whose
//! name is that of another with an addition behind a comma is a variant of it: it has the same colour, a dashed line
//! and hollow marks.

use super::{Data, Panel, Scale, Series, escaped, scale::AxisRange};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Write as _;

/// Units of a drawing in each pixel of its size: plotters places everything at whole units.
const UNITS: i32 = 4;
const WIDTH: i32 = 440;
const HEIGHT: i32 = 320;
/// An entry of a legend: the line with its mark, the height, and the most pixels of a letter.
const SWATCH: i32 = 30;
const ENTRY: i32 = 20;
const LETTER: i32 = 7;

/// Colours that readers with colour blindness can tell apart too, by lightness and by mark.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0x0b, 0x6b, 0xcb),
    RGBColor(0xd1, 0x42, 0x0f),
    RGBColor(0x11, 0x80, 0x3c),
    RGBColor(0x8a, 0x3a, 0xb9),
    RGBColor(0xb8, 0x86, 0x0b),
    RGBColor(0x0f, 0x8b, 0x8d),
    RGBColor(0xc2, 0x18, 0x5b),
    RGBColor(0x5d, 0x40, 0x37),
    RGBColor(0x60, 0x7d, 0x8b),
    RGBColor(0x7c, 0xb3, 0x42),
    RGBColor(0x11, 0x11, 0x11),
    RGBColor(0x9e, 0x9e, 0x9e),
];
const GREY: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
const MARKS: usize = 4;

/// A figure, whole and in parts.
#[derive(Clone, Debug)]
pub(in crate::lab) struct Figure {
    /// Panels in rows of two, and the legend below them.
    pub(in crate::lab) whole: String,
    /// Each panel alone.
    pub(in crate::lab) panels: Vec<String>,
    /// The entries of the legend: line with mark, and name.
    pub(in crate::lab) legend: Vec<(String, String)>,
}

impl Figure {
    pub(in crate::lab) fn new(panels: &[Panel]) -> Self {
        let looks = looks(panels);
        Self {
            whole: svg((WIDTH * columns(panels), height(panels, &looks)), |area| whole(area, panels, &looks)),
            panels: panels.iter().map(|panel| svg((WIDTH, HEIGHT), |area| draw(area, panel, &looks))).collect(),
            legend: looks
                .iter()
                .map(|look| (svg((SWATCH, ENTRY), |area| swatch(area, look)), look.name.clone()))
                .collect(),
        }
    }

    /// Panels that wrap, and the legend below them.
    pub(in crate::lab) fn html(&self) -> String {
        let mut html = "<div class=\"panels\">\n".to_owned();
        self.panels.iter().for_each(|panel| html.push_str(panel));
        html.push_str("</div>\n<ul class=\"legend\">\n");
        for (swatch, name) in &self.legend {
            writeln!(html, "<li>{}{}</li>", swatch.trim(), escaped(name)).expect("a string takes all");
        }
        html + "</ul>\n"
    }
}

/// What a series is drawn with.
#[derive(Clone, Debug, PartialEq)]
struct Look {
    name: String,
    /// Among the names that are no variants.
    place: usize,
    is_variant: bool,
}

/// Looks of lines and parts, each once, in the order of their first appearance.
fn looks(panels: &[Panel]) -> Vec<Look> {
    let mut names: Vec<&str> = Vec::new();
    for panel in panels {
        let own: Vec<&str> = match &panel.data {
            Data::Lines(lines) => lines.iter().map(|line| line.name.as_str()).collect(),
            Data::Bars { parts, .. } => parts.iter().map(String::as_str).collect(),
        };
        own.into_iter().for_each(|name| {
            if !names.contains(&name) {
                names.push(name)
            }
        });
    }
    let base =
        |name: &str| name.split_once(", ").map(|(base, _)| base).filter(|base| names.contains(base)).map(String::from);
    let bases: Vec<&str> = names.iter().copied().filter(|name| base(name).is_none()).collect();
    let look = |name: &&str| {
        let of = base(name);
        let place = bases.iter().position(|known| *known == of.as_deref().unwrap_or(name)).unwrap_or_default();
        Look { name: (*name).to_owned(), place, is_variant: of.is_some() }
    };
    names.iter().map(look).collect()
}

impl Look {
    fn colour(&self) -> RGBColor {
        COLOURS[self.place % COLOURS.len()]
    }

    /// Shifted by one where the colours begin again, so that colour and mark together do not.
    fn mark_shape(&self) -> usize {
        (self.place + self.place / COLOURS.len()) % MARKS
    }

    fn stroke(&self) -> ShapeStyle {
        self.colour().stroke_width(units(2) as u32 - 1)
    }

    /// A line through `places`, and a mark at each of `marks`.
    fn draw(&self, area: &Area<'_>, places: Vec<(i32, i32)>, marks: &[(i32, i32)]) -> Drawn {
        if self.is_variant {
            area.draw(&DashedPathElement::new(places, units(6), units(4), self.stroke()))?;
        } else {
            area.draw(&PathElement::new(places, self.stroke()))?;
        }
        marks.iter().try_for_each(|place| self.draw_mark(area, *place))
    }

    fn draw_mark(&self, area: &Area<'_>, (x, y): (i32, i32)) -> Drawn {
        let inner = if self.is_variant { WHITE } else { self.colour() }.filled();
        let outline: &[(i32, i32)] = match self.mark_shape() {
            0 => {
                area.draw(&Circle::new((x, y), 15, inner))?;
                return if self.is_variant { area.draw(&Circle::new((x, y), 15, self.stroke())) } else { Ok(()) };
            }
            1 => &[(-14, -14), (14, -14), (14, 14), (-14, 14), (-14, -14)],
            2 => &[(0, -18), (17, 12), (-17, 12), (0, -18)],
            _ => &[(0, -19), (19, 0), (0, 19), (-19, 0), (0, -19)],
        };
        let outline: Vec<(i32, i32)> = outline.iter().map(|(right, down)| (x + right, y + down)).collect();
        area.draw(&Polygon::new(outline.clone(), inner))?;
        if self.is_variant { area.draw(&PathElement::new(outline, self.stroke())) } else { Ok(()) }
    }

    /// A bar is paler if it is that of a variant.
    fn bar(&self) -> ShapeStyle {
        self.colour().mix(if self.is_variant { 0.45 } else { 1.0 }).filled()
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// What `draw` draws, as SVG of this size in pixels.
fn svg((width, height): (i32, i32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let (x, y) = (units(width), units(height));
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (x as u32, y as u32)).into_drawing_area();
    draw(&area).and_then(|()| area.present()).expect("a string takes all");
    drop(area);
    let (own, shown) = (format!("width=\"{x}\" height=\"{y}\""), format!("width=\"{width}\" height=\"{height}\""));
    svg.replacen(&own, &shown, 1).replace(" opacity=\"1\"", "")
}

const fn units(pixels: i32) -> i32 {
    pixels * UNITS
}

/// Text of this height in pixels. plotters takes the height of a line.
fn font(pixels: i32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", 1.24 * f64::from(units(pixels))))
}

fn columns(panels: &[Panel]) -> i32 {
    panels.len().clamp(1, 2) as i32
}

/// Entries of the legend in a row, and the width of each.
fn entries(panels: &[Panel], looks: &[Look]) -> (i32, i32) {
    let longest = looks.iter().map(|look| look.name.chars().count()).max().unwrap_or_default() as i32;
    let width = SWATCH + LETTER * longest + 16;
    ((WIDTH * columns(panels) / width).max(1), width)
}

fn height(panels: &[Panel], looks: &[Look]) -> i32 {
    let rows = panels.len().div_ceil(2).max(1) as i32;
    HEIGHT * rows + ENTRY * ((looks.len() as i32 + entries(panels, looks).0 - 1) / entries(panels, looks).0) + 10
}

fn whole(area: &Area<'_>, panels: &[Panel], looks: &[Look]) -> Drawn {
    area.fill(&WHITE)?;
    let part = |(x, y): (i32, i32), (width, height): (i32, i32)| {
        area.clone().shrink((units(x), units(y)), (units(width), units(height)))
    };
    for (i, panel) in (0..).zip(panels) {
        draw(&part((i % 2 * WIDTH, i / 2 * HEIGHT), (WIDTH, HEIGHT)), panel, looks)?;
    }
    let (in_row, width) = entries(panels, looks);
    for (i, look) in (0..).zip(looks) {
        let top = HEIGHT * (panels.len().div_ceil(2).max(1) as i32) + ENTRY * (i / in_row);
        let entry = part((i % in_row * width + 8, top), (width, ENTRY));
        swatch(&entry, look)?;
        let style = font(12).pos(Pos::new(HPos::Left, VPos::Center));
        entry.draw_text(&look.name, &style, (units(SWATCH + 4), units(ENTRY / 2)))?;
    }
    Ok(())
}

/// The line and the mark of an entry of the legend.
fn swatch(area: &Area<'_>, look: &Look) -> Drawn {
    let (middle, end) = (units(ENTRY / 2), units(SWATCH));
    look.draw(area, vec![(0, middle), (end, middle)], &[(end / 2, middle)])
}

fn draw(area: &Area<'_>, panel: &Panel, looks: &[Look]) -> Drawn {
    let bold = TextStyle::from(("sans-serif", 1.24 * f64::from(units(13)), FontStyle::Bold));
    let centred = bold.pos(Pos::new(HPos::Center, VPos::Top));
    area.draw_text(&panel.title, &centred, (units(WIDTH / 2), units(8)))?;
    match &panel.data {
        Data::Lines(lines) => draw_lines(area, panel, lines, looks),
        Data::Bars { parts, bars } => draw_bars(area, panel.y.label, parts, bars, looks),
    }
}

/// Room for the axes, with `left` pixels for the numbers or names at the left.
fn builder<'a, 'b>(area: &'a Area<'b>, left: i32) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin_top(units(32)).margin_right(units(20)).margin_left(units(4)).margin_bottom(units(4));
    builder.x_label_area_size(units(42)).y_label_area_size(units(left));
    builder
}

fn draw_lines(area: &Area<'_>, panel: &Panel, lines: &[Series], looks: &[Look]) -> Drawn {
    let placed = |line: &Series| line.points.iter().copied().filter(|point| panel.has_place_for(*point)).collect();
    let lines: Vec<(&str, Vec<(f64, f64)>)> = lines.iter().map(|line| (line.name.as_str(), placed(line))).collect();
    let points = || lines.iter().flat_map(|(_, points)| points.iter());
    let x = AxisRange::of(panel.x.scale, points().map(|point| point.0));
    let y = AxisRange::of(panel.y.scale, points().map(|point| point.1));
    let mut chart = builder(area, 62).build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().x_desc(panel.x.label).y_desc(panel.y.label);
    mesh.bold_line_style(GREY.stroke_width(units(1) as u32)).axis_style(BLACK.stroke_width(units(1) as u32));
    mesh.label_style(font(12)).axis_desc_style(font(12));
    mesh.set_all_tick_mark_size(units(3)).draw()?;
    // On the whole area, because the marks at the ends of the axes stand out.
    let (left, top) = area.get_base_pixel();
    for (name, points) in &lines {
        let place = |point: &(f64, f64)| {
            let (x, y) = chart.backend_coord(point);
            (x - left, y - top)
        };
        let places: Vec<(i32, i32)> = points.iter().map(place).collect();
        look(looks, name).draw(area, places.clone(), &places)?;
    }
    Ok(())
}

fn draw_bars(area: &Area<'_>, label: &str, parts: &[String], bars: &[(String, Vec<f64>)], looks: &[Look]) -> Drawn {
    let sums = bars.iter().map(|(_, values)| values.iter().sum::<f64>());
    let longest = bars.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default() as i32;
    let left = (LETTER * longest + 14).min(WIDTH / 2);
    let mut chart =
        builder(area, left).build_cartesian_2d(AxisRange::of(Scale::Linear, sums), AxisRange::places(bars.len()))?;
    // The first bar is the uppermost.
    let name = |place: &f64| bars.iter().rev().nth(*place as usize).map_or(String::new(), |(name, _)| name.clone());
    let mut mesh = chart.configure_mesh();
    mesh.disable_y_mesh().x_desc(label).y_label_formatter(&name);
    mesh.bold_line_style(GREY.stroke_width(units(1) as u32)).axis_style(BLACK.stroke_width(units(1) as u32));
    mesh.label_style(font(12)).axis_desc_style(font(12));
    mesh.set_all_tick_mark_size(units(3)).draw()?;
    for (place, (_, values)) in (0..).zip(bars.iter().rev()) {
        let (low, high) = (f64::from(place) + 0.15, f64::from(place) + 0.85);
        let mut from = 0.0;
        for (part, value) in parts.iter().zip(values).filter(|(_, value)| **value > 0.0) {
            let style = look(looks, part).bar();
            chart.draw_series([Rectangle::new([(from, high), (from + value, low)], style)])?;
            from += value;
        }
    }
    Ok(())
}

/// The look of a series: every line and part of the panels has one.
fn look<'a>(looks: &'a [Look], name: &str) -> &'a Look {
    looks.iter().find(|look| look.name == name).expect("looks are those of the panels")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::chart::Axis;

    fn panel(names: &[&str]) -> Panel {
        let line = |name: &&str| Series { name: (*name).to_owned(), points: vec![(1.0, 1.0), (2.0, 2.0)] };
        let (x, y) = (Axis::linear("x"), Axis::linear("y"));
        Panel { title: "t".to_owned(), x, y, data: Data::Lines(names.iter().map(line).collect()) }
    }

    #[test]
    fn a_variant_looks_like_what_it_is_a_variant_of() {
        let looks = looks(&[panel(&["mutex, spin", "faa", "mutex", "2 threads, none"])]);
        let places: Vec<(usize, bool)> = looks.iter().map(|look| (look.place, look.is_variant)).collect();
        assert_eq!(places, [(1, true), (0, false), (1, false), (2, false)]);
    }

    #[test]
    fn no_two_of_many_series_have_colour_and_mark_in_common() {
        let names: Vec<String> = (0..40).map(|i| i.to_string()).collect();
        let looks = looks(&[panel(&names.iter().map(String::as_str).collect::<Vec<_>>())]);
        let seen: std::collections::BTreeSet<_> =
            looks.iter().map(|look| (look.colour().rgb(), look.mark_shape())).collect();
        assert_eq!(seen.len(), 40);
    }

    #[test]
    fn a_dashed_line_is_many_lines() {
        let dashes = Figure::new(&[panel(&["a", "a, b"])]).panels[0].matches("<polyline").count();
        let solid = Figure::new(&[panel(&["a", "b"])]).panels[0].matches("<polyline").count();
        assert!(dashes > solid + 10, "{dashes} and {solid}");
    }
}
