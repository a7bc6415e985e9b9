//! Speed policies 1 to 8 (40-qualification §2.1).

use super::score::{Bar, TwoReadLimits};
use crate::calibration::{CalibrationContext, CalibrationError, CalibrationManifest};
use crate::fields::{AnyDigest, require, within};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json};

/// Identity of a speed policy.
pub const POLICY: Domain = Domain::new("cacheon.qualification.resident-speed-policy");

/// The role of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// First baseline.
    B,
    /// First candidate.
    C,
    /// Second baseline.
    BPrime,
    /// Second candidate.
    CPrime,
    /// Third baseline.
    BDoublePrime,
}

impl Role {
    /// The order of a full bracket.
    pub const ORDER: [Self; 5] = [Self::B, Self::C, Self::BPrime, Self::CPrime, Self::BDoublePrime];

    /// The text in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::B => "B",
            Self::C => "C",
            Self::BPrime => "B_prime",
            Self::CPrime => "C_prime",
            Self::BDoublePrime => "B_double_prime",
        }
    }

    /// Whether the incumbent ran.
    #[must_use]
    pub const fn is_baseline(self) -> bool {
        matches!(self, Self::B | Self::BPrime | Self::BDoublePrime)
    }
}

impl Canonical for Role {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(self.as_str());
    }
}

impl Decode for Role {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let text = crate::fields::text(json, "a read role")?;
        let found = Self::ORDER.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| DecodeError::invalid("not a read role", text))
    }
}

/// A policy version, 1 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Charged rates, five reads at most.
    V1,
    /// Timed rates.
    V2,
    /// Medians of windows, bounded scatter.
    V3,
    /// Decision by invariance.
    V4,
    /// Invariance after drift exclusion.
    V5,
    /// Two reads, a third when they do not decide.
    V6,
    /// As 6, with a leading stock swap for the baseline.
    V7,
    /// Three reads in two processes.
    V8,
}

impl Version {
    /// All versions in order.
    pub const ALL: [Self; 8] =
        [Self::V1, Self::V2, Self::V3, Self::V4, Self::V5, Self::V6, Self::V7, Self::V8];

    /// The number in records.
    #[must_use]
    pub const fn number(self) -> u64 {
        self as u64 + 1
    }

    /// The version of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }

    /// Whether reads carry windows and the policy its window members (from 3).
    #[must_use]
    pub fn has_windows(self) -> bool {
        self >= Self::V3
    }

    /// Whether two reads may decide (from 6).
    #[must_use]
    pub fn is_conditional(self) -> bool {
        self >= Self::V6
    }

    /// The roles of `count` reads under this version; `None` when it has no such shape.
    #[must_use]
    pub fn roles(self, count: usize) -> Option<&'static [Role]> {
        const TWO: &[Role] = &[Role::B, Role::C];
        const THREE: &[Role] = &[Role::B, Role::C, Role::BPrime];
        match count {
            2 if self.is_conditional() => Some(TWO),
            3 => Some(THREE),
            5 if !self.is_conditional() => Some(&Role::ORDER),
            _ => None,
        }
    }

    const fn borderline_band(self) -> &'static str {
        match self {
            Self::V6 | Self::V7 => "pod_bookend_invariant",
            Self::V8 => "invariant_over_reads_taken",
            _ => "one_min_margin_around_required",
        }
    }

    const fn read_order(self) -> &'static [&'static str] {
        match self {
            Self::V6 | Self::V7 => &["B", "C", "B_prime_if_inconclusive"],
            Self::V8 => &["B", "C", "B_prime"],
            _ => &["B", "C", "B_prime", "C_prime", "B_double_prime"],
        }
    }
}

/// What version 3 and later demand of the windows of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRules {
    /// Fewest windows of a gradeable read, 3..512.
    pub min_windows: u64,
    /// Largest scatter: at most 0.05 (enforced) in version 3, at most 0.25 (recorded only) later.
    pub max_window_scatter: Float17,
    /// How much longer the candidate may condition than the baseline, (1, 2].
    pub max_conditioning_slowdown: Float17,
}

/// A speed policy record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeedPolicy {
    version: Version,
    max_stage_seconds: u64,
    max_qualification_seconds: u64,
    min_margin: Float17,
    noise_multiplier: Float17,
    max_noise: Float17,
    calibration_digest: AnyDigest,
    calibration_context_digest: AnyDigest,
    windows: Option<WindowRules>,
}

/// The parts of a policy, in any state; [`SpeedPolicy::new`] checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeedPolicyParts {
    /// 1..8.
    pub version: Version,
    /// Speed stage budget, 60..7200 s.
    pub max_stage_seconds: u64,
    /// Whole-run budget, stage..14400 s.
    pub max_qualification_seconds: u64,
    /// (0, 1).
    pub min_margin: Float17,
    /// Above 0.
    pub noise_multiplier: Float17,
    /// [0, 1); at most 0.02 from version 2.
    pub max_noise: Float17,
    /// Digest of the calibration manifest.
    pub calibration_digest: AnyDigest,
    /// Digest of its context.
    pub calibration_context_digest: AnyDigest,
    /// Present exactly from version 3.
    pub windows: Option<WindowRules>,
}

/// The budgets and window rules that a calibration does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyFrame {
    /// 1..8.
    pub version: Version,
    /// Speed stage budget, s.
    pub max_stage_seconds: u64,
    /// Whole-run budget, s.
    pub max_qualification_seconds: u64,
    /// Present exactly from version 3.
    pub windows: Option<WindowRules>,
}

impl SpeedPolicy {
    /// The default whole-run budget, s.
    pub const DEFAULT_QUALIFICATION_SECONDS: u64 = 7200;

    /// Checks the bounds of every part.
    ///
    /// # Errors
    /// Names the member and its bound.
    pub fn new(parts: SpeedPolicyParts) -> Result<Self, DecodeError> {
        within("max_stage_seconds", parts.max_stage_seconds, 60, 7200)?;
        within(
            "max_qualification_seconds",
            parts.max_qualification_seconds,
            parts.max_stage_seconds,
            14_400,
        )?;
        let (margin, multiplier, noise) =
            (parts.min_margin.get(), parts.noise_multiplier.get(), parts.max_noise.get());
        require(
            margin > 0.0 && margin < 1.0,
            "min_margin",
            "the margin is not inside (0, 1)",
            &parts.min_margin,
        )?;
        require(
            multiplier > 0.0,
            "noise_multiplier",
            "the multiplier is not above 0",
            &parts.noise_multiplier,
        )?;
        require(
            (0.0..1.0).contains(&noise),
            "max_noise",
            "the noise ceiling is not inside [0, 1)",
            &parts.max_noise,
        )?;
        if parts.version >= Version::V2 {
            require(noise <= 0.02, "max_noise", "the noise ceiling is above 0.02", &parts.max_noise)?;
        }
        match parts.windows {
            None if parts.version.has_windows() => {
                return Err(DecodeError::invalid(
                    "version 3 and later need window rules",
                    &parts.version.number(),
                ));
            }
            Some(_) if !parts.version.has_windows() => {
                return Err(DecodeError::invalid(
                    "versions 1 and 2 have no window rules",
                    &parts.version.number(),
                ));
            }
            None => {}
            Some(windows) => Self::check_windows(parts.version, &windows)?,
        }
        let SpeedPolicyParts {
            version,
            max_stage_seconds,
            max_qualification_seconds,
            min_margin,
            noise_multiplier,
            max_noise,
            calibration_digest,
            calibration_context_digest,
            windows,
        } = parts;
        Ok(Self {
            version,
            max_stage_seconds,
            max_qualification_seconds,
            min_margin,
            noise_multiplier,
            max_noise,
            calibration_digest,
            calibration_context_digest,
            windows,
        })
    }

    fn check_windows(version: Version, windows: &WindowRules) -> Result<(), DecodeError> {
        within("min_windows", windows.min_windows, 3, 512)?;
        let ceiling = if version == Version::V3 { 0.05 } else { 0.25 };
        let (scatter, slowdown) = (windows.max_window_scatter.get(), windows.max_conditioning_slowdown.get());
        let rule = "the scatter bound is outside its range";
        require(
            scatter > 0.0 && scatter <= ceiling,
            "max_window_scatter",
            rule,
            &windows.max_window_scatter,
        )?;
        let rule = "the slowdown bound is outside (1, 2]";
        require(
            slowdown > 1.0 && slowdown <= 2.0,
            "max_conditioning_slowdown",
            rule,
            &windows.max_conditioning_slowdown,
        )
    }

    /// The policy that a frozen calibration gives in its exact context: margin, multiplier and noise are the nearest
    /// binary64 of its decimals.
    ///
    /// # Errors
    /// The calibration is provisional or of another context, or a bound is broken.
    pub fn from_calibration(
        calibration: &CalibrationManifest,
        context: &CalibrationContext,
        frame: PolicyFrame,
    ) -> Result<Self, CalibrationError> {
        calibration.require_frozen()?;
        calibration.require_context(context)?;
        let nearest = |decimal: &cacheon_identity::decimal::Decimal| {
            Float17::new(decimal.to_f64()).map_err(|error| CalibrationError::Threshold(error.to_string()))
        };
        Ok(Self::new(SpeedPolicyParts {
            version: frame.version,
            max_stage_seconds: frame.max_stage_seconds,
            max_qualification_seconds: frame.max_qualification_seconds,
            min_margin: nearest(&calibration.speed.min_margin)?,
            noise_multiplier: nearest(&calibration.speed.noise_multiplier)?,
            max_noise: nearest(&calibration.speed.max_noise)?,
            calibration_digest: calibration.digest().into(),
            calibration_context_digest: calibration.context.digest().into(),
            windows: frame.windows,
        })?)
    }

    /// The same policy re-issued for two processes: version 8, every threshold unchanged (§1.1).
    ///
    /// # Errors
    /// The policy has no window rules to keep (versions 1 and 2).
    pub fn for_two_processes(&self) -> Result<Self, DecodeError> {
        Self::new(SpeedPolicyParts { version: Version::V8, ..self.parts() })
    }

    /// The parts.
    #[must_use]
    pub fn parts(&self) -> SpeedPolicyParts {
        SpeedPolicyParts {
            version: self.version,
            max_stage_seconds: self.max_stage_seconds,
            max_qualification_seconds: self.max_qualification_seconds,
            min_margin: self.min_margin,
            noise_multiplier: self.noise_multiplier,
            max_noise: self.max_noise,
            calibration_digest: self.calibration_digest,
            calibration_context_digest: self.calibration_context_digest,
            windows: self.windows,
        }
    }

    /// The parts that a calibration does not hold.
    #[must_use]
    pub fn frame(&self) -> PolicyFrame {
        PolicyFrame {
            version: self.version,
            max_stage_seconds: self.max_stage_seconds,
            max_qualification_seconds: self.max_qualification_seconds,
            windows: self.windows,
        }
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The window rules, from version 3.
    #[must_use]
    pub fn windows(&self) -> Option<&WindowRules> {
        self.windows.as_ref()
    }

    /// Speed stage budget, s.
    #[must_use]
    pub fn max_stage_seconds(&self) -> u64 {
        self.max_stage_seconds
    }

    /// Whole-run budget, s.
    #[must_use]
    pub fn max_qualification_seconds(&self) -> u64 {
        self.max_qualification_seconds
    }

    /// Digest of the calibration manifest.
    #[must_use]
    pub fn calibration_digest(&self) -> AnyDigest {
        self.calibration_digest
    }

    /// Digest of the calibration context.
    #[must_use]
    pub fn calibration_context_digest(&self) -> AnyDigest {
        self.calibration_context_digest
    }

    /// The thresholds of a bracket.
    #[must_use]
    pub fn bar(&self) -> Bar {
        Bar {
            min_margin: self.min_margin.get(),
            noise_multiplier: self.noise_multiplier.get(),
            max_noise: self.max_noise.get(),
        }
    }

    /// The limits of a two-read grade.
    #[must_use]
    pub fn two_read_limits(&self) -> TwoReadLimits {
        TwoReadLimits::of(&self.bar())
    }

    /// Identity: the record plus its three literals.
    #[must_use]
    pub fn digest(&self) -> Digest {
        POLICY.digest(&Identity(self))
    }

    fn write_members(&self, w: &mut CanonicalWriter<'_>, identity: bool) {
        let version = self.version;
        w.object(|o| {
            if identity {
                o.field("borderline_band", version.borderline_band());
            }
            o.field("calibration_context_digest", &self.calibration_context_digest);
            o.field("calibration_digest", &self.calibration_digest);
            o.field_if(
                "max_conditioning_slowdown",
                self.windows.as_ref().map(|w| &w.max_conditioning_slowdown),
            );
            o.field("max_noise", &self.max_noise);
            o.field("max_qualification_seconds", &self.max_qualification_seconds);
            o.field("max_stage_seconds", &self.max_stage_seconds);
            o.field_if("max_window_scatter", self.windows.as_ref().map(|w| &w.max_window_scatter));
            o.field("min_margin", &self.min_margin);
            o.field_if("min_windows", self.windows.as_ref().map(|w| &w.min_windows));
            o.field("noise_multiplier", &self.noise_multiplier);
            if identity {
                o.field("read_order", version.read_order());
                o.field("timing", "serialized_resident_host_time");
            }
            o.field("version", &version.number());
        });
    }
}

struct Identity<'a>(&'a SpeedPolicy);

impl Canonical for Identity<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.0.write_members(w, true);
    }
}

impl Canonical for SpeedPolicy {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.write_members(w, false);
    }
}

pub(crate) fn decode_version(fields: &mut Fields<'_>) -> Result<Version, DecodeError> {
    let member = fields.take("version")?;
    let number = member.u64_in(1, 8)?;
    Version::from_number(number)
        .ok_or_else(|| member.error(cacheon_identity::DecodeKind::invalid("no such version", &number)))
}

impl Decode for SpeedPolicy {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let version = decode_version(&mut fields)?;
        let windows = if version.has_windows() {
            Some(WindowRules {
                min_windows: fields.decode("min_windows")?,
                max_window_scatter: fields.decode("max_window_scatter")?,
                max_conditioning_slowdown: fields.decode("max_conditioning_slowdown")?,
            })
        } else {
            None
        };
        let parts = SpeedPolicyParts {
            version,
            max_stage_seconds: fields.decode("max_stage_seconds")?,
            max_qualification_seconds: fields.decode("max_qualification_seconds")?,
            min_margin: fields.decode("min_margin")?,
            noise_multiplier: fields.decode("noise_multiplier")?,
            max_noise: fields.decode("max_noise")?,
            calibration_digest: fields.decode("calibration_digest")?,
            calibration_context_digest: fields.decode("calibration_context_digest")?,
            windows,
        };
        fields.finish()?;
        Self::new(parts)
    }
}
