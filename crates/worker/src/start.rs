//! From the first instruction to the conversation.

use crate::engine::{Engine, Limits};
use crate::process::Inheritance;
use crate::settings::{Settings, SettingsError};
use crate::shim::{self, ModelFacts, Start};
use crate::zygote::{self, Zygote};
use crate::{arena, checks, clocks, confine, roles, sys};
use cacheon_model::gguf::Gguf;
use cacheon_protocol::serve::ServeError;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Why the worker ended otherwise than by a `Close`.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A variable of the environment.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Confinement that could not be set up.
    #[error("the worker cannot confine itself: {0}")]
    Confinement(String),
    /// The protocol socket is not there.
    #[error("descriptor {fd} is not the protocol socket: {source}")]
    Socket {
        /// Its number.
        fd: i32,
        /// The system's answer.
        source: io::Error,
    },
    /// The conversation broke.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

fn confinement(error: impl ToString) -> WorkerError {
    WorkerError::Confinement(error.to_string())
}

/// Maps and reads the model, and places the engine's buffers.
fn open_model(settings: &Settings) -> Result<Inheritance, String> {
    let path = settings.model.display();
    let file = std::fs::File::open(&settings.model).map_err(|error| format!("{path}: {error}"))?;
    // SAFETY: the file lies on a read-only mount, or is the test's own; nobody truncates it while it is mapped.
    let mapped = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| format!("{path}: {error}"))?;
    // It serves every process until that ends.
    let bytes: &'static [u8] = Box::leak(Box::new(mapped));
    let gguf = Gguf::parse(bytes).map_err(|error| format!("{path}: {error}"))?;
    let mut arena = arena::SharedArena::default();
    let limits = Limits { max_context: settings.max_context };
    let engine = Engine::open(bytes, limits, &mut arena).map_err(|error| format!("{path}: {error}"))?;
    let table = arena.into_table();
    // SAFETY: the engine has filled the weights and only reads them from now on.
    unsafe { table.seal_weights() }.map_err(|error| format!("norm weights: {error}"))?;
    Ok(Inheritance { bytes, gguf, engine, table })
}

impl Inheritance {
    fn facts(&self) -> ModelFacts {
        ModelFacts {
            config: self.engine.model().config,
            gguf: self.gguf.clone(),
            table: self.table.clone(),
            max_context: self.engine.limits().max_context,
            bytes: self.bytes.len() as u64,
        }
    }
}

/// Takes over the protocol socket, if it is one.
fn protocol_socket(fd: i32) -> Result<UnixStream, WorkerError> {
    let mut kind = 0i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: asks for the type of whatever the number stands for; the two locals are as large as stated.
    let asked = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &raw mut length)
    };
    if asked != 0 || kind != libc::SOCK_STREAM {
        let source = if asked != 0 { io::Error::last_os_error() } else { io::ErrorKind::InvalidInput.into() };
        return Err(WorkerError::Socket { fd, source });
    }
    // SAFETY: an open stream socket (just seen), given to this process for this purpose and owned by nothing else.
    Ok(UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// The zygote's life, in the child: everything of the host closed, root given up.
fn be_zygote(
    fd: &OwnedFd,
    inheritance: &mut Inheritance,
    user: Option<u32>,
    shim: rustix::process::Pid,
) -> ! {
    roles::silence();
    let settled = roles::become_user(user).and_then(|()| roles::settle_zygote(shim));
    if settled.is_ok() {
        zygote::serve(fd, clocks::take_away(), inheritance);
    }
    sys::exit_now(i32::from(settled.is_err()))
}

/// Runs the worker until the controller closes the conversation.
///
/// # Errors
/// A broken environment or conversation, or confinement that could not be set up. Whatever can be said over the protocol
/// is said there.
pub fn run() -> Result<(), WorkerError> {
    let begun = Instant::now();
    let settings = Settings::from_environment()?;
    let descriptors = checks::only_expected_descriptors(settings.socket);
    let stream = protocol_socket(settings.socket)?;

    rustix::thread::set_no_new_privs(true).map_err(confinement)?;
    confine::container().map_err(confinement)?;
    sys::allocate_from_break();
    let opened = open_model(&settings);
    let split = roles::may_split() && settings.shim_uid.is_some() && settings.engine_uid.is_some();
    let ready = match opened {
        Ok(mut inheritance) => {
            let (ours, theirs) = zygote::pair().map_err(confinement)?;
            let shim = rustix::process::getpid();
            // SAFETY: this process has one thread.
            match unsafe { sys::fork() }.map_err(confinement)? {
                sys::Forked::Child => {
                    drop((ours, stream));
                    be_zygote(&theirs, &mut inheritance, settings.engine_uid.filter(|_| split), shim)
                }
                sys::Forked::Parent(_) => {
                    drop(theirs);
                    Ok((inheritance.facts(), Zygote::new(ours)))
                }
            }
        }
        Err(why) => Err(why),
    };
    sys::allocate_as_usual();
    roles::become_user(settings.shim_uid.filter(|_| split)).map_err(confinement)?;
    let clockless = match &ready {
        Ok((_, zygote)) => zygote.settled().map_err(confinement)?,
        Err(_) => false,
    };
    let checks = checks::run(&settings, split, descriptors, clockless);
    shim::converse(stream, Start { settings, checks, begun, ready })?;
    Ok(())
}
