//! The rules of qualifications and pairs, as they stand in error messages.

/// Members of a qualification.
pub const MEMBERS: &str = "members are sorted, unique and not empty";
/// The lane of a qualification.
pub const LANE: &str = "the lane is `registered`, or `discovery` in retained records";
/// A proposal belongs to the discovery lane and to no other.
pub const PROPOSAL: &str = "the discovery lane names a proposal, the registered lane leaves it empty";
/// A discovery has no manifest.
pub const DISCOVERY_MANIFEST: &str = "the discovery lane has no candidate manifest";
/// Manifest against the arm it describes.
pub const MANIFEST: &str = "the manifest hashes to its stack digest and belongs to the arena";
/// The candidate's entry.
pub const CANDIDATE_ENTRY: &str = "the candidate manifest has the selected delta at the target";
/// A candidate changes the tree.
pub const TREE_UNCHANGED: &str = "the candidate tree differs from the incumbent's";
/// A candidate changes the stack.
pub const STACK_UNCHANGED: &str = "the candidate stack differs from the incumbent's";
/// Audit control against the audit policy.
pub const AUDIT_CONTROL: &str = "the audit control is that of the audit policy";
/// Speed-evidence policy version 3 is resident.
pub const ORIENTATION_REQUIRED: &str = "speed-evidence policy version 3 demands a lane orientation";
/// Orientation only with version 3, whose digest it repeats.
pub const ORIENTATION_POLICY: &str =
    "a lane orientation belongs to speed-evidence policy version 3 and repeats its digest";
/// The two lanes of an orientation.
pub const SAME_LANE: &str = "incumbent and candidate ran on different lanes";
/// Resident policy version of a lane control.
pub const CONTROL_VERSION: &str = "a lane control names resident policy version 1..=8";
/// Runtime policies of a lane control.
pub const CONTROL_POLICIES: &str = "a lane control names both sides' runtime policies, sorted";
