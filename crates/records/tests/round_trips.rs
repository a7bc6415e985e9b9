//! Records read back as what they write, and nothing near them is taken for them.
#![allow(clippy::unwrap_used)]

use cacheon_identity::{Canonical, Decode, Digest, Json};
use cacheon_records::audit::{
    AuditControl, AuditMode, AuditPolicy, AuditReceipt, AuditReceiptFacts, ValidatorSeed,
};
use cacheon_records::evidence::{EvidenceLabel, EvidenceRef, MAX_REFERENCE_SIZE};
use cacheon_records::launch::resources::Cpusets;
use cacheon_records::text::EngineToken;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn round<T: Decode + Canonical + PartialEq + std::fmt::Debug>(record: &T) -> Result<(), TestCaseError> {
    let bytes = record.to_canonical();
    let again = T::decode_bytes(&bytes).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(&again, record);
    prop_assert_eq!(again.to_canonical(), bytes);
    let from_ascii = T::decode_bytes(record.to_ascii().as_bytes());
    prop_assert_eq!(from_ascii.as_ref(), Ok(record));
    Ok(())
}

/// Every closed object refuses a member less and a member more.
fn closed<T: Decode + Canonical>(record: &T) -> Result<(), TestCaseError> {
    let Json::Object(members) = record.to_json().unwrap() else {
        return Err(TestCaseError::fail("no object"));
    };
    for key in members.keys() {
        let mut less = members.clone();
        less.remove(key);
        prop_assert!(T::decode(&Json::Object(less)).is_err(), "without {}", key);
        let mut other = members.clone();
        other.insert(key.clone(), Json::Array(vec![Json::Null]));
        prop_assert!(T::decode(&Json::Object(other)).is_err(), "{} of another type", key);
    }
    let mut more = members;
    more.insert("unheard_of".into(), Json::Null);
    prop_assert!(T::decode(&Json::Object(more)).is_err());
    Ok(())
}

fn any_control() -> impl Strategy<Value = AuditControl> {
    let slots = proptest::collection::btree_set("[A-Za-z0-9_.:+/@-]{1,20}", 1..20);
    (1u64..=64, slots, 1u64..=1_000_000_000, 1u64..=1_000_000).prop_map(|(members, slots, calls, rate)| {
        let slots = slots.iter().map(|slot| EngineToken::parse(slot).unwrap()).collect();
        AuditControl::new(members, slots, calls, rate).unwrap()
    })
}

proptest! {
    #[test]
    fn audit_policies(control in any_control(), seed in 1u128..) {
        let validator_seed = ValidatorSeed::parse(&format!("{seed:032x}")).unwrap();
        prop_assert_eq!(validator_seed.decimal_text(), seed.to_string());
        let policy = AuditPolicy { control: control.clone(), validator_seed };
        round(&policy)?;
        closed(&policy)?;
        round(&control)?;
        let other = AuditPolicy { validator_seed: ValidatorSeed::parse(&format!("{:032x}", seed ^ 1 | 2)).unwrap(), ..policy.clone() };
        prop_assert_eq!(other.control.digest(), policy.control.digest());
    }

    #[test]
    fn audit_receipts(n in 0u64..100, missed in any::<bool>(), bar in 0.0f64..=1.0, rank in 0u64..4) {
        let worst = if n > 0 && missed { bar / 2.0 - 0.5 } else { bar };
        let facts = AuditReceiptFacts {
            baseline_refused: 1, compare_errors: 2,
            min_ratio: Some(cacheon_identity::float17::Float17::new(bar).unwrap()),
            mode: Some(AuditMode::Cosine),
            n, pid: 7, rank, slot: EngineToken::parse("norm.rmsnorm").unwrap(),
            violations: u64::from(n > 0 && missed), world_size: 4,
            worst_frac: cacheon_identity::float17::Float17::new(worst).unwrap(),
        };
        let receipt = AuditReceipt::new(facts.clone()).unwrap();
        round(&receipt)?;
        if n > 0 {
            // Counts and the worst agreement may not contradict each other.
            let forged = AuditReceiptFacts { violations: u64::from(!missed), ..facts.clone() };
            prop_assert!(AuditReceipt::new(forged).is_err());
            let without_mode = AuditReceiptFacts { mode: None, ..facts };
            prop_assert!(AuditReceipt::new(without_mode).is_err());
        }
    }

    #[test]
    fn evidence_references(domain in "[a-z0-9][a-z0-9._-]{0,95}", schema in "[a-z0-9][a-z0-9._-]{0,127}",
        kind in "[a-z0-9][a-z0-9!#$&^_.+-]{0,63}", bytes in any::<[u8; 32]>(), size in 0..=MAX_REFERENCE_SIZE) {
        let label = EvidenceLabel::parse(&domain, &format!("{kind}/{kind}"), &schema).unwrap();
        let reference = EvidenceRef::new(label, Digest::from_bytes(bytes), size).unwrap();
        round(&reference)?;
        closed(&reference)?;
    }

    #[test]
    fn cpu_sets_have_one_spelling(cpus in proptest::collection::btree_set(0u32..200, 1..60), change in any::<prop::sample::Index>()) {
        let text = spell(&cpus);
        let read = Cpusets::new(Some(&text), Some("0"), 100).unwrap();
        let (set, _) = read.get().unwrap();
        prop_assert_eq!(set.count(), cpus.len() as u64);
        prop_assert_eq!(set.as_str(), text.as_str());
        // A run split in two, or written twice, is the same set in another spelling.
        let at = change.index(cpus.len());
        let doubled = format!("{text},{}", cpus.iter().nth(at).unwrap());
        prop_assert!(Cpusets::new(Some(&doubled), Some("0"), 100).is_err());
        if cpus.len() > 1 && cpus.iter().zip(cpus.iter().skip(1)).any(|(a, b)| a + 1 == *b) {
            let split = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            prop_assert!(Cpusets::new(Some(&split), Some("0"), 100).is_err());
        }
        prop_assert!(Cpusets::new(Some(&text), None, 100).is_err());
        prop_assert!(Cpusets::new(Some(&text), Some("0"), 1000 * cpus.len() as u64 + 1).is_err());
    }
}

/// The kernel's spelling of a set.
fn spell(cpus: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => runs.push((*cpu, *cpu)),
        }
    }
    let run = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

#[test]
fn references_admit_zero_and_bound_size() {
    let label = EvidenceLabel::json("a", "b").unwrap();
    assert!(EvidenceRef::new(label.clone(), Digest::ZERO, 0).is_ok());
    assert!(EvidenceRef::new(label, Digest::ZERO, MAX_REFERENCE_SIZE + 1).is_err());
}
