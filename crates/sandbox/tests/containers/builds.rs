//! Builds in containers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use cacheon_sandbox::elf::{ElfError, ElfPolicy, inspect};
use cacheon_sandbox::{
    BuildLimits, BuildRefusal, BuildReport, BuildRequest, ExitStatus, Isolation, Sandbox, Toolchain,
};

use crate::support::{Bed, bed};

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-ident",
    "-Wall",
    "-shared",
    "-nostartfiles",
    "-Wl,-z,now",
    "-Wl,-z,relro",
    "-Wl,-z,noexecstack",
    "-Wl,-z,defs",
    "-Wl,--build-id=none",
];
const HEADER: &str = "#define EXPORT __attribute__((visibility(\"default\")))\n";
const GOOD: &str = "#include \"k.h\"\n#include <math.h>\n#include <string.h>\nEXPORT void k_run(float *x) { *x = expf(*x); }\n";

pub fn toolchain() -> &'static Toolchain {
    static TOOLCHAIN: OnceLock<Toolchain> = OnceLock::new();
    TOOLCHAIN.get_or_init(|| Toolchain::discover().unwrap())
}

fn build(bed: &Bed, source: &str, limits: BuildLimits) -> BuildReport {
    build_in(&bed.sandbox, source, limits)
}

/// Whether a good source builds without root.
pub fn dev_build_in(sandbox: &Sandbox) -> bool {
    let report = build_in(sandbox, GOOD, BuildLimits::default());
    let object = report.object.unwrap_or_else(|e| panic!("{e}: {}", report.diagnostics));
    accepted(&object).is_ok()
}

fn build_in(sandbox: &Sandbox, source: &str, limits: BuildLimits) -> BuildReport {
    let files = BTreeMap::from([("src/k.c".to_owned(), source.as_bytes().to_vec())]);
    let headers = BTreeMap::from([("k.h".to_owned(), HEADER.as_bytes().to_vec())]);
    let request = BuildRequest {
        label: "build",
        files: &files,
        headers: &headers,
        flags: FLAGS,
        sources: &["src/k.c"],
        libraries: &["-lm"],
        limits,
        cpuset: None,
    };
    sandbox.build(toolchain(), &request).unwrap()
}

fn accepted(object: &[u8]) -> Result<(), ElfError> {
    let required = BTreeSet::from(["k_run".to_owned()]);
    let optional = BTreeSet::new();
    let policy =
        ElfPolicy { required: &required, optional: &optional, libraries: &["libc.so.6", "libm.so.6"] };
    inspect(object, &policy).map(drop)
}

pub fn build_is_repeatable_and_accepted() {
    let bed = bed(Isolation::Full);
    let source = format!(
        "{GOOD}EXPORT const char *k_when(void);\nconst char *k_when(void) {{ return __DATE__ __TIME__; }}\n"
    );
    let first = build(&bed, &source, BuildLimits::default());
    std::thread::sleep(Duration::from_millis(1100));
    let second = build(&bed, &source, BuildLimits::default());
    let object = first.object.unwrap_or_else(|e| panic!("{e}: {}", first.diagnostics));
    assert_eq!(object, second.object.unwrap());
    assert_eq!(accepted(&object), Err(ElfError::Undeclared("k_when".into())));
    accepted(&build(&bed, GOOD, BuildLimits::default()).object.unwrap()).unwrap();
    assert_eq!(std::fs::read_dir(bed.state.path().join("stages")).unwrap().count(), 0);
}

/// Every header the toolchain promises can really be included, in the ways sources do it.
pub fn build_has_its_headers() {
    let bed = bed(Isolation::Full);
    for define in
        ["", "#define _GNU_SOURCE\n", "#define _POSIX_C_SOURCE 200809L\n", "#define _FORTIFY_SOURCE 2\n"]
    {
        let source = format!(
            "{define}#include <math.h>\n#include <tgmath.h>\n#include <string.h>\n#include <stdlib.h>\n\
             #include <stdio.h>\n#include <pthread.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
             #include <immintrin.h>\n#include <stdatomic.h>\n#include <sched.h>\n#include <fenv.h>\n{GOOD}"
        );
        let report = build(&bed, &source, BuildLimits::default());
        report.object.unwrap_or_else(|e| panic!("{define}{e}: {}", report.diagnostics));
    }
}

pub fn build_reaches_no_host_file() {
    let bed = bed(Isolation::Full);
    for (source, needle) in [
        ("#include \"/etc/passwd\"\n", "No such file"),
        ("#include \"../../../../etc/hostname\"\n", "No such file"),
        ("__asm__(\".incbin \\\"/etc/passwd\\\"\");\n", "/etc/passwd"),
        ("#include <stdlibx.h>\n", "No such file"),
        ("int main(void) { return 0 }\n", "error"),
    ] {
        let report = build(&bed, source, BuildLimits::default());
        assert!(
            matches!(report.object, Err(BuildRefusal::Compiler { status: ExitStatus::Code(1) })),
            "{source}: {:?}",
            report.object.err()
        );
        assert!(report.diagnostics.contains(needle), "{}", report.diagnostics);
    }
}

pub fn build_bombs_are_bounded() {
    let bed = bed(Isolation::Full);
    // Ten levels of doubling macros: 4^10 tokens or so, more than a short deadline allows.
    let mut bomb = String::from("#define A0 x+x+x+x\n");
    for level in 1..14 {
        bomb.push_str(&format!("#define A{level} A{0} A{0} A{0} A{0}\n", level - 1));
    }
    bomb.push_str("int f(int x) { return A13 ; }\n");
    let limits = BuildLimits { deadline: Duration::from_millis(700), ..BuildLimits::default() };
    let report = build(&bed, &bomb, limits);
    assert!(
        matches!(report.object, Err(BuildRefusal::Deadline(_) | BuildRefusal::Memory(_))),
        "{:?}",
        report.object.err()
    );
    assert!(report.wall < Duration::from_secs(5));

    let limits = BuildLimits { memory_bytes: 64 << 20, ..BuildLimits::default() };
    let report = build(&bed, &bomb, limits);
    assert!(matches!(report.object, Err(BuildRefusal::Memory(_))), "{:?}", report.object.err());

    let large = format!("{GOOD}EXPORT char big[64 << 20] = {{1}};\n");
    let report = build(&bed, &large, BuildLimits { object_bytes: 1 << 20, ..BuildLimits::default() });
    assert!(report.object.is_err());

    let noise: String = (0..4000).map(|n| format!("int v{n} = undeclared_{n};\n")).collect();
    let report = build(&bed, &noise, BuildLimits { diagnostics_bytes: 2048, ..BuildLimits::default() });
    assert!(report.object.is_err());
    assert!(report.diagnostics.len() <= 4096, "{}", report.diagnostics.len());
}

pub fn dev_build() {
    assert!(dev_build_in(&bed(Isolation::Dev).sandbox));
}
