//! Tables of text: columns as wide as their widest cell.

use std::fmt::Write as _;

/// The columns' names and the rows below them, right-aligned, each row one line.
pub(crate) fn render(columns: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let widest = rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        widest.max(columns[column].len())
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        for (column, cell) in cells.enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            write!(text, "{gap}{cell:>width$}", width = widths[column]).expect("a string takes all");
        }
        text.push('\n');
    };
    line(&mut columns.iter().copied());
    rows.iter().for_each(|row| line(&mut row.iter().map(String::as_str)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["1".to_owned(), "22222".to_owned()], vec!["100".to_owned(), "3".to_owned()]];
        assert_eq!(render(&["a", "b"], &rows), "  a      b\n  1  22222\n100      3\n");
    }
}
