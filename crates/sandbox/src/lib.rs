//! Containers for code that nobody trusts, from the host's side.
//!
//! A container's root is a closed, inventoried list of host files bound read-only ([`RootInventory`]); it has no
//! network, its own user, pid, mount, ipc, uts, cgroup and network namespaces, no capabilities that survive its first
//! process, and limits on memory, processes and CPUs. The controller never enters one: it re-executes itself as a small
//! single-threaded supervisor ([`supervisor_main`]) that makes the container, and reads and ends it from outside,
//! through its cgroups. Teardown is a proof, not a hope ([`Container::kill_and_prove`]); what a killed controller left
//! is swept by the next one ([`Sandbox::open`]). See `spec/50-execution.md` §1, §4 and §15.

#![allow(unsafe_code)]

pub mod cgroup;
mod container;
mod dev;
pub mod elf;
mod error;
mod host;
mod inventory;
mod job;
mod mounts;
mod oci;
mod prebuild;
mod spec;
mod supervisor;
mod toolchain;

pub use cacheon_protocol::{Clock, MonotonicClock};
pub use container::{Container, ExitStatus, Output, TEARDOWN_DEADLINE, TeardownProof};
pub use error::SandboxError;
pub use host::{Sandbox, SandboxConfig, SweepReport};
pub use inventory::{INVENTORY_DOMAIN, RootFile, RootInventory};
pub use prebuild::{BuildLimits, BuildRefusal, BuildReport, BuildRequest};
pub use spec::{
    Bind, BindSource, ContainerSpec, CpuSet, Isolation, Limits, Runtime, Scratch, User, is_cpu_list,
};
pub use supervisor::{SOCKET_FD, SUPERVISOR_VERB, supervisor_main};
pub use toolchain::{TOOLCHAIN_DOMAIN, Toolchain};
