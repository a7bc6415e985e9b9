//! The controller's side against honest and lying peers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use cacheon_protocol::serve::{ServeError, Serving};
use cacheon_protocol::wire::{decode_frame, encode_frame, sha256};
use cacheon_protocol::{
    Direction, FrameChain, FrameSink, HEADER_BYTES, Kind, MonotonicClock, Nonce, Notes, Reply, Request,
    Session, SessionError, SessionId,
};

const ID: SessionId = SessionId([7; 16]);
const NONCE: Nonce = Nonce([9; 16]);
const SECOND: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Kept(Vec<(Direction, [u8; 32], Vec<u8>)>);

impl FrameSink for Kept {
    fn keep(&mut self, direction: Direction, digest: [u8; 32], frame: &[u8]) -> std::io::Result<()> {
        assert_eq!(digest, sha256(frame));
        self.0.push((direction, digest, frame.to_vec()));
        Ok(())
    }
}

type Controller = Session<UnixStream, MonotonicClock, Kept>;

fn pair() -> (Controller, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Session::new(ours, ID, MonotonicClock, Kept::default()), theirs)
}

/// A peer that reads one request frame and answers with whatever `say` makes of it, then waits for `done`.
fn peer(mut stream: UnixStream, say: impl FnOnce(&[u8]) -> Vec<u8> + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut frame = vec![0u8; HEADER_BYTES];
        stream.read_exact(&mut frame).unwrap();
        let len = u32::from_be_bytes(frame[8..12].try_into().unwrap()) as usize;
        frame.resize(HEADER_BYTES + len, 0);
        stream.read_exact(&mut frame[HEADER_BYTES..]).unwrap();
        let _ = stream.write_all(&say(&frame));
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    })
}

fn scored(count: usize) -> Reply {
    Reply::Scored { logprobs: vec![-1.0; count], notes: Notes::default() }
}

fn score() -> Request {
    Request::Score { tokens: vec![1, 2, 3], prompt_len: 1 }
}

fn frame(kind: Kind, sequence: u64, nonce: Nonce, body: &[u8]) -> Vec<u8> {
    encode_frame(kind, ID, sequence, nonce, body).unwrap()
}

fn refused(say: impl FnOnce(&[u8]) -> Vec<u8> + Send + 'static) -> SessionError {
    let (mut session, theirs) = pair();
    let peer = peer(theirs, say);
    let error = session.request(&score(), NONCE, SECOND).unwrap_err();
    assert!(matches!(session.request(&score(), Nonce([1; 16]), SECOND), Err(SessionError::Over)));
    assert!(session.sink().0.is_empty(), "a failed exchange keeps nothing");
    drop(session);
    peer.join().unwrap();
    error
}

#[test]
fn an_exchange_is_timed_chained_and_kept() {
    let (mut session, theirs) = pair();
    let server = std::thread::spawn(move || {
        let mut serving = Serving::new(theirs);
        for _ in 0..2 {
            let request = serving.next_request().unwrap();
            assert_eq!(request, score());
            std::thread::sleep(Duration::from_millis(20));
            serving.answer(&scored(2)).unwrap();
        }
        assert!(matches!(serving.next_request(), Err(ServeError::Gone)));
    });
    let first = session.request(&score(), NONCE, SECOND).unwrap();
    let second = session.request(&score(), Nonce([3; 16]), SECOND).unwrap();
    let t = first.stamps;
    assert!(t.write_begun <= t.written && t.written <= t.first_byte);
    assert!(t.first_byte <= t.last_byte && t.last_byte <= t.validated);
    assert!(t.elapsed_ns() >= 20_000_000, "{t:?}");
    assert_eq!(first.reply, scored(2));

    // The chain re-derives from the kept frames alone.
    let mut chain = FrameChain::new(ID);
    for (direction, _, bytes) in &session.sink().0 {
        decode_frame(bytes).unwrap();
        chain.append(*direction, sha256(bytes));
    }
    assert_eq!(&chain, session.chain());
    assert_eq!(chain.frames(), 4);
    assert_eq!(session.sink().0[3].1, second.reply_sha256);
    drop(session);
    server.join().unwrap();
}

#[test]
fn a_stale_nonce_is_refused() {
    let error = refused(|_| frame(Kind::Scored, 1, Nonce([8; 16]), &scored(2).encode()));
    assert!(matches!(error, SessionError::Stale("nonce")), "{error}");
}

#[test]
fn a_stale_sequence_is_refused() {
    let error = refused(|_| frame(Kind::Scored, 2, NONCE, &scored(2).encode()));
    assert!(matches!(error, SessionError::Stale("sequence")), "{error}");
}

#[test]
fn another_session_is_refused() {
    let error =
        refused(|_| encode_frame(Kind::Scored, SessionId([6; 16]), 1, NONCE, &scored(2).encode()).unwrap());
    assert!(matches!(error, SessionError::Stale("session")), "{error}");
}

#[test]
fn another_kind_is_refused() {
    let error = refused(|_| frame(Kind::Closed, 1, NONCE, &Reply::Closed { closed: None }.encode()));
    assert!(matches!(error, SessionError::Stale("kind")), "{error}");
}

#[test]
fn a_short_answer_is_refused_before_its_body_is_read() {
    let error = refused(|_| frame(Kind::Scored, 1, NONCE, &scored(1).encode())[..HEADER_BYTES].to_vec());
    assert!(matches!(error, SessionError::Length { .. }), "{error}");
}

#[test]
fn a_declared_flood_is_refused_at_its_header() {
    let error = refused(|_| {
        let mut bytes = frame(Kind::Scored, 1, NONCE, &scored(2).encode());
        bytes[8..12].copy_from_slice(&(512u32 << 20).to_be_bytes());
        bytes
    });
    assert!(matches!(error, SessionError::Decode(_)), "{error}");
}

#[test]
fn a_corrupt_body_is_refused() {
    let error = refused(|_| {
        let mut bytes = frame(Kind::Scored, 1, NONCE, &scored(2).encode());
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    });
    assert!(matches!(error, SessionError::Decode(_)), "{error}");
}

#[test]
fn a_trailing_byte_is_refused() {
    let error = refused(|_| {
        let mut bytes = frame(Kind::Scored, 1, NONCE, &scored(2).encode());
        bytes.push(0);
        bytes
    });
    assert!(matches!(error, SessionError::Unsolicited), "{error}");
}

#[test]
fn an_echo_of_the_request_is_refused() {
    let error = refused(<[u8]>::to_vec);
    assert!(matches!(error, SessionError::Stale("kind")), "{error}");
}

#[test]
fn a_text_answer_is_refused() {
    let error = refused(|_| b"PASS\n".repeat(40));
    assert!(matches!(error, SessionError::Decode(_)), "{error}");
}

#[test]
fn speech_before_a_request_is_refused() {
    let (mut session, mut theirs) = pair();
    theirs.write_all(&[0]).unwrap();
    let error = session.request(&score(), NONCE, SECOND).unwrap_err();
    assert!(matches!(error, SessionError::Unsolicited), "{error}");
}

#[test]
fn a_peer_that_leaves_is_told_from_one_that_stalls() {
    let (mut session, theirs) = pair();
    let leaving = std::thread::spawn(move || {
        let mut serving = Serving::new(theirs);
        serving.next_request().unwrap();
    });
    let error = session.request(&score(), NONCE, SECOND).unwrap_err();
    assert!(matches!(error, SessionError::Closed { got: 0 }), "{error}");
    leaving.join().unwrap();

    let (mut session, theirs) = pair();
    let error = session.request(&score(), NONCE, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, SessionError::Deadline { got: 0, .. }), "{error}");
    drop(theirs);
}

#[test]
fn a_dribble_does_not_extend_the_deadline() {
    let (mut session, mut theirs) = pair();
    let (stop, stopped) = mpsc::channel::<()>();
    let dribble = std::thread::spawn(move || {
        let bytes = frame(Kind::Scored, 1, NONCE, &scored(2).encode());
        for byte in bytes {
            if theirs.write_all(&[byte]).is_err() {
                break;
            }
            if stopped.recv_timeout(Duration::from_millis(10)).is_ok() {
                break;
            }
        }
    });
    // The first byte may already be there when the request is sent, which is refused too; wait for it to be read.
    let started = std::time::Instant::now();
    let error = session.request(&score(), NONCE, Duration::from_millis(200)).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(matches!(error, SessionError::Deadline { .. } | SessionError::Unsolicited), "{error}");
    drop(session);
    let _ = stop.send(());
    dribble.join().unwrap();
}

#[test]
fn the_shim_refuses_a_replayed_request() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let request = frame(Kind::Score, 1, NONCE, &score().encode());
    ours.write_all(&request).unwrap();
    ours.write_all(&request).unwrap();
    let mut serving = Serving::new(theirs);
    serving.next_request().unwrap();
    assert!(matches!(serving.next_request(), Err(ServeError::Unexpected("sequence"))));
}

#[test]
fn the_shim_refuses_another_session_and_a_reply_frame() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(&frame(Kind::Score, 1, NONCE, &score().encode())).unwrap();
    ours.write_all(&encode_frame(Kind::Close, SessionId([1; 16]), 2, NONCE, &[]).unwrap()).unwrap();
    let mut serving = Serving::new(theirs);
    serving.next_request().unwrap();
    assert!(matches!(serving.next_request(), Err(ServeError::Unexpected("session"))));

    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(&frame(Kind::Scored, 1, NONCE, &scored(2).encode())).unwrap();
    assert!(matches!(Serving::new(theirs).next_request(), Err(ServeError::Unexpected("kind"))));
}
