-- Bank instructions: the credit transfer that the bank is asked for, and what
-- happened to it.

-- At most one row a settlement. Inserted in the commit of the movement, in state
-- uncertain, so that a crash at any later point leaves the right state behind.
-- Permanent.
CREATE TABLE IF NOT EXISTS bank_instructions (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the primary key
  settlement_id STRING(128) NOT NULL,     -- the producer's key of the payout
  idempotency_key STRING(36) NOT NULL,    -- UUID version 5 of the settlement ID; a decision to send again gives another, see bank_superseded_keys
  request_body BYTES(MAX) NOT NULL,       -- what is sent to the bank, byte for byte; the same as long as the key is
  state STRING(16) NOT NULL,              -- uncertain, accepted, confirmed, rejected, returned or manual
  version INT64 NOT NULL,                 -- counts changes from 1; a change must match it
  lease_owner STRING(36),                 -- step that holds the lease, or that made the latest change; NULL: none yet
  lease_until TIMESTAMP,                  -- when the lease ends by itself; NULL: nobody holds one
  sends INT64 NOT NULL,                   -- sends that may have reached the bank
  send_deferred BOOL NOT NULL,            -- the bank answered the latest send with the request to come again
  first_sent_at TIMESTAMP,                -- before the first send; NULL: never sent
  last_sent_at TIMESTAMP,                 -- before the latest send; NULL: never sent
  resend_not_after TIMESTAMP,             -- after this the bank may have forgotten the key; NULL: never sent
  not_found_since TIMESTAMP,              -- when the status API first answered not found, since the latest send; NULL: it did not
  accepted_at TIMESTAMP,                  -- when the bank first said that it has the transfer; NULL: it did not
  final_at TIMESTAMP,                     -- when the state became confirmed, rejected or returned; NULL: it is open
  bank_transfer_id STRING(MAX),           -- the bank's own name of the transfer; NULL: unknown
  bank_status STRING(64),                 -- the bank's latest status word; NULL: unknown
  checks INT64 NOT NULL,                  -- questions that brought nothing since the state was entered or the latest send; sets the pace
  next_check_at TIMESTAMP,                -- when the instruction is looked at next; NULL: never again
  created_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
  uncertain_since TIMESTAMP OPTIONS (allow_commit_timestamp = true), -- created_at while the state is uncertain; NULL: it is not
  due_shard INT64 NOT NULL AS (ABS(MOD(FARM_FINGERPRINT(settlement_id), 16))) STORED, -- 0 to 15, spreads the index below
  CONSTRAINT bank_instructions_state_known CHECK (state IN ('uncertain', 'accepted', 'confirmed', 'rejected', 'returned', 'manual')),
) PRIMARY KEY (settlement_key),
  INTERLEAVE IN PARENT ledger_movements ON DELETE NO ACTION;

-- One row a change, in order; one that leaves the state as it is has a row too.
-- Permanent.
CREATE TABLE IF NOT EXISTS bank_instruction_events (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the first part of the primary key
  settlement_id STRING(128) NOT NULL,     -- the producer's key of the payout
  version INT64 NOT NULL,                 -- the instruction's version after the transition, without gaps from 1
  from_state STRING(16),                  -- NULL: the instruction was created
  to_state STRING(16) NOT NULL,           -- the state that was entered
  cause STRING(64) NOT NULL,              -- what made it: created, send, send answered, status or decided
  http_status INT64,                      -- the bank's HTTP status; NULL: there was no answer
  detail STRING(MAX),                     -- in words, for a person; holds no payload
  recorded_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
) PRIMARY KEY (settlement_key, version),
  INTERLEAVE IN PARENT bank_instructions ON DELETE NO ACTION;

-- What has to be looked at, by time. Rows of finished instructions have no
-- next_check_at and are not in it. The shard comes first, since a time alone
-- would put every write at one end.
CREATE NULL_FILTERED INDEX IF NOT EXISTS bank_instructions_due ON bank_instructions (due_shard, next_check_at) STORING (settlement_id);

-- The uncertain ones, oldest first in each shard: how far the bank is behind.
CREATE NULL_FILTERED INDEX IF NOT EXISTS bank_instructions_uncertain ON bank_instructions (due_shard, uncertain_since);
