//! Rows as lines, and as what a terminal draws in place of the lines before.

use console::{Term, measure_text_width, truncate_str};

/// Rows and columns of the terminal.
pub(super) fn size() -> (usize, usize) {
    let (rows, columns) = Term::stdout().size();
    (rows.into(), columns.into())
}

/// Returns a line for each row, the texts below each other.
pub(super) fn lines(rows: &[(&str, String)]) -> Vec<String> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    rows.iter().map(|(name, text)| format!("{name:width$}  {text}")).collect()
}

/// Returns the same in lines of at most `width` columns, if each word fits beside the names. A longer text continues
/// below itself.
fn wrapped(rows: &[(&str, String)], width: usize) -> Vec<String> {
    let indent = 2 + rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut lines = Vec::new();
    for (name, text) in rows {
        let mut line = format!("{name:indent$}");
        for word in text.split(' ') {
            let columns = measure_text_width(&line);
            if columns > indent && columns + 1 + measure_text_width(word) > width {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            } else if columns > indent {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

/// Returns what draws a frame from the upper left corner: the title, and the rows in lines that fit the width. The
/// title is left out if the rows need its place. What is longer or wider than the terminal is cut off.
pub(super) fn frame(title: &str, rows: &[(&str, String)], (height, width): (usize, usize)) -> String {
    let rows: Vec<_> = rows.iter().map(|(name, text)| (*name, text.replace(char::is_control, " "))).collect();
    let mut lines = wrapped(&rows, width);
    // The cursor stands in a line of its own.
    let height = height.saturating_sub(1);
    if lines.len() + 2 <= height {
        lines.splice(..0, [title.replace(char::is_control, " "), String::new()]);
    }
    let mut frame = "\x1b[H".to_owned();
    for line in lines.iter().take(height) {
        frame.push_str(&truncate_str(line, width, ""));
        // To the end of the line, which may have been longer.
        frame.push_str("\x1b[K\n");
    }
    frame.push_str("\x1b[J");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        let rows = [("log", "1 MiB\n/s".to_owned()), ("oldest", "é".repeat(30))];
        let drawn = frame("http://x", &rows, (24, 20));
        let expected =
            format!("\x1b[Hhttp://x\x1b[K\n\x1b[K\nlog     1 MiB /s\x1b[K\noldest  {}\x1b[K\n\x1b[J", "é".repeat(12));
        assert_eq!(drawn, expected);
        assert_eq!(frame("http://x", &rows, (3, 20)).lines().count(), 3, "two lines and the end");
        assert!(!frame("http://x", &rows, (4, 20)).contains("http"), "the rows need its place");
        assert_eq!(frame("http://x", &rows, (0, 0)), "\x1b[H\x1b[J");
    }

    #[test]
    fn a_long_row_goes_on_below_itself() {
        let rows = [("log", "1 B/s, 3 commits a write; none".to_owned()), ("label", "潮, 汐".to_owned())];
        let drawn = wrapped(&rows, 22);
        assert_eq!(drawn, ["log    1 B/s, 3", "       commits a", "       write; none", "label  潮, 汐"]);
        assert_eq!(wrapped(&rows, 80), lines(&rows));
        let narrow = wrapped(&rows, 12);
        assert_eq!(narrow[narrow.len() - 2..], ["label  潮,", "       汐"], "two columns each");
    }
}
