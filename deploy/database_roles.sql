-- What the functions and the operator may do in the database. Nobody may delete a row: receipts and released messages
-- go by row deletion policies, everything else stays.
--
-- Not in schema/, since these statements are about a deployment and the emulator does not know them. deploy.sh runs those
-- that the database lacks.

-- SettlePayout and ReconcileBank. A movement, a reversal and an event are inserted once and never changed.
CREATE ROLE settleonce_function;
GRANT SELECT, INSERT ON TABLE ledger_movements TO ROLE settleonce_function;
GRANT SELECT, INSERT, UPDATE ON TABLE settlement_receipts TO ROLE settleonce_function;
GRANT SELECT, INSERT, UPDATE ON TABLE bank_instructions TO ROLE settleonce_function;
GRANT INSERT ON TABLE bank_instruction_events TO ROLE settleonce_function;
GRANT SELECT ON TABLE bank_superseded_keys TO ROLE settleonce_function;
GRANT INSERT ON TABLE ledger_reversals TO ROLE settleonce_function;
GRANT SELECT, INSERT, UPDATE ON TABLE settlement_conflicts TO ROLE settleonce_function;
GRANT SELECT, INSERT, UPDATE ON TABLE quarantined_messages TO ROLE settleonce_function;

-- People, by way of settlectl: they see everything, close cases and decide about bank instructions, but settle nothing. Of
-- a row they change the columns that settlectl writes. A change names what its row is found by too, from which the primary
-- key is derived: that cannot change.
CREATE ROLE settleonce_operator;
GRANT SELECT ON TABLE ledger_movements TO ROLE settleonce_operator;
GRANT SELECT ON TABLE settlement_receipts TO ROLE settleonce_operator;
GRANT UPDATE(settlement_id, expire_from) ON TABLE settlement_receipts TO ROLE settleonce_operator;
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
