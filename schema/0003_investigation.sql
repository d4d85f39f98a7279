-- What people look into: conflicts and quarantined messages.

-- One row a settlement and payload hash: somebody published something else
-- under a known settlement ID. Nothing moved. Permanent.
CREATE TABLE IF NOT EXISTS settlement_conflicts (
  settlement_key BYTES(32) NOT NULL AS (SHA256(settlement_id)) STORED, -- derived, the first part of the primary key
  settlement_id STRING(128) NOT NULL,     -- the producer's key of the payout that was settled
  payload_hash STRING(128) NOT NULL,      -- hash of the payout that was not settled
  fields ARRAY<STRING(32)> NOT NULL,      -- the members in which the two payouts differ
  payload BYTES(MAX) NOT NULL,            -- the message that was not settled, as it came
  message_id STRING(MAX) NOT NULL,        -- Pub/Sub message ID of its first delivery; empty when unknown
  last_delivery_id STRING(36) NOT NULL,   -- UUID of the latest delivery counted: it is not counted again
  deliveries INT64 NOT NULL,              -- how often it was delivered
  first_seen_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp of the first delivery
  last_seen_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true),  -- commit timestamp of the latest delivery
  resolved_at TIMESTAMP OPTIONS (allow_commit_timestamp = true), -- when a person closed the case; NULL: open
  resolved_by STRING(MAX),                -- who closed it; NULL: open
  note STRING(MAX),                       -- what was found; NULL: nothing written
  open_shard INT64 AS (IF(resolved_by IS NULL, ABS(MOD(FARM_FINGERPRINT(settlement_id), 16)), NULL)) STORED, -- 0 to 15 while open, spreads the index below; NULL: closed
) PRIMARY KEY (settlement_key, payload_hash),
  INTERLEAVE IN PARENT ledger_movements ON DELETE NO ACTION;

-- One row a message that cannot be a payout, kept whole. Kept until released
-- and for 30 days after that: until then expire_from is NULL.
CREATE TABLE IF NOT EXISTS quarantined_messages (
  message_key BYTES(32) NOT NULL AS (SHA256(identity)) STORED, -- derived, the primary key
  identity STRING(MAX) NOT NULL,          -- subscription and message ID in quotes, SHA-256 of the data or of what of it is the message
  message_id STRING(MAX) NOT NULL,        -- Pub/Sub message ID; empty when unknown
  subscription STRING(MAX) NOT NULL,      -- full name of the subscription; empty when unknown
  reason STRING(32) NOT NULL,             -- the reason code
  member STRING(32),                      -- the member that is missing or invalid; NULL: none
  detail STRING(MAX) NOT NULL,            -- in words, for a person; may quote the message
  data BYTES(MAX) NOT NULL,               -- the message's data; for unsupported_event the request's whole body
  attributes STRING(MAX),                 -- the message's attributes as a JSON object; NULL: none
  ordering_key STRING(MAX),               -- the message's ordering key; NULL: none
  publish_time TIMESTAMP,                 -- when Pub/Sub took the message; NULL when unknown
  last_delivery_id STRING(36) NOT NULL,   -- UUID of the latest delivery counted: it is not counted again
  deliveries INT64 NOT NULL,              -- how often it was delivered
  quarantined_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), -- commit timestamp of the first delivery
  released_at TIMESTAMP OPTIONS (allow_commit_timestamp = true), -- when a person published it again; NULL: it was not
  released_by STRING(MAX),                -- who did; NULL: nobody
  note STRING(MAX),                       -- why; NULL: nothing written
  open_shard INT64 AS (IF(released_by IS NULL, ABS(MOD(FARM_FINGERPRINT(identity), 16)), NULL)) STORED, -- 0 to 15 while not released, spreads the index below; NULL: released
  expire_from TIMESTAMP OPTIONS (allow_commit_timestamp = true), -- set on release; NULL: kept
) PRIMARY KEY (message_key),
  ROW DELETION POLICY (OLDER_THAN(expire_from, INTERVAL 30 DAY));

-- Open conflicts, newest first in each shard. Closed ones are not in it.
CREATE NULL_FILTERED INDEX IF NOT EXISTS settlement_conflicts_open ON settlement_conflicts (open_shard, last_seen_at DESC);

-- Messages that nobody has released, newest first in each shard.
CREATE NULL_FILTERED INDEX IF NOT EXISTS quarantined_messages_open ON quarantined_messages (open_shard, quarantined_at DESC);
