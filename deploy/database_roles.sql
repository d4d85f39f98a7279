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

-- People, by way of settlectl: they see everything, close cases and decide about bank instructions, but settle nothing.
CREATE ROLE settleonce_operator;
GRANT SELECT ON TABLE ledger_movements TO ROLE settleonce_operator;
GRANT SELECT, UPDATE ON TABLE settlement_receipts TO ROLE settleonce_operator;
GRANT SELECT, UPDATE ON TABLE bank_instructions TO ROLE settleonce_operator;
GRANT SELECT, INSERT ON TABLE bank_instruction_events TO ROLE settleonce_operator;
GRANT SELECT, INSERT ON TABLE bank_superseded_keys TO ROLE settleonce_operator;
GRANT SELECT, INSERT ON TABLE ledger_reversals TO ROLE settleonce_operator;
GRANT SELECT, UPDATE ON TABLE settlement_conflicts TO ROLE settleonce_operator;
GRANT SELECT, UPDATE ON TABLE quarantined_messages TO ROLE settleonce_operator;
