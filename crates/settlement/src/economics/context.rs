//! The moment of a projection: block, chain and who is registered (spec 20 §10).

use crate::claim::Hotkey;
use crate::domains;
use cacheon_identity::canonical::ObjectWriter;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Fields, Json};
use std::collections::BTreeSet;

cacheon_records::text_type! {
    /// A block hash: `0x` and 64 lowercase hexadecimal digits.
    pub struct BlockHash: "a block hash is 0x and 64 lowercase hexadecimal digits",
        |text| text.strip_prefix("0x").is_some_and(|hex| Digest::parse(hex).is_ok());
}

cacheon_identity::record! {
    /// One registered neuron. Ordered by uid, then hotkey, by [`GlobalContext`].
    pub struct MetagraphMember {
        /// Hotkey.
        pub hotkey: Hotkey,
        /// Slot on the subnet.
        pub uid: u64,
    }
}

/// Why a context was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// The chain scope is the zero digest.
    #[error("the chain scope is the zero digest")]
    ZeroScope,
    /// Nobody is registered.
    #[error("the metagraph is empty")]
    Empty,
    /// A uid or hotkey stands twice.
    #[error("`{0}` stands twice in the metagraph")]
    Duplicate(String),
    /// The validator is not registered.
    #[error("validator `{0}` is not in the metagraph")]
    ValidatorAbsent(Hotkey),
}

/// The moment of a projection over every arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalContext {
    chain_scope: Digest,
    block: u64,
    block_hash: BlockHash,
    metagraph: Digest,
    members: Vec<MetagraphMember>,
    validator: Hotkey,
}

struct Metagraph<'a>(&'a GlobalContext);

impl Canonical for Metagraph<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let it = self.0;
        w.object(|o| {
            o.field("block", &it.block)
                .field("block_hash", &it.block_hash)
                .field("chain_scope_digest", &it.chain_scope)
                .field("members", &it.members);
        });
    }
}

impl GlobalContext {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "chain_scope_digest",
        "current_block",
        "current_block_hash",
        "metagraph_digest",
        "metagraph_members",
        "validator_hotkey",
    ];

    /// A context; members are sorted by uid and hotkey.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn new(
        chain_scope: Digest,
        block: u64,
        block_hash: BlockHash,
        mut members: Vec<MetagraphMember>,
        validator: Hotkey,
    ) -> Result<Self, ContextError> {
        if chain_scope.is_zero() {
            return Err(ContextError::ZeroScope);
        }
        if members.is_empty() {
            return Err(ContextError::Empty);
        }
        members.sort_by(|a, b| (a.uid, &a.hotkey).cmp(&(b.uid, &b.hotkey)));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].uid == pair[1].uid) {
            return Err(ContextError::Duplicate(format!("uid {}", pair[0].uid)));
        }
        let mut seen = BTreeSet::new();
        if let Some(twin) = members.iter().find(|member| !seen.insert(&member.hotkey)) {
            return Err(ContextError::Duplicate(twin.hotkey.to_string()));
        }
        if !seen.contains(&validator) {
            return Err(ContextError::ValidatorAbsent(validator));
        }
        let mut context =
            Self { chain_scope, block, block_hash, metagraph: Digest::ZERO, members, validator };
        context.metagraph = domains::METAGRAPH.digest(&Metagraph(&context));
        Ok(context)
    }

    /// The chain.
    #[must_use]
    pub const fn chain_scope(&self) -> Digest {
        self.chain_scope
    }

    /// The block.
    #[must_use]
    pub const fn block(&self) -> u64 {
        self.block
    }

    /// The block's hash.
    #[must_use]
    pub const fn block_hash(&self) -> &BlockHash {
        &self.block_hash
    }

    /// Who is registered, by uid.
    #[must_use]
    pub fn members(&self) -> &[MetagraphMember] {
        &self.members
    }

    /// Digest of who is registered at this block.
    #[must_use]
    pub const fn metagraph_digest(&self) -> Digest {
        self.metagraph
    }

    /// The validator, who is registered.
    #[must_use]
    pub const fn validator(&self) -> &Hotkey {
        &self.validator
    }

    /// The context's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::GLOBAL_CONTEXT.digest(self)
    }

    fn members_before_generation(&self, o: &mut ObjectWriter<'_, '_>) {
        o.field("chain_scope_digest", &self.chain_scope)
            .field("current_block", &self.block)
            .field("current_block_hash", &self.block_hash)
            .field("metagraph_digest", &self.metagraph)
            .field("metagraph_members", &self.members);
    }

    /// This moment as the context of a single-arena projection.
    #[must_use]
    pub const fn of_arena(&self, stack_generation: u64) -> ArenaContext<'_> {
        ArenaContext { context: self, stack_generation }
    }
}

/// The moment of a projection over one arena: the global one and the stack's generation.
#[derive(Debug, Clone, Copy)]
pub struct ArenaContext<'a> {
    context: &'a GlobalContext,
    stack_generation: u64,
}

impl ArenaContext<'_> {
    /// The context's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::PROJECTION_CONTEXT.digest(self)
    }
}

impl Canonical for ArenaContext<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            self.context.members_before_generation(o);
            o.field("stack_generation", &self.stack_generation)
                .field("validator_hotkey", &self.context.validator);
        });
    }
}

impl Canonical for GlobalContext {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            self.members_before_generation(o);
            o.field("validator_hotkey", &self.validator);
        });
    }
}

impl Decode for GlobalContext {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        let claimed = fields.take("metagraph_digest")?;
        let digest = claimed.digest()?;
        let context = Self::new(
            fields.decode("chain_scope_digest")?,
            fields.decode("current_block")?,
            fields.decode("current_block_hash")?,
            fields.decode("metagraph_members")?,
            fields.decode("validator_hotkey")?,
        )
        .map_err(|error| DecodeError::invalid("not a projection context", &error))?;
        if context.metagraph != digest {
            return Err(
                claimed.error(DecodeKind::invalid("not the digest of the metagraph members", &digest))
            );
        }
        Ok(context)
    }
}
