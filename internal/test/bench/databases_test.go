package bench

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

func TestOnlyOwnDatabases(t *testing.T) {
	t.Parallel()
	foreign := emulatortest.Database(t, []string{`CREATE TABLE t (k INT64) PRIMARY KEY (k)`})
	instance, id, _ := strings.Cut(foreign, "/databases/")
	options := emulatortest.Spanner(t).ClientOptions()
	d, err := NewDatabases(instance, options...)
	if err != nil {
		t.Fatal(err)
	}
	own, err := d.Create(t.Context(), []string{`CREATE TABLE t (k INT64) PRIMARY KEY (k)`})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(own, instance+"/databases/"+namePrefix) {
		t.Errorf("a database named %s", own)
	}
	if _, err := d.create(t.Context(), id, nil); status.Code(errors.Unwrap(err)) != codes.AlreadyExists {
		t.Errorf("creating a database that is there: %v", err)
	}
	another, err := NewDatabases(instance, options...)
	if err != nil {
		t.Fatal(err)
	}
	for name, drop := range map[string]func() error{
		"a foreign one":      func() error { return d.Drop(t.Context(), foreign) },
		"another run's":      func() error { return another.Drop(t.Context(), own) },
		"one that is absent": func() error { return d.Drop(t.Context(), instance+"/databases/absent") },
	} {
		if err := drop(); !errors.Is(err, ErrNotOurs) {
			t.Errorf("dropping %s: %v", name, err)
		}
	}
	if left := d.Left(); len(left) != 1 || left[0] != own {
		t.Errorf("left %v", left)
	}
	if err := d.Drop(t.Context(), own); err != nil {
		t.Error(err)
	}
	if left := d.Left(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestInstanceNames(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"projects/p/instances/in":              true,
		"projects/p/instances/in/databases/db": false,
		"projects/p":                           false,
		"":                                     false,
		"projects/p/instances/in/":             false,
	} {
		if _, err := NewDatabases(name); (err == nil) != good || err != nil && !errors.Is(err, ErrNotOurs) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
