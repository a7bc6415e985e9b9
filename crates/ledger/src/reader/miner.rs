//! The miner's report, schema `cacheon.miner.submission-report.v1` (spec 30 §8): what became of each submission, and
//! what to do about it.

use super::parts::{self, or_null};
use super::{Reader, ReportError};
use crate::arrival::is_hotkey;
use crate::row::{ORDER, Reservation};
use crate::store::Tx;
use cacheon_identity::Json;
use rusqlite::params;

const SCHEMA: &str = "cacheon.miner.submission-report.v1";
const DOES_NOT_COMPILE: &str = "candidate_kernel_does_not_compile";

/// What a reason code means to the author, and the next step.
#[must_use]
pub(super) fn guidance(code: &str) -> Option<(&'static str, &'static str)> {
    let known = |key: &str| {
        Some(match key {
            "qualified" => (
                "Two independent qualifications passed.",
                "Nothing to do: settlement compares the pair with others on the same target.",
            ),
            DOES_NOT_COMPILE => (
                "The prebuild could not compile the kernel for this arena.",
                "Build it locally with the arena's pinned compiler, then submit the corrected bundle.",
            ),
            "speed_regression" | "candidate_slower" => (
                "The candidate was measurably slower than the stack it would join.",
                "Measure against the current stack, not against stock, before submitting again.",
            ),
            "speed_threshold_not_met" => (
                "The candidate did not clear the arena's bar over the current stack.",
                "Look up the bar in the evidence; submit when a change clears it with room for noise.",
            ),
            "graph_member_not_applicable" => (
                "The declared domain covers no shape that the arena serves for this member.",
                "Widen the declared domain or submit to another target.",
            ),
            "graph_eager_failed" => (
                "The first call with fresh inputs did not match the reference.",
                "Run the local verifier on every declared shape before submitting again.",
            ),
            "screen_rejected" => (
                "One screen stage failed; the stages below show which.",
                "Reproduce that stage locally and submit the corrected bundle.",
            ),
            "copy_of" => (
                "The bundle repeats an earlier submission or a published reference.",
                "Submit work of your own; a copy is never evaluated.",
            ),
            "duplicate_of" => (
                "The same bytes were judged before under this service; the verdict is the same.",
                "Change the bundle before submitting again.",
            ),
            "finalized_block_sla_expired" => (
                "The validator did not finish within the submission's window.",
                "Submit again; an outage of the validator is requeued by its operator.",
            ),
            "remote_qualification_hold" => (
                "The validator stopped this qualification for review; it says nothing about the kernel.",
                "Nothing to do: the operator releases or retries it.",
            ),
            "target_unavailable" => (
                "The arena no longer evaluates this target; its payment or credit is free again.",
                "Submit to an open target, or cite the same payment for another submission.",
            ),
            "candidate_attempts_exhausted" => (
                "The candidate ended its evaluation itself (crash, hang or abort) as often as the arena allows.",
                "Reproduce the failure locally; the evidence names the stage at which it ended.",
            ),
            _ => return None,
        })
    };
    known(code).or_else(|| known(code.split(':').next().unwrap_or_default()))
}

impl Reader {
    /// Every submission of a hotkey, oldest first. An unknown hotkey is an empty report.
    ///
    /// # Errors
    /// A malformed hotkey, contradicting rows.
    pub fn miner_submissions(&self, hotkey: &str) -> std::result::Result<Json, ReportError> {
        if !is_hotkey(hotkey) {
            return Err(ReportError::Selector(format!("hotkey {hotkey:?} is malformed")));
        }
        self.view(|tx| {
            let rows = tx.select(&format!("WHERE hotkey=?1 ORDER BY {ORDER}"), params![hotkey])?;
            let submissions = rows.iter().map(|row| submission(tx, row)).collect::<Result<Vec<_>, _>>()?;
            Ok(Json::object([
                ("schema", Json::from(SCHEMA)),
                ("hotkey", Json::from(hotkey)),
                ("cursor", parts::cursor(tx)?),
                ("submission_count", Json::from(submissions.len())),
                ("submissions", Json::Array(submissions)),
            ]))
        })
    }
}

fn submission(tx: &Tx<'_>, row: &Reservation) -> Result<Json, ReportError> {
    let dispositions = parts::dispositions(tx, &row.id)?;
    let advice =
        parts::code(&row.reason).and_then(|code| guidance(&code)).map_or(Json::Null, |(cause, next)| {
            Json::object([("cause", Json::from(cause)), ("next_step", Json::from(next))])
        });
    let mut members = vec![
        ("content_hash", Json::from(row.content_hash.as_str())),
        ("reservation_id", Json::from(row.id.to_string())),
        ("submitted_at_block", Json::from(row.block)),
        ("target_id", or_null(&row.target_id)),
        ("status", Json::from(row.status.as_str())),
        ("decision", or_null(row.decision.as_str())),
        ("attribution", parts::attribution(row)),
        ("reason", parts::reason(&row.reason)),
        ("guidance", advice),
        ("screens", Json::Array(parts::screens(tx, &row.id)?)),
        ("qualification_dispositions", Json::Array(parts::disposition_rows(&row.id, &dispositions)?)),
    ];
    if row.reason.split(':').next() == Some(DOES_NOT_COMPILE) {
        members.push(("static_finding", Json::from(DOES_NOT_COMPILE)));
    }
    Ok(Json::object(members))
}
