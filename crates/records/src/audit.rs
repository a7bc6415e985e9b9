//! Slot audit: what is asked of the worker, and the raw counts it answers with (spec 10 §12, spec 50 §6.4).
//!
//! The control is what both qualifications of a pair share; the policy adds the secret seed, which differs. A receipt is
//! raw counts, never a verdict.

use crate::domains;
use crate::text::EngineToken;
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Fields, Json};

/// The most receipts one audit may expect: slots × members.
pub const MAX_RECEIPTS: usize = 4096;
/// The largest call count in a policy or a receipt.
pub const MAX_CALLS: u64 = 1_000_000_000;
const MAX_MEMBERS: u64 = 64;
const MAX_PID: u64 = i32::MAX as u64;

/// How much is audited: equal for both qualifications of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditControl {
    expected_member_count: u64,
    expected_slots: Vec<EngineToken>,
    minimum_calls: u64,
    sample_rate_ppm: u64,
}

impl AuditControl {
    /// The members, in code-point order.
    pub const MEMBERS: &'static [&'static str] =
        &["expected_member_count", "expected_slots", "minimum_calls", "sample_rate_ppm"];

    /// Members 1..=64, slots sorted, unique and non-empty with slots × members at most 4096, calls 1..=10^9, rate
    /// 1..=10^6 ppm.
    ///
    /// # Errors
    /// The first bound that does not hold.
    pub fn new(
        expected_member_count: u64,
        expected_slots: Vec<EngineToken>,
        minimum_calls: u64,
        sample_rate_ppm: u64,
    ) -> Result<Self, DecodeError> {
        let control = Self { expected_member_count, expected_slots, minimum_calls, sample_rate_ppm };
        Self::decode(&control.to_json().map_err(DecodeKind::Json)?)
    }

    fn from_fields(fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let members = fields.take("expected_member_count")?.u64_in(1, MAX_MEMBERS)?;
        let slots_member = fields.take("expected_slots")?;
        let slots: Vec<EngineToken> = slots_member.decode()?;
        let broken = |rule: &'static str| slots_member.error(DecodeKind::invalid(rule, slots_member.json()));
        if slots.is_empty() || !slots.is_sorted_by(|a, b| a < b) {
            return Err(broken("slots must be sorted, unique and not empty"));
        }
        if slots.len().saturating_mul(usize::try_from(members).unwrap_or(usize::MAX)) > MAX_RECEIPTS {
            return Err(broken("slots times members is more than 4096"));
        }
        Ok(Self {
            expected_member_count: members,
            expected_slots: slots,
            minimum_calls: fields.take("minimum_calls")?.u64_in(1, MAX_CALLS)?,
            sample_rate_ppm: fields.take("sample_rate_ppm")?.u64_in(1, 1_000_000)?,
        })
    }

    /// Processes that must each report, 1..=64.
    #[must_use]
    pub const fn expected_member_count(&self) -> u64 {
        self.expected_member_count
    }

    /// Slots that must each be covered, sorted.
    #[must_use]
    pub fn expected_slots(&self) -> &[EngineToken] {
        &self.expected_slots
    }

    /// The least audited calls per slot and member.
    #[must_use]
    pub const fn minimum_calls(&self) -> u64 {
        self.minimum_calls
    }

    /// Fraction of calls sampled, in parts per million.
    #[must_use]
    pub const fn sample_rate_ppm(&self) -> u64 {
        self.sample_rate_ppm
    }

    /// The sampling fraction as the worker reads it: `%.17g` of ppm / 10^6.
    #[must_use]
    pub fn sample_rate_text(&self) -> String {
        #[allow(clippy::cast_precision_loss)]
        cacheon_identity::float17::format(self.sample_rate_ppm as f64 / 1e6)
    }

    /// The control digest, which both qualifications share.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::SLOT_AUDIT_CONTROL.digest(self)
    }
}

impl Canonical for AuditControl {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("expected_member_count", &self.expected_member_count)
                .field("expected_slots", &self.expected_slots)
                .field("minimum_calls", &self.minimum_calls)
                .field("sample_rate_ppm", &self.sample_rate_ppm);
        });
    }
}

impl Decode for AuditControl {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        Self::from_fields(&mut Fields::closed(json, Self::MEMBERS)?)
    }
}

crate::text_type! {
    /// The validator's secret sampling seed: 32 lowercase hexadecimal digits, not all zero.
    pub struct ValidatorSeed: "a validator seed is 32 lowercase hexadecimal digits, not all zero",
        |text| text.len() == 32
            && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            && text.bytes().any(|b| b != b'0');
}

impl ValidatorSeed {
    /// The seed as the worker reads it, in decimal.
    #[must_use]
    pub fn decimal_text(&self) -> String {
        u128::from_str_radix(self.as_str(), 16).unwrap_or_default().to_string()
    }
}

/// A control with its secret seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPolicy {
    /// What both qualifications share.
    pub control: AuditControl,
    /// What only this one knows until it ends.
    pub validator_seed: ValidatorSeed,
}

impl AuditPolicy {
    /// The members, in code-point order.
    pub const MEMBERS: &'static [&'static str] =
        &["expected_member_count", "expected_slots", "minimum_calls", "sample_rate_ppm", "validator_seed"];

    /// The policy digest, seed included.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::SLOT_AUDIT_POLICY.digest(self)
    }
}

impl Canonical for AuditPolicy {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let control = &self.control;
        w.object(|o| {
            o.field("expected_member_count", &control.expected_member_count)
                .field("expected_slots", &control.expected_slots)
                .field("minimum_calls", &control.minimum_calls)
                .field("sample_rate_ppm", &control.sample_rate_ppm)
                .field("validator_seed", &self.validator_seed);
        });
    }
}

impl Decode for AuditPolicy {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        Ok(Self {
            control: AuditControl::from_fields(&mut fields)?,
            validator_seed: fields.decode("validator_seed")?,
        })
    }
}

/// How a slot's outputs were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuditMode {
    /// Every element within tolerance.
    AllClose,
    /// Cosine similarity.
    Cosine,
    /// The fraction of elements within tolerance.
    MatchedRatio,
    /// The overlap of top-k sets.
    TopKOverlap,
}

impl AuditMode {
    const ALL: [Self; 4] = [Self::AllClose, Self::Cosine, Self::MatchedRatio, Self::TopKOverlap];

    /// The word in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllClose => "allclose",
            Self::Cosine => "cosine",
            Self::MatchedRatio => "matched_ratio",
            Self::TopKOverlap => "topk_overlap",
        }
    }
}

impl Canonical for AuditMode {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(self.as_str());
    }
}

impl Decode for AuditMode {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let text = String::decode(json)?;
        let known = Self::ALL.into_iter().find(|mode| mode.as_str() == text);
        known.ok_or_else(|| DecodeError::invalid("an unknown comparison mode", &text))
    }
}

/// Raw counts of one slot in one process. Its JSON form carries floats as `%.17g` text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditReceipt {
    facts: AuditReceiptFacts,
}

cacheon_identity::record! {
    /// The members of a receipt, not yet checked against each other.
    pub struct AuditReceiptFacts {
        /// Calls where the stock path itself refused.
        pub baseline_refused: u64,
        /// Calls that could not be compared.
        pub compare_errors: u64,
        /// The bar the worker applied, when any call was audited.
        pub min_ratio: Option<Float17>,
        /// How outputs were compared, when any call was audited.
        pub mode: Option<AuditMode>,
        /// Audited calls.
        pub n: u64,
        /// The reporting process.
        pub pid: u64,
        /// Its rank among the members.
        pub rank: u64,
        /// The audited slot.
        pub slot: EngineToken,
        /// Audited calls that missed the bar.
        pub violations: u64,
        /// Members in all.
        pub world_size: u64,
        /// The worst agreement seen.
        pub worst_frac: Float17,
    }
}

impl AuditReceipt {
    /// Checks the facts against each other.
    ///
    /// # Errors
    /// The first rule they break.
    pub fn new(facts: AuditReceiptFacts) -> Result<Self, DecodeError> {
        let bounded = |name: &'static str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            let kind = DecodeKind::Range { value: value.to_string(), bounds: format!("{low}..={high}") };
            Err(DecodeError::from(kind).within(name))
        };
        bounded("n", facts.n, 0, MAX_CALLS)?;
        bounded("violations", facts.violations, 0, facts.n)?;
        bounded("baseline_refused", facts.baseline_refused, 0, MAX_CALLS)?;
        bounded("compare_errors", facts.compare_errors, 0, MAX_CALLS)?;
        bounded("world_size", facts.world_size, 1, MAX_MEMBERS)?;
        bounded("rank", facts.rank, 0, facts.world_size - 1)?;
        bounded("pid", facts.pid, 1, MAX_PID)?;
        let invalid = |rule: &'static str, value: Float17| Err(DecodeError::invalid(rule, &value));
        let worst = facts.worst_frac;
        if !(-1.0..=1.0).contains(&worst.get()) {
            return invalid("worst_frac is outside -1..=1", worst);
        }
        if let Some(bar) = facts.min_ratio.filter(|bar| !(0.0..=1.0).contains(&bar.get())) {
            return invalid("min_ratio is outside 0..=1", bar);
        }
        if facts.n > 0 {
            let (Some(bar), Some(_)) = (facts.min_ratio, facts.mode) else {
                return invalid("audited calls without a mode and its bar; worst_frac", worst);
            };
            if (facts.violations == 0) != (worst.get() >= bar.get()) {
                return invalid(
                    "violations and the worst agreement contradict each other; worst_frac",
                    worst,
                );
            }
        }
        Ok(Self { facts })
    }

    /// The checked facts.
    #[must_use]
    pub const fn facts(&self) -> &AuditReceiptFacts {
        &self.facts
    }
}

impl Canonical for AuditReceipt {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.facts.write(w);
    }
}

impl Decode for AuditReceipt {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        Self::new(AuditReceiptFacts::decode(json)?)
    }
}
