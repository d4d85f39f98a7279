-- Bank instructions: the credit transfer requested from the bank, and its state.

-- At most one row per settlement. The commit of the movement inserts it in state
-- uncertain, so that the state is right after a crash at any later point. Permanent.
CREATE TABLE IF NOT EXISTS bank_instructions (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the primary key
  settlement_id STRING(128) NOT NULL,     -- the payout's ID, from the producer
  idempotency_key STRING(36) NOT NULL,    -- UUID version 5 of the settlement ID; a decision to send again replaces it, see bank_superseded_keys
  request_body BYTES(MAX) NOT NULL,       -- body of the request to the bank, byte for byte; changes only with the key
  state STRING(16) NOT NULL,              -- uncertain, accepted, confirmed, rejected, returned or manual
  version INT64 NOT NULL,                 -- counts changes from 1; for optimistic locking
  lease_owner STRING(36),                 -- step that holds the lease or made the latest change; NULL: none yet
  lease_until TIMESTAMP,                  -- expiry of the lease; NULL: no lease
  sends INT64 NOT NULL,                   -- sends that may have reached the bank
  send_deferred BOOL NOT NULL,            -- the bank answered the latest send with "retry later"
  first_sent_at TIMESTAMP,                -- time before the first send; NULL: never sent
  last_sent_at TIMESTAMP,                 -- time before the latest send; NULL: never sent
  resend_not_after TIMESTAMP,             -- end of the time in which the bank remembers the key; NULL: never sent
  not_found_since TIMESTAMP,              -- first "not found" of the status API since the latest send; NULL: none
  accepted_at TIMESTAMP,                  -- first answer that the bank has the transfer; NULL: none
  final_at TIMESTAMP,                     -- time of the state confirmed, rejected or returned; NULL: open
  bank_transfer_id STRING(MAX),           -- the bank's ID of the transfer; NULL: unknown
  bank_status STRING(64),                 -- the bank's latest status word; NULL: unknown
  checks INT64 NOT NULL,                  -- number of status requests since the state began or the latest send, whichever is later, that changed nothing; determines the pause before the next one
  next_check_at TIMESTAMP,                -- time of the next check; NULL: none
  created_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
  uncertain_since TIMESTAMP OPTIONS (allow_commit_timestamp = true), -- created_at while the state is uncertain; NULL: another state
  due_shard INT64 NOT NULL AS (ABS(MOD(FARM_FINGERPRINT(settlement_id), 64))) STORED, -- 0 to 63, spreads the index below
  CONSTRAINT bank_instructions_state_known CHECK (state IN ('uncertain', 'accepted', 'confirmed', 'rejected', 'returned', 'manual')),
) PRIMARY KEY (settlement_key),
  INTERLEAVE IN PARENT ledger_movements ON DELETE NO ACTION;

-- One row per change, also if the state stays the same. Permanent.
CREATE TABLE IF NOT EXISTS bank_instruction_events (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the first part of the primary key
  settlement_id STRING(128) NOT NULL,     -- the payout's ID, from the producer
  version INT64 NOT NULL,                 -- the instruction's version after the change, from 1 without gaps
  from_state STRING(16),                  -- NULL: creation
  to_state STRING(16) NOT NULL,           -- the state after the change
  cause STRING(64) NOT NULL,              -- created, send, send answered, status or decided
  http_status INT64,                      -- the bank's HTTP status; NULL: no answer
  detail STRING(MAX),                     -- text for operators, without payload
  recorded_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
) PRIMARY KEY (settlement_key, version),
  INTERLEAVE IN PARENT bank_instructions ON DELETE NO ACTION;

-- Due instructions by time. The index omits finished instructions, which have no
-- next_check_at. The shard comes first, because a time alone would send every write
-- to one split.
CREATE NULL_FILTERED INDEX IF NOT EXISTS bank_instructions_due ON bank_instructions (due_shard, next_check_at) STORING (settlement_id);

-- Uncertain instructions, oldest first in each shard, for the age of the oldest.
CREATE NULL_FILTERED INDEX IF NOT EXISTS bank_instructions_uncertain ON bank_instructions (due_shard, uncertain_since);
