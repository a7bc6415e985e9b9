//! The outcome of a scan, ordered for people and as JSON for machines.

use crate::finding::Finding;
use cacheon_identity::{Int, Json};

/// Findings in order of file, line and rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// A report; equal findings are kept once.
    #[must_use]
    pub fn new(mut findings: Vec<Finding>) -> Self {
        findings.sort_by(|left, right| {
            (&left.place, left.rule, &left.subject).cmp(&(&right.place, right.rule, &right.subject))
        });
        findings.dedup();
        Self { findings }
    }

    /// Whether nothing but advice was found.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.errors().next().is_none()
    }

    /// Every finding.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// What decides.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.rule.advisory())
    }

    /// What only advises.
    pub fn advice(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.rule.advisory())
    }

    /// `{"findings":[...],"ok":bool}`.
    #[must_use]
    pub fn to_json(&self) -> Json {
        Json::object([
            ("findings", Json::Array(self.findings.iter().map(Finding::to_json).collect())),
            ("ok", Json::Bool(self.ok())),
        ])
    }
}

impl Finding {
    /// The finding with its rule's help; absent parts are null.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let text = |value: Option<&String>| value.map_or(Json::Null, |text| Json::Str(text.clone()));
        let number = |value: Option<usize>| value.map_or(Json::Null, |value| Json::Int(Int::from(value)));
        Json::object([
            ("advisory", Json::Bool(self.rule.advisory())),
            ("column", number(self.place.column)),
            ("field", text(self.place.field.as_ref())),
            ("file", text(self.place.file.as_ref())),
            ("help", Json::Str(self.rule.help().to_owned())),
            ("line", number(self.place.line)),
            ("problem", Json::Str(self.problem.clone())),
            ("rule", Json::Str(self.rule.code().to_owned())),
            ("subject", text(self.subject.as_ref())),
        ])
    }
}
