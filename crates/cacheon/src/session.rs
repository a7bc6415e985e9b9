//! Commands that start engines: `demo`, `arena init`, `arena calibrate`, `arena run`.
//!
//! An arena borrows its model, so that it lives inside a call: [`with_arena`] opens the machine, hands the arena to its
//! work, and closes everything behind it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cacheon_arena::calibrate::Controls;
use cacheon_arena::cpu::{ArenaError, CpuArena, Parts};
use cacheon_arena::definition::{Definition, DefinitionError, ModelIdentity};
use cacheon_arena::environment::{Environment, ModelFile, engine_root};
use cacheon_arena::home::Home;
use cacheon_arena::lanes::Lanes;
use cacheon_arena::prebuild::Prebuild;
use cacheon_evidence::Steps;
use cacheon_intake::publish::publish;
use cacheon_model::fetch::{self, Progress as Fetching, SMOLLM2};
use cacheon_model::gguf::Gguf;
use cacheon_model::llama::Model;
use cacheon_model::synthetic::{self, Spec};
use cacheon_model::tokenizer::Tokenizer;
use cacheon_records::arena::Progress;
use cacheon_records::cpu::CpuPlatform;
use cacheon_sandbox::{Isolation, Runtime, Sandbox, SandboxConfig, SandboxError};
use serde_json::json;

use crate::args::{CalibrateArgs, DemoArgs, InitArgs, IsolationArg, ModelArgs, RunArgs};
use crate::home::resolve;
use crate::output::{Failure, INFRASTRUCTURE, Output, REFUSED};
use crate::run::{Opened, campaign, conclude_demo, conclude_run, submissions};

/// Examples beside the sources that this program was built from.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
/// The stock kernels among them; never a submission.
const STOCK: &str = "stock";
/// An honest kernel with rounding of its own: the positive control.
const POSITIVE: &str = "linear-packed";
/// A kernel that degrades the text: the negative control.
const NEGATIVE: &str = "linear-late";
/// Seed of the synthetic model.
const SEED: &[u8] = b"cacheon synthetic demonstration model";
/// Stops a run at a durable step, for crash tests.
const KILL_AT: &str = "CACHEON_KILL_AT_STEP";

/// From example kernels to a settled crown.
pub(crate) fn demo(args: &DemoArgs, output: Output) -> Result<(), Failure> {
    let begun = Instant::now();
    let root = resolve(&args.common)?;
    need_root(args.isolation, &root)?;
    let home = Home::open(&root).map_err(Failure::infrastructure)?;
    let _lock = home.lock().map_err(Failure::infrastructure)?;
    let examples = args.examples.clone().unwrap_or_else(|| PathBuf::from(EXAMPLES));
    let bundles = submissions(&chosen(&examples, &args.only)?, "local", false)?;
    if Definition::load(&home).is_err_and(|error| matches!(error, DefinitionError::Missing(_))) {
        define(&home, &args.model, args.isolation, output)?;
    }
    with_arena(&home, &examples, output, |arena, steps| {
        if matches!(arena.calibration(), Err(ArenaError::NotCalibrated)) {
            output.heading("Calibrating: what does noise look like on this machine?");
            measure(arena, &home, &examples, output)?;
        }
        output.heading("Qualifying");
        let report = campaign(opened(arena, &home, steps), &bundles, output)?;
        conclude_demo(&report, home.root(), begun, output)
    })
}

/// Seals the arena's definition.
pub(crate) fn init(args: &InitArgs, output: Output) -> Result<(), Failure> {
    let home = Home::open(&resolve(&args.common)?).map_err(Failure::infrastructure)?;
    let _lock = home.lock().map_err(Failure::infrastructure)?;
    let definition = define(&home, &args.model, args.isolation, output)?;
    let text = format!(
        "{}: arena {} with policy {}\nnext: cacheon arena calibrate",
        home.root().display(),
        definition.arena_id,
        definition.digest()
    );
    let json = json!({
        "home": home.root().display().to_string(),
        "arena_id": definition.arena_id,
        "policy_digest": definition.digest().to_string(),
        "model_sha256": definition.model.sha256.to_string(),
        "isolation": definition.container.isolation,
    });
    output.result(&text, &json);
    Ok(())
}

/// Measures controls and freezes the calibration.
pub(crate) fn calibrate(args: &CalibrateArgs, output: Output) -> Result<(), Failure> {
    let root = resolve(&args.common)?;
    let home = Home::open(&root).map_err(Failure::infrastructure)?;
    let _lock = home.lock().map_err(Failure::infrastructure)?;
    with_arena(&home, Path::new(EXAMPLES), output, |arena, _| {
        let found = match arena.calibration() {
            Ok((_, manifest)) if !args.again => Some(manifest),
            Ok(_) | Err(ArenaError::NotCalibrated) => None,
            Err(error) => return Err(Failure::infrastructure(error)),
        };
        let digest = match &found {
            Some(manifest) => manifest.digest(),
            None => measure(arena, &home, Path::new(EXAMPLES), output)?,
        };
        let word = if found.is_some() { "is calibrated already" } else { "is calibrated" };
        let json = json!({"calibration_digest": digest.to_string(), "measured_now": found.is_none()});
        output.result(
            &format!("{} {word}: {digest}\nnext: cacheon arena run BUNDLE", home.root().display()),
            &json,
        );
        Ok(())
    })
}

/// Takes bundles through the arena.
pub(crate) fn run(args: &RunArgs, output: Output) -> Result<(), Failure> {
    let bundles = submissions(&args.bundles, &args.hotkey, args.again)?;
    let home = Home::open(&resolve(&args.common)?).map_err(Failure::infrastructure)?;
    let _lock = home.lock().map_err(Failure::infrastructure)?;
    with_arena(&home, Path::new(EXAMPLES), output, |arena, steps| {
        arena.calibration().map_err(Failure::infrastructure)?;
        let report = campaign(opened(arena, &home, steps), &bundles, output)?;
        conclude_run(&report, output)
    })
}

/// The arena as the campaign takes it.
fn opened<'a>(arena: &'a mut CpuArena<'_>, home: &Home, steps: Steps) -> Opened<'a> {
    Opened {
        home: home.root().to_owned(),
        candidate_attempt_cap: arena.definition().candidate_attempt_cap,
        infrastructure_attempt_cap: arena.definition().infrastructure_retry_cap,
        crownable: arena.crownable(),
        steps,
        arena,
    }
}

/// The observer of durable steps that the environment asks for.
fn steps() -> Steps {
    let at = std::env::var(KILL_AT).ok().and_then(|text| text.parse().ok());
    at.map_or_else(Steps::none, Steps::killing_at)
}

/// The line that runs this command as root, when it needs to be.
fn need_root(isolation: IsolationArg, home: &Path) -> Result<(), Failure> {
    if isolation == IsolationArg::Dev || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(Failure::infrastructure)?;
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "--home" || word.starts_with("--home=")) {
        words.extend(["--home".to_owned(), home.display().to_string()]);
    }
    Err(Failure::message(
        INFRASTRUCTURE,
        format!(
            "containers need root here. Run\n\n    sudo {} {}\n\nor add `--isolation dev`, whose results cannot be crowned",
            program.display(),
            words.join(" ")
        ),
    ))
}

/// Example folders in order of name, without stock; or those that are named, in the order given.
fn chosen(examples: &Path, only: &[String]) -> Result<Vec<PathBuf>, Failure> {
    let missing = |what: &Path| {
        Failure::message(
            REFUSED,
            format!("{} holds no bundle; name a folder of examples with --examples", what.display()),
        )
    };
    if !only.is_empty() {
        let all: Vec<PathBuf> = only.iter().map(|name| examples.join(name)).collect();
        return match all.iter().find(|path| !path.join("manifest.toml").is_file()) {
            Some(path) => Err(missing(path)),
            None => Ok(all),
        };
    }
    let mut all: Vec<PathBuf> = std::fs::read_dir(examples)
        .map_err(|_| missing(examples))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.join("manifest.toml").is_file() && path.file_name().is_some_and(|name| name != STOCK)
        })
        .collect();
    all.sort();
    if all.is_empty() { Err(missing(examples)) } else { Ok(all) }
}

/// Brings the model and seals the definition that follows.
fn define(
    home: &Home,
    model: &ModelArgs,
    isolation: IsolationArg,
    output: Output,
) -> Result<Definition, Failure> {
    let (file, name) = obtain(home, model, output)?;
    let identity = ModelIdentity { bytes: file.bytes(), name, sha256: file.digest() };
    let word = match isolation {
        IsolationArg::Full => "full",
        IsolationArg::Dev => "dev",
    };
    let definition =
        Definition::standing(identity, platform(), word, model.synthetic).map_err(Failure::infrastructure)?;
    definition.seal(home).map_err(Failure::infrastructure)?;
    Ok(definition)
}

/// The model, in the state directory's cache.
fn obtain(home: &Home, model: &ModelArgs, output: Output) -> Result<(fetch::ModelFile, String), Failure> {
    let cache = home.models();
    if model.synthetic {
        output
            .heading("A synthetic model of the same architecture, made from a seed: its text means nothing");
        let content = synthetic::generate(&Spec::small(SEED));
        let file = fetch::store(&content, &cache).map_err(Failure::infrastructure)?;
        return Ok((file, "synthetic".to_owned()));
    }
    if let Some(path) = &model.model {
        let content = std::fs::read(path)
            .map_err(|error| Failure::message(INFRASTRUCTURE, format!("{}: {error}", path.display())))?;
        Gguf::parse(&content).map_err(Failure::refused)?;
        let file = fetch::store(&content, &cache).map_err(Failure::infrastructure)?;
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        return Ok((file, name));
    }
    let mut last = String::new();
    let file = fetch::fetch(&SMOLLM2, &cache, &mut |progress| {
        let text = told(progress);
        if text != last {
            output.progress("model", "fetch", &text);
            last = text;
        }
    })
    .map_err(Failure::infrastructure)?;
    Ok((file, "SmolLM2-135M-Instruct Q4_1".to_owned()))
}

/// A fetch for people, in steps of 5 % so that a log stays short.
fn told(progress: Fetching) -> String {
    let percent = |bytes: u64, total: u64| (bytes.saturating_mul(20) / total.max(1)) * 5;
    match progress {
        Fetching::Waiting => "another process is fetching; waiting for it".to_owned(),
        Fetching::Discarding => "the cached file is not what its name says; fetching anew".to_owned(),
        Fetching::Downloading { bytes, total } => {
            let megabytes = total / 1_000_000;
            format!("{} of {megabytes} MB, {} %", SMOLLM2.requirement, percent(bytes, total))
        }
        Fetching::Unpacking { bytes, total } => format!("unpacking, {} %", percent(bytes, total)),
        Fetching::Hashing { bytes, total } => format!("checking, {} %", percent(bytes, total)),
    }
}

/// What of this machine decides which code runs.
fn platform() -> CpuPlatform {
    #[cfg(target_arch = "x86_64")]
    let features = {
        let mut found = Vec::new();
        if std::arch::is_x86_feature_detected!("avx2") {
            found.push("avx2".to_owned());
        }
        if std::arch::is_x86_feature_detected!("fma") {
            found.push("fma".to_owned());
        }
        found
    };
    #[cfg(not(target_arch = "x86_64"))]
    let features = Vec::new();
    CpuPlatform { architecture: std::env::consts::ARCH.to_owned(), features }
}

/// Opens the arena of a state directory, works with it, and closes it.
fn with_arena<T>(
    home: &Home,
    examples: &Path,
    output: Output,
    work: impl FnOnce(&mut CpuArena<'_>, Steps) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let definition = Definition::load(home).map_err(Failure::infrastructure)?;
    let path = home.models().join(format!("{}.gguf", definition.model.sha256));
    let (file, bytes) = read_model(&path)?;
    if file.sha256 != definition.model.sha256 {
        let text = format!(
            "{} is not the model of this arena; remove it and run `cacheon arena init`",
            path.display()
        );
        return Err(Failure::message(INFRASTRUCTURE, text));
    }
    let isolation = match definition.container.isolation.as_str() {
        "full" => Isolation::Full,
        _ => Isolation::Dev,
    };
    if isolation == Isolation::Dev {
        output.heading("Isolation dev: candidates run with what the kernel allows; nothing is crowned");
    }
    let lanes = Lanes::detect().map_err(Failure::infrastructure)?;
    let program = std::env::current_exe().map_err(Failure::infrastructure)?;
    let worker = program.with_file_name("cacheon-worker");
    let config =
        SandboxConfig { state_root: home.run(), isolation, runtime: Runtime::default(), supervisor: program };
    let (sandbox, swept) = Sandbox::open(config).map_err(sandboxed)?;
    for (id, _) in &swept.orphans {
        output.progress("sandbox", "sweep", &format!("ended container {id} of an earlier controller"));
    }
    let root = engine_root(&worker).map_err(Failure::infrastructure)?;
    let env = Environment::new(&definition, lanes, sandbox, root, &file);
    let prebuild = Prebuild::new(env.worker_digest()).map_err(sandboxed)?;
    let gguf = Gguf::parse(&bytes).map_err(Failure::refused)?;
    let model = Model::bind(&gguf).map_err(Failure::refused)?;
    let tokenizer = Tokenizer::from_gguf(&gguf).map_err(Failure::refused)?;
    let (stock, steps) = (examples.join(STOCK), steps());
    let parts = Parts {
        home: home.clone(),
        definition,
        env,
        prebuild,
        model,
        tokenizer,
        stock: &stock,
        steps: steps.clone(),
    };
    let mut arena = CpuArena::open(parts).map_err(Failure::infrastructure)?;
    work(&mut arena, steps)
}

/// The model's bytes, and the descriptor they were read from: what is bound into containers is what was hashed.
fn read_model(path: &Path) -> Result<(ModelFile, Vec<u8>), Failure> {
    use std::io::Read as _;
    let unreadable = |error: std::io::Error| {
        Failure::message(
            INFRASTRUCTURE,
            format!("{}: {error}; run `cacheon arena init` again", path.display()),
        )
    };
    let mut file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    let sha256 = cacheon_identity::sha256(&bytes);
    Ok((ModelFile { descriptor: Arc::new(file.into()), sha256 }, bytes))
}

fn sandboxed(error: SandboxError) -> Failure {
    Failure::infrastructure(error)
}

/// Publishes the two control kernels and measures.
fn measure(
    arena: &mut CpuArena<'_>,
    home: &Home,
    examples: &Path,
    output: Output,
) -> Result<cacheon_identity::Digest, Failure> {
    let control =
        |name: &str| publish(&home.bundles(), &examples.join(name)).map_err(Failure::infrastructure);
    let controls = Controls { positive: control(POSITIVE)?, negative: control(NEGATIVE)? };
    let mut tell = |it: Progress| output.progress("controls", it.stage, &it.text);
    let manifest = arena.calibrate(&controls, &mut tell).map_err(Failure::infrastructure)?;
    Ok(manifest.digest())
}
