//! A strict reader of the shared objects that the prebuild container makes from hostile sources.
//!
//! It is run on the host before anything is loaded anywhere. It accepts the one shape our pinned flags produce and
//! refuses the rest by name: an object is data until it has passed here, and code only inside an engine process.

use std::collections::BTreeSet;

/// Largest object, bytes.
pub const MAX_OBJECT: usize = 64 << 20;
const MAX_SEGMENTS: usize = 32;
const MAX_DYNAMIC: usize = 256;
const MAX_SYMBOLS: usize = 16_384;
const MAX_NAME: usize = 256;
const PAGE: u64 = 4096;
const MAX_RELOCATIONS: u64 = 1 << 20;
const MAX_TLS: u64 = 64 << 10;
/// Largest memory image beyond the file (zero-initialised data), bytes.
const MAX_IMAGE: u64 = 256 << 20;

/// What an object is allowed to be.
#[derive(Debug, Clone)]
pub struct ElfPolicy<'a> {
    /// Symbols it must export, and the only ones it may.
    pub required: &'a BTreeSet<String>,
    /// Symbols it may export beside those.
    pub optional: &'a BTreeSet<String>,
    /// Libraries it may name as needed, for example `libm.so.6`.
    pub libraries: &'a [&'a str],
}

/// What an accepted object says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfFacts {
    /// Exported symbols, sorted.
    pub exports: Vec<String>,
    /// Imported symbols, sorted. Advice for people, never a verdict.
    pub imports: Vec<String>,
    /// Needed libraries, in order.
    pub needed: Vec<String>,
    /// Bytes the object occupies once mapped.
    pub image_bytes: u64,
}

/// Why an object was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// The file is not what it says, or points outside itself.
    #[error("not a well-formed shared object: {0}")]
    Malformed(&'static str),
    /// Another machine, class or type.
    #[error("not an x86-64 shared object: {0}")]
    Kind(&'static str),
    /// Something our flags never produce.
    #[error("the object has {0}")]
    Forbidden(&'static str),
    /// It needs a library that is not there.
    #[error("the object needs {0}, which engine containers do not have; only libc and libm may be used")]
    Library(String),
    /// A declared entry is missing.
    #[error(
        "the object does not export {0}; define it with CACHEON_EXPORT, or correct `entry` in manifest.toml"
    )]
    Missing(String),
    /// It exports something that was not declared.
    #[error("the object exports {0}, which no entry in manifest.toml declares; make it static or hidden")]
    Undeclared(String),
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn slice(&self, at: u64, len: u64) -> Result<&'a [u8], ElfError> {
        let end = at.checked_add(len).ok_or(ElfError::Malformed("an offset overflows"))?;
        let (at, end) = (usize::try_from(at), usize::try_from(end));
        match (at, end) {
            (Ok(at), Ok(end)) => self.0.get(at..end),
            _ => None,
        }
        .ok_or(ElfError::Malformed("an offset lies outside the file"))
    }

    fn array<const N: usize>(&self, at: u64) -> Result<[u8; N], ElfError> {
        let slice = self.slice(at, N as u64)?;
        slice.try_into().map_err(|_| ElfError::Malformed("an offset lies outside the file"))
    }

    fn u16(&self, at: u64) -> Result<u16, ElfError> {
        Ok(u16::from_le_bytes(self.array(at)?))
    }

    fn u32(&self, at: u64) -> Result<u32, ElfError> {
        Ok(u32::from_le_bytes(self.array(at)?))
    }

    fn u64(&self, at: u64) -> Result<u64, ElfError> {
        Ok(u64::from_le_bytes(self.array(at)?))
    }
}

#[derive(Clone, Copy)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;
const PT_TLS: u32 = 7;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_STACK: u32 = 0x6474_e551;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const PT_GNU_PROPERTY: u32 = 0x6474_e553;
const WRITE_EXECUTE: u32 = 3;

/// Reads and checks an object.
///
/// # Errors
/// The first rule it breaks.
pub fn inspect(object: &[u8], policy: &ElfPolicy<'_>) -> Result<ElfFacts, ElfError> {
    if object.len() > MAX_OBJECT {
        return Err(ElfError::Forbidden("more than 64 MiB"));
    }
    let bytes = Bytes(object);
    header(&bytes)?;
    let segments = segments(&bytes)?;
    let image_bytes = check_segments(&segments)?;
    let dynamic = dynamic(&bytes, &segments)?;
    let needed = dynamic.needed(&bytes)?;
    if let Some(foreign) = needed.iter().find(|name| !policy.libraries.contains(&name.as_str())) {
        return Err(ElfError::Library(foreign.clone()));
    }
    check_relocations(&bytes, &dynamic)?;
    let (exports, imports) = symbols(&bytes, &dynamic)?;
    if let Some(missing) = policy.required.difference(&exports).next() {
        return Err(ElfError::Missing(missing.clone()));
    }
    let declared = |name: &&String| policy.required.contains(*name) || policy.optional.contains(*name);
    if let Some(extra) = exports.iter().find(|name| !declared(name)) {
        return Err(ElfError::Undeclared(extra.clone()));
    }
    let (exports, imports) = (exports.into_iter().collect(), imports.into_iter().collect());
    Ok(ElfFacts { exports, imports, needed, image_bytes })
}

fn header(bytes: &Bytes<'_>) -> Result<(), ElfError> {
    let ident: [u8; 16] = bytes.array(0)?;
    if ident[..4] != *b"\x7fELF" {
        return Err(ElfError::Malformed("no ELF header"));
    }
    let rules = [
        (ident[4] == 2, "not 64-bit"),
        (ident[5] == 1, "not little-endian"),
        (matches!(ident[7], 0 | 3), "another operating system"),
        (bytes.u16(16)? == 3, "not a shared object"),
        (bytes.u16(18)? == 62, "another machine"),
    ];
    if let Some((_, what)) = rules.into_iter().find(|(holds, _)| !holds) {
        return Err(ElfError::Kind(what));
    }
    if ident[6] != 1 || bytes.u32(20)? != 1 || bytes.u16(52)? != 64 || bytes.u16(54)? != 56 {
        return Err(ElfError::Malformed("unusual header sizes or version"));
    }
    Ok(())
}

fn segments(bytes: &Bytes<'_>) -> Result<Vec<Segment>, ElfError> {
    let (start, count) = (bytes.u64(32)?, usize::from(bytes.u16(56)?));
    if count == 0 || count > MAX_SEGMENTS {
        return Err(ElfError::Malformed("no segments, or more than 32"));
    }
    (0..count as u64)
        .map(|index| {
            let at = start.checked_add(index * 56).ok_or(ElfError::Malformed("an offset overflows"))?;
            let segment = Segment {
                kind: bytes.u32(at)?,
                flags: bytes.u32(at + 4)?,
                offset: bytes.u64(at + 8)?,
                address: bytes.u64(at + 16)?,
                file_bytes: bytes.u64(at + 32)?,
                memory_bytes: bytes.u64(at + 40)?,
            };
            bytes.slice(segment.offset, segment.file_bytes)?;
            if segment.memory_bytes < segment.file_bytes {
                return Err(ElfError::Malformed("a segment is larger in the file than in memory"));
            }
            Ok(segment)
        })
        .collect()
}

/// Checks every segment; returns the size of the mapped image.
fn check_segments(segments: &[Segment]) -> Result<u64, ElfError> {
    let mut end = 0u64;
    let mut stack = false;
    for segment in segments {
        match segment.kind {
            PT_LOAD => {
                if segment.address % PAGE != segment.offset % PAGE {
                    return Err(ElfError::Malformed("a segment is not congruent with its place in the file"));
                }
                if segment.flags & WRITE_EXECUTE == WRITE_EXECUTE {
                    return Err(ElfError::Forbidden("a segment that is both writable and executable"));
                }
                if segment.address < end {
                    return Err(ElfError::Malformed("load segments overlap or are out of order"));
                }
                end = segment
                    .address
                    .checked_add(segment.memory_bytes)
                    .ok_or(ElfError::Malformed("an address overflows"))?;
            }
            PT_INTERP => return Err(ElfError::Forbidden("an interpreter")),
            PT_TLS if segment.memory_bytes > MAX_TLS => {
                return Err(ElfError::Forbidden("more than 64 KiB of thread-local storage"));
            }
            PT_GNU_STACK if segment.flags & 1 != 0 => return Err(ElfError::Forbidden("an executable stack")),
            PT_GNU_STACK => stack = true,
            PT_DYNAMIC | PT_NOTE | PT_PHDR | PT_TLS | PT_GNU_EH_FRAME | PT_GNU_RELRO | PT_GNU_PROPERTY => {}
            _ => return Err(ElfError::Forbidden("a segment of an unknown kind")),
        }
    }
    if !stack {
        return Err(ElfError::Forbidden("no statement that its stack is not executable"));
    }
    if end > MAX_IMAGE {
        return Err(ElfError::Forbidden("more than 256 MiB of mapped image"));
    }
    Ok(end)
}

struct Dynamic {
    strings: (u64, u64),
    symbols: u64,
    hash: u64,
    gnu_hash: u64,
    needed: Vec<u64>,
    /// Relocation tables: file offset and bytes.
    relocations: Vec<(u64, u64)>,
}

impl Dynamic {
    fn needed(&self, bytes: &Bytes<'_>) -> Result<Vec<String>, ElfError> {
        self.needed.iter().map(|offset| self.name(bytes, *offset)).collect()
    }

    fn name(&self, bytes: &Bytes<'_>, offset: u64) -> Result<String, ElfError> {
        let (start, len) = self.strings;
        let left =
            len.checked_sub(offset).ok_or(ElfError::Malformed("a name lies outside the string table"))?;
        let text = bytes.slice(start + offset, left.min(MAX_NAME as u64))?;
        let end =
            text.iter().position(|byte| *byte == 0).ok_or(ElfError::Malformed("a name is not terminated"))?;
        let text =
            std::str::from_utf8(&text[..end]).map_err(|_| ElfError::Malformed("a name is not UTF-8"))?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ElfError::Malformed("an empty or unprintable name"));
        }
        Ok(text.to_owned())
    }
}

/// File offset of an address, through the load segments.
fn file_offset(segments: &[Segment], address: u64) -> Result<u64, ElfError> {
    segments
        .iter()
        .filter(|segment| segment.kind == PT_LOAD)
        .find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.file_bytes).then_some(segment.offset + within)
        })
        .ok_or(ElfError::Malformed("a table lies outside the load segments"))
}

fn dynamic(bytes: &Bytes<'_>, segments: &[Segment]) -> Result<Dynamic, ElfError> {
    let mut tables = segments.iter().filter(|segment| segment.kind == PT_DYNAMIC);
    let (Some(table), None) = (tables.next(), tables.next()) else {
        return Err(ElfError::Malformed("no dynamic section, or two"));
    };
    if table.file_bytes % 16 != 0 || table.file_bytes / 16 > MAX_DYNAMIC as u64 {
        return Err(ElfError::Malformed("an unusual dynamic section"));
    }
    let (mut strings, mut string_bytes, mut symbols, mut hash, mut gnu_hash) = (None, None, None, 0, 0);
    // The loader finds the table by its address, this reader by its offset: they must be the same bytes.
    if file_offset(segments, table.address)? != table.offset {
        return Err(ElfError::Malformed("the dynamic section is not where its address says"));
    }
    let mut needed = Vec::new();
    let (mut rela, mut rela_bytes, mut plt, mut plt_bytes) = (None, 0, None, 0);
    for index in 0..table.file_bytes / 16 {
        let at = table.offset + index * 16;
        let (tag, value) = (bytes.u64(at)?, bytes.u64(at + 8)?);
        match tag {
            0 => break,
            1 => needed.push(value),
            4 => hash = file_offset(segments, value)?,
            5 => strings = Some(file_offset(segments, value)?),
            2 => plt_bytes = value,
            7 => rela = Some(file_offset(segments, value)?),
            8 => rela_bytes = value,
            23 => plt = Some(file_offset(segments, value)?),
            17 | 18 => return Err(ElfError::Forbidden("relocations without addends")),
            6 => symbols = Some(file_offset(segments, value)?),
            10 => string_bytes = Some(value),
            12 | 13 => return Err(ElfError::Forbidden("an initialiser or finaliser of its own")),
            25 | 26 | 32 => return Err(ElfError::Forbidden("constructors or destructors")),
            15 | 29 => return Err(ElfError::Forbidden("a library search path")),
            22 => return Err(ElfError::Forbidden("text relocations")),
            30 if value & 4 != 0 => return Err(ElfError::Forbidden("text relocations")),
            0x6fff_fef5 => gnu_hash = file_offset(segments, value)?,
            0x6fff_fefb | 0x6fff_fefc | 0x7fff_fffd | 0x7fff_ffff => {
                return Err(ElfError::Forbidden("an audit, filter or auxiliary library"));
            }
            _ => {}
        }
    }
    match (strings, string_bytes, symbols) {
        (Some(strings), Some(string_bytes), Some(symbols)) => {
            bytes.slice(strings, string_bytes)?;
            let relocations = [rela.map(|at| (at, rela_bytes)), plt.map(|at| (at, plt_bytes))];
            let relocations = relocations.into_iter().flatten().collect();
            Ok(Dynamic { strings: (strings, string_bytes), symbols, hash, gnu_hash, needed, relocations })
        }
        _ => Err(ElfError::Malformed("no symbol or string table")),
    }
}

/// Refuses relocations that call code while the object is being loaded.
fn check_relocations(bytes: &Bytes<'_>, dynamic: &Dynamic) -> Result<(), ElfError> {
    for (start, len) in &dynamic.relocations {
        if len % 24 != 0 || len / 24 > MAX_RELOCATIONS {
            return Err(ElfError::Malformed("an unusual relocation table"));
        }
        bytes.slice(*start, *len)?;
        for index in 0..len / 24 {
            // R_X86_64_IRELATIVE
            if bytes.u32(start + index * 24 + 8)? == 37 {
                return Err(ElfError::Forbidden("an indirect function, resolved by code at load time"));
            }
        }
    }
    Ok(())
}

/// Symbols in the table: from the classic hash table, or from the end of the last chain of the GNU one.
fn symbol_count(bytes: &Bytes<'_>, dynamic: &Dynamic) -> Result<u64, ElfError> {
    let count = if dynamic.hash != 0 {
        u64::from(bytes.u32(dynamic.hash + 4)?)
    } else if dynamic.gnu_hash != 0 {
        gnu_symbol_count(bytes, dynamic.gnu_hash)?
    } else {
        return Err(ElfError::Malformed("no symbol hash table"));
    };
    if count > MAX_SYMBOLS as u64 { Err(ElfError::Malformed("more than 16384 symbols")) } else { Ok(count) }
}

fn gnu_symbol_count(bytes: &Bytes<'_>, at: u64) -> Result<u64, ElfError> {
    let (buckets, first, bloom) = (bytes.u32(at)?, bytes.u32(at + 4)?, bytes.u32(at + 8)?);
    let excessive = ElfError::Malformed("more than 16384 symbols");
    if buckets as usize > MAX_SYMBOLS || bloom as usize > MAX_SYMBOLS || first as usize > MAX_SYMBOLS {
        return Err(excessive);
    }
    let table = at + 16 + u64::from(bloom) * 8;
    let mut last = 0u32;
    for bucket in 0..u64::from(buckets) {
        last = last.max(bytes.u32(table + bucket * 4)?);
    }
    if last < first {
        return Ok(u64::from(first));
    }
    let chains = table + u64::from(buckets) * 4;
    for index in last..MAX_SYMBOLS as u32 {
        if bytes.u32(chains + u64::from(index - first) * 4)? & 1 != 0 {
            return Ok(u64::from(index) + 1);
        }
    }
    Err(excessive)
}

fn symbols(bytes: &Bytes<'_>, dynamic: &Dynamic) -> Result<(BTreeSet<String>, BTreeSet<String>), ElfError> {
    let (mut exports, mut imports) = (BTreeSet::new(), BTreeSet::new());
    for index in 1..symbol_count(bytes, dynamic)? {
        let at = dynamic.symbols + index * 24;
        let name = dynamic.name(bytes, u64::from(bytes.u32(at)?))?;
        let [info, other] = bytes.array(at + 4)?;
        let (section, binding, kind) = (bytes.u16(at + 6)?, info >> 4, info & 15);
        if section == 0 {
            imports.insert(name);
            continue;
        }
        if kind == 10 {
            return Err(ElfError::Forbidden("an indirect function, resolved by code at load time"));
        }
        if binding != 0 && matches!(other & 3, 0 | 3) {
            exports.insert(name);
        }
    }
    Ok((exports, imports))
}

/// What a program of the host needs to be loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The loader named by the program, if it is dynamically linked.
    pub(crate) interpreter: Option<String>,
    /// Needed libraries, in order.
    pub(crate) libraries: Vec<String>,
}

/// Reads the needs of a trusted program or library of the host; `None` when it is no dynamic ELF file.
pub(crate) fn dependencies(object: &[u8]) -> Option<Needs> {
    let bytes = Bytes(object);
    if object.get(..4)? != b"\x7fELF" {
        return None;
    }
    let segments = segments(&bytes).ok()?;
    let interpreter = segments.iter().find(|segment| segment.kind == PT_INTERP).and_then(|segment| {
        let text = bytes.slice(segment.offset, segment.file_bytes).ok()?;
        String::from_utf8(text.strip_suffix(b"\0")?.to_vec()).ok()
    });
    let table = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let (mut strings, mut string_bytes, mut needed) = (0, 0, Vec::new());
    for index in 0..(table.file_bytes / 16).min(MAX_DYNAMIC as u64) {
        let at = table.offset + index * 16;
        match (bytes.u64(at).ok()?, bytes.u64(at + 8).ok()?) {
            (0, _) => break,
            (1, value) => needed.push(value),
            (5, value) => strings = file_offset(&segments, value).ok()?,
            (10, value) => string_bytes = value,
            _ => {}
        }
    }
    let names = Dynamic {
        strings: (strings, string_bytes),
        symbols: 0,
        hash: 0,
        gnu_hash: 0,
        needed,
        relocations: Vec::new(),
    };
    Some(Needs { interpreter, libraries: names.needed(&bytes).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn compile(source: &str, flags: &[&str]) -> Option<Vec<u8>> {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        let (input, output) = (folder.join("k.c"), folder.join("k.so"));
        std::fs::write(&input, source).unwrap();
        let status = Command::new("cc")
            .args(["-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-nostartfiles", "-Wl,-z,noexecstack"])
            .args(flags)
            .arg(&input)
            .arg("-o")
            .arg(&output)
            .args(["-lm"])
            .status();
        status.ok()?.success().then(|| std::fs::read(&output).unwrap())
    }

    const GOOD: &str = "#include <math.h>\n__attribute__((visibility(\"default\"))) void k_run(float *x) { *x = expf(*x); }\n";

    fn check(object: &[u8]) -> Result<ElfFacts, ElfError> {
        let required = BTreeSet::from(["k_run".to_owned()]);
        let optional = BTreeSet::from(["k_prepare".to_owned()]);
        let libraries = &["libc.so.6", "libm.so.6"];
        inspect(object, &ElfPolicy { required: &required, optional: &optional, libraries })
    }

    #[test]
    fn the_shape_our_flags_produce_is_accepted() {
        let facts = check(&compile(GOOD, &[]).unwrap()).unwrap();
        assert_eq!(facts.exports, ["k_run"]);
        assert!(facts.imports.iter().any(|name| name.contains("expf")), "{facts:?}");
        assert!(facts.needed.iter().any(|name| name == "libm.so.6"), "{facts:?}");
    }

    #[test]
    fn each_hostile_shape_is_refused_by_name() {
        let constructor = format!(
            "{GOOD}static volatile int n; __attribute__((constructor)) static void c(void) {{ n++; }}"
        );
        assert_eq!(
            check(&compile(&constructor, &[]).unwrap()),
            Err(ElfError::Forbidden("constructors or destructors"))
        );
        let stack = compile(GOOD, &["-Wl,-z,execstack"]).unwrap();
        assert_eq!(check(&stack), Err(ElfError::Forbidden("an executable stack")));
        let path = compile(GOOD, &["-Wl,-rpath,/tmp"]).unwrap();
        assert_eq!(check(&path), Err(ElfError::Forbidden("a library search path")));
        let extra = format!("{GOOD}__attribute__((visibility(\"default\"))) void expf_(void) {{}}");
        assert_eq!(check(&compile(&extra, &[]).unwrap()), Err(ElfError::Undeclared("expf_".into())));
        assert_eq!(
            check(&compile("static int k_run; int *p(void) { return &k_run; }", &[]).unwrap()),
            Err(ElfError::Missing("k_run".into()))
        );
        let ifunc = format!(
            "{GOOD}static int a(void) {{ return 1; }} static void *r(void) {{ return a; }}\n\
             __attribute__((visibility(\"default\"))) int k_prepare(void) __attribute__((ifunc(\"r\")));"
        );
        assert_eq!(
            check(&compile(&ifunc, &[]).unwrap()),
            Err(ElfError::Forbidden("an indirect function, resolved by code at load time"))
        );
    }

    #[test]
    fn a_hidden_indirect_function_is_refused_by_its_relocation() {
        let source = format!(
            "{GOOD}static int a(void) {{ return 1; }} static void *r(void) {{ return a; }}\n\
             static int f(void) __attribute__((ifunc(\"r\"))); int (*volatile g)(void) = f;"
        );
        assert_eq!(
            check(&compile(&source, &[]).unwrap()),
            Err(ElfError::Forbidden("an indirect function, resolved by code at load time"))
        );
    }

    #[test]
    fn truncated_and_flipped_objects_never_panic() {
        let object = compile(GOOD, &[]).unwrap();
        for end in (0..object.len()).step_by(97) {
            let _ = check(&object[..end]);
        }
        let mut flipped = object.clone();
        for at in (0..object.len().min(4096)).chain((4096..object.len()).step_by(13)) {
            flipped[at] ^= 0xff;
            let _ = check(&flipped);
            flipped[at] = object[at];
        }
    }
}
