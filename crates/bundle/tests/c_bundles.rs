//! C bundles of the CPU arena, honest and hostile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_bundle::inspect::NotSwappable;
use cacheon_bundle::tree::Node;
use cacheon_bundle::{Abi, Bundle, Rule, TargetKind, TargetRow, Tree, inspect};
use cacheon_identity::sha256;
use std::collections::BTreeSet;

const MANIFEST: &str = r#"bundle_id = "packed"
abi_version = "cacheon-c-abi-v1"

[[ops]]
slot = "linear.quantized"
source = "kernels/k.c"
entry = "packed"
c_sources = ["kernels/k.c", "kernels/k.h"]
metadata = "metadata/k.json"
"#;

const SOURCE: &str = "#include \"cacheon_kernel.h\"\n#include \"k.h\"\n#include <immintrin.h>\n\
    CACHEON_EXPORT void packed_run(const void *s, const cacheon_linear *c, const float *x, float *o, void *w) {}\n";

fn tree(files: &[(&str, &str)]) -> Tree {
    let mut all = vec![
        ("manifest.toml", MANIFEST),
        ("kernels/k.c", SOURCE),
        ("kernels/k.h", "#pragma once\n"),
        (
            "metadata/k.json",
            r#"{"quant": ["q4_1"], "capabilities": {"phase": "decode"}, "max_num_tokens": 1}"#,
        ),
    ];
    all.retain(|(path, _)| !files.iter().any(|(other, _)| other == path));
    all.extend_from_slice(files);
    let nodes = all.into_iter().map(|(path, text)| (path.to_owned(), Node::File(text.as_bytes().into())));
    Tree::from_nodes(nodes).unwrap()
}

fn bundle(files: &[(&str, &str)]) -> Bundle {
    Bundle::from_tree(tree(files)).unwrap()
}

fn catalog() -> Vec<TargetRow> {
    vec![TargetRow {
        id: "linear.quantized".into(),
        kind: TargetKind::Slot,
        members: BTreeSet::from(["linear.quantized".to_owned()]),
        features: ["entry", "variants", "c_sources"].map(str::to_owned).into(),
        spec_digest: sha256(b"spec"),
    }]
}

fn rules(source: &str) -> Vec<Rule> {
    let whole = format!("{SOURCE}{source}\n");
    bundle(&[("kernels/k.c", &whole)]).scan().findings().iter().map(|finding| finding.rule).collect()
}

#[test]
fn an_honest_bundle_is_clean_resolves_and_swaps() {
    let bundle = bundle(&[("README.md", "hello"), ("LICENSE", "x")]);
    let report = bundle.scan();
    assert!(report.ok() && report.findings().is_empty(), "{report:?}");
    assert_eq!(bundle.manifest().abi, Abi::C);
    let seen = inspect(&bundle, &catalog()).unwrap();
    assert_eq!(seen.target_id, "linear.quantized");
    assert_eq!(seen.c_files, ["kernels/k.c", "kernels/k.h"]);
    assert_eq!(seen.features, ["c_sources", "entry"].map(str::to_owned).into());
    assert_eq!(seen.swappable, Ok::<(), NotSwappable>(()));
    let text = "{\n  \"capabilities\": {\n    \"phase\": {\n      \"exact\": \"decode\"\n    }\n  },\n  \
                \"max_num_tokens\": 1,\n  \"quant\": [\n    \"q4_1\"\n  ]\n}\n";
    assert_eq!(seen.metadata["metadata/k.json"], text);
    assert_eq!(seen.variants.len(), 1);
}

#[test]
fn identity_follows_what_the_referee_builds_and_nothing_else() {
    let base = inspect(&bundle(&[]), &catalog()).unwrap();
    let readme = inspect(&bundle(&[("README.md", "other")]), &catalog()).unwrap();
    assert_eq!(base.selected_delta_digest, readme.selected_delta_digest);
    let spaced = inspect(
        &bundle(&[(
            "metadata/k.json",
            r#"{"max_num_tokens":1,"quant":["Q4-1"],"capabilities":{"phase":["decode"]}}"#,
        )]),
        &catalog(),
    );
    assert_eq!(base.selected_delta_digest, spaced.unwrap().selected_delta_digest);
    let header = inspect(&bundle(&[("kernels/k.h", "#pragma once\n\n")]), &catalog()).unwrap();
    assert_ne!(base.selected_payload_digest, header.selected_payload_digest);
}

#[test]
fn the_manifest_keeps_to_the_c_contract() {
    let refused = |from: &str, to: &str| {
        assert!(MANIFEST.contains(from), "{from}");
        let manifest = MANIFEST.replace(from, to);
        Bundle::from_tree(tree(&[("manifest.toml", &manifest)])).unwrap_err()
    };
    assert_eq!(refused("entry = \"packed\"", "entry = \"größe\"").rule, Rule::ManifestField);
    assert_eq!(refused("entry = \"packed\"", "entry = \"int\"").rule, Rule::ManifestField);
    assert_eq!(refused("c_sources = [\"kernels/k.c\", \"kernels/k.h\"]\n", "").rule, Rule::ManifestField);
    assert_eq!(refused("[\"kernels/k.c\", ", "[").rule, Rule::ManifestField);
    assert_eq!(refused("kernels/k.h\"]", "../k.h\"]").rule, Rule::Path);
    assert_eq!(refused("kernels/k.h\"]", "metadata/k.json\"]").rule, Rule::Path);
    for extra in ["prepare = \"p\"", "setup = \"s\"", "cuda_sources = []", "dtypes = [\"float32\"]"] {
        let finding = refused("entry = \"packed\"", &format!("entry = \"packed\"\n{extra}"));
        assert_eq!(finding.rule, Rule::ManifestField, "{extra}");
        assert_eq!(finding.place.line, Some(8), "{extra}");
    }
}

#[test]
fn c_sources_mean_nothing_under_the_python_abi() {
    let manifest = MANIFEST.replace("cacheon-c-abi-v1", "cacheon-op-abi-v0");
    let bundle = bundle(&[("manifest.toml", &manifest)]);
    assert!(bundle.manifest().features().contains("op_extra:c_sources"));
    assert_eq!(inspect(&bundle, &catalog()).unwrap_err().rule, Rule::Target);
}

#[test]
fn includes_are_closed() {
    for source in [
        "#include <stdio.h>",
        "#include </etc/passwd>",
        "#include \"/etc/passwd\"",
        "#include \"../../x.h\"",
        "#include \"other.h\"",
        "#include \"k.c\"",
        "#include HEADER",
        "#include <math.h> junk",
        "#include",
        "#include_next <math.h>",
        "#import <math.h>",
        "#embed \"k.h\"",
        "%:include <stdio.h>",
        "#inc\\\nlude <stdio.h>",
        "/* x */ # /* y */ include <stdio.h>",
        "#include \"sub/cacheon_kernel.h\"",
        "void f(void) { __asm__(\".inc\" \"bin \\\"/etc/passwd\\\"\"); }",
    ] {
        assert_eq!(rules(source), [Rule::CInclude], "{source}");
    }
    for source in [
        "#include <math.h>",
        "#include \"math.h\"",
        "#include <cacheon_kernel.h>",
        "// #include <stdio.h>",
        "/*\n#include <stdio.h>\n*/",
        "const char *s = \"#include <stdio.h>\";",
        "#include \"../kernels/k.h\"",
    ] {
        assert_eq!(rules(source), [], "{source}");
    }
}

#[test]
fn constructs_that_escape_the_contract_are_refused() {
    for source in [
        "__attribute__((constructor)) void f(void) {}",
        "[[gnu::destructor]] void f(void) {}",
        "#define A __attribute__((__constructor__))",
        "__attribute__((section(\".init_array\"))) void *p;",
        "void _init(void) {}",
        "__asm__(\".section .init_array\");",
        "__asm__(\"nop; .byte 0x0f, 0x05\");",
        "#define T \"syscall\"\nvoid f(void) { __asm__ volatile (T); }",
        "int x = __has_include(<stdio.h>);",
        "const char *d = __DATE__;",
        "#pragma redefine_extname a b",
        "#pragma GCC dependency \"k.h\"",
        "#line 7",
        "#ident \"x\"",
        "_Pragma(\"once\")",
        "??=include <stdio.h>",
        "char *s = R\"(",
        "/* open",
        "int a = '",
    ] {
        assert_eq!(rules(source), [Rule::CConstruct], "{source}");
    }
    for source in [
        "#pragma GCC unroll 4",
        "#pragma GCC diagnostic push",
        "void f(void) { __asm__ volatile (\"1: dec %0\\n\\t.p2align 4\\njnz 1b\" : \"+r\"(x) : : \"cc\"); }",
        "__attribute__((aligned(64), always_inline)) static int section = 1;",
        "#define CAT(a, b) a##b",
        "#error no AVX2",
    ] {
        assert_eq!(rules(source), [], "{source}");
    }
}

#[test]
fn what_the_sandbox_denies_is_advice() {
    for source in [
        "void f(void) { __asm__ volatile (\"syscall\"); }",
        "void f(void) { fork(); }",
        "void f(void) { socket(2, 1, 0); }",
        "int n = SYS_write;",
    ] {
        assert_eq!(rules(source), [Rule::CAdvice], "{source}");
        let whole = format!("{SOURCE}{source}\n");
        assert!(bundle(&[("kernels/k.c", &whole)]).scan().ok(), "{source}");
    }
    let silent = bundle(&[("kernels/k.c", "void other(void) {}\n")]).scan();
    assert_eq!(silent.findings().iter().map(|finding| finding.rule).collect::<Vec<_>>(), [Rule::CSymbol]);
}

#[test]
fn findings_name_line_and_column() {
    let report =
        bundle(&[("kernels/k.c", "int a;\n  /* é */ fork(); \\\n#include <x.h>\n\t#include <y.h>\n")]).scan();
    let places: Vec<_> = report
        .findings()
        .iter()
        .filter(|finding| finding.place.file.as_deref() == Some("kernels/k.c"))
        .map(|finding| (finding.rule, finding.place.line, finding.place.column))
        .collect();
    // The second `#` follows a continuation: it is in the middle of a line and no directive.
    assert_eq!(places, [(Rule::CAdvice, Some(2), Some(11)), (Rule::CInclude, Some(4), Some(11))]);
}

#[test]
fn stray_files_are_found() {
    for (path, rule) in [
        ("kernels/other.c", Rule::UndeclaredC),
        ("kernels/other.h", Rule::UndeclaredC),
        ("kernels/k.o", Rule::Binary),
        ("kernels/k.so", Rule::Binary),
        ("kernels/k.py", Rule::UnsanctionedFile),
        ("kernels/k.S", Rule::UnsanctionedFile),
        ("data.json", Rule::UnsanctionedFile),
    ] {
        let report = bundle(&[(path, "int x;\n")]).scan();
        let found: Vec<_> = report.findings().iter().map(|finding| finding.rule).collect();
        assert_eq!(found, [rule], "{path}");
    }
    let own = MANIFEST.replace("kernels/k.h\"]", "kernels/cacheon_kernel.h\"]");
    let report = bundle(&[("manifest.toml", &own), ("kernels/cacheon_kernel.h", "")]).scan();
    assert!(report.errors().any(|finding| finding.rule == Rule::CInclude));
}

#[test]
fn links_and_special_nodes_are_refused_on_inspection() {
    for node in [Node::Link(b"kernels/k.c".to_vec()), Node::Special] {
        let mut nodes: Vec<(String, Node)> =
            tree(&[]).nodes().map(|(path, node)| (path.to_owned(), node.clone())).collect();
        nodes.push(("kernels/l.c".into(), node.clone()));
        let bundle = Bundle::from_tree(Tree::from_nodes(nodes).unwrap()).unwrap();
        let rule = if node == Node::Special { Rule::SpecialNode } else { Rule::Symlink };
        assert_eq!(inspect(&bundle, &catalog()).unwrap_err().rule, rule);
    }
}

#[test]
fn variants_must_be_told_apart() {
    let second = "\n[[ops]]\nslot = \"linear.quantized\"\nvariant = \"b\"\nsource = \"kernels/k.c\"\nentry = \"packed\"\n\
                  c_sources = [\"kernels/k.c\", \"kernels/k.h\"]\nmetadata = \"metadata/b.json\"\n";
    let manifest = MANIFEST.replace("slot =", "variant = \"a\"\nslot =") + second;
    let with = |metadata: &str| {
        inspect(&bundle(&[("manifest.toml", &manifest), ("metadata/b.json", metadata)]), &catalog())
    };
    assert_eq!(with(r#"{"quant":["q8_0"]}"#).unwrap().variants.len(), 2);
    assert_eq!(with(r#"{"quant":["q8_0"]}"#).unwrap().features.len(), 3);
    assert_eq!(with(r#"{"min_num_tokens":1}"#).unwrap_err().rule, Rule::Domain);
    assert_eq!(with(r#"{"min_num_tokens":2,"max_num_tokens":1}"#).unwrap_err().rule, Rule::Metadata);
}
