//! The state of an arena's stack, before and after a transition (spec 20 §9).

use crate::domains;
use crate::qualification::ArmIdentity;
use cacheon_identity::{Canonical, CanonicalWriter, Digest};
use cacheon_stack::ids::{ArenaDigest, StackDigest, TreeDigest};

cacheon_identity::record! {
    /// Which stack an arena holds, and by which event it came.
    #[derive(Copy)]
    pub struct StackState {
        /// The arena.
        pub arena_digest: ArenaDigest,
        /// Transitions so far.
        pub generation: u64,
        /// The stack.
        pub stack_digest: StackDigest,
        /// Digest of the event that made it so, or of the genesis.
        pub transition_event_id: Digest,
        /// Its tree.
        pub tree_digest: TreeDigest,
    }
}

struct Genesis(ArenaDigest, ArmIdentity);

impl Canonical for Genesis {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("arena_digest", &self.0)
                .field("stack_digest", &self.1.stack)
                .field("tree_digest", &self.1.tree);
        });
    }
}

impl StackState {
    /// The state of a stack that nothing has changed yet: generation 0.
    #[must_use]
    pub fn genesis(arena: ArenaDigest, arm: ArmIdentity) -> Self {
        Self {
            arena_digest: arena,
            generation: 0,
            stack_digest: arm.stack,
            transition_event_id: domains::STACK_GENESIS.digest(&Genesis(arena, arm)),
            tree_digest: arm.tree,
        }
    }

    /// The state a transition leaves: one generation on. `None` when generations are exhausted.
    #[must_use]
    pub fn advance(&self, after: ArmIdentity, last_event: crate::ids::EventDigest) -> Option<Self> {
        Some(Self {
            arena_digest: self.arena_digest,
            generation: self.generation.checked_add(1)?,
            stack_digest: after.stack,
            transition_event_id: last_event.digest(),
            tree_digest: after.tree,
        })
    }

    /// Stack and tree.
    #[must_use]
    pub const fn arm(&self) -> ArmIdentity {
        ArmIdentity { stack: self.stack_digest, tree: self.tree_digest }
    }

    /// The state's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::STACK_STATE.digest(self)
    }
}
