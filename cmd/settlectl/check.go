package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

const (
	verdictPayout  = "payout"
	verdictRefused = "refused"
)

// acceptedReport is check's answer to a payout.
type acceptedReport struct {
	Verdict     string      `json:"verdict"`
	PayloadHash payout.Hash `json:"payload_hash"`
	Preimage    string      `json:"preimage"`
	Currency    string      `json:"currency"`
}

// refusedReport is check's answer to a message that cannot be a payout.
type refusedReport struct {
	Verdict string        `json:"verdict"`
	Reason  payout.Reason `json:"reason"`
	Member  string        `json:"member,omitzero"`
	Detail  string        `json:"detail"`
}

func newCheck(s streams) *cobra.Command {
	var defaultCurrency string
	cmd := &cobra.Command{
		Use:   "check [FILE|-]",
		Short: "Say whether a message is a payout, and its payload hash",
		Long: `check reads the bytes of one payout message, from FILE or else from standard
input, and says what the function would: whether it is a payout, and the payload
hash and what that is computed over; or why it is refused. Nothing is sent
anywhere.

The bytes are judged as they are: a message has at most 64 KiB, white space
around the object included.

A message without a currency takes --default-currency. Its default is the
environment variable DEFAULT_CURRENCY, as it is the function's; where neither is
set, or with --default-currency "", such a message is refused.

Exit codes: 0 a payout, 1 refused, 2 wrong usage or the file cannot be read.`,
		Example: `  settlectl check payout.json
  settlectl check --default-currency USD < payout.json
  echo '{"settlement_id":"stl-1","account_id":"reserve","amount_cents":4731}' |
    settlectl check --default-currency USD | jq -r .payload_hash`,
		Args: oneAtMost,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if defaultCurrency != "" && !payout.ValidCurrency(defaultCurrency) {
				source := "--default-currency"
				if !cmd.Flags().Changed("default-currency") {
					source = "the environment variable DEFAULT_CURRENCY"
				}
				return wrongf("default-currency", "%s is %q; give an ISO 4217 alphabetic code in upper case, such as USD", source, defaultCurrency)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return check(args, defaultCurrency, s) },
	}
	cmd.Flags().StringVar(&defaultCurrency, "default-currency", s.getenv("DEFAULT_CURRENCY"),
		"ISO 4217 `code` for messages without one; else DEFAULT_CURRENCY")
	return cmd
}

func check(args []string, defaultCurrency string, s streams) error {
	input, name, err := openInput(args, s)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }() // nothing was written
	// One byte over the limit is enough to refuse the message, however large it is.
	data, err := io.ReadAll(io.LimitReader(input, payout.MaxMessageBytes+1))
	if err != nil {
		return failf("read the message from %s: %w", name, err)
	}

	p, err := payout.Decode(data, defaultCurrency)
	if refusal, ok := errors.AsType[*payout.Refusal](err); ok {
		report := refusedReport{Verdict: verdictRefused, Reason: refusal.Reason, Member: refusal.Member, Detail: refusal.Detail}
		if refusal.Reason == payout.ReasonTooLarge {
			// The decoder's text counts the bytes it was given, and check stops reading early.
			report.Detail = fmt.Sprintf("the message has more than %d bytes; a payout message has at most that", payout.MaxMessageBytes)
		}
		if err := printJSON(s.out, report); err != nil {
			return err
		}
		return &codedError{code: exitNo}
	}
	if err != nil {
		return failf("check the message from %s: %w", name, err)
	}
	return printJSON(s.out, acceptedReport{
		Verdict: verdictPayout, PayloadHash: p.Hash(), Preimage: string(p.Preimage()), Currency: p.Currency,
	})
}
