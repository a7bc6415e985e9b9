//! Tokens of a C or CUDA source, with their places. Comments and line continuations are gone; nothing is expanded.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// An identifier or keyword.
    Word,
    /// A preprocessing number.
    Number,
    /// A string literal, quotes and prefix included.
    Text,
    /// A character constant, quotes and prefix included.
    Character,
    /// The operand of an include in angle brackets, brackets included.
    Header,
    /// One character of punctuation; `##` and digraphs are one token in their ordinary spelling.
    Mark,
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Its text without continuations.
    pub text: String,
    /// Line of its first character, from 1.
    pub line: usize,
    /// Column of its first character, from 1, in characters.
    pub column: usize,
    /// Whether it is the first of its (spliced) line.
    pub first: bool,
}

/// Why a text has no tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (line {line}, column {column})")]
pub struct LexError {
    /// What is wrong.
    pub problem: &'static str,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
}

/// The characters of a text after continuations, each with its place.
struct Cursor {
    symbols: Vec<(char, u32, u32)>,
    at: usize,
}

impl Cursor {
    fn new(text: &str) -> Self {
        let mut symbols = Vec::with_capacity(text.len());
        let (mut line, mut column) = (1, 1);
        let raw: Vec<char> = text.chars().collect();
        let mut at = 0;
        while at < raw.len() {
            let symbol = raw[at];
            if symbol == '\\' {
                // Compilers take blanks between the backslash and the line end as a continuation too.
                let mut end = at + 1;
                while matches!(raw.get(end), Some(' ' | '\t' | '\u{b}' | '\u{c}' | '\r')) {
                    end += 1;
                }
                if raw.get(end) == Some(&'\n') {
                    at = end + 1;
                    line += 1;
                    column = 1;
                    continue;
                }
            }
            symbols.push((symbol, line, column));
            column += 1;
            if symbol == '\n' {
                line += 1;
                column = 1;
            }
            at += 1;
        }
        Self { symbols, at: 0 }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.symbols.get(self.at + ahead).map(|(symbol, ..)| *symbol)
    }

    fn place(&self) -> (usize, usize) {
        let last = self.symbols.last().map_or((1, 1), |(_, line, column)| (*line, *column + 1));
        let (line, column) = self.symbols.get(self.at).map_or(last, |(_, line, column)| (*line, *column));
        (line as usize, column as usize)
    }

    fn starts(&self, with: &str) -> bool {
        with.chars().enumerate().all(|(ahead, symbol)| self.peek(ahead) == Some(symbol))
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek(0).is_some_and(&keep) {
            self.at += 1;
        }
        self.symbols[start..self.at].iter().map(|(symbol, ..)| *symbol).collect()
    }

    fn take(&mut self, count: usize) -> String {
        let end = (self.at + count).min(self.symbols.len());
        let text = self.symbols[self.at..end].iter().map(|(symbol, ..)| *symbol).collect();
        self.at = end;
        text
    }

    fn error(&self, problem: &'static str) -> LexError {
        let (line, column) = self.place();
        LexError { problem, line, column }
    }
}

fn word_start(symbol: char) -> bool {
    symbol == '_' || symbol == '$' || symbol.is_ascii_alphabetic() || !symbol.is_ascii()
}

fn word_part(symbol: char) -> bool {
    word_start(symbol) || symbol.is_ascii_digit()
}

/// The tokens of a source.
///
/// # Errors
/// An open comment, string or character constant; a lone CR, NUL or trigraph, which compilers read in different ways.
pub fn tokens(text: &str) -> Result<Vec<Token>, LexError> {
    let mut cursor = Cursor::new(text);
    let mut tokens: Vec<Token> = Vec::new();
    let mut first = true;
    let mut include = false;
    while let Some(symbol) = cursor.peek(0) {
        match symbol {
            '\n' => {
                first = true;
                include = false;
                cursor.at += 1;
                continue;
            }
            '\r' if cursor.peek(1) == Some('\n') => {
                cursor.at += 1;
                continue;
            }
            '\r' => {
                return Err(cursor.error("a lone carriage return is read differently by different compilers"));
            }
            '\0' => return Err(cursor.error("the source holds a NUL character")),
            ' ' | '\t' | '\u{b}' | '\u{c}' => {
                cursor.at += 1;
                continue;
            }
            '/' if cursor.peek(1) == Some('/') => {
                cursor.take_while(|symbol| symbol != '\n');
                continue;
            }
            '/' if cursor.peek(1) == Some('*') => {
                comment(&mut cursor)?;
                continue;
            }
            '?' if cursor.peek(1) == Some('?')
                && cursor.peek(2).is_some_and(|third| "=/'()!<>-".contains(third)) =>
            {
                return Err(cursor.error("trigraphs are read differently by different compilers"));
            }
            _ => {}
        }
        let (line, column) = cursor.place();
        let (kind, text) = token(&mut cursor, include)?;
        include = match tokens.last() {
            Some(hash) if hash.first && hash.text == "#" && !first => {
                text.starts_with("include") || text == "import"
            }
            _ => false,
        };
        tokens.push(Token { kind, text, line, column, first });
        first = false;
    }
    Ok(tokens)
}

fn comment(cursor: &mut Cursor) -> Result<(), LexError> {
    let start = cursor.at;
    cursor.at += 2;
    while !cursor.starts("*/") {
        if cursor.peek(0).is_none() {
            cursor.at = start;
            return Err(cursor.error("the comment is not closed"));
        }
        cursor.at += 1;
    }
    cursor.at += 2;
    Ok(())
}

fn token(cursor: &mut Cursor, header: bool) -> Result<(TokenKind, String), LexError> {
    let Some(symbol) = cursor.peek(0) else { return Err(cursor.error("the source ends here")) };
    if header && symbol == '<' {
        let text = cursor.take_while(|symbol| symbol != '>' && symbol != '\n');
        if cursor.peek(0) != Some('>') {
            return Err(cursor.error("the header name is not closed"));
        }
        return Ok((TokenKind::Header, text + &cursor.take(1)));
    }
    for prefix in ["", "L", "u8", "u", "U"] {
        let quote = cursor.peek(prefix.len());
        if cursor.starts(prefix) && matches!(quote, Some('"' | '\'')) {
            return literal(cursor, prefix.len());
        }
    }
    for raw in ["R\"", "LR\"", "u8R\"", "uR\"", "UR\""] {
        if cursor.starts(raw) {
            return Err(cursor.error("raw strings are no C"));
        }
    }
    if word_start(symbol) {
        return Ok((TokenKind::Word, cursor.take_while(word_part)));
    }
    let fraction = symbol == '.' && cursor.peek(1).is_some_and(|next| next.is_ascii_digit());
    if symbol.is_ascii_digit() || fraction {
        return Ok((TokenKind::Number, number(cursor)));
    }
    let digraph =
        [("%:%:", "##"), ("%:", "#"), ("<%", "{"), ("%>", "}"), ("<:", "["), (":>", "]"), ("##", "##")];
    for (spelling, meaning) in digraph {
        if cursor.starts(spelling) {
            cursor.at += spelling.len();
            return Ok((TokenKind::Mark, meaning.to_owned()));
        }
    }
    Ok((TokenKind::Mark, cursor.take(1)))
}

fn number(cursor: &mut Cursor) -> String {
    let mut text = String::new();
    while let Some(symbol) = cursor.peek(0) {
        let exponent =
            matches!(text.chars().last(), Some('e' | 'E' | 'p' | 'P')) && matches!(symbol, '+' | '-');
        let quote = symbol == '\'' && cursor.peek(1).is_some_and(word_part);
        if !(word_part(symbol) || symbol == '.' || exponent || quote) {
            break;
        }
        text.push(symbol);
        cursor.at += 1;
    }
    text
}

fn literal(cursor: &mut Cursor, prefix: usize) -> Result<(TokenKind, String), LexError> {
    let start = cursor.at;
    let quote = cursor.peek(prefix);
    cursor.at += prefix + 1;
    loop {
        match cursor.peek(0) {
            Some('\\') if cursor.peek(1).is_some_and(|next| next != '\n') => cursor.at += 2,
            Some('\n') | None => {
                cursor.at = start;
                return Err(cursor.error("the literal is not closed on its line"));
            }
            found => {
                cursor.at += 1;
                if found == quote {
                    break;
                }
            }
        }
    }
    let text = cursor.symbols[start..cursor.at].iter().map(|(symbol, ..)| *symbol).collect();
    Ok((if quote == Some('"') { TokenKind::Text } else { TokenKind::Character }, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        tokens(source).unwrap().into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn continuations_comments_and_digraphs_do_not_hide_anything() {
        assert_eq!(texts("#inc\\\nlude <a/*b*/.h>"), ["#", "include", "<a/*b*/.h>"]);
        assert_eq!(texts("%: /* x */ include \"a\""), ["#", "include", "\"a\""]);
        assert_eq!(texts("a\\ \t\nb"), ["ab"]);
        assert_eq!(texts("\"/*\" x '\"' // y \\\n z\nw"), ["\"/*\"", "x", "'\"'", "w"]);
        assert_eq!(texts("1e-3f+0x1p+2 a##b"), ["1e-3f", "+", "0x1p+2", "a", "##", "b"]);
    }

    #[test]
    fn places_are_those_of_the_file() {
        let all = tokens("a\\\nb\n  é = 1;").unwrap();
        let places: Vec<_> = all.iter().map(|token| (token.line, token.column, token.first)).collect();
        assert_eq!(places, [(1, 1, true), (3, 3, true), (3, 5, false), (3, 7, false), (3, 8, false)]);
    }

    #[test]
    fn ambiguous_text_is_refused() {
        for bad in ["/*", "\"a", "'", "a\rb", "\0", "??=include", "R\"x(\")x\"", "\"a\\\n\n"] {
            assert!(tokens(bad).is_err(), "{bad:?}");
        }
    }
}
