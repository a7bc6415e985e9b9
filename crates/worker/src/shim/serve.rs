//! Generation and scoring.

use super::generation::Trouble;
use super::{Failed, Shim};
use crate::words::{Order, Word};
use cacheon_protocol::message::{Reply, SERVED_CALLS};

impl Shim {
    /// Sends an order to the running process and hears its answer, with guards drawn for `calls` slot calls.
    pub(super) fn serve(&mut self, order: &Order, calls: u64, most: usize) -> Result<Word, Failed> {
        let (limits, generation, request) = (self.limits, self.generation, self.requests);
        let current = self.running()?;
        let process = &mut current.process;
        process.schedule.draw(limits.guard_seed, generation, request, limits.guard_period, calls);
        let before = process.control.read().calls;
        let pace = process.allow(&limits, SERVED_CALLS);
        let heard =
            process.end.send(order).map_err(Trouble::from).and_then(|()| process.hear(pace, most)).and_then(
                |word| {
                    let made = process.control.read().calls.wrapping_sub(before);
                    if process.end.unasked() {
                        Err(Trouble::Wrong("the engine process said more than was asked".to_owned()))
                    } else if made != calls {
                        Err(Trouble::Wrong(format!("{made} slot calls counted, {calls} planned")))
                    } else {
                        Ok(word)
                    }
                },
            );
        heard.map_err(|trouble| self.fail(trouble))
    }

    pub(super) fn generate(&mut self, prompts: Vec<Vec<u32>>, new: u32) -> Result<Reply, Failed> {
        self.running()?;
        let mut calls = 0;
        for prompt in &prompts {
            self.context_fits(prompt.len(), new as usize)?;
            self.vocabulary_fits(prompt)?;
            calls += self.planned_calls(prompt.len(), new as usize);
        }
        let lengths: Vec<u32> = prompts.iter().map(|prompt| prompt.len() as u32).collect();
        let most = 16 + prompts.len() * (8 + 4 * new as usize);
        let word = self.serve(&Order::Generate { prompts, new }, calls, most)?;
        let vocabulary = self.model.config.vocabulary;
        match word {
            Word::Generated { observed, tokens }
                if observed.len() == lengths.len()
                    && tokens.iter().all(|tokens| {
                        tokens.len() == new as usize && tokens.iter().all(|t| (*t as usize) < vocabulary)
                    }) =>
            {
                let notes = self.running()?.notes();
                Ok(Reply::Generated { observed, tokens, notes })
            }
            other => Err(self.fail(Trouble::Wrong(format!("no answer to Generate: {}", short(&other))))),
        }
    }

    pub(super) fn score(&mut self, tokens: Vec<u32>, prompt: u32) -> Result<Reply, Failed> {
        self.running()?;
        let new = self.forced(&tokens, prompt)?;
        let calls = self.planned_calls(prompt as usize, new);
        let word = self.serve(&Order::Replay { tokens, prompt, watched: false }, calls, 16 + 4 * new)?;
        match word {
            Word::Scored(logprobs) if fit_to_send(&logprobs, new) => {
                let notes = self.running()?.notes();
                Ok(Reply::Scored { logprobs, notes })
            }
            other => Err(self.fail(Trouble::Wrong(format!("no answer to Score: {}", short(&other))))),
        }
    }

    /// Tokens after the prompt of a sequence that is to be fed through.
    pub(super) fn forced(&self, tokens: &[u32], prompt: u32) -> Result<usize, Failed> {
        self.context_fits(tokens.len(), 0)?;
        self.vocabulary_fits(tokens)?;
        match tokens.len().checked_sub(prompt as usize) {
            Some(new) if new > 0 && prompt > 0 => Ok(new),
            _ => Err(self.refuse("nothing follows the prompt")),
        }
    }
}

/// Whether the protocol can carry these scores.
fn fit_to_send(scores: &[f32], expected: usize) -> bool {
    scores.len() == expected && scores.iter().all(|score| (-1e6..=1e-4).contains(score))
}

/// The start of what was said instead.
fn short(word: &Word) -> String {
    let mut text = match word {
        Word::Refused(text) => text.clone(),
        Word::Generated { .. } => "tokens that no answer can hold".to_owned(),
        Word::Scored(_) => "scores that are no log-probabilities".to_owned(),
        other => format!("{other:?}"),
    };
    text.truncate(text.char_indices().nth(200).map_or(text.len(), |(at, _)| at));
    text
}
