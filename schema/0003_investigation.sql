-- Cases for operators: conflicts and quarantined messages.

-- One row per settlement and payload hash: a producer published another payload with
-- the ID of a settled payout. The ledger did not change. The first delivery inserts
-- the row; later deliveries write nothing. Permanent.
CREATE TABLE IF NOT EXISTS settlement_conflicts (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the first part of the primary key
  settlement_id STRING(128) NOT NULL,     -- ID of the settled payout
  payload_hash STRING(128) NOT NULL,      -- hash of the conflicting payout
  fields ARRAY<STRING(32)> NOT NULL,      -- the members that differ
  payload BYTES(MAX) NOT NULL,            -- the conflicting message, byte for byte
  message_id STRING(MAX) NOT NULL,        -- Pub/Sub message ID of its first delivery; empty: unknown
  source STRING(MAX),                     -- full name of the topic or subscription by which that message came; NULL: unknown
  seen_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp of the first delivery
  resolved_at TIMESTAMP OPTIONS (allow_commit_timestamp = true), -- time at which an operator closed the case; NULL: open
  resolved_by STRING(MAX),                -- the operator; NULL: open
  note STRING(MAX),                       -- the operator's finding; NULL: none
  open_shard INT64 AS (IF(resolved_by IS NULL, ABS(MOD(FARM_FINGERPRINT(settlement_id), 64)), NULL)) STORED, -- 0 to 63 while open, spreads the index below; NULL: closed
) PRIMARY KEY (settlement_key, payload_hash),
  INTERLEAVE IN PARENT ledger_movements ON DELETE NO ACTION;

-- One row per message that is not a valid payout, with the whole message. Later
-- deliveries of the message write nothing. The row expires 30 days after its release;
-- before it expire_from is NULL.
CREATE TABLE IF NOT EXISTS quarantined_messages (
  message_key BYTES(32) NOT NULL AS (SHA256(identity)) STORED, -- derived, the primary key
  identity STRING(MAX) NOT NULL,          -- subscription and message ID in quotes, SHA-256 of the data or of the message in it
  message_id STRING(MAX) NOT NULL,        -- Pub/Sub message ID; empty: unknown
  subscription STRING(MAX) NOT NULL,      -- full name of the subscription; empty: unknown
  reason STRING(32) NOT NULL,             -- the reason code
  member STRING(32),                      -- the missing or invalid member; NULL: none
  detail STRING(MAX) NOT NULL,            -- text for operators; may quote the message
  data BYTES(MAX) NOT NULL,               -- the message's data; for unsupported_event the request body
  attributes STRING(MAX),                 -- the message's attributes as a JSON object; NULL: none
  ordering_key STRING(MAX),               -- the message's ordering key; NULL: none
  publish_time TIMESTAMP,                 -- Pub/Sub's publish time of the message; NULL: unknown
  quarantined_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp of the first delivery
  released_at TIMESTAMP OPTIONS (allow_commit_timestamp = true), -- time at which an operator published it again; NULL: not released
  released_by STRING(MAX),                -- the operator; NULL: not released
  note STRING(MAX),                       -- the operator's reason; NULL: none
  open_shard INT64 AS (IF(released_by IS NULL, ABS(MOD(FARM_FINGERPRINT(identity), 64)), NULL)) STORED, -- 0 to 63 while not released, spreads the index below; NULL: released
  expire_from TIMESTAMP OPTIONS (allow_commit_timestamp = true), -- time of the release; NULL: does not expire
) PRIMARY KEY (message_key),
  ROW DELETION POLICY (OLDER_THAN(expire_from, INTERVAL 30 DAY));

-- Open conflicts, newest first in each shard.
CREATE NULL_FILTERED INDEX IF NOT EXISTS settlement_conflicts_open ON settlement_conflicts (open_shard, seen_at DESC);

-- Unreleased messages, newest first in each shard.
CREATE NULL_FILTERED INDEX IF NOT EXISTS quarantined_messages_open ON quarantined_messages (open_shard, quarantined_at DESC);
