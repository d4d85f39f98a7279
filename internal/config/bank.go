package config

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/settleonce/settleonce/internal/bank"
)

// Bounds of the settings that override a bank's profile.
const (
	minKeyLifetime   = 10 * time.Minute
	maxKeyLifetime   = 365 * 24 * time.Hour
	minVisibilityLag = 0
	maxVisibilityLag = time.Hour
	minBankTimeout   = time.Second
)

// bankVariables are the variables that need BANK_URL.
var bankVariables = [...]string{
	EnvBankToken, EnvBankProfile, EnvBankKeyLifetime, EnvBankVisibilityLag, EnvBankSendTimeout, EnvBankStatusTimeout,
	EnvBankConcurrency,
}

// bank reads the bank's configuration; nil without BANK_URL. The variables override
// the profile.
func (e *environment) bank() *bank.Config {
	url, set := e.get(EnvBankURL)
	if !set {
		for _, name := range bankVariables {
			if _, set := e.get(name); set {
				e.fault("%s is set and %s is not; set both or neither", name, EnvBankURL)
			}
		}
		return nil
	}
	before := len(e.faults)
	token, _ := e.get(EnvBankToken)
	profile := e.profile()
	profile.KeyLifetime = e.duration(EnvBankKeyLifetime, profile.KeyLifetime, minKeyLifetime, maxKeyLifetime, "")
	profile.VisibilityLag = e.duration(EnvBankVisibilityLag, profile.VisibilityLag, minVisibilityLag, maxVisibilityLag, "")
	c := &bank.Config{
		BaseURL: url, Token: bank.Secret(token), Profile: profile,
		SendTimeout:   e.duration(EnvBankSendTimeout, bank.DefaultSendTimeout, minBankTimeout, bank.MaxTimeout, ""),
		StatusTimeout: e.duration(EnvBankStatusTimeout, bank.DefaultStatusTimeout, minBankTimeout, bank.MaxTimeout, ""),
	}
	if len(e.faults) > before {
		return c
	}
	checked := *c
	checked.Now = func() time.Time { return time.Time{} } // New requires a clock
	if _, err := bank.New(checked); err != nil {
		e.fault("%s and the other BANK_ variables: %w", EnvBankURL, err)
	}
	return c
}

// profile reads the file that BANK_PROFILE names.
func (e *environment) profile() bank.Profile {
	path, set := e.get(EnvBankProfile)
	if !set {
		return bank.GenericProfile()
	}
	profile, err := readProfile(path)
	if err != nil {
		e.fault("%s: %w", EnvBankProfile, err)
		return bank.GenericProfile()
	}
	return profile
}

func readProfile(path string) (bank.Profile, error) {
	file, err := os.Open(path) //nolint:gosec // the deployment names the file
	if err != nil {
		return bank.Profile{}, fmt.Errorf("read bank profile: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(file, bank.MaxProfileBytes+1))
	if err != nil {
		return bank.Profile{}, fmt.Errorf("read bank profile: %w", err)
	}
	profile, err := bank.ParseProfile(text)
	if err != nil {
		return bank.Profile{}, fmt.Errorf("read bank profile %s: %w", path, err)
	}
	return profile, nil
}
