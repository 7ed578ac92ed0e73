package controlplane

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// briefly asks for the server's readiness and says whether it answered 200 at once.
func briefly(t *testing.T, s *APIServer) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	code, _, err := ask(ctx, t, s, Admin, http.MethodGet, "/readyz", nil)
	return err == nil && code == 200
}

func TestAFrozenAPIServerIsSilentUntilItIsThawed(t *testing.T) {
	cp := ForTest(t, Options{APIServers: 2})
	frozen, other := cp.APIServers[0], cp.APIServers[1]
	if err := frozen.Freeze(); err != nil {
		t.Fatal(err)
	}
	if got := frozen.State(); got != Frozen {
		t.Errorf("it is %s, want frozen", got)
	}
	if briefly(t, frozen) {
		t.Error("the frozen server answered")
	}
	expect(t, 201, other, Admin, http.MethodPost, configMaps, configMap("meanwhile", "x"))
	if err := frozen.Thaw(); err != nil {
		t.Fatal(err)
	}
	expect(t, 200, frozen, Admin, http.MethodGet, configMaps+"/meanwhile", nil)
	if got := frozen.State(); got != Running {
		t.Errorf("it is %s, want running", got)
	}
}

func TestAFrozenEtcdHoldsUpTheAPIServer(t *testing.T) {
	cp := ForTest(t, Options{})
	s := cp.APIServers[0]
	if err := cp.Etcd.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if code, _, err := ask(ctx, t, s, Admin, http.MethodPost, configMaps, configMap("early", "x")); err == nil {
		t.Errorf("a write was answered %d without etcd", code)
	}
	if err := cp.Etcd.Thaw(); err != nil {
		t.Fatal(err)
	}
	expect(t, 201, s, Admin, http.MethodPost, configMaps, configMap("late", "x"))
}

func TestAKilledAPIServerComesBackOnItsPortWithItsData(t *testing.T) {
	cp := ForTest(t, Options{})
	s := cp.APIServers[0]
	expect(t, 201, s, Admin, http.MethodPost, configMaps, configMap("kept", "x"))
	first := s.Pid()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := s.State(); got != Ended {
		t.Errorf("it is %s, want ended", got)
	}
	if briefly(t, s) {
		t.Error("the killed server answered")
	}
	begun := time.Now()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready again after %s", time.Since(begun).Round(time.Millisecond))
	if s.Pid() == first {
		t.Error("it has the pid of the killed process")
	}
	expect(t, 200, s, Admin, http.MethodGet, configMaps+"/kept", nil)
	attached, err := Attach(cp.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := attached.APIServers[0].Pid(); got != s.Pid() {
		t.Errorf("the state file has pid %d, want %d", got, s.Pid())
	}
}

func TestAKilledEtcdComesBackWithItsData(t *testing.T) {
	cp := ForTest(t, Options{})
	s := cp.APIServers[0]
	expect(t, 201, s, Admin, http.MethodPost, configMaps, configMap("kept", "x"))
	if err := cp.Etcd.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cp.Etcd.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server finds etcd again", func() bool { return briefly(t, s) })
	expect(t, 200, s, Admin, http.MethodGet, configMaps+"/kept", nil)
}

func TestRestartStopsARunningOrFrozenComponentFirst(t *testing.T) {
	cp := ForTest(t, Options{})
	s := cp.APIServers[0]
	for _, before := range []func() error{func() error { return nil }, s.Freeze} {
		if err := before(); err != nil {
			t.Fatal(err)
		}
		first := s.Pid()
		begun := time.Now()
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("stopped and ready again after %s", time.Since(begun).Round(time.Millisecond))
		if _, state := inspect(first); state != Ended {
			t.Errorf("the process before is %s, want ended", state)
		}
		expect(t, 200, s, Admin, http.MethodGet, "/readyz", nil)
	}
	if log := s.LogTail(100000); strings.Count(log, "Serving securely") != 3 {
		t.Errorf("the log doesn't hold all three starts:\n%s", log)
	}
}

func TestSignalsToAnEndedComponent(t *testing.T) {
	cp := ForTest(t, Options{})
	if err := cp.Etcd.Kill(); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{"Freeze": cp.Etcd.Freeze, "Thaw": cp.Etcd.Thaw} {
		if err := do(); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s answered %v, want os.ErrProcessDone", name, err)
		}
	}
	if err := cp.Etcd.Kill(); err != nil {
		t.Errorf("Kill answered %v, want no error", err)
	}
	if err := cp.Etcd.Stop(t.Context()); err != nil {
		t.Errorf("Stop answered %v, want no error", err)
	}
}

func TestLogTailReturnsTheLastLines(t *testing.T) {
	path := t.TempDir() + "/log"
	content := strings.Repeat("filler\n", 20000) + "one\ntwo\nthree\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &Process{Log: path}
	if got := p.LogTail(2); got != "two\nthree" {
		t.Errorf("got %q, want the last two lines", got)
	}
	p.Log += ".missing"
	if got := p.LogTail(2); !strings.Contains(got, "no such file") {
		t.Errorf("got %q, want the reason why there is no log", got)
	}
}
