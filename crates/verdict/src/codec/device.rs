//! Device-state receipts of GPU launches.

use crate::fields::{literals, require, ruled_record, text_enums, unruled};
use cacheon_identity::float17::Float17;
use cacheon_identity::{DecodeError, Digest};

literals! {
    /// Schema of [`DeviceStateReceipt`].
    DeviceReceiptSchema = "cacheon.device-state-receipt.v1";
    /// Schema of [`DeviceStateActiveReceipt`].
    ActiveReceiptSchema = "cacheon.device-state-active-receipt.v2";
}

text_enums! {
    /// Before or after a launch.
    DevicePhase {
        /// Before.
        Pre = "pre",
        /// After.
        Post = "post",
    }
}

ruled_record! {
    /// One process on one device.
    pub struct GpuProcess: unruled {
        /// Compute or graphics.
        pub kind: String,
        /// Device.
        pub physical_id: u64,
        /// Process.
        pub pid: u64,
        /// Name.
        pub process_name: String,
    }
}

ruled_record! {
    /// One device's telemetry.
    pub struct GpuTelemetry: unruled {
        /// MHz.
        pub current_graphics_clock_mhz: Option<u64>,
        /// MHz.
        pub current_memory_clock_mhz: Option<u64>,
        /// Percent.
        pub gpu_utilization_percent: u64,
        /// Percent.
        pub memory_utilization_percent: u64,
        /// Device.
        pub physical_id: u64,
        /// mW.
        pub power_draw_mw: Option<u64>,
        /// Performance state.
        pub pstate: String,
        /// °C.
        pub temperature_c: i64,
        /// Device UUID.
        pub uuid: String,
    }
}

ruled_record! {
    /// One look at all devices.
    pub struct DeviceSample: unruled {
        /// Whether it is inside the active envelope.
        pub active_envelope_passed: bool,
        /// Why not.
        pub active_envelope_reason: String,
        /// Whether it is idle.
        pub idle: bool,
        /// Why not.
        pub idle_reason: String,
        /// Controller time, s.
        pub monotonic_s: Float17,
        /// Processes.
        pub processes: Vec<GpuProcess>,
        /// Telemetry.
        pub telemetry: Vec<GpuTelemetry>,
    }
}

ruled_record! {
    /// Idle before or after a launch.
    pub struct DeviceStateReceipt: DeviceStateReceipt::rules {
        /// End, s.
        pub completed_monotonic_s: Float17,
        /// Configuration.
        pub configuration_sha256: Digest,
        /// Idle samples in a row, at least 1.
        pub consecutive_idle_samples: u64,
        /// The launch.
        pub launch_id: String,
        /// Before or after.
        pub phase: DevicePhase,
        /// Policy.
        pub policy_sha256: Digest,
        /// Samples.
        pub samples: Vec<DeviceSample>,
        /// Schema literal.
        pub schema: DeviceReceiptSchema,
        /// Devices, at least one.
        pub selected_physical_gpu_ids: Vec<u64>,
        /// From 1.
        pub sequence: u64,
        /// Start, s.
        pub started_monotonic_s: Float17,
    }
}

impl DeviceStateReceipt {
    fn rules(&self) -> Result<(), DecodeError> {
        require(self.sequence >= 1, "sequence", "receipts are counted from 1", &self.sequence)?;
        let (started, completed) = (self.started_monotonic_s.get(), self.completed_monotonic_s.get());
        let ordered = started >= 0.0 && completed >= started;
        require(ordered, "completed_monotonic_s", "ends before it starts", &self.completed_monotonic_s)?;
        let devices = self.selected_physical_gpu_ids.len();
        require(devices > 0, "selected_physical_gpu_ids", "no device", &devices)?;
        let idle = self.consecutive_idle_samples;
        require(idle >= 1, "consecutive_idle_samples", "no idle sample", &idle)
    }
}

ruled_record! {
    /// Active while timed.
    pub struct DeviceStateActiveReceipt: unruled {
        /// End, s.
        pub completed_monotonic_s: Float17,
        /// Configuration.
        pub configuration_sha256: Digest,
        /// Active samples in a row before the release.
        pub consecutive_active_samples: u64,
        /// Which boundary.
        pub event: String,
        /// The launch.
        pub launch_id: String,
        /// Policy.
        pub policy_sha256: Digest,
        /// Ready samples after the release.
        pub post_release_ready_samples: u64,
        /// Index of the release among the samples.
        pub release_sample_index: u64,
        /// Samples.
        pub samples: Vec<DeviceSample>,
        /// Schema literal.
        pub schema: ActiveReceiptSchema,
        /// Devices.
        pub selected_physical_gpu_ids: Vec<u64>,
        /// From 1.
        pub sequence: u64,
        /// Start, s.
        pub started_monotonic_s: Float17,
    }
}
