//! The words the C rules know.

/// The header that the build provides; no bundle may bring its own.
pub const HEADER: &str = "cacheon_kernel.h";

/// Headers of the C library and compiler that a kernel may include.
pub const SYSTEM_HEADERS: [&str; 33] = [
    "arm_acle.h",
    "arm_neon.h",
    "arm_sve.h",
    "assert.h",
    "complex.h",
    "ctype.h",
    "emmintrin.h",
    "errno.h",
    "fenv.h",
    "float.h",
    "immintrin.h",
    "inttypes.h",
    "iso646.h",
    "limits.h",
    "math.h",
    "nmmintrin.h",
    "pmmintrin.h",
    "smmintrin.h",
    "stdalign.h",
    "stdarg.h",
    "stdatomic.h",
    "stdbool.h",
    "stddef.h",
    "stdint.h",
    "stdlib.h",
    "stdnoreturn.h",
    "string.h",
    "tgmath.h",
    "tmmintrin.h",
    "wchar.h",
    "wmmintrin.h",
    "x86intrin.h",
    "xmmintrin.h",
];

/// Whether the text is a C keyword (C23 spelling included).
#[must_use]
pub fn is_keyword(text: &str) -> bool {
    matches!(
        text,
        "alignas"
            | "alignof"
            | "auto"
            | "bool"
            | "break"
            | "case"
            | "char"
            | "const"
            | "constexpr"
            | "continue"
            | "default"
            | "do"
            | "double"
            | "else"
            | "enum"
            | "extern"
            | "false"
            | "float"
            | "for"
            | "goto"
            | "if"
            | "inline"
            | "int"
            | "long"
            | "nullptr"
            | "register"
            | "restrict"
            | "return"
            | "short"
            | "signed"
            | "sizeof"
            | "static"
            | "static_assert"
            | "struct"
            | "switch"
            | "thread_local"
            | "true"
            | "typedef"
            | "typeof"
            | "typeof_unqual"
            | "union"
            | "unsigned"
            | "void"
            | "volatile"
            | "while"
            | "asm"
    )
}

/// Directives a kernel may use; `include` has rules of its own, `pragma` a list.
pub(super) const DIRECTIVES: [&str; 14] = [
    "define", "undef", "if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "error",
    "warning", "pragma", "include",
];

/// First words of the pragmas a kernel may use, and the second word where the first is a family (`*` = any).
pub(super) const PRAGMAS: [(&str, &str); 15] = [
    ("once", ""),
    ("STDC", "*"),
    ("omp", "simd"),
    ("omp", "declare"),
    ("GCC", "ivdep"),
    ("GCC", "unroll"),
    ("GCC", "optimize"),
    ("GCC", "target"),
    ("GCC", "push_options"),
    ("GCC", "pop_options"),
    ("GCC", "reset_options"),
    ("GCC", "diagnostic"),
    ("clang", "loop"),
    ("clang", "fp"),
    ("clang", "diagnostic"),
];

/// Identifiers that are refused wherever they stand, and why.
pub(super) const REFUSED: [(&str, &str); 21] = [
    ("constructor", "runs code when the object is loaded"),
    ("__constructor__", "runs code when the object is loaded"),
    ("destructor", "runs code when the object is unloaded"),
    ("__destructor__", "runs code when the object is unloaded"),
    ("ifunc", "runs a resolver when the object is loaded"),
    ("__ifunc__", "runs a resolver when the object is loaded"),
    ("_init", "runs code when the object is loaded"),
    ("_fini", "runs code when the object is unloaded"),
    ("_start", "is the entry point of a program, not of a kernel"),
    ("__preinit_array_start", "names the loader's own table"),
    ("__init_array_start", "names the loader's own table"),
    ("__init_array_end", "names the loader's own table"),
    ("__has_include", "makes the build depend on files outside the bundle"),
    ("__has_include_next", "makes the build depend on files outside the bundle"),
    ("__has_embed", "makes the build depend on files outside the bundle"),
    ("__DATE__", "makes two builds differ"),
    ("__TIME__", "makes two builds differ"),
    ("__TIMESTAMP__", "makes two builds differ"),
    ("_Pragma", "write #pragma on a line of its own"),
    ("__asm_goto", "is not a C construct"),
    ("__builtin_return_address", "reads the engine's stack"),
];

/// Functions that the sandbox denies at run time: advice when called.
pub(super) const DENIED_CALLS: [&str; 60] = [
    "syscall",
    "fork",
    "vfork",
    "clone",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execvp",
    "posix_spawn",
    "system",
    "popen",
    "socket",
    "connect",
    "bind",
    "listen",
    "accept",
    "send",
    "sendto",
    "sendmsg",
    "recv",
    "recvfrom",
    "recvmsg",
    "open",
    "openat",
    "creat",
    "fopen",
    "freopen",
    "fdopen",
    "unlink",
    "rename",
    "mkdir",
    "opendir",
    "kill",
    "tgkill",
    "raise",
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "atexit",
    "on_exit",
    "ptrace",
    "prctl",
    "ioctl",
    "mprotect",
    "dlopen",
    "dlsym",
    "pthread_create",
    "thrd_create",
    "signal",
    "sigaction",
    "setjmp",
    "longjmp",
    "setuid",
    "setgid",
    "getenv",
    "process_vm_writev",
];

/// Assembler directives that change nothing but alignment.
pub(super) const ASM_DIRECTIVES: [&str; 4] = [".p2align", ".align", ".balign", ".loc"];

/// Instructions that enter the kernel or cannot run in user space: advice.
pub(super) const ASM_SYSTEM: [&str; 9] =
    ["syscall", "sysenter", "int", "svc", "hlt", "in", "out", "wrmsr", "rdmsr"];
