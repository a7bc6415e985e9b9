//! The evaluation stack of each arena: initialised once, advanced by compare-and-set (spec 20 §9, spec 30 §5.6).

use crate::error::{LedgerError, Refused, Result};
use crate::row::signed;
use crate::store::Tx;
use cacheon_identity::{Canonical, Decode, Digest, Json};
use cacheon_settlement::StackState;
use cacheon_settlement::qualification::ArmIdentity;
use cacheon_stack::EvaluationStack;
use cacheon_stack::ids::{ArenaDigest, StackDigest, TreeDigest};
use rusqlite::{OptionalExtension, params};

/// An arena's stack: its state and its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredStack {
    /// Generation, stack, tree and the event that brought them.
    pub state: StackState,
    /// The manifest that hashes to the stack.
    pub manifest: EvaluationStack,
}

/// Sets an arena's first stack at generation 0. The same manifest and tree again return the stored state.
pub(crate) fn initialize(tx: &Tx<'_>, manifest: &EvaluationStack, tree: TreeDigest) -> Result<StackState> {
    let arm = ArmIdentity { stack: manifest.digest(), tree };
    let genesis = StackState::genesis(manifest.arena, arm);
    if let Some(stored) = load(tx, manifest.arena)? {
        return match stored.state == genesis {
            true => Ok(stored.state),
            false => Err(Refused::guard(manifest.arena, "already has another stack").into()),
        };
    }
    tx.conn.execute(
        "INSERT INTO evaluation_stacks(arena_id,generation,stack_digest,tree_digest,stack_json,transition_event_id)
         VALUES(?1,0,?2,?3,?4,?5)",
        params![
            manifest.arena.to_string(),
            genesis.stack_digest.to_string(),
            tree.to_string(),
            manifest.to_ascii(),
            genesis.transition_event_id.to_string()
        ],
    )?;
    Ok(genesis)
}

/// An arena's stack, with its manifest re-hashed.
pub(crate) fn load(tx: &Tx<'_>, arena: ArenaDigest) -> Result<Option<StoredStack>> {
    type Columns = (i64, String, String, String, String);
    let row: Option<Columns> = tx
        .conn
        .prepare_cached(
            "SELECT generation,stack_digest,tree_digest,stack_json,transition_event_id FROM evaluation_stacks
              WHERE arena_id=?1",
        )?
        .query_row([arena.to_string()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })
        .optional()?;
    let Some((generation, stack, tree, json, event)) = row else { return Ok(None) };
    let corrupt = |why: String| LedgerError::corrupt("evaluation_stacks", arena, why);
    let json = Json::parse(json.as_bytes()).map_err(|error| corrupt(error.to_string()))?;
    let manifest = EvaluationStack::decode(&json).map_err(|error| corrupt(error.to_string()))?;
    let state = StackState {
        arena_digest: arena,
        generation: generation.max(0).cast_unsigned(),
        stack_digest: StackDigest::parse(&stack).map_err(|error| corrupt(error.to_string()))?,
        transition_event_id: Digest::parse(&event).map_err(|error| corrupt(error.to_string()))?,
        tree_digest: TreeDigest::parse(&tree).map_err(|error| corrupt(error.to_string()))?,
    };
    match manifest.arena == arena && manifest.digest() == state.stack_digest {
        true => Ok(Some(StoredStack { state, manifest })),
        false => Err(corrupt("the manifest does not hash to the stack".to_owned())),
    }
}

/// Advances an arena's stack if it still is `before`.
pub(crate) fn advance(
    tx: &Tx<'_>,
    before: &StackState,
    after: &StackState,
    manifest: &EvaluationStack,
) -> Result<()> {
    let changed = tx.conn.execute(
        "UPDATE evaluation_stacks SET generation=?5, stack_digest=?6, tree_digest=?7, stack_json=?8,
                transition_event_id=?9
          WHERE arena_id=?1 AND generation=?2 AND stack_digest=?3 AND tree_digest=?4",
        params![
            before.arena_digest.to_string(),
            signed(before.generation),
            before.stack_digest.to_string(),
            before.tree_digest.to_string(),
            signed(after.generation),
            after.stack_digest.to_string(),
            after.tree_digest.to_string(),
            manifest.to_ascii(),
            after.transition_event_id.to_string()
        ],
    )?;
    match changed {
        1 => Ok(()),
        _ => Err(Refused::guard(before.arena_digest, "its stack moved; settle again").into()),
    }
}
