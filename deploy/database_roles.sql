-- Rights of the functions and of operators in the database. No role may delete a row: row deletion policies delete
-- receipts and released messages, all other rows are permanent.
--
-- These statements are not in schema/, because the emulator rejects them. deploy.sh runs the missing ones.

-- SettlePayout and ReconcileBank. They update only bank instructions.
CREATE ROLE settleonce_function;
GRANT SELECT, INSERT ON TABLE ledger_movements TO ROLE settleonce_function;
GRANT SELECT, INSERT ON TABLE settlement_receipts TO ROLE settleonce_function;
GRANT SELECT, INSERT, UPDATE ON TABLE bank_instructions TO ROLE settleonce_function;
GRANT INSERT ON TABLE bank_instruction_events TO ROLE settleonce_function;
GRANT SELECT ON TABLE bank_superseded_keys TO ROLE settleonce_function;
GRANT INSERT ON TABLE ledger_reversals TO ROLE settleonce_function;
GRANT SELECT, INSERT ON TABLE settlement_conflicts TO ROLE settleonce_function;
GRANT SELECT, INSERT ON TABLE quarantined_messages TO ROLE settleonce_function;

-- Operators, with settlectl: they read all tables, close cases and decide about bank instructions, but cannot settle. They
-- may update only the columns that settlectl writes. An update also writes the column from which Spanner computes the
-- primary key, so that column needs a grant too.
CREATE ROLE settleonce_operator;
GRANT SELECT ON TABLE ledger_movements TO ROLE settleonce_operator;
GRANT SELECT ON TABLE settlement_receipts TO ROLE settleonce_operator;
GRANT SELECT ON TABLE bank_instructions TO ROLE settleonce_operator;
GRANT UPDATE(settlement_id, idempotency_key, request_body, state, version, lease_owner, lease_until, sends, send_deferred,
  first_sent_at, last_sent_at, resend_not_after, uncertain_since, not_found_since, accepted_at, final_at, bank_transfer_id,
  bank_status, checks, next_check_at) ON TABLE bank_instructions TO ROLE settleonce_operator;
GRANT SELECT, INSERT ON TABLE bank_instruction_events TO ROLE settleonce_operator;
GRANT SELECT, INSERT ON TABLE bank_superseded_keys TO ROLE settleonce_operator;
GRANT SELECT, INSERT ON TABLE ledger_reversals TO ROLE settleonce_operator;
GRANT SELECT ON TABLE settlement_conflicts TO ROLE settleonce_operator;
GRANT UPDATE(settlement_id, payload_hash, resolved_at, resolved_by, note) ON TABLE settlement_conflicts TO ROLE settleonce_operator;
GRANT SELECT ON TABLE quarantined_messages TO ROLE settleonce_operator;
GRANT UPDATE(identity, released_at, released_by, note, expire_from) ON TABLE quarantined_messages TO ROLE settleonce_operator;
