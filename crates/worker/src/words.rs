//! What the shim and an engine process say to each other, and its bytes.

use cacheon_protocol::codec::{DecodeError, Reader, Writer};

/// Longest order, in bytes: the largest request with room to spare.
pub(crate) const ORDER_MAX: usize = 160 << 20;

/// Who may map what: the pieces of one publication an engine process needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// Path of the shared object.
    pub(crate) path: String,
    /// Bytes of its `index.json`.
    pub(crate) index: Vec<u8>,
}

/// What a process for one slot serves. Numbers are those of the request; the shim has checked them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SlotJob {
    pub(crate) object: Object,
    pub(crate) slot: u8,
    pub(crate) variant: String,
    pub(crate) dims: Vec<u32>,
    pub(crate) scalars: Vec<f32>,
    /// Shape of the weight where it has one: rows, columns, type code.
    pub(crate) matrix: [u32; 3],
    /// Weight bytes, empty where they come from the model.
    pub(crate) weight: Vec<u8>,
    /// Name of the model tensor, empty where the bytes are given or none are needed.
    pub(crate) tensor: String,
    pub(crate) prepare_bytes: u64,
}

/// What an engine process is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// Load these and prepare the whole model: stock, and for each slot (by index) what serves it.
    Load { stock: Object, bound: Vec<(u8, Option<Object>)>, prepare_bytes: u64 },
    /// Load one op and prepare one weight.
    LoadSlot(Box<SlotJob>),
    /// Generate.
    Generate { prompts: Vec<Vec<u32>>, new: u32 },
    /// Feed a sequence through; `watched` makes it wait for leave around every slot call.
    Replay { tokens: Vec<u32>, prompt: u32, watched: bool },
    /// Call the slot once.
    Call,
    /// Leave to go on.
    Go,
}

/// Why a load or a preparation failed, by the engine's own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FailedAt {
    /// An object or a symbol of stock.
    Stock = 1,
    /// An object or a symbol of another publication.
    Bound = 2,
    /// More arena than the budget allows, or than was offered.
    Budget = 3,
    /// Anything else while preparing.
    Prepare = 4,
    /// The process could not be set up.
    Setup = 5,
}

/// What an engine process says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    /// Set up; nothing foreign is mapped yet.
    Hello,
    /// Every object is mapped.
    Loaded,
    /// Every weight is prepared; arena bytes kept.
    Prepared { bytes: u64 },
    /// The last filter is installed.
    Running,
    /// It will not get there.
    Failed { at: FailedAt, slot: u8, text: String },
    /// Tokens of every prompt, and how many prompt tokens each had.
    Generated { observed: Vec<u32>, tokens: Vec<Vec<u32>> },
    /// Log-probabilities.
    Scored(Vec<f32>),
    /// About to make a call: its number in the trajectory, whether the bound publication serves it, by which op.
    Begin { index: u64, bound: bool, op: u16 },
    /// The call has returned; whether it had changed the control words.
    End { control_changed: bool },
    /// The request cannot be served.
    Refused(String),
}

fn object(w: &mut Writer, object: &Object) {
    w.blob(object.path.as_bytes()).blob(&object.index);
}

fn read_text(r: &mut Reader<'_>, what: &'static str, most: u32) -> Result<String, DecodeError> {
    String::from_utf8(r.blob(what, most)?).map_err(|_| DecodeError::NotCanonical(what))
}

fn read_object(r: &mut Reader<'_>) -> Result<Object, DecodeError> {
    Ok(Object { path: read_text(r, "object path", 4096)?, index: r.blob("kernel index", INDEX_MAX)? })
}

fn numbers(w: &mut Writer, numbers: &[u32]) {
    w.count(numbers.len());
    for number in numbers {
        w.u32(*number);
    }
}

fn read_numbers(r: &mut Reader<'_>, what: &'static str, most: u32) -> Result<Vec<u32>, DecodeError> {
    let count = r.count(what, most, 4)?;
    (0..count).map(|_| r.u32(what)).collect()
}

fn flag(r: &mut Reader<'_>, what: &'static str) -> Result<bool, DecodeError> {
    match r.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::NotCanonical(what)),
    }
}

/// Largest `index.json`.
pub(crate) const INDEX_MAX: u32 = 1 << 20;
/// Longest text in a word, in bytes.
const TEXT_MAX: usize = 400;

impl Order {
    /// The body.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Self::Load { stock, bound, prepare_bytes } => {
                w.u8(1).u64(*prepare_bytes);
                object(&mut w, stock);
                w.count(bound.len());
                for (slot, served) in bound {
                    w.u8(*slot).u8(u8::from(served.is_some()));
                    if let Some(served) = served {
                        object(&mut w, served);
                    }
                }
            }
            Self::LoadSlot(job) => {
                w.u8(2);
                object(&mut w, &job.object);
                w.u8(job.slot).blob(job.variant.as_bytes());
                numbers(&mut w, &job.dims);
                w.count(job.scalars.len());
                for scalar in &job.scalars {
                    w.f32(*scalar);
                }
                for number in job.matrix {
                    w.u32(number);
                }
                w.blob(&job.weight).blob(job.tensor.as_bytes()).u64(job.prepare_bytes);
            }
            Self::Generate { prompts, new } => {
                w.u8(3).u32(*new).count(prompts.len());
                for prompt in prompts {
                    w.tokens(prompt);
                }
            }
            Self::Replay { tokens, prompt, watched } => {
                w.u8(4).u32(*prompt).u8(u8::from(*watched)).tokens(tokens);
            }
            Self::Call => {
                w.u8(5);
            }
            Self::Go => {
                w.u8(6);
            }
        }
        w.finish()
    }

    /// Parses a body.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let order = match r.u8("order")? {
            1 => {
                let prepare_bytes = r.u64("prepare budget")?;
                let stock = read_object(&mut r)?;
                let count = r.count("bound slots", 64, 2)?;
                let bound = (0..count)
                    .map(|_| {
                        let slot = r.u8("slot")?;
                        let served = flag(&mut r, "bound")?.then(|| read_object(&mut r)).transpose()?;
                        Ok((slot, served))
                    })
                    .collect::<Result<_, DecodeError>>()?;
                Self::Load { stock, bound, prepare_bytes }
            }
            2 => {
                let object = read_object(&mut r)?;
                let slot = r.u8("slot")?;
                let variant = read_text(&mut r, "variant", 256)?;
                let dims = read_numbers(&mut r, "dimensions", 16)?;
                let count = r.count("scalars", 16, 4)?;
                let scalars = (0..count).map(|_| r.f32("scalar")).collect::<Result<_, _>>()?;
                let matrix = [r.u32("rows")?, r.u32("columns")?, r.u32("type")?];
                let weight = r.blob("weight", ORDER_MAX as u32)?;
                let tensor = read_text(&mut r, "tensor", 256)?;
                let prepare_bytes = r.u64("prepare budget")?;
                let job =
                    SlotJob { object, slot, variant, dims, scalars, matrix, weight, tensor, prepare_bytes };
                Self::LoadSlot(Box::new(job))
            }
            3 => {
                let new = r.u32("new tokens")?;
                let count = r.count("prompts", 4096, 4)?;
                let prompts = (0..count).map(|_| r.tokens("prompt", u32::MAX)).collect::<Result<_, _>>()?;
                Self::Generate { prompts, new }
            }
            4 => {
                let prompt = r.u32("prompt length")?;
                let watched = flag(&mut r, "watched")?;
                Self::Replay { tokens: r.tokens("sequence", u32::MAX)?, prompt, watched }
            }
            5 => Self::Call,
            6 => Self::Go,
            other => return Err(DecodeError::Unknown { what: "order", value: u64::from(other) }),
        };
        r.finish()?;
        Ok(order)
    }
}

impl Word {
    /// The body.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Self::Hello => {
                w.u8(1);
            }
            Self::Loaded => {
                w.u8(2);
            }
            Self::Prepared { bytes } => {
                w.u8(3).u64(*bytes);
            }
            Self::Running => {
                w.u8(4);
            }
            Self::Failed { at, slot, text } => {
                w.u8(5).u8(*at as u8).u8(*slot).blob(shortened(text));
            }
            Self::Generated { observed, tokens } => {
                w.u8(6).count(tokens.len());
                for (observed, tokens) in observed.iter().zip(tokens) {
                    w.u32(*observed).tokens(tokens);
                }
            }
            Self::Scored(scores) => {
                w.u8(7).count(scores.len());
                for score in scores {
                    w.f32(*score);
                }
            }
            Self::Begin { index, bound, op } => {
                w.u8(8).u64(*index).u8(u8::from(*bound)).u16(*op);
            }
            Self::End { control_changed } => {
                w.u8(9).u8(u8::from(*control_changed));
            }
            Self::Refused(text) => {
                w.u8(10).blob(shortened(text));
            }
        }
        w.finish()
    }

    /// Parses a body; hostile bytes.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let word = match r.u8("word")? {
            1 => Self::Hello,
            2 => Self::Loaded,
            3 => Self::Prepared { bytes: r.u64("arena bytes")? },
            4 => Self::Running,
            5 => {
                let code = r.u8("failure")?;
                let at =
                    [FailedAt::Stock, FailedAt::Bound, FailedAt::Budget, FailedAt::Prepare, FailedAt::Setup]
                        .into_iter()
                        .find(|at| *at as u8 == code)
                        .ok_or(DecodeError::Unknown { what: "failure", value: u64::from(code) })?;
                let slot = r.u8("slot")?;
                Self::Failed { at, slot, text: read_text(&mut r, "text", TEXT_MAX as u32)? }
            }
            6 => {
                let count = r.count("prompts", 4096, 8)?;
                let (mut observed, mut tokens) = (Vec::with_capacity(count), Vec::with_capacity(count));
                for _ in 0..count {
                    observed.push(r.u32("observed prompt tokens")?);
                    tokens.push(r.tokens("generated tokens", u32::MAX)?);
                }
                Self::Generated { observed, tokens }
            }
            7 => {
                let count = r.count("scores", u32::MAX, 4)?;
                Self::Scored((0..count).map(|_| r.f32("score")).collect::<Result<_, _>>()?)
            }
            8 => Self::Begin {
                index: r.u64("call number")?,
                bound: flag(&mut r, "served by")?,
                op: r.u16("op")?,
            },
            9 => Self::End { control_changed: flag(&mut r, "control words")? },
            10 => Self::Refused(read_text(&mut r, "text", TEXT_MAX as u32)?),
            other => return Err(DecodeError::Unknown { what: "word", value: u64::from(other) }),
        };
        r.finish()?;
        Ok(word)
    }
}

fn shortened(text: &str) -> &[u8] {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Object {
        Object { path: "/x/k.so".to_owned(), index: b"{}".to_vec() }
    }

    fn orders() -> Vec<Order> {
        let job = SlotJob {
            object: object(),
            slot: 3,
            variant: "default".to_owned(),
            dims: vec![1, 2],
            scalars: vec![0.5],
            matrix: [2, 32, 8],
            weight: vec![9; 68],
            tensor: String::new(),
            prepare_bytes: 7,
        };
        vec![
            Order::Load { stock: object(), bound: vec![(0, None), (1, Some(object()))], prepare_bytes: 1 },
            Order::LoadSlot(Box::new(job)),
            Order::Generate { prompts: vec![vec![1, 2], vec![3]], new: 4 },
            Order::Replay { tokens: vec![1, 2, 3], prompt: 1, watched: true },
            Order::Call,
            Order::Go,
        ]
    }

    fn words() -> Vec<Word> {
        vec![
            Word::Hello,
            Word::Loaded,
            Word::Prepared { bytes: u64::MAX },
            Word::Running,
            Word::Failed { at: FailedAt::Budget, slot: 2, text: "too much".to_owned() },
            Word::Generated { observed: vec![2, 1], tokens: vec![vec![5, 6], vec![7, 8]] },
            Word::Scored(vec![-1.0, f32::NEG_INFINITY]),
            Word::Begin { index: 9, bound: true, op: 3 },
            Word::End { control_changed: false },
            Word::Refused("no".to_owned()),
        ]
    }

    #[test]
    fn everything_comes_back_as_it_was() {
        for order in orders() {
            assert_eq!(Order::decode(&order.encode()).unwrap(), order);
        }
        for word in words() {
            assert_eq!(Word::decode(&word.encode()).unwrap(), word);
        }
        let long = Word::Refused("ü".repeat(500));
        assert_eq!(Word::decode(&long.encode()).unwrap(), Word::Refused("ü".repeat(200)));
    }

    #[test]
    fn hostile_words_are_read_exactly_or_refused() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let mut read = 0;
        for word in words() {
            let body = word.encode();
            for len in 0..body.len() {
                assert!(Word::decode(&body[..len]).is_err(), "{word:?} cut to {len}");
            }
            let mut longer = body.clone();
            longer.push(0);
            assert!(Word::decode(&longer).is_err(), "{word:?} with a byte more");
            for _ in 0..2000 {
                let mut bytes = body.clone();
                for _ in 0..1 + random() % 3 {
                    let at = random() % bytes.len();
                    bytes[at] = random() as u8;
                }
                // Whatever is accepted says exactly these bytes.
                if let Ok(word) = Word::decode(&bytes) {
                    assert_eq!(word.encode(), bytes);
                    read += 1;
                }
            }
        }
        assert!(read > 0);
        // A count that the body cannot hold allocates nothing.
        assert!(Word::decode(&[7, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]).is_err());
    }
}
