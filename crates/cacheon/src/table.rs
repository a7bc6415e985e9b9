//! Plain tables: columns as wide as their widest cell, notes indented beneath their row.

/// How a column lines up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

enum Line {
    Row(Vec<String>),
    Note(String),
}

/// A table under construction.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    lines: Vec<Line>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), lines: Vec::new() }
    }

    /// Adds a row; cells beyond the columns are dropped.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines
            .push(Line::Row(cells.into_iter().take(self.columns.len()).map(|cell| plain(&cell)).collect()));
    }

    /// Adds a note beneath the last row.
    pub(crate) fn note(&mut self, text: &str) {
        self.lines.push(Line::Note(plain(text)));
    }

    pub(crate) fn render(&self) -> String {
        let width = |column: usize, heading: &str| {
            let cells = self.lines.iter().filter_map(|line| match line {
                Line::Row(cells) => cells.get(column).map(|cell| cell.chars().count()),
                Line::Note(_) => None,
            });
            cells.max().unwrap_or(0).max(heading.chars().count())
        };
        let widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(at, (heading, _))| width(at, heading)).collect();
        let mut text = String::new();
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        self.push(&mut text, &headings, &widths);
        for line in &self.lines {
            match line {
                Line::Row(cells) => self.push(&mut text, cells, &widths),
                Line::Note(note) => {
                    text.push_str("    ");
                    text.push_str(note);
                    text.push('\n');
                }
            }
        }
        text
    }

    fn push(&self, text: &mut String, cells: &[String], widths: &[usize]) {
        let mut line = String::new();
        for (at, ((_, align), width)) in self.columns.iter().zip(widths).enumerate() {
            let cell = cells.get(at).map_or("", String::as_str);
            if at > 0 {
                line.push_str("  ");
            }
            match align {
                Align::Left => line.push_str(&format!("{cell:<width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Text that cannot move the cursor: bundle names and findings come from strangers.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let mut table = Table::new(&[("NAME", Align::Left), ("N", Align::Right)]);
        table.row(["a".to_owned(), "10".to_owned()]);
        table.note("why");
        table.row(["longer".to_owned()]);
        assert_eq!(table.render(), "NAME     N\na       10\n    why\nlonger\n");
    }

    #[test]
    fn a_cell_cannot_write_escape_codes() {
        let mut table = Table::new(&[("NAME", Align::Left)]);
        table.row(["\u{1b}[2Jx\ny".to_owned()]);
        assert_eq!(table.render(), "NAME\n\u{fffd}[2Jx\u{fffd}y\n");
    }
}
