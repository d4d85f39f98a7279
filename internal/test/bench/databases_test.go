package main

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

func TestDropsOwnDatabasesOnly(t *testing.T) {
	t.Parallel()
	foreign := emulatortest.Database(t, []string{`CREATE TABLE t (k INT64) PRIMARY KEY (k)`})
	instance, id, _ := strings.Cut(foreign, "/databases/")
	options := emulatortest.Spanner(t).ClientOptions()
	d, err := openDatabases(t.Context(), instance, options...)
	if err != nil {
		t.Fatal(err)
	}
	own, err := d.create(t.Context(), []string{`CREATE TABLE t (k INT64) PRIMARY KEY (k)`})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(own, instance+"/databases/"+namePrefix) {
		t.Errorf("a database named %s", own)
	}
	if _, err := d.createNamed(t.Context(), id, nil); status.Code(errors.Unwrap(err)) != codes.AlreadyExists {
		t.Errorf("creating an existing database: %v", err)
	}
	another, err := openDatabases(t.Context(), instance, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer another.admin.Close()
	for name, drop := range map[string]func() error{
		"a foreign database":     func() error { return d.drop(t.Context(), foreign) },
		"another run's database": func() error { return another.drop(t.Context(), own) },
		"an absent database":     func() error { return d.drop(t.Context(), instance+"/databases/absent") },
	} {
		if err := drop(); !errors.Is(err, errNotOurs) {
			t.Errorf("dropping %s: %v", name, err)
		}
	}
	if err := d.close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.drop(t.Context(), own); !errors.Is(err, errNotOurs) {
		t.Errorf("dropping a database twice: %v", err)
	}
}

func TestRejectsOtherNamesThanInstances(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"projects/p/instances/in":              true,
		"projects/p/instances/in/databases/db": false,
		"projects/p":                           false,
		"":                                     false,
		"projects/p/instances/in/":             false,
	} {
		d, err := openDatabases(t.Context(), name, emulatortest.Spanner(t).ClientOptions()...)
		if (err == nil) != good || err != nil && !errors.Is(err, errNotOurs) {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil {
			d.admin.Close()
		}
	}
}
