//! Two lanes, one CPU each. Exactly one engine is timed at a time; the controller waits on the other lane's CPU, whose
//! engine is frozen meanwhile.

use cacheon_records::cpu::CpuLane;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Why no pair of lanes could be made.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// Fewer than two CPUs.
    #[error(
        "qualification needs two CPUs, this process may use {0}; widen its CPU set (taskset, cpuset) and try again"
    )]
    TooFew(usize),
    /// The kernel refused.
    #[error("the CPU set of this process could not be {0}: {1}")]
    Kernel(&'static str, rustix::io::Errno),
}

/// One of the two lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneId {
    /// Lane A.
    A,
    /// Lane B.
    B,
}

impl LaneId {
    /// The other lane.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// `A` or `B`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }
}

/// The pair of lanes and the CPUs the controller had before it began to move between them.
#[derive(Debug, Clone)]
pub struct Lanes {
    a: usize,
    b: usize,
    before: CpuSet,
}

impl Lanes {
    /// The first two CPUs that this process may use.
    ///
    /// # Errors
    /// [`LaneError`].
    pub fn detect() -> Result<Self, LaneError> {
        let before = sched_getaffinity(None).map_err(|error| LaneError::Kernel("read", error))?;
        let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu)).collect();
        match usable[..] {
            [a, b, ..] => Ok(Self { a, b, before }),
            _ => Err(LaneError::TooFew(usable.len())),
        }
    }

    /// The CPU of a lane.
    #[must_use]
    pub const fn cpu(&self, lane: LaneId) -> usize {
        match lane {
            LaneId::A => self.a,
            LaneId::B => self.b,
        }
    }

    /// The lane as a record, with the CPU list as given.
    #[must_use]
    pub fn record(lane: LaneId, cpus: &str) -> CpuLane {
        CpuLane { cpus: cpus.to_owned(), lane_id: lane.as_str().to_owned() }
    }

    /// Moves the calling thread onto one lane's CPU, or back to where it was when `lane` is none.
    ///
    /// # Errors
    /// [`LaneError::Kernel`].
    pub fn seat_controller(&self, lane: Option<LaneId>) -> Result<(), LaneError> {
        let set = match lane {
            None => self.before,
            Some(lane) => {
                let mut set = CpuSet::new();
                set.set(self.cpu(lane));
                set
            }
        };
        sched_setaffinity(None::<Pid>, &set).map_err(|error| LaneError::Kernel("set", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_sits_where_it_is_told() {
        let Ok(lanes) = Lanes::detect() else { return };
        lanes.seat_controller(Some(LaneId::B)).unwrap();
        let set = sched_getaffinity(None).unwrap();
        assert!(set.is_set(lanes.cpu(LaneId::B)) && set.count() == 1);
        lanes.seat_controller(None).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), lanes.before);
    }
}
