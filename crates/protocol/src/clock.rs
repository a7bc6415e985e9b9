//! The controller's clock.

/// A monotonic clock in nanoseconds. Tests replace it; nothing inside a container is ever asked for the time.
pub trait Clock {
    /// Nanoseconds since an arbitrary fixed point, never running backwards.
    fn now_ns(&self) -> u64;
}

/// `CLOCK_MONOTONIC` of the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // Both fields are non-negative for this clock.
        (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
    }
}
