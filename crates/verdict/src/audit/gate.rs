//! The gate: exact slot × rank coverage, no violation, no comparison that could not be made.

use cacheon_identity::{Decode, DecodeError, Json, float17};
use cacheon_records::audit::{AuditPolicy, AuditReceipt};
use std::collections::{BTreeMap, BTreeSet};

/// One receipt as the gate reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct GateRow {
    /// The slot.
    pub slot: String,
    /// The rank.
    pub rank: u64,
    /// The process.
    pub pid: u64,
    /// Members that the row claims.
    pub world_size: u64,
    /// Audited calls.
    pub n: u64,
    /// Calls below the bar.
    pub violations: u64,
    /// Calls that could not be compared.
    pub compare_errors: u64,
    /// The worst agreement.
    pub worst_frac: f64,
}

impl GateRow {
    /// Reads the row of a checked receipt.
    #[must_use]
    pub fn of(receipt: &AuditReceipt) -> Self {
        let facts = receipt.facts();
        Self {
            slot: facts.slot.as_str().to_owned(),
            rank: facts.rank,
            pid: facts.pid,
            world_size: facts.world_size,
            n: facts.n,
            violations: facts.violations,
            compare_errors: facts.compare_errors,
            worst_frac: facts.worst_frac.get(),
        }
    }

    /// Reads a raw row; `None` when it is not an object with these members.
    #[must_use]
    pub fn read(row: &Json) -> Option<Self> {
        let integer = |name: &str| row.get(name).and_then(Json::as_u64);
        let worst = row.get("worst_frac")?.as_str()?;
        Some(Self {
            slot: row.get("slot")?.as_str()?.to_owned(),
            rank: integer("rank")?,
            pid: integer("pid")?,
            world_size: integer("world_size")?,
            n: integer("n")?,
            violations: integer("violations")?,
            compare_errors: integer("compare_errors")?,
            worst_frac: worst.parse().ok().filter(|value: &f64| value.is_finite())?,
        })
    }
}

/// What must be covered, as a policy states it; either part may be missing.
#[derive(Clone, Copy, Debug)]
pub struct GateAuthority<'a> {
    /// Slots: sorted, unique, not empty.
    pub slots: Option<&'a [String]>,
    /// Members: 1 to 64.
    pub members: Option<u64>,
}

/// The gate's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// PASS or FAIL; coverage problems are FAIL.
    pub passed: bool,
    /// The exact text that witnesses hash.
    pub detail: String,
}

impl Gate {
    fn refuse(detail: impl Into<String>) -> Self {
        Self { passed: false, detail: detail.into() }
    }
}

/// The coverage problem of the rows, if there is one.
fn coverage(rows: &[&GateRow], slots: &[String], members: u64, minimum: u64) -> Option<String> {
    const MALFORMED: &str = "audit slot/member receipt coverage is malformed";
    let expected: BTreeSet<&str> = slots.iter().map(String::as_str).collect();
    let (mut seen, mut pid_of, mut rank_of) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for row in rows {
        let one_to_one = *pid_of.entry(row.rank).or_insert(row.pid) == row.pid
            && *rank_of.entry(row.pid).or_insert(row.rank) == row.rank;
        let placed = expected.contains(row.slot.as_str()) && row.world_size == members && row.rank < members;
        let fresh = seen.insert((row.slot.as_str(), row.rank), row.n).is_none();
        if !(one_to_one && placed && fresh) {
            return Some(MALFORMED.to_owned());
        }
    }
    let wanted = slots.len() as u64 * members;
    if (seen.len() as u64) < wanted {
        return Some(format!("audit slot/member receipt coverage is incomplete ({}/{wanted})", seen.len()));
    }
    let under: Vec<String> = seen
        .iter()
        .filter(|(_, n)| **n < minimum)
        .take(8)
        .map(|((slot, rank), n)| format!("('{slot}', {rank}, {n})"))
        .collect();
    (!under.is_empty()).then(|| {
        let list = under.join(", ");
        format!("audit per-slot/member coverage is insufficient; need >= {minimum}, under-covered=[{list}]")
    })
}

/// Gates raw rows (`None` stands for one that is not an object of the right members) against a minimum number of calls
/// (`None` when it is no integer above zero).
#[must_use]
pub fn gate(rows: &[Option<GateRow>], minimum: Option<u64>, authority: GateAuthority<'_>) -> Gate {
    let Some(minimum) = minimum.filter(|minimum| *minimum >= 1) else {
        return Gate::refuse("audit minimum coverage is malformed");
    };
    if rows.is_empty() {
        return Gate::refuse(format!("no audit receipts (need >= {minimum} audited calls)"));
    }
    let covered = match (authority.slots, authority.members) {
        (None, None) => None,
        (Some(slots), Some(members)) => {
            let sorted = !slots.is_empty() && slots.iter().zip(slots.iter().skip(1)).all(|(a, b)| a < b);
            if !sorted || !(1..=64).contains(&members) {
                return Gate::refuse("audit coverage authority is malformed");
            }
            Some((slots, members))
        }
        _ => return Gate::refuse("audit coverage authority is incomplete"),
    };
    // Rows are judged in order, so a malformed one before the first that is no object wins.
    let whole: Vec<&GateRow> = rows.iter().map_while(Option::as_ref).collect();
    let broken = whole.len() < rows.len();
    if let Some((slots, members)) = covered {
        let problem = coverage(&whole, slots, members, minimum);
        if let Some(problem) = problem
            && (!broken || problem.ends_with("malformed"))
        {
            return Gate::refuse(problem);
        }
    }
    if broken {
        return Gate::refuse("audit receipt is not an object");
    }
    let sum = |count: fn(&GateRow) -> u64| whole.iter().map(|row| u128::from(count(row))).sum::<u128>();
    let (n, violations, errors) =
        (sum(|row| row.n), sum(|row| row.violations), sum(|row| row.compare_errors));
    let worst = whole.iter().map(|row| row.worst_frac).fold(f64::INFINITY, f64::min);
    let suffix = if violations > 0 {
        ""
    } else if errors > 0 {
        " (audit could not compare; refusing to pass unproven)"
    } else if n < u128::from(minimum) {
        return Gate::refuse(format!(
            "{n} audited calls, {violations} violations, worst_frac={worst:.4}, compare_errors={errors} \
             (insufficient coverage; need >= {minimum})"
        ));
    } else {
        ""
    };
    Gate {
        passed: violations == 0 && errors == 0,
        detail: format!(
            "{n} audited calls, {violations} violations, worst_frac={worst:.4}, compare_errors={errors}{suffix}"
        ),
    }
}

/// Gates checked receipts against their policy.
#[must_use]
pub fn gate_receipts(policy: &AuditPolicy, receipts: &[AuditReceipt]) -> Gate {
    let slots: Vec<String> =
        policy.control.expected_slots().iter().map(|slot| slot.as_str().to_owned()).collect();
    let rows: Vec<Option<GateRow>> = receipts.iter().map(GateRow::of).map(Some).collect();
    let authority =
        GateAuthority { slots: Some(&slots), members: Some(policy.control.expected_member_count()) };
    gate(&rows, Some(policy.control.minimum_calls()), authority)
}

/// Reads a receipt as it arrives from a worker, where the two floats may also be integers.
///
/// # Errors
/// What the receipt record refuses.
pub fn receive(row: &Json) -> Result<AuditReceipt, DecodeError> {
    let mut row = row.clone();
    if let Json::Object(members) = &mut row {
        for name in ["worst_frac", "min_ratio"] {
            if let Some(value) = members.get_mut(name)
                && let Some(integer) = value.as_i64()
            {
                *value = Json::Str(float17::format(integer as f64));
            }
        }
    }
    AuditReceipt::decode(&row)
}
