//! All figures on one page.

use super::{Outcome, chart::escaped, outcome::plain, promise};
use std::fmt::Write as _;

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<title>Foreshore: the lab</title>
<style>
body { font-family: sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em; line-height: 1.4 }
section { border-top: 1px solid #ccc; margin-top: 2em }
dt { font-weight: bold; margin-top: .6em }
dd { margin-left: 0 }
th, td { text-align: left; padding-right: 1.5em }
.small { color: #555; font-size: .85em; overflow-wrap: anywhere }
svg { max-width: 100%; height: auto }
</style>
</head>
<body>
<h1>Foreshore: the lab</h1>
<p>Each figure stands beside what its paper reports. Numbers of one figure come from one run and are compared within it;
numbers of different machines are not.</p>
";

/// The page, with the figures in it.
pub(super) fn page(outcomes: &[Outcome]) -> String {
    let mut html = HEAD.to_owned();
    for outcome in outcomes {
        section(&mut html, outcome).expect("a string takes all");
    }
    html.push_str("</body>\n</html>\n");
    html
}

fn section(html: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let name = outcome.experiment;
    writeln!(html, "<section id=\"{name}\">\n<h2>{name}: {}</h2>", escaped(outcome.figure))?;
    writeln!(html, "{}", outcome.svg())?;
    writeln!(html, "<dl>\n<dt>The paper</dt><dd>{}</dd>", escaped(outcome.paper))?;
    writeln!(html, "<dt>What differs here</dt><dd>{}</dd>", escaped(outcome.differs))?;
    if !outcome.promises.is_empty() {
        writeln!(html, "<dt>What Foreshore promises</dt><dd><table>")?;
        let row = |html: &mut String, tag: &str, cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
            writeln!(html, "<tr>{}</tr>", cells.concat())
        };
        row(html, "th", &promise::COLUMNS.map(String::from))?;
        outcome.promises.iter().try_for_each(|promise| row(html, "td", &promise.cells()))?;
        writeln!(html, "</table></dd>")?;
    }
    if !outcome.findings.is_empty() {
        writeln!(html, "<dt>Found in this run</dt><dd><ul>")?;
        for finding in &outcome.findings {
            writeln!(html, "<li>{}</li>", escaped(finding))?;
        }
        writeln!(html, "</ul></dd>")?;
    }
    writeln!(html, "</dl>\n<p class=\"small\">{}</p>", escaped(&outcome.on()))?;
    let config: Vec<String> = outcome.config.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
    writeln!(html, "<p class=\"small\">{}</p>", escaped(&config.join(", ")))?;
    writeln!(html, "<p class=\"small\"><a href=\"{name}.json\">{name}.json</a></p>\n</section>")
}
