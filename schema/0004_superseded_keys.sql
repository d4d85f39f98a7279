-- Idempotency keys that two operators replaced, to send a transfer again.

-- One row per former key of an instruction. The bank may still execute a transfer
-- with that key, so the reconciler checks it too. The transaction that writes the
-- new key and body inserts the row. Permanent.
CREATE TABLE IF NOT EXISTS bank_superseded_keys (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the first part of the primary key
  settlement_id STRING(128) NOT NULL,     -- the payout's ID, from the producer
  generation INT64 NOT NULL,              -- counts the instruction's keys; 1 is UUID version 5 of the settlement ID alone
  idempotency_key STRING(36) NOT NULL,    -- the former key
  request_body BYTES(MAX) NOT NULL,       -- body of the requests with it, byte for byte
  sends INT64 NOT NULL,                   -- sends with it that may have reached the bank
  first_sent_at TIMESTAMP,                -- time before the first of them; NULL: never sent
  last_sent_at TIMESTAMP,                 -- time before the latest of them; NULL: never sent
  bank_transfer_id STRING(MAX),           -- the bank's ID of a transfer with it; NULL: unknown
  bank_status STRING(64),                 -- the bank's latest status word for it; NULL: unknown
  decided_version INT64 NOT NULL,         -- version of the instruction's event that has the operators and the reason
  superseded_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
) PRIMARY KEY (settlement_key, generation),
  INTERLEAVE IN PARENT bank_instructions ON DELETE NO ACTION;
