//! Reopening an attempt: every referenced byte is re-hashed, the verdict is derived from raw records before the recorded
//! one is read, and what was proven is said in plain words.

use cacheon_identity::{Decode as _, Digest, Hasher, record, sha256};
use cacheon_records::arena::Decision;
use cacheon_records::cpu::{AuditRaw, ConformanceRaw, ReferenceRaw, SealedPlan, SessionRecord, SpeedRaw};
use cacheon_records::evidence::EvidenceRef;
use cacheon_verdict::calibration::{
    CalibrationContext, CalibrationManifest, CalibrationThresholdPolicy, reopen as reopen_calibration,
};
use cacheon_verdict::selection::{
    EntropyReceipt, Secret, SelectionReceipt, audit_seed, entropy_authority_receipt, reveal,
};

use super::RawFault;
use super::attempt::{Artifact, Attempt, read_record};
use super::derive::{Derived, Evidence, Next, Plan, next};
use crate::store::{EvidenceStore, StoreError};

/// Largest artifact that is reopened, bytes.
const LIMIT: u64 = 1 << 30;

record! {
    /// A frozen calibration with what it was derived from.
    pub struct CalibrationRecord {
        /// The observations ([`cacheon_verdict::calibration::CalibrationEvidenceSet`]).
        pub evidence: EvidenceRef,
        /// The manifest.
        pub manifest: CalibrationManifest,
        /// The thresholds.
        pub policy: CalibrationThresholdPolicy,
    }
}

/// Why an attempt does not verify.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The store does not hold what is referenced, or it was altered.
    #[error("{what}: {source}")]
    Store {
        /// What was being reopened.
        what: &'static str,
        /// The cause.
        source: StoreError,
    },
    /// No such attempt.
    #[error("no attempt {0} in this store; list them with `cacheon evidence list --domain cpu.attempt`")]
    Absent(Digest),
    /// A record is malformed.
    #[error("{what}: {why}")]
    Record {
        /// Which record.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Raw evidence is not the execution it claims to be.
    #[error(transparent)]
    Raw(#[from] RawFault),
    /// The recorded verdict is not the one that follows.
    #[error("recorded {member} is {recorded}, but the evidence derives {derived}")]
    Verdict {
        /// Which member.
        member: &'static str,
        /// What is recorded.
        recorded: String,
        /// What follows.
        derived: String,
    },
}

/// A verified attempt.
#[derive(Debug, Clone)]
pub struct Verified {
    /// The record.
    pub attempt: Attempt,
    /// SHA-256 of its bytes.
    pub sha256: Digest,
    /// The plan.
    pub plan: Plan,
    /// What follows from the evidence.
    pub derived: Derived,
    /// What was shown, a sentence each.
    pub proven: Vec<String>,
    /// What no reopening can show, a sentence each.
    pub not_proven: Vec<String>,
}

fn record_error<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> VerifyError {
    move |error| VerifyError::Record { what, why: error.to_string() }
}

fn bytes(store: &EvidenceStore, what: &'static str, reference: &EvidenceRef) -> Result<Vec<u8>, VerifyError> {
    store.reopen_within(reference, LIMIT).map_err(|source| VerifyError::Store { what, source })
}

fn reopen<T: cacheon_identity::Decode + cacheon_identity::Canonical>(
    store: &EvidenceStore,
    what: &'static str,
    artifact: Artifact,
    reference: &EvidenceRef,
) -> Result<T, VerifyError> {
    let label = artifact.label().map_err(record_error(what))?;
    if reference.label != label {
        return Err(VerifyError::Record { what, why: format!("labelled {}", reference.label.schema) });
    }
    read_record(&bytes(store, what, reference)?).map_err(record_error(what))
}

/// Reopens a calibration and derives its manifest again from the retained observations.
///
/// # Errors
/// [`VerifyError`].
pub fn open_calibration(
    store: &EvidenceStore,
    reference: &EvidenceRef,
) -> Result<CalibrationManifest, VerifyError> {
    let what = "calibration";
    let record: CalibrationRecord =
        read_record(&bytes(store, what, reference)?).map_err(record_error(what))?;
    record.manifest.require_frozen().map_err(record_error(what))?;
    let payload = bytes(store, "calibration observations", &record.evidence)?;
    let context: CalibrationContext = record.manifest.context;
    reopen_calibration(&payload, &record.evidence, &record.policy, &record.manifest, &context)
        .map_err(record_error(what))
}

/// Verifies the attempt whose stored bytes have this SHA-256.
///
/// # Errors
/// [`VerifyError`]: the first thing that does not hold.
pub fn verify(store: &EvidenceStore, sha256: Digest) -> Result<Verified, VerifyError> {
    let (domain, _) = Artifact::Attempt.names();
    let stored =
        store.find(domain, &sha256).map_err(|source| VerifyError::Store { what: "attempt", source })?;
    let stored = stored.ok_or(VerifyError::Absent(sha256))?;
    let attempt: Attempt = read_record(&stored).map_err(record_error("attempt"))?;
    if attempt.schema != Attempt::SCHEMA {
        return Err(VerifyError::Record { what: "attempt", why: format!("schema {}", attempt.schema) });
    }
    let sealed: SealedPlan = reopen(store, "plan", Artifact::Plan, &attempt.plan)?;
    if sealed.digest() != attempt.plan_digest {
        return Err(VerifyError::Record { what: "plan", why: "not the sealed one".to_owned() });
    }
    let plan = Plan::parse(sealed)?;
    let calibration = open_calibration(store, &plan.sealed.calibration)?;
    if calibration.digest() != plan.sealed.calibration_digest {
        return Err(VerifyError::Record { what: "calibration", why: "not the sealed one".to_owned() });
    }
    let parts = Parts::open(store, &attempt)?;
    let evidence = Evidence {
        conformance: parts.conformance.as_ref(),
        speed: parts.speed.as_ref(),
        audit: parts.audit.as_ref().map(|(raw, blob)| (raw, blob.as_slice())),
        reference: parts.reference.as_ref(),
        failure: attempt.failure.as_ref(),
    };
    let derived = match next(&plan, &calibration, &evidence)? {
        Next::Verdict(derived) => *derived,
        other => {
            return Err(VerifyError::Record {
                what: "attempt",
                why: format!("it ends although the next step is {other:?}"),
            });
        }
    };
    check_recorded(&attempt, &derived)?;
    if let Some(facts) = &attempt.reveal {
        check_selection(&plan, &attempt, facts)?;
    } else if derived.decision == Decision::Pass {
        return Err(VerifyError::Record { what: "reveal", why: "a PASS discloses its selection".to_owned() });
    }
    check_teardowns(&attempt, &parts)?;
    let (proven, not_proven) = statements(&plan, &attempt, &derived, &parts);
    Ok(Verified { attempt, sha256, plan, derived, proven, not_proven })
}

#[derive(Default)]
struct Parts {
    conformance: Option<ConformanceRaw>,
    speed: Option<SpeedRaw>,
    audit: Option<(AuditRaw, Vec<u8>)>,
    reference: Option<ReferenceRaw>,
    sessions: Vec<SessionRecord>,
    frames: u64,
}

impl Parts {
    fn open(store: &EvidenceStore, attempt: &Attempt) -> Result<Self, VerifyError> {
        let mut parts = Self::default();
        if let Some(reference) = &attempt.conformance {
            let raw: ConformanceRaw = reopen(store, "conformance", Artifact::Conformance, reference)?;
            let cited = raw.cases.iter().flat_map(|case| [case.request_sha256, case.reply_sha256]).collect();
            parts.session(store, &raw.session, cited)?;
            parts.conformance = Some(raw);
        }
        if let Some(reference) = &attempt.speed {
            let raw: SpeedRaw = reopen(store, "speed", Artifact::Speed, reference)?;
            for session in &raw.sessions {
                let reads = raw.reads.iter().filter(|read| read.session_id == session.session_id);
                let cited = reads
                    .flat_map(|read| {
                        let swaps =
                            read.swaps.iter().flat_map(|swap| [swap.request_sha256, swap.reply_sha256]);
                        let asked =
                            read.requests.iter().flat_map(|one| [one.request_sha256, one.reply_sha256]);
                        swaps.chain(asked).collect::<Vec<_>>()
                    })
                    .collect();
                parts.session(store, session, cited)?;
            }
            parts.speed = Some(raw);
        }
        if let Some(reference) = &attempt.audit {
            let raw: AuditRaw = reopen(store, "audit", Artifact::Audit, reference)?;
            parts.session(store, &raw.session, Vec::new())?;
            parts.session(store, &raw.replay_session, Vec::new())?;
            let blob = bytes(store, "audit tensors", &raw.blob)?;
            parts.audit = Some((raw, blob));
        }
        if let Some(reference) = &attempt.reference {
            let raw: ReferenceRaw = reopen(store, "reference", Artifact::Reference, reference)?;
            parts.session(store, &raw.session, Vec::new())?;
            parts.reference = Some(raw);
        }
        Ok(parts)
    }

    /// Re-hashes every frame of a conversation, rebuilds its chain, and finds the frames that a record cites in it.
    fn session(
        &mut self,
        store: &EvidenceStore,
        session: &SessionRecord,
        cited: Vec<Digest>,
    ) -> Result<(), VerifyError> {
        let fail = |why: &str| VerifyError::Record { what: "frames", why: why.to_owned() };
        let label = Artifact::Frames.label().map_err(record_error("frames"))?;
        if session.frames_ref.label != label {
            return Err(fail("an archive is labelled as something else"));
        }
        let archive = bytes(store, "frames", &session.frames_ref)?;
        let id = hex16(&session.session_id).ok_or_else(|| fail("a session id is not 32 hex digits"))?;
        let (head, digests) = replay_chain(&id, &archive).ok_or_else(|| fail("an archive is truncated"))?;
        if head != session.chain_head || digests.len() as u64 != session.frames {
            return Err(fail("the frames do not have the recorded chain head"));
        }
        if cited.iter().any(|digest| !digests.contains(digest)) {
            return Err(fail("a record cites a frame that its conversation does not hold"));
        }
        if self.sessions.iter().any(|other| other.session_id == session.session_id) {
            return Err(fail("two conversations share a session id"));
        }
        self.frames += session.frames;
        self.sessions.push(session.clone());
        Ok(())
    }
}

fn hex16(text: &str) -> Option<[u8; 16]> {
    let mut out = [0u8; 16];
    if text.len() != 32 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (index, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(out)
}

/// The chain head over an archive, and the digest of every frame in it (the rule of `cacheon-protocol`'s frame chain).
fn replay_chain(session: &[u8; 16], archive: &[u8]) -> Option<(Digest, Vec<Digest>)> {
    let mut seed = Hasher::new();
    seed.update(b"cacheon-frame-chain-v1\0");
    seed.update(session);
    let mut head = seed.finish();
    let mut digests = Vec::new();
    let mut rest = archive;
    while let Some((prefix, tail)) = rest.split_first_chunk::<9>() {
        let length = usize::try_from(u64::from_le_bytes(prefix[1..].try_into().ok()?)).ok()?;
        let frame = tail.get(..length)?;
        let digest = sha256(frame);
        let mut hasher = Hasher::new();
        hasher.update(head.as_bytes());
        hasher.update(&prefix[..1]);
        hasher.update(digest.as_bytes());
        head = hasher.finish();
        digests.push(digest);
        rest = &tail[length..];
    }
    rest.is_empty().then_some((head, digests))
}

fn check_recorded(attempt: &Attempt, derived: &Derived) -> Result<(), VerifyError> {
    let text = |value: &Option<cacheon_identity::float17::Float17>| {
        value.map_or_else(|| "absent".to_owned(), |value| value.to_string())
    };
    let members = [
        ("decision", attempt.decision.clone(), derived.decision.as_str().to_owned()),
        ("reason", attempt.reason.clone(), derived.reason.clone()),
        ("speedup", text(&attempt.speedup), text(&derived.speedup)),
        ("bar", text(&attempt.bar), text(&derived.bar)),
    ];
    match members.into_iter().find(|(_, recorded, derived)| recorded != derived) {
        None => Ok(()),
        Some((member, recorded, derived)) => Err(VerifyError::Verdict { member, recorded, derived }),
    }
}

/// The secret, entropy and selection follow from the commitment that was sealed before any engine started, and the audit
/// seed is the one that the secret gives.
fn check_selection(
    plan: &Plan,
    attempt: &Attempt,
    facts: &super::attempt::RevealFacts,
) -> Result<(), VerifyError> {
    let fail = |why: &str| VerifyError::Record { what: "reveal", why: why.to_owned() };
    let secret = unhex(&facts.secret).ok_or_else(|| fail("the secret is not hexadecimal"))?;
    let secret = Secret::new(secret).map_err(record_error("reveal"))?;
    let entropy = EntropyReceipt::decode(&facts.entropy).map_err(record_error("reveal"))?;
    let receipt = SelectionReceipt::decode(&facts.selection).map_err(record_error("reveal"))?;
    let authority = entropy_authority_receipt(
        entropy.commitment_digest,
        entropy.entropy_digest,
        entropy.source_digest,
        facts.quiescence_digest,
    );
    if authority != entropy.authority_receipt_digest {
        return Err(fail("the entropy was not drawn after the recorded teardown"));
    }
    let trajectory =
        attempt.speed.as_ref().map(|reference| reference.sha256).ok_or_else(|| fail("no reads"))?;
    let expected = reveal(&plan.commitment, &secret, &entropy, trajectory).map_err(record_error("reveal"))?;
    if expected != receipt {
        return Err(fail("the selection does not follow from secret, entropy and trajectories"));
    }
    let seed = audit_seed(&secret, plan.sealed.selected_delta_digest);
    if seed.as_ref().map(|seed| seed.as_str()) != Some(plan.audit.validator_seed.as_str()) {
        return Err(fail("the audit seed is not the one that the secret gives"));
    }
    Ok(())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let plain = text.len().is_multiple_of(2) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !plain {
        return None;
    }
    (0..text.len() / 2).map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()).collect()
}

/// Every conversation's container was proven gone.
fn check_teardowns(attempt: &Attempt, parts: &Parts) -> Result<(), VerifyError> {
    for session in &parts.sessions {
        let gone = attempt
            .teardowns
            .iter()
            .any(|teardown| teardown.session_id == session.session_id && teardown.remaining == 0);
        if !gone {
            return Err(VerifyError::Record {
                what: "teardowns",
                why: format!("session {} has no teardown proof", session.session_id),
            });
        }
    }
    Ok(())
}

fn statements(
    plan: &Plan,
    attempt: &Attempt,
    derived: &Derived,
    parts: &Parts,
) -> (Vec<String>, Vec<String>) {
    let mut proven = vec![format!(
        "every retained byte has the digest it is cited under ({} conversations, {} frames, chains rebuilt)",
        parts.sessions.len(),
        parts.frames
    )];
    proven.push(format!("the plan {} was sealed before the records that cite it", attempt.plan_digest));
    if let Some(graph) = &derived.findings.graph {
        proven.push(format!("conformance regrades to {}", graph.reason));
    }
    if let Some(outcome) = &derived.findings.speed {
        proven.push(format!(
            "{} reads regrade under policy 7 to {}: {}",
            derived.findings.reads.len(),
            outcome.decision.as_str(),
            outcome.deciding.detail
        ));
    }
    if let Some((_, detail)) = &derived.findings.audit {
        proven.push(format!(
            "the audited calls are those the secret selects, and regrade from their tensors: {detail}"
        ));
    }
    if let Some(quality) = &derived.findings.quality {
        let mean = &quality.verdict.candidate_mean_teacher_nll;
        proven.push(format!("quality regrades to {} (mean NLL {mean})", quality.decision.as_str()));
    }
    proven.push(format!("the verdict {} {} follows", derived.decision.as_str(), derived.reason));
    let mut not_proven = vec![
        "that the host's clock ticked evenly and the machine was the one described".to_owned(),
        format!("that plan {} is the one the operator published first", plan.sealed.digest()),
    ];
    if parts.conformance.is_some() {
        not_proven.push(
            "conformance outputs against the reference: their comparison is retained, not the model".into(),
        );
    }
    if parts.audit.is_some() {
        not_proven.push(
            "the audit's reference outputs: they are retained, recomputing them needs the model".into(),
        );
    }
    (proven, not_proven)
}
