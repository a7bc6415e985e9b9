//! The scan of one C file.

use super::include;
use super::lex::{Token, TokenKind, tokens};
use super::words::{ASM_DIRECTIVES, ASM_SYSTEM, DENIED_CALLS, DIRECTIVES, HEADER, PRAGMAS, REFUSED};
use crate::finding::{Finding, Place};
use crate::rule::Rule;
use std::collections::BTreeSet;

/// Everything the rules say about one declared file. `declared` are the bundle's C files; `exists` answers for any
/// bundle path.
#[must_use]
pub fn scan(
    path: &str,
    bytes: &[u8],
    declared: &BTreeSet<String>,
    exists: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    if crate::path::name(path) == HEADER {
        let problem = format!("{HEADER} is provided by the build; a bundle may not bring its own");
        return vec![Finding::new(Rule::CInclude, Place::file(path), problem)];
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return vec![Finding::new(Rule::Unreadable, Place::file(path), "the source is not UTF-8")];
    };
    if text.starts_with('\u{feff}') {
        let problem = "the source starts with a byte-order mark";
        return vec![Finding::new(Rule::Unreadable, Place::at(path, (1, 1)), problem)];
    }
    match tokens(text) {
        Ok(tokens) => {
            let mut scan = Scan { path, findings: Vec::new() };
            scan.file(&tokens, declared, &exists);
            scan.findings
        }
        Err(error) => {
            vec![Finding::new(Rule::CConstruct, Place::at(path, (error.line, error.column)), error.problem)]
        }
    }
}

/// Whether a source names an identifier outside comments and strings.
#[must_use]
pub fn names(bytes: &[u8], identifier: &str) -> bool {
    std::str::from_utf8(bytes).ok().and_then(|text| tokens(text).ok()).is_some_and(|tokens| {
        tokens.iter().any(|token| token.kind == TokenKind::Word && token.text == identifier)
    })
}

struct Scan<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Scan<'_> {
    fn say(&mut self, rule: Rule, token: &Token, problem: impl Into<String>) {
        let place = Place::at(self.path, (token.line, token.column));
        self.findings.push(Finding::new(rule, place, problem).about(shown(&token.text)));
    }

    fn file(&mut self, tokens: &[Token], declared: &BTreeSet<String>, exists: &impl Fn(&str) -> bool) {
        let mut at = 0;
        while at < tokens.len() {
            let line_end =
                tokens[at + 1..].iter().position(|token| token.first).map_or(tokens.len(), |n| at + 1 + n);
            if tokens[at].first && tokens[at].text == "#" {
                self.directive(&tokens[at..line_end], declared, exists);
                at = line_end;
                continue;
            }
            at = self.code(tokens, at);
        }
    }

    fn directive(&mut self, line: &[Token], declared: &BTreeSet<String>, exists: &impl Fn(&str) -> bool) {
        let Some(name) = line.get(1) else { return };
        match name.text.as_str() {
            "include" => {
                if let Err(problem) = include::check(&line[2..], self.path, declared, exists) {
                    self.say(Rule::CInclude, line.get(2).unwrap_or(name), problem);
                }
            }
            "include_next" | "import" | "embed" => {
                self.say(Rule::CInclude, name, format!("#{} is not allowed", name.text));
            }
            "pragma" => self.pragma(&line[1..]),
            known if DIRECTIVES.contains(&known) => {
                let mut at = 2;
                while at < line.len() {
                    at = self.code(line, at);
                }
            }
            _ => self.say(Rule::CConstruct, name, format!("#{} is not allowed", shown(&name.text))),
        }
    }

    fn pragma(&mut self, line: &[Token]) {
        let word = |index: usize| line.get(index).map_or("", |token| token.text.as_str());
        let known = PRAGMAS.iter().any(|(family, member)| {
            *family == word(1) && (matches!(*member, "" | "*") || *member == word(2))
        });
        if !known {
            let token = line.get(1).unwrap_or(&line[0]);
            self.say(Rule::CConstruct, token, format!("#pragma {} is not allowed", shown(word(1))));
        }
    }

    /// Checks the token at `at` and gives the index to go on from.
    fn code(&mut self, tokens: &[Token], at: usize) -> usize {
        let token = &tokens[at];
        if token.kind != TokenKind::Word {
            return at + 1;
        }
        let word = token.text.as_str();
        if let Some((_, why)) = REFUSED.iter().find(|(name, _)| *name == word) {
            self.say(Rule::CConstruct, token, format!("`{word}` {why}"));
        } else if matches!(word, "asm" | "__asm" | "__asm__") {
            return self.assembly(tokens, at);
        } else if matches!(word, "section" | "__section__") && next_is(tokens, at, "(") {
            self.say(Rule::CConstruct, token, "a kernel may not choose its section");
        } else if matches!(word, "dlopen" | "dlsym")
            || DENIED_CALLS.contains(&word) && next_is(tokens, at, "(")
        {
            self.say(Rule::CAdvice, token, format!("`{word}` is denied or ends the attempt at run time"));
        } else if word.starts_with("__NR_") || word.starts_with("SYS_") {
            self.say(Rule::CAdvice, token, format!("`{word}` is a system call number"));
        }
        at + 1
    }

    /// `asm` with optional qualifiers: its template must be plain string literals, so that it can be read here.
    fn assembly(&mut self, tokens: &[Token], at: usize) -> usize {
        let mut open = at + 1;
        while tokens.get(open).is_some_and(|token| {
            matches!(
                token.text.as_str(),
                "volatile" | "__volatile__" | "__volatile" | "inline" | "__inline__" | "goto"
            )
        }) {
            open += 1;
        }
        if tokens.get(open).is_none_or(|token| token.text != "(") {
            self.say(Rule::CConstruct, &tokens[at], "`asm` must be followed by a template in parentheses");
            return at + 1;
        }
        let mut template = String::new();
        let mut end = open + 1;
        while let Some(token) = tokens.get(end).filter(|token| !matches!(token.text.as_str(), ":" | ")")) {
            if token.kind != TokenKind::Text || !token.text.starts_with('"') {
                self.say(
                    Rule::CConstruct,
                    token,
                    "an assembly template must be plain string literals, without macros",
                );
                return end;
            }
            template.push_str(&unescape(&token.text[1..token.text.len() - 1]));
            end += 1;
        }
        self.template(&tokens[at], &template);
        end
    }

    fn template(&mut self, token: &Token, template: &str) {
        if template.contains(".incbin") || template.contains(".include") {
            self.say(Rule::CInclude, token, "assembly may not read files");
            return;
        }
        for statement in template.split(['\n', ';', '\r']) {
            let mut words = statement.split_whitespace().skip_while(|word| word.ends_with(':'));
            let Some(word) = words.next() else { continue };
            let directive = word.starts_with('.') && !word.starts_with(".L");
            if directive && !ASM_DIRECTIVES.contains(&word) || word.starts_with(['#', '"', '/']) {
                self.say(
                    Rule::CConstruct,
                    token,
                    format!("the assembler directive `{}` is not allowed", shown(word)),
                );
            } else if ASM_SYSTEM.contains(&word.to_ascii_lowercase().as_str()) {
                self.say(Rule::CAdvice, token, format!("`{word}` is denied at run time"));
            }
        }
    }
}

fn next_is(tokens: &[Token], at: usize, text: &str) -> bool {
    tokens.get(at + 1).is_some_and(|token| token.text == text)
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The bytes of a string literal as far as assembly needs them.
fn unescape(literal: &str) -> String {
    let mut out = String::new();
    let mut symbols = literal.chars().peekable();
    while let Some(symbol) = symbols.next() {
        if symbol != '\\' {
            out.push(symbol);
            continue;
        }
        match symbols.next() {
            Some('n' | 'v' | 'f') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('x') => {
                let mut value = 0u32;
                while let Some(digit) = symbols.peek().and_then(|next| next.to_digit(16)) {
                    value = (value << 4 | digit) & 0xff;
                    symbols.next();
                }
                out.push(char::from_u32(value).unwrap_or(' '));
            }
            Some(digit @ '0'..='7') => {
                let mut value = digit.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    let Some(next) = symbols.peek().and_then(|next| next.to_digit(8)) else { break };
                    value = value * 8 + next;
                    symbols.next();
                }
                out.push(char::from_u32(value & 0xff).unwrap_or(' '));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}
