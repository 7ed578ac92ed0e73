package controlplane

// The state file: how other programs find, use and end a control plane.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// ErrNotUp is what Attach and Down answer when a folder holds no control plane.
var ErrNotUp = errors.New("no control plane is up in this folder")

// state is what is written down about a control plane.
type state struct {
	Owner    int  // pid of the program that started it
	Detached bool // it outlives its owner
	Ready    bool // the start is complete
	Binaries string
	EtcdURL  string
	Accounts []account
	Nodes    int

	Etcd              *savedProcess
	APIServers        []savedAPIServer
	ControllerManager *savedProcess
	Scheduler         *savedProcess
	Kwok              *savedProcess
}

type savedProcess struct {
	Name, Address, Log string
	Pid                int
	Identity           string // tells it from a later process with the same pid
}

type savedAPIServer struct {
	savedProcess
	URL, AuditLog string
}

// saveState writes the state file anew. A reader sees the old or the new one whole.
func (cp *ControlPlane) saveState() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	s := state{
		Owner:             os.Getpid(),
		Detached:          cp.options.Detached,
		Ready:             cp.ready,
		Binaries:          cp.binaries,
		EtcdURL:           cp.EtcdURL,
		Accounts:          cp.accounts,
		Nodes:             cp.options.Nodes,
		Etcd:              save(cp.Etcd),
		ControllerManager: save(cp.ControllerManager),
		Scheduler:         save(cp.Scheduler),
		Kwok:              save(cp.Kwok),
	}
	for _, a := range cp.APIServers {
		s.APIServers = append(s.APIServers, savedAPIServer{savedProcess: *save(a.Process), URL: a.URL, AuditLog: a.AuditLog})
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the control plane's state: %w", err)
	}
	fresh := cp.layout.state() + ".new"
	if err := os.WriteFile(fresh, content, 0o600); err != nil {
		return fmt.Errorf("writing the control plane's state: %w", err)
	}
	return os.Rename(fresh, cp.layout.state())
}

func save(p *Process) *savedProcess {
	if p == nil {
		return nil
	}
	r := p.current()
	return &savedProcess{Name: p.Name, Address: p.Address, Log: p.Log, Pid: r.pid, Identity: r.identity}
}

// processes are those of the state, in the order of their start.
func (s *state) processes() []savedProcess {
	var all []savedProcess
	add := func(p *savedProcess) {
		if p != nil {
			all = append(all, *p)
		}
	}
	add(s.Etcd)
	for i := range s.APIServers {
		add(&s.APIServers[i].savedProcess)
	}
	add(s.ControllerManager)
	add(s.Scheduler)
	add(s.Kwok)
	return all
}

// alive says whether the very process that was saved still exists.
func (p savedProcess) alive() bool {
	identity, state := inspect(p.Pid)
	return p.Pid > 0 && state != Ended && identity == p.Identity
}

func loadState(l layout) (*state, error) {
	content, err := os.ReadFile(l.state())
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", string(l), ErrNotUp)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the control plane's state: %w", err)
	}
	s := new(state)
	if err := json.Unmarshal(content, s); err != nil {
		return nil, fmt.Errorf("reading the control plane's state in %s: %w", l.state(), err)
	}
	return s, nil
}

// Attach returns the control plane that another program has started in dir. Its
// components can be looked at but not touched (ErrShared), and Stop leaves it running.
func Attach(dir string) (*ControlPlane, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("attaching to a control plane: %w", err)
	}
	l := layout(dir)
	s, err := loadState(l)
	if err != nil {
		return nil, err
	}
	if !s.Ready {
		return nil, fmt.Errorf("the control plane in %s is being started, or its start was interrupted: wait, or take it down", dir)
	}
	for _, p := range s.processes() {
		if !p.alive() {
			return nil, fmt.Errorf("the control plane in %s has lost %s (pid %d): take it down and up again", dir, p.Name, p.Pid)
		}
	}
	cp := s.attached(l)
	if err := cp.trust(); err != nil {
		return nil, fmt.Errorf("attaching to the control plane in %s: %w", dir, err)
	}
	return cp, nil
}

// attached is a control plane as its state describes it.
func (s *state) attached(l layout) *ControlPlane {
	cp := &ControlPlane{
		Dir:               string(l),
		EtcdURL:           s.EtcdURL,
		Etcd:              s.Etcd.process(),
		ControllerManager: s.ControllerManager.process(),
		Scheduler:         s.Scheduler.process(),
		Kwok:              s.Kwok.process(),
		options:           Options{Nodes: s.Nodes}.withDefaults(),
		layout:            l,
		binaries:          s.Binaries,
		accounts:          s.Accounts,
		attached:          true,
	}
	for _, a := range s.APIServers {
		cp.APIServers = append(cp.APIServers, &APIServer{Process: a.process(), URL: a.URL, AuditLog: a.AuditLog, layout: l, accounts: s.Accounts})
	}
	return cp
}

// process is a component that another program has started.
func (p *savedProcess) process() *Process {
	if p == nil {
		return nil
	}
	return &Process{Name: p.Name, Address: p.Address, Log: p.Log, run: &run{pid: p.Pid, identity: p.Identity, attached: true}}
}

// Components lists what a control plane in dir consists of and what each part does at
// the moment, whether its start is complete or not.
func Components(dir string) ([]*Process, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("looking at the control plane: %w", err)
	}
	s, err := loadState(layout(dir))
	if err != nil {
		return nil, err
	}
	return s.attached(layout(dir)).Processes(), nil
}

// Down ends the control plane in dir, whoever started it, and removes the folder. A
// pid that belongs to another process by now is left alone.
func Down(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("taking the control plane down: %w", err)
	}
	s, err := loadState(layout(dir))
	if err != nil {
		return err
	}
	if !s.Detached {
		orphan, err := tryLock(layout(dir).ownerLock())
		if errors.Is(err, errLocked) {
			return fmt.Errorf("the control plane in %s belongs to a running program (pid %d), which takes it down in the end", dir, s.Owner)
		}
		if err != nil {
			return fmt.Errorf("taking the control plane in %s down: %w", dir, err)
		}
		defer func() { _ = orphan.Close() }()
	}
	if err := s.end(ctx); err != nil {
		return fmt.Errorf("taking the control plane in %s down: %w", dir, err)
	}
	return os.RemoveAll(dir)
}

// end kills all processes that are still those of the state, and waits for that.
func (s *state) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	for _, p := range slices.Backward(s.processes()) {
		process, err := os.FindProcess(p.Pid) // on Linux a handle that outlives the pid
		if err != nil || !p.alive() {
			continue
		}
		if err := process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("killing %s (pid %d): %w", p.Name, p.Pid, err)
		}
		if err := poll(ctx, 5*time.Millisecond, func() (bool, error) { return !p.alive(), nil }); err != nil {
			return fmt.Errorf("waiting for the end of %s (pid %d): %w", p.Name, p.Pid, err)
		}
	}
	return nil
}

// sweep removes what earlier programs left in the temporary folder when they were
// killed before they could stop their control plane. A lock tells whether they live
// and not a pid, which means nothing to a container that shares the folder.
func sweep() {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), temporaryPattern))
	for _, dir := range folders {
		s, err := loadState(layout(dir))
		if err != nil || s.Detached {
			continue
		}
		orphan, err := tryLock(layout(dir).ownerLock())
		if err != nil {
			continue // its owner lives, or somebody else sweeps it
		}
		if s.end(context.Background()) == nil {
			_ = os.RemoveAll(dir) // tried again at the next start
		}
		_ = orphan.Close()
	}
}
