//! All figures on one page, each beside what its paper reports.

use super::{Outcome, Promise, chart::escaped, model, outcome::plain, promise};
use crate::units::show_bytes;
use std::fmt::{self, Write as _};

const HEAD: &str = include_str!("page/head.html");
const NOT_HERE: &str = include_str!("page/not_here.html");

/// The page, with the figures in it. `note` says in its head where the runs come from.
pub(super) fn page(outcomes: &[Outcome], note: Option<&str>) -> String {
    let mut html = HEAD.to_owned();
    write(&mut html, outcomes, note).expect("a string takes all");
    html
}

fn write(html: &mut String, outcomes: &[Outcome], note: Option<&str>) -> fmt::Result {
    head(html, outcomes, note)?;
    contents(html, outcomes)?;
    outcomes.iter().try_for_each(|outcome| section(html, outcome))?;
    model::section(html, outcomes)?;
    html.push_str(NOT_HERE);
    html.push_str("</body>\n</html>\n");
    Ok(())
}

/// The machines, and the version, as far as they are known.
fn head(html: &mut String, outcomes: &[Outcome], note: Option<&str>) -> fmt::Result {
    let mut machines: Vec<String> = Vec::new();
    for outcome in outcomes {
        let (machine, version) = (&outcome.machine, outcome.config.get("version"));
        let (cores, memory, kernel) = (machine.cores, show_bytes(machine.memory_bytes), &machine.kernel);
        let version = version.map_or(String::new(), |version| format!(", Foreshore {}", plain(version)));
        let line = format!("{cores} cores, {memory} memory, Linux {kernel}{version}");
        if !machines.contains(&line) {
            machines.push(line);
        }
    }
    writeln!(html, "<p>Measured on {}.</p>", escaped(&machines.join("; and on ")))?;
    note.map_or(Ok(()), |note| writeln!(html, "<p>{}</p>", escaped(note)))
}

/// Each experiment with its figure, and how many of its promises held.
fn contents(html: &mut String, outcomes: &[Outcome]) -> fmt::Result {
    let all = outcomes.iter().flat_map(|outcome| &outcome.promises);
    writeln!(html, "<h2>Contents</h2>\n<p>{} promises held in these runs.</p>", held(all))?;
    writeln!(html, "<table>\n<tr><th>experiment</th><th>figure</th><th>promises held</th></tr>")?;
    for outcome in outcomes {
        let (name, figure) = (outcome.experiment, escaped(outcome.figure));
        let is_missed = outcome.promises.iter().any(|promise| !promise.held);
        let class = if is_missed { " class=\"no\"" } else { "" };
        let held = if outcome.promises.is_empty() { "-".to_owned() } else { held(&outcome.promises) };
        writeln!(html, "<tr><td><a href=\"#{name}\">{name}</a></td><td>{figure}</td><td{class}>{held}</td></tr>")?;
    }
    writeln!(
        html,
        "</table>\n<p><a href=\"#model\">Beyond the machine</a>, <a href=\"#not-here\">not reproduced</a></p>"
    )
}

fn held<'a>(promises: impl IntoIterator<Item = &'a Promise>) -> String {
    let (mut held, mut all) = (0, 0);
    for promise in promises {
        held += usize::from(promise.held);
        all += 1;
    }
    format!("{held} of {all}")
}

fn section(html: &mut String, outcome: &Outcome) -> fmt::Result {
    let name = outcome.experiment;
    writeln!(html, "<section id=\"{name}\">\n<div class=\"top\">\n<h2>{name}: {}</h2>", escaped(outcome.figure))?;
    html.push_str(&outcome.drawing().html());
    writeln!(html, "</div>\n<dl>\n<dt>The paper</dt><dd>{}</dd>", prose(outcome.paper))?;
    writeln!(html, "<dt>What differs here</dt><dd>{}</dd>", prose(outcome.differs))?;
    if !outcome.promises.is_empty() {
        promises(html, &outcome.promises)?;
    }
    if !outcome.findings.is_empty() {
        writeln!(html, "<dt>Found in this run</dt><dd><ul>")?;
        for finding in &outcome.findings {
            writeln!(html, "<li>{}</li>", prose(finding))?;
        }
        writeln!(html, "</ul></dd>")?;
    }
    writeln!(html, "</dl>\n<p class=\"small\">{}</p>", escaped(&outcome.on()))?;
    let config: Vec<String> = outcome.config.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
    writeln!(html, "<p class=\"small\">{}</p>", escaped(&config.join(", ")))?;
    writeln!(html, "<p class=\"small\"><a href=\"{name}.json\">{name}.json</a></p>\n</section>")
}

/// Text with names between backticks.
fn prose(text: &str) -> String {
    let mut html = String::new();
    for (at, part) in escaped(text).split('`').enumerate() {
        html.push_str(["", "<code>", "</code>"][if at == 0 { 0 } else { 2 - at % 2 }]);
        html.push_str(part);
    }
    html
}

fn promises(html: &mut String, promises: &[Promise]) -> fmt::Result {
    let heads = promise::COLUMNS.map(|head| format!("<th>{head}</th>")).concat();
    writeln!(html, "<dt>What Foreshore promises</dt><dd><table>\n<tr>{heads}</tr>")?;
    for promise in promises {
        let cells: Vec<String> = promise.cells().iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        let class = if promise.held { "" } else { " class=\"no\"" };
        writeln!(html, "<tr{class}>{}</tr>", cells.concat())?;
    }
    writeln!(html, "</table></dd>")
}
