package doctor

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/spanner/spansql"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/schema"
)

var errNoFunction = errors.New("the function is not named; give --function, or --function-timeout")

var errNoPolicies = errors.New("the Pub/Sub emulator keeps no policies; --without-rights skips this check")

// newFunction reads the function's variables, with the function's own defaults.
func newFunction(env func(string) string) (Function, error) {
	var faults []error
	duration := func(name string, byDefault time.Duration) time.Duration {
		value := env(name)
		if value == "" {
			return byDefault
		}
		d, err := time.ParseDuration(value)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s is %q, not a duration", name, value))
		}
		return d
	}
	key := bank.GenericProfile().KeyLifetime
	if env(config.EnvBankProfile) != "" {
		key = 0 // the profile may have another, and is not read
	}
	f := Function{
		Database:     env(config.EnvDatabase),
		DatabaseRole: env(config.EnvDatabaseRole),
		Settle:       duration(config.EnvSettleTimeout, config.DefaultSettleTimeout),
		BankSend:     duration(config.EnvBankSendTimeout, bank.DefaultSendTimeout),
		Bank:         env(config.EnvBankURL) != "",
		KeyLifetime:  duration(config.EnvBankKeyLifetime, key),
	}
	return f, errors.Join(faults...)
}

// parseSchema compares a database's DDL with that of this version.
func parseSchema(statements []string) (Schema, error) {
	want, err := schema.Statements()
	if err != nil {
		return Schema{}, err
	}
	wanted, err := parse(want)
	if err != nil {
		return Schema{}, err
	}
	have, err := parse(statements)
	if err != nil {
		return Schema{}, err
	}
	s := Schema{Roles: have.roles, VersionRetention: have.versions}
	for name := range wanted.parts {
		if wanted.parts[name] != have.parts[name] {
			s.Lacking = append(s.Lacking, name)
		}
	}
	slices.Sort(s.Lacking)
	receipts := have.tables["settlement_receipts"]
	if s.ReceiptTable = receipts != nil; s.ReceiptTable && receipts.RowDeletionPolicy != nil {
		s.PolicyColumn, s.PolicyDays = string(receipts.RowDeletionPolicy.Column), receipts.RowDeletionPolicy.NumDays
	}
	return s, nil
}

// definitions are the objects that DDL statements define.
type definitions struct {
	// parts are columns, keys and indexes by name, in the spelling of spansql.
	parts  map[string]string
	tables map[string]*spansql.CreateTable
	roles  map[string][]string
	// versions is the version retention; zero: not stated.
	versions time.Duration
}

var versionRetention = regexp.MustCompile(`(?is)^ALTER\s+DATABASE\b.*version_retention_period\s*=\s*['"]([^'"]*)['"]`)

// parse reads DDL statements and skips those about other objects.
func parse(statements []string) (definitions, error) {
	d := definitions{parts: map[string]string{}, tables: map[string]*spansql.CreateTable{}, roles: map[string][]string{}}
	for _, text := range statements {
		if m := versionRetention.FindStringSubmatch(text); m != nil {
			var err error
			if d.versions, err = period(m[1]); err != nil {
				return d, err
			}
			continue
		}
		ddl, err := spansql.ParseDDL("schema", text)
		if err != nil {
			continue // spansql does not know all of Spanner's DDL
		}
		for _, statement := range ddl.List {
			d.add(statement)
		}
	}
	return d, nil
}

func (d *definitions) add(statement spansql.DDLStmt) {
	switch s := statement.(type) {
	case *spansql.CreateTable:
		name := string(s.Name)
		d.tables[name] = s
		var key []string
		for _, part := range s.PrimaryKey {
			key = append(key, part.SQL())
		}
		d.parts["table "+name] = strings.Join(key, ", ")
		for _, column := range s.Columns {
			d.parts["column "+name+"."+string(column.Name)] = column.SQL()
		}
	case *spansql.AlterTable:
		if added, is := s.Alteration.(spansql.AddColumn); is {
			d.parts["column "+string(s.Name)+"."+string(added.Def.Name)] = added.Def.SQL()
		}
	case *spansql.CreateIndex:
		index := *s
		index.IfNotExists = false
		d.parts["index "+string(s.Name)] = index.SQL()
	case *spansql.GrantRole:
		for _, role := range s.ToRoleNames {
			d.roles[string(role)] = append(d.roles[string(role)], rights(s)...)
		}
	}
}

// rights returns the privileges that a statement grants on whole tables.
func rights(grant *spansql.GrantRole) []string {
	var all []string
	for _, table := range grant.TableNames {
		for _, privilege := range grant.Privileges {
			if len(privilege.Columns) == 0 {
				all = append(all, privilege.Type.SQL()+" "+string(table))
			}
		}
	}
	return all
}

// period parses Spanner's format of a duration: a number with s, m, h or d.
func period(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	if count, isDays := strings.CutSuffix(text, "d"); isDays {
		if n, err := strconv.ParseInt(count, 10, 32); err == nil {
			return time.Duration(n) * day, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("the version retention is %q, not a duration: %w", text, err)
	}
	return d, nil
}
