//! What became of bundles, as people and programs read it.

use std::fmt::Write as _;

use cacheon_intake::campaign::report::{AttemptResult, BundleResult, Crown, Report, Settlement};
use cacheon_records::arena::Decision;
use serde_json::{Value, json};

use crate::output::number;
use crate::table::{Align, Table};

/// How much a table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// One line a bundle, and what a person must know besides.
    Brief,
    /// Every attempt with its lanes and its evidence.
    Full,
}

/// The results as JSON: `results` and `crowns`.
pub(crate) fn to_json(report: &Report) -> Value {
    json!({
        "results": report.results.iter().map(result).collect::<Vec<_>>(),
        "crowns": report.crowns.iter().map(crown).collect::<Vec<_>>(),
    })
}

fn result(it: &BundleResult) -> Value {
    json!({
        "bundle": it.bundle,
        "content_hash": it.content_hash.map(|hash| hash.to_string()),
        "reservation": it.reservation.map(|id| id.to_string()),
        "hotkey": it.hotkey,
        "target": it.target,
        "decision": it.decision.as_str(),
        "reason": it.reason,
        "detail": it.detail,
        "speedup": number(it.speedup.as_deref()),
        "bar": number(it.bar.as_deref()),
        "attempts": it.attempts.iter().map(attempt).collect::<Vec<_>>(),
        "settlement": it.settlement.as_ref().map(settlement),
        "advisories": it.advisories,
    })
}

fn attempt(it: &AttemptResult) -> Value {
    json!({
        "role": it.role.as_str(),
        "number": it.number,
        "lanes": it.lanes.as_ref().map(|lanes| json!({"baseline": lanes.baseline, "candidate": lanes.candidate})),
        "speedup": number(it.speedup.as_deref()),
        "bar": number(it.bar.as_deref()),
        "decision": it.decision.as_str(),
        "reason": it.reason,
        "charged": it.charged,
        "evidence": it.evidence.map(|sha| sha.to_string()),
    })
}

fn settlement(it: &Settlement) -> Value {
    let (outcome, event) = match it {
        Settlement::Crowned { event } => ("crowned", Some(event.to_string())),
        Settlement::SetAside { event, .. } => ("set_aside", Some(event.to_string())),
        Settlement::Waiting { .. } => ("waiting", None),
        Settlement::WouldCrown => ("would_crown", None),
        Settlement::WouldSetAside { .. } => ("would_set_aside", None),
    };
    json!({"outcome": outcome, "reason": it.reason(), "event": event})
}

fn crown(it: &Crown) -> Value {
    json!({
        "target": it.target,
        "bundle": it.bundle,
        "speedup": number(Some(&it.speedup)),
        "event": it.event.to_string(),
        "standing": it.standing,
    })
}

/// `1.234x`, or a dash.
fn times(text: Option<&str>) -> String {
    match text.and_then(|text| text.parse::<f64>().ok()) {
        Some(value) => format!("{value:.3}x"),
        None => "-".to_owned(),
    }
}

/// The results as a table.
pub(crate) fn to_text(report: &Report, depth: Depth) -> String {
    let mut table = Table::new(&[
        ("BUNDLE", Align::Left),
        ("TARGET", Align::Left),
        ("DECISION", Align::Left),
        ("REASON", Align::Left),
        ("SPEEDUP", Align::Right),
        ("BAR", Align::Right),
        ("ATTEMPTS", Align::Left),
    ]);
    for it in &report.results {
        table.row([
            it.bundle.clone(),
            it.target.clone().unwrap_or_else(|| "-".to_owned()),
            it.decision.as_str().to_owned(),
            it.reason.clone(),
            times(it.speedup.as_deref()),
            times(it.bar.as_deref()),
            marks(&it.attempts),
        ]);
        if !it.detail.is_empty() {
            table.note(&it.detail);
        }
        for advisory in &it.advisories {
            table.note(&format!("advisory: {advisory}"));
        }
        if depth == Depth::Full {
            for attempt in &it.attempts {
                table.note(&line(attempt));
            }
        }
    }
    let mut text = table.render();
    for crown in &report.crowns {
        let past = if crown.standing { "" } else { " (superseded)" };
        let event: String = crown.event.to_string().chars().take(12).collect();
        let speedup = times(Some(&crown.speedup));
        let _ = writeln!(
            text,
            "crown: {} takes {} at {speedup}, event {event}{past}",
            crown.bundle, crown.target
        );
    }
    let held: Vec<&str> = report
        .results
        .iter()
        .filter(|it| it.decision == Decision::Hold)
        .map(|it| it.bundle.as_str())
        .collect();
    if !held.is_empty() {
        let _ = writeln!(
            text,
            "held: {}. Look at why, then `cacheon arena release {}`",
            held.join(", "),
            held.join(" ")
        );
    }
    text
}

/// One letter an attempt: P pass, F fail, n undecided, c ended by the candidate, h held; primary before `/`.
fn marks(attempts: &[AttemptResult]) -> String {
    let mark = |it: &AttemptResult| match it.decision {
        Decision::Pass => 'P',
        Decision::Fail => 'F',
        Decision::NoDecision if it.charged => 'c',
        Decision::NoDecision => 'n',
        Decision::Hold => 'h',
    };
    let of = |role: cacheon_records::arena::Role| -> String {
        attempts.iter().filter(|it| it.role == role).map(mark).collect()
    };
    let primary = of(cacheon_records::arena::Role::Primary);
    let reproduction = of(cacheon_records::arena::Role::Reproduction);
    match (primary.is_empty(), reproduction.is_empty()) {
        (true, true) => "-".to_owned(),
        (_, true) => primary,
        (_, false) => format!("{primary}/{reproduction}"),
    }
}

fn line(it: &AttemptResult) -> String {
    let mut text = format!("{} {}: {} {}", it.role.as_str(), it.number, it.decision.as_str(), it.reason);
    if let Some(lanes) = &it.lanes {
        let _ = write!(text, ", incumbent on {}, candidate on {}", lanes.baseline, lanes.candidate);
    }
    if it.speedup.is_some() {
        let _ = write!(text, ", {}", times(it.speedup.as_deref()));
    }
    if let Some(sha) = it.evidence {
        let head: String = sha.to_string().chars().take(12).collect();
        let _ = write!(text, ", evidence {head}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use cacheon_identity::sha256;
    use cacheon_records::arena::{LanePair, Role};
    use cacheon_settlement::ids::EventDigest;

    fn passed(role: Role, speedup: &str) -> AttemptResult {
        let (baseline, candidate) = match role {
            Role::Primary => ("A:0", "B:1"),
            Role::Reproduction => ("B:1", "A:0"),
        };
        AttemptResult {
            role,
            number: 1,
            lanes: Some(LanePair { baseline: baseline.to_owned(), candidate: candidate.to_owned() }),
            speedup: Some(speedup.to_owned()),
            bar: Some("1.05".to_owned()),
            decision: Decision::Pass,
            reason: "qualified".to_owned(),
            charged: false,
            evidence: Some(sha256(speedup.as_bytes())),
        }
    }

    fn crashed(number: u32) -> AttemptResult {
        AttemptResult {
            number,
            speedup: None,
            bar: None,
            lanes: None,
            decision: Decision::NoDecision,
            reason: "candidate_worker".to_owned(),
            charged: true,
            evidence: None,
            ..passed(Role::Primary, "1")
        }
    }

    fn sample() -> Report {
        let event = EventDigest::new(sha256(b"event"));
        let blank = BundleResult {
            bundle: "linear-prefetch".to_owned(),
            content_hash: Some(sha256(b"content")),
            reservation: None,
            hotkey: Some("local".to_owned()),
            target: Some("linear.quantized".to_owned()),
            decision: Decision::Pass,
            reason: "crowned".to_owned(),
            detail: String::new(),
            speedup: Some("1.3750000000000002".to_owned()),
            bar: Some("1.05".to_owned()),
            attempts: vec![passed(Role::Primary, "1.5"), passed(Role::Reproduction, "1.3750000000000002")],
            settlement: Some(Settlement::Crowned { event }),
            advisories: Vec::new(),
        };
        let lost = BundleResult {
            bundle: "linear-crash".to_owned(),
            decision: Decision::Fail,
            reason: "candidate_attempts_exhausted".to_owned(),
            detail: "the candidate itself ended its attempts".to_owned(),
            speedup: None,
            bar: None,
            attempts: vec![crashed(1), crashed(2)],
            settlement: None,
            advisories: vec!["5 network system calls denied while the candidate served".to_owned()],
            ..blank.clone()
        };
        let held = BundleResult {
            bundle: "odd".to_owned(),
            target: None,
            decision: Decision::Hold,
            reason: "interrupted_armed_stage".to_owned(),
            detail: String::new(),
            advisories: Vec::new(),
            attempts: Vec::new(),
            ..lost.clone()
        };
        let crown = Crown {
            target: "linear.quantized".to_owned(),
            bundle: "linear-prefetch".to_owned(),
            speedup: "1.3750000000000002".to_owned(),
            event,
            standing: true,
        };
        Report { results: vec![blank, lost, held], crowns: vec![crown] }
    }

    #[test]
    fn the_table_reads_as_one_expects() {
        let expected = "\
BUNDLE           TARGET            DECISION  REASON                        SPEEDUP     BAR  ATTEMPTS
linear-prefetch  linear.quantized  PASS      crowned                        1.375x  1.050x  P/P
linear-crash     linear.quantized  FAIL      candidate_attempts_exhausted        -       -  cc
    the candidate itself ended its attempts
    advisory: 5 network system calls denied while the candidate served
odd              -                 HOLD      interrupted_armed_stage             -       -  -
crown: linear-prefetch takes linear.quantized at 1.375x, event 1e3e1f2c4b4c
held: odd. Look at why, then `cacheon arena release odd`
";
        let event: String = sha256(b"event").to_string().chars().take(12).collect();
        assert_eq!(to_text(&sample(), Depth::Brief), expected.replace("1e3e1f2c4b4c", &event));
    }

    #[test]
    fn the_full_table_names_lanes_and_evidence() {
        let text = to_text(&sample(), Depth::Full);
        let evidence: String = sha256(b"1.5").to_string().chars().take(12).collect();
        let line = format!(
            "    primary 1: PASS qualified, incumbent on A:0, candidate on B:1, 1.500x, evidence {evidence}\n"
        );
        assert!(text.contains(&line), "{text}");
        assert!(text.contains("    primary 2: NO_DECISION candidate_worker\n"), "{text}");
    }

    #[test]
    fn json_has_the_promised_members() {
        let json = to_json(&sample());
        let first = &json["results"][0];
        assert_eq!(first["speedup"], 1.375_000_000_000_000_2);
        assert_eq!(first["attempts"][1]["lanes"]["candidate"], "A:0");
        assert_eq!(first["attempts"][0]["evidence"], sha256(b"1.5").to_string());
        assert_eq!(json["results"][1]["speedup"], Value::Null);
        assert_eq!(json["crowns"][0]["event"], sha256(b"event").to_string());
        for member in ["bundle", "target", "decision", "reason", "speedup", "bar", "attempts"] {
            assert!(first.get(member).is_some(), "{member}");
        }
    }
}
