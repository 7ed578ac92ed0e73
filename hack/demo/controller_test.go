package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start starts a shell script in the controller's place. It is gone when the test ends.
func start(t *testing.T, script string) *controller {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "controller")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := startController(binary, "admin.kubeconfig", filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.process.Kill() // gone already, if the test passed
		<-c.ended
	})
	return c
}

func TestControllerThatEndsEndsTheStoryAndSaysSo(t *testing.T) {
	c := start(t, `echo "no such flag"; exit 3`)
	ctx, stop := c.whileItRuns(t.Context())
	defer stop()
	select {
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the context goes on 30s after the controller's end")
	}
	got := fmt.Sprint(c.explain(ctx, errors.New("a request was canceled")))
	want := "the controller has ended (exit status 3)\n\nThe end of the controller's log:\n\nno such flag"
	if got != want {
		t.Errorf("explain() = %q, want %q", got, want)
	}
	if err := c.stop(); err != nil {
		t.Errorf("stop() of what has ended = %v, want no error", err)
	}
}

func TestStopReturnsOnceTheControllerIsGone(t *testing.T) {
	c := start(t, "exec /bin/sleep 600")
	if err := c.stop(); err != nil {
		t.Errorf("stop() = %v, want no error", err)
	}
	if err := syscall.Kill(c.process.Pid, 0); err != syscall.ESRCH {
		t.Errorf("signal 0 to pid %d = %v, want no such process", c.process.Pid, err)
	}
}

func TestLogTailIsTheLast30Lines(t *testing.T) {
	c := start(t, `i=1; while [ $i -le 40 ]; do echo "line $i"; i=$((i+1)); done`)
	<-c.ended
	lines := strings.Split(c.logTail(), "\n")[2:]
	if len(lines) != 30 || lines[0] != "line 11" || lines[29] != "line 40" {
		t.Errorf("%d lines from %q to %q, want 30 from line 11 to line 40", len(lines), lines[0], lines[len(lines)-1])
	}
}

func TestSilentControllerIsCalledSo(t *testing.T) {
	c := start(t, "exit 1")
	<-c.ended
	got := fmt.Sprint(c.explain(t.Context(), errors.New("the pool isn't full")))
	if want := "the pool isn't full\n\nThe controller has printed nothing."; got != want {
		t.Errorf("explain() = %q, want %q", got, want)
	}
}

func TestControllerThatIsNotBuiltIsExplained(t *testing.T) {
	_, err := startController(filepath.Join(t.TempDir(), "none"), "admin.kubeconfig", filepath.Join(t.TempDir(), "log"))
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("startController() = %v, want an error that names make build", err)
	}
}
