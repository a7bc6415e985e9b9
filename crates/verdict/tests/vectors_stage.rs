//! Golden cases of stage exits: reading, writing and digests.

mod support;

use cacheon_identity::Canonical;
use cacheon_vectors::unknown_op;
use cacheon_verdict::codec::{Enveloped, RetirementCheckpoint};
use cacheon_verdict::fields::Fixed;
use cacheon_verdict::stage::StageExit;
use serde_json::{Value, json};
use support::*;

#[test]
fn stage_exits_follow_every_case() {
    cacheon_vectors::run("qualification-stage-exit", &[], |case| {
        let value = &case.value;
        let expected = expect(value)?;
        match case.op() {
            "stage_exit" => {
                only(expected, &["ok", "artifact", "digest", "path", "record", "roundtrip_equal"])?;
                let exit: StageExit = decode(at(expected, "record")?)?;
                same_digest(expected, "digest", exit.digest())?;
                same_record(expected, "record", &exit)?;
                let artifact = exit.artifact().map_err(|error| error.to_string())?;
                same_record(expected, "artifact", &artifact)?;
                same_text(expected, "path", &artifact.relative_path())?;
                let again = StageExit::from_bytes(&exit.to_canonical()).map_err(|error| error.to_string())?;
                same_value(expected, "roundtrip_equal", &json!(again == exit))
            }
            "stage_exit_parse" => {
                let Some(exit) = outcome(value, decode::<StageExit>(at(value, "input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "digest", "reserialises_identically"])?;
                same_digest(expected, "digest", exit.digest())?;
                let written: Value =
                    serde_json::from_slice(&exit.to_canonical()).map_err(|e| e.to_string())?;
                same_value(expected, "reserialises_identically", &json!(written == *at(value, "input")?))
            }
            "retirement_digest" => {
                only(expected, &["ok", "digest", "encoded"])?;
                let Enveloped(retirement): Enveloped<RetirementCheckpoint> =
                    decode(at(expected, "encoded")?)?;
                same_digest(expected, "digest", retirement.digest())?;
                same_record(expected, "encoded", &Enveloped(retirement.clone()))?;
                same_digest(value, "binding_digest", retirement.pair_binding.digest())?;
                let Fixed(lanes) = &retirement.pair_binding.lanes;
                let lanes: Vec<String> = lanes.iter().map(|lane| lane.digest().to_string()).collect();
                same_value(value, "lane_binding_digests", &json!(lanes))
            }
            op => Err(unknown_op(op)),
        }
    });
}
