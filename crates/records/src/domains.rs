//! Every digest domain of this crate's records, with the members of its payload (spec 20 §1.3 and its data file).

use crate::audit::{AuditControl, AuditPolicy};
use cacheon_identity::Domain;

/// [`AuditControl`].
pub const SLOT_AUDIT_CONTROL: Domain =
    Domain::with_members("cacheon.eval.slot-audit-control.v1", AuditControl::MEMBERS);
/// [`AuditPolicy`].
pub const SLOT_AUDIT_POLICY: Domain =
    Domain::with_members("cacheon.eval.slot-audit-policy.v1", AuditPolicy::MEMBERS);

/// All of them, for readers that list or check domains.
pub const ALL: &[Domain] = &[SLOT_AUDIT_CONTROL, SLOT_AUDIT_POLICY];
