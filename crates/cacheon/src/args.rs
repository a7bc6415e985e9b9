//! The command line. Help texts teach; every command takes `--json`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A referee for kernel contributions to an LLM serving engine.
///
/// First time here? `cacheon demo` fetches a small language model, runs example kernels against it in isolated
/// containers, and settles a crown. Everything it did stays in the state directory: look with `cacheon arena status`
/// and re-derive any verdict with `cacheon evidence verify`.
#[derive(Debug, Parser)]
#[command(name = "cacheon", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// State directory [default: $XDG_DATA_HOME/cacheon, else ~/.local/share/cacheon]
    #[arg(long, global = true, env = "CACHEON_HOME", value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Print machine-readable JSON on standard output instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// From example kernels to a settled crown, on this machine, in one go
    Demo(DemoArgs),
    /// Define an arena, calibrate it, run bundles through it
    #[command(subcommand)]
    Arena(ArenaCommand),
    /// Look at retained evidence and re-derive verdicts from it
    #[command(subcommand)]
    Evidence(EvidenceCommand),
    /// Show the current stack
    #[command(subcommand)]
    Stack(StackCommand),
    /// Project reward weights from the settled crowns
    #[command(subcommand)]
    Weights(WeightsCommand),
}

/// How candidates are isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationArg {
    /// Containers with user namespaces, control groups and system-call filters; needs root
    Full,
    /// Rootless, with what the kernel allows. Nothing it makes can be crowned
    Dev,
}

/// Where the model comes from.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelArgs {
    /// Use this GGUF file instead of fetching SmolLM2-135M-Instruct
    #[arg(long, value_name = "PATH", conflicts_with = "synthetic")]
    pub(crate) model: Option<PathBuf>,
    /// Use a small synthetic model of the same architecture, made from a seed; needs no network
    #[arg(long)]
    pub(crate) synthetic: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// How candidates are isolated
    #[arg(long, value_enum, default_value = "full")]
    pub(crate) isolation: IsolationArg,
    /// Folder of example bundles [default: the ones this program was built with]
    #[arg(long, value_name = "DIR")]
    pub(crate) examples: Option<PathBuf>,
    /// Run only these examples, by folder name
    #[arg(value_name = "NAME")]
    pub(crate) only: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArenaCommand {
    /// Seal the arena's definition: model, workload cell, policies
    Init(InitArgs),
    /// Measure controls on this machine and freeze the calibration
    Calibrate(CalibrateArgs),
    /// Screen, qualify, reproduce and settle bundles
    Run(RunArgs),
    /// Show every bundle, its attempts and what it waits for
    Status(StatusArgs),
    /// Release a held bundle so that the next run gives it a new attempt
    Release(ReleaseArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// How candidates are isolated
    #[arg(long, value_enum, default_value = "full")]
    pub(crate) isolation: IsolationArg,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Measure again although a frozen calibration for this machine is there
    #[arg(long)]
    pub(crate) again: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Bundle folders, in order of arrival. Without any, unfinished bundles are continued
    #[arg(value_name = "BUNDLE")]
    pub(crate) bundles: Vec<PathBuf>,
    /// Name of the submitter, credited with a crown
    #[arg(long, default_value = "local", value_name = "NAME")]
    pub(crate) hotkey: String,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Bundle names or content-hash prefixes; without any, every held bundle
    #[arg(value_name = "BUNDLE")]
    pub(crate) bundles: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EvidenceCommand {
    /// List retained objects
    List(EvidenceListArgs),
    /// Print one retained object
    Show(EvidenceShowArgs),
    /// Re-derive an attempt's verdict from its bytes and say what was proven
    Verify(EvidenceVerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EvidenceListArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only this domain, for example `cpu.attempt`
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EvidenceShowArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// SHA-256, or a unique prefix of at least eight digits
    #[arg(value_name = "DIGEST")]
    pub(crate) digest: String,
}

#[derive(Debug, Args)]
pub(crate) struct EvidenceVerifyArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// SHA-256 of an attempt, or a unique prefix; without one, every attempt
    #[arg(value_name = "DIGEST")]
    pub(crate) digests: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StackCommand {
    /// Print the current stack: base engine and crowned contributions
    Show(StackShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StackShowArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WeightsCommand {
    /// Compute the reward weights that the settled crowns earn
    Project(WeightsProjectArgs),
}

#[derive(Debug, Args)]
pub(crate) struct WeightsProjectArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}
