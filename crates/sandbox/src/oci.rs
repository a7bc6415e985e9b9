//! The OCI bundle: the same `config.json` for the library and for an external runtime.

use std::path::Path;

use serde_json::{Value, json};

use crate::job::{self, Job};

/// Users of a container: 0..this.
pub(crate) const USERS: u32 = 65_536;

const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
];

const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The runtime configuration of a job whose root was assembled at `rootfs`.
pub(crate) fn config(job: &Job, rootfs: &Path) -> Value {
    let capabilities: &[&str] = if job.splitter { &["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"] } else { &[] };
    let mut memory = json!({ "limit": job.memory_bytes });
    if job.swap_limit {
        memory["swap"] = json!(job.memory_bytes);
    }
    let mut resources = json!({
        "devices": [{ "allow": false, "access": "rwm" }],
        "memory": memory,
        "pids": { "limit": job.pids },
    });
    if let Some((cpus, mems)) = &job.cpus {
        resources["cpu"] = json!({ "cpus": cpus, "mems": mems });
    }
    let namespaces: Vec<Value> = ["pid", "network", "ipc", "uts", "mount", "cgroup", "user"]
        .iter()
        .map(|kind| json!({ "type": kind }))
        .collect();
    let env: Vec<String> =
        job.env.iter().map(|(key, value)| format!("{key}={}", job::rooted("", value))).collect();
    let args: Vec<String> = job.argv.iter().map(|arg| job::rooted("", arg)).collect();
    let limit = |kind: &str, value: u64| json!({ "type": kind, "soft": value, "hard": value });
    let identity = json!([{ "containerID": 0, "hostID": job.id_base, "size": USERS }]);
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": job.uid, "gid": job.uid },
            "args": args,
            "env": env,
            "cwd": job.cwd,
            "capabilities": {
                "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
                "inheritable": [], "ambient": [],
            },
            "rlimits": [limit("RLIMIT_NOFILE", job.nofile), limit("RLIMIT_CORE", 0)],
            "noNewPrivileges": true,
        },
        "root": { "path": rootfs, "readonly": true },
        "hostname": "cacheon",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
              "options": ["nosuid", "noexec", "strictatime", "mode=755", "size=64k"] },
        ],
        "linux": {
            "namespaces": namespaces,
            "uidMappings": identity.clone(),
            "gidMappings": identity,
            "cgroupsPath": job.cgroup,
            "resources": resources,
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
            "rootfsPropagation": "private",
        },
    })
}
