package controlplane

// One component: a process of its own that can be killed, frozen and restarted.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrShared is what Kill, Freeze, Thaw, Stop and Restart answer for a component of a
// control plane that was attached to: others rely on it. A test that breaks things
// starts its own with Start or ForTest.
var ErrShared = errors.New("the control plane is shared: start one of your own to break it")

// stopGrace is how long a component has to end by itself after SIGTERM.
const stopGrace = 10 * time.Second

// tailLines is how many lines of a log an error quotes.
const tailLines = 20

// State is what a component does at the moment.
type State string

// The states of a component.
const (
	Running State = "running"
	Frozen  State = "frozen" // by Freeze: alive, holds its ports, does nothing
	Ended   State = "ended"
)

// Process is one component of a control plane. Its methods are safe for concurrent
// use, except that Restart must not run beside another Restart, Kill or Stop.
type Process struct {
	// Name tells it from the others: etcd, kube-apiserver-0, and so on.
	Name string
	// Address is the host and port that it serves on, always on 127.0.0.1.
	Address string
	// Log is the path of the file that holds all it has printed, over restarts too.
	Log string

	command      []string // program and arguments
	dir          string   // working directory and HOME
	detached     bool
	readyTimeout time.Duration
	probe        func(context.Context) error // nil once it is ready
	changed      func() error                // called after each start

	mu  sync.Mutex
	run *run // the latest start; nil before the first
}

// run is one start of a component.
type run struct {
	pid      int
	identity string        // tells this process from a later one with the same pid
	process  *os.Process   // nil if attached or never started
	attached bool          // another program's child
	done     chan struct{} // closed when it has ended; nil if attached
	result   string        // how it ended; read after done
}

// Pid is the number of the process, of the last one if it has ended.
func (p *Process) Pid() int { return p.current().pid }

// State says what the component does at the moment.
func (p *Process) State() State {
	r := p.current()
	identity, state := inspect(r.pid)
	if state == Ended || identity != r.identity {
		return Ended
	}
	return state
}

// Kill ends the component the hard way (SIGKILL) and returns once it is gone. It is
// no error if it was gone already.
func (p *Process) Kill() error {
	r := p.current()
	if err := p.signal(r, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-r.done
	return nil
}

// Freeze halts the component where it stands (SIGSTOP) and returns once it has
// halted. Its connections stay open and nobody answers on them.
func (p *Process) Freeze() error {
	r := p.current()
	if err := p.signal(r, syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	err := poll(ctx, time.Millisecond, func() (bool, error) {
		switch p.State() {
		case Frozen:
			return true, nil
		case Ended:
			return false, fmt.Errorf("it has ended: %w", os.ErrProcessDone)
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("freezing %s: %w", p.Name, err)
	}
	return nil
}

// Thaw lets a frozen component go on (SIGCONT).
func (p *Process) Thaw() error { return p.signal(p.current(), syscall.SIGCONT) }

// Stop asks the component to end (SIGTERM), kills it after ten seconds or when ctx
// ends, whichever is first, and returns once it is gone. It is no error if it was
// gone already.
func (p *Process) Stop(ctx context.Context) error {
	r := p.current()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} { // a frozen one can't hear
		if err := p.signal(r, s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return p.Kill()
	}
}

// Restart starts the component again, with the same command line, port and data,
// and returns once it is ready. If it still runs it is stopped first.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	if err := p.start(); err != nil {
		return err
	}
	return p.waitReady(ctx)
}

// LogTail returns the last n lines of the log.
func (p *Process) LogTail(n int) string {
	const enough = 64 << 10
	f, err := os.Open(p.Log)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-enough), io.SeekStart)
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimRight(content, "\n")), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// current is the latest start. What was never started looks like what has ended.
func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		never := &run{done: make(chan struct{})}
		close(never.done)
		return never
	}
	return p.run
}

// signal sends s, and answers os.ErrProcessDone if the process has ended. A run that
// this program didn't start is left alone.
func (p *Process) signal(r *run, s syscall.Signal) error {
	var err error
	switch {
	case r.attached:
		err = ErrShared
	case r.process == nil:
		err = os.ErrProcessDone
	default:
		err = r.process.Signal(s)
	}
	if err != nil {
		return fmt.Errorf("sending %s %q (pid %d): %w", p.Name, s, r.pid, err)
	}
	return nil
}

// start starts the process and doesn't wait until it is ready.
func (p *Process) start() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Dir = p.dir
	// Nothing of the user's environment reaches a component: ETCD_*, KUBE_FEATURE_*
	// and ~/.kwok would change what it does.
	cmd.Env = []string{"HOME=" + p.dir, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes(p.detached)
	r, err := launch(cmd)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	p.mu.Lock()
	p.run = r
	p.mu.Unlock()
	if p.changed != nil {
		return p.changed()
	}
	return nil
}

// launch starts cmd and waits for its end in a goroutine of its own.
func launch(cmd *exec.Cmd) (*run, error) {
	r := &run{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux sends the parent-death signal when the thread that forked ends, not
		// when the process does, and Go ends threads at will. So the thread that
		// starts the child is kept for it until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		r.process, r.pid = cmd.Process, cmd.Process.Pid
		r.identity, _ = inspect(r.pid)
		started <- nil
		_ = cmd.Wait() // its exit status is in ProcessState
		r.result = cmd.ProcessState.String()
		close(r.done)
	}()
	return r, <-started
}

// waitReady returns once the component is ready, or an error with the end of its
// log when it has ended, or isn't ready in time.
func (p *Process) waitReady(ctx context.Context) error {
	r := p.current()
	ctx, cancel := context.WithTimeout(ctx, p.readyTimeout)
	defer cancel()
	begun, last := time.Now(), errors.New("it wasn't asked yet")
	err := poll(ctx, 20*time.Millisecond, func() (bool, error) {
		select {
		case <-r.done:
			return false, fmt.Errorf("ended before it was ready: %s", r.result)
		default:
		}
		err := p.probe(ctx)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("isn't ready after %s: %w (%w)", time.Since(begun).Round(time.Millisecond), last, err)
	}
	return fmt.Errorf("%s %w\nthe end of its log:\n%s", p.Name, err, indent(p.LogTail(tailLines)))
}

// indent sets a quoted text off from what is around it.
func indent(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}
