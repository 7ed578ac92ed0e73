package environment

// A controller that sleeps: its machine hibernates, or it is starved.

import (
	"errors"
	"os"
	"syscall"
)

// Freeze stops the process where it stands, by SIGSTOP: its connections stay open, and
// nobody answers. If it isn't thawed before, it is at the end of the test. One that has
// ended, with a request of its still on the way, does nothing more already. Freeze and Thaw
// may be called from any goroutine.
func (c *Controller) Freeze() {
	c.t.Helper()
	err := c.cmd.Process.Signal(syscall.SIGSTOP)
	if errors.Is(err, os.ErrProcessDone) {
		return
	}
	if err != nil {
		c.t.Errorf("freeze the controller: %v", err)
		return
	}
	c.t.Cleanup(c.Thaw)
}

// Thaw lets a process go on that was frozen. It does nothing to one that has ended.
func (c *Controller) Thaw() {
	if !c.Ended() {
		_ = c.cmd.Process.Signal(syscall.SIGCONT) // it may have ended since
	}
}
