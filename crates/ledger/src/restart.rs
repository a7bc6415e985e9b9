//! What every open repairs (spec 30 §5.8). Leases and recoveries survive and are reconciled by their owner.

use crate::error::Result;
use crate::store::Tx;

pub(crate) fn repair(tx: &Tx<'_>) -> Result<()> {
    let statements = [
        "UPDATE reservations SET status='held', decision='', reason='controller_restart_during_'||status
          WHERE status IN ('fetching','qualifying') AND reservation_id NOT IN
                (SELECT reservation_id FROM evaluation_lease_members WHERE active=1)",
        "UPDATE reservations SET
                status=CASE screen_lane WHEN 'reproduction' THEN 'reproduction_pending' ELSE 'published' END,
                decision='', screen_status='retry', reason='controller_restart_during_screening'
          WHERE status='screening' AND reservation_id NOT IN
                (SELECT reservation_id FROM evaluation_lease_members WHERE active=1)",
        "UPDATE settlement_candidates SET status='pending', lease_generation=lease_generation+1, lease_id='',
                lease_expires_block=0, reason='controller_restart_during_settlement'
          WHERE status='leased'",
    ];
    for statement in statements {
        tx.conn.execute(statement, [])?;
    }
    Ok(())
}
