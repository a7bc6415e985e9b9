//! The typed codec of durable products: an envelope `{type, value}` whose `type` is a fixed dotted name and whose value
//! is a closed object, nested objects untagged (40-qualification §10.1).
//!
//! The names come from a literal table and are part of the bytes; nothing here derives them from our own paths.

mod closure;
mod crossover;
mod device;
mod process;
mod reference;
mod resident;
mod session;

pub use closure::{
    CheckpointSchema, ClosureError, CountCheckpoint, LaneRetirement, PairClosure, RetirementCheckpoint,
    RetirementSchema,
};
pub use crossover::{
    CodecPolicy, CodecRead, CodecVerdict, CrossoverEvidence, PairCrossoverEvidence, exit_label,
};
pub use device::{
    ActiveReceiptSchema, DevicePhase, DeviceReceiptSchema, DeviceSample, DeviceStateActiveReceipt,
    DeviceStateReceipt, GpuProcess, GpuTelemetry,
};
pub use process::{QuiescenceReceipt, QuiescenceSchema};
pub use reference::{
    PristineReferenceExecution, PristineReferenceSchema, ReferenceEvidence, ReferenceExchange,
    ReferencePromptEvidence, ReferencePromptInput, ReferenceRequest, ReferenceRoleEvidence,
    ReferenceRoleInput, ReferenceSession, ReferenceSessionSchema, ReferenceTokenEvidence, SessionPayload,
};
pub use resident::{
    BatchShape, CountExecution, CountExecutionSchema, LaneBinding, LaneId, PairBinding, ResidentBatch,
    ResidentExecution, ResidentRequestSlice, ResidentSession, SwapReceipt,
};
pub use session::{
    BatchEvidence, BatchExecution, DeviceReceipts, EngineExecution, EngineExecutionSchema, NativeFile,
    NativePublication, Prebuild, Preflight, PromptEvidence, RuntimeIdentity, SessionExecution, TopLogprob,
};

use crate::audit::AuditWitness;
use crate::count::RegisteredCountResult;
use crate::fields::decode_canonical;
use crate::selection::EntropyReceipt;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Fields, Json};
use cacheon_records::evidence::EvidenceRef;

/// A type that may stand at the root of an envelope.
pub trait Root: Canonical + Decode {
    /// The fixed name in the bytes.
    const KEY: &'static str;
}

macro_rules! roots {
    ($($type:ty = $key:literal),+ $(,)?) => {
        $(impl Root for $type { const KEY: &'static str = $key; })+

        /// Every name that an envelope may carry.
        pub const ROOT_KEYS: &[&str] = &[$($key),+];

        /// Reads an envelope of any registered type and writes it again.
        ///
        /// # Errors
        /// An unknown or nested-only type, or a value that breaks its rules.
        pub fn reencode(json: &Json) -> Result<(&'static str, Vec<u8>), DecodeError> {
            let mut fields = Fields::closed(json, &["type", "value"])?;
            let key: String = fields.decode("type")?;
            match key.as_str() {
                $($key => Ok((<$type as Root>::KEY, Enveloped::<$type>::decode(json)?.to_canonical())),)+
                other => Err(DecodeError::invalid("not a registered root type", other).within("type")),
            }
        }
    };
}

roots! {
    AuditWitness = "cacheon.eval.qualification_runner.AuditWitness",
    EngineExecution = "cacheon.eval.oci_backend.EngineExecutionEvidence",
    EvidenceRef = "cacheon.eval.evidence_store.EvidenceArtifactRef",
    QuiescenceReceipt = "cacheon.eval.oci_process.OCIQuiescenceReceipt",
    PristineReferenceExecution = "cacheon.eval.oci_backend.PristineReferenceExecutionEvidence",
    ReferenceRequest = "cacheon.eval.reference_protocol.ReferenceRequest",
    Bare<RegisteredCountResult> =
        "cacheon.eval.registered_resident_count_quality.RegisteredResidentCountQualityResult",
    CountCheckpoint = "cacheon.eval.qualification_continuation.ResidentCountQualityCheckpoint",
    CountExecution = "cacheon.eval.resident_count_quality_execution.ResidentCountQualityExecutionEvidence",
    CrossoverEvidence = "cacheon.eval.crossover_runtime.ResidentCrossoverEvidence",
    PairCrossoverEvidence = "cacheon.eval.resident_pair_crossover.ResidentPairCrossoverEvidence",
    PairClosure = "cacheon.eval.resident_pair_quality_lifecycle.ResidentPairQualificationClosure",
    RetirementCheckpoint = "cacheon.eval.qualification_continuation.ResidentPairRetirementCheckpoint",
    ResidentRequestSlice = "cacheon.eval.resident_evaluation_pair.ResidentRequestSlice",
    ResidentSession = "cacheon.eval.oci_resident_session.ResidentSessionEvidence",
    EntropyReceipt = "cacheon.eval.qualification.SelectionEntropyReceipt",
}

/// A value in its envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enveloped<T>(pub T);

impl<T: Root> Canonical for Enveloped<T> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("type", T::KEY).field("value", &self.0);
        });
    }
}

impl<T: Root> Decode for Enveloped<T> {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["type", "value"])?;
        fields.take("type")?.exactly(T::KEY)?;
        Ok(Self(fields.decode("value")?))
    }
}

/// The canonical bytes of an enveloped value.
#[must_use]
pub fn encode<T: Root>(value: &T) -> Vec<u8> {
    Borrowed(value).to_canonical()
}

/// Reads the canonical bytes of an enveloped value.
///
/// # Errors
/// Other bytes than the canonical envelope of this type.
pub fn decode<T: Root>(bytes: &[u8]) -> Result<T, DecodeError> {
    decode_canonical::<Enveloped<T>>(bytes).map(|Enveloped(value)| value)
}

/// An envelope around a borrowed value, for digests.
pub(crate) struct Borrowed<'a, T>(pub(crate) &'a T);

impl<T: Root> Canonical for Borrowed<'_, T> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("type", T::KEY).field("value", self.0);
        });
    }
}

/// A record whose `schema` members stand in its JSON form only, and where they stand.
pub trait SchemaMembers: Canonical + Decode {
    /// Path to each object that carries a `schema`, with its text; outer objects first.
    const SCHEMAS: &'static [(&'static [&'static str], &'static str)];
}

/// The typed-codec form of such a record: without those members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bare<T>(pub T);

fn object_at<'a>(json: &'a mut Json, path: &[&str]) -> Option<&'a mut cacheon_identity::json::Object> {
    let mut at = json;
    for name in path {
        match at {
            Json::Object(members) => at = members.get_mut(*name)?,
            _ => return None,
        }
    }
    match at {
        Json::Object(members) => Some(members),
        _ => None,
    }
}

impl<T: SchemaMembers> Canonical for Bare<T> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        // The records nest three levels, far below the reader's bound, so the tree always exists.
        let mut json = self.0.to_json().unwrap_or(Json::Null);
        for (path, _) in T::SCHEMAS {
            if let Some(members) = object_at(&mut json, path) {
                members.remove("schema");
            }
        }
        json.write(w);
    }
}

impl<T: SchemaMembers> Decode for Bare<T> {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut json = json.clone();
        for (path, schema) in T::SCHEMAS {
            let missing = || DecodeKind::Missing(path.join("."));
            let members = object_at(&mut json, path).ok_or_else(missing)?;
            if members.insert("schema".to_owned(), Json::Str((*schema).to_owned())).is_some() {
                return Err(DecodeKind::Extra("schema".to_owned()).into());
            }
        }
        T::decode(&json).map(Self)
    }
}
