package environment

// A controller that sleeps: its machine hibernates, or it is starved.

import "syscall"

// Freeze stops the process where it stands, by SIGSTOP: its connections stay open, and
// nobody answers. If it isn't thawed before, it is at the end of the test. Freeze and
// Thaw may be called from any goroutine.
func (c *Controller) Freeze() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
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
