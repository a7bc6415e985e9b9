//! The controller's side of a conversation. It owns the clock: a time here is the host's, taken around a write and a
//! complete read; a reply that does not validate has no time (`spec/50-execution.md` §1).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::chain::{Direction, FrameChain, FrameSink};
use crate::clock::Clock;
use crate::codec::DecodeError;
use crate::message::{Mismatch, Reply, Request};
use crate::wire::{HEADER_BYTES, Header, Kind, Nonce, SessionId, encode_frame, sha256};

/// A byte stream with a settable deadline on which unread input can be seen.
pub trait Wire: Read + Write {
    /// Lets the next reads and writes block for at most `left` each.
    fn allow(&mut self, left: Duration) -> io::Result<()>;

    /// Whether unread input, or the peer's end of stream, is waiting.
    fn pending(&mut self) -> io::Result<bool>;
}

impl Wire for UnixStream {
    fn allow(&mut self, left: Duration) -> io::Result<()> {
        let left = left.max(Duration::from_micros(1));
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }

    fn pending(&mut self) -> io::Result<bool> {
        use rustix::net::RecvFlags;
        let mut byte = [0u8; 1];
        match rustix::net::recv(&*self, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Monotonic host times of one exchange, in nanoseconds of the session's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamps {
    /// Just before the first byte of the encoded request was written.
    pub write_begun: u64,
    /// Just after its last byte was written.
    pub written: u64,
    /// Just after the first bytes of the reply were read.
    pub first_byte: u64,
    /// Just after the last byte of the reply was read. The time of a request is `last_byte − write_begun`.
    pub last_byte: u64,
    /// After the reply was hashed, parsed and matched with its request.
    pub validated: u64,
}

impl Stamps {
    /// Time of the exchange: last byte read less write begun, in nanoseconds.
    pub fn elapsed_ns(&self) -> u64 {
        self.last_byte.saturating_sub(self.write_begun)
    }
}

/// A completed exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// The validated reply; a fault is a reply too.
    pub reply: Reply,
    /// Host times.
    pub stamps: Stamps,
    /// SHA-256 of the request frame.
    pub request_sha256: [u8; 32],
    /// SHA-256 of the reply frame.
    pub reply_sha256: [u8; 32],
}

/// Why an exchange did not complete. None of these is attributable to a candidate (`spec/50-execution.md` §6.5): they
/// end the conversation, and the container is torn down.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No complete reply by the deadline.
    #[error("no complete reply within {} ms ({got} bytes came)", deadline.as_millis())]
    Deadline {
        /// The deadline that was given.
        deadline: Duration,
        /// Bytes of the reply that had come.
        got: u64,
    },
    /// The peer is gone.
    #[error("the worker closed the conversation after {got} bytes of a reply")]
    Closed {
        /// Bytes of the reply that had come.
        got: u64,
    },
    /// Bytes came when nothing was asked.
    #[error("the worker spoke out of turn")]
    Unsolicited,
    /// The reply is not a valid frame or body.
    #[error("malformed reply: {0}")]
    Decode(#[from] DecodeError),
    /// The reply's header belongs to another exchange.
    #[error("reply carries another {0} than its request")]
    Stale(&'static str),
    /// The reply's length is not what the request implies.
    #[error("{kind:?} reply declares {got} body bytes, the request implies {expected}")]
    Length {
        /// Kind of the reply.
        kind: Kind,
        /// Expected body length.
        expected: u32,
        /// Declared body length.
        got: u32,
    },
    /// The reply answers something else.
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
    /// An earlier exchange failed; the conversation is over.
    #[error("the conversation has already failed")]
    Over,
    /// The system refused a read, a write or the keeping of a frame.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// One conversation with one container.
#[derive(Debug)]
pub struct Session<S, C, K> {
    stream: S,
    clock: C,
    sink: K,
    session: SessionId,
    sequence: u64,
    chain: FrameChain,
    over: bool,
    body: Vec<u8>,
}

impl<S: Wire, C: Clock, K: FrameSink> Session<S, C, K> {
    /// Opens a conversation. `session` is nonzero, from the host's random source, never used before.
    pub fn new(stream: S, session: SessionId, clock: C, sink: K) -> Self {
        let chain = FrameChain::new(session);
        Session { stream, clock, sink, session, sequence: 0, chain, over: false, body: Vec::new() }
    }

    /// The chain over all frames so far.
    pub fn chain(&self) -> &FrameChain {
        &self.chain
    }

    /// The session id.
    pub fn id(&self) -> SessionId {
        self.session
    }

    /// The underlying stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The frame sink.
    pub fn sink(&self) -> &K {
        &self.sink
    }

    /// The frame sink, writable.
    pub fn sink_mut(&mut self) -> &mut K {
        &mut self.sink
    }

    /// Sends one request and reads its reply within `deadline`. `nonce` is nonzero, from the host's random source,
    /// never used before. Encoding and hashing the request happen before the clock starts; hashing and parsing the
    /// reply, and keeping both frames, after it stops. After an error the conversation is over.
    pub fn request(
        &mut self,
        request: &Request,
        nonce: Nonce,
        deadline: Duration,
    ) -> Result<Exchange, SessionError> {
        if self.over {
            return Err(SessionError::Over);
        }
        self.over = true;
        let exchange = self.exchange(request, nonce, deadline)?;
        self.over = false;
        Ok(exchange)
    }

    fn exchange(
        &mut self,
        request: &Request,
        nonce: Nonce,
        deadline: Duration,
    ) -> Result<Exchange, SessionError> {
        self.sequence += 1;
        let rule = request.reply_rule();
        let frame = encode_frame(request.kind(), self.session, self.sequence, nonce, &request.encode())?;
        let request_sha256 = sha256(&frame);
        if self.stream.pending().map_err(io("looking for unread input"))? {
            return Err(SessionError::Unsolicited);
        }
        // The reply's buffer is touched before the clock starts, so that page faults stay outside the measurement.
        self.body.clear();
        self.body.resize(rule.exact.map_or(4096, |len| len.min(1 << 20)) as usize, 0);

        let write_begun = self.clock.now_ns();
        let mut timer = Timer { clock: &self.clock, begun: write_begun, deadline, got: 0 };
        write_all(&mut self.stream, &frame, &mut timer)?;
        let written = self.clock.now_ns();

        let mut head = [0u8; HEADER_BYTES];
        let first = read_some(&mut self.stream, &mut head, &mut timer)?;
        let first_byte = self.clock.now_ns();
        read_all(&mut self.stream, &mut head[first..], &mut timer)?;
        let header = Header::decode(&head)?;
        self.check_header(&header, nonce, rule)?;
        let length = header.length as usize;
        self.body.resize(length, 0);
        read_all(&mut self.stream, &mut self.body, &mut timer)?;
        let last_byte = self.clock.now_ns();

        header.check_body(&self.body)?;
        let reply = Reply::decode(header.kind, &self.body)?;
        reply.answers(request)?;
        if self.stream.pending().map_err(io("looking for unread input"))?
            && !matches!(reply, Reply::Closed { .. })
        {
            return Err(SessionError::Unsolicited);
        }
        let validated = self.clock.now_ns();

        let mut reply_frame = Vec::with_capacity(HEADER_BYTES + length);
        reply_frame.extend_from_slice(&head);
        reply_frame.extend_from_slice(&self.body);
        let reply_sha256 = sha256(&reply_frame);
        self.chain.append(Direction::Request, request_sha256);
        self.chain.append(Direction::Reply, reply_sha256);
        self.sink.keep(Direction::Request, request_sha256, &frame).map_err(io("keeping a request frame"))?;
        self.sink.keep(Direction::Reply, reply_sha256, &reply_frame).map_err(io("keeping a reply frame"))?;
        let stamps = Stamps { write_begun, written, first_byte, last_byte, validated };
        Ok(Exchange { reply, stamps, request_sha256, reply_sha256 })
    }

    fn check_header(
        &self,
        header: &Header,
        nonce: Nonce,
        rule: crate::message::ReplyRule,
    ) -> Result<(), SessionError> {
        if header.session != self.session {
            return Err(SessionError::Stale("session"));
        }
        if header.sequence != self.sequence {
            return Err(SessionError::Stale("sequence"));
        }
        if header.nonce != nonce {
            return Err(SessionError::Stale("nonce"));
        }
        if header.kind == Kind::Fault {
            return Ok(());
        }
        if header.kind != rule.kind {
            return Err(SessionError::Stale("kind"));
        }
        match rule.exact {
            Some(expected) if expected != header.length => {
                Err(SessionError::Length { kind: header.kind, expected, got: header.length })
            }
            _ => Ok(()),
        }
    }
}

fn io(what: &'static str) -> impl Fn(io::Error) -> SessionError {
    move |source| SessionError::Io { what, source }
}

struct Timer<'a, C> {
    clock: &'a C,
    begun: u64,
    deadline: Duration,
    got: u64,
}

impl<C: Clock> Timer<'_, C> {
    fn left(&self) -> Result<Duration, SessionError> {
        let spent = Duration::from_nanos(self.clock.now_ns().saturating_sub(self.begun));
        match self.deadline.checked_sub(spent) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(self.late()),
        }
    }

    fn late(&self) -> SessionError {
        SessionError::Deadline { deadline: self.deadline, got: self.got }
    }

    fn refused(&self, what: &'static str, source: io::Error) -> SessionError {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.late(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                SessionError::Closed { got: self.got }
            }
            _ => SessionError::Io { what, source },
        }
    }
}

fn write_all<S: Wire, C: Clock>(
    stream: &mut S,
    mut bytes: &[u8],
    timer: &mut Timer<'_, C>,
) -> Result<(), SessionError> {
    while !bytes.is_empty() {
        stream.allow(timer.left()?).map_err(io("setting a deadline"))?;
        match stream.write(bytes) {
            Ok(0) => return Err(SessionError::Closed { got: 0 }),
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(timer.refused("writing a request", error)),
        }
    }
    Ok(())
}

fn read_some<S: Wire, C: Clock>(
    stream: &mut S,
    into: &mut [u8],
    timer: &mut Timer<'_, C>,
) -> Result<usize, SessionError> {
    loop {
        stream.allow(timer.left()?).map_err(io("setting a deadline"))?;
        match stream.read(into) {
            Ok(0) => return Err(SessionError::Closed { got: timer.got }),
            Ok(n) => {
                timer.got += n as u64;
                return Ok(n);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(timer.refused("reading a reply", error)),
        }
    }
}

fn read_all<S: Wire, C: Clock>(
    stream: &mut S,
    mut into: &mut [u8],
    timer: &mut Timer<'_, C>,
) -> Result<(), SessionError> {
    while !into.is_empty() {
        let n = read_some(stream, into, timer)?;
        into = &mut into[n..];
    }
    Ok(())
}
