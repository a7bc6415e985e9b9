//! What the crate says about a bundle: one finding type for scans, refusals and advice.

use crate::rule::Rule;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Where a finding points. Lines and columns start at 1; columns count characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Bundle-relative POSIX path; `None` for the bundle as a whole.
    pub file: Option<String>,
    /// Line, where the file is text and a line is to blame.
    pub line: Option<usize>,
    /// Column in characters.
    pub column: Option<usize>,
    /// The field inside a structured file, such as `ops[0].entry`.
    pub field: Option<String>,
}

impl Place {
    /// The bundle as a whole.
    #[must_use]
    pub fn bundle() -> Self {
        Self::default()
    }

    /// A file as a whole.
    #[must_use]
    pub fn file(path: impl Into<String>) -> Self {
        Self { file: Some(path.into()), ..Self::default() }
    }

    /// A line of a file.
    #[must_use]
    pub fn line(path: impl Into<String>, line: usize) -> Self {
        Self { line: Some(line), ..Self::file(path) }
    }

    /// A character of a file.
    #[must_use]
    pub fn at(path: impl Into<String>, (line, column): (usize, usize)) -> Self {
        Self { line: Some(line), column: Some(column), ..Self::file(path) }
    }

    /// The same place, naming a field.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.file.as_deref().unwrap_or("bundle"))?;
        if let Some(line) = self.line {
            write!(out, ":{line}")?;
            if let Some(column) = self.column {
                write!(out, ":{column}")?;
            }
        }
        if let Some(field) = &self.field {
            write!(out, " ({field})")?;
        }
        Ok(())
    }
}

/// One thing that is wrong (or worth knowing) about bundle bytes. Attributable to their author, always.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem} [{rule}]")]
pub struct Finding {
    /// The rule that speaks; [`Rule::help`] says what to do, [`Rule::advisory`] whether it decides anything.
    pub rule: Rule,
    /// Where.
    pub place: Place,
    /// The offending name, where the rule has one (normative for scans, `spec/10-contribution.md` §9).
    pub subject: Option<String>,
    /// What is wrong, with the offending value.
    pub problem: String,
}

impl Finding {
    /// A finding of `rule` at `place`.
    #[must_use]
    pub fn new(rule: Rule, place: Place, problem: impl Into<String>) -> Self {
        Self { rule, place, subject: None, problem: problem.into() }
    }

    /// The same finding with its subject.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }
}

/// Why a bundle could not be read or inspected.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The bytes are refused: the author's doing.
    #[error(transparent)]
    Refused(#[from] Box<Finding>),
    /// The machine failed: says nothing about the bundle.
    #[error("cannot {doing} {}: {source}", path.display())]
    Infrastructure {
        /// What was being done, as a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl BundleError {
    /// The finding, when the bundle is to blame.
    #[must_use]
    pub fn finding(&self) -> Option<&Finding> {
        match self {
            Self::Refused(finding) => Some(finding),
            Self::Infrastructure { .. } => None,
        }
    }
}

impl From<Finding> for BundleError {
    fn from(finding: Finding) -> Self {
        Self::Refused(Box::new(finding))
    }
}

/// The result of a rule over bundle bytes.
pub type Ruled<T> = Result<T, Box<Finding>>;

pub(crate) fn refuse<T>(rule: Rule, place: Place, problem: impl Into<String>) -> Ruled<T> {
    Err(Box::new(Finding::new(rule, place, problem)))
}
