//! Messages between the shim and one engine process: a length, then a body. Both ends own one end of a socket pair.
//!
//! The shim's end never blocks and never trusts: a length is checked before a byte of the body is kept, and whatever
//! does not parse is the engine process's fault. The engine's end blocks and reads only what the shim wrote.

use cacheon_protocol::codec::{DecodeError, Reader, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Longest body the engine's end accepts: the largest request with room to spare.
const REQUEST_MAX: usize = 160 << 20;

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
                let weight = r.blob("weight", REQUEST_MAX as u32)?;
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

/// Two connected ends.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// The engine's end.
#[derive(Debug)]
pub(crate) struct EngineEnd {
    fd: OwnedFd,
}

impl EngineEnd {
    /// Over one end of a pair.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// The descriptor's number, for the filters.
    pub(crate) fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn fill(&self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match rustix::io::read(&self.fd, &mut *into) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(n) => into = &mut into[n..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for the next order.
    pub(crate) fn order(&self) -> io::Result<Order> {
        let mut head = [0u8; 4];
        self.fill(&mut head)?;
        let length = u32::from_be_bytes(head) as usize;
        if length > REQUEST_MAX {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let mut small = [0u8; 64];
        let mut large = Vec::new();
        let body = match small.get_mut(..length) {
            Some(body) => body,
            None => {
                large.resize(length, 0);
                &mut large[..]
            }
        };
        self.fill(body)?;
        Order::decode(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Says a word.
    pub(crate) fn say(&self, word: &Word) -> io::Result<()> {
        let body = word.encode();
        let mut frame = Vec::with_capacity(4 + body.len());
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.extend_from_slice(&body);
        let mut rest = &frame[..];
        while !rest.is_empty() {
            match rustix::io::write(&self.fd, rest) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// What waiting for a word came to.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A whole word.
    Word(Word),
    /// Nothing yet.
    Nothing,
    /// The other end is closed.
    Closed,
}

/// The shim's end.
#[derive(Debug)]
pub(crate) struct ShimEnd {
    fd: OwnedFd,
    got: Vec<u8>,
}

/// Why the channel to an engine process cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// The process does not read what it is sent.
    #[error("the engine process does not take its order")]
    Stuck,
    /// What it said is no word, or too long a one.
    #[error("the engine process said something else than an answer: {0}")]
    Garbage(#[from] DecodeError),
    /// The system's answer.
    #[error("channel to the engine process: {0}")]
    Io(#[from] io::Error),
}

impl ShimEnd {
    /// Over one end of a pair.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { fd, got: Vec::new() })
    }

    fn wait(&self, flags: PollFlags, left: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::from_borrowed_fd(self.fd.as_fd(), flags)];
        let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
        match poll(&mut fds, Some(&left)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends an order to a process that waits for one. A process that is gone is noticed by the next [`ShimEnd::hear`].
    pub(crate) fn send(&self, order: &Order) -> Result<(), ChannelError> {
        let body = order.encode();
        let mut frame = Vec::with_capacity(4 + body.len());
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.extend_from_slice(&body);
        let mut rest = &frame[..];
        let mut idle = 0;
        while !rest.is_empty() {
            match rustix::net::send(&self.fd, rest, SendFlags::NOSIGNAL) {
                Ok(n) => {
                    rest = &rest[n..];
                    idle = 0;
                }
                Err(Errno::AGAIN) if idle < 20 => {
                    idle += 1;
                    self.wait(PollFlags::OUT, Duration::from_millis(250))?;
                }
                Err(Errno::AGAIN) => return Err(ChannelError::Stuck),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    /// Waits up to `left` for a word of at most `most` bytes.
    pub(crate) fn hear(&mut self, left: Duration, most: usize) -> Result<Heard, ChannelError> {
        if let Some(word) = self.take(most)? {
            return Ok(Heard::Word(word));
        }
        if !self.wait(PollFlags::IN, left)? {
            return Ok(Heard::Nothing);
        }
        let mut chunk = [0u8; 16 << 10];
        loop {
            match rustix::io::read(&self.fd, &mut chunk[..]) {
                Ok(0) => return Ok(Heard::Closed),
                Ok(n) => {
                    self.got.extend_from_slice(&chunk[..n]);
                    if let Some(word) = self.take(most)? {
                        return Ok(Heard::Word(word));
                    }
                }
                Err(Errno::AGAIN) => return Ok(Heard::Nothing),
                Err(Errno::CONNRESET) => return Ok(Heard::Closed),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }

    fn take(&mut self, most: usize) -> Result<Option<Word>, ChannelError> {
        let Some((head, rest)) = self.got.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > most {
            let (least, most) = (1, most as u64);
            return Err(DecodeError::Bound { what: "word length", value: length as u64, least, most }.into());
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let word = Word::decode(body)?;
        self.got.drain(..4 + length);
        Ok(Some(word))
    }

    /// Whether bytes are waiting that no word was due for.
    pub(crate) fn unasked(&self) -> bool {
        !self.got.is_empty() || self.wait(PollFlags::IN, Duration::ZERO).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (ShimEnd, EngineEnd) {
        let (a, b) = pair().unwrap();
        (ShimEnd::new(a).unwrap(), EngineEnd::new(b))
    }

    fn object() -> Object {
        Object { path: "/x/k.so".to_owned(), index: b"{}".to_vec() }
    }

    #[test]
    fn orders_and_words_come_back_as_they_were() {
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
        for order in [
            Order::Load { stock: object(), bound: vec![(0, None), (1, Some(object()))], prepare_bytes: 1 },
            Order::LoadSlot(Box::new(job)),
            Order::Generate { prompts: vec![vec![1, 2], vec![3]], new: 4 },
            Order::Replay { tokens: vec![1, 2, 3], prompt: 1, watched: true },
            Order::Call,
            Order::Go,
        ] {
            assert_eq!(Order::decode(&order.encode()).unwrap(), order);
        }
        let (mut shim, engine) = both();
        for word in [
            Word::Hello,
            Word::Prepared { bytes: u64::MAX },
            Word::Failed { at: FailedAt::Budget, slot: 2, text: "ü".repeat(500) },
            Word::Generated { observed: vec![2, 1], tokens: vec![vec![5, 6], vec![7, 8]] },
            Word::Scored(vec![-1.0, f32::NEG_INFINITY]),
            Word::Begin { index: 9, bound: true, op: 3 },
            Word::End { control_changed: false },
            Word::Refused("no".to_owned()),
        ] {
            engine.say(&word).unwrap();
            let Heard::Word(heard) = shim.hear(Duration::from_secs(1), 4096).unwrap() else { panic!() };
            match (&heard, &word) {
                (Word::Failed { text, .. }, Word::Failed { .. }) => assert_eq!(*text, "ü".repeat(200)),
                _ => assert_eq!(heard, word),
            }
        }
        assert!(!shim.unasked());
    }

    #[test]
    fn hostile_ends_are_noticed() {
        let (mut shim, engine) = both();
        assert!(matches!(shim.hear(Duration::ZERO, 10).unwrap(), Heard::Nothing));
        engine.say(&Word::Refused("x".repeat(100))).unwrap();
        assert!(matches!(shim.hear(Duration::from_secs(1), 50), Err(ChannelError::Garbage(_))));
        let (mut shim, engine) = both();
        rustix::io::write(&engine.fd, &[0, 0, 0, 1, 77]).unwrap();
        assert!(matches!(shim.hear(Duration::from_secs(1), 50), Err(ChannelError::Garbage(_))));
        let (mut shim, engine) = both();
        rustix::io::write(&engine.fd, &[0, 0, 0, 9, 1]).unwrap();
        assert!(matches!(shim.hear(Duration::from_millis(5), 50).unwrap(), Heard::Nothing));
        assert!(shim.unasked());
        drop(engine);
        assert!(matches!(shim.hear(Duration::from_secs(1), 50).unwrap(), Heard::Closed));
        // A gone process is no error of the order.
        shim.send(&Order::Go).unwrap();
    }

    #[test]
    fn an_order_that_is_not_taken_does_not_hold_the_shim() {
        let (shim, _engine) = both();
        let order = Order::Generate { prompts: vec![vec![1; 1 << 20]], new: 1 };
        assert!(matches!(shim.send(&order), Err(ChannelError::Stuck)));
    }
}
