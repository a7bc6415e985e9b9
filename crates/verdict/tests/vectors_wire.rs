//! Golden cases of the teacher's frames.
#![allow(clippy::unwrap_used)]

mod support;

use cacheon_vectors::{Case, unknown_op};
use cacheon_verdict::codec::{ReferenceEvidence, ReferenceRequest};
use cacheon_verdict::wire;
use serde_json::{Value, json};
use support::*;

fn bytes(case: &Case<'_>, member: &str) -> Result<Vec<u8>, String> {
    hex::decode(case.text(member)?).map_err(|error| error.to_string())
}

/// The case's evidence as the codec spells it: hexadecimal binary32 becomes float text.
fn evidence(
    case: &Case<'_>,
    request: &ReferenceRequest,
    request_sha256: &str,
) -> Result<ReferenceEvidence, String> {
    let text = |value: &Value| -> Result<String, String> {
        let bits =
            u32::from_str_radix(value.as_str().ok_or("no text")?, 16).map_err(|error| error.to_string())?;
        Ok(text17(f64::from(f32::from_bits(bits))))
    };
    let raw = case.get("evidence")?;
    let mut prompts = Vec::new();
    for prompt in list_at(raw, "prompts")? {
        let mut roles = Vec::new();
        for role in list_at(prompt, "roles")? {
            let mut tokens = Vec::new();
            for token in role.as_array().ok_or("no tokens")? {
                let supports: Vec<String> =
                    list_at(token, "support_logprobs_f32_hex")?.iter().map(text).collect::<Result<_, _>>()?;
                tokens.push(json!({
                    "support_logprobs": supports, "target_logprob": text(at(token, "target_logprob_f32_hex")?)?,
                    "true_argmax_token_id": at(token, "true_argmax_token_id")?,
                }));
            }
            roles.push(json!({ "tokens": tokens }));
        }
        let mut prompt = prompt.clone();
        prompt["roles"] = json!(roles);
        prompts.push(prompt);
    }
    decode(&json!({
        "launch_digest": request.launch_digest.to_string(), "nonce": request.nonce.as_str(),
        "plan_digest": request.plan_digest.to_string(), "prompts": prompts, "request_id": request.request_id.as_str(),
        "request_index": request.request_index, "request_sha256": request_sha256,
        "session_id": request.session_id.as_str(), "vocab_size": at(raw, "vocab_size")?,
    }))
}

#[test]
fn vectors_qualification_reference_wire() {
    cacheon_vectors::run("qualification-reference-wire", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "encode" => {
                only(
                    expected,
                    &[
                        "ok",
                        "evidence_frame_hex",
                        "evidence_frame_sha256",
                        "request_frame_hex",
                        "request_sha256",
                    ],
                )?;
                let request: ReferenceRequest = decode(case.get("request")?)?;
                let frame = wire::encode_request(&request).map_err(|error| error.to_string())?;
                same_text(expected, "request_frame_hex", &hex::encode(&frame))?;
                let sha = wire::frame_sha256(&frame);
                same_digest(expected, "request_sha256", sha)?;
                if wire::decode_request(&frame).map_err(|error| error.to_string())? != request {
                    return Err("the request does not come back".to_owned());
                }
                let evidence = evidence(case, &request, &sha.to_string())?;
                let answer = wire::encode_evidence(&request, &evidence).map_err(|error| error.to_string())?;
                same_text(expected, "evidence_frame_hex", &hex::encode(&answer))?;
                same_digest(expected, "evidence_frame_sha256", wire::frame_sha256(&answer))?;
                let again = wire::decode_evidence(&answer, &frame).map_err(|error| error.to_string())?;
                if again == evidence { Ok(()) } else { Err("the answer does not come back".to_owned()) }
            }
            "decode_request" => {
                let frame = bytes(case, "frame_hex")?;
                if outcome(value, wire::decode_request(&frame))?.is_none() {
                    return Ok(());
                }
                only(expected, &["ok", "request_sha256"])?;
                same_digest(expected, "request_sha256", wire::frame_sha256(&frame))
            }
            "decode_evidence" => {
                let answer =
                    wire::decode_evidence(&bytes(case, "frame_hex")?, &bytes(case, "request_frame_hex")?);
                let Some(evidence) = outcome(value, answer)? else { return Ok(()) };
                only(expected, &["ok", "vocab_size"])?;
                same_value(expected, "vocab_size", &json!(evidence.vocab_size))
            }
            op => Err(unknown_op(op)),
        }
    });
}
