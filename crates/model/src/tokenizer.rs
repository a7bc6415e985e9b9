//! Text to token ids and back, from the vocabulary in the model file.

use crate::gguf::Gguf;
use std::collections::BTreeSet;
use thiserror::Error;
use tokenizers::decoders::byte_level::ByteLevel as ByteLevelDecoder;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, Tokenizer as Inner};

/// Most entries of a vocabulary.
const MAX_VOCABULARY: usize = 1 << 20;
/// Token type of specials in GGUF.
const SPECIAL: i32 = 3;

/// Why a model file gives no tokeniser.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TokenizerError {
    /// Another kind of tokeniser.
    #[error(
        "the model's tokeniser is {model:?} with pre-tokeniser {pre:?}; \"gpt2\" with \"smollm\" is supported"
    )]
    Kind {
        /// `tokenizer.ggml.model`
        model: String,
        /// `tokenizer.ggml.pre`
        pre: String,
    },
    /// A list that is absent, of the wrong type or too long.
    #[error("the model file has no usable {key}")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// An entry that is not UTF-8, empty, twice there, or no pair.
    #[error("entry {index} of {key} is malformed")]
    Entry {
        /// The key.
        key: &'static str,
        /// Its place.
        index: usize,
    },
    /// The tokeniser library refused.
    #[error("the tokeniser cannot be built or used: {reason}")]
    Library {
        /// Its words.
        reason: String,
    },
}

fn library(error: impl ToString) -> TokenizerError {
    TokenizerError::Library { reason: error.to_string() }
}

/// Byte-pair tokeniser: single digits, byte-level pieces without a prefix space, specials matched first.
#[derive(Debug)]
pub struct Tokenizer {
    inner: Inner,
    specials: BTreeSet<u32>,
    vocabulary: usize,
}

impl Tokenizer {
    /// Builds the tokeniser of a model file.
    ///
    /// # Errors
    /// [`TokenizerError`]: another kind, lists that are absent or malformed.
    pub fn from_gguf(gguf: &Gguf<'_>) -> Result<Self, TokenizerError> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        const MERGES: &str = "tokenizer.ggml.merges";
        const TYPES: &str = "tokenizer.ggml.token_type";
        let text = |key| gguf.text(key).unwrap_or_default().to_owned();
        let (model, pre) = (text("tokenizer.ggml.model"), text("tokenizer.ggml.pre"));
        if model != "gpt2" || pre != "smollm" {
            return Err(TokenizerError::Kind { model, pre });
        }
        let list = |key| {
            let array = gguf.array(key).filter(|array| array.len() <= MAX_VOCABULARY);
            array.ok_or(TokenizerError::Missing { key })
        };
        let strings = |key| {
            let entries = list(key)?.strings().ok_or(TokenizerError::Missing { key })?;
            let checked = entries.enumerate().map(move |(index, bytes)| {
                let text = std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty());
                text.ok_or(TokenizerError::Entry { key, index })
            });
            checked.collect::<Result<Vec<&str>, _>>()
        };
        let tokens = strings(TOKENS)?;
        let types: Vec<i32> = list(TYPES)?.i32s().ok_or(TokenizerError::Missing { key: TYPES })?.collect();
        if types.len() != tokens.len() {
            return Err(TokenizerError::Missing { key: TYPES });
        }
        let mut vocabulary = Vocab::default();
        for (index, token) in tokens.iter().enumerate() {
            if vocabulary.insert((*token).to_owned(), index as u32).is_some() {
                return Err(TokenizerError::Entry { key: TOKENS, index });
            }
        }
        let merges = strings(MERGES)?.into_iter().enumerate().map(|(index, merge)| {
            let pair =
                merge.split_once(' ').filter(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains(' '));
            let (a, b) = pair.ok_or(TokenizerError::Entry { key: MERGES, index })?;
            Ok((a.to_owned(), b.to_owned()))
        });
        let merges = merges.collect::<Result<Vec<_>, TokenizerError>>()?;
        let bpe = BPE::builder().vocab_and_merges(vocabulary, merges).build().map_err(library)?;

        let mut inner = Inner::new(bpe);
        inner.with_pre_tokenizer(Some(PreTokenizerWrapper::Sequence(Sequence::new(vec![
            PreTokenizerWrapper::Digits(Digits::new(true)),
            PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true)),
        ]))));
        inner.with_decoder(Some(ByteLevelDecoder::new(false, true, true)));
        let special = types.iter().enumerate().filter(|(_, kind)| **kind == SPECIAL);
        let specials: BTreeSet<u32> = special.map(|(index, _)| index as u32).collect();
        let added: Vec<AddedToken> =
            specials.iter().map(|id| AddedToken::from(tokens[*id as usize], true)).collect();
        inner.add_special_tokens(&added);
        Ok(Self { inner, specials, vocabulary: tokens.len() })
    }

    /// The token ids of a text. Specials written out in it become their ids.
    ///
    /// # Errors
    /// [`TokenizerError::Library`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self.inner.encode_fast(text, false).map_err(library)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of token ids, specials included. Pieces of characters become U+FFFD.
    ///
    /// # Errors
    /// [`TokenizerError::Library`].
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        self.inner.decode(tokens, false).map_err(library)
    }

    /// Whether a token stands for structure, not text.
    #[must_use]
    pub fn is_special(&self, token: u32) -> bool {
        self.specials.contains(&token)
    }

    /// Tokens known.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Spec, generate};
    use proptest::prelude::*;
    use std::sync::LazyLock;

    static TINY: LazyLock<Tokenizer> = LazyLock::new(|| {
        let bytes = generate(&Spec::tiny(b"tokenizer"));
        Tokenizer::from_gguf(&Gguf::parse(&bytes).unwrap()).unwrap()
    });

    #[test]
    fn digits_stand_alone_and_specials_are_found() {
        let ids = TINY.encode("1921<|im_end|>x").unwrap();
        assert_eq!(ids.len(), 6);
        assert_eq!(ids[4], 2);
        assert!(TINY.is_special(2) && !TINY.is_special(17));
        assert_eq!(TINY.decode(&ids).unwrap(), "1921<|im_end|>x");
        assert_eq!(TINY.vocabulary(), 512);
        let merged = TINY.encode(" the").unwrap();
        assert_eq!(merged.len(), 1, "a frequent word is one token: {merged:?}");
    }

    proptest! {
        #[test]
        fn any_text_survives(text in "\\PC{0,60}") {
            let ids = TINY.encode(&text).unwrap();
            prop_assert_eq!(TINY.decode(&ids).unwrap(), text);
        }
    }

    #[test]
    fn other_tokenisers_are_refused() {
        let good = generate(&Spec::tiny(b"tokenizer"));
        let swap = |from: &[u8], to: &[u8]| {
            assert_eq!(from.len(), to.len());
            let at = good.windows(from.len()).position(|w| w == from).unwrap();
            let mut bytes = good.clone();
            bytes[at..at + to.len()].copy_from_slice(to);
            Tokenizer::from_gguf(&Gguf::parse(&bytes).unwrap()).map(|_| ())
        };
        assert!(matches!(swap(b"smollm", b"llama3"), Err(TokenizerError::Kind { .. })));
        assert!(matches!(
            swap(b"tokenizer.ggml.merges", b"tokenizer.ggml.mergez"),
            Err(TokenizerError::Missing { .. })
        ));
        assert!(matches!(swap(b"<repo_name>", b"<|im_start|"), Ok(())));
        let twice = swap(b"<|im_start|>", b"<issue_start").and(swap(b"<issue_closed>", b"<jupyter_text>"));
        assert!(matches!(twice, Err(TokenizerError::Entry { .. })), "{twice:?}");
    }
}
