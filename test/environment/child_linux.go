package environment

import "syscall"

// childAttributes has the kernel kill the controller when the test dies, by a
// timeout, say: else it would run for ever. Ctrl-C in the terminal reaches the test
// alone.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
