//! Rows as lines, and as what a terminal draws in place of the lines before.

use console::Term;

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

/// Returns what draws a frame: the title and the rows, each in one line, from the upper left corner. What is longer or
/// wider than the terminal is cut off.
pub(super) fn frame(title: &str, rows: &[(&str, String)], (height, width): (usize, usize)) -> String {
    let mut frame = "\x1b[H".to_owned();
    let lines = [title.to_owned(), String::new()].into_iter().chain(lines(rows));
    for line in lines.take(height.saturating_sub(1)) {
        frame.extend(line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(width));
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
        assert_eq!(frame("http://x", &rows, (4, 20)).lines().count(), 4, "three lines and the end");
        assert_eq!(frame("http://x", &rows, (0, 0)), "\x1b[H\x1b[J");
    }
}
