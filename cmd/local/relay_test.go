package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestRelayDropsAnswers(t *testing.T) {
	t.Parallel()
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"outcome":"applied","settlement_id":"stl-1"}`)
	}))
	t.Cleanup(function.Close)
	r := newRelay(function.URL, []sampleMessage{{}, {DropAnswers: 1}})
	relay := httptest.NewServer(r)
	t.Cleanup(relay.Close)

	const push = `{"message":{"messageId":"7","attributes":{"sample_message":"1","sample_number":"2"}}}`
	for i, want := range []int{http.StatusInternalServerError, http.StatusOK, http.StatusOK} {
		if code, _ := request(t, http.MethodPost, relay.URL, push); code != want {
			t.Errorf("delivery %d was answered %d; want %d", i+1, code, want)
		}
	}
	if err := r.awaitAcknowledged(t.Context(), publication{1, 2}); err != nil {
		t.Error(err)
	}
	for i, d := range r.inOrder() {
		if d.publication != (publication{1, 2}) || d.messageID != "7" || d.attempt != i || d.status != http.StatusOK || d.answer.Outcome != "applied" {
			t.Errorf("recorded delivery %d: %+v", i+1, d)
		}
	}
	if code, _ := request(t, http.MethodPost, relay.URL, `{"message":{"messageId":"8","attributes":{"sample_message":"2","sample_number":"0"}}}`); code != http.StatusBadRequest {
		t.Errorf("an unknown message was answered %d", code)
	}
}
