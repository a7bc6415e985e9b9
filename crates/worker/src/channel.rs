//! Messages between the shim and one engine process: a length, then a body. Both ends own one end of a socket pair.
//!
//! The shim's end never blocks and never trusts: a length is checked before a byte of the body is kept, and whatever
//! does not parse is the engine process's fault. The engine's end blocks and reads only what the shim wrote.

use crate::words::{ORDER_MAX, Order, Word};
use cacheon_protocol::codec::DecodeError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

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
        if length > ORDER_MAX {
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

    #[test]
    fn words_arrive_whole_and_one_by_one() {
        let (mut shim, engine) = both();
        let words = [
            Word::Hello,
            Word::Scored(vec![-1.5; 9000]),
            Word::Begin { index: 9, bound: true, op: 3 },
            Word::End { control_changed: false },
        ];
        for word in &words {
            engine.say(word).unwrap();
        }
        for word in &words {
            let Heard::Word(heard) = shim.hear(Duration::from_secs(1), 40_000).unwrap() else { panic!() };
            assert_eq!(heard, *word);
        }
        assert!(!shim.unasked());
        for order in [Order::Go, Order::Generate { prompts: vec![vec![5; 1000]], new: 3 }, Order::Call] {
            shim.send(&order).unwrap();
            assert_eq!(engine.order().unwrap(), order);
        }
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
