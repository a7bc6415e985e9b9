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
    /// Look at stacks and engine trees: show, plan, compare, materialise, verify
    #[command(subcommand)]
    Stack(StackCommand),
    /// Project reward weights from the settled crowns
    #[command(subcommand)]
    Weights(WeightsCommand),
    /// Check a bundle's sources against the static rules, without running anything
    Scan(BundleArgs),
    /// Show what the referee will see of a bundle: target, payload, domains, identities
    Inspect(InspectArgs),
    /// Name a record: its kind, its digest, and whether its bytes are canonical
    Digest(DigestArgs),
}

impl Command {
    /// The options that every command takes.
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Demo(args) => &args.common,
            Self::Arena(ArenaCommand::Init(args)) => &args.common,
            Self::Arena(ArenaCommand::Calibrate(args)) => &args.common,
            Self::Arena(ArenaCommand::Run(args)) => &args.common,
            Self::Arena(ArenaCommand::Status(args)) => &args.common,
            Self::Arena(ArenaCommand::Release(args)) => &args.common,
            Self::Evidence(EvidenceCommand::List(args)) => &args.common,
            Self::Evidence(EvidenceCommand::Show(args)) => &args.common,
            Self::Evidence(EvidenceCommand::Verify(args)) => &args.common,
            Self::Stack(StackCommand::Show(args)) => &args.common,
            Self::Stack(StackCommand::Plan(args)) => &args.common,
            Self::Stack(StackCommand::Diff(args)) => &args.common,
            Self::Stack(StackCommand::Materialize(args)) => &args.common,
            Self::Stack(StackCommand::VerifyTree(args)) => &args.common,
            Self::Weights(WeightsCommand::Project(args)) => &args.common,
            Self::Scan(args) => &args.common,
            Self::Inspect(args) => &args.common,
            Self::Digest(args) => &args.common,
        }
    }
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
    #[arg(long, default_value = "local", value_name = "NAME", value_parser = hotkey)]
    pub(crate) hotkey: String,
    /// Measure named bundles anew that qualified before but were set aside when another was crowned
    #[arg(long)]
    pub(crate) again: bool,
}

/// Refuses a name that no settlement record can hold.
fn hotkey(text: &str) -> Result<String, String> {
    use cacheon_records::text::SettlementIdentifier;
    SettlementIdentifier::parse(text).map(|it| it.to_string()).map_err(|error| error.to_string())
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
    /// Say what a bundle would replace, and which identities would result
    Plan(StackPlanArgs),
    /// Compare two records member by member, for example two stack manifests
    Diff(StackDiffArgs),
    /// Write the engine tree of a stack
    Materialize(StackMaterializeArgs),
    /// Check every byte, mode and name of an engine tree against its digest
    VerifyTree(StackVerifyTreeArgs),
}

/// Which stack a command works on.
#[derive(Debug, Clone, Args)]
pub(crate) struct StackSource {
    /// Evaluation-stack manifest (JSON) [default: the current stack of the state directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) stack: Option<PathBuf>,
    /// Folder of published bundles, by content hash [default: the state directory's]
    #[arg(long, value_name = "DIR")]
    pub(crate) bundles: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StackPlanArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) source: StackSource,
    /// The bundle's folder
    #[arg(value_name = "BUNDLE")]
    pub(crate) bundle: PathBuf,
    /// Name of the submitter; it enters the contribution's attribution
    #[arg(long, default_value = "local", value_name = "NAME", value_parser = hotkey)]
    pub(crate) hotkey: String,
    /// Write the resulting manifest, canonical JSON, to this new file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StackDiffArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The first record (JSON)
    #[arg(value_name = "A")]
    pub(crate) left: PathBuf,
    /// The second record (JSON)
    #[arg(value_name = "B")]
    pub(crate) right: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct StackMaterializeArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) source: StackSource,
    /// A bundle folder that is a source of the stack besides the published ones; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) with: Vec<PathBuf>,
    /// The folder to make; its parent must exist
    #[arg(value_name = "DIR")]
    pub(crate) destination: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct StackVerifyTreeArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The tree's folder
    #[arg(value_name = "DIR")]
    pub(crate) tree: PathBuf,
    /// Its digest [default: the folder's name, when that is one]
    #[arg(value_name = "DIGEST")]
    pub(crate) digest: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BundleArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The bundle's folder
    #[arg(value_name = "BUNDLE")]
    pub(crate) bundle: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The bundle's folder
    #[arg(value_name = "BUNDLE")]
    pub(crate) bundle: PathBuf,
    /// Digest of the target catalog, or a unique prefix [default: the CPU arena's for C, the newest registered one else]
    #[arg(long, value_name = "DIGEST")]
    pub(crate) catalog: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DigestArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The record; any file has at least its SHA-256
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Digest it in this domain, whatever kind it is
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
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

/// Blocks in which a claim's credit halves, unless said otherwise: 30 days of 12-second blocks.
pub(crate) const HALF_LIFE_BLOCKS: u64 = 216_000;

#[derive(Debug, Args)]
pub(crate) struct WeightsProjectArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Blocks after which a claim's credit has halved. A local ledger counts a block a submission and a conclusion
    #[arg(long, default_value_t = HALF_LIFE_BLOCKS, value_name = "BLOCKS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) half_life_blocks: u64,
    /// Name of the validator, who is paid for claimants that are gone
    #[arg(long, default_value = "local-validator", value_name = "NAME", value_parser = hotkey)]
    pub(crate) validator: String,
}
