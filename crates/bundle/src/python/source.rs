//! A source text as the parser sees it: line ends translated, lines numbered.

use crate::patch::universal_newlines;

/// Text with `\n` line ends and where its lines start.
#[derive(Debug, Clone)]
pub struct Source {
    text: String,
    starts: Vec<usize>,
    /// Line feeds of the translated text that were CRLF.
    shortened: Vec<usize>,
}

impl Source {
    /// The text with CRLF and lone CR as LF.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut shortened = Vec::new();
        for (found, _) in text.match_indices("\r\n") {
            shortened.push(found - shortened.len());
        }
        let text = universal_newlines(text);
        let mut starts = vec![0];
        starts.extend(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1));
        Self { text, starts, shortened }
    }

    /// The translated text; spans are offsets into it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The byte offset in the text as it was given.
    #[must_use]
    pub fn original(&self, at: usize) -> usize {
        at + self.shortened.partition_point(|line_end| *line_end < at)
    }

    /// The line (from 1) of a byte offset.
    #[must_use]
    pub fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }

    /// Line and column (both from 1, column in characters) of a byte offset.
    #[must_use]
    pub fn position(&self, at: usize) -> (usize, usize) {
        let at = at.min(self.text.len());
        let line = self.line(at);
        let before = self.text.get(self.starts[line - 1]..at).unwrap_or_default();
        (line, before.chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_map_back_through_every_line_end() {
        let given = "a\r\nbc\rd\r\n\r\ne";
        let source = Source::new(given);
        assert_eq!(source.text(), "a\nbc\nd\n\ne");
        for symbol in ["a", "b", "c", "d", "e"] {
            let at = source.text().find(symbol).unwrap();
            assert_eq!(Some(source.original(at)), given.find(symbol), "{symbol}");
        }
        assert_eq!(source.position(3), (2, 2));
        assert_eq!(source.line(source.text().len()), 5);
    }
}
