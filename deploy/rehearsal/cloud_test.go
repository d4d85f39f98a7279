package rehearsal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/settleonce/settleonce/emulator"
)

const (
	project       = "rehearsal-project"
	projectNumber = "123456789012"
)

// doc is a resource in the API's JSON form.
type doc = map[string]any

// at returns the value at a path of members; the zero value if it is absent or of
// another type.
func at[T any](d doc, path ...string) T {
	for _, name := range path[:len(path)-1] {
		d, _ = d[name].(doc)
	}
	value, _ := d[path[len(path)-1]].(T)
	return value
}

// docsAt returns the objects of the list at a path.
func docsAt(d doc, path ...string) []doc {
	var all []doc
	for _, value := range at[[]any](d, path...) {
		all = append(all, value.(doc))
	}
	return all
}

// cloud simulates a Google Cloud project. Spanner and Pub/Sub are the emulators, with
// their missing features added here; every other API is a store of resources. A
// request that the scripts do not need fails the test.
type cloud struct {
	t       *testing.T
	port    string
	spanner *emulator.Spanner
	pubsub  *emulator.PubSub
	run     *platform

	mu        sync.Mutex
	docs      map[key]doc
	policies  map[key]doc
	roles     map[string][]string // DDL about roles, by database
	members   map[string]bool     // members that policies can name
	writes    []string            // requests that write
	published int
}

// key identifies a resource: its API, and its name without the API's version.
type key struct{ api, name string }

// request is a request from gcloud.
type request struct {
	key
	version string
	verb    string // after the colon of a custom method
	method  string
	query   map[string][]string
	body    []byte
	raw     *http.Request
}

func (r request) String() string {
	text := r.method + " " + r.api + " " + r.name
	if r.verb != "" {
		text += ":" + r.verb
	}
	return text
}

// decode reads the request's body.
func (r request) decode() doc {
	var body doc
	if err := json.Unmarshal(r.body, &body); err != nil {
		return doc{}
	}
	return body
}

// failure is an API's error.
type failure struct {
	code            int
	status, message string
}

func (f failure) Error() string { return f.message }

func notFound(name string) failure {
	return failure{http.StatusNotFound, "NOT_FOUND", name + " not found"}
}

func exists(name string) failure {
	return failure{http.StatusConflict, "ALREADY_EXISTS", name + " already exists"}
}

func refused(format string, args ...any) failure {
	return failure{http.StatusBadRequest, "FAILED_PRECONDITION", fmt.Sprintf(format, args...)}
}

// newCloud starts an empty project.
func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{
		t: t, docs: map[key]doc{}, policies: map[key]doc{}, roles: map[string][]string{},
		members: map[string]bool{"user:claims@example.com": true, "group:payouts@example.com": true},
	}
	var err error
	if c.spanner, err = emulator.StartSpanner(t.Context(), emulator.WithPrivate()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.spanner.Close() })
	if c.pubsub, err = emulator.StartPubSub(t.Context(), emulator.WithPrivate()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.pubsub.Close() })
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	_, c.port, _ = net.SplitHostPort(server.Listener.Addr().String())
	c.run = newPlatform(t, c)
	return c
}

// ServeHTTP answers gcloud, one request at a time.
func (c *cloud) ServeHTTP(w http.ResponseWriter, raw *http.Request) {
	body, err := io.ReadAll(raw.Body)
	if err != nil {
		c.t.Error(err)
	}
	r := request{method: raw.Method, query: raw.URL.Query(), body: body, raw: raw}
	host, _, _ := strings.Cut(raw.Host, ".")
	r.api = host[strings.LastIndex(host, "-")+1:] // a regional endpoint has its region before the API
	r.version, r.name, _ = strings.Cut(strings.TrimPrefix(raw.URL.Path, "/"), "/")
	r.name = strings.Replace(r.name, "projects/-/", "projects/"+project+"/", 1)
	if last := path.Base(r.name); r.api != "upload" && strings.Contains(last, ":") {
		name, verb, _ := strings.Cut(last, ":")
		r.name, r.verb = path.Join(path.Dir(r.name), name), verb
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.method != http.MethodGet && r.verb != "getIamPolicy" {
		c.writes = append(c.writes, r.String())
	}
	answer, err := c.answer(r) //nolint:contextcheck // the request carries its context
	status := http.StatusOK
	if err != nil {
		f, is := err.(failure) //nolint:errorlint // never wrapped
		if !is {
			c.t.Errorf("%v: %v", r, err)
			f = failure{http.StatusBadRequest, "INVALID_ARGUMENT", err.Error()}
		}
		status = f.code
		answer = doc{"error": doc{"code": f.code, "status": f.status, "message": f.message}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if text, is := answer.([]byte); is {
		_, _ = w.Write(text)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (c *cloud) answer(r request) (any, error) {
	switch r.verb {
	case "getIamPolicy":
		return c.getPolicy(r.key)
	case "setIamPolicy":
		return c.setPolicy(r)
	}
	switch r.api {
	case "spanner":
		return c.spannerAPI(r)
	case "pubsub":
		return c.pubsubAPI(r)
	case "cloudfunctions":
		return c.functionsAPI(r)
	case "upload":
		return doc{}, c.run.upload(r.name, r.body)
	case "secretmanager":
		return c.secretsAPI(r)
	case "serviceusage":
		return c.servicesAPI(r)
	case "iam":
		return c.accountsAPI(r)
	case "cloudresourcemanager":
		if r.method == http.MethodGet && r.name == "projects/"+project {
			return doc{"projectId": project, "projectNumber": projectNumber, "lifecycleState": "ACTIVE"}, nil
		}
	case "cloudscheduler", "eventarc", "logging", "monitoring":
		return c.resource(r)
	}
	return nil, fmt.Errorf("the project has no such method")
}

// resource has the methods common to all APIs: create, get, list, update, delete.
func (c *cloud) resource(r request) (any, error) {
	switch r.method {
	case http.MethodPost:
		return c.create(r)
	case http.MethodGet:
		if found, is := c.docs[r.key]; is {
			return found, nil
		}
		if isCollection(r.name) {
			return c.list(r.key), nil
		}
		return nil, notFound(r.name)
	case http.MethodPatch, http.MethodPut:
		found, is := c.docs[r.key]
		if !is {
			return nil, notFound(r.name)
		}
		body := r.decode()
		if etag, is := found["etag"]; is && body["etag"] != nil && body["etag"] != etag {
			return nil, failure{http.StatusConflict, "ABORTED", "another etag"}
		}
		maps.Copy(found, body)
		c.stamp(found)
		return found, nil
	case http.MethodDelete:
		if _, is := c.docs[r.key]; !is {
			return nil, notFound(r.name)
		}
		delete(c.docs, r.key)
		return doc{}, nil
	}
	return nil, fmt.Errorf("the project has no such method")
}

// isCollection distinguishes projects/P/secrets from projects/P/secrets/S: names and IDs
// alternate.
func isCollection(name string) bool { return strings.Count(name, "/")%2 == 0 }

func (c *cloud) create(r request) (any, error) {
	body := r.decode()
	id := ""
	for name, values := range r.query {
		if strings.HasSuffix(name, "Id") {
			id = values[0]
		}
	}
	if id == "" {
		id = path.Base(at[string](body, "name"))
	}
	if id == "." { // the API generates the ID
		id = fmt.Sprintf("id-%d", len(c.docs))
	}
	to := key{r.api, r.name + "/" + id}
	if _, is := c.docs[to]; is {
		return nil, exists(to.name)
	}
	body["name"] = to.name
	if r.api == "logging" { // a metric's name is its ID
		body["name"] = id
	}
	c.docs[to] = body
	c.stamp(body)
	return body, nil
}

// stamp sets a new etag on a resource of an API that checks it.
func (c *cloud) stamp(d doc) {
	if _, is := d["displayName"]; is {
		c.published++
		d["etag"] = fmt.Sprintf("etag-%d", c.published)
	}
}

func (c *cloud) list(in key) doc {
	var names []string
	for to := range c.docs {
		if to.api == in.api && path.Dir(to.name) == in.name {
			names = append(names, to.name)
		}
	}
	slices.Sort(names)
	found := []doc{}
	for _, name := range names {
		found = append(found, c.docs[key{in.api, name}])
	}
	return doc{path.Base(in.name): found}
}

func (c *cloud) getPolicy(of key) (doc, error) {
	if policy, is := c.policies[of]; is {
		return policy, nil
	}
	return doc{"version": 1, "etag": "ZTA="}, nil
}

// setPolicy sets a policy and rejects unknown members.
func (c *cloud) setPolicy(r request) (doc, error) {
	policy := at[doc](r.decode(), "policy")
	for _, binding := range docsAt(policy, "bindings") {
		for _, member := range at[[]any](binding, "members") {
			if !c.members[member.(string)] {
				return nil, failure{http.StatusBadRequest, "INVALID_ARGUMENT", fmt.Sprintf("Service account %s does not exist.", member)}
			}
		}
	}
	c.policies[r.key] = policy
	return policy, nil
}

// granted lists the roles of a member, as "role on api name" with the condition's title.
func (c *cloud) granted(member string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for resource, policy := range c.policies {
		for _, binding := range docsAt(policy, "bindings") {
			if !slices.Contains(at[[]any](binding, "members"), any(member)) {
				continue
			}
			grant := fmt.Sprintf("%s on %s", binding["role"], path.Base(resource.name))
			if condition, is := binding["condition"].(doc); is {
				grant += fmt.Sprintf(" as %s", condition["title"])
			}
			all = append(all, grant)
		}
	}
	slices.Sort(all)
	return all
}

// takeWrites returns the write requests since the last call.
func (c *cloud) takeWrites() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.writes
	c.writes = nil
	return taken
}

// get returns a resource.
func (c *cloud) get(api, name string) doc {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.docs[key{api, name}]
}

func (c *cloud) servicesAPI(r request) (any, error) {
	enabled := key{"serviceusage", "projects/" + project + "/services"}
	switch {
	case r.verb == "batchEnable", r.verb == "enable":
		ids := at[[]any](r.decode(), "serviceIds")
		if r.verb == "enable" {
			ids = []any{path.Base(r.name)}
		}
		for _, id := range ids {
			name := enabled.name + "/" + id.(string)
			c.docs[key{r.api, name}] = doc{"name": name, "config": doc{"name": id}, "state": "ENABLED"}
		}
		return done("enabled", nil), nil
	case r.verb == "generateServiceIdentity":
		email := "service-" + projectNumber + "@gcp-sa-" + strings.TrimSuffix(path.Base(r.name), ".googleapis.com") + ".iam.gserviceaccount.com"
		c.members["serviceAccount:"+email] = true
		return done("identity", doc{"email": email, "uniqueId": "1"}), nil
	case r.method == http.MethodGet && strings.HasPrefix(r.name, "operations"):
		return done(path.Base(r.name), nil), nil
	case r.method == http.MethodGet:
		return c.resource(r)
	}
	return nil, fmt.Errorf("the project has no such method")
}

// done is a completed long-running operation.
func done(id string, response doc) doc {
	if response == nil {
		response = doc{}
	}
	return doc{"name": "operations/" + id, "done": true, "response": response}
}

func (c *cloud) accountsAPI(r request) (any, error) {
	if r.method == http.MethodPost && r.verb == "" {
		body := r.decode()
		email := fmt.Sprintf("%s@%s.iam.gserviceaccount.com", body["accountId"], project)
		to := key{r.api, r.name + "/" + email}
		if _, is := c.docs[to]; is {
			return nil, exists(email)
		}
		c.docs[to] = doc{"name": to.name, "email": email}
		c.members["serviceAccount:"+email] = true
		return c.docs[to], nil
	}
	if r.method == http.MethodDelete {
		delete(c.members, "serviceAccount:"+path.Base(r.name))
	}
	if r.method == http.MethodGet && isCollection(r.name) {
		return doc{"accounts": c.list(r.key)["serviceAccounts"]}, nil
	}
	return c.resource(r)
}

func (c *cloud) secretsAPI(r request) (any, error) {
	switch r.verb {
	case "addVersion":
		if _, is := c.docs[r.key]; !is {
			return nil, notFound(r.name)
		}
		versions, _ := c.list(key{r.api, r.name + "/versions"})["versions"].([]doc)
		name := fmt.Sprintf("%s/versions/%d", r.name, len(versions)+1)
		c.docs[key{r.api, name}] = doc{
			"name": name, "state": "ENABLED", "createTime": fmt.Sprintf("2026-11-29T00:00:%02dZ", len(versions)), "payload": r.decode()["payload"],
		}
		return doc{"name": name, "state": "ENABLED", "clientSpecifiedPayloadChecksum": true}, nil
	case "access":
		versions, _ := c.list(key{r.api, path.Dir(r.name)})["versions"].([]doc)
		if len(versions) == 0 {
			return nil, notFound(r.name)
		}
		latest := versions[len(versions)-1]
		return doc{"name": latest["name"], "payload": latest["payload"]}, nil
	}
	if r.method == http.MethodDelete {
		maps.DeleteFunc(c.docs, func(to key, _ doc) bool { return to.api == r.api && strings.HasPrefix(to.name, r.name+"/") })
	}
	return c.resource(r)
}

// forwarded sends a request to an emulator, with another body unless that is nil.
func (c *cloud) forwarded(r request, base string, body doc) (doc, error) {
	text := r.body
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(r.raw.Context(), r.method, base+r.raw.URL.RequestURI(), bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	// The Spanner emulator's REST server fails to encode "not found".
	if response.StatusCode == http.StatusInternalServerError && bytes.Contains(answer, []byte("failed to marshal error message")) {
		return nil, notFound(r.name)
	}
	var d doc
	if err := json.Unmarshal(answer, &d); err != nil {
		return nil, fmt.Errorf("the emulator answered %s: %s", response.Status, answer)
	}
	if response.StatusCode != http.StatusOK {
		if e, is := d["error"].(doc); is {
			d = e
		}
		return nil, failure{response.StatusCode, at[string](d, "status"), at[string](d, "message")}
	}
	return d, nil
}
