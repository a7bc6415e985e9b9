//! Rules of single types beyond their shape.

use cacheon_identity::{Decode, DecodeError, DecodeKind, Fields, Json, float17::Float17};

/// No rule of its own.
pub(super) fn none(_: &Json) -> Result<(), DecodeError> {
    Ok(())
}

/// The rules of a record that has its own reader.
pub(super) fn of<T: Decode>(json: &Json) -> Result<(), DecodeError> {
    T::decode(json).map(|_| ())
}

/// An executor's proof that nothing is left: named executor and manager, counted, and three empty lists.
pub(super) fn quiescence(json: &Json) -> Result<(), DecodeError> {
    let mut fields = Fields::open(json)?;
    let executor = |text: &str| crate::text::is_lower_id(text, 128);
    fields.take("executor_id")?.str_where("an executor id is [a-z0-9][a-z0-9_.-]{0,127}", executor)?;
    let hex128 =
        |text: &str| text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    fields.take("manager_instance_id")?.str_where("a manager is 32 lowercase hexadecimal digits", hex128)?;
    fields.take("sequence")?.u64_in(1, u64::MAX)?;
    let observed = fields.take("observed_monotonic_s")?;
    if observed.decode::<Float17>()?.get() < 0.0 {
        return Err(
            observed.error(DecodeKind::invalid("a monotonic time is not negative", observed.as_str()?))
        );
    }
    for name in ["container_ids", "lease_records", "resource_entries"] {
        let left = fields.take(name)?;
        let count = left.as_array()?.len();
        if count > 0 {
            return Err(left.error(DecodeKind::invalid("a quiescent executor has nothing left", &count)));
        }
    }
    Ok(())
}
