//! Golden cases of the audit log: exact lines, reason classes, closed records.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use cacheon_identity::{Decode, Digest};
use cacheon_ledger::audit::{self, AuditRecord, PassRecord};
use cacheon_vectors::{Case, unknown_op};
use serde_json::Value;
use std::collections::BTreeMap;
use support::{digest, number, show, to_json};

fn digests(value: &Value) -> Result<BTreeMap<Digest, Digest>, String> {
    let members = value.as_object().ok_or("not a map")?;
    members.iter().map(|(id, value)| Ok((Digest::parse(id).map_err(show)?, digest(value)?))).collect()
}

fn texts(value: &Value, word: impl Fn(&str) -> Option<String>) -> Result<BTreeMap<Digest, String>, String> {
    let members = value.as_object().ok_or("not a map")?;
    let row = |(id, value): (&String, &Value)| {
        let text = value.as_str().ok_or("not a string")?;
        Ok((Digest::parse(id).map_err(show)?, word(text).ok_or_else(|| format!("unknown word {text}"))?))
    };
    members.iter().map(row).collect()
}

fn pass(case: &Case<'_>) -> Result<Vec<u8>, String> {
    let result = case.get("result")?;
    let ids = |value: &Value| {
        value.as_array().ok_or("not a list")?.iter().map(digest).collect::<Result<Vec<_>, _>>()
    };
    let own = |text: &str| Some(text.to_owned());
    let record = PassRecord {
        finalized_block: number(&result["finalized_block"])?,
        finalized_block_hash: result["finalized_block_hash"].as_str().ok_or("no hash")?.to_owned(),
        seen: number(&result["seen"])?,
        reserved: ids(&result["reserved"])?,
        held: ids(&result["held"])?.into_iter().collect(),
        published: digests(&result["published"])?,
        copies: digests(&result["copies"])?,
        rejected: texts(&result["rejected"], own)?,
        screens: texts(&result["screens"], |text| audit::screen_word(text).map(str::to_owned))?,
        decisions: texts(&result["decisions"], own)?,
        settlements: digests(&result["settlements"])?,
    };
    let record = AuditRecord::pass(record, number(case.get("timestamp_ns")?)?).map_err(show)?;
    let line = record.line().map_err(show)?;
    let again = AuditRecord::decode_bytes(&line).map_err(show)?;
    if again != record {
        return Err("does not read back".to_owned());
    }
    Ok(line)
}

fn fault(case: &Case<'_>) -> Result<Vec<u8>, String> {
    let failures = number(case.get("consecutive_failures")?)?;
    let record = AuditRecord::fault(case.text("error_type")?, failures, number(case.get("timestamp_ns")?)?)
        .map_err(show)?;
    record.line().map_err(show)
}

fn expect_line(case: &Case<'_>, outcome: Result<Vec<u8>, String>) -> Result<(), String> {
    match (case.get("ok")?.as_bool(), outcome) {
        (Some(true), Ok(line)) if case.text("line")?.as_bytes() == line => Ok(()),
        (Some(true), Ok(line)) => Err(String::from_utf8_lossy(&line).into_owned()),
        (Some(true), Err(error)) => Err(format!("refused: {error}")),
        (Some(false), Ok(_)) if case.value.get("deployed_defect") == Some(&Value::Bool(true)) => Ok(()),
        (Some(false), Ok(_)) => Err("accepted".to_owned()),
        (Some(false), Err(_)) => Ok(()),
        (None, _) => Err("no ok".to_owned()),
    }
}

#[test]
fn vectors_intake_audit() {
    cacheon_vectors::run("intake-audit", &[], |case| match case.op() {
        "pass_record" => expect_line(case, pass(case)),
        "fault_record" => expect_line(case, fault(case)),
        "reason_class" => match audit::reason_class(case.text("reason")?) == case.text("value")? {
            true => Ok(()),
            false => Err(audit::reason_class(case.text("reason")?)),
        },
        "validate" => {
            match (case.get("ok")?.as_bool(), AuditRecord::decode(&to_json(case.get("record")?)?)) {
                (Some(true), Ok(_)) | (Some(false), Err(_)) => Ok(()),
                (_, outcome) => Err(format!("{outcome:?}")),
            }
        }
        other => Err(unknown_op(other)),
    });
}
