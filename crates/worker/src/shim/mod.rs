//! The shim: holds the conversation with the controller, decides what an engine process may touch, watches it, and
//! reports. It runs no foreign code and parses what engine processes say as hostile bytes.

mod conformance;
mod generation;
mod publications;
mod serve;
mod trace;

use crate::arena::Table;
use crate::checks::Checks;
use crate::settings::Settings;
use crate::zygote::Zygote;
use cacheon_model::abi::{self, Slot};
use cacheon_model::gguf::Gguf;
use cacheon_model::llama::Config;
use cacheon_protocol::message::{ClosedGeneration, Facts, Limits, Publication, Reply, Request};
use cacheon_protocol::serve::{ServeError, Serving};
use cacheon_protocol::{Fault, FaultArm, FaultKind, Notes};
use generation::Generation;
use publications::Opened;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::time::Instant;

/// The model as the shim knows it.
pub(crate) struct ModelFacts {
    pub(crate) config: Config,
    pub(crate) gguf: Gguf<'static>,
    pub(crate) table: Table,
    pub(crate) max_context: usize,
    pub(crate) bytes: u64,
}

impl ModelFacts {
    /// Whether the embedding is the head.
    fn tied(&self) -> bool {
        self.gguf.tensor("output.weight").is_none()
    }
}

/// What the shim starts its conversation with.
pub(crate) struct Start {
    pub(crate) settings: Settings,
    pub(crate) checks: Checks,
    pub(crate) begun: Instant,
    /// The model and the zygote, or why there are none.
    pub(crate) ready: Result<(ModelFacts, Zygote), String>,
}

/// What a ready shim works with.
struct Shim {
    model: ModelFacts,
    zygote: Zygote,
    limits: Limits,
    publications: BTreeMap<u16, Opened>,
    /// Number of the last activation; 0 before the first.
    generation: u64,
    current: Option<Generation>,
    /// Receipts of generation `generation`, once it is over.
    closed: Option<ClosedGeneration>,
    /// Requests so far, for the guard schedules.
    requests: u64,
}

/// A request that was not served; `Box` keeps results small.
type Failed = Box<Fault>;

/// A fault of the shim's own or of the request.
fn fault(kind: FaultKind, generation: u64, detail: impl Into<String>) -> Failed {
    Box::new(Fault {
        arm: FaultArm::Shim,
        kind,
        generation,
        signal: 0,
        slot: String::new(),
        notes: Notes::default(),
        detail: detail.into(),
    })
}

/// Converses until the controller closes. The error is for a log; the socket has said all that counts.
pub(crate) fn converse<S: Read + Write>(stream: S, start: Start) -> Result<(), ServeError> {
    let mut serving = Serving::new(stream);
    let Start { settings, checks, begun, ready } = start;
    let (model, zygote) = match ready {
        Ok(ready) => ready,
        Err(why) => loop {
            let request = serving.next_request()?;
            if matches!(request, Request::Close) {
                return serving.answer(&Reply::Closed { closed: None });
            }
            serving.answer(&Reply::Fault(*fault(FaultKind::Model, 0, why.clone())))?;
        },
    };
    let warm_us = micros(begun);
    let (mut model, mut zygote) = (Some(model), Some(zygote));
    let mut shim: Option<Shim> = None;
    loop {
        let reply = match (serving.next_request()?, &mut shim) {
            (Request::Ready { launch, limits, publications }, None) => {
                match publications::open_all(&settings.publications, &publications) {
                    Ok(opened) => match (model.take(), zygote.take()) {
                        (Some(model), Some(zygote)) => {
                            let facts = facts(&model, &checks, warm_us);
                            shim = Some(Shim::new(model, zygote, limits, opened));
                            Reply::Readied { launch, facts }
                        }
                        _ => Reply::Fault(*fault(FaultKind::Internal, 0, "the model is in use")),
                    },
                    Err(error) => Reply::Fault(*fault(FaultKind::Load, 0, error.to_string())),
                }
            }
            (Request::Close, shim) => {
                let closed = shim.as_mut().and_then(Shim::close);
                return serving.answer(&Reply::Closed { closed });
            }
            (_, None) => Reply::Fault(*fault(FaultKind::Refused, 0, "the first request must be Ready")),
            (request, Some(shim)) => shim.answer(request),
        };
        serving.answer(&reply)?;
        if let Some(shim) = &mut shim {
            shim.look_around();
        }
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn facts(model: &ModelFacts, checks: &Checks, warm_us: u64) -> Facts {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let config = &model.config;
    Facts {
        vocabulary: number(config.vocabulary),
        context: number(model.max_context),
        layers: number(config.layers),
        width: number(config.width),
        heads: number(config.heads),
        kv_heads: number(config.kv_heads),
        feed_forward: number(config.feed_forward),
        model_bytes: model.bytes,
        abi: abi::ABI_VERSION.to_owned(),
        cpu_features: cpu_features(),
        checks: checks.held.clone(),
        failed_checks: checks.failed.clone(),
        warm_us,
    }
}

/// Features of this machine that kernels are built for, sorted.
fn cpu_features() -> Vec<String> {
    #[cfg(target_arch = "x86_64")]
    let found = [
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("bmi2", std::is_x86_feature_detected!("bmi2")),
        ("f16c", std::is_x86_feature_detected!("f16c")),
        ("fma", std::is_x86_feature_detected!("fma")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let found: [(&str, bool); 0] = [];
    found.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}

impl Shim {
    fn new(model: ModelFacts, zygote: Zygote, limits: Limits, publications: BTreeMap<u16, Opened>) -> Self {
        Self { model, zygote, limits, publications, generation: 0, current: None, closed: None, requests: 0 }
    }

    fn answer(&mut self, request: Request) -> Reply {
        self.requests += 1;
        let answer = match request {
            Request::Ready { .. } => Err(self.refuse("the conversation is already ready")),
            Request::Activate { generation, bindings } => self.activate(generation, bindings),
            Request::Generate { prompts, max_new_tokens } => self.generate(prompts, max_new_tokens),
            Request::Score { tokens, prompt_len } => self.score(tokens, prompt_len),
            Request::Trace { tokens, prompt_len, sites } => self.trace(tokens, prompt_len, &sites),
            Request::SlotCall(call) => self.slot_call(call),
            Request::Close => Ok(Reply::Closed { closed: self.close() }),
        };
        answer.unwrap_or_else(|fault| Reply::Fault(*fault))
    }

    /// The request cannot be served; the running generation is unharmed.
    fn refuse(&self, detail: impl Into<String>) -> Failed {
        let mut fault = fault(FaultKind::Refused, self.generation, detail);
        if let Some(current) = &self.current {
            fault.notes = current.notes();
        }
        fault
    }

    fn running(&mut self) -> Result<&mut Generation, Failed> {
        let refused = fault(FaultKind::Refused, self.generation, "no kernels are activated");
        self.current.as_mut().ok_or(refused)
    }

    /// Between requests: threads and signal state of the engine process, bytes beside its buffers.
    fn look_around(&mut self) {
        if let Some(current) = &mut self.current {
            current.look_around(&self.model.table);
        }
    }

    /// Ends the running generation and keeps its receipts.
    fn close(&mut self) -> Option<ClosedGeneration> {
        if let Some(current) = self.current.take() {
            self.closed = Some(current.close(&self.zygote));
        }
        self.closed.take()
    }

    fn vocabulary_fits(&self, tokens: &[u32]) -> Result<(), Failed> {
        let vocabulary = self.model.config.vocabulary;
        match tokens.iter().find(|token| **token as usize >= vocabulary) {
            Some(token) => {
                Err(self.refuse(format!("token {token} is outside the vocabulary of {vocabulary}")))
            }
            None => Ok(()),
        }
    }

    fn context_fits(&self, prompt: usize, new: usize) -> Result<(), Failed> {
        let limit = self.model.max_context;
        if prompt == 0 || prompt.saturating_add(new) > limit {
            let text = format!("{prompt} prompt tokens and {new} new ones do not fit a context of {limit}");
            return Err(self.refuse(text));
        }
        Ok(())
    }

    /// Slot calls of one trajectory: `schedule::trajectory(..).len()` without the list.
    fn planned_calls(&self, prompt: usize, new: usize) -> u64 {
        let layers = self.model.config.layers as u64;
        let pieces = prompt.div_ceil(abi::MAX_TOKENS) as u64;
        let steps = new.saturating_sub(1) as u64;
        pieces * 10 * layers + 2 + steps * (11 * layers + 2)
    }
}

/// The slot of a name.
fn slot_named(name: &str) -> Option<Slot> {
    Slot::parse(name)
}

/// One request's publications, in the protocol's words.
type Declared = [Publication];
