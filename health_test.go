package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2/ktesting"
)

func TestReadinessFollowsTheCachesAndTheLease(t *testing.T) {
	behind := errors.New("the caches haven't seen the initial lists yet")
	caches := behind
	h := &health{caches: func() error { return caches }}
	expectReady := func(code int, body string) {
		t.Helper()
		answer := httptest.NewRecorder()
		h.readyz(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if got := strings.TrimSpace(answer.Body.String()); answer.Code != code || got != body {
			t.Errorf("got %d %q, want %d %q", answer.Code, got, code, body)
		}
	}
	expectReady(503, "the caches haven't seen the initial lists yet")
	caches = nil
	expectReady(200, "standing by")
	h.lead()
	expectReady(200, "leading")
	caches = behind
	expectReady(503, "the caches haven't seen the initial lists yet")
}

func TestReadinessWaitsForTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newUnstartedFixture(t, aPool("runners"))
		h := &health{caches: f.guards.Ready}
		ready := func() int {
			answer := httptest.NewRecorder()
			h.readyz(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			return answer.Code
		}
		if got := ready(); got != 503 {
			t.Errorf("got %d before the gate is open, want 503", got)
		}
		f.startGuards()
		settle()
		if got := ready(); got != 200 {
			t.Errorf("got %d when the gate is open, want 200", got)
		}
	})
}

func TestHealthReadinessAndMetricsAreServedUntilTheContextEnds(t *testing.T) {
	ctx, logs := logging(t)
	ctx, end := context.WithCancel(ctx)
	defer end()
	h := &health{caches: func() error { return nil }}
	if err := h.serve(ctx, "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	address := servedAddress(t, logs)
	for _, test := range []struct {
		method, path string
		code         int
		body         string
	}{
		{http.MethodGet, "/healthz", 200, "ok"},
		{http.MethodGet, "/readyz", 200, "standing by"},
		{http.MethodGet, "/metrics", 200, "warmpool_handouts_total"},
		{http.MethodPost, "/healthz", 405, "Method Not Allowed"},
		{http.MethodGet, "/", 404, "not found"},
	} {
		code, body, err := ask(t.Context(), test.method, "http://"+address+test.path)
		if err != nil {
			t.Fatal(err)
		}
		if code != test.code || !strings.Contains(body, test.body) {
			t.Errorf("%s %s: got %d %q, want %d and %q in it", test.method, test.path, code, body, test.code, test.body)
		}
	}
	end()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, _, err := ask(ctx, http.MethodGet, "http://"+address+"/healthz")
		return errors.Is(err, syscall.ECONNREFUSED), nil
	})
	if err != nil {
		t.Errorf("it is served still when the context has ended: %v", err)
	}
}

func TestAnAddressInUseIsAnErrorThatSaysWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	err = (&health{}).serve(t.Context(), taken.Addr().String())
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("got %v, want that the address is in use", err)
	}
	for _, want := range []string{"serve health and metrics", taken.Addr().String(), "give another --listen-address, or an empty one for none"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error doesn't contain %q: %v", want, err)
		}
	}
}

func TestWithoutAnAddressNothingIsServed(t *testing.T) {
	ctx, logs := logging(t)
	if err := (&health{}).serve(ctx, ""); err != nil {
		t.Errorf("got %v", err)
	}
	if got := logs.String(); got != "" {
		t.Errorf("it serves: %s", got)
	}
}

// servedAddress is what the log says: the port was free, and is any.
func servedAddress(t *testing.T, logs ktesting.Buffer) string {
	t.Helper()
	for _, entry := range logs.Data() {
		if entry.Message == "Serving health and metrics" && len(entry.ParameterKVList) == 2 {
			return entry.ParameterKVList[1].(string)
		}
	}
	t.Fatalf("the log doesn't say where: %s", logs.String())
	return ""
}

func ask(ctx context.Context, method, url string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	request.Close = true // a connection that is kept would outlive the server
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(content), err
}
