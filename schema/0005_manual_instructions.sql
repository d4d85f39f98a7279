-- Bank instructions for a manual decision.

-- A NULL_FILTERED index omits rows with NULL in its key, so the key needs a column
-- that is NULL in all other states.
ALTER TABLE bank_instructions ADD COLUMN IF NOT EXISTS manual_shard INT64 AS (IF(state = 'manual', ABS(MOD(FARM_FINGERPRINT(settlement_id), 64)), NULL)) STORED; -- 0 to 63 in state manual, spreads the index below; NULL: another state

-- Manual instructions, newest first in each shard. Settling a payout never writes to
-- it, because no instruction begins in state manual.
CREATE NULL_FILTERED INDEX IF NOT EXISTS bank_instructions_manual ON bank_instructions (manual_shard, created_at DESC);
