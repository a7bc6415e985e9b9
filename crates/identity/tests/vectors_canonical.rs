//! Golden cases of canonical JSON, envelopes, digests and `%.17g` text.

use cacheon_identity::{
    Decode, Digest, DigestError, DomainError, Int, Json, JsonError, OrEmpty, domain::envelope_digest,
    float17, sha256,
};
use cacheon_vectors::{Case, unknown_op};

fn refusal(error: &JsonError) -> &'static str {
    match error {
        JsonError::Float { .. } => "float",
        JsonError::LoneSurrogate { .. } => "lone_surrogate",
        JsonError::IntegerDigits { .. } => "integer_digits",
        JsonError::Nesting { .. } => "nesting",
        JsonError::Syntax { .. } | JsonError::Utf8 { .. } | JsonError::DuplicateKey { .. } => "parse",
    }
}

/// Compares an outcome with the members of a case: `reject`, or the outputs.
fn judge<T>(
    case: &Case<'_>,
    outcome: Result<T, &'static str>,
    outputs: impl FnOnce(T) -> Vec<(&'static str, serde_json::Value)>,
) -> Result<(), String> {
    let expected = case.value.get("reject").and_then(|r| r.as_str());
    match (outcome, expected) {
        (Err(got), Some(want)) if got == want => Ok(()),
        (Err(got), want) => Err(format!("refused as {got}, expected {want:?}")),
        (Ok(_), Some(want)) => Err(format!("accepted, expected {want}")),
        (Ok(value), None) => {
            let outputs = outputs(value);
            let inputs = [
                "id",
                "op",
                "input_json",
                "payload_json",
                "domain",
                "schema_version",
                "value",
                "allow_zero",
                "optional",
            ];
            for member in case.value.as_object().into_iter().flat_map(|members| members.keys()) {
                if !inputs.contains(&member.as_str()) && !outputs.iter().any(|(name, _)| name == member) {
                    return Err(format!("member `{member}` is not read"));
                }
            }
            for (name, got) in outputs {
                if case.get(name)? != &got {
                    return Err(format!("{name}: got {got}, expected {}", case.get(name)?));
                }
            }
            Ok(())
        }
    }
}

#[test]
fn vectors_stacks_canonical() {
    cacheon_vectors::run("stacks_canonical", &[], |case| match case.op() {
        "canonical_json" => {
            let parsed = Json::parse(case.text("input_json")?.as_bytes());
            judge(case, parsed.map_err(|e| refusal(&e)), |json| {
                let bytes = json.to_canonical();
                assert_eq!(Json::parse_canonical(&bytes), Ok(json));
                let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
                vec![("canonical_hex", hex.into()), ("sha256", sha256(&bytes).to_string().into())]
            })
        }
        "canonical_digest" => {
            let outcome = digest_of(case)?;
            judge(case, outcome, |digest| vec![("digest", digest.to_string().into())])
        }
        "require_sha256_hex" => {
            let outcome = match case.get("value")?.as_str().map(Digest::parse) {
                Some(Ok(digest)) => Ok(digest),
                _ => Err("format"),
            };
            judge(case, outcome, |digest| vec![("accept", digest.to_string().into())])
        }
        "require_digest" => {
            let outcome = required_digest(case)?;
            judge(case, outcome, |text| vec![("accept", text.into())])
        }
        other => Err(unknown_op(other)),
    });
}

fn digest_of(case: &Case<'_>) -> Result<Result<Digest, &'static str>, String> {
    let version = Json::parse(case.get("schema_version")?.to_string().as_bytes());
    let version = version.ok().and_then(|json| json.as_int().cloned());
    let payload = match Json::parse(case.text("payload_json")?.as_bytes()) {
        Ok(payload) => payload,
        Err(error) => return Ok(Err(refusal(&error))),
    };
    let Some(version) = version else { return Ok(Err("schema_version")) };
    Ok(envelope_digest(case.text("domain")?, &payload, &version).map_err(|error| match error {
        DomainError::Name(_) => "domain",
        DomainError::Version(_) => "schema_version",
    }))
}

fn required_digest(case: &Case<'_>) -> Result<Result<String, &'static str>, String> {
    let flag = |name: &str| case.value.get(name).and_then(serde_json::Value::as_bool).unwrap_or(false);
    let json = Json::parse(case.get("value")?.to_string().as_bytes()).map_err(|e| e.to_string())?;
    let class = |error: DigestError| match error {
        DigestError::Format(_) => "format",
        DigestError::Zero => "zero",
    };
    let Some(text) = json.as_str() else { return Ok(Err("format")) };
    Ok(if flag("allow_zero") {
        Digest::parse(text).map(|d| d.to_string()).map_err(class)
    } else if flag("optional") {
        match OrEmpty::<Digest>::decode(&json) {
            Ok(OrEmpty(digest)) => Ok(digest.map_or(String::new(), |d| d.to_string())),
            Err(error) => match error.kind {
                cacheon_identity::DecodeKind::Digest(error) => Err(class(error)),
                other => return Err(other.to_string()),
            },
        }
    } else {
        Digest::parse_nonzero(text).map(|d| d.to_string()).map_err(class)
    })
}

#[test]
fn vectors_float_text() {
    cacheon_vectors::run("qualification-float-text", &[], |case| {
        let expect = case.get("expect")?;
        let ok = expect.get("ok").and_then(serde_json::Value::as_bool).ok_or("no `ok`")?;
        if let Some(member) = expect.as_object().and_then(|members| {
            members.keys().find(|key| !["ok", "text", "accepted", "error_class"].contains(&key.as_str()))
        }) {
            return Err(format!("member `{member}` is not read"));
        }
        match case.op() {
            "format" => {
                let bits = u64::from_str_radix(case.text("f64_be_hex")?, 16).map_err(|e| e.to_string())?;
                let got = float17::format(f64::from_bits(bits));
                let want = expect.get("text").and_then(|t| t.as_str());
                if Some(got.as_str()) == want { Ok(()) } else { Err(format!("got {got}, expected {want:?}")) }
            }
            "strict_parse" => {
                let got = float17::parse(case.text("text")?).is_ok();
                // Text that is no number at all is recorded as an error: equally a refusal.
                let want = if ok {
                    expect.get("accepted").and_then(serde_json::Value::as_bool)
                } else {
                    Some(false)
                };
                if Some(got) == want { Ok(()) } else { Err(format!("accepted: {got}, expected {want:?}")) }
            }
            other => Err(unknown_op(other)),
        }
    });
}

#[test]
fn versions_above_64_bits_are_written_exactly() {
    let wide = Int::from(1u128 << 100);
    let a = envelope_digest("a", &Json::Null, &wide).unwrap();
    let text = format!("{{\"domain\":\"a\",\"payload\":null,\"schema_version\":{wide}}}");
    assert_eq!(a, sha256(text.as_bytes()));
}
