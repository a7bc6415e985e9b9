//! Golden cases of slot-audit policies and receipts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use cacheon_identity::{Canonical, Decode, Json};
use cacheon_records::audit::{AuditPolicy, AuditReceipt};
use cacheon_vectors::unknown_op;
use serde_json::Value;

/// A receipt as it crosses the wire holds floats; the vectors write them as `%.17g` text and integers where the worker
/// sent integers. Both are one number.
fn receipt_json(input: &Value) -> Value {
    let mut input = input.clone();
    for member in ["worst_frac", "min_ratio"] {
        if let Some(value) = input.get_mut(member)
            && value.is_i64()
        {
            *value = value.to_string().into();
        }
    }
    input
}

fn read(value: &Value) -> Json {
    Json::parse(value.to_string().as_bytes()).unwrap()
}

fn members_read(expect: &Value, known: &[&str]) -> Result<(), String> {
    let unread =
        expect.as_object().into_iter().flat_map(|o| o.keys()).find(|key| !known.contains(&key.as_str()));
    unread.map_or(Ok(()), |key| Err(format!("member `{key}` is not read")))
}

#[test]
fn vectors_audit_policy() {
    cacheon_vectors::run("qualification-audit-policy", &[], |case| {
        let expect = case.get("expect")?;
        let ok = expect["ok"] == true;
        members_read(expect, &["ok", "digest", "control_digest", "record", "error_class"])?;
        match case.op() {
            "policy" => match AuditPolicy::decode(&read(case.get("input")?)) {
                Ok(policy) if ok => {
                    let got = [policy.digest().to_string(), policy.control.digest().to_string()];
                    let want = [&expect["digest"], &expect["control_digest"]];
                    if want.iter().zip(&got).all(|(want, got)| **want == got.as_str()) {
                        Ok(())
                    } else {
                        Err(format!("digests {got:?}, expected {want:?}"))
                    }
                }
                Ok(_) => Err("accepted".into()),
                Err(_) if !ok => Ok(()),
                Err(error) => Err(error.to_string()),
            },
            "receipt" => match AuditReceipt::decode(&read(&receipt_json(case.get("input_floats_as_17g")?))) {
                Ok(receipt) if ok => {
                    let got: Value = serde_json::from_slice(&receipt.to_canonical()).unwrap();
                    if got == expect["record"] {
                        Ok(())
                    } else {
                        Err(format!("{got}, expected {}", expect["record"]))
                    }
                }
                Ok(_) => Err("accepted".into()),
                Err(_) if !ok => Ok(()),
                Err(error) => Err(error.to_string()),
            },
            other => Err(unknown_op(other)),
        }
    });
}
