//! Prompts from a seed: distinct pieces of plain English of an exact token length.

use crate::rng::Rng;
use crate::text;
use crate::tokenizer::{Tokenizer, TokenizerError};
use std::collections::BTreeSet;
use thiserror::Error;

/// Sentences drawn at a time: enough for some two hundred tokens.
const SENTENCES: usize = 14;
/// Paragraphs drawn for one prompt before giving up.
const ATTEMPTS: usize = 1000;

/// Why no prompts could be made.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PromptError {
    /// The tokeniser failed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// No text of that length was found.
    #[error(
        "no text of exactly {tokens} tokens could be made; 1 to 128 are possible with an ordinary vocabulary"
    )]
    Length {
        /// The length asked for.
        tokens: usize,
    },
}

/// A text and the ids it encodes to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prompt {
    /// The text; encoding it gives exactly `tokens`.
    pub text: String,
    /// Token ids, none of them special.
    pub tokens: Vec<u32>,
}

/// `count` prompts of exactly `tokens` tokens, no two equal: a function of the seed (and the vocabulary) alone.
///
/// # Errors
/// [`PromptError`]: a length the generator cannot reach.
pub fn prompts(
    tokenizer: &Tokenizer,
    seed: &[u8],
    count: usize,
    tokens: usize,
) -> Result<Vec<Prompt>, PromptError> {
    let mut rng = Rng::new("cacheon.prompts.v1", seed);
    let mut seen = BTreeSet::new();
    let mut made = Vec::with_capacity(count.min(4096));
    while made.len() < count {
        let prompt = draw(tokenizer, &mut rng, tokens, &seen)?;
        seen.insert(prompt.tokens.clone());
        made.push(prompt);
    }
    Ok(made)
}

fn draw(
    tokenizer: &Tokenizer,
    rng: &mut Rng,
    length: usize,
    seen: &BTreeSet<Vec<u32>>,
) -> Result<Prompt, PromptError> {
    for _ in 0..ATTEMPTS {
        let mut tokens = tokenizer.encode(&text::paragraph(rng, SENTENCES))?;
        if length == 0 || tokens.len() < length {
            continue;
        }
        tokens.truncate(length);
        let text = tokenizer.decode(&tokens)?;
        // Cutting inside a word can change how its remains are split; such a text would not say the same.
        let same = tokenizer.encode(&text)? == tokens;
        if same && !seen.contains(&tokens) && !tokens.iter().any(|t| tokenizer.is_special(*t)) {
            return Ok(Prompt { text, tokens });
        }
    }
    Err(PromptError::Length { tokens: length })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Gguf;
    use crate::synthetic::{Spec, generate};

    #[test]
    fn prompts_are_exact_distinct_and_repeatable() {
        let bytes = generate(&Spec::tiny(b"prompts"));
        let tokenizer = Tokenizer::from_gguf(&Gguf::parse(&bytes).unwrap()).unwrap();
        let made = prompts(&tokenizer, b"one", 200, 64).unwrap();
        assert_eq!(made, prompts(&tokenizer, b"one", 200, 64).unwrap());
        let distinct: BTreeSet<&Vec<u32>> = made.iter().map(|p| &p.tokens).collect();
        assert_eq!(distinct.len(), 200);
        for prompt in &made {
            assert_eq!(prompt.tokens.len(), 64);
            assert_eq!(tokenizer.encode(&prompt.text).unwrap(), prompt.tokens);
        }
        let other = prompts(&tokenizer, b"two", 200, 64).unwrap();
        assert!(other.iter().all(|p| !distinct.contains(&p.tokens)), "seeds share a prompt");
        assert_eq!(
            &prompts(&tokenizer, b"one", 3, 64).unwrap()[..],
            &made[..3],
            "a shorter list is a prefix"
        );
    }

    #[test]
    fn impossible_lengths_are_refused() {
        let bytes = generate(&Spec::tiny(b"prompts"));
        let tokenizer = Tokenizer::from_gguf(&Gguf::parse(&bytes).unwrap()).unwrap();
        for tokens in [0, 100_000] {
            assert_eq!(prompts(&tokenizer, b"", 1, tokens), Err(PromptError::Length { tokens }));
        }
        assert_eq!(prompts(&tokenizer, b"", 0, 64), Ok(Vec::new()));
    }
}
