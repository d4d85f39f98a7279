package rehearsal

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
)

// spannerAPI is the Spanner emulator, with its missing features: an instance's
// configuration, edition and updates, deletion protection, backup schedules and
// database roles.
func (c *cloud) spannerAPI(r request) (any, error) {
	base := c.spanner.REST
	kind := path.Base(path.Dir(r.name))
	switch {
	case path.Base(r.name) == endedOperation:
		return ended(path.Dir(path.Dir(r.name))), nil
	case strings.Contains(r.name, "/backupSchedules"):
		return c.resource(r)
	case path.Base(r.name) == "backups":
		return doc{}, nil
	case path.Base(r.name) == "instances" && r.method == http.MethodPost:
		return c.createInstance(r, base)
	case kind == "instances" && r.method == http.MethodPatch:
		maps.Copy(c.docs[r.key], at[doc](r.decode(), "instance"))
		return ended(r.name), nil
	case kind == "databases" && r.method == http.MethodPatch:
		c.extra(r.key)["enableDropProtection"] = r.decode()["enableDropProtection"]
		return ended(r.name), nil
	case kind == "databases" && r.method == http.MethodDelete:
		if c.extra(r.key)["enableDropProtection"] == true {
			return nil, refused("database %s is protected against deletion", r.name)
		}
	case path.Base(r.name) == "ddl" && r.method == http.MethodPatch:
		return c.updateDDL(r, base)
	case path.Base(r.name) == "ddl":
		answer, err := c.forwarded(r, base, nil)
		if err != nil {
			return nil, err
		}
		statements := at[[]any](answer, "statements")
		for _, role := range c.roles[path.Dir(r.name)] {
			statements = append(statements, role)
		}
		return doc{"statements": statements}, nil
	case path.Base(r.name) == "operations":
		return doc{}, nil
	}
	answer, err := c.forwarded(r, base, nil)
	if err != nil {
		return nil, err
	}
	switch {
	case r.method == http.MethodDelete:
		maps.DeleteFunc(c.docs, func(of key, _ doc) bool { return of.api == r.api && strings.HasPrefix(of.name+"/", r.name+"/") })
		delete(c.roles, r.name)
	case kind == "databases":
		answer["versionRetentionPeriod"], err = c.versionRetention(r, base)
		maps.Copy(answer, c.extra(r.key))
	case kind == "instances":
		maps.Copy(answer, c.extra(r.key))
	}
	return answer, err
}

// endedOperation is the ID of an operation that ran here and not in the emulator.
const endedOperation = "ended"

func ended(of string) doc {
	return doc{"name": of + "/operations/" + endedOperation, "done": true, "response": doc{"name": of}}
}

// extra returns the fields that cloud stores for a resource of an emulator.
func (c *cloud) extra(of key) doc {
	if c.docs[of] == nil {
		c.docs[of] = doc{}
	}
	return c.docs[of]
}

func (c *cloud) createInstance(r request, base string) (any, error) {
	body := r.decode()
	instance := at[doc](body, "instance")
	kept := c.extra(key{r.api, r.name + "/" + at[string](body, "instanceId")})
	for _, unknown := range []string{"edition", "defaultBackupScheduleType", "config"} {
		kept[unknown] = instance[unknown]
		delete(instance, unknown)
	}
	instance["config"] = "projects/" + project + "/instanceConfigs/emulator-config"
	return c.forwarded(r, base, body)
}

var (
	aboutRoles = regexp.MustCompile(`^(CREATE ROLE|GRANT) `)
	retention  = regexp.MustCompile(`version_retention_period = '(\w+)'`)
)

func (c *cloud) updateDDL(r request, base string) (any, error) {
	database := path.Dir(r.name)
	body := r.decode()
	var others []any
	for _, statement := range at[[]any](body, "statements") {
		text := strings.TrimSpace(statement.(string))
		switch {
		case !aboutRoles.MatchString(text):
			others = append(others, statement)
		case strings.HasPrefix(text, "CREATE") && slices.Contains(c.roles[database], text):
			return nil, refused("Duplicate name in schema: %s", text)
		default:
			c.roles[database] = append(c.roles[database], text)
		}
	}
	if len(others) == 0 {
		return ended(database), nil
	}
	body["statements"] = others
	return c.forwarded(r, base, body)
}

func (c *cloud) versionRetention(r request, base string) (string, error) {
	ddl := r
	ddl.raw = r.raw.Clone(r.raw.Context())
	ddl.raw.URL.Path += "/ddl"
	answer, err := c.forwarded(ddl, base, nil)
	if match := retention.FindStringSubmatch(fmt.Sprint(answer["statements"])); match != nil {
		return match[1], err
	}
	return "1h", err // Spanner's default
}

// pubsubAPI is the Pub/Sub emulator, with message schemas. The emulator has them for
// Avro and over gRPC only; cloud stores them and does not enforce them.
func (c *cloud) pubsubAPI(r request) (any, error) {
	base := "http://" + c.pubsub.Host
	switch {
	case strings.HasPrefix(r.name, "projects/"+project+"/schemas"):
		if r.verb == "commit" {
			maps.Copy(c.docs[r.key], at[doc](r.decode(), "schema"))
			return c.docs[r.key], nil
		}
		return c.resource(r)
	case path.Base(path.Dir(r.name)) == "subscriptions" && r.verb == "":
		return c.subscriptionsAPI(r, base)
	case path.Base(path.Dir(r.name)) == "topics" && r.verb == "" && r.method != http.MethodDelete:
		return c.topicsAPI(r, base)
	}
	return c.forwarded(r, base, nil)
}

func (c *cloud) topicsAPI(r request, base string) (any, error) {
	kept := c.extra(r.key)
	body := r.decode()
	topic := body
	if r.method == http.MethodPatch {
		topic, _ = body["topic"].(doc)
		fields := strings.Split(at[string](body, "updateMask"), ",")
		if i := slices.Index(fields, "schemaSettings"); i >= 0 {
			body["updateMask"] = strings.Join(slices.Delete(fields, i, i+1), ",")
			delete(kept, "schemaSettings")
		}
	}
	if settings, is := topic["schemaSettings"].(doc); is {
		schema := at[string](settings, "schema")
		if _, is := c.docs[key{r.api, schema}]; !is {
			return nil, notFound(schema)
		}
		kept["schemaSettings"] = settings
		delete(topic, "schemaSettings")
	}
	if r.method == http.MethodGet {
		body = nil
	}
	answer, err := c.forwarded(r, base, body)
	if err == nil {
		maps.Copy(answer, kept)
	}
	return answer, err
}

// subscriptionsAPI stores two fields here: the retention, because the emulator allows 7
// days where Pub/Sub allows 31, and the expiration policy, which the emulator cannot
// update.
func (c *cloud) subscriptionsAPI(r request, base string) (any, error) {
	kept := c.extra(r.key)
	body := r.decode()
	subscription := body
	if r.method == http.MethodPatch {
		subscription, _ = body["subscription"].(doc)
		if fields := strings.Split(at[string](body, "updateMask"), ","); slices.Contains(fields, "expirationPolicy") {
			kept["expirationPolicy"] = subscription["expirationPolicy"]
			delete(subscription, "expirationPolicy")
			body["updateMask"] = strings.Join(slices.DeleteFunc(fields, func(f string) bool { return f == "expirationPolicy" }), ",")
		}
	}
	if length, is := subscription["messageRetentionDuration"]; is {
		kept["messageRetentionDuration"] = length
		subscription["messageRetentionDuration"] = "604800s"
	}
	if r.method == http.MethodGet || r.method == http.MethodDelete {
		body = nil
	}
	answer, err := c.forwarded(r, base, body)
	if err == nil && r.method != http.MethodDelete {
		maps.Copy(answer, kept)
	}
	return answer, err
}
