//! Hostile speed evidence (40-qualification §17) and the record that stores drift-excluded verdicts.
#![allow(clippy::unwrap_used)]

#[path = "support/speed.rs"]
mod build;
mod support;

use build::{binding, calibration, digest, float, links, policy, read, read_windows, witness};
use cacheon_identity::{Canonical, Decode, Json};
use cacheon_verdict::Decision;
use cacheon_verdict::fields::AnyDigest;
use cacheon_verdict::speed::{
    GradeError, Live, NoiseRecord, ReadError, ReadRate, ResidentSpeedWitness, Role, SpeedOutcomeRecord,
    SpeedPolicy, Version, WitnessError, grade_conditional, grade_live, grade_two_processes, grade_witness,
};
use cacheon_verdict::stage::{SpeedExit, StageEnding, StageExit, StageReopenError};
use proptest::prelude::*;

fn clear_win() -> Vec<ReadRate> {
    vec![read(Role::B, 1000.0), read(Role::C, 1100.0)]
}

fn three(b: f64, c: f64, b_prime: f64) -> Vec<ReadRate> {
    vec![read(Role::B, b), read(Role::C, c), read(Role::BPrime, b_prime)]
}

/// One change to a read.
type Edit = fn(&mut ReadRate);

#[test]
fn float_text_other_than_17_digits_refuses() {
    let bytes = clear_win()[0].to_ascii();
    let honest = Json::parse(bytes.as_bytes()).unwrap();
    assert!(ReadRate::decode(&honest).is_ok());
    for text in ["2.0", "2.00", "٢", " 2", "2e0", "+2", "nan", "inf", "0x2", "2_0", "", "-0"] {
        let mut forged = honest.clone();
        let Json::Object(members) = &mut forged else { panic!("not an object") };
        members.insert("conditioning_seconds".to_owned(), Json::Str(text.to_owned()));
        assert!(ReadRate::decode(&forged).is_err(), "{text:?} was accepted");
    }
}

#[test]
fn a_relabelled_witness_does_not_regrade() {
    let frozen = calibration("0.005");
    let honest = witness(policy(Version::V7, &frozen), clear_win());
    assert_eq!(honest.regrade(&frozen).unwrap().decision(), Decision::Pass);
    // Two reads decide nothing under version 8.
    let relabelled = witness(policy(Version::V8, &frozen), clear_win());
    assert!(matches!(relabelled.regrade(&frozen), Err(WitnessError::Grade(_))));
    // A lowered margin under the honest calibration's name.
    let lenient = calibration("0.001");
    let mut parts =
        serde_json::from_slice::<serde_json::Value>(&policy(Version::V7, &lenient).to_canonical()).unwrap();
    parts["calibration_digest"] = frozen.digest().to_string().into();
    let forged: SpeedPolicy = support::decode(&parts).unwrap();
    let lowered = witness(forged, clear_win());
    assert!(matches!(lowered.regrade(&frozen), Err(WitnessError::Foreign { what: "policy", .. })));
    assert!(matches!(lowered.regrade(&lenient), Err(WitnessError::Foreign { what: "calibration", .. })));
    // Another calibration than the cited one.
    assert!(matches!(honest.regrade(&lenient), Err(WitnessError::Foreign { .. })));
    let mut moved = frozen.clone();
    moved.context.workload_digest = digest("another workload");
    assert!(honest.regrade(&moved).is_err());
}

#[test]
fn edited_witness_bytes_do_not_parse() {
    let honest = witness(policy(Version::V7, &calibration("0.005")), clear_win());
    let text = honest.to_ascii();
    assert!(ResidentSpeedWitness::decode(&Json::parse(text.as_bytes()).unwrap()).is_ok());
    let edited = text.replace("\"timed_tokens\":3000", "\"timed_tokens\":3001");
    assert_ne!(edited, text);
    assert!(ResidentSpeedWitness::decode(&Json::parse(edited.as_bytes()).unwrap()).is_err());
}

#[test]
fn incomplete_and_excessive_reads_are_no_evidence() {
    let v7 = policy(Version::V7, &calibration("0.005"));
    let tie = vec![read(Role::B, 1000.0), read(Role::C, 1006.0)];
    assert!(matches!(grade_conditional(&v7, &tie), Err(GradeError::Undetermined { .. })));
    assert!(matches!(grade_live(&v7, &tie), Ok(Live::Read(&[Role::BPrime]))));
    assert!(matches!(
        grade_conditional(&v7, &three(1000.0, 1100.0, 1000.0)),
        Err(GradeError::Excess { decision: Decision::Pass })
    ));
    let v8 = policy(Version::V8, &calibration("0.005"));
    assert!(grade_witness(&v8, &clear_win()).is_err());
    let swapped = vec![read(Role::C, 1100.0), read(Role::B, 1000.0)];
    assert!(matches!(grade_witness(&v7, &swapped), Err(GradeError::Shape { .. })));
    let only = vec![read(Role::C, 1100.0)];
    assert!(grade_witness(&v7, &only).is_err());
    assert!(grade_witness(&v7, &[]).is_err());
}

#[test]
fn a_candidate_that_conditions_slowly_fails_however_fast_it_decodes() {
    for version in [Version::V7, Version::V8] {
        let policy = policy(version, &calibration("0.005"));
        let mut reads = three(1000.0, 1500.0, 1000.0);
        if version == Version::V7 {
            reads.truncate(2);
        }
        reads[1].conditioning_seconds = float(3.5);
        let outcome = grade_witness(&policy, &reads).unwrap();
        assert_eq!(outcome.decision, Decision::Fail, "{version:?}");
        assert_eq!(outcome.reason(), Some("candidate_slower"));
        reads[1].conditioning_tokens += 1;
        assert!(matches!(
            grade_witness(&policy, &reads),
            Err(GradeError::Read(ReadError::ConditioningTokens { .. }))
        ));
    }
}

#[test]
fn a_jumping_baseline_is_excluded_and_cannot_be_averaged_in() {
    let v8 = policy(Version::V8, &calibration("0.005"));
    // The second baseline is 5 % faster, so the candidate does not beat the mean of both; the first alone counts.
    let up = grade_two_processes(&v8, &three(1000.0, 1020.0, 1050.0)).unwrap();
    assert_eq!((up.decision, up.deciding.n_baselines), (Decision::Pass, 1));
    assert!(up.drift.unwrap() > 0.02 && up.deciding.noise.is_infinite());
    // 5 % slower: a candidate at parity gains nothing from it.
    let down = grade_two_processes(&v8, &three(1000.0, 1000.0, 950.0)).unwrap();
    assert_eq!((down.decision, down.reason()), (Decision::Fail, Some("speed_threshold_not_met")));
    // A trend inside the ceiling raises the bar by twice its spread.
    let trend = grade_two_processes(&v8, &three(1000.0, 1020.0, 1019.0)).unwrap();
    assert_eq!(trend.decision, Decision::Fail);
    assert!(trend.drift.is_none() && trend.deciding.required > 1.03);
}

#[test]
fn windows_must_tile_their_read() {
    let honest = read(Role::C, 1000.0);
    let edits: [(&str, Edit); 6] = [
        ("truncated", |read| {
            read.windows.pop();
        }),
        ("duplicated", |read| read.windows[1] = read.windows[0].clone()),
        ("reordered", |read| read.windows.swap(0, 2)),
        ("re-summed", |read| read.windows[0].tokens += 1),
        ("emptied", |read| read.windows[0].tokens = 0),
        ("shifted", |read| read.windows.iter_mut().for_each(|window| window.batch_index += 1)),
    ];
    for (name, edit) in edits {
        let mut read = honest.clone();
        edit(&mut read);
        assert!(read.checked().is_err(), "{name} windows were accepted");
    }
    // No windows at all are for versions 1 and 2 only.
    let mut bare = clear_win();
    bare.iter_mut().for_each(|read| read.windows.clear());
    let v7 = policy(Version::V7, &calibration("0.005"));
    assert!(ResidentSpeedWitness::new(binding(v7, bare.clone()), links()).is_err());
    assert!(matches!(grade_witness(&v7, &bare), Err(GradeError::Read(ReadError::Windows { .. }))));
}

#[test]
fn reads_of_one_arm_share_session_launch_and_lane() {
    let v7 = policy(Version::V7, &calibration("0.005"));
    let forge = |edit: fn(&mut ReadRate)| {
        let mut reads = three(1000.0, 1006.0, 1000.0);
        edit(&mut reads[2]);
        ResidentSpeedWitness::new(binding(v7, reads), links())
    };
    assert!(forge(|_| ()).is_ok());
    assert!(forge(|read| read.lane_digest = AnyDigest(digest("lane-c"))).is_err());
    assert!(forge(|read| read.launch_digest = AnyDigest(digest("another"))).is_err());
    assert!(forge(|read| read.session_id = build::session("another")).is_err());
}

#[test]
fn a_fail_over_winning_reads_parses_but_does_not_reopen() {
    let frozen = calibration("0.005");
    let exit = |reads: Vec<ReadRate>, reason| {
        let witness =
            cacheon_verdict::speed::SpeedWitness::Resident(witness(policy(Version::V7, &frozen), reads));
        let any = |name| AnyDigest(digest(name));
        StageExit::new(any("authority"), any("source"), StageEnding::Speed { witness, reason }).unwrap()
    };
    let forged = exit(clear_win(), SpeedExit::CandidateSlower);
    assert_eq!(StageExit::from_bytes(&forged.to_canonical()).unwrap(), forged);
    assert!(matches!(
        forged.reopen(&frozen),
        Err(StageReopenError::Decision { derived: Decision::Pass, .. })
    ));
    let slow = || vec![read(Role::B, 1000.0), read(Role::C, 900.0)];
    assert!(exit(slow(), SpeedExit::CandidateSlower).reopen(&frozen).is_ok());
    assert!(exit(slow(), SpeedExit::Regression).reopen(&frozen).is_ok(), "the retired alias stands");
    assert!(matches!(
        exit(slow(), SpeedExit::ThresholdNotMet).reopen(&frozen),
        Err(StageReopenError::Reason { .. })
    ));
    assert!(exit(slow(), SpeedExit::Noise).reopen(&frozen).is_err());
    assert!(exit(slow(), SpeedExit::CandidateSlower).reopen(&calibration("0.004")).is_err());
}

#[test]
fn a_drift_excluded_outcome_is_stored_whole() {
    let v8 = policy(Version::V8, &calibration("0.005"));
    let outcome = grade_two_processes(&v8, &three(1000.0, 1020.0, 1050.0)).unwrap();
    let record = SpeedOutcomeRecord::of(&outcome).unwrap();
    let NoiseRecord::DriftExcluded { spread } = record.deciding.noise else {
        panic!("{:?}", record.deciding.noise)
    };
    assert_eq!(spread.get(), outcome.drift.unwrap());
    assert_eq!(record.deciding.verdict(), outcome.deciding);
    let again = SpeedOutcomeRecord::decode(&Json::parse(&record.to_canonical()).unwrap()).unwrap();
    assert_eq!((again.digest(), &again), (record.digest(), &record));
    // Two reads, then three with drift.
    let v7 = policy(Version::V7, &calibration("0.005"));
    let escalated = grade_conditional(&v7, &three(1000.0, 1006.0, 1060.0)).unwrap();
    let record = SpeedOutcomeRecord::of(&escalated).unwrap();
    assert!(record.escalated);
    assert!(matches!(record.initial.noise, NoiseRecord::Measured(value) if value.get() == 0.0));
    assert!(matches!(record.deciding.noise, NoiseRecord::DriftExcluded { .. }));
}

#[test]
fn forged_outcome_records_refuse() {
    let v8 = policy(Version::V8, &calibration("0.005"));
    let outcome = grade_two_processes(&v8, &three(1000.0, 1020.0, 1050.0)).unwrap();
    let honest: serde_json::Value =
        serde_json::from_slice(&SpeedOutcomeRecord::of(&outcome).unwrap().to_canonical()).unwrap();
    let forge = |edit: &dyn Fn(&mut serde_json::Value)| {
        let mut value = honest.clone();
        edit(&mut value);
        support::decode::<SpeedOutcomeRecord>(&value)
    };
    assert!(forge(&|_| ()).is_ok());
    let noises = ["inf", "Infinity", "nan", "-1", "0.50"];
    for text in noises {
        let noise = serde_json::json!({ "kind": "measured", "value": text });
        assert!(forge(&|value| value["deciding"]["noise"] = noise.clone()).is_err(), "{text}");
    }
    for noise in [
        serde_json::json!("inf"),
        serde_json::json!(null),
        serde_json::json!({ "kind": "infinite" }),
        serde_json::json!({ "kind": "drift_excluded" }),
        serde_json::json!({ "kind": "drift_excluded", "spread": "-1" }),
        serde_json::json!({ "kind": "single_baseline", "spread": "1" }),
        serde_json::json!({ "kind": "measured", "value": "0", "spread": "1" }),
    ] {
        assert!(forge(&|value| value["deciding"]["noise"] = noise.clone()).is_err(), "{noise}");
    }
    assert!(forge(&|value| value["decision"] = "FAIL".into()).is_err(), "a FAIL without a code");
    assert!(forge(&|value| value["reason"] = "candidate_slower".into()).is_err(), "a PASS with a code");
    assert!(forge(&|value| value["schema"] = "cacheon.rs.qualification.speed-outcome.v2".into()).is_err());
    let unsure = |value: &mut serde_json::Value| {
        value["deciding"]["confident"] = false.into();
        value["deciding"]["passed_speedup"] = true.into();
    };
    assert!(forge(&unsure).is_err(), "passed without confidence");
    assert!(
        forge(&|value| value["deciding"]["speedup"] = "2".into()).is_err(),
        "initial and deciding differ"
    );
}

proptest! {
    #[test]
    fn every_complete_outcome_is_stored_and_comes_back(
        b in 500.0f64..2000.0, c in 0.5f64..1.6, d in 0.7f64..1.4, version in 0usize..2,
    ) {
        let version = [Version::V7, Version::V8][version];
        let policy = policy(version, &calibration("0.005"));
        let reads = three(b, b * c, b * d);
        let outcome = grade_witness(&policy, &reads).or_else(|_| grade_witness(&policy, &reads[..2]));
        // Version 7 refuses a third read after two that decide, and two that do not.
        let Ok(outcome) = outcome else { return Err(TestCaseError::reject("no complete read set")) };
        let record = SpeedOutcomeRecord::of(&outcome).unwrap();
        let again = SpeedOutcomeRecord::decode(&Json::parse(&record.to_canonical()).unwrap()).unwrap();
        prop_assert_eq!(&again, &record);
        prop_assert_eq!(again.deciding.verdict(), outcome.deciding);
        prop_assert_eq!(again.initial.verdict(), outcome.initial);
        prop_assert_eq!(again.decision, outcome.decision);
    }

    #[test]
    fn reads_and_witnesses_come_back(rates in prop::collection::vec(1.0f64..1e6, 3..8), b in 1.0f64..1e6) {
        let candidate = read_windows(Role::C, &rates);
        let again = ReadRate::decode(&Json::parse(&candidate.to_canonical()).unwrap()).unwrap();
        prop_assert_eq!(&again, &candidate);
        let honest = witness(policy(Version::V7, &calibration("0.005")), vec![read(Role::B, b), candidate]);
        let again = ResidentSpeedWitness::decode(&Json::parse(&honest.to_canonical()).unwrap()).unwrap();
        prop_assert_eq!(again.evidence_digest(), honest.evidence_digest());
        prop_assert_eq!(again, honest);
    }

    #[test]
    fn a_pass_needs_the_margin_whatever_the_noise(b in 900.0f64..1100.0, c in 900.0f64..1100.0, d in 900.0f64..1100.0) {
        let policy = policy(Version::V8, &calibration("0.005"));
        let outcome = grade_two_processes(&policy, &three(b, c, d)).unwrap();
        if outcome.decision == Decision::Pass {
            prop_assert!(outcome.deciding.speedup >= 1.005 - 1e-12);
        }
    }
}
