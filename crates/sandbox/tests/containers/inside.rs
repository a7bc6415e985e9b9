//! What runs inside the test containers: small hostile programs.

use std::fs;
use std::io::{self, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

fn socket() -> UnixStream {
    // SAFETY: descriptor 3 is the container's socket and nothing else here uses it.
    unsafe { UnixStream::from_raw_fd(3) }
}

pub fn run(what: &str) -> ExitCode {
    let (verb, rest) = what.split_once('=').unwrap_or((what, ""));
    match verb {
        "hello" => writeln!(socket(), "hello").unwrap(),
        "sleep" => {
            writeln!(socket(), "up").unwrap();
            std::thread::sleep(Duration::from_secs(600));
        }
        "spin" => {
            writeln!(socket(), "up").unwrap();
            loop {
                std::hint::spin_loop();
            }
        }
        "exit" => return ExitCode::from(rest.parse::<u8>().unwrap()),
        "abort" => std::process::abort(),
        "facts" => facts(&mut socket()),
        "network" => network(&mut socket()),
        "forks" => forks(),
        "memory" => memory(),
        "flood" => flood(rest.parse().unwrap()),
        "writes" => writes(&mut socket()),
        "read" => {
            let text = fs::read(rest).map(|bytes| format!("{} bytes", bytes.len()));
            writeln!(socket(), "{}", text.unwrap_or_else(|e| e.to_string())).unwrap();
        }
        "environment" => {
            let text = fs::read("/proc/self/environ").unwrap();
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let mut socket = socket();
            writeln!(socket, "{}", String::from_utf8_lossy(&text).replace('\0', " ")).unwrap();
            for line in mounts.lines() {
                // Without the two mount numbers, which count up over the life of the machine.
                let fields: Vec<&str> = line.split(' ').skip(3).collect();
                writeln!(socket, "{}", fields.join(" ")).unwrap();
            }
            writeln!(socket, "{}", fs::read_to_string("/proc/self/cgroup").unwrap().replace('\n', " "))
                .unwrap();
        }
        "output" => {
            fs::write("/out/good", b"result").unwrap();
            std::os::unix::fs::symlink("/etc/passwd", "/out/link").unwrap();
            fs::create_dir("/out/folder").unwrap();
            let big = vec![0u8; 1 << 20];
            let mut file = fs::File::create("/out/big").unwrap();
            while file.write_all(&big).is_ok() {}
        }
        "daemon" => daemon(),
        other => panic!("unknown payload {other}"),
    }
    ExitCode::SUCCESS
}

fn status(field: &str) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(&format!("{field}:"))).unwrap_or("");
    line.split_once(':').map_or("", |(_, value)| value).trim().to_owned()
}

fn facts(out: &mut UnixStream) {
    let names = |dir: &str| {
        let mut names: Vec<String> = fs::read_dir(dir)
            .map(|entries| entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        names.sort();
        names.join(",")
    };
    for field in ["Uid", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"] {
        writeln!(out, "{field} {}", status(field)).unwrap();
    }
    writeln!(out, "pid {}", std::process::id()).unwrap();
    writeln!(out, "hostname {}", fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim()).unwrap();
    let interfaces = fs::read_to_string("/proc/net/dev").unwrap();
    let interfaces: Vec<&str> =
        interfaces.lines().skip(2).filter_map(|line| line.split(':').next().map(str::trim)).collect();
    writeln!(out, "interfaces {}", interfaces.join(",")).unwrap();
    writeln!(out, "root {}", names("/")).unwrap();
    writeln!(out, "fds {}", names("/proc/self/fd")).unwrap();
    let processes: Vec<String> =
        names("/proc").split(',').filter(|n| n.parse::<u32>().is_ok()).map(str::to_owned).collect();
    writeln!(out, "processes {}", processes.join(",")).unwrap();
    for kind in ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"] {
        let link = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        writeln!(out, "ns-{kind} {}", link.display()).unwrap();
    }
}

fn network(out: &mut UnixStream) {
    use std::net::{SocketAddr, TcpStream, UdpSocket};
    for address in ["127.0.0.1:22", "1.1.1.1:53", "169.254.169.254:80"] {
        let address: SocketAddr = address.parse().unwrap();
        let result = TcpStream::connect_timeout(&address, Duration::from_secs(2)).map(drop);
        writeln!(out, "tcp {address} {}", outcome(result)).unwrap();
    }
    let sent = UdpSocket::bind("0.0.0.0:0").and_then(|s| s.send_to(b"x", "1.1.1.1:53").map(drop));
    writeln!(out, "udp {}", outcome(sent)).unwrap();
}

fn outcome(result: io::Result<()>) -> String {
    result.map_or_else(|e| format!("refused: {e}"), |()| "REACHED".into())
}

fn forks() {
    let mut made = 0;
    // SAFETY: the process is single-threaded; children only pause.
    while unsafe { libc::fork() } > 0 {
        made += 1;
        if made > 10_000 {
            break;
        }
    }
    // Every process, parent and children, tries again and again.
    let mut socket = socket();
    let _ = writeln!(socket, "{made}");
    for _ in 0..1000 {
        // SAFETY: as above.
        unsafe { libc::fork() };
    }
    std::thread::sleep(Duration::from_secs(600));
}

fn memory() {
    let _ = writeln!(socket(), "up");
    let mut hoard: Vec<Vec<u8>> = Vec::new();
    loop {
        hoard.push(vec![1u8; 8 << 20]);
    }
}

fn flood(mib: usize) {
    let block = vec![b'\x1b'; 1 << 20];
    for _ in 0..mib {
        io::stderr().write_all(&block).unwrap();
    }
    writeln!(socket(), "done").unwrap();
}

fn writes(out: &mut UnixStream) {
    let mut attempt = |what: &str, result: io::Result<()>| {
        writeln!(out, "{what} {}", result.map_or_else(|e| format!("refused: {e}"), |()| "WRITTEN".into()))
            .unwrap();
    };
    attempt("/new", fs::write("/new", "x"));
    attempt("/cacheon/new", fs::write("/cacheon/new", "x"));
    attempt("payload", fs::OpenOptions::new().write(true).open("/cacheon/payload").map(drop));
    attempt("/proc/sys/kernel/core_pattern", fs::write("/proc/sys/kernel/core_pattern", "x"));
    attempt("/proc/sysrq-trigger", fs::write("/proc/sysrq-trigger", "x"));
    attempt("/data", fs::write("/data/new", "x"));
    attempt("bound", fs::OpenOptions::new().append(true).open("/data/file").map(drop));
    let full = (0..1000).try_for_each(|n| fs::write(format!("/tmp/{n}"), vec![0u8; 64 << 10]));
    attempt("scratch", full);
    let c = std::ffi::CString::new("/mnt").unwrap();
    // SAFETY: mount with valid C strings; it is expected to be refused.
    let mounted =
        unsafe { libc::mount(c.as_ptr(), c"/tmp".as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null()) };
    attempt("mount", if mounted == 0 { Ok(()) } else { Err(io::Error::last_os_error()) });
    // SAFETY: setuid(0) is expected to be refused.
    let root = unsafe { libc::setuid(0) };
    attempt("setuid", if root == 0 { Ok(()) } else { Err(io::Error::last_os_error()) });
}

fn daemon() {
    // SAFETY: the process is single-threaded; the child leaves the session and burns.
    if unsafe { libc::fork() } == 0 {
        // SAFETY: as above.
        unsafe {
            libc::setsid();
            if libc::fork() != 0 {
                libc::_exit(0);
            }
            for signal in 1..32 {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        loop {
            std::hint::spin_loop();
        }
    }
    writeln!(socket(), "up").unwrap();
    std::thread::sleep(Duration::from_secs(600));
}
