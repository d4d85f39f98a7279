package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/term"
)

const (
	verdictPayout  = "payout"
	verdictRefused = "refused"
)

// report is the answer of check: the last three members for a payout, the three before
// them for a refused message.
type report struct {
	Verdict     string        `json:"verdict"`
	Reason      payout.Reason `json:"reason,omitzero"`
	Member      string        `json:"member,omitzero"`
	Detail      string        `json:"detail,omitzero"`
	PayloadHash payout.Hash   `json:"payload_hash,omitzero"`
	Preimage    string        `json:"preimage,omitzero"`
	Currency    string        `json:"currency,omitzero"`
}

func newCheck(s streams) *cobra.Command {
	var defaultCurrency string
	cmd := &cobra.Command{
		Use:   "check [FILE|-]",
		Short: "Check a payout message, and print its payload hash",
		Long: `check applies the function's rules to one payout message of FILE or standard
input. It prints the payload hash and the hash's input, or the reason for a
refusal. It sends nothing.

Exit codes: 0 a payout, 1 refused, 2 usage error or unreadable file.`,
		Example: `  settlectl check --default-currency USD < payout.json`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkCurrency(defaultCurrency); err != nil {
				return err
			}
			return check(args, defaultCurrency, s)
		},
	}
	cmd.Flags().StringVar(&defaultCurrency, "default-currency", s.getenv("DEFAULT_CURRENCY"),
		"ISO 4217 `code` for messages without a currency; default: DEFAULT_CURRENCY")
	return cmd
}

// checkCurrency accepts a currency code, and none.
func checkCurrency(code string) error {
	if code == "" || payout.ValidCurrency(code) {
		return nil
	}
	return fmt.Errorf("--default-currency, or DEFAULT_CURRENCY, is %q; give an ISO 4217 alphabetic code in upper case, such as USD", code)
}

func check(args []string, defaultCurrency string, s streams) error {
	data, err := readMessage(args, s)
	if err != nil {
		return err
	}
	p, err := payout.Decode(data, defaultCurrency)
	if refusal, ok := errors.AsType[*payout.Refusal](err); ok {
		answer := report{Verdict: verdictRefused, Reason: refusal.Reason, Member: refusal.Member, Detail: refusal.Detail}
		if refusal.Reason == payout.ReasonTooLarge {
			// The decoder counts the bytes that it got, and check stops reading early.
			answer.Detail = fmt.Sprintf("the message has more than %d bytes; a payout message has at most that", payout.MaxMessageBytes)
		}
		if mark := byteOrderMark(data); mark != "" {
			answer.Detail = "the message begins with " + mark
		}
		if err := printJSON(s.Out, answer); err != nil {
			return err
		}
		return &term.CodedError{Code: term.ExitNo}
	}
	if err != nil {
		return term.Failf("check the message: %w", err)
	}
	return printJSON(s.Out, report{
		Verdict: verdictPayout, PayloadHash: p.Hash(), Preimage: string(p.Preimage()), Currency: p.Currency,
	})
}

// byteOrderMarks are the marks that editors write at the beginning of a file.
var byteOrderMarks = []struct{ encoding, bytes string }{
	{"UTF-8", "\xef\xbb\xbf"}, {"UTF-16", "\xff\xfe"}, {"UTF-16", "\xfe\xff"},
}

// byteOrderMark describes the byte order mark with which data begins, and the remedy;
// empty: data begins with none.
func byteOrderMark(data []byte) string {
	for _, mark := range byteOrderMarks {
		if bytes.HasPrefix(data, []byte(mark.bytes)) {
			return fmt.Sprintf("a %s byte order mark (bytes % x); save it as UTF-8 without a byte order mark", mark.encoding, mark.bytes)
		}
	}
	return ""
}
