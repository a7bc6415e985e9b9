//! Prompts of an attempt: a pure function of its secret, drawn after the candidate's bytes were fixed.

use cacheon_identity::digest::Hasher;
use cacheon_model::prompts::{Prompt, PromptError, prompts};
use cacheon_model::tokenizer::Tokenizer;

/// How prompts are drawn; part of the arena's workload identity.
pub const SEED_SCHEME: &str = "cacheon.rs.prompts-from-secret.v1";

/// `batches` batches of one prompt each, all distinct, each of exactly `tokens` tokens.
///
/// # Errors
/// A length that the vocabulary cannot make.
pub fn draw(
    tokenizer: &Tokenizer,
    secret: &[u8],
    batches: usize,
    tokens: usize,
) -> Result<Vec<Prompt>, PromptError> {
    let mut hasher = Hasher::new();
    hasher.update(SEED_SCHEME.as_bytes());
    hasher.update(b"\0");
    hasher.update(secret);
    prompts(tokenizer, hasher.finish().as_bytes(), batches, tokens)
}
