-- Bank instructions that a person decides about.

-- A column of its own, since what an index leaves out has to be NULL in its key.
ALTER TABLE bank_instructions ADD COLUMN IF NOT EXISTS manual_shard INT64 AS (IF(state = 'manual', ABS(MOD(FARM_FINGERPRINT(settlement_id), 16)), NULL)) STORED; -- 0 to 15 while a person decides, spreads the index below; NULL: nobody has to

-- Newest first in each shard. Settling a payout never writes to it: no
-- instruction begins in state manual.
CREATE NULL_FILTERED INDEX IF NOT EXISTS bank_instructions_manual ON bank_instructions (manual_shard, created_at DESC);
