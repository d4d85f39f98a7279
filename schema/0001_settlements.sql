-- Settlements: the ledger movement and the receipt that proves it.
--
-- The key of every table about a settlement is the SHA-256 of the settlement
-- ID. Settlement IDs are often sequential, and a plain key would put all inserts
-- on one split; the schema derives the key, so no caller can get it wrong.
--
-- The permanent movement is the parent and the expiring receipt the child: when
-- a receipt is gone, the movement still forbids a second one, and its payload
-- hash still tells a replay from a conflict. Interleaving keeps the rows of one
-- settlement in one split, so that their commit stays within one Paxos group.

-- One row a settlement: the effect on the ledger. Permanent; a row is inserted
-- once and never changed.
CREATE TABLE IF NOT EXISTS ledger_movements (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the primary key
  settlement_id STRING(128) NOT NULL,     -- the producer's key of the payout
  account_id STRING(128) NOT NULL,        -- the ledger account that is debited
  amount_cents INT64 NOT NULL,            -- minor units of the currency, never scaled
  currency STRING(3) NOT NULL,            -- ISO 4217 alphabetic code, the default already filled in
  creditor_account STRING(128),           -- the bank's name for who is paid; NULL: no bank instruction is wanted
  reference STRING(140),                  -- remittance text; NULL: none
  payload_hash STRING(128) NOT NULL,      -- "v1:" and hex; outlives the receipt's copy
  recorded_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
  CONSTRAINT ledger_movements_amount_positive CHECK (amount_cents > 0),
) PRIMARY KEY (settlement_key);

-- One row a settlement while a message of it can still come back: proof that
-- the settlement ID was processed, with the outcome that was stored. The policy's
-- interval is the receipt retention. It covers the longest that Pub/Sub can be
-- told to keep a message: 31 days in the subscription, 31 days in the dead-letter
-- subscription and 31 days in the topic, from where seek brings it back, and
-- 72 hours by which a row deletion policy may be late; 96 days, rounded up.
CREATE TABLE IF NOT EXISTS settlement_receipts (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the primary key
  settlement_id STRING(128) NOT NULL,     -- the producer's key of the payout
  payload_hash STRING(128) NOT NULL,      -- hash of the payout that was settled
  result_status STRING(16) NOT NULL,      -- the stored outcome: applied
  delivery_id STRING(36) NOT NULL,        -- UUID of the delivery whose commit this is: tells an own commit from another's
  message_id STRING(MAX) NOT NULL,        -- Pub/Sub message ID of that delivery; empty when unknown
  publish_time TIMESTAMP,                 -- when Pub/Sub took that message; NULL when unknown
  metadata STRING(MAX),                   -- the message's metadata as a JSON object, text so that any character is kept; NULL: none
  applied_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
  expire_from TIMESTAMP OPTIONS (allow_commit_timestamp = true), -- when the outcome became final; NULL while a bank instruction is open: the receipt is then kept
) PRIMARY KEY (settlement_key),
  INTERLEAVE IN PARENT ledger_movements ON DELETE NO ACTION,
  ROW DELETION POLICY (OLDER_THAN(expire_from, INTERVAL 100 DAY));

-- At most one row a settlement: undoes a movement that the bank did not execute
-- or sent back. Permanent.
CREATE TABLE IF NOT EXISTS ledger_reversals (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the primary key
  settlement_id STRING(128) NOT NULL,     -- the producer's key of the payout
  amount_cents INT64 NOT NULL,            -- the movement's amount, minor units of its currency
  reason STRING(64) NOT NULL,             -- the instruction's final state: rejected or returned
  recorded_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp
  CONSTRAINT ledger_reversals_amount_positive CHECK (amount_cents > 0),
) PRIMARY KEY (settlement_key),
  INTERLEAVE IN PARENT ledger_movements ON DELETE NO ACTION;
