//! Figures: what of the rows is drawn, and how. `draw` makes SVG of it.

mod draw;
mod scale;

pub(super) use draw::Figure;
pub(super) use scale::Scale;

use super::Row;

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

/// What a panel shows.
#[derive(Clone, Debug)]
pub(super) enum Data {
    /// Marks joined by lines.
    Lines(Vec<Series>),
    /// Bars with a name each, split into parts that are named alike in all. They lie, so that their names are read
    /// beside them, and the axis of their values is `y`.
    Bars { parts: Vec<String>, bars: Vec<(String, Vec<f64>)> },
}

impl Panel {
    /// Returns whether the axes have a place for a point: zero has none on a logarithmic one.
    fn has_place_for(&self, (x, y): (f64, f64)) -> bool {
        self.x.has_place_for(x) && self.y.has_place_for(y)
    }
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

    fn has_place_for(&self, value: f64) -> bool {
        value.is_finite() && if self.scale == Scale::Linear { value >= 0.0 } else { value > 0.0 }
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
    /// Rows with one title share a panel, rows with one name in it a line. What an axis has no place for is left out.
    pub(super) fn panels<'a>(
        &self,
        rows: impl IntoIterator<Item = &'a Row>,
        title: impl Fn(&Row) -> String,
        name: impl Fn(&Row) -> String,
    ) -> Vec<Panel> {
        let mut panels: Vec<(String, Vec<Series>)> = Vec::new();
        for row in rows {
            let [Some(x), Some(y)] = self.of.map(|field| row.number(field)) else { continue };
            if !self.x.has_place_for(x) || !self.y.has_place_for(y) {
                continue;
            }
            let lines = &mut entry(&mut panels, title(row), |panel| &panel.0, |title| (title, Vec::new())).1;
            let line = entry(lines, name(row), |line| &line.name, |name| Series { name, points: Vec::new() });
            line.points.push((x, y));
        }
        panels.into_iter().map(|(title, lines)| self.panel(title, lines)).collect()
    }

    /// Lines, or a bar for each where all have one point at the same x: marks upon each other cannot be told apart.
    fn panel(&self, title: String, lines: Vec<Series>) -> Panel {
        let (x, y) = (self.x.clone(), self.y.clone());
        let first = lines.first().and_then(|line| line.points.first()).map_or(f64::NAN, |point| point.0);
        let is_one = lines.len() > 1 && lines.iter().flat_map(|line| &line.points).all(|point| point.0 == first);
        if !is_one {
            return Panel { title, x, y, data: Data::Lines(lines) };
        }
        let title = format!("{title}, {} {}", x.label, scale::number(first));
        let values = lines.into_iter().map(|line| (line.name, line.points.iter().map(|point| point.1).sum()));
        Panel { title, x, y, data: Data::bars(values) }
    }
}

impl Data {
    /// A bar for each value, in the colour of the line with its name.
    pub(super) fn bars(values: impl IntoIterator<Item = (String, f64)>) -> Self {
        let (parts, values): (Vec<String>, Vec<f64>) = values.into_iter().unzip();
        let bar = |(place, name): (usize, &String)| {
            let own = |(part, value): (usize, &f64)| if part == place { *value } else { 0.0 };
            (name.clone(), values.iter().enumerate().map(own).collect())
        };
        let bars = parts.iter().enumerate().map(bar).collect();
        Self::Bars { parts, bars }
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

/// Text that stands for itself in XML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
pub(super) mod tests;
