package main

// The controller as a process of its own, as it runs outside a cluster.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopGrace is how long the controller has to end by itself. It waits for its last
// worker and gives its lease up.
const stopGrace = 15 * time.Second

// controller is a running warmpool-controller.
type controller struct {
	log     string // path of what it prints
	process *os.Process
	ended   chan struct{}
	how     string // it ended; read after ended
}

// startController starts the binary with a kubeconfig. Its port for health and
// metrics is a free one; the log says which.
func startController(binary, kubeconfig, log string) (*controller, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the controller: %w", err)
	}
	defer func() { _ = out.Close() }() // the child has its own handle
	cmd := exec.Command(binary,
		"--kubeconfig="+kubeconfig,
		"--leader-elect-namespace="+controllerNamespace,
		"--listen-address=127.0.0.1:0",
		"--v=2")
	cmd.Stdout, cmd.Stderr = out, out
	// Nothing of the user's environment: KUBE_FEATURE_* would change what it does.
	cmd.Env = []string{"HOME=" + filepath.Dir(log)}
	// Should the demo be killed outright, the controller loses its lease with the API
	// server and ends within seconds.
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the controller: %w: build it with 'make build', or give -controller", err)
	}
	c := &controller{log: log, process: cmd.Process, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its exit status is in ProcessState
		c.how = cmd.ProcessState.String()
		close(c.ended)
	}()
	return c, nil
}

// ownGroup puts a child into a process group of its own: Ctrl-C in the terminal then
// reaches the demo alone, which ends its children in order.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// whileItRuns returns a context that also ends when the controller does, with that as
// its cause.
func (c *controller) whileItRuns(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.ended:
			cancel(fmt.Errorf("the controller has ended (%s)", c.how))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// explain adds to an error, if it is one, what the controller has to say. Where the
// context has ended, the reason for that says more than what followed from it.
func (c *controller) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("%w\n\n%s", err, c.logTail())
}

// stop ends the controller in order, by force if it takes too long, and returns once
// it is gone.
func (c *controller) stop() error {
	if err := c.process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the controller: %w", err)
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-c.ended:
		return nil
	case <-timer.C:
	}
	if err := c.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the controller: %w", err)
	}
	<-c.ended
	return fmt.Errorf("the controller didn't end within %s of SIGTERM and was killed", stopGrace)
}

// logTail returns the end of what the controller printed, under a title.
func (c *controller) logTail() string {
	const n = 30
	content, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	if len(content) == 0 {
		return "The controller has printed nothing."
	}
	lines := strings.Split(string(bytes.TrimSpace(content)), "\n")
	lines = lines[max(0, len(lines)-n):]
	return "The end of the controller's log:\n\n" + strings.Join(lines, "\n")
}
