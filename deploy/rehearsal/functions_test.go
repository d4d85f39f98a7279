package rehearsal

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// platform simulates Cloud Functions, Cloud Build, Cloud Run and Eventarc: it builds the
// uploaded source, runs the program and subscribes it to the trigger's topic.
type platform struct {
	t        *testing.T
	cloud    *cloud
	dir      string
	uploads  map[string][]byte // zip files, by name
	programs map[string]string // built programs, by digest of the source and its build environment
	running  map[string]*process
	triggers int
}

// process is a function's only instance.
type process struct {
	cmd  *exec.Cmd
	url  string
	log  *os.File
	done chan struct{}
}

func newPlatform(t *testing.T, c *cloud) *platform {
	t.Helper()
	p := &platform{
		t: t, cloud: c, dir: t.TempDir(), uploads: map[string][]byte{}, programs: map[string]string{}, running: map[string]*process{},
	}
	t.Cleanup(func() {
		for _, running := range p.running {
			running.stop()
		}
	})
	return p
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(10 * time.Second): // Cloud Run's limit
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	_ = p.log.Close()
}

func (p *platform) upload(name string, text []byte) error {
	p.uploads[path.Base(name)] = bytes.Clone(text)
	return nil
}

// functionsAPI is the Cloud Functions API. It creates the trigger in Eventarc's store and
// its subscription in the Pub/Sub emulator.
func (c *cloud) functionsAPI(r request) (any, error) {
	switch {
	case r.version == "v1": // functions of the first generation
		return doc{}, nil
	case strings.HasSuffix(r.name, "/runtimes"):
		return doc{"runtimes": []doc{{"name": "go126", "environment": "GEN_2", "stage": "GA"}}}, nil
	case r.verb == "generateUploadUrl":
		name := fmt.Sprintf("source-%d.zip", len(c.run.uploads))
		return doc{
			"uploadUrl":     "http://upload.localhost:" + c.port + "/v1/" + name,
			"storageSource": doc{"bucket": "uploads", "object": name},
		}, nil
	case strings.Contains(r.name, "/operations/"):
		return operation(r.name), nil
	case r.method == http.MethodGet && strings.Contains(r.name, "/locations/-/"):
		return c.allFunctions(r.api), nil
	case r.method == http.MethodGet:
		return c.resource(r)
	case r.method == http.MethodPost:
		return c.createFunction(r)
	case r.method == http.MethodPatch:
		return c.updateFunction(r)
	case r.method == http.MethodDelete:
		return c.deleteFunction(r)
	}
	return nil, fmt.Errorf("the project has no such method")
}

func (c *cloud) allFunctions(api string) doc {
	all := []doc{}
	for of, d := range c.docs {
		if of.api == api && strings.Contains(of.name, "/functions/") {
			all = append(all, d)
		}
	}
	return doc{"functions": all}
}

func (c *cloud) createFunction(r request) (any, error) {
	name := r.name + "/" + r.query["functionId"][0]
	to := key{r.api, name}
	if _, is := c.docs[to]; is {
		return nil, exists(name)
	}
	function := r.decode()
	function["name"], function["environment"], function["state"] = name, "GEN_2", "ACTIVE"
	at[doc](function, "serviceConfig")["service"] = strings.Replace(name, "/functions/", "/services/", 1)
	trigger, is := function["eventTrigger"].(doc)
	if !is {
		return nil, refused("function %s has no trigger", name)
	}
	if err := c.deploy(function); err != nil {
		return nil, err
	}
	if err := c.createTrigger(r, function, trigger); err != nil {
		return nil, err
	}
	c.docs[to] = function
	return operation(name), nil
}

// operation is the API's answer to a change of a function and to a request for the
// operation, which has always ended here.
func operation(name string) doc {
	return doc{
		"name": path.Dir(path.Dir(name)) + "/operations/" + path.Base(name), "done": true, "response": doc{},
		"metadata": doc{"@type": "type.googleapis.com/google.cloud.functions.v2.OperationMetadata", "stages": []doc{}},
	}
}

// updateFunction changes the fields in the mask. A mask with the whole trigger creates a
// new one with a new subscription; the real service may keep an unchanged one, but
// does not promise it.
func (c *cloud) updateFunction(r request) (any, error) {
	function, is := c.docs[r.key]
	if !is {
		return nil, notFound(r.name)
	}
	changed := r.decode()
	mask := strings.Split(r.query["updateMask"][0], ",")
	for _, field := range mask {
		parts := strings.Split(field, ".")
		from, to := changed, function
		for _, part := range parts[:len(parts)-1] {
			from, _ = from[camel(part)].(doc)
			to, _ = to[camel(part)].(doc)
		}
		last := camel(parts[len(parts)-1])
		to[last] = from[last]
	}
	if err := c.deploy(function); err != nil {
		return nil, err
	}
	if slices.Contains(mask, "event_trigger") {
		if err := c.createTrigger(r, function, at[doc](function, "eventTrigger")); err != nil {
			return nil, err
		}
	} else if err := c.pushTo(r, function); err != nil {
		return nil, err
	}
	return operation(r.name), nil
}

func (c *cloud) deleteFunction(r request) (any, error) {
	function, is := c.docs[r.key]
	if !is {
		return nil, notFound(r.name)
	}
	name := at[string](function, "eventTrigger", "trigger")
	if err := c.pubsubDo(r, http.MethodDelete, c.subscriptionOf(name), nil); err != nil {
		return nil, err
	}
	delete(c.docs, key{"eventarc", name})
	delete(c.docs, r.key)
	c.run.running[path.Base(r.name)].stop()
	delete(c.run.running, path.Base(r.name))
	return operation(r.name), nil
}

// camel turns service_config into serviceConfig.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

// createTrigger creates a trigger and a subscription with Eventarc's defaults.
func (c *cloud) createTrigger(r request, function, trigger doc) error {
	name := at[string](function, "serviceConfig", "service")
	c.run.triggers++
	id := fmt.Sprintf("%s-%06d", path.Base(name), c.run.triggers)
	triggerName := strings.Replace(path.Dir(path.Dir(name)), "/services", "", 1) + "/triggers/" + id
	topic := at[string](trigger, "pubsubTopic")
	subscription := fmt.Sprintf("projects/%s/subscriptions/eventarc-%s-%s-sub-000", project, trigger["triggerRegion"], id)
	err := c.pubsubDo(r, http.MethodPut, subscription, doc{
		"topic": topic, "ackDeadlineSeconds": 10, "messageRetentionDuration": "86400s",
		"retryPolicy": doc{"minimumBackoff": "10s", "maximumBackoff": "600s"},
		"pushConfig":  doc{"pushEndpoint": c.run.running[path.Base(name)].url},
	})
	if err != nil {
		return err
	}
	trigger["trigger"] = triggerName
	c.docs[key{"eventarc", triggerName}] = doc{
		"name": triggerName, "transport": doc{"pubsub": doc{"topic": topic, "subscription": subscription}},
	}
	return nil
}

func (c *cloud) subscriptionOf(trigger string) string {
	return at[string](c.docs[key{"eventarc", trigger}], "transport", "pubsub", "subscription")
}

// pushTo changes the existing subscription to push to the new instance.
func (c *cloud) pushTo(r request, function doc) error {
	name := at[string](function, "eventTrigger", "trigger")
	function = doc{"pushConfig": doc{"pushEndpoint": c.run.running[path.Base(r.name)].url}}
	return c.pubsubDo(r, http.MethodPost, c.subscriptionOf(name)+":modifyPushConfig", function)
}

// pubsubDo sends a request to the Pub/Sub emulator.
func (c *cloud) pubsubDo(r request, method, name string, body doc) error {
	inner := request{key: key{"pubsub", name}, method: method, raw: r.raw.Clone(r.raw.Context())}
	inner.raw.URL.Path, inner.raw.URL.RawQuery = "/v1/"+name, ""
	_, err := c.forwarded(inner, "http://"+c.pubsub.Host, body)
	return err
}

// deploy builds a function and replaces its running instance.
func (c *cloud) deploy(function doc) error {
	build, service := at[doc](function, "buildConfig"), at[doc](function, "serviceConfig")
	for _, account := range []any{service["serviceAccountEmail"], path.Base(fmt.Sprint(build["serviceAccount"]))} {
		if !c.members[fmt.Sprintf("serviceAccount:%s", account)] {
			return refused("Service account %s does not exist.", account)
		}
	}
	program, err := c.run.built(build)
	if err != nil {
		return refused("build failed: %v", err)
	}
	environment, err := c.environment(service, build)
	if err != nil {
		return err
	}
	// A deployed instance refuses an emulator. So the first one only has to start.
	name := path.Base(fmt.Sprint(function["name"]))
	started, err := launch(c.run.dir, name, program, append(environment, "K_SERVICE="+name))
	if err != nil {
		return err
	}
	started.stop()
	return c.run.start(name, program, append(environment, "SPANNER_EMULATOR_HOST="+c.spanner.GRPC))
}

// environment returns an instance's environment without K_SERVICE.
func (c *cloud) environment(service, build doc) ([]string, error) {
	environment := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		fmt.Sprintf("FUNCTION_TARGET=%s", build["entryPoint"]), fmt.Sprintf("CLOUD_RUN_TIMEOUT_SECONDS=%v", service["timeoutSeconds"]),
	}
	mounted, err := c.mount(service)
	if err != nil {
		return nil, err
	}
	for name, value := range at[doc](service, "environmentVariables") {
		text := fmt.Sprint(value)
		if file, is := mounted[text]; is { // a mounted path is a local file here
			text = file
		}
		environment = append(environment, name+"="+text)
	}
	for _, secret := range docsAt(service, "secretEnvironmentVariables") {
		value, err := c.secret(service, secret["secret"], secret["version"])
		if err != nil {
			return nil, err
		}
		environment = append(environment, fmt.Sprintf("%s=%s", secret["key"], value))
	}
	return environment, nil
}

// mount writes secret volumes to files, and returns the files by mount path.
func (c *cloud) mount(service doc) (map[string]string, error) {
	mounted := map[string]string{}
	for _, volume := range docsAt(service, "secretVolumes") {
		for _, version := range docsAt(volume, "versions") {
			value, err := c.secret(service, volume["secret"], version["version"])
			if err != nil {
				return nil, err
			}
			file := filepath.Join(c.run.dir, fmt.Sprintf("secret-%d", len(mounted)))
			if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
				return nil, err
			}
			mounted[path.Join(fmt.Sprint(volume["mountPath"]), strings.TrimPrefix(fmt.Sprint(version["path"]), "/"))] = file
		}
	}
	return mounted, nil
}

// secret reads a version of a secret with the rights of the function's account.
func (c *cloud) secret(service doc, secret, version any) (string, error) {
	name := fmt.Sprintf("projects/%s/secrets/%s", project, path.Base(fmt.Sprint(secret)))
	stored, is := c.docs[key{"secretmanager", fmt.Sprintf("%s/versions/%v", name, version)}]
	if !is {
		return "", refused("secret %s has no version %v", name, version)
	}
	policy := fmt.Sprint(c.policies[key{"secretmanager", name}])
	if !strings.Contains(policy, "secretmanager.secretAccessor") || !strings.Contains(policy, fmt.Sprint(service["serviceAccountEmail"])) {
		return "", refused("%s has no right to read secret %s", service["serviceAccountEmail"], name)
	}
	value, err := base64.StdEncoding.DecodeString(at[string](stored, "payload", "data"))
	return string(value), err
}

// built returns the program built from exactly the uploaded files.
func (p *platform) built(build doc) (string, error) {
	object := at[string](build, "source", "storageSource", "object")
	archive, is := p.uploads[object]
	if !is {
		return "", fmt.Errorf("no upload %q", object)
	}
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return "", err
	}
	// Not of the archive, which has the times of its files.
	sum := sha256.New()
	flags, _ := at[doc](build, "environmentVariables")["GOFLAGS"].(string)
	_, _ = fmt.Fprintln(sum, flags) // a hash never fails
	dir := filepath.Join(p.dir, object)
	for _, file := range files.File {
		if err := unpack(file, dir, sum); err != nil {
			return "", err
		}
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	if program, is := p.programs[digest]; is {
		return program, nil
	}
	program, err := buildAsBuildpack(dir, flags)
	if err == nil {
		p.programs[digest] = program
	}
	return program, err
}

func unpack(file *zip.File, dir string, sum io.Writer) error {
	if strings.HasSuffix(file.Name, "/") {
		return nil
	}
	if !filepath.IsLocal(file.Name) {
		return fmt.Errorf("the archive has %s in it", file.Name)
	}
	from, err := file.Open()
	if err != nil {
		return err
	}
	defer from.Close()
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(sum, file.Name, len(text)) // a hash never fails
	_, _ = sum.Write(text)
	to := filepath.Join(dir, file.Name) //nolint:gosec // checked above
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// start runs a program as the function's instance and stops the previous one.
func (p *platform) start(name, program string, environment []string) error {
	started, err := launch(p.dir, name, program, environment)
	if err != nil {
		return err
	}
	if before := p.running[name]; before != nil {
		before.stop()
	}
	p.running[name] = started
	return nil
}

// launch starts a program on a free port and waits until it listens.
func launch(dir, name, program string, environment []string) (*process, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)
	p := &process{cmd: exec.Command(program), url: "http://" + address + "/", done: make(chan struct{})} //nolint:noctx // the cleanup stops it
	if p.log, err = os.CreateTemp(dir, name+"-*.log"); err != nil {
		return nil, err
	}
	p.cmd.Env = append(environment, "PORT="+port)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the log has the reason of its end
		close(p.done)
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for {
		select {
		case <-p.done:
			text, _ := os.ReadFile(p.log.Name())
			return nil, refused("the container failed to start and listen on the port: %s", text)
		case <-limit:
			p.stop()
			return nil, refused("the container does not listen on the port")
		case <-tick.C:
			if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil { //nolint:noctx // it has a timeout
				return p, conn.Close()
			}
		}
	}
}
