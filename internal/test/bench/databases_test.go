package main

import (
	"strings"
	"testing"

	database "cloud.google.com/go/spanner/admin/database/apiv1"

	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

func TestCreatesDatabasesOfItsOwn(t *testing.T) {
	t.Parallel()
	bystander := emulatortest.Database(t, nil)
	instance, _, _ := strings.Cut(bystander, "/databases/")
	admin, err := database.NewDatabaseAdminClient(t.Context(), emulatortest.Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	created := map[string]bool{bystander: true}
	for range 3 {
		name, err := createIn(t.Context(), admin, instance, nil)
		if err != nil || created[name] || !strings.HasPrefix(name, instance+"/databases/"+namePrefix) {
			t.Errorf("created %q, %v; before it %v", name, err, created)
		}
		created[name] = true
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
		if instanceName.MatchString(name) != good {
			t.Errorf("%q: %v", name, !good)
		}
	}
}
