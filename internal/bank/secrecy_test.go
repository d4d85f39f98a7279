package bank

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// knownDetails matches every detail of an answer. Any other text quotes a part of the
// exchange.
var knownDetails = func() *regexp.Regexp {
	fixed := []string{
		detailNoRequest, detailNoName, detailRefused, detailTLS, detailTLSLate, detailNoConn, detailTimeout, detailBroken,
		detailBodyBroken, detailBodyLarge, detailUnknownWord, detailFinalWord, detailBreakerOpen,
		errNotWhole.Error(), errNoList.Error(), errNoTransfer.Error(), errOtherKey.Error(), errTransferBad.Error(),
		"a listed refusal, after an earlier send that may have reached the bank",
		"a problem that is not on the profile's reject list",
		"a refusal without a problem document",
		"an empty list, which this bank's profile does not count as not found",
		"more than one transfer",
		"rejected for a reason that hints at an earlier transfer",
		"the instruction has no key or no body", "the instruction has no key",
	}
	for i := range fixed {
		fixed[i] = regexp.QuoteMeta(fixed[i])
	}
	return regexp.MustCompile(`^(|` + strings.Join(fixed, "|") +
		`|HTTP status [0-9]+|the bank's transfer differs from ours in (amount|currency|creditor|, )+)$`)
}()

func checkDetail(t *testing.T, detail string) {
	t.Helper()
	if !knownDetails.MatchString(detail) {
		t.Errorf("the detail is no fixed text: %q", detail)
	}
}

func TestTokenIsNeverShown(t *testing.T) {
	t.Parallel()
	config := testConfig("https://bank.example")
	client := newClient(t, config)
	holder := struct{ client *Client }{client}
	var shown bytes.Buffer
	for _, value := range []any{config, &config, config.Token, &config.Token, []Secret{config.Token}, client, *client, holder, client.transport} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10.3s"} {
			fmt.Fprintf(&shown, verb+"\n", value)
		}
	}
	fmt.Fprintln(&shown, config.Token.String(), config.Token.GoString())
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&shown, nil), slog.NewTextHandler(&shown, nil)} {
		slog.New(handler).InfoContext(t.Context(), "shown", "secret", config.Token, "config", config.Token.LogValue())
	}
	encoded, err := json.Marshal(map[string]any{"secret": config.Token, "list": []Secret{config.Token}})
	if err != nil {
		t.Fatal(err)
	}
	shown.Write(encoded)
	for _, form := range []string{testToken, fmt.Sprintf("%x", testToken), fmt.Sprintf("%X", testToken), "tok-"} {
		if strings.Contains(shown.String(), form) {
			t.Errorf("the token is shown as %s", form)
		}
	}
	if !strings.Contains(string(encoded), hiddenSecret) {
		t.Errorf("no placeholder in %s", encoded)
	}
	if got := Secret("").String(); got != noSecret {
		t.Errorf("the empty secret shows as %s", got)
	}
}

func TestErrorsShowNoSecret(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*Config){
		func(c *Config) { c.Token = testToken + "\n" },
		func(c *Config) { c.BaseURL = "https://user:" + testToken + "@bank.example" },
		func(c *Config) { c.BaseURL = "https://bank.example/?token=" + testToken },
		func(c *Config) { c.BaseURL = "https://bank.example/%zz" + testToken },
		func(c *Config) { c.BaseURL = "http://" + testToken + ".example" },
	} {
		config := testConfig("https://bank.example")
		change(&config)
		c, err := New(config)
		if err == nil || c != nil {
			t.Errorf("%v was accepted", config)
		} else if strings.Contains(err.Error(), testToken) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}

// TestAnswersKeepNoPayload has a bank that echoes the request in its errors.
func TestAnswersKeepNoPayload(t *testing.T) {
	t.Parallel()
	for _, answer := range []script{
		reply(401, "", `{"detail":"token `+testToken+` is unknown"}`),
		reply(422, problemType, `{"type":"x","code":"cp-19","detail":"`+testToken+` claim 19-4431"}`),
		reply(200, "", with(`"ACCP"`, `"no: cp-19, claim 19-4431"`)),
		reply(200, "", `cp-19 claim 19-4431 `+testToken),
		reply(200, "", list(with("cp-19", "claim 19-4431"))),
		say("HTTP/1.1 cp-19 " + testToken + "\r\n\r\n"),
		say("HTTP/1.1 201 OK\r\nContent-Length: cp-19 " + testToken + "\r\n\r\n"),
	} {
		client := newClient(t, testConfig(serve(t, false, answer).url))
		kept := fmt.Sprintf("%+v %+v", client.Send(t.Context(), sendRequest()), client.Status(t.Context(), statusRequest()))
		for _, payload := range []string{testToken, "cp-19", "claim", "reserve"} {
			if strings.Contains(kept, payload) {
				t.Errorf("%q is kept: %s", payload, kept)
			}
		}
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	config := Config{BaseURL: "ftp://bank.example", Token: "a b", SendTimeout: -1, StatusTimeout: MaxTimeout + 1}
	_, err := New(config)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"base URL", "token", "SendTimeout", "StatusTimeout", "clock", "name is empty", "key_lifetime"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}

	for url, ok := range map[string]bool{
		"https://bank.example": true, "https://bank.example:8443/api/": true, "http://127.0.0.1:8080": true,
		"http://localhost": true, "http://[::1]:80": true,
		"": false, "bank.example": false, "https://": false, "https://:443": false, "http://bank.example": false,
		"http://127.0.0.1.example": false, "https://bank.example#x": false, "https://bank.example?": false,
		"https://bank.example/?a=b": false, "mailto:a@b": false, "https://u@bank.example": false,
		"https://bank.example/" + strings.Repeat("x", 1024): false,
	} {
		if _, err := New(testConfig(url)); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}

	insecure := testConfig("https://bank.example")
	insecure.TLS.InsecureSkipVerify = true
	if _, err := New(insecure); err == nil {
		t.Error("a TLS configuration that verifies nothing was accepted")
	}
	standard := newClient(t, testConfig("https://bank.example"))
	if standard.sendTimeout != DefaultSendTimeout || standard.statusTimeout != DefaultStatusTimeout {
		t.Errorf("timeouts %v and %v", standard.sendTimeout, standard.statusTimeout)
	}
	system := testConfig("https://bank.example")
	system.TLS = nil
	if got := newClient(t, system).transport; got == http.DefaultTransport || got.TLSClientConfig.RootCAs != nil ||
		got.TLSClientConfig.MinVersion != tls.VersionTLS12 || !got.DisableKeepAlives {
		t.Errorf("the transport of a client without a TLS configuration: %+v", got)
	}
}
