//! The deployed lanes: two disjoint groups of four devices that exchange roles (spec 50 §8).
//!
//! The CPU arena has lanes of its own in [`crate::cpu`].

use crate::domains;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Fields, Json};

/// Devices of one deployed lane.
pub const LANE_DEVICES: usize = 4;

/// One of the two lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneId {
    /// `A`
    A,
    /// `B`
    B,
}

impl LaneId {
    /// `A` or `B`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }

    /// The other lane.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl Canonical for LaneId {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(self.as_str());
    }
}

impl Decode for LaneId {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let text = String::decode(json)?;
        let known = [Self::A, Self::B].into_iter().find(|lane| lane.as_str() == text);
        known.ok_or_else(|| DecodeError::invalid("a lane is `A` or `B`", &text))
    }
}

crate::text_type! {
    /// A device by its driver's name for it: `GPU-` and 16 to 64 of `[0-9A-Fa-f-]`.
    pub struct GpuUuid: "a device is GPU- and 16..=64 of [0-9A-Fa-f-]",
        |text| text.strip_prefix("GPU-").is_some_and(|rest| {
            (16..=64).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        });
    /// A session: 32 lowercase hexadecimal digits, not all zero.
    pub struct SessionId: "a session is 32 lowercase hexadecimal digits, not all zero",
        |text| text.len() == 32
            && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            && text.bytes().any(|b| b != b'0');
}

cacheon_identity::record! {
    /// The members of a lane, not yet checked.
    pub struct LaneFacts {
        /// Hash of the devices' configuration.
        pub device_configuration_digest: Digest,
        /// The device policy.
        pub device_policy_digest: Digest,
        /// The devices, in the order of their physical ids.
        pub gpu_uuids: Vec<GpuUuid>,
        /// Which lane.
        pub lane_id: LaneId,
        /// Physical ids, ascending.
        pub physical_gpu_ids: Vec<u64>,
    }
}

/// A lane of exactly four devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QualificationLane(LaneFacts);

impl QualificationLane {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = LaneFacts::MEMBERS;

    /// Checks count, order and uniqueness.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn new(facts: LaneFacts) -> Result<Self, DecodeError> {
        let ids = &facts.physical_gpu_ids;
        if ids.len() != LANE_DEVICES || !ids.is_sorted_by(|a, b| a < b) {
            let rule = "a lane has four physical ids, ascending and unique";
            return Err(DecodeError::invalid(rule, &ids.len()).within("physical_gpu_ids"));
        }
        let mut uuids: Vec<_> = facts.gpu_uuids.iter().collect();
        uuids.sort_unstable();
        uuids.dedup();
        if uuids.len() != LANE_DEVICES || facts.gpu_uuids.len() != LANE_DEVICES {
            return Err(
                DecodeError::invalid("a lane has four unique devices", &uuids.len()).within("gpu_uuids")
            );
        }
        Ok(Self(facts))
    }

    /// The facts.
    #[must_use]
    pub const fn facts(&self) -> &LaneFacts {
        &self.0
    }

    /// The lane's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::QUALIFICATION_LANE.digest(self)
    }
}

impl Canonical for QualificationLane {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.0.write(w);
    }
}

impl Decode for QualificationLane {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        Self::new(LaneFacts::decode(json)?)
    }
}

/// Lanes A and B: disjoint, and different in configuration and policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanePair {
    lane_a: QualificationLane,
    lane_b: QualificationLane,
}

impl LanePair {
    /// Pairs the two lanes.
    ///
    /// # Errors
    /// Lanes in the wrong places, sharing a device, or equal in configuration or policy.
    pub fn new(lane_a: QualificationLane, lane_b: QualificationLane) -> Result<Self, DecodeError> {
        let (a, b) = (lane_a.facts(), lane_b.facts());
        let broken = |rule: &'static str, value: &dyn std::fmt::Display| {
            Err(DecodeError::invalid(rule, &value.to_string()))
        };
        if (a.lane_id, b.lane_id) != (LaneId::A, LaneId::B) {
            return broken("lane A comes first, lane B second", &a.lane_id.as_str());
        }
        if let Some(id) = a.physical_gpu_ids.iter().find(|id| b.physical_gpu_ids.contains(id)) {
            return broken("the lanes share a physical device", id);
        }
        if let Some(uuid) = a.gpu_uuids.iter().find(|uuid| b.gpu_uuids.contains(uuid)) {
            return broken("the lanes share a device", uuid);
        }
        if a.device_configuration_digest == b.device_configuration_digest {
            return broken("the lanes have the same configuration", &a.device_configuration_digest);
        }
        if a.device_policy_digest == b.device_policy_digest {
            return broken("the lanes have the same policy", &a.device_policy_digest);
        }
        Ok(Self { lane_a, lane_b })
    }

    /// Which lane carries the candidate: A in the primary, B in the reproduction.
    #[must_use]
    pub const fn candidate_lane(role: crate::arena::Role) -> LaneId {
        match role {
            crate::arena::Role::Primary => LaneId::A,
            crate::arena::Role::Reproduction => LaneId::B,
        }
    }

    /// Digest of the exchange of roles.
    #[must_use]
    pub fn role_swap_digest() -> Digest {
        domains::ROLE_SWAP.digest(&RoleSwap)
    }

    /// The pair's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::LANE_PAIR.digest(self)
    }
}

struct RoleSwap;

impl Canonical for RoleSwap {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let roles = |w: &mut CanonicalWriter<'_>, candidate: LaneId| {
            w.object(|o| {
                o.field("candidate", &candidate).field("resident_baseline", &candidate.other());
            });
        };
        w.object(|o| {
            o.field_with("primary", |w| roles(w, LanePair::candidate_lane(crate::arena::Role::Primary)))
                .field_with("reproduction", |w| {
                    roles(w, LanePair::candidate_lane(crate::arena::Role::Reproduction));
                });
        });
    }
}

impl Canonical for LanePair {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("lane_a", &self.lane_a)
                .field("lane_b", &self.lane_b)
                .field("role_swap_digest", &Self::role_swap_digest());
        });
    }
}

cacheon_identity::record! {
    /// What one lane of a resident pair is bound to.
    pub struct PairLane {
        /// Its device allocation.
        pub allocation_digest: Digest,
        /// The namespace its containers live in.
        pub executor_namespace_digest: Digest,
        /// The lane's authority.
        pub lane_digest: Digest,
        /// Which lane.
        pub lane_id: LaneId,
        /// Its engine session.
        pub session_id: SessionId,
        /// The launch of its stock engine.
        pub stock_launch_digest: Digest,
    }
}

struct PairLaneIdentity<'a>(&'a PairLane);

impl Canonical for PairLaneIdentity<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let it = self.0;
        w.object(|o| {
            o.field("allocation", &it.allocation_digest)
                .field("executor_namespace", &it.executor_namespace_digest)
                .field("lane", &it.lane_id)
                .field("lane_authority", &it.lane_digest)
                .field("session", &it.session_id)
                .field("stock_launch", &it.stock_launch_digest);
        });
    }
}

impl PairLane {
    /// The binding's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::PAIR_LANE.digest(&PairLaneIdentity(self))
    }
}

/// A resident pair: both lanes at work in one service epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairBinding {
    lanes: [PairLane; 2],
    service_epoch: Digest,
}

impl PairBinding {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &["lanes", "service_epoch_digest"];

    /// Binds lanes A and B; they differ in session, stock launch, allocation and executor namespace.
    ///
    /// # Errors
    /// Lanes in the wrong places, or sharing one of the four.
    pub fn new(lanes: [PairLane; 2], service_epoch: Digest) -> Result<Self, DecodeError> {
        let [a, b] = &lanes;
        let wrong = if (a.lane_id, b.lane_id) != (LaneId::A, LaneId::B) {
            Some("lane_id")
        } else if a.session_id == b.session_id {
            Some("session_id")
        } else if a.stock_launch_digest == b.stock_launch_digest {
            Some("stock_launch_digest")
        } else if a.allocation_digest == b.allocation_digest {
            Some("allocation_digest")
        } else if a.executor_namespace_digest == b.executor_namespace_digest {
            Some("executor_namespace_digest")
        } else {
            None
        };
        match wrong {
            Some(member) => {
                Err(DecodeError::invalid("a resident pair is lane A and lane B, each with its own", member)
                    .within("lanes"))
            }
            None => Ok(Self { lanes, service_epoch }),
        }
    }

    /// Lane A and lane B.
    #[must_use]
    pub const fn lanes(&self) -> &[PairLane; 2] {
        &self.lanes
    }

    /// The service epoch.
    #[must_use]
    pub const fn service_epoch(&self) -> Digest {
        self.service_epoch
    }

    /// The pair's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::PAIR_RUNTIME.digest(&PairIdentity(self))
    }
}

struct PairIdentity<'a>(&'a PairBinding);

impl Canonical for PairIdentity<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("lanes", &self.0.lanes.each_ref().map(PairLane::digest))
                .field("service_epoch", &self.0.service_epoch);
        });
    }
}

impl Canonical for PairBinding {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("lanes", &self.lanes).field("service_epoch_digest", &self.service_epoch);
        });
    }
}

impl Decode for PairBinding {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        let member = fields.take("lanes")?;
        let lanes: Vec<PairLane> = member.decode()?;
        let count = lanes.len();
        let lanes = <[PairLane; 2]>::try_from(lanes).map_err(|_| {
            member.error(cacheon_identity::DecodeKind::invalid("a pair has two lanes", &count))
        })?;
        Self::new(lanes, fields.decode("service_epoch_digest")?)
    }
}
