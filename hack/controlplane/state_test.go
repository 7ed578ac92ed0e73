package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func init() {
	// Starts a detached control plane in the folder given, and ends.
	programs["detached"] = func(args []string) error {
		_, err := Start(context.Background(), Options{Dir: args[0], Binaries: args[1], Detached: true})
		return err
	}
	// Starts a control plane in a temporary folder, prints which and the pids, and
	// is killed before it can stop it.
	programs["killed"] = func(args []string) error {
		cp, err := Start(context.Background(), Options{Binaries: args[0]})
		if err != nil {
			return err
		}
		fmt.Println(cp.Dir)
		for _, p := range cp.Processes() {
			fmt.Println(p.Pid())
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	// Tries to take the port given.
	programs["port"] = func(args []string) error {
		if _, err := takePort(); err != nil { // opens the file of locks
			return err
		}
		port, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		return lockPort(port, syscall.F_WRLCK)
	}
}

func TestADetachedControlPlaneOutlivesItsProgramUntilDown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if out, err := program(t, "detached", dir, shared.binaries); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cp, err := Attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, 201, cp.APIServers[0], Admin, http.MethodPost, configMaps, configMap("x", "x"))
	if _, err := Start(t.Context(), Options{Dir: dir}); !errors.Is(err, ErrAlreadyUp) {
		t.Errorf("a second start: got %v, want ErrAlreadyUp", err)
	}
	if err := Down(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	assertGone(t, dir)
	if err := Down(t.Context(), dir); !errors.Is(err, ErrNotUp) {
		t.Errorf("a second Down: got %v, want ErrNotUp", err)
	}
	if _, err := Attach(dir); !errors.Is(err, ErrNotUp) {
		t.Errorf("Attach after Down: got %v, want ErrNotUp", err)
	}
}

func TestWhatAKilledProgramLeftIsGoneAtTheNextStart(t *testing.T) {
	// A temporary folder of its own: other programs on this machine sweep the usual one.
	t.Setenv("TMPDIR", t.TempDir())
	t.Cleanup(sweep)
	living, err := Start(t.Context(), Options{Binaries: shared.binaries})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = living.Stop() })
	out, err := program(t, "killed", shared.binaries)
	if err == nil {
		t.Fatal("the program wasn't killed")
	}
	lines := strings.Fields(out)
	if len(lines) != 3 {
		t.Fatalf("it printed %q, want a folder and two pids\n%v", out, err)
	}
	ended := func() bool {
		for _, line := range lines[1:] {
			pid, err := strconv.Atoi(line)
			if err != nil {
				t.Fatal(err)
			}
			if _, state := inspect(pid); state != Ended {
				return false
			}
		}
		return true
	}
	if runtime.GOOS == "linux" {
		eventually(t, "the kernel kills the components", ended)
	}
	if _, err := os.Stat(lines[0]); err != nil {
		t.Fatalf("the folder is gone before anybody removed it: %v", err)
	}
	sweep()
	assertGone(t, lines[0])
	if !ended() {
		t.Error("a component is left")
	}
	expect(t, 200, living.APIServers[0], Admin, http.MethodGet, "/readyz", nil)
}

func TestAnAttachedControlPlaneCanBeUsedButNotBroken(t *testing.T) {
	cp, err := Attach(shared.Dir)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, 201, cp.APIServers[1], Admin, http.MethodPost, configMaps, configMap("attached", "x"))
	p := cp.APIServers[0].Process
	if p.Pid() != shared.APIServers[0].Pid() || p.State() != Running {
		t.Errorf("the first API server has pid %d and is %s, want %d and running", p.Pid(), p.State(), shared.APIServers[0].Pid())
	}
	if !strings.Contains(p.LogTail(100000), "Serving securely") {
		t.Error("its log can't be read")
	}
	if writes, err := cp.Writes(Admin); err != nil || len(writes) == 0 {
		t.Errorf("its audit log can't be read: %d writes, %v", len(writes), err)
	}
	for name, do := range map[string]func() error{
		"Kill": p.Kill, "Freeze": p.Freeze, "Thaw": p.Thaw,
		"Stop":    func() error { return p.Stop(t.Context()) },
		"Restart": func() error { return p.Restart(t.Context()) },
	} {
		if err := do(); !errors.Is(err, ErrShared) {
			t.Errorf("%s answered %v, want ErrShared", name, err)
		}
	}
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
	if err := Down(t.Context(), shared.Dir); err == nil || !strings.Contains(err.Error(), "belongs to a running program") {
		t.Errorf("Down answered %v, want a refusal", err)
	}
	for _, p := range shared.Processes() {
		if p.State() != Running {
			t.Errorf("%s is %s afterwards, want running", p.Name, p.State())
		}
	}
}

func TestDownLeavesAnotherProcessWithTheSamePidAlone(t *testing.T) {
	innocent := os.Getpid()
	s := state{Detached: true, Etcd: &savedProcess{Name: "etcd", Pid: innocent, Identity: "a process that had this pid before"}}
	if err := s.end(t.Context()); err != nil { // would end this test
		t.Fatal(err)
	}
	if got := s.Etcd.process().State(); got != Ended {
		t.Errorf("it is shown as %s, want ended", got)
	}
}

func TestAttachSaysWhatIsWrong(t *testing.T) {
	tests := map[string]struct{ state, want string }{
		"a start that isn't complete": {`{}`, "is being started"},
		"a component that has ended":  {`{"Ready": true, "Etcd": {"Name": "etcd", "Pid": 0}}`, "has lost etcd"},
		"a broken file":               {`{`, "reading the control plane's state"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := layout(t.TempDir())
			if err := os.WriteFile(l.state(), []byte(test.state), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Attach(string(l)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestAPortIsTakenByOneProcessOnly(t *testing.T) {
	port, err := takePort()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := program(t, "port", strconv.Itoa(port)); err == nil {
		t.Errorf("another process could take port %d too", port)
	}
	releasePort(port)
	if out, err := program(t, "port", strconv.Itoa(port)); err != nil {
		t.Errorf("another process can't take port %d after its release: %v\n%s", port, err, out)
	}
}
