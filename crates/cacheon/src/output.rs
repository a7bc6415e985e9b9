//! What people and programs read: text on a terminal, or one JSON object a line.

use std::io::Write as _;

use serde_json::{Map, Value, json};

/// Where a command's results go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// Sentences and tables.
    Text,
    /// One JSON object a line.
    Json,
}

impl Output {
    pub(crate) const fn new(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }

    /// A line of progress: text to standard error, JSON to standard output as `{"event":"progress",…}`.
    pub(crate) fn progress(self, subject: &str, stage: &str, text: &str) {
        match self {
            Self::Text => {
                let mut err = std::io::stderr().lock();
                let _ = writeln!(err, "  {subject:<18} {stage:<12} {text}");
            }
            Self::Json => {
                self.line(&json!({"event": "progress", "bundle": subject, "stage": stage, "text": text}))
            }
        }
    }

    /// A heading between phases.
    pub(crate) fn heading(self, text: &str) {
        match self {
            Self::Text => {
                let mut err = std::io::stderr().lock();
                let _ = writeln!(err, "{text}");
            }
            Self::Json => self.line(&json!({"event": "phase", "text": text})),
        }
    }

    /// A result: the text, or the JSON object.
    pub(crate) fn result(self, text: &str, value: &Value) {
        match self {
            Self::Text => {
                let mut out = std::io::stdout().lock();
                let _ = writeln!(out, "{}", text.trim_end());
            }
            Self::Json => self.line(value),
        }
    }

    fn line(self, value: &Value) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{value}");
        let _ = out.flush();
    }
}

/// A failed command, with what to do about it and the exit code it ends with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// None when the command's own result says everything.
    pub(crate) report: Option<miette::Report>,
}

/// Exit code: the machine, the network or the state directory failed.
pub(crate) const INFRASTRUCTURE: u8 = 1;
/// Exit code: a verdict against the input, or input that was refused.
pub(crate) const REFUSED: u8 = 2;
/// Exit code: the command line cannot be understood.
pub(crate) const USAGE: u8 = 3;

impl Failure {
    pub(crate) fn infrastructure(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { code: INFRASTRUCTURE, report: Some(miette::Report::from_err(error)) }
    }

    pub(crate) fn refused(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { code: REFUSED, report: Some(miette::Report::from_err(error)) }
    }

    pub(crate) fn message(code: u8, text: impl std::fmt::Display) -> Self {
        Self { code, report: Some(miette::miette!("{text}")) }
    }

    /// A result that was printed already and ends with this exit code.
    pub(crate) const fn quiet(code: u8) -> Self {
        Self { code, report: None }
    }

    /// Prints the failure where the command's reader looks for it.
    pub(crate) fn print(&self, output: Output) {
        let Some(report) = &self.report else { return };
        match output {
            Output::Text => {
                let mut err = std::io::stderr().lock();
                let _ = writeln!(err, "{report:?}");
            }
            Output::Json => {
                let chain: Vec<String> = report.chain().map(ToString::to_string).collect();
                output.line(&json!({"event": "error", "code": self.code, "error": chain.join(": ")}));
            }
        }
    }
}

/// A number for people and programs from `%.17g` text; null when there is none.
pub(crate) fn number(text: Option<&str>) -> Value {
    text.and_then(|text| text.parse::<f64>().ok()).map_or(Value::Null, |value| json!(value))
}

/// An identity value as CLI JSON. Integers beyond 64 bits become text.
pub(crate) fn value(json: &cacheon_identity::Json) -> Value {
    use cacheon_identity::Json;
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => json!(value),
        Json::Int(int) => int.to_i64().map_or_else(|| json!(int.to_string()), |value| json!(value)),
        Json::Str(text) => json!(text),
        Json::Array(items) => Value::Array(items.iter().map(value).collect()),
        Json::Object(members) => Value::Object(
            members.iter().map(|(key, member)| (key.clone(), value(member))).collect::<Map<_, _>>(),
        ),
    }
}
