package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"warmpool.dev/controller/hack/controlplane"
)

// command runs one command line and returns what it printed to stdout.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), args, &stdout, &stderr)
	t.Logf("controlplane %s\n%s%s", strings.Join(args, " "), stderr.String(), stdout.String())
	return stdout.String(), err
}

func TestUpStatusDown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's here")
	if _, err := command(t, "status", "-dir", dir); !errors.Is(err, controlplane.ErrNotUp) || !strings.Contains(err.Error(), "command up") {
		t.Errorf("status before up: got %v, want ErrNotUp and what to do", err)
	}
	exports, err := command(t, "up", "-dir", dir, "-nodes", "1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = controlplane.Down(context.Background(), dir) })

	cp, err := controlplane.Attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	script := exports + cp.Kubectl() + ` get nodes -o name; echo "$WARMPOOL_CONTROLPLANE"`
	shell := exec.CommandContext(t.Context(), "sh", "-ec", script)
	shell.Env = []string{"HOME=" + t.TempDir()}
	if out, err := shell.CombinedOutput(); err != nil || string(out) != "node/node-0\n"+dir+"\n" {
		t.Errorf("a shell that evaluates what up printed says %q (%v), want node-0 and the folder", out, err)
	}

	if _, err := command(t, "up", "-dir", dir); !errors.Is(err, controlplane.ErrAlreadyUp) {
		t.Errorf("a second up: got %v, want ErrAlreadyUp", err)
	}
	table, err := command(t, "status", "-dir", dir)
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"etcd", "kube-apiserver-0", "kube-controller-manager", "kube-scheduler", "kwok"} {
		if !regexp.MustCompile(`(?m)^` + name + ` +\d+ +running +127\.0\.0\.1:\d+$`).MatchString(table) {
			t.Errorf("the table lacks a line for %s that runs:\n%s", name, table)
		}
	}

	killed, err := os.FindProcess(cp.Scheduler.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = killed.Wait() // it is this process's own child
	table, err = command(t, "status", "-dir", dir)
	if err == nil || !strings.Contains(err.Error(), "1 of 5 components") {
		t.Errorf("status of a broken control plane: got %v, want an error that counts", err)
	}
	if !regexp.MustCompile(`(?m)^kube-scheduler +\d+ +ended`).MatchString(table) {
		t.Errorf("the table doesn't show the killed scheduler as ended:\n%s", table)
	}

	if _, err := command(t, "down", "-dir", dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left (%v)", err)
	}
	if _, err := command(t, "down", "-dir", dir); !errors.Is(err, controlplane.ErrNotUp) {
		t.Errorf("a second down: got %v, want ErrNotUp", err)
	}
}

func TestBuildSaysWhereTheBinariesAre(t *testing.T) {
	said, err := command(t, "build")
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(strings.TrimPrefix(said, "the control plane's binaries are in "))
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		t.Errorf("it said %q: %v", said, err)
	}
}

func TestAWrongCommandLineSaysWhatIsRight(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "say build, up, status or down"},
		{[]string{"start"}, "say build, up, status or down"},
		{[]string{"build", "now"}, `unexpected argument "now"`},
		{[]string{"down", "now"}, `unexpected argument "now"`},
		{[]string{"up", "-apiserver=2"}, "flag provided but not defined: -apiserver"},
	} {
		if _, err := command(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want an error with %q", test.args, err, test.want)
		}
	}
}
