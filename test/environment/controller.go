package environment

// The controller as a process of its own.

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmpool.dev/controller/hack/controlplane"
)

// stopTimeout is how long the controller has to end after SIGTERM.
const stopTimeout = 30 * time.Second

// Controller is one process of the controller. Its methods are for one goroutine.
type Controller struct {
	t    testing.TB
	cmd  *exec.Cmd
	log  *log
	done chan struct{} // closed when it has ended
	// asked tells that it was told to end, one way or the other.
	asked bool
	// excused tells that the test isn't failed by how it ends or by what it prints.
	excused bool
}

// StartController starts the controller for the test's namespace alone, without
// leader election, and returns when it is ready. flags come last on its command line,
// so they win over those that it has anyway. When the test ends it is stopped, and
// the test fails if it doesn't end well; see Stop.
func (n *Namespace) StartController(flags ...string) *Controller {
	n.t.Helper()
	c := n.LaunchController(flags...)
	c.WaitReady()
	return c
}

// LaunchController is StartController, but doesn't wait until it is ready.
func (n *Namespace) LaunchController(flags ...string) *Controller {
	n.t.Helper()
	return n.env.LaunchController(n.t, slices.Concat([]string{"--namespace=" + n.Name, "--leader-elect=false"}, flags)...)
}

// LaunchController starts the controller for all namespaces, with the rights that
// artifacts/deploy gives it, and doesn't wait until it is ready.
func (e *Environment) LaunchController(t testing.TB, flags ...string) *Controller {
	t.Helper()
	path, err := controllerBinary()
	if err != nil {
		t.Fatal(err)
	}
	return e.launch(t, path, flags...)
}

// LaunchBinary is LaunchController for a program of BuildController. It may be a bad one:
// the test isn't failed by how it ends or by what it prints, and it is killed when the
// test ends.
func (e *Environment) LaunchBinary(t testing.TB, path string, flags ...string) *Controller {
	t.Helper()
	c := e.launch(t, path, flags...)
	c.excused = true
	return c
}

func (e *Environment) launch(t testing.TB, path string, flags ...string) *Controller {
	t.Helper()
	kubeconfig, err := e.ControlPlane.Kubeconfig(controlplane.Controller)
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{t: t, log: &log{}, done: make(chan struct{})}
	c.cmd = exec.Command(path, slices.Concat([]string{"--kubeconfig=" + kubeconfig, "--listen-address=127.0.0.1:0", "-v=2"}, flags)...)
	// The detector panics when an object of a cache was changed.
	c.cmd.Env = append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=true")
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = childAttributes()
	if err := c.start(); err != nil {
		t.Fatalf("start the controller: %v", err)
	}
	t.Cleanup(c.cleanUp)
	return c
}

// start starts the process and waits for its end in a goroutine of its own, which
// keeps its thread: Linux kills the child when the thread that started it ends.
func (c *Controller) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // how it ended is in ProcessState
			close(c.done)
		}
	}()
	return <-started
}

// cleanUp ends what still runs and shows the log if the test failed.
func (c *Controller) cleanUp() {
	switch {
	case c.excused:
		_ = c.cmd.Process.Kill() // it may have ended by itself
		<-c.done
	case !c.asked:
		c.Stop()
	}
	if !c.excused {
		c.checkLog()
	}
	if c.t.Failed() {
		c.t.Logf("the end of the log of the controller (pid %d, %s):\n%s", c.cmd.Process.Pid, c.cmd.ProcessState, c.log.tail(60))
	}
}

// What /readyz answers when the controller is ready.
const (
	Leading    = "leading"     // its caches are synced, its workers run
	StandingBy = "standing by" // another one leads, or may
)

// WaitReady waits until the controller is ready: it leads, or stands by.
func (c *Controller) WaitReady() { c.t.Helper(); c.wait(Leading, StandingBy) }

// WaitLeading waits until the controller leads.
func (c *Controller) WaitLeading() { c.t.Helper(); c.wait(Leading) }

func (c *Controller) wait(states ...string) {
	c.t.Helper()
	Eventually(c.t, fmt.Sprintf("the controller to be %s", strings.Join(states, " or ")), func() error {
		if c.Ended() {
			c.asked = true // by nobody, but there is nothing left to stop
			c.t.Fatalf("the controller ended before it was ready: %s", c.cmd.ProcessState)
		}
		state, err := c.State()
		if err == nil && !slices.Contains(states, state) {
			err = fmt.Errorf("it is %s", state)
		}
		return err
	})
}

// State is Leading or StandingBy, or an error while the controller isn't ready.
func (c *Controller) State() (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	body, err := c.get(ctx, "/readyz")
	return strings.TrimSpace(body), err
}

// address finds in the log where health and metrics are served: the controller
// chose a free port.
var address = regexp.MustCompile(`Serving health and metrics" address="([^"]+)"`)

// get asks the controller's own server.
func (c *Controller) get(ctx context.Context, path string) (string, error) {
	match := address.FindStringSubmatch(c.log.String())
	if match == nil {
		return "", fmt.Errorf("it doesn't serve health yet")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+match[1]+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read to its end, or the error is another
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %s", path, response.Status, body.String())
	}
	return body.String(), nil
}

// Metrics returns what /metrics answers.
func (c *Controller) Metrics() string {
	c.t.Helper()
	body, err := c.TryMetrics()
	if err != nil {
		c.t.Fatal(err)
	}
	return body
}

// TryMetrics is Metrics for a controller that may end any moment.
func (c *Controller) TryMetrics() (string, error) { return c.get(c.t.Context(), "/metrics") }

// Stop ends the controller as an operator does, by SIGTERM, and fails the test if it
// doesn't end in time, or with an exit code other than 0.
func (c *Controller) Stop() {
	c.t.Helper()
	c.asked = true
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		<-c.done // it has ended, and how is known then
		c.t.Errorf("stop the controller: %v (%s)", err, c.cmd.ProcessState)
		return
	}
	if code := c.WaitForEnd(); code != 0 {
		c.t.Errorf("the controller ended with exit code %d after SIGTERM, not 0", code)
	}
}

// Kill ends the controller as a crash does, by SIGKILL, and returns when it is gone.
func (c *Controller) Kill() {
	c.t.Helper()
	c.asked = true
	err := c.cmd.Process.Kill()
	<-c.done
	if err != nil {
		c.t.Errorf("kill the controller: %v (%s)", err, c.cmd.ProcessState)
	}
}

// WaitForEnd waits until the process has ended and returns its exit code. After
// thirty seconds it kills it, and the test fails.
func (c *Controller) WaitForEnd() (code int) {
	c.t.Helper()
	c.asked = true
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		// SIGQUIT has the Go runtime print where each goroutine stands.
		_ = c.cmd.Process.Signal(syscall.SIGQUIT)
		c.Thaw() // or it would not heed it
		<-c.done
		c.t.Errorf("the controller didn't end within %s", stopTimeout)
	}
	return c.cmd.ProcessState.ExitCode()
}

// Ended tells whether the process has ended.
func (c *Controller) Ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// KillAt kills the controller as soon as it has printed text for the nth time from
// now on, and returns when it is gone: a crash right after a write of one's choice.
// The test ends if that doesn't happen within Timeout.
func (c *Controller) KillAt(text string, n int) {
	c.t.Helper()
	reached := c.log.wait(text, n)
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	select {
	case <-reached:
		c.Kill()
	case <-timer.C:
		c.t.Fatalf("the controller hasn't printed %q %d times within %s", text, n, Timeout)
	}
}
