-- Settlements: the ledger movement, its receipt and its reversal.
--
-- The key of every settlement table is the SHA-256 of the settlement ID, because
-- settlement IDs are often sequential and a plain key would send all inserts to one
-- split. Spanner computes the key, so no caller can pass a wrong one.
--
-- The permanent movement is the parent of the expiring receipt. Without a receipt
-- the movement's primary key still prevents a second movement, and its payload hash
-- still distinguishes a replay from a conflict. Interleaving stores the rows of one
-- settlement in one split, so that one Paxos group commits them.

-- One row per settlement: the effect on the ledger. Permanent and immutable.
CREATE TABLE IF NOT EXISTS ledger_movements (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the primary key
  settlement_id STRING(128) NOT NULL,     -- the payout's ID, from the producer
  account_id STRING(128) NOT NULL,        -- the debited ledger account
  amount_cents INT64 NOT NULL,            -- minor units of the currency
  currency STRING(3) NOT NULL,            -- ISO 4217 alphabetic code, after the default
  creditor_account STRING(128),           -- the payee's account at the bank; NULL: no bank instruction
  reference STRING(140),                  -- remittance text; NULL: none
  payload_hash STRING(128) NOT NULL,      -- "v1:" and hex; remains after the receipt expires
  source STRING(MAX),                     -- full name of the topic or subscription by which the message came; NULL: unknown
  recorded_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
  CONSTRAINT ledger_movements_amount_positive CHECK (amount_cents > 0),
) PRIMARY KEY (settlement_key);

-- One row per settlement while one of its messages can come back: the outcome of
-- the first delivery. It expires in every state of the bank instruction. The policy's
-- interval is the receipt retention. It exceeds
-- Pub/Sub's longest retentions: 31 days in the subscription, 31 in the dead-letter
-- subscription and 31 in the topic (seek redelivers its messages), and 72 hours of
-- possible delay of the policy; 96 days, rounded up.
CREATE TABLE IF NOT EXISTS settlement_receipts (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the primary key
  settlement_id STRING(128) NOT NULL,     -- the payout's ID, from the producer
  payload_hash STRING(128) NOT NULL,      -- hash of the settled payout
  result_status STRING(16) NOT NULL,      -- the outcome: applied
  delivery_id STRING(36) NOT NULL,        -- UUID of the committing delivery: it recognises its own commit after a lost answer
  message_id STRING(MAX) NOT NULL,        -- Pub/Sub message ID of that delivery; empty: unknown
  publish_time TIMESTAMP,                 -- Pub/Sub's publish time of that message; NULL: unknown
  metadata STRING(MAX),                   -- the message's metadata as a JSON object; text, so that every character is kept; NULL: none
  applied_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
) PRIMARY KEY (settlement_key),
  INTERLEAVE IN PARENT ledger_movements ON DELETE NO ACTION,
  ROW DELETION POLICY (OLDER_THAN(applied_at, INTERVAL 100 DAY));

-- At most one row per settlement: reverses a movement that the bank rejected or
-- returned. Permanent.
CREATE TABLE IF NOT EXISTS ledger_reversals (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the primary key
  settlement_id STRING(128) NOT NULL,     -- the payout's ID, from the producer
  amount_cents INT64 NOT NULL,            -- the movement's amount, minor units of its currency
  reason STRING(64) NOT NULL,             -- the instruction's final state: rejected or returned
  recorded_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
  CONSTRAINT ledger_reversals_amount_positive CHECK (amount_cents > 0),
) PRIMARY KEY (settlement_key),
  INTERLEAVE IN PARENT ledger_movements ON DELETE NO ACTION;
