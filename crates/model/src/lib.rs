//! The model as data: bounded GGUF reading, exact dequantising, tokeniser, an f64 reference of the forward pass, and
//! the vocabulary of the CPU engine's C ABI. Nothing here loads or runs foreign code.
//!
//! | Module | Holds |
//! |---|---|
//! | [`gguf`] | the container format, from hostile bytes |
//! | [`quant`] | Q4_1, Q8_0 and F32 blocks |
//! | [`llama`] | the architecture: hyperparameters and bound tensors |
//! | [`mod@reference`] | binary64 references: whole model and slot by slot |
//! | [`schedule`] | the slot calls of a trajectory, in order |
//! | [`synthetic`] | small models of the same architecture from a seed |
//! | [`abi`] | slots, domains, the index of a prebuilt publication, compiler flags |
//! | `tokenizer`, `prompts` | text to ids and back, prompts from a seed (feature `tokenizer`) |
//! | `fetch` | the pinned model package (feature `fetch`) |

pub mod abi;
#[cfg(feature = "fetch")]
pub mod fetch;
pub mod gguf;
pub mod llama;
#[cfg(feature = "tokenizer")]
pub mod prompts;
pub mod quant;
pub mod reference;
mod rng;
pub mod schedule;
pub mod synthetic;
mod text;
#[cfg(feature = "tokenizer")]
pub mod tokenizer;
#[cfg(feature = "fetch")]
mod wheel;
