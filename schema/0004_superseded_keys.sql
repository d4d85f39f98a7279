-- Idempotency keys that two people gave up, so that a transfer could be sent
-- again under a new one.

-- One row a key that an instruction had before the one in bank_instructions.
-- The bank may still come up with a transfer under it, so the instruction's
-- reconciling asks about it too. Inserted in the transaction that gives the
-- instruction its new key and body. Permanent.
CREATE TABLE IF NOT EXISTS bank_superseded_keys (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the first part of the primary key
  settlement_id STRING(128) NOT NULL,     -- the producer's key of the payout
  generation INT64 NOT NULL,              -- counts the instruction's keys from 1, which is UUID version 5 of the settlement ID alone
  idempotency_key STRING(36) NOT NULL,    -- the key that was given up
  request_body BYTES(MAX) NOT NULL,       -- what was sent under it, byte for byte
  sends INT64 NOT NULL,                   -- sends under it that may have reached the bank
  first_sent_at TIMESTAMP,                -- before the first of them; NULL: never sent
  last_sent_at TIMESTAMP,                 -- before the latest of them; NULL: never sent
  bank_transfer_id STRING(MAX),           -- the bank's own name of a transfer under it; NULL: unknown
  bank_status STRING(64),                 -- the bank's latest status word for it; NULL: unknown
  decided_version INT64 NOT NULL,         -- the instruction's event that says who gave it up, and why
  superseded_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
) PRIMARY KEY (settlement_key, generation),
  INTERLEAVE IN PARENT bank_instructions ON DELETE NO ACTION;
